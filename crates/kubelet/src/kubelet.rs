//! The parts of a kubelet, put together.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::events::Recorder;
use client::{Backoff, Change, Client, Informer, Selection};
use component::{Clock, Shutdown};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backoff::Backoffs;
use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::health::Health;
use crate::housekeeping::Listing;
use crate::images::ImageManager;
use crate::objects::Objects;
use crate::pods::addresses::Addresses;
use crate::pods::admission::Admission;
use crate::pods::config::Requests;
use crate::pods::env;
use crate::pods::kill::Killer;
use crate::pods::worker::Worker;
use crate::pods::workers::Workers;
use crate::pods::{PodManager, spec};
use crate::probes::{Prober, Probes};
use crate::recorder::PodRecorder;
use crate::runtime::{Runtime, RuntimeError};
use crate::volumes::VolumeManager;
use crate::{events, housekeeping, logs, node, server, volumes};
use objects::quantity::ResourceList;

/// Everything the kubelet's parts share.
pub struct Kubelet {
    /// Settings.
    pub config: Arc<Config>,
    /// Requests with the node's identity.
    pub client: Client,
    /// The time of day.
    pub clock: Clock,
    /// The container runtime.
    pub runtime: Runtime,
    /// The Pods of this node.
    pub pods: Arc<PodManager>,
    /// The Node object, once it is known.
    pub nodes: Informer<Node>,
    pub(crate) shutdown: Shutdown,
    pub(crate) recorder: PodRecorder,
    pub(crate) objects: Arc<Objects>,
    pub(crate) services: Informer<Service>,
    pub(crate) images: ImageManager,
    pub(crate) probes: Arc<Probes>,
    pub(crate) prober: Prober,
    pub(crate) volumes: Arc<VolumeManager>,
    pub(crate) cgroups: Cgroups,
    /// Back-off of containers that end.
    pub(crate) crashes: Backoffs,
    /// Which Pods this node has taken.
    pub(crate) admission: Arc<Admission>,
    /// How the runtime is.
    pub(crate) health: Arc<Health>,
    /// Something may be there that no Pod owns.
    pub(crate) housekeeping: Arc<Notify>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) addresses: Addresses,
    pub(crate) killer: Killer,
    pub(crate) requests: Requests,
    memory: i64,
    cpus: usize,
}

/// Why a kubelet cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The container runtime cannot be used.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A directory cannot be made.
    #[error("cannot make the directory {path}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The cgroups of Pods cannot be made.
    #[error("cannot make the cgroups of Pods")]
    Cgroups(#[source] std::io::Error),
    /// Its server's port cannot be used.
    #[error(transparent)]
    Serve(#[from] serving::ServeError),
}

impl Kubelet {
    /// Prepares this machine and connects to the runtime; nothing runs yet.
    pub async fn new(
        config: Config,
        client: Client,
        clock: Clock,
        shutdown: Shutdown,
    ) -> Result<Arc<Self>, StartError> {
        for path in [config.root_dir.join("pods"), config.pod_logs_dir.clone()] {
            tokio::fs::create_dir_all(&path)
                .await
                .map_err(|source| StartError::Directory { path: path.clone(), source })?;
        }
        let config = Arc::new(config);
        volumes::close(&config).map_err(|(path, source)| StartError::Directory { path, source })?;
        let runtime = Runtime::connect(&config.container_runtime_endpoint).await?;
        let health = Arc::new(Health::default());
        health.ask(&runtime).await;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let cgroups = Cgroups::new(&config.cgroup_root, runtime.cgroup_driver);
        cgroups.ensure_root(cpus).map_err(StartError::Cgroups)?;
        let recorder = Recorder::start(client.clone(), "kubelet", &config.node_name, clock, &shutdown);
        let own = Selection {
            field_selector: format!("metadata.name={}", config.node_name),
            ..Selection::default()
        };
        let workers = Arc::new(Workers::default());
        let woken = workers.clone();
        let wake = Arc::new(move |uid: &str| woken.wake(uid));
        let pods = Arc::new(PodManager::default());
        let addresses = Addresses::new(&config, pods.clone());
        let kubelet = {
            let objects = Arc::new(Objects::new(client.clone(), shutdown.clone(), wake));
            let recorder = PodRecorder(recorder);
            let images =
                ImageManager::new(&config, runtime.clone(), clock, recorder.clone(), objects.clone());
            let volumes = Arc::new(VolumeManager::new(&config, client.clone(), clock, objects.clone()));
            let killer = Killer::new(&config, runtime.clone(), recorder.clone(), addresses.clone());
            let probes = Arc::new(Probes::default());
            let services: Informer<Service> = Informer::new(&client, Selection::default());
            let env = env::Sources::new(&config, services.clone(), objects.clone(), recorder.clone());
            let requests = Requests {
                config: config.clone(),
                clock,
                recorder: recorder.clone(),
                cgroups: cgroups.clone(),
                health: health.clone(),
                env,
            };
            let prober = Prober {
                probes: probes.clone(),
                runtime: runtime.clone(),
                recorder: recorder.clone(),
                clock,
                started_at: clock.now(),
                addresses: addresses.clone(),
                workers: workers.clone(),
                shutdown: shutdown.clone(),
            };
            Arc::new(Self {
                requests,
                pods,
                nodes: Informer::new(&client, own),
                recorder,
                objects,
                services,
                images,
                prober,
                probes,
                volumes,
                cgroups,
                crashes: Backoffs::default(),
                admission: Arc::default(),
                health,
                housekeeping: Arc::default(),
                workers,
                killer,
                addresses,
                memory: machine_memory(),
                cpus,
                config,
                client,
                clock,
                runtime,
                shutdown,
            })
        };
        Ok(kubelet)
    }

    /// Runs the Pods of this node until shutdown, which leaves the containers running.
    pub async fn run_pods(self: &Arc<Self>) {
        self.nodes.start(&self.shutdown);
        self.services.start(&self.shutdown);
        let weak = Arc::downgrade(self);
        self.nodes.handle(move |change| {
            if let (Change::Added(_), Some(kubelet)) = (change, weak.upgrade()) {
                kubelet.workers.wake_all();
            }
        });
        let bound = Selection {
            field_selector: format!("spec.nodeName={}", self.config.node_name),
            ..Selection::default()
        };
        let pods: Informer<Pod> = Informer::new(&self.client, bound);
        let weak = Arc::downgrade(self);
        pods.handle(move |change| {
            if let Some(kubelet) = weak.upgrade() {
                kubelet.hear(change);
            }
        });
        pods.start(&self.shutdown);
        let events = events::Follower {
            runtime: self.runtime.clone(),
            health: self.health.clone(),
            workers: self.workers.clone(),
            housekeeping: self.housekeeping.clone(),
        };
        self.until_shutdown(async move { Box::pin(events.follow()).await });
        let rotation = logs::Rotation {
            most: self.config.container_log_max_size,
            keep: self.config.container_log_max_files,
            clock: self.clock,
            runtime: self.runtime.clone(),
            workers: self.workers.clone(),
        };
        self.until_shutdown(async move { rotation.run().await });
        let housekeeper = housekeeping::Housekeeper {
            config: self.config.clone(),
            runtime: self.runtime.clone(),
            cgroups: self.cgroups.clone(),
            killer: self.killer.clone(),
            volumes: self.volumes.clone(),
            workers: self.workers.clone(),
            pods: pods.clone(),
            woken: self.housekeeping.clone(),
        };
        let kubelet = self.clone();
        self.until_shutdown(async move { Box::pin(housekeeper.keep(|worker| kubelet.start(worker))).await });
        let _ = self.shutdown.run(self.open_admission(&pods)).await;
        self.shutdown.wait().await;
        self.runtime.finish().await;
    }

    fn until_shutdown(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.shutdown.clone();
        self.shutdown.spawn(async move {
            let _ = stop.run(task).await;
        });
    }

    /// Lets Pods be admitted once it is known which are there and which of them run already.
    async fn open_admission(&self, pods: &Informer<Pod>) {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
        let ran = loop {
            match Listing::of(&self.runtime, &self.config.root_dir).await {
                Ok(listing) => break listing.uids(),
                Err(error) => {
                    tracing::warn!(error = error.message(), "cannot list containers, will retry");
                    tokio::time::sleep(backoff.delay()).await;
                }
            }
        };
        pods.synced().await;
        self.admission.open(ran);
    }

    /// Runs a kubelet until `shutdown`, which leaves the containers running.
    pub async fn run(
        config: Config,
        client: Client,
        clock: Clock,
        shutdown: Shutdown,
    ) -> Result<(), StartError> {
        let kubelet = Self::new(config, client, clock, shutdown.clone()).await?;
        server::start(kubelet.served()).await?;
        kubelet.report_node();
        kubelet.run_pods().await;
        Ok(())
    }

    /// What this kubelet's server shows.
    fn served(&self) -> server::Served {
        server::Served {
            config: self.config.clone(),
            client: self.client.clone(),
            clock: self.clock,
            runtime: self.runtime.clone(),
            pods: self.pods.clone(),
            probes: self.probes.clone(),
            admission: self.admission.clone(),
            workers: self.workers.clone(),
            shutdown: self.shutdown.clone(),
        }
    }

    /// Registers the Node and reports it until shutdown.
    pub fn report_node(&self) {
        let reported = node::Machinery {
            config: self.config.clone(),
            client: self.client.clone(),
            clock: self.clock,
            recorder: self.recorder.0.clone(),
            nodes: self.nodes.clone(),
            health: self.health.clone(),
            runtime: self.runtime.clone(),
        };
        node::start(reported, &self.shutdown);
    }

    fn hear(self: &Arc<Self>, change: &Change<Pod>) {
        match change {
            Change::Added(pod) => self.take(pod),
            Change::Updated { old, new } => {
                if spec::uid(old) != spec::uid(new)
                    && let Some(worker) = self.workers.get(spec::uid(old))
                {
                    worker.deleted();
                }
                self.take(new);
            }
            Change::Deleted(pod) => {
                if let Some(worker) = self.workers.get(spec::uid(pod)) {
                    worker.deleted();
                }
            }
        }
    }

    fn take(self: &Arc<Self>, pod: &Arc<Pod>) {
        match self.workers.get(spec::uid(pod)) {
            Some(worker) => worker.update(pod.clone()),
            None => self.start(Worker::new(pod.clone())),
        }
    }

    pub(crate) fn start(self: &Arc<Self>, worker: Arc<Worker>) {
        self.pods.put(&worker.uid, worker.pod());
        self.workers.put(&worker);
        let (stop, kubelet) = (self.shutdown.clone(), self.clone());
        self.shutdown.spawn(async move {
            let _ = stop.run(Box::pin(attend(kubelet, worker))).await;
        });
    }

    /// Forgets a Pod of which nothing is left.
    pub(crate) fn release(&self, worker: &Worker) {
        self.workers.remove(&worker.uid);
        self.pods.forget(&worker.uid);
        self.admission.forget(&worker.uid);
    }

    /// Ends a Pod as failed, as eviction does: `reason` and `message` go into its status.
    pub fn evict(&self, uid: &str, reason: &str, message: &str, grace_seconds: Option<i64>) {
        if let Some(worker) = self.workers.get(uid) {
            worker.fail(reason, message, grace_seconds);
        }
    }

    /// Shares cpu among the classes of service anew.
    pub(crate) fn balance(&self) {
        let pods: Vec<_> = self.workers.all().into_iter().filter(|w| w.active()).map(|w| w.pod()).collect();
        self.cgroups.balance(&pods);
    }

    /// The Node object, once it is known.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.nodes.get("", &self.config.node_name)
    }

    /// What the node gives to Pods; all it has, until the Node object says less.
    pub(crate) fn allocatable(&self) -> ResourceList {
        let known = self.node().and_then(|n| n.status.as_ref()?.allocatable.clone());
        known.unwrap_or_else(|| {
            ResourceList::from([
                ("cpu".to_owned(), Quantity(self.cpus.to_string())),
                ("memory".to_owned(), Quantity(self.memory.to_string())),
            ])
        })
    }

    /// Memory of this machine in bytes.
    pub(crate) fn memory(&self) -> i64 {
        self.memory
    }
}

/// Memory of this machine in bytes; 0 where the kernel does not say.
fn machine_memory() -> i64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|n| n.parse::<i64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Runs a Pod's worker and its reporter until nothing of the Pod is left. A panic costs this Pod alone,
/// and not for ever.
async fn attend(kubelet: Arc<Kubelet>, worker: Arc<Worker>) {
    let begin = || {
        let mut run = Box::pin(worker.clone().run(kubelet.clone()));
        let mut report = Box::pin(worker.clone().report(kubelet.clone()));
        async move {
            // The worker outlives its reporter by what is left to clean up.
            tokio::select! {
                () = &mut run => {}
                () = &mut report => run.await,
            }
        }
    };
    restarting(begin, |panic| {
        let pod = worker.pod();
        tracing::error!(pod = spec::full_name(&pod), panic, "a Pod's worker panicked and is restarted");
        // DIFFERENCE: upstream's kubelet ends as a whole.
        let message = format!("error syncing pod, will be restarted: panic: {panic}");
        kubelet.recorder.pod(&pod, "Warning", "FailedSync", message);
        worker.changed();
    })
    .await;
}

/// Runs what `begin` makes, again after each panic, ever more slowly.
async fn restarting<F: Future<Output = ()>>(mut begin: impl FnMut() -> F, mut told: impl FnMut(&str)) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(5));
    loop {
        let began = Instant::now();
        let Err(panic) = AssertUnwindSafe(begin()).catch_unwind().await else { return };
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        told(&text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default());
        if began.elapsed() > Duration::from_mins(10) {
            backoff.reset();
        }
        tokio::time::sleep(backoff.delay()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_panics_is_restarted_ever_more_slowly() {
        let (mut runs, mut told) = (0, Vec::new());
        let began = Instant::now();
        restarting(
            || {
                runs += 1;
                let run = runs;
                async move {
                    tokio::task::yield_now().await;
                    match run {
                        1 => panic!("first"),
                        2 => panic!("run {run}"),
                        _ => {}
                    }
                }
            },
            |text| told.push(text.to_owned()),
        )
        .await;
        assert_eq!((runs, told), (3, vec!["first".to_owned(), "run 2".to_owned()]));
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
