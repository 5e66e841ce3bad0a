//! The parts of a kubelet, put together.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use client::events::Recorder;
use client::{Change, Client, Informer, Selection};
use component::{Clock, Shutdown};
use cri::runtime as pb;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use parking_lot::RwLock;

use crate::backoff::Backoffs;
use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::images::ImageManager;
use crate::objects::Objects;
use crate::pods::worker::Worker;
use crate::pods::{PodManager, spec};
use crate::probes::Probes;
use crate::quantity::Resources;
use crate::recorder::PodRecorder;
use crate::runtime::{Runtime, RuntimeError};
use crate::volumes::payload::Tokens;
use crate::{events, logs, node, server, volumes};

/// Everything the kubelet's parts share.
pub struct Kubelet {
    /// Settings.
    pub config: Config,
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
    pub(crate) started_at: Timestamp,
    pub(crate) recorder: PodRecorder,
    pub(crate) objects: Objects,
    pub(crate) services: Informer<Service>,
    pub(crate) images: ImageManager,
    pub(crate) probes: Probes,
    pub(crate) tokens: Tokens,
    pub(crate) cgroups: Cgroups,
    /// Back-off of containers that end.
    pub(crate) crashes: Backoffs,
    /// Pods that this node has taken; held while one is decided about.
    pub(crate) admitted: tokio::sync::Mutex<HashSet<String>>,
    /// Whether the runtime can mount read-only all the way down.
    pub(crate) recursive_read_only: bool,
    workers: RwLock<HashMap<String, Arc<Worker>>>,
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
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
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
        volumes::close(&config).map_err(|(path, source)| StartError::Directory { path, source })?;
        let runtime = Runtime::connect(&config.container_runtime_endpoint).await?;
        let recursive_read_only = recursive_read_only(&runtime).await;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let cgroups = Cgroups::new(&config.cgroup_root, runtime.cgroup_driver);
        cgroups.ensure_root(cpus).map_err(StartError::Cgroups)?;
        let recorder = Recorder::start(client.clone(), "kubelet", &config.node_name, clock, &shutdown);
        let own = Selection {
            field_selector: format!("metadata.name={}", config.node_name),
            ..Selection::default()
        };
        let kubelet = Arc::new_cyclic(|weak: &Weak<Self>| {
            let me = weak.clone();
            let wake = Arc::new(move |uid: &str| {
                if let Some(kubelet) = me.upgrade() {
                    kubelet.wake(uid);
                }
            });
            Self {
                pods: Arc::default(),
                nodes: Informer::new(&client, own),
                started_at: clock.now(),
                recorder: PodRecorder(recorder),
                objects: Objects::new(client.clone(), shutdown.clone(), wake),
                services: Informer::new(&client, Selection::default()),
                images: ImageManager::new(config.max_parallel_image_pulls),
                probes: Probes::default(),
                tokens: Tokens::default(),
                cgroups,
                crashes: Backoffs::default(),
                admitted: tokio::sync::Mutex::default(),
                recursive_read_only,
                workers: RwLock::default(),
                memory: machine_memory(),
                cpus,
                config,
                client,
                clock,
                runtime,
                shutdown,
            }
        });
        Ok(kubelet)
    }

    /// Runs the Pods of this node until shutdown, which leaves the containers running.
    pub async fn run_pods(self: &Arc<Self>) {
        self.nodes.start(&self.shutdown);
        self.services.start(&self.shutdown);
        let weak = Arc::downgrade(self);
        self.nodes.handle(move |change| {
            if let (Change::Added(_), Some(kubelet)) = (change, weak.upgrade()) {
                kubelet.wake_all();
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
        self.shutdown.spawn(events::follow(self.clone()));
        self.shutdown.spawn(logs::rotate(self.clone()));
        if self.shutdown.run(pods.synced()).await.is_some() {
            self.remove_orphans().await;
        }
        self.shutdown.wait().await;
    }

    /// Runs a kubelet until `shutdown`, which leaves the containers running.
    pub async fn run(
        config: Config,
        client: Client,
        clock: Clock,
        shutdown: Shutdown,
    ) -> Result<(), StartError> {
        let kubelet = Self::new(config, client, clock, shutdown.clone()).await?;
        server::start(&kubelet, &shutdown).await?;
        node::start(kubelet.clone(), kubelet.recorder.0.clone(), &shutdown);
        kubelet.run_pods().await;
        Ok(())
    }

    /// Records Events as this kubelet.
    pub fn recorder(&self) -> Recorder {
        self.recorder.0.clone()
    }

    fn hear(self: &Arc<Self>, change: &Change<Pod>) {
        match change {
            Change::Added(pod) => self.take(pod),
            Change::Updated { old, new } => {
                if spec::uid(old) != spec::uid(new)
                    && let Some(worker) = self.worker(spec::uid(old))
                {
                    worker.deleted();
                }
                self.take(new);
            }
            Change::Deleted(pod) => {
                if let Some(worker) = self.worker(spec::uid(pod)) {
                    worker.deleted();
                }
            }
        }
    }

    fn take(self: &Arc<Self>, pod: &Arc<Pod>) {
        match self.worker(spec::uid(pod)) {
            Some(worker) => worker.update(pod.clone()),
            None => self.start(Worker::new(pod.clone())),
        }
    }

    fn start(self: &Arc<Self>, worker: Arc<Worker>) {
        self.pods.put(&worker.uid, worker.pod());
        self.workers.write().insert(worker.uid.clone(), worker.clone());
        let stop = self.shutdown.clone();
        let (run, report) =
            (Box::pin(worker.clone().run(self.clone())), Box::pin(worker.report(self.clone())));
        self.shutdown.spawn(async move {
            let _ = stop
                .run(async {
                    // The worker outlives its reporter by what is left to clean up.
                    let (mut run, mut report) = (run, report);
                    tokio::select! {
                        () = &mut run => {}
                        () = &mut report => run.await,
                    }
                })
                .await;
        });
    }

    /// Removes what Pods left here that are gone from the API since.
    async fn remove_orphans(self: &Arc<Self>) {
        match events::own_pods(self).await {
            Ok(found) => {
                for (uid, namespace, name) in found {
                    if self.worker(&uid).is_none() {
                        let mut pod = Pod::default();
                        pod.metadata.uid = Some(uid);
                        pod.metadata.namespace = Some(namespace);
                        pod.metadata.name = Some(name);
                        let worker = Worker::new(Arc::new(pod));
                        worker.deleted();
                        self.start(worker);
                    }
                }
            }
            Err(error) => tracing::warn!(error = error.message(), "cannot look for orphaned Pods"),
        }
        let mut dirs = match tokio::fs::read_dir(self.config.root_dir.join("pods")).await {
            Ok(dirs) => dirs,
            Err(error) => {
                tracing::warn!(%error, "cannot look for orphaned directories");
                return;
            }
        };
        while let Ok(Some(dir)) = dirs.next_entry().await {
            let Ok(uid) = dir.file_name().into_string() else { continue };
            if self.worker(&uid).is_none() {
                self.cgroups.remove(&uid);
                if let Err(error) = volumes::remove_pod(self, &uid).await {
                    tracing::warn!(uid, error, "an orphaned directory stays");
                }
            }
        }
    }

    fn worker(&self, uid: &str) -> Option<Arc<Worker>> {
        self.workers.read().get(uid).cloned()
    }

    /// Every worker.
    pub(crate) fn workers(&self) -> Vec<Arc<Worker>> {
        self.workers.read().values().cloned().collect()
    }

    /// Lets a Pod's worker look again.
    pub(crate) fn wake(&self, uid: &str) {
        if let Some(worker) = self.worker(uid) {
            worker.wake.notify_one();
        }
    }

    /// Lets every worker look again.
    pub(crate) fn wake_all(&self) {
        for worker in self.workers() {
            worker.wake.notify_one();
        }
    }

    /// Something that a Pod's status shows has changed.
    pub(crate) fn changed(&self, uid: &str) {
        if let Some(worker) = self.worker(uid) {
            worker.changed();
        }
    }

    /// Forgets a Pod of which nothing is left.
    pub(crate) fn release(&self, worker: &Worker) {
        self.workers.write().remove(&worker.uid);
        self.pods.forget(&worker.uid);
        if let Ok(mut admitted) = self.admitted.try_lock() {
            admitted.remove(&worker.uid);
        }
    }

    /// Ends a Pod as failed, as eviction does: `reason` and `message` go into its status.
    pub fn evict(&self, uid: &str, reason: &str, message: &str, grace_seconds: Option<i64>) {
        if let Some(worker) = self.worker(uid) {
            worker.fail(reason, message, grace_seconds);
        }
    }

    /// Shares cpu among the classes of service anew.
    pub(crate) fn balance(&self) {
        let pods: Vec<_> = self.workers().into_iter().filter(|w| w.active()).map(|w| w.pod()).collect();
        self.cgroups.balance(&pods);
    }

    /// The primary address of a Pod, if it has one.
    pub(crate) fn pod_ip(&self, pod: &Pod) -> Option<String> {
        if spec::host_network(pod) {
            return self.config.node_ips.first().map(ToString::to_string);
        }
        let observed = self.pods.observed(spec::namespace(pod), spec::name(pod), Some(spec::uid(pod)))?;
        observed.ips().first().cloned()
    }

    /// The Node object, once it is known.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.nodes.get("", &self.config.node_name)
    }

    /// What the node gives to Pods; all it has, until the Node object says less.
    pub(crate) fn allocatable(&self) -> Resources {
        let known = self.node().and_then(|n| n.status.as_ref()?.allocatable.clone());
        known.unwrap_or_else(|| {
            Resources::from([
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

async fn recursive_read_only(runtime: &Runtime) -> bool {
    let answer = runtime.service().status(pb::StatusRequest { verbose: false }).await;
    answer.is_ok_and(|a| {
        a.into_inner()
            .runtime_handlers
            .iter()
            .any(|h| h.name.is_empty() && h.features.is_some_and(|f| f.recursive_read_only_mounts))
    })
}
