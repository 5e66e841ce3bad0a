//! Informers: a cache of a resource that follows the server by list and watch.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::Status;
use component::Shutdown;
use component::metrics::Page;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::client::{Client, KubeObject, ListParams, WatchParams, bookmark, resource_of};
use crate::key::Key;
use crate::skim::Skim;
use crate::store::{Cached, Store};
use crate::transport::{Call, EventKind, Resource, Verb};

/// So many objects that cannot be decoded are remembered, so that each is told of once.
const ODD: usize = 1000;

/// What an informer selects of its resource. The default is everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Namespace, "" for all.
    pub namespace: String,
    /// Label selector, "" for all.
    pub label_selector: String,
    /// Field selector, "" for all.
    pub field_selector: String,
}

impl fmt::Display for Selection {
    /// What is selected, "" for everything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.namespace, &self.label_selector, &self.field_selector];
        f.write_str(&parts.into_iter().filter(|p| !p.is_empty()).cloned().collect::<Vec<_>>().join(";"))
    }
}

struct Shared<T> {
    store: Store<T>,
    client: Client,
    resource: Resource,
    selection: Selection,
    synced: watch::Sender<bool>,
    started: Mutex<bool>,
    undecoded: AtomicU64,
}

/// A shared informer. Clones are the same informer; it derefs to its [`Store`].
pub struct Informer<T>(Arc<Shared<T>>);

impl<T> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Informer<T> {
    type Target = Store<T>;
    fn deref(&self) -> &Store<T> {
        &self.0.store
    }
}

impl<T: KubeObject> Informer<T> {
    /// An informer of a type.
    pub fn new(client: &Client, selection: Selection) -> Self {
        Self::of(client, resource_of::<T>(), selection)
    }
}

impl<T: Cached> Informer<T> {
    /// An informer of any resource.
    pub fn of(client: &Client, resource: Resource, selection: Selection) -> Self {
        Self(Arc::new(Shared {
            store: Store::default(),
            client: client.clone(),
            resource,
            selection,
            synced: watch::Sender::new(false),
            started: Mutex::new(false),
            undecoded: AtomicU64::new(0),
        }))
    }

    /// Follows the server until `shutdown`. Started again, it does nothing.
    pub fn start(&self, shutdown: &Shutdown) {
        if std::mem::replace(&mut *self.0.started.lock(), true) {
            return;
        }
        let (this, stop) = (self.clone(), shutdown.clone());
        shutdown.spawn(async move {
            let _ = stop.run(this.follow()).await;
        });
    }

    /// The resource.
    pub fn resource(&self) -> &Resource {
        &self.0.resource
    }

    /// How many states of objects came that could not be decoded. The store is as if there were no such objects.
    pub fn undecoded(&self) -> u64 {
        self.0.undecoded.load(Ordering::Relaxed)
    }

    /// Tells how many states of objects could not be decoded, if there were any.
    pub fn report(&self, page: &mut Page) {
        const METRIC: &str = "ferrokube_informer_undecoded_total";
        let (count, resource) = (self.undecoded(), self.resource());
        if count > 0 {
            let help = "States of objects that an informer could not decode, and passed over.";
            let labels = [
                ("group", resource.group.as_str()),
                ("resource", resource.plural.as_str()),
                ("type", std::any::type_name::<T>().rsplit("::").next().unwrap_or_default()),
                ("selection", &self.0.selection.to_string()),
            ];
            page.metric(METRIC, "counter", help).value(METRIC, &labels, count as f64);
        }
    }

    /// Whether it has seen one whole state.
    pub fn is_synced(&self) -> bool {
        *self.0.synced.borrow()
    }

    /// Waits until it has seen one whole state; its handlers have heard of it then.
    pub async fn synced(&self) {
        let mut seen = self.0.synced.subscribe();
        // The sender lives as long as `self`.
        let _ = seen.wait_for(|s| *s).await;
    }

    async fn follow(&self) {
        // client-go's numbers: 800 ms to 30 s, forgotten after two quiet minutes.
        let mut backoff = Backoff::new(Duration::from_millis(800), Duration::from_secs(30));
        let mut reflector =
            Reflector { informer: self, revision: None, stream_initial: true, odd: BTreeSet::new() };
        loop {
            let began = Instant::now();
            let step = reflector.step().await;
            if began.elapsed() > Duration::from_mins(2) {
                backoff.reset();
            }
            let Err(error) = step else { continue };
            let delay = backoff.delay();
            tracing::debug!(
                resource = %self.0.resource.plural, %error, delay_ms = delay.as_millis() as u64,
                "list and watch failed, will retry"
            );
            tokio::time::sleep(delay).await;
        }
    }
}

/// How far an informer has got.
struct Reflector<'a, T> {
    informer: &'a Informer<T>,
    /// The newest revision seen; none before the first state, or after the server forgot it.
    revision: Option<String>,
    /// Whether the first state is asked for as a watch; the server may not know how.
    stream_initial: bool,
    /// Objects that cannot be decoded, as far as they were told of.
    odd: BTreeSet<Key>,
}

/// What an object's JSON is.
enum Read<T> {
    Object(T),
    /// An object that cannot be decoded, of this resourceVersion.
    Odd(Key, String),
    /// Not even its name can be read.
    Nothing(Status),
}

impl<T: Cached> Reflector<'_, T> {
    /// One list, or one watch until it ends.
    async fn step(&mut self) -> Result<(), Status> {
        let result = match self.revision.clone() {
            Some(revision) => self.watch(revision).await,
            None if self.stream_initial => match self.watch_list().await {
                Err(e) if matches!(e.code, 400 | 405 | 415 | 422) => {
                    self.stream_initial = false;
                    self.list().await
                }
                other => other,
            },
            None => self.list().await,
        };
        match result {
            Err(e) if e.code == 410 => {
                self.revision = None;
                // A revision that was compacted away is no failure: list again at once.
                Ok(())
            }
            other => other,
        }
    }

    fn call(&self, verb: Verb, query: Vec<(compact_str::CompactString, String)>) -> Call {
        let shared = &self.informer.0;
        Call {
            verb,
            resource: shared.resource.clone(),
            namespace: shared.selection.namespace.as_str().into(),
            name: "".into(),
            subresource: "".into(),
            query,
            body: bytes::Bytes::new(),
        }
    }

    fn watch_params(&self) -> WatchParams {
        let selection = &self.informer.0.selection;
        WatchParams {
            label_selector: selection.label_selector.clone(),
            field_selector: selection.field_selector.clone(),
            bookmarks: true,
            // Random, so that the watches of a cluster do not all start anew together.
            timeout_seconds: fastrand::u32(300..600),
            ..WatchParams::default()
        }
    }

    /// The state as pages of a list.
    async fn list(&mut self) -> Result<(), Status> {
        let shared = &self.informer.0;
        let mut params = ListParams {
            label_selector: shared.selection.label_selector.clone(),
            field_selector: shared.selection.field_selector.clone(),
            resource_version: "0".into(),
            ..ListParams::default()
        };
        let mut objects = BTreeMap::new();
        loop {
            let page = match shared.client.transport().list(self.call(Verb::List, params.query())).await {
                // The server is behind what was asked for, or the token is too old: ask for the newest.
                Err(e) if e.code == 410 && !params.resource_version.is_empty() => {
                    params.resource_version.clear();
                    params.continue_token.clear();
                    objects.clear();
                    continue;
                }
                page => page?,
            };
            for item in &page.items {
                if let Read::Object(object) = self.read(item) {
                    objects.insert(object.key(), object);
                }
            }
            if page.continue_token.is_empty() {
                self.take(objects, page.resource_version);
                return Ok(());
            }
            params.continue_token = page.continue_token;
            params.resource_version.clear();
        }
    }

    /// The state as the beginning of a watch, which goes on with the changes.
    async fn watch_list(&mut self) -> Result<(), Status> {
        let params = WatchParams {
            initial_events: true,
            resource_version_match: "NotOlderThan".into(),
            ..self.watch_params()
        };
        let shared = &self.informer.0;
        let mut stream = shared.client.transport().watch(self.call(Verb::Watch, params.query())).await?;
        let mut objects = Some(BTreeMap::new());
        while let Some(event) = stream.next().await {
            let event = event?;
            let Some(state) = &mut objects else {
                self.apply(event.kind, &event.object)?;
                continue;
            };
            match event.kind {
                EventKind::Added | EventKind::Modified => match self.read(&event.object) {
                    Read::Object(object) => {
                        state.insert(object.key(), object);
                    }
                    Read::Odd(key, _) => {
                        state.remove(&key);
                    }
                    Read::Nothing(_) => {}
                },
                EventKind::Deleted => match self.read(&event.object) {
                    Read::Object(object) => {
                        state.remove(&object.key());
                    }
                    Read::Odd(key, _) => {
                        state.remove(&key);
                    }
                    Read::Nothing(error) => return Err(error),
                },
                EventKind::Bookmark => {
                    let (revision, end) = bookmark(&event.object)?;
                    if end && let Some(objects) = objects.take() {
                        self.take(objects, revision);
                    }
                }
            }
        }
        if objects.is_some() {
            return Err(Status::failure(
                504,
                "Timeout",
                "the watch ended before the initial events were complete",
            ));
        }
        Ok(())
    }

    async fn watch(&mut self, revision: String) -> Result<(), Status> {
        let began = Instant::now();
        let params = WatchParams { resource_version: revision, ..self.watch_params() };
        let mut stream =
            self.informer.0.client.transport().watch(self.call(Verb::Watch, params.query())).await?;
        let mut events = 0usize;
        while let Some(event) = stream.next().await {
            let event = event.inspect_err(|e| {
                // What the server or the connection could not make an event of would come again.
                if e.code == 500 {
                    self.revision = None;
                }
            })?;
            self.apply(event.kind, &event.object)?;
            events += 1;
        }
        if events == 0 && began.elapsed() < Duration::from_secs(1) {
            return Err(Status::failure(500, "InternalError", "very short watch: it ended without an event"));
        }
        Ok(())
    }

    /// Takes a change. What cannot be read at all is passed over by reading the state anew: the watch would begin with
    /// it again, for ever.
    fn apply(&mut self, kind: EventKind, json: &[u8]) -> Result<(), Status> {
        let done = self.try_apply(kind, json);
        if done.is_err() {
            self.revision = None;
        }
        done
    }

    fn try_apply(&mut self, kind: EventKind, json: &[u8]) -> Result<(), Status> {
        if kind == EventKind::Bookmark {
            self.revision = Some(bookmark(json)?.0);
            return Ok(());
        }
        let store = &self.informer.0.store;
        match self.read(json) {
            Read::Object(object) => {
                self.revision = Some(object.resource_version().to_owned());
                if kind == EventKind::Deleted {
                    store.delete(object);
                } else {
                    store.put(object);
                }
                Ok(())
            }
            Read::Odd(key, revision) => {
                store.delete_key(&key);
                self.revision = Some(revision);
                Ok(())
            }
            Read::Nothing(error) => Err(error),
        }
    }

    /// Decodes an object. One that does not fit its type is left out, with a warning: it must not
    /// keep the others from being seen.
    fn read(&mut self, json: &[u8]) -> Read<T> {
        let skim = Skim::new(json);
        let error = match T::decode(&skim.json) {
            Ok(object) => {
                if !self.odd.is_empty() {
                    self.odd.remove(&object.key());
                }
                return Read::Object(object);
            }
            Err(error) => error,
        };
        let shared = &self.informer.0;
        shared.undecoded.fetch_add(1, Ordering::Relaxed);
        let resource = &shared.resource.plural;
        let Some((key, revision)) = skim.identity() else {
            tracing::warn!(%resource, %error, "something that is no object is ignored");
            return Read::Nothing(error);
        };
        if self.odd.len() < ODD && self.odd.insert(key.clone()) {
            tracing::warn!(%resource, object = %key, %error, "an object cannot be decoded and is ignored");
        }
        Read::Odd(key, revision)
    }

    fn take(&mut self, objects: BTreeMap<Key, T>, revision: String) {
        self.informer.0.store.replace(objects);
        self.revision = Some(revision);
        self.informer.0.synced.send_replace(true);
    }
}

trait AnyInformer: Send + Sync {
    fn start(&self, shutdown: &Shutdown);
    fn report(&self, page: &mut Page);
    fn seen(&self) -> watch::Receiver<bool>;
    fn any(&self) -> &dyn Any;
}

impl<T: Cached> AnyInformer for Informer<T> {
    fn start(&self, shutdown: &Shutdown) {
        Informer::start(self, shutdown);
    }
    fn report(&self, page: &mut Page) {
        Informer::report(self, page);
    }
    fn seen(&self) -> watch::Receiver<bool> {
        self.0.synced.subscribe()
    }
    fn any(&self) -> &dyn Any {
        self
    }
}

type Slot = (TypeId, Resource, Selection);

/// The informers of a process: one for each type, resource and selection, shared by all who ask.
#[derive(Clone)]
pub struct Factory {
    client: Client,
    informers: Arc<Mutex<HashMap<Slot, Box<dyn AnyInformer>>>>,
    /// What was asked for through this one, if it is a view.
    asked: Option<Arc<Mutex<Vec<watch::Receiver<bool>>>>>,
}

impl Factory {
    /// A factory whose informers read through `client`.
    pub fn new(client: Client) -> Self {
        Self { client, informers: Arc::default(), asked: None }
    }

    /// The same informers; [`Factory::synced`] of it waits for those alone that were asked for through it. So what
    /// keeps one resource from being read does not concern those who need others.
    pub fn view(&self) -> Self {
        Self { asked: Some(Arc::default()), ..self.clone() }
    }

    /// The informer of all objects of a type.
    pub fn informer<T: KubeObject>(&self) -> Informer<T> {
        self.select(resource_of::<T>(), Selection::default())
    }

    /// The informer of a selection of a resource. It must be started, alone or with all others.
    pub fn select<T: Cached>(&self, resource: Resource, selection: Selection) -> Informer<T> {
        let mut informers = self.informers.lock();
        let slot = (TypeId::of::<T>(), resource, selection);
        let known = informers.get(&slot).and_then(|i| i.any().downcast_ref::<Informer<T>>()).cloned();
        let informer = known.unwrap_or_else(|| {
            let informer = Informer::of(&self.client, slot.1.clone(), slot.2.clone());
            informers.insert(slot, Box::new(informer.clone()));
            informer
        });
        if let Some(asked) = &self.asked {
            asked.lock().push(informer.0.synced.subscribe());
        }
        informer
    }

    /// Starts every informer asked for so far that was not started.
    pub fn start(&self, shutdown: &Shutdown) {
        for informer in self.informers.lock().values() {
            informer.start(shutdown);
        }
    }

    /// Tells of the informers asked for so far.
    pub fn report(&self, page: &mut Page) {
        for informer in self.informers.lock().values() {
            informer.report(page);
        }
    }

    /// Waits until every informer asked for so far is synced.
    pub async fn synced(&self) {
        let all: Vec<_> = match &self.asked {
            Some(asked) => asked.lock().clone(),
            None => self.informers.lock().values().map(|i| i.seen()).collect(),
        };
        for mut seen in all {
            let _ = seen.wait_for(|s| *s).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Script, bookmark as mark, config_map, event};
    use crate::store::Change;
    use crate::transport::EventKind::{Added, Deleted, Modified};
    use crate::transport::ListAnswer;
    use k8s_openapi::api::core::v1::ConfigMap;

    struct Run {
        fake: Arc<Fake>,
        informer: Informer<ConfigMap>,
        changes: Arc<Mutex<Vec<String>>>,
        shutdown: Shutdown,
    }

    /// Starts an informer against a script and waits until it asked for `requests` things.
    async fn run(watches: Vec<Script>, lists: Vec<Result<ListAnswer, Status>>, requests: usize) -> Run {
        let fake = Fake::new();
        fake.watches.lock().extend(watches);
        fake.lists.lock().extend(lists);
        let client = Client::new(fake.clone(), "test");
        let informer = Informer::<ConfigMap>::new(&client, Selection::default());
        informer
            .index("app", |c| c.metadata.labels.iter().flatten().map(|(_, v)| v.as_str().into()).collect());
        let changes = Arc::new(Mutex::new(Vec::new()));
        let log = changes.clone();
        informer.handle(move |change| {
            let word = match change {
                Change::Added(_) => "+",
                Change::Updated { .. } => "~",
                Change::Deleted(_) => "-",
            };
            log.lock().push(format!("{word}{}", change.object().name()));
        });
        let shutdown = Shutdown::new();
        informer.start(&shutdown);
        let wait = async {
            while fake.seen.lock().len() < requests {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        tokio::time::timeout(Duration::from_mins(10), wait).await.expect("the requests come");
        Run { fake, informer, changes, shutdown }
    }

    fn query(run: &Run, request: usize, key: &str) -> String {
        run.fake.seen.lock()[request].1.get(key).cloned().unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_brings_the_state_and_the_changes() {
        let events = vec![
            event(Added, "a", 5),
            event(Added, "b", 6),
            mark(8, true),
            event(Modified, "a", 9),
            event(Deleted, "b", 10),
            event(Added, "c", 11),
            mark(15, false),
        ];
        let r = run(vec![Script::Events { events, open: false }], vec![], 2).await;
        assert!(r.informer.is_synced());
        assert_eq!(*r.changes.lock(), ["+a", "+b", "~a", "-b", "+c"]);
        assert_eq!(r.informer.list_namespace("ns").len(), 2);
        assert_eq!(r.informer.by_index("app", "c").len(), 1);
        assert!(r.informer.by_index("app", "b").is_empty());
        let a = r.informer.get("ns", "a").unwrap();
        assert_eq!((a.resource_version(), &a.metadata.managed_fields), ("9", &None));
        assert_eq!(query(&r, 0, "sendInitialEvents"), "true");
        assert_eq!(query(&r, 0, "resourceVersionMatch"), "NotOlderThan");
        assert_eq!(query(&r, 1, "resourceVersion"), "15", "it goes on where the bookmark was");
        assert_eq!(query(&r, 1, "sendInitialEvents"), "");
        r.shutdown.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_without_watch_lists_is_listed_in_pages() {
        let refuse = Script::Refuse(Status::failure(422, "Invalid", "sendInitialEvents is forbidden"));
        let page = |token: &str, name: &str| {
            Ok(ListAnswer {
                resource_version: "20".into(),
                continue_token: token.into(),
                items: vec![config_map(name, 3)],
            })
        };
        let r = run(vec![refuse], vec![page("next", "a"), page("", "b")], 4).await;
        assert_eq!(*r.changes.lock(), ["+a", "+b"]);
        assert_eq!(query(&r, 2, "continue"), "next");
        assert_eq!(query(&r, 3, "resourceVersion"), "20");
        r.shutdown.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_revision_means_a_new_state_and_only_its_differences() {
        let first = vec![event(Added, "a", 1), event(Added, "b", 2), mark(3, true)];
        let second = vec![event(Added, "b", 2), event(Added, "c", 40), mark(41, true)];
        let watches = vec![
            Script::Events { events: first, open: false },
            Script::Events { events: vec![Err(Status::expired("too old resource version"))], open: false },
            Script::Events { events: second, open: true },
        ];
        let r = run(watches, vec![], 3).await;
        assert_eq!(*r.changes.lock(), ["+a", "+b", "-a", "+c"]);
        r.shutdown.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn errors_back_off_and_keep_the_state() {
        let down = || Script::Refuse(Status::failure(503, "ServiceUnavailable", "down"));
        let first = vec![event(Added, "a", 1), mark(3, true)];
        let began = Instant::now();
        let r = run(
            vec![down(), down(), Script::Events { events: first, open: false }, down(), down()],
            vec![],
            6,
        )
        .await;
        assert!(began.elapsed() > Duration::from_secs(12));
        assert_eq!(*r.changes.lock(), ["+a"]);
        assert_eq!(query(&r, 5, "resourceVersion"), "3");
        r.shutdown.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_decoded_does_not_hide_the_rest() {
        let bad = bytes::Bytes::from(
            r#"{"metadata":{"namespace":"ns","name":"bad","resourceVersion":"2"},"data":7}"#,
        );
        let events = vec![
            event(Added, "a", 1),
            Ok(crate::transport::WatchEvent { kind: Added, object: bad.clone() }),
            mark(3, true),
            Ok(crate::transport::WatchEvent { kind: Modified, object: bad }),
            event(Added, "z", 4),
        ];
        let r = run(vec![Script::Events { events, open: true }], vec![], 1).await;
        assert_eq!(*r.changes.lock(), ["+a", "+z"]);
        r.shutdown.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_decoded_is_not_asked_for_again() {
        let raw = |kind, json: String| Ok(crate::transport::WatchEvent { kind, object: json.into() });
        let bad = |revision: u64| {
            format!(
                r#"{{"metadata":{{"namespace":"ns","name":"bad","resourceVersion":"{revision}"}},"data":7}}"#
            )
        };
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let odd = format!(
            r#"{{"metadata":{{"namespace":"ns","name":"odd","resourceVersion":"9","managedFields":{deep}}}}}"#
        );
        let watches = vec![
            Script::Events {
                events: vec![
                    event(Added, "a", 1),
                    raw(Added, bad(2)),
                    raw(Added, "7".into()),
                    mark(3, true),
                    raw(Modified, bad(4)),
                    raw(Modified, bad(5)),
                ],
                open: false,
            },
            Script::Events { events: vec![raw(Added, odd), raw(Deleted, bad(10))], open: false },
            // Nothing of this can be read, not even its revision.
            Script::Events { events: vec![event(Added, "b", 11), raw(Modified, "[1]".into())], open: false },
            Script::Events { events: vec![event(Added, "b", 11), mark(12, true)], open: false },
        ];
        let r = run(watches, vec![], 5).await;
        let asked: Vec<_> = (0..5).map(|i| query(&r, i, "resourceVersion")).collect();
        assert_eq!(asked, ["", "5", "10", "", "12"]);
        assert_eq!(*r.changes.lock(), ["+a", "+odd", "+b", "-a", "-odd"]);
        assert_eq!(r.informer.undecoded(), 6);
        r.shutdown.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_cannot_tell_is_passed_over_by_a_new_state() {
        let watches = vec![
            Script::Events { events: vec![event(Added, "a", 1), mark(3, true)], open: false },
            Script::Events { events: vec![Err(Status::internal("unable to transform key"))], open: false },
            Script::Events { events: vec![event(Added, "a", 1), mark(5, true)], open: false },
            Script::Events {
                events: vec![Err(Status::failure(503, "ServiceUnavailable", "broke"))],
                open: false,
            },
        ];
        let r = run(watches, vec![], 5).await;
        let asked: Vec<_> = (0..5).map(|i| query(&r, i, "resourceVersion")).collect();
        assert_eq!(asked, ["", "3", "", "5", "5"]);
        assert_eq!(*r.changes.lock(), ["+a"]);
        r.shutdown.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn late_handlers_hear_of_what_is_there() {
        let events = vec![event(Added, "a", 1), mark(3, true)];
        let r = run(vec![Script::Events { events, open: true }], vec![], 1).await;
        let heard = Arc::new(Mutex::new(0));
        let (count, store) = (heard.clone(), r.informer.clone());
        r.informer.handle(move |change| {
            assert!(store.get_key(&change.object().key()).is_some(), "handlers may read the store");
            *count.lock() += 1;
        });
        assert_eq!(*heard.lock(), 1);
        r.shutdown.finish().await;
    }

    #[tokio::test]
    async fn a_factory_shares() {
        let factory = Factory::new(Client::new(Fake::new(), "test"));
        let (a, b) = (factory.informer::<ConfigMap>(), factory.informer::<ConfigMap>());
        assert!(Arc::ptr_eq(&a.0, &b.0));
        let other = factory.select::<ConfigMap>(
            resource_of::<ConfigMap>(),
            Selection { namespace: "ns".into(), ..Selection::default() },
        );
        assert!(!Arc::ptr_eq(&a.0, &other.0));
    }
}
