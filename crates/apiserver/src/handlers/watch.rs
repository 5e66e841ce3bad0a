//! Watches.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use api::{Object, Status};
use bytes::{BufMut, Bytes, BytesMut};
use client::EventKind;
use component::Shutdown;
use futures::Stream;
use parking_lot::Mutex;
use storage::{Batch, Cause, Event, ResourceId, Store, WatchEnd, WatchOptions, WatchStart, Watcher};
use tokio::time::{Instant, Sleep};

use super::unreadable::transforming;
use crate::answer::{self, Outcome};
use crate::codec;
use crate::front::{Due, Leash};
use crate::inner::Inner;
use crate::negotiate::{Convert, Form, Format, IncludeObject};
use crate::options::ListOptions;
use crate::registry::Resource;
use crate::request::Request;

use crate::select::Selection;
use crate::table::{self, Bookmark, TableForm};

/// How long a read waits for a revision that the store has not reached; upstream's `blockTimeout`.
pub(crate) const FRESH_TIMEOUT: Duration = Duration::from_secs(3);

/// What a watch yields.
pub(crate) enum WatchItem {
    /// A change, or an object of the initial state.
    Event {
        /// As the watcher sees it.
        kind: EventKind,
        /// The object; for one that left the selection its last state in it, at the change's revision.
        object: Arc<Object>,
        /// The store's event, if the object is its own: what is encoded is shared through it.
        event: Option<Arc<Event>>,
    },
    /// Everything up to the revision was sent.
    Bookmark {
        /// The revision.
        revision: u64,
        /// It closes the initial state.
        initial_end: bool,
    },
    /// The last item.
    Error(Box<Status>),
}

/// The events of one watch.
pub(crate) struct WatchSource {
    /// In the version of this resource.
    pub resource: Arc<Resource>,
    watcher: Option<Watcher>,
    selection: Selection,
    bookmarks: bool,
    /// The initial state closes with an annotated bookmark.
    initial_end: bool,
    /// Events of the store that are still to be looked at.
    events: std::vec::IntoIter<Arc<Event>>,
    bookmark: Option<WatchItem>,
    error: Option<Box<Status>>,
    ends: Ends,
    done: bool,
}

/// What ends with a watch.
pub(crate) struct Tie {
    _end: Due,
    _behind: Arc<Mutex<Option<Due>>>,
}

/// When a watch ends that its client does not end.
struct Ends {
    /// The deadline's time.
    at: Instant,
    deadline: Pin<Box<Sleep>>,
    shutdown: Shutdown,
    stop: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// Both will wake the task that polls the watch.
    armed: Option<Waker>,
}

impl Ends {
    fn new(timeout: Duration, shutdown: &Shutdown) -> Self {
        let stop = shutdown.clone();
        let at = Instant::now() + timeout;
        Self {
            at,
            deadline: Box::pin(tokio::time::sleep_until(at)),
            shutdown: shutdown.clone(),
            stop: Box::pin(async move { stop.wait().await }),
            armed: None,
        }
    }

    /// Whether it is over. To look costs far less than to ask for being woken once more, which a watch would
    /// do with every event.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if self.armed.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            return self.deadline.is_elapsed() || self.shutdown.stopped();
        }
        self.armed = Some(cx.waker().clone());
        self.stop.as_mut().poll(cx).is_ready() || self.deadline.as_mut().poll(cx).is_ready()
    }
}

impl WatchSource {
    fn take(&mut self, batch: Batch) {
        let bookmark = |revision, initial_end| WatchItem::Bookmark { revision, initial_end };
        match batch {
            Batch::Events(events) => self.events = events.into_iter(),
            Batch::Synced(revision) => {
                if self.initial_end && self.bookmarks {
                    self.bookmark = Some(bookmark(revision, true));
                }
                self.initial_end = false;
            }
            Batch::Progress(revision) => {
                if self.bookmarks {
                    self.bookmark = Some(bookmark(revision, false));
                }
            }
        }
    }
    /// What a change is to this watcher: entering the selection adds, leaving it deletes.
    fn view(&self, event: Arc<Event>) -> Option<WatchItem> {
        let now = event.cause != Cause::Deleted
            && (self.selection.everything || self.selection.matches(&event.object));
        let before = match (&event.previous, event.cause) {
            (Some(p), _) => self.selection.everything || self.selection.matches(p),
            (None, Cause::Deleted) => self.selection.everything || self.selection.matches(&event.object),
            (None, _) => false,
        };
        let kind = match (now, before) {
            (true, false) => EventKind::Added,
            (true, true) => EventKind::Modified,
            (false, true) => EventKind::Deleted,
            (false, false) => return None,
        };
        if kind == EventKind::Deleted && event.cause != Cause::Deleted {
            let last = event.previous.as_ref()?;
            let object = Arc::new(Object { data: last.data.clone(), revision: event.revision });
            return Some(WatchItem::Event { kind, object, event: None });
        }
        Some(WatchItem::Event { kind, object: Arc::clone(&event.object), event: Some(event) })
    }
}

impl WatchSource {
    /// Has the watch's connection end if its client does not take what it is sent: after the watch's time,
    /// and once too many events wait.
    pub(crate) fn tie(&self, leash: &Arc<Leash>) -> Tie {
        let behind = Arc::new(Mutex::new(None));
        if let Some(watcher) = &self.watcher {
            let (leash, behind) = (Arc::clone(leash), Arc::clone(&behind));
            watcher.on_behind(move || *behind.lock() = Some(leash.due(Instant::now())));
        }
        Tie { _end: leash.due(self.ends.at), _behind: behind }
    }
    /// Whether an event may wait.
    pub(crate) fn is_ready(&self) -> bool {
        !self.events.as_slice().is_empty()
    }
    /// An item that waits.
    pub(crate) fn next_ready(&mut self) -> Option<WatchItem> {
        while let Some(event) = self.events.next() {
            let item = self.view(event);
            if item.is_some() {
                return item;
            }
        }
        self.bookmark.take()
    }
}

impl Stream for WatchSource {
    type Item = WatchItem;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        let this = &mut *self;
        loop {
            if let Some(item) = this.next_ready() {
                return Poll::Ready(Some(item));
            }
            if let Some(error) = this.error.take() {
                return Poll::Ready(Some(WatchItem::Error(error)));
            }
            if this.done {
                return Poll::Ready(None);
            }
            let Some(watcher) = &mut this.watcher else {
                this.done = true;
                return Poll::Ready(None);
            };
            match Pin::new(watcher).poll_next(cx) {
                Poll::Ready(Some(Ok(batch))) => this.take(batch),
                Poll::Ready(Some(Err(WatchEnd::Compacted))) => {
                    let message = "too old resource version: what changed since is no longer known";
                    this.error = Some(Box::new(Status::expired(message)));
                    this.done = true;
                }
                Poll::Ready(Some(Err(WatchEnd::Unreadable(bad)))) => {
                    this.error = Some(Box::new(transforming(&bad)));
                    this.done = true;
                }
                Poll::Ready(Some(Err(WatchEnd::Behind | WatchEnd::Closed)) | None) => {
                    // Upstream ends a watcher that is too slow without a word: it goes on from where it was.
                    this.done = true;
                }
                // Its time is up only between events.
                Poll::Pending => {
                    if !this.ends.poll(cx) {
                        return Poll::Pending;
                    }
                    this.done = true;
                }
            }
        }
    }
}

/// Starts a watch.
pub(crate) async fn watch(
    inner: &Arc<Inner>,
    req: &Request,
    resource: &Arc<Resource>,
    options: ListOptions,
) -> Result<Outcome, Status> {
    let stored = resource.stored()?;
    let selection = Selection::new(
        stored,
        super::scope_namespace(resource, &req.info),
        &req.info.name,
        &options.label_selector,
        &options.field_selector,
    )?;
    let revision = options.revision()?;
    let initial = options.initial_events == Some(true);
    if options.resource_version.is_empty() {
        super::fresh(&inner.store, &[stored.id]).await?;
    }
    reached(&inner.store, stored.id, if initial { revision } else { 0 }).await?;
    let start = if initial {
        WatchStart::Now
    } else if revision == 0 {
        WatchStart::After(inner.store.current(stored.id))
    } else {
        WatchStart::After(revision)
    };
    let watcher = inner.store.watch(
        stored.id,
        selection.scope.clone(),
        start,
        WatchOptions { progress: options.bookmarks, ..WatchOptions::default() },
    );
    let timeout = match options.timeout {
        Some(t) if t > 0 => Duration::from_secs(t as u64),
        _ => inner.config.min_request_timeout.mul_f64(1.0 + fastrand::f64()),
    };
    // What was written before the watcher came has ended nobody's watch.
    let after = if let WatchStart::After(revision) = start { revision } else { 0 };
    let (watcher, error) = match watcher {
        Ok(w) => {
            let bad = inner.store.unreadable(stored.id, &selection.scope, after);
            let error = bad.map(|bad| Box::new(transforming(&bad)));
            (error.is_none().then_some(w), error)
        }
        // The watch itself begins well: clients read this error as its first event.
        Err(compacted) => {
            let message = format!("too old resource version: {revision} ({})", compacted.oldest);
            (None, Some(Box::new(Status::expired(message))))
        }
    };
    Ok(Outcome::Watch(Box::new(WatchSource {
        resource: Arc::clone(resource),
        watcher,
        selection,
        bookmarks: options.bookmarks,
        initial_end: initial && options.bookmarks,
        events: Vec::new().into_iter(),
        bookmark: None,
        error,
        ends: Ends::new(timeout, &inner.shutdown),
        done: false,
    })))
}

/// Returns once a resource is shown as of a revision, and is loaded at all; upstream's error if it is not in time.
pub(crate) async fn reached(store: &Store, resource: ResourceId, revision: u64) -> Result<(), Status> {
    if store.wait_for(resource, revision, FRESH_TIMEOUT).await {
        return Ok(());
    }
    Err(too_large(revision, store.current(resource)))
}

/// Upstream's error for a revision that is still to come.
pub(crate) fn too_large(wanted: u64, current: u64) -> Status {
    let mut s = Status::failure(
        504,
        "Timeout",
        format!("Timeout: Too large resource version: {wanted}, current: {current}"),
    );
    s.details = Some(Box::new(api::status::Details {
        causes: vec![api::status::Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        }],
        retry_after_seconds: 1,
        ..Default::default()
    }));
    s
}

/// Frames the items of a watch in the form that was asked for.
pub(crate) struct Framer {
    inner: Arc<Inner>,
    resource: Arc<Resource>,
    form: Form,
    number: u32,
    headers_sent: bool,
}

impl Framer {
    pub(crate) fn new(inner: &Arc<Inner>, resource: &Arc<Resource>, form: Form) -> Self {
        // Nine bits say how, the others for which resource and version.
        let format = match form.format {
            Format::Json | Format::Yaml => 0,
            Format::Protobuf => 1,
        };
        let convert = match form.convert {
            Convert::None => 0,
            Convert::Partial(v) | Convert::PartialList(v) => 1 + v as u32,
            Convert::Table(v) => 3 + v as u32,
        };
        let include = match form.include {
            IncludeObject::Metadata => 0,
            IncludeObject::Object => 1,
            IncludeObject::None => 2,
        };
        let number = resource.number << 12 | include << 8 | convert << 4 | format << 2;
        Self { inner: Arc::clone(inner), resource: Arc::clone(resource), form, number, headers_sent: false }
    }
    /// The frame of an item; shared with the other watchers of the same form where that is possible.
    pub(crate) fn frame(&mut self, item: WatchItem) -> Bytes {
        match item {
            WatchItem::Event { kind, object, event: Some(event) } => {
                let table = matches!(self.form.convert, Convert::Table(_));
                if table && !self.headers_sent {
                    return self.object_frame(kind, &object);
                }
                let number = self.number | kind_bits(kind);
                event.encoded(number, || self.object_frame_shared(kind, &object))
            }
            WatchItem::Event { kind, object, event: None } => self.object_frame(kind, &object),
            WatchItem::Bookmark { revision, initial_end } => self.bookmark(revision, initial_end),
            WatchItem::Error(status) => self.error(&status),
        }
    }
    fn object_frame(&mut self, kind: EventKind, object: &Object) -> Bytes {
        let bytes = self.encode(kind, object, !self.headers_sent);
        self.headers_sent = true;
        bytes
    }
    fn object_frame_shared(&self, kind: EventKind, object: &Object) -> Bytes {
        self.encode(kind, object, false)
    }
    fn encode(&self, kind: EventKind, object: &Object, headers: bool) -> Bytes {
        let built = match (self.form.convert, self.form.format) {
            (Convert::None, Format::Protobuf) => answer::object_proto(&self.inner, &self.resource, object)
                .map(|raw| {
                    codec::envelope(&self.resource.kind.api_version(), &self.resource.kind.kind, &raw)
                }),
            (Convert::None, _) if self.resource.same_version() => {
                return self.json_direct(kind, object);
            }
            (Convert::None, _) => answer::object_json(&self.inner, &self.resource, object),
            (Convert::Partial(v) | Convert::PartialList(v), format) => {
                let json = answer::partial_json(&self.resource, object, v.api_version());
                if format == Format::Protobuf {
                    let name = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata";
                    codec::proto_of_json(self.inner.schema, name, &json)
                        .map(|raw| codec::envelope(v.api_version(), "PartialObjectMetadata", &raw))
                } else {
                    Ok(json)
                }
            }
            (Convert::Table(v), _) => {
                let form = TableForm { version: v, include: self.form.include, headers };
                table::of_objects(&self.inner, &self.resource, std::slice::from_ref(object), form)
            }
        };
        match built {
            Ok(bytes) => self.wrap(event_type(kind), &bytes),
            Err(status) => self.error(&status),
        }
    }
    fn json_direct(&self, kind: EventKind, object: &Object) -> Bytes {
        let mut out = BytesMut::with_capacity(object.data.body.len() + self.resource.type_meta.len() + 64);
        out.put_slice(b"{\"type\":\"");
        out.put_slice(event_type(kind).as_bytes());
        out.put_slice(b"\",\"object\":");
        object.write_json(&self.resource.type_meta, &mut out);
        out.put_slice(b"}\n");
        out.freeze()
    }
    fn wrap(&self, event_type: &str, object: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(object.len() + 64);
        if self.form.format == Format::Protobuf {
            let mut raw_extension = Vec::with_capacity(object.len() + 8);
            codec::proto_bytes(1, object, &mut raw_extension);
            let mut message = Vec::with_capacity(raw_extension.len() + 32);
            codec::proto_bytes(1, event_type.as_bytes(), &mut message);
            codec::proto_bytes(2, &raw_extension, &mut message);
            out.put_u32(message.len() as u32);
            out.put_slice(&message);
        } else {
            out.put_slice(b"{\"type\":\"");
            out.put_slice(event_type.as_bytes());
            out.put_slice(b"\",\"object\":");
            out.put_slice(object);
            out.put_slice(b"}\n");
        }
        out.freeze()
    }
    fn error(&self, status: &Status) -> Bytes {
        let form = Form { format: self.form.format, ..Form::JSON };
        let mut bytes = answer::encode_status(&self.inner, status, form);
        if bytes.last() == Some(&b'\n') && form.format != Format::Protobuf {
            bytes.truncate(bytes.len() - 1);
        }
        self.wrap("ERROR", &bytes)
    }
    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let tree = bookmark_tree(&self.inner, &self.resource, revision, initial_end);
        let kind = &self.resource.kind;
        let bytes = match (self.form.convert, self.form.format) {
            (Convert::None, Format::Protobuf) => {
                codec::envelope(&kind.api_version(), &kind.kind, &codec::message(self.inner.schema, &tree))
            }
            (Convert::None, _) => codec::json_with(self.inner.schema, &self.resource.type_meta, &tree),
            (Convert::Partial(v) | Convert::PartialList(v), format) => {
                let json = partial_bookmark(revision, initial_end, v.api_version());
                let name = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata";
                match (format, codec::proto_of_json(self.inner.schema, name, &json)) {
                    (Format::Protobuf, Ok(raw)) => {
                        codec::envelope(v.api_version(), "PartialObjectMetadata", &raw)
                    }
                    _ => json,
                }
            }
            (Convert::Table(v), _) => {
                let partial = &partial_bookmark(revision, initial_end, v.api_version());
                let of = Bookmark { revision, tree: &tree, partial, initial_end };
                let headers = !self.headers_sent;
                let form = TableForm { version: v, include: self.form.include, headers };
                let bytes = table::bookmark(&self.inner, &self.resource, &of, form);
                self.headers_sent = true;
                bytes
            }
        };
        self.wrap("BOOKMARK", &bytes)
    }
}

fn partial_bookmark(revision: u64, initial_end: bool, api_version: &str) -> Bytes {
    let annotation =
        if initial_end { ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" } else { "" };
    Bytes::from(format!(
        "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\"{revision}\"{annotation}}}}}"
    ))
}

/// The object of a bookmark: empty but for its resourceVersion.
pub(crate) fn bookmark_tree(
    inner: &Inner,
    resource: &Resource,
    revision: u64,
    initial_end: bool,
) -> api::Struct {
    let mut tree = api::Struct::new(resource.root);
    if let Some(at) = resource.meta_at
        && let Some(mut meta) = inner.meta.of_mut(&mut tree, at)
    {
        meta.set_resource_version(&revision.to_string());
        if initial_end {
            meta.annotate("k8s.io/initial-events-end", "true");
        }
    }
    tree
}

fn kind_bits(kind: EventKind) -> u32 {
    match kind {
        EventKind::Added => 0,
        EventKind::Modified => 1,
        EventKind::Deleted => 2,
        EventKind::Bookmark => 3,
    }
}

/// The name of a kind of event on the wire.
pub(crate) fn event_type(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Added => "ADDED",
        EventKind::Modified => "MODIFIED",
        EventKind::Deleted => "DELETED",
        EventKind::Bookmark => "BOOKMARK",
    }
}
