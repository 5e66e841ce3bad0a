//! Factories of informers: one informer for all who ask for the same, and one watch for all informers of a selection.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use component::Shutdown;
use component::metrics::Page;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::client::{Client, KubeObject, resource_of};
use crate::informer::Informer;
use crate::reflector::{Reflector, Selection};
use crate::store::Cached;
use crate::transport::Resource;

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
        Informer::seen(self)
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

    /// The client through which the informers read.
    pub fn client(&self) -> Client {
        self.client.clone()
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
            asked.lock().push(informer.seen());
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
    use api::Status;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::script::{Answer, Script, bookmark as mark, event};
    use crate::transport::EventKind::Added;

    #[tokio::test]
    async fn a_factory_shares() {
        let factory = Factory::new(Client::new(Script::new(), "test"));
        let (a, b) = (factory.informer::<ConfigMap>(), factory.informer::<ConfigMap>());
        assert!(a.is(&b));
        let other = factory.select::<ConfigMap>(
            resource_of::<ConfigMap>(),
            Selection { namespace: "ns".into(), ..Selection::default() },
        );
        assert!(!a.is(&other));
    }

    #[tokio::test(start_paused = true)]
    async fn projections_of_one_selection_share_a_watch() {
        let script = Script::new();
        let state = || Answer::Events { events: vec![event(Added, "a", 1), mark(3, true)], open: true };
        script.watches.lock().extend([state(), state()]);
        let factory = Factory::new(Client::new(script.clone(), "test"));
        let whole = factory.informer::<ConfigMap>();
        let select =
            || factory.select::<crate::PartialObject>(resource_of::<ConfigMap>(), Selection::default());
        let part = select();
        let shutdown = Shutdown::new();
        factory.start(&shutdown);
        factory.synced().await;
        assert_eq!((whole.len(), part.len(), script.seen.lock().len()), (1, 1, 1));
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
            fn identity(&self) -> crate::Identity<'_> {
                crate::Identity { namespace: "ns", name: &self.0, uid: "", resource_version: "1" }
            }
        }
        let late = factory.select::<Name>(resource_of::<ConfigMap>(), Selection::default());
        late.synced().await;
        assert_eq!((late.len(), script.seen.lock().len(), *heard.lock()), (1, 2, 1));
        shutdown.finish().await;
    }

    /// A factory knows the selections that it reads, whatever they are decoded into, and that it was started.
    #[tokio::test(start_paused = true)]
    async fn it_tells_what_is_read() {
        let factory = Factory::new(Client::new(Script::new(), "test"));
        let (maps, all) = (resource_of::<ConfigMap>(), Selection::default());
        assert!(!factory.reads(&maps, &all));
        let _view = factory.view().select::<crate::PartialObject>(maps.clone(), all.clone());
        assert!(factory.reads(&maps, &all));
        assert!(!factory.reads(&maps, &Selection { namespace: "ns".into(), ..all }));
        let (shutdown, view) = (Shutdown::new(), factory.view());
        assert!(futures::FutureExt::now_or_never(view.started()).is_none());
        factory.start(&shutdown);
        view.started().await;
        shutdown.finish().await;
    }
}
