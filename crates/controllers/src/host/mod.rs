//! The host of controllers. A controller ([`Controller`]) defines its names, the changes that make it look at an
//! object, and the look itself; the host gives it its identity, its informers and its work queue, starts its workers
//! once its own informers show a whole state, and reports on it in metrics and health checks.

mod choice;
mod table;

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{
    Backoff, Cached, Client, Factory, Informer, Key, KubeObject, Queue, RateLimit, Recorder, Resource,
    Selection,
};
use component::{Clock, Health, Registry, Shutdown};
use parking_lot::Mutex;

pub use choice::ChoiceError;
pub use table::{Named, known};

use crate::choice::Choice;
use crate::config::Config;
use crate::nodes::ranges::Ranges;

/// The time after which a worker at one key counts as stuck.
///
/// DIFFERENCE: upstream's health check of a controller can only fail where a controller brings its own.
const STUCK: Duration = Duration::from_mins(30);

/// The next look at a key after this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// No look until something changes.
    Done,
    /// Another look after this time, unless something changes before.
    After(Duration),
}

impl Next {
    /// Plans another look after a time, if there is one.
    pub(crate) fn at(after: Option<Duration>) -> Self {
        after.map_or(Self::Done, Self::After)
    }
}

/// A controller, which the host runs.
pub(crate) trait Controller: Sized + Send + Sync + 'static {
    /// The controller's name, by which `--controllers` chooses it; upstream's.
    const NAME: &'static str;
    /// Further names that `--controllers` takes for the controller; upstream's older ones.
    const ALIASES: &'static [&'static str] = &[];
    /// The controller's service account in `kube-system`; "" for the controllers' common user.
    const ACCOUNT: &'static str;
    /// The name of the controller's work queue in metrics; upstream's.
    const QUEUE: &'static str;
    /// The number of keys that are looked at at a time.
    const WORKERS: usize = 1;
    /// The delays between attempts after failures.
    const RATE: RateLimit = RateLimit::UPSTREAM;
    /// The key of a look: mostly that of an object.
    type Key: Clone + Eq + Hash + fmt::Display + Send + Sync + 'static;

    /// Returns the number of keys that are looked at at a time, where a setting says it.
    fn workers(_config: &Config) -> usize {
        Self::WORKERS
    }
    /// Makes the controller, with the informers that it reads.
    fn new(host: &Host<Self::Key>) -> Self;
    /// Connects changes of the objects that the controller reads with the keys at which it then looks.
    fn watch(self: &Arc<Self>, wiring: &Wiring<Self::Key>);
    /// Looks at one key, and makes the necessary writes.
    fn sync(&self, key: Self::Key) -> impl Future<Output = Result<Next, Status>> + Send;
    /// Resolves once everything is known that the first look needs, besides the informers.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
    /// Whether the controller has anything to do in this configuration.
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

/// Returns the time that the longest current work of a queue has taken so far.
type Longest = Box<dyn Fn() -> Duration + Send + Sync>;

/// The host of one controller, whose work queue has keys of the type `K`.
pub(crate) struct Host<K> {
    own: Own,
    client: Client,
    factory: Factory,
    shared: Shared,
    main: Queue<K>,
}

/// The queues of one controller, as metrics and health checks see them.
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
    /// Makes the host of a controller, with the controller's own identity.
    pub(crate) fn of<C: Controller<Key = K>>(client: Client, shared: &Shared) -> Self {
        let own = Own { name: C::NAME, metrics: shared.metrics.clone(), longest: Arc::default() };
        let main = own.queue(C::QUEUE, C::RATE);
        Self { own, client, factory: shared.factory.view(), shared: shared.clone(), main }
    }
    /// Returns a client with the controller's identity.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }
    /// The clock.
    pub(crate) fn clock(&self) -> Clock {
        self.shared.config.clock
    }
    /// Returns the configuration of all controllers.
    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }
    /// Returns the end of the process's work.
    pub(crate) fn shutdown(&self) -> Shutdown {
        self.shared.shutdown.clone()
    }
    /// Returns the blocks of addresses that nodes get.
    pub(crate) fn ranges(&self) -> &Ranges {
        &self.shared.ranges
    }
    /// Returns the registry of metrics.
    pub(crate) fn metrics(&self) -> &Registry {
        &self.shared.metrics
    }
    /// Returns the informer of all objects of a type, for which the controller's workers wait.
    pub(crate) fn informer<T: KubeObject>(&self) -> Informer<T> {
        self.factory.informer()
    }
    /// Returns the informer of a selection of a resource, for which the controller's workers wait.
    pub(crate) fn select<T: Cached>(&self, resource: Resource, selection: Selection) -> Informer<T> {
        self.factory.select(resource, selection)
    }
    /// Returns the factory of the informers for which the controller's workers wait.
    pub(crate) fn factory(&self) -> &Factory {
        &self.factory
    }
    /// Makes a recorder of Events of a component.
    pub(crate) fn recorder(&self, component: &str) -> Recorder {
        Recorder::start(self.client(), component, "", self.clock(), &self.shared.shutdown)
    }
    /// Returns the controller's work queue.
    pub(crate) fn main_queue(&self) -> Queue<K> {
        self.main.clone()
    }
    /// Makes another work queue, which metrics know by this name.
    pub(crate) fn queue<L: Clone + Eq + Hash + Send + Sync + 'static>(&self, name: &str) -> Queue<L> {
        self.own.queue(name, RateLimit::UPSTREAM)
    }

    /// Makes a controller and connects it with its informers.
    pub(crate) fn wire<C: Controller<Key = K>>(&self) -> (Arc<C>, Wiring<K>) {
        let controller = Arc::new(C::new(self));
        let wiring = Wiring {
            queue: self.main.clone(),
            shutdown: self.shared.shutdown.clone(),
            later: Mutex::default(),
        };
        let c = controller.clone();
        wiring.work(&wiring.queue, C::NAME, C::workers(self.config()), move |key| {
            let c = c.clone();
            async move { c.sync(key).await }
        });
        controller.watch(&wiring);
        (controller, wiring)
    }

    /// Starts a controller, whose workers begin when its informers show a whole state.
    pub(crate) fn run<C: Controller<Key = K>>(&self) -> Arc<C> {
        let (controller, wiring) = self.wire::<C>();
        let (factory, stop, ready) = (self.factory.clone(), self.shared.shutdown.clone(), controller.clone());
        let interval = self.config().start_interval;
        self.shared.shutdown.spawn(async move {
            let known = async {
                // As in upstream, each controller waits by itself, so that they do not all begin at once.
                tokio::time::sleep(Backoff::new(interval, interval).delay()).await;
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

/// The connections of a controller with its informers, its queues and its tasks.
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

    /// Starts workers for another queue too, once the informers show a whole state.
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

    /// Runs a task from the time when the informers show a whole state until the shutdown.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.later.lock().push(Box::new(move |shutdown| {
            let stop = shutdown.clone();
            shutdown.spawn(async move {
                let _ = stop.run(task).await;
            });
        }));
    }

    /// Runs a task from now on until the shutdown.
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
    /// Queues the key of each object of an informer that comes or changes, and, with `deleted`, that goes.
    pub(crate) fn follow<T: Cached>(&self, informer: &Informer<T>, deleted: bool) {
        let queue = self.queue();
        informer.handle(move |change| {
            if deleted || !matches!(change, client::Change::Deleted(_)) {
                queue.add(change.object().key());
            }
        });
    }
}

/// Starts the chosen controllers, each with the client of its service account.
pub(crate) fn start(choice: &Choice, shared: &Shared, clients: &dyn Fn(&str) -> Client) {
    let chosen = known().iter().filter(|c| choice.runs(c.name, c.by_default));
    let running = chosen.filter(|c| (c.start)(clients(c.account), shared));
    let names: Vec<&str> = running.map(|c| c.name).collect();
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
