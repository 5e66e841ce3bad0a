//! The host of controllers. A controller says by what it is known, which changes make it look, and what one
//! look is ([`Controller`]); the host gives it its identity, its informers and its work queue, starts its
//! workers once its own informers show a whole state, and tells of it in metrics and health checks.

mod choice;
mod table;

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{
    Cached, Client, Factory, Informer, Key, KubeObject, Queue, RateLimit, Recorder, Resource, Selection,
};
use component::{Clock, Health, Registry, Shutdown};
use parking_lot::Mutex;

pub use choice::{Choice, ChoiceError};
pub use table::{Named, known};

use crate::Config;
use crate::nodes::ipam::Ranges;

/// After what time at one key a worker counts as stuck.
///
/// DIFFERENCE: upstream's health check of a controller can only fail where a controller brings its own.
const STUCK: Duration = Duration::from_mins(30);

/// The end of a look at a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing until something changes.
    Done,
    /// Another look after this time, unless something changes before.
    After(Duration),
}

impl Next {
    /// Another look after a time, if there is one.
    pub(crate) fn at(after: Option<Duration>) -> Self {
        after.map_or(Self::Done, Self::After)
    }
}

/// A controller.
pub(crate) trait Controller: Sized + Send + Sync + 'static {
    /// Its name, by which `--controllers` chooses it; upstream's.
    const NAME: &'static str;
    /// Names that `--controllers` takes for it too; upstream's older ones.
    const ALIASES: &'static [&'static str] = &[];
    /// Its service account in `kube-system`.
    const ACCOUNT: &'static str;
    /// The name of its work queue in metrics; upstream's.
    const QUEUE: &'static str;
    /// How many keys are looked at at a time.
    const WORKERS: usize = 1;
    /// How failures are spread over time.
    const RATE: RateLimit = RateLimit::UPSTREAM;
    /// The thing that one look is at.
    type Key: Clone + Eq + Hash + fmt::Display + Send + Sync + 'static;

    /// Makes it, with the informers that it reads.
    fn new(host: &Host<Self::Key>) -> Self;
    /// Says which changes of what it reads make it look at which keys.
    fn watch(self: &Arc<Self>, wiring: &Wiring<Self::Key>);
    /// Looks at one key, and does what is to be done about it.
    fn sync(&self, key: Self::Key) -> impl Future<Output = Result<Next, Status>> + Send;
    /// Resolves once all else is known that is to be known before the first look.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
    /// Whether there is anything to do for it, as configured.
    fn wanted(_shared: &Shared) -> bool {
        true
    }
}

/// The parts that all controllers of a process share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) ranges: Ranges,
    pub(crate) factory: Factory,
    pub(crate) metrics: Registry,
    pub(crate) health: Health,
    pub(crate) shutdown: Shutdown,
}

/// For how long the queues of a controller have been worked on longest.
type Longest = Box<dyn Fn() -> Duration + Send + Sync>;

/// The parts that one controller gets, whose work queue has keys of the type `K`.
pub(crate) struct Host<K> {
    own: Own,
    client: Client,
    factory: Factory,
    shared: Shared,
    main: Queue<K>,
}

/// The queues of one controller, as others see them.
#[derive(Clone)]
struct Own {
    name: &'static str,
    metrics: Registry,
    longest: Arc<Mutex<Vec<Longest>>>,
}

impl Own {
    fn queue<K: Clone + Eq + Hash + Send + Sync + 'static>(&self, name: &str, rate: RateLimit) -> Queue<K> {
        let queue = Queue::new(rate);
        let (told, called) = (queue.clone(), name.to_owned());
        self.metrics.register(format!("{}/{name}", self.name), move |page| told.report(&called, page));
        let watched = queue.clone();
        self.longest.lock().push(Box::new(move || watched.longest_work()));
        queue
    }
}

impl<K: Clone + Eq + Hash + fmt::Display + Send + Sync + 'static> Host<K> {
    /// For a controller, with its own identity.
    pub(crate) fn of<C: Controller<Key = K>>(client: Client, shared: &Shared) -> Self {
        let own = Own { name: C::NAME, metrics: shared.metrics.clone(), longest: Arc::default() };
        let main = own.queue(C::QUEUE, C::RATE);
        Self { own, client, factory: shared.factory.view(), shared: shared.clone(), main }
    }
    /// Requests with the controller's identity.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }
    /// The clock.
    pub(crate) fn clock(&self) -> Clock {
        self.shared.config.clock
    }
    /// The settings of the controllers.
    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }
    /// The blocks of addresses that nodes get.
    pub(crate) fn ranges(&self) -> &Ranges {
        &self.shared.ranges
    }
    /// The informer of all objects of a type, which the controller's workers wait for.
    pub(crate) fn informer<T: KubeObject>(&self) -> Informer<T> {
        self.factory.informer()
    }
    /// The informer of a selection of a resource, which the controller's workers wait for.
    pub(crate) fn select<T: Cached>(&self, resource: Resource, selection: Selection) -> Informer<T> {
        self.factory.select(resource, selection)
    }
    /// The informers that the controller's workers wait for.
    pub(crate) fn factory(&self) -> &Factory {
        &self.factory
    }
    /// Records Events as a component.
    pub(crate) fn recorder(&self, component: &str) -> Recorder {
        Recorder::start(self.client(), component, "", self.clock(), &self.shared.shutdown)
    }
    /// The controller's work queue.
    pub(crate) fn main_queue(&self) -> Queue<K> {
        self.main.clone()
    }
    /// Another work queue, which metrics know by this name.
    pub(crate) fn queue<L: Clone + Eq + Hash + Send + Sync + 'static>(&self, name: &str) -> Queue<L> {
        self.own.queue(name, RateLimit::UPSTREAM)
    }

    /// Makes a controller and lets it hear of changes.
    pub(crate) fn wire<C: Controller<Key = K>>(&self) -> (Arc<C>, Wiring<K>) {
        let controller = Arc::new(C::new(self));
        let wiring = Wiring {
            queue: self.main.clone(),
            shutdown: self.shared.shutdown.clone(),
            later: Mutex::default(),
        };
        let c = controller.clone();
        wiring.work(&wiring.queue, C::NAME, C::WORKERS, move |key| {
            let c = c.clone();
            async move { Box::pin(c.sync(key)).await }
        });
        controller.watch(&wiring);
        (controller, wiring)
    }

    /// Starts a controller, whose workers begin when its informers show a whole state.
    pub(crate) fn run<C: Controller<Key = K>>(&self) -> Arc<C> {
        let (controller, wiring) = self.wire::<C>();
        let (factory, stop, ready) = (self.factory.clone(), self.shared.shutdown.clone(), controller.clone());
        self.shared.shutdown.spawn(async move {
            let known = async {
                factory.synced().await;
                ready.ready().await;
            };
            if stop.run(known).await.is_some() {
                for start in wiring.later.into_inner() {
                    start(&stop);
                }
            }
        });
        let longest = self.own.longest.clone();
        self.shared.health.add(C::NAME, move || {
            let stuck = longest.lock().iter().any(|longest| longest() > STUCK);
            if stuck { Err("a worker has been at one key for too long".to_owned()) } else { Ok(()) }
        });
        controller
    }
}

type Start = Box<dyn FnOnce(&Shutdown) + Send>;

/// How a controller hears of changes and does its work.
pub(crate) struct Wiring<K> {
    queue: Queue<K>,
    shutdown: Shutdown,
    /// The tasks that start once the informers show a whole state.
    later: Mutex<Vec<Start>>,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Wiring<K> {
    /// The controller's work queue.
    pub(crate) fn queue(&self) -> Queue<K> {
        self.queue.clone()
    }

    /// Looks at the keys of another queue too, once the informers show a whole state.
    pub(crate) fn work<L, F, R>(&self, queue: &Queue<L>, name: &'static str, workers: usize, sync: F)
    where
        L: Clone + Eq + Hash + fmt::Display + Send + Sync + 'static,
        F: Fn(L) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<Next, Status>> + Send,
    {
        let queue = queue.clone();
        self.later.lock().push(Box::new(move |shutdown| {
            let again = queue.clone();
            queue.work(name, workers, shutdown, move |key: L| {
                let (look, again) = (sync(key.clone()), again.clone());
                async move {
                    match look.await? {
                        Next::Done => {}
                        Next::After(delay) => again.add_after(key, delay),
                    }
                    Ok::<_, Status>(())
                }
            });
        }));
    }

    /// Runs a task until the shutdown, once the informers show a whole state.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.later.lock().push(Box::new(move |shutdown| {
            let stop = shutdown.clone();
            shutdown.spawn(async move {
                let _ = stop.run(task).await;
            });
        }));
    }

    /// Runs a task until the shutdown, from now on.
    pub(crate) fn spawn_at_once<R>(&self, task: impl FnOnce(Shutdown) -> R)
    where
        R: Future<Output = ()> + Send + 'static,
    {
        let (task, stop) = (task(self.shutdown.clone()), self.shutdown.clone());
        self.shutdown.spawn(async move {
            let _ = stop.run(task).await;
        });
    }
}

impl Wiring<Key> {
    /// Looks at each object of an informer that comes or changes, and, if so asked, that goes.
    pub(crate) fn follow<T: Cached>(&self, informer: &Informer<T>, deleted: bool) {
        let queue = self.queue();
        informer.handle(move |change| {
            if deleted || !matches!(change, client::Change::Deleted(_)) {
                queue.add(change.object().key());
            }
        });
    }
}

/// Starts the controllers that are chosen; each with the client of its service account.
pub(crate) fn start(choice: &Choice, shared: &Shared, clients: &dyn Fn(&str) -> Client) {
    let chosen: Vec<&Named> = known().iter().filter(|c| choice.runs(c.name, c.by_default)).collect();
    for controller in &chosen {
        (controller.start)(clients(controller.account), shared);
    }
    let names: Vec<&str> = chosen.iter().map(|c| c.name).collect();
    shared.metrics.register("controllers", move |page| {
        const METRIC: &str = "running_managed_controllers";
        page.metric(
            METRIC,
            "gauge",
            "[BETA] Indicates where instances of a controller are currently running",
        );
        for name in &names {
            page.value(METRIC, &[("manager", "kube-controller-manager"), ("name", name)], 1.0);
        }
    });
    let factory = shared.factory.clone();
    shared.metrics.register("informers", move |page| factory.report(page));
    shared.factory.start(&shared.shutdown);
}

#[cfg(test)]
mod tests;
