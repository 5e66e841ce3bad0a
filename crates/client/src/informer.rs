//! Informers: a cache of a resource that follows the server by list and watch.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::Status;
use compact_str::CompactString as Text;
use component::Shutdown;
use component::metrics::Page;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::client::{Client, KubeObject, resource_of};
use crate::key::Key;
use crate::reflector::{Reflector, Selection, Sink};
use crate::skim::Skim;
use crate::store::{Cached, Store};
use crate::transport::{EventKind, Resource};

/// So many objects that cannot be decoded are remembered, so that each is told of once.
const ODD: usize = 1000;

/// The typed side of an informer: decodes what its reflector reads, and keeps it.
struct Shared<T> {
    store: Store<T>,
    resource: Resource,
    synced: watch::Sender<bool>,
    undecoded: AtomicU64,
    /// The state that the reflector is reading.
    staged: Mutex<BTreeMap<Key, T>>,
    /// Objects that cannot be decoded, as far as they were told of.
    odd: Mutex<BTreeSet<Key>>,
}

/// A shared informer. Clones are the same informer; it derefs to its [`Store`].
pub struct Informer<T> {
    shared: Arc<Shared<T>>,
    reflector: Arc<Reflector>,
}

impl<T> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), reflector: self.reflector.clone() }
    }
}

/// An index of an informer's objects.
pub struct Index<T> {
    shared: Arc<Shared<T>>,
    place: usize,
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), place: self.place }
    }
}

impl<T: Cached> Index<T> {
    /// The objects that it finds under a value, ordered by namespace and name.
    pub fn get(&self, value: &str) -> Vec<Arc<T>> {
        self.shared.store.by_index(self.place, value)
    }
    /// How many objects it finds under a value.
    pub fn count(&self, value: &str) -> usize {
        self.shared.store.count_by_index(self.place, value)
    }
}

impl<T> Deref for Informer<T> {
    type Target = Store<T>;
    fn deref(&self) -> &Store<T> {
        &self.shared.store
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
        Self::fed_by(&Arc::new(Reflector::new(client, resource, selection)))
    }

    /// One more informer of what a reflector reads.
    pub(crate) fn fed_by(reflector: &Arc<Reflector>) -> Self {
        let shared = Arc::new(Shared {
            store: Store::default(),
            resource: reflector.resource().clone(),
            synced: watch::Sender::new(false),
            undecoded: AtomicU64::new(0),
            staged: Mutex::default(),
            odd: Mutex::default(),
        });
        reflector.feed(shared.clone());
        Self { shared, reflector: reflector.clone() }
    }

    /// Follows the server until `shutdown`. Started again, it does nothing.
    pub fn start(&self, shutdown: &Shutdown) {
        self.reflector.start(shutdown);
    }

    /// Adds an index: it finds an object under each value that `values` returns for it. Users of a shared informer that
    /// give the same name share the index of the first.
    pub fn index(
        &self,
        name: &'static str,
        values: impl Fn(&T) -> Vec<Text> + Send + Sync + 'static,
    ) -> Index<T> {
        Index { shared: self.shared.clone(), place: self.shared.store.index(name, values) }
    }

    /// The resource.
    pub fn resource(&self) -> &Resource {
        &self.shared.resource
    }

    /// How many states of objects came that could not be decoded. The store is as if there were no such objects.
    pub fn undecoded(&self) -> u64 {
        self.shared.undecoded.load(Ordering::Relaxed)
    }

    /// Tells how many states of objects could not be decoded, if there were any.
    pub fn report(&self, page: &mut Page) {
        report(page, self.undecoded(), std::any::type_name::<T>(), &self.reflector);
    }

    /// Whether it has seen one whole state.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Whether both are the same.
    #[cfg(test)]
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Tells whether it has seen one whole state, and when it has.
    pub(crate) fn seen(&self) -> watch::Receiver<bool> {
        self.shared.synced.subscribe()
    }

    /// Waits until it has seen one whole state; its handlers have heard of it then.
    pub async fn synced(&self) {
        let mut seen = self.seen();
        // The sender lives as long as `self`.
        let _ = seen.wait_for(|s| *s).await;
    }
}

fn report(page: &mut Page, count: u64, kind: &str, reflector: &Reflector) {
    const METRIC: &str = "ferrokube_informer_undecoded_total";
    if count > 0 {
        let help = "States of objects that an informer could not decode, and passed over.";
        let labels = [
            ("group", reflector.resource().group.as_str()),
            ("resource", reflector.resource().plural.as_str()),
            ("type", kind.rsplit("::").next().unwrap_or_default()),
            ("selection", &reflector.selection().to_string()),
        ];
        page.metric(METRIC, "counter", help).value(METRIC, &labels, count as f64);
    }
}

/// An object's JSON, as far as it can be read.
enum Read<T> {
    Object(T),
    /// An object that cannot be decoded, of this resourceVersion.
    Odd(Key, String),
    /// Not even its name can be read.
    Nothing(Status),
}

impl<T: Cached> Shared<T> {
    /// Decodes an object. One that does not fit its type is left out, with a warning: it must not
    /// keep the others from being seen.
    fn read(&self, object: &Skim<'_>) -> Read<T> {
        match T::decode(&object.json) {
            Ok(decoded) => {
                let mut odd = self.odd.lock();
                if !odd.is_empty() {
                    odd.remove(&decoded.key());
                }
                Read::Object(decoded)
            }
            Err(error) => {
                self.undecoded.fetch_add(1, Ordering::Relaxed);
                match warn_of(object, &self.resource, &mut self.odd.lock(), &error) {
                    Some((key, revision)) => Read::Odd(key, revision),
                    None => Read::Nothing(error),
                }
            }
        }
    }
}

/// Warns of what cannot be decoded, once for each object; which object of which resourceVersion it is.
fn warn_of(
    object: &Skim<'_>,
    resource: &Resource,
    odd: &mut BTreeSet<Key>,
    error: &Status,
) -> Option<(Key, String)> {
    let resource = &resource.plural;
    let Some((key, revision)) = object.identity() else {
        tracing::warn!(%resource, %error, "something that is no object is ignored");
        return None;
    };
    if odd.len() < ODD && odd.insert(key.clone()) {
        tracing::warn!(%resource, object = %key, %error, "an object cannot be decoded and is ignored");
    }
    Some((key, revision))
}

impl<T: Cached> Sink for Shared<T> {
    fn stage(&self, kind: EventKind, object: &Skim<'_>) -> Result<(), Status> {
        match (self.read(object), kind) {
            (Read::Object(object), EventKind::Deleted) => drop(self.staged.lock().remove(&object.key())),
            (Read::Object(object), _) => drop(self.staged.lock().insert(object.key(), object)),
            (Read::Odd(key, _), _) => drop(self.staged.lock().remove(&key)),
            (Read::Nothing(error), EventKind::Deleted) => return Err(error),
            (Read::Nothing(_), _) => {}
        }
        Ok(())
    }

    fn discard(&self) {
        self.staged.lock().clear();
    }

    fn commit(&self) {
        let staged = std::mem::take(&mut *self.staged.lock());
        self.store.replace(staged);
        self.synced.send_replace(true);
    }

    fn apply(&self, kind: EventKind, object: &Skim<'_>) -> Result<String, Status> {
        match self.read(object) {
            Read::Object(object) => {
                let revision = object.resource_version().to_owned();
                if kind == EventKind::Deleted {
                    self.store.delete(object);
                } else {
                    self.store.put(object);
                }
                Ok(revision)
            }
            Read::Odd(key, revision) => {
                self.store.delete_key(&key);
                Ok(revision)
            }
            Read::Nothing(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::script::{Answer, Script, bookmark as mark, config_map, event};
    use crate::store::Change;
    use crate::transport::EventKind::{Added, Deleted, Modified};
    use crate::transport::ListAnswer;
    use k8s_openapi::api::core::v1::ConfigMap;

    struct Run {
        script: Arc<Script>,
        informer: Informer<ConfigMap>,
        by_app: Index<ConfigMap>,
        changes: Arc<Mutex<Vec<String>>>,
        shutdown: Shutdown,
    }

    /// Starts an informer against a script and waits until it asked for `requests` things.
    async fn run(watches: Vec<Answer>, lists: Vec<Result<ListAnswer, Status>>, requests: usize) -> Run {
        let script = Script::new();
        script.watches.lock().extend(watches);
        script.lists.lock().extend(lists);
        let client = Client::new(script.clone(), "test");
        let informer = Informer::<ConfigMap>::new(&client, Selection::default());
        let by_app = informer
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
            while script.seen.lock().len() < requests {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        tokio::time::timeout(Duration::from_mins(10), wait).await.expect("the requests come");
        Run { script, informer, by_app, changes, shutdown }
    }

    fn query(run: &Run, request: usize, key: &str) -> String {
        run.script.seen.lock()[request].1.get(key).cloned().unwrap_or_default()
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
        let r = run(vec![Answer::Events { events, open: false }], vec![], 2).await;
        assert!(r.informer.is_synced());
        assert_eq!(*r.changes.lock(), ["+a", "+b", "~a", "-b", "+c"]);
        assert_eq!(r.informer.list_namespace("ns").len(), 2);
        assert_eq!(r.by_app.get("c").len(), 1);
        assert!(r.by_app.get("b").is_empty());
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
        let refuse = Answer::Refuse(Status::failure(422, "Invalid", "sendInitialEvents is forbidden"));
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
            Answer::Events { events: first, open: false },
            Answer::Events { events: vec![Err(Status::expired("too old resource version"))], open: false },
            Answer::Events { events: second, open: true },
        ];
        let r = run(watches, vec![], 3).await;
        assert_eq!(*r.changes.lock(), ["+a", "+b", "-a", "+c"]);
        r.shutdown.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn errors_back_off_and_keep_the_state() {
        let down = || Answer::Refuse(Status::failure(503, "ServiceUnavailable", "down"));
        let first = vec![event(Added, "a", 1), mark(3, true)];
        let began = Instant::now();
        let r = run(
            vec![down(), down(), Answer::Events { events: first, open: false }, down(), down()],
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
        let r = run(vec![Answer::Events { events, open: true }], vec![], 1).await;
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
            Answer::Events {
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
            Answer::Events { events: vec![raw(Added, odd), raw(Deleted, bad(10))], open: false },
            // Nothing of this can be read, not even its revision.
            Answer::Events { events: vec![event(Added, "b", 11), raw(Modified, "[1]".into())], open: false },
            Answer::Events { events: vec![event(Added, "b", 11), mark(12, true)], open: false },
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
            Answer::Events { events: vec![event(Added, "a", 1), mark(3, true)], open: false },
            Answer::Events { events: vec![Err(Status::internal("unable to transform key"))], open: false },
            Answer::Events { events: vec![event(Added, "a", 1), mark(5, true)], open: false },
            Answer::Events {
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
        let r = run(vec![Answer::Events { events, open: true }], vec![], 1).await;
        let heard = Arc::new(Mutex::new(0));
        let (count, store) = (heard.clone(), r.informer.clone());
        r.informer.handle(move |change| {
            assert!(store.get_key(&change.object().key()).is_some(), "handlers may read the store");
            *count.lock() += 1;
        });
        assert_eq!(*heard.lock(), 1);
        r.shutdown.finish().await;
    }
}
