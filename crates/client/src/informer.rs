//! Informers: a cache of a resource that follows the server by list and watch.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::Status;
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
    fn fed_by(reflector: &Arc<Reflector>) -> Self {
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

    /// Waits until it has seen one whole state; its handlers have heard of it then.
    pub async fn synced(&self) {
        let mut seen = self.shared.synced.subscribe();
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

trait AnyInformer: Send + Sync {
    fn report(&self, page: &mut Page);
    fn seen(&self) -> watch::Receiver<bool>;
    fn any(&self) -> &dyn Any;
}

impl<T: Cached> AnyInformer for Informer<T> {
    fn report(&self, page: &mut Page) {
        Informer::report(self, page);
    }
    fn seen(&self) -> watch::Receiver<bool> {
        self.shared.synced.subscribe()
    }
    fn any(&self) -> &dyn Any {
        self
    }
}

/// The part of a resource that one reflector reads.
type Source = (Resource, Selection);

#[derive(Default)]
struct Known {
    /// One watch for each selection of a resource, whatever its objects are decoded into.
    reflectors: HashMap<Source, Arc<Reflector>>,
    informers: HashMap<(TypeId, Source), Box<dyn AnyInformer>>,
}

/// The informers of one identity: one for each type, resource and selection, shared by all who ask.
///
/// A factory shows all that its identity may read, so only parts that work as that identity get it. The controllers
/// share the factory of kube-controller-manager, as upstream's do. Factories of different identities share nothing:
/// RBAC may keep from one what the other may list.
#[derive(Clone)]
pub struct Factory {
    client: Client,
    known: Arc<Mutex<Known>>,
    started: Arc<watch::Sender<bool>>,
    /// The informers that were asked for through this one, if it is a view.
    asked: Option<Arc<Mutex<Vec<watch::Receiver<bool>>>>>,
}

impl Factory {
    /// A factory whose informers read through `client`.
    pub fn new(client: Client) -> Self {
        Self { client, known: Arc::default(), started: Arc::default(), asked: None }
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

    /// The informer of a selection of a resource, as `T` shows it. It must be started, alone or with all others.
    /// Informers that differ only in `T` are fed by one watch.
    pub fn select<T: Cached>(&self, resource: Resource, selection: Selection) -> Informer<T> {
        let mut known = self.known.lock();
        let source = (resource, selection);
        let slot = (TypeId::of::<T>(), source.clone());
        let found = known.informers.get(&slot).and_then(|i| i.any().downcast_ref::<Informer<T>>()).cloned();
        let informer = found.unwrap_or_else(|| {
            let (resource, selection) = source.clone();
            let reflector = known
                .reflectors
                .entry(source)
                .or_insert_with(|| Arc::new(Reflector::new(&self.client, resource, selection)));
            let informer = Informer::fed_by(reflector);
            known.informers.insert(slot, Box::new(informer.clone()));
            informer
        });
        if let Some(asked) = &self.asked {
            asked.lock().push(informer.shared.synced.subscribe());
        }
        informer
    }

    /// Starts every informer asked for so far that was not started.
    pub fn start(&self, shutdown: &Shutdown) {
        for reflector in self.known.lock().reflectors.values() {
            reflector.start(shutdown);
        }
        self.started.send_replace(true);
    }

    /// Waits until informers were started.
    pub async fn started(&self) {
        // The sender lives as long as `self`.
        let _ = self.started.subscribe().wait_for(|started| *started).await;
    }

    /// Whether a selection of a resource is read, whatever its objects are decoded into.
    pub fn reads(&self, resource: &Resource, selection: &Selection) -> bool {
        self.known.lock().reflectors.contains_key(&(resource.clone(), selection.clone()))
    }

    /// Tells of the informers asked for so far.
    pub fn report(&self, page: &mut Page) {
        for informer in self.known.lock().informers.values() {
            informer.report(page);
        }
    }

    /// Waits until every informer asked for so far is synced.
    pub async fn synced(&self) {
        let all: Vec<_> = match &self.asked {
            Some(asked) => asked.lock().clone(),
            None => self.known.lock().informers.values().map(|i| i.seen()).collect(),
        };
        for mut seen in all {
            let _ = seen.wait_for(|s| *s).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

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
        assert!(Arc::ptr_eq(&a.shared, &b.shared));
        let other = factory.select::<ConfigMap>(
            resource_of::<ConfigMap>(),
            Selection { namespace: "ns".into(), ..Selection::default() },
        );
        assert!(!Arc::ptr_eq(&a.shared, &other.shared));
    }

    #[tokio::test(start_paused = true)]
    async fn projections_of_one_selection_share_a_watch() {
        let fake = Fake::new();
        let state = || Script::Events { events: vec![event(Added, "a", 1), mark(3, true)], open: true };
        fake.watches.lock().extend([state(), state()]);
        let factory = Factory::new(Client::new(fake.clone(), "test"));
        let whole = factory.informer::<ConfigMap>();
        let select =
            || factory.select::<crate::PartialObject>(resource_of::<ConfigMap>(), Selection::default());
        let part = select();
        let shutdown = Shutdown::new();
        factory.start(&shutdown);
        factory.synced().await;
        assert_eq!((whole.len(), part.len(), fake.seen.lock().len()), (1, 1, 1));
        assert_eq!(part.get("ns", "a").unwrap().resource_version(), "1");
        // A later handler is told of the state; the others hear of no change.
        let heard = Arc::new(Mutex::new(0));
        let count = heard.clone();
        whole.handle(move |_| *count.lock() += 1);
        #[derive(Debug)]
        struct Name(String);
        impl Cached for Name {
            fn decode(json: &[u8]) -> Result<Self, Status> {
                crate::PartialObject::decode(json).map(|o| Self(o.name().to_owned()))
            }
            fn namespace(&self) -> &'static str {
                "ns"
            }
            fn name(&self) -> &str {
                &self.0
            }
            fn uid(&self) -> &'static str {
                ""
            }
            fn resource_version(&self) -> &'static str {
                "1"
            }
        }
        let late = factory.select::<Name>(resource_of::<ConfigMap>(), Selection::default());
        late.synced().await;
        assert_eq!((late.len(), fake.seen.lock().len(), *heard.lock()), (1, 2, 1));
        shutdown.finish().await;
    }
}
