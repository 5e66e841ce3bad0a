//! The events of one watch, as its watcher sees them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use access::RequestInfo;
use api::{Object, Status};
use client::EventKind;
use component::Shutdown;
use futures::Stream;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use storage::{Batch, Cause, Event, WatchEnd, Watcher};
use tokio::time::{Instant, Sleep};

use crate::catalog::unreadable::transforming;
use crate::catalog::{Catalog, ResourceEntry};
use crate::flow::{Seat, Watchers, Watches};
use crate::front::lifetime::{Due, Lifetime};
use crate::select::Selection;

/// An item of a watch.
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
    pub(crate) resource: Arc<ResourceEntry>,
    watcher: Option<Watcher>,
    selection: Selection,
    bookmarks: bool,
    /// The initial state closes with an annotated bookmark.
    initial_end: bool,
    /// Events of the store that are still to be looked at.
    events: std::vec::IntoIter<Arc<Event>>,
    bookmark: Option<WatchItem>,
    error: Option<Box<Status>>,
    /// The bringing of a definition's objects into the version of the watch, before anything is selected.
    bringing: Option<Bringing>,
    ends: Ends,
    done: bool,
    /// It begins with the current state, which was not sent yet.
    beginning: bool,
    /// The place of its request, until it has begun.
    seat: Option<Seat>,
    /// Its place among the watchers.
    watches: Option<Watches>,
}

type Brought = BoxFuture<'static, Result<Vec<Arc<Event>>, Status>>;

/// Brings the objects of events into the version of a resource.
struct Bringing {
    catalog: Arc<Catalog>,
    /// The events as they will be. The lock is never taken: it lets threads share the watch, which its body must.
    answer: Mutex<Option<Brought>>,
}

impl Bringing {
    /// The events with objects of the version of the resource; those that need nothing stay as they are.
    async fn bring(
        catalog: Arc<Catalog>,
        resource: Arc<ResourceEntry>,
        events: Vec<Arc<Event>>,
    ) -> Result<Vec<Arc<Event>>, Status> {
        let objects: Vec<Arc<Object>> =
            events.iter().flat_map(|e| [Some(&e.object), e.previous.as_ref()]).flatten().cloned().collect();
        let brought = catalog.shared_objects(&resource, &objects).await?;
        let mut brought = brought.into_iter();
        let event = |event: Arc<Event>| {
            let object = brought.next()?;
            let previous = if event.previous.is_some() { brought.next() } else { None };
            let same = Arc::ptr_eq(&object, &event.object)
                && match (&previous, &event.previous) {
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                    _ => true,
                };
            Some(if same { event } else { Arc::new(Event::new(event.cause, object, previous)) })
        };
        Ok(events.into_iter().filter_map(event).collect())
    }
}

/// The times by which the connection's client must have taken what a watch sends. They end with the watch.
pub(crate) struct WatchDeadlines {
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

/// How a watch begins, and when it ends.
pub(crate) struct Begun {
    /// The objects that it is about.
    pub(crate) selection: Selection,
    /// The store's events; none where there is an error instead.
    pub(crate) watcher: Result<Watcher, Box<Status>>,
    /// Bookmarks are welcome.
    pub(crate) bookmarks: bool,
    /// It begins with the current state.
    pub(crate) initial: bool,
    /// It ends after this time.
    pub(crate) timeout: Duration,
}

impl WatchSource {
    /// A watch of a resource until shutdown at the latest.
    pub(crate) fn new(resource: &Arc<ResourceEntry>, start: Begun, shutdown: &Shutdown) -> Self {
        let Begun { selection, watcher, bookmarks, initial, timeout } = start;
        let (watcher, error) = match watcher {
            Ok(watcher) => (Some(watcher), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            resource: Arc::clone(resource),
            watcher,
            selection,
            bookmarks,
            initial_end: initial && bookmarks,
            events: Vec::new().into_iter(),
            bookmark: None,
            error,
            bringing: None,
            ends: Ends::new(timeout, shutdown),
            done: false,
            beginning: initial,
            seat: None,
            watches: None,
        }
    }
    /// Takes the place of the watch's request, which it has until its initial state was sent, and one among the
    /// watchers.
    ///
    /// DIFFERENCE: a watch for one value of an indexed field counts as none, since it is told of few writes. Upstream does
    /// that for Pods of a node alone.
    pub(crate) fn seated(&mut self, seat: Option<Seat>, watchers: &Watchers, info: &RequestInfo) {
        self.seat = seat.filter(|_| self.beginning && self.error.is_none());
        self.watches = self.selection.scope.field.is_none().then(|| watchers.add(info));
    }
    /// The watch with its events in the version of its resource, which a definition describes.
    pub(crate) fn bringing(self, catalog: &Arc<Catalog>) -> Self {
        let bringing = Bringing { catalog: Arc::clone(catalog), answer: Mutex::default() };
        Self { bringing: Some(bringing), ..self }
    }
    /// Takes the events that are brought into the version of the watch, once they are.
    fn poll_brought(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let Some(bringing) = &mut self.bringing else { return Poll::Ready(Ok(())) };
        let Some(answer) = bringing.answer.get_mut() else { return Poll::Ready(Ok(())) };
        let events = std::task::ready!(answer.as_mut().poll(cx));
        *bringing.answer.get_mut() = None;
        self.events = events?.into_iter();
        Poll::Ready(Ok(()))
    }
    fn take(&mut self, batch: Batch) {
        let bookmark = |revision, initial_end| WatchItem::Bookmark { revision, initial_end };
        match batch {
            Batch::Events(events) => {
                let is_current = |e: &Arc<Event>| {
                    let both = [Some(&e.object), e.previous.as_ref()];
                    both.into_iter().flatten().all(|object| self.resource.is_current(object))
                };
                match &mut self.bringing {
                    Some(bringing) if !events.iter().all(is_current) => {
                        let (catalog, resource) = (Arc::clone(&bringing.catalog), Arc::clone(&self.resource));
                        *bringing.answer.get_mut() =
                            Some(Box::pin(Bringing::bring(catalog, resource, events)));
                    }
                    _ => self.events = events.into_iter(),
                }
            }
            Batch::Synced(revision) => {
                if self.initial_end && self.bookmarks {
                    self.bookmark = Some(bookmark(revision, true));
                }
                self.initial_end = false;
                (self.beginning, self.seat) = (false, None);
            }
            Batch::Progress(revision) => {
                if self.bookmarks {
                    self.bookmark = Some(bookmark(revision, false));
                }
            }
        }
    }
    /// A change as this watcher sees it: an object that enters the selection is added, one that leaves it is deleted.
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
    pub(crate) fn deadlines(&self, lifetime: &Arc<Lifetime>) -> WatchDeadlines {
        let behind = Arc::new(Mutex::new(None));
        if let Some(watcher) = &self.watcher {
            let (lifetime, behind) = (Arc::clone(lifetime), Arc::clone(&behind));
            watcher.on_behind(move || *behind.lock() = Some(lifetime.due(Instant::now())));
        }
        WatchDeadlines { _end: lifetime.due(self.ends.at), _behind: behind }
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
            match this.poll_brought(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(status)) => {
                    this.error = Some(Box::new(status));
                    this.done = true;
                }
                Poll::Pending if this.ends.poll(cx) => this.done = true,
                Poll::Pending => return Poll::Pending,
            }
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
