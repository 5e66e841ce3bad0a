//! The parts of a kubelet, put together.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::gate::Gate;
use client::events::Recorder;
use client::{Backoff, Change, Clients, Informer, Selection};
use component::{Clock, Shutdown};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::storage::v1::CSIDriver;
use objects::features;
use objects::taints::Tolerance;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::backoff::Backoffs;
use crate::cgroups::{self, Cgroups};
use crate::config::Config;
use crate::credential_providers::Providers;
use crate::csi::{CsiVolumes, Drivers, Given, InUse, NodeInfo, Registrar, Room};
use crate::device_manager::{self, DeviceManager};
use crate::dra::Dra;
use crate::enforcement::Limits;
use crate::events::Follower;
use crate::eviction::manager::Evictor;
use crate::garbage::Collectors;
use crate::garbage::containers::ContainerCollector;
use crate::garbage::images::ImageCollector;
use crate::health::Health;
use crate::housekeeping::Housekeeper;
use crate::images::ImageManager;
use crate::listing::Listing;
use crate::logs::Rotation;
use crate::metrics::Metrics;
use crate::node::machine::Pids;
use crate::node::{self, NodeView};
use crate::node_allocatable::{self, AllocatableError, NodeAllocatable};
use crate::node_shutdown::{self, NodeShutdown};
use crate::objects::{Objects, Seen};
use crate::plugin_manager::{PluginHandler, PluginManager};
use crate::pod_certificates::PodCertificates;
use crate::pod_cidr::PodCidr;
use crate::pod_resources::PodResources;
use crate::pods::addresses::Addresses;
use crate::pods::admission::{Admission, Rules};
use crate::pods::allocated::Record;
use crate::pods::allocation::Scope;
use crate::pods::config::Requests;
use crate::pods::devices::Devices;
use crate::pods::host::PodHost;
use crate::pods::kill::Killer;
use crate::pods::lifecycle::Lifecycle;
use crate::pods::mirrors::Mirrors;
use crate::pods::observer::Observer;
use crate::pods::reporter::Reporter;
use crate::pods::resize::Resizer;
use crate::pods::resources::PodCgroup;
use crate::pods::runtime_classes::RuntimeClasses;
use crate::pods::sandboxes::Sandboxes;
use crate::pods::start::Starter;
use crate::pods::sync::Syncer;
use crate::pods::workers::Workers;
use crate::pods::{PodManager, app_armor, env};
use crate::probes::{Prober, Probes};
use crate::recorder::PodRecorder;
use crate::resource_managers::{ManagersError, ResourceManagers};
use crate::runtime::{Runtime, RuntimeError};
use crate::set_up::{self, SetUpError};
use crate::sources::api::ApiSource;
use crate::sources::directory::Directory;
use crate::sources::mirrors::Mirroring;
use crate::sources::statics::StaticSource;
use crate::sources::url::Url;
use crate::sources::{Source, Sources};
use crate::stats::collect::Collector;
use crate::stats::disks::Disks;
use crate::system_cgroups::{SystemCgroups, SystemCgroupsError};
use crate::trust_bundles::TrustBundles;
use crate::user_namespaces::{UserNamespaceError, UserNamespaces};
use crate::volumes::giving::Giver;
use crate::volumes::local_path::LocalVolumes;
use crate::volumes::payload;
use crate::volumes::selinux::Labels;
use crate::volumes::tokens::Issuer;
use crate::volumes::{DiskVolumes, DisksGiven, VolumeManager};
use crate::watchdog::{self, WatchdogSettingError};
use crate::{health, server};

/// A kubelet that is prepared to run.
pub struct Kubelet {
    /// The Pods of this node.
    pub pods: Arc<PodManager>,
    config: Arc<Config>,
    runtime: Runtime,
    shutdown: Shutdown,
    admission: Arc<Admission>,
    workers: Arc<Workers>,
    host: Arc<PodHost>,
    nodes: Informer<Node>,
    services: Informer<Service>,
    sources: Sources,
    mirroring: Arc<Mirroring>,
    node: NodeView,
    follower: Arc<Follower>,
    rotation: Arc<Rotation>,
    housekeeper: Arc<Housekeeper>,
    evictor: Arc<Evictor>,
    node_shutdown: Option<Arc<NodeShutdown>>,
    images: Arc<ImageCollector>,
    local_volumes: Option<Arc<LocalVolumes>>,
    reported: node::Machinery,
    served: server::Served,
    storage: Storage,
    devices: Devices,
    managers: Arc<ResourceManagers>,
    pod_cidr: Arc<PodCidr>,
    system_cgroups: SystemCgroups,
    certificates: PodCertificates,
}

/// The parts that look after volumes of drivers.
#[derive(Clone)]
struct Storage {
    rules: Informer<CSIDriver>,
    volumes: Arc<CsiVolumes>,
    disks: Arc<DiskVolumes>,
    labels: Arc<Labels>,
    in_use: Arc<InUse>,
    registrar: Arc<Registrar>,
    plugins: Arc<PluginManager>,
}

impl Storage {
    fn new(
        config: &Config,
        (client, clock): (&client::Client, Clock),
        node: NodeView,
        giver: Giver,
        others: impl IntoIterator<Item = Arc<dyn PluginHandler>>,
        metrics: &Metrics,
    ) -> Self {
        let (rules, in_use) = (Informer::new(client, Selection::default()), Arc::new(InUse::default()));
        let drivers = Drivers::counted_by(metrics.clone());
        let labels = Labels::new(Path::new("/"), config.gates.enabled(Gate::SELinuxMount), metrics);
        let disks = DiskVolumes::new(DisksGiven {
            client: client.clone(),
            node: node.clone(),
            in_use: in_use.clone(),
            giver: giver.clone(),
            root: config.root_dir.clone(),
            drivers: config.volume_plugin_dir.clone(),
            standalone: config.standalone,
            clock,
            node_name: config.node_name.clone(),
            controller_attaches: config.node.controller_attaches,
            labels: labels.clone(),
        });
        let given = Given {
            client: client.clone(),
            node_name: config.node_name.clone(),
            node,
            drivers: drivers.clone(),
            rules: rules.clone(),
            standalone: config.standalone,
            root: config.root_dir.clone(),
            tokens: Issuer::new(client.clone(), clock),
            giver,
            controller_attaches: config.node.controller_attaches,
            volume_health: config.gates.enabled(Gate::CSIVolumeHealth),
            labels: labels.clone(),
        };
        let nodes = Arc::new(NodeInfo::new(client.clone(), &config.node_name));
        let registrar = Arc::new(Registrar { drivers, nodes, rules: rules.clone() });
        let own: Arc<dyn PluginHandler> = registrar.clone();
        let handlers = others.into_iter().chain([own]).collect();
        let plugins = PluginManager::new(config.root_dir.join("plugins_registry"), handlers);
        let room = Arc::new(Room::new(given, in_use.clone()));
        let (volumes, disks) = (Arc::new(CsiVolumes::new(room)), Arc::new(disks));
        Self { rules, volumes, disks, labels, in_use, registrar, plugins: Arc::new(plugins) }
    }
}

/// Why a kubelet cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The container runtime cannot be used.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Its directories cannot be used.
    #[error(transparent)]
    SetUp(#[from] SetUpError),
    /// It is not known which claims on devices are in use.
    #[error("cannot read the state of claims on devices {path}")]
    Claims {
        /// The file that upstream's kubelet has, too.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// More is kept from Pods than there is, or it cannot be kept.
    #[error(transparent)]
    Allocatable(#[from] AllocatableError),
    /// Processes of the system cannot have their cgroup.
    #[error("failed to start ContainerManager: {0}")]
    SystemCgroups(#[from] SystemCgroupsError),
    /// Pods cannot have users of their own.
    #[error("create user namespace manager: {0}")]
    UserNamespaces(#[from] UserNamespaceError),
    /// Processors or memory cannot be given.
    #[error(transparent)]
    Managers(#[from] ManagersError),
    /// The cgroups of Pods cannot be made.
    #[error("cannot make the cgroups of Pods")]
    Cgroups(#[source] std::io::Error),
    /// Its server's port cannot be used.
    #[error(transparent)]
    Serve(#[from] serving::ServeError),
    /// The service manager's watchdog cannot be served.
    #[error(transparent)]
    Watchdog(#[from] WatchdogSettingError),
}

/// The parts that those who run Pods have in common.
struct Base {
    config: Arc<Config>,
    client: client::Client,
    clock: Clock,
    shutdown: Shutdown,
    runtime: Runtime,
    recorder: PodRecorder,
    cgroups: Cgroups,
    health: Arc<Health>,
    node: NodeView,
    pods: Arc<PodManager>,
    workers: Arc<Workers>,
    services: Informer<Service>,
    addresses: Addresses,
    killer: Killer,
    objects: Arc<Objects>,
    volumes: Arc<VolumeManager>,
    storage: Storage,
    prober: Prober,
    admission: Arc<Admission>,
    devices: Devices,
    managers: Arc<ResourceManagers>,
    /// The record of what Pods were given, for a kubelet that starts anew.
    allocated: Arc<Record>,
    users: UserNamespaces,
    pod_cidr: Arc<PodCidr>,
    system_cgroups: SystemCgroups,
    housekeeping: Arc<Notify>,
    images: Arc<ImageManager>,
    collector: Arc<Collector>,
    metrics: Metrics,
    mirrors: Arc<Mirrors>,
}

impl Base {
    fn syncer(&self, observer: &Observer, reporter: &Reporter) -> Syncer {
        let requests = Arc::new(Requests {
            config: self.config.clone(),
            clock: self.clock,
            recorder: self.recorder.clone(),
            cgroups: self.cgroups.clone(),
            health: self.health.clone(),
            managers: self.managers.clone(),
            users: self.users.clone(),
            selinux: self.storage.labels.enabled(),
            env: env::Sources::new(&self.config, self.services.clone(), self.objects.clone()),
        });
        let starter = Starter {
            clock: self.clock,
            runtime: self.runtime.clone(),
            recorder: self.recorder.clone(),
            images: self.images.clone(),
            requests: requests.clone(),
            services: self.services.clone(),
            node: self.node.clone(),
            addresses: self.addresses.clone(),
            killer: self.killer.clone(),
            observer: observer.clone(),
            devices: self.devices.clone(),
            crashes: Arc::new(Backoffs::new(self.config.restart_backoff)),
        };
        let sandboxes = Sandboxes {
            classes: RuntimeClasses::new(self.client.clone()),
            runtime: self.runtime.clone(),
            recorder: self.recorder.clone(),
            requests,
            health: self.health.clone(),
        };
        let resizer = Resizer {
            cgroups: self.cgroups.clone(),
            runtime: self.runtime.clone(),
            recorder: self.recorder.clone(),
            killer: self.killer.clone(),
            workers: self.workers.clone(),
            node: self.node.clone(),
            managers: self.managers.clone(),
            allocated: self.allocated.clone(),
            scope: Scope::of(self.config.gates),
            turn: Mutex::default(),
        };
        Syncer {
            config: self.config.clone(),
            clock: self.clock,
            recorder: self.recorder.clone(),
            node: self.node.clone(),
            objects: self.objects.clone(),
            volumes: self.volumes.clone(),
            devices: self.devices.clone(),
            cgroups: self.cgroups.clone(),
            managers: self.managers.clone(),
            workers: self.workers.clone(),
            prober: self.prober.clone(),
            killer: self.killer.clone(),
            observer: observer.clone(),
            reporter: reporter.clone(),
            sandboxes,
            starter,
            resizer,
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        let observer =
            Observer::new(&self.config, self.runtime.clone(), self.pods.clone(), self.cgroups.clone());
        let reporter = Reporter {
            config: self.config.clone(),
            client: self.client.clone(),
            clock: self.clock,
            runtime: self.runtime.clone(),
            pods: self.pods.clone(),
            probes: self.prober.probes.clone(),
            devices: self.devices.clone(),
            health: self.health.clone(),
        };
        Lifecycle {
            config: self.config.clone(),
            client: self.client.clone(),
            clock: self.clock,
            recorder: self.recorder.clone(),
            node: self.node.clone(),
            pods: self.pods.clone(),
            workers: self.workers.clone(),
            admission: self.admission.clone(),
            objects: self.objects.clone(),
            volumes: self.volumes.clone(),
            devices: self.devices.clone(),
            managers: self.managers.clone(),
            users: self.users.clone(),
            cgroups: self.cgroups.clone(),
            prober: self.prober.clone(),
            killer: self.killer.clone(),
            syncer: self.syncer(&observer, &reporter),
            observer,
            reporter,
            housekeeping: self.housekeeping.clone(),
            mirrors: self.mirrors.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// The sources of Pods: the API's are `bound` to the node.
    fn sources(&self, bound: Informer<Pod>) -> Sources {
        let mut all: Vec<Arc<dyn Source>> = Vec::new();
        if !self.config.standalone {
            all.push(Arc::new(ApiSource(bound)));
        }
        let node = &self.config.node_name;
        if let Some(statics) = &self.config.statics {
            let manifests = || statics.manifests.clone();
            if let Some(path) = &statics.path {
                let reader = Directory::new(manifests(), path.clone(), node, statics.file_period);
                all.push(Arc::new(StaticSource::new(reader, self.clock)));
            }
            if let Some(url) = &statics.url {
                let reader = Url {
                    manifests: manifests(),
                    url: url.clone(),
                    headers: statics.headers.clone(),
                    node: node.clone(),
                    period: statics.url_period,
                    last: Mutex::default(),
                };
                all.push(Arc::new(StaticSource::new(reader, self.clock)));
            }
        }
        Sources(all.into())
    }

    /// The collectors of what the runtime has of no use.
    fn collectors(&self) -> Collectors {
        let containers = ContainerCollector {
            config: self.config.clone(),
            clock: self.clock,
            runtime: self.runtime.clone(),
            killer: self.killer.clone(),
            workers: self.workers.clone(),
        };
        let images = ImageCollector {
            node: self.config.node_name.clone(),
            policy: self.config.image_gc,
            by_handler: self.config.gates.enabled(Gate::RuntimeClassInImageCriApi),
            runtime: self.runtime.clone(),
            recorder: self.recorder.clone(),
            collector: self.collector.clone(),
            workers: self.workers.clone(),
            images: self.images.clone(),
            metrics: self.metrics.clone(),
            known: tokio::sync::Mutex::default(),
        };
        Collectors { containers: Arc::new(containers), images: Arc::new(images) }
    }

    fn evictor(&self, collectors: Collectors) -> Evictor {
        Evictor {
            settings: self.config.eviction.clone(),
            clock: self.clock,
            node: self.config.node_name.clone(),
            collector: self.collector.clone(),
            workers: self.workers.clone(),
            recorder: self.recorder.clone(),
            pressure: self.admission.pressure.clone(),
            collectors: Arc::new(collectors),
            metrics: self.metrics.clone(),
            state: Mutex::default(),
        }
    }

    fn node_shutdown(&self) -> Option<NodeShutdown> {
        let given = node_shutdown::Given {
            clock: self.clock,
            node: self.config.node_name.clone(),
            workers: self.workers.clone(),
            recorder: self.recorder.clone(),
            metrics: self.metrics.clone(),
            going_down: self.admission.going_down.clone(),
        };
        NodeShutdown::new(given, &self.config.shutdown_grace_periods, &self.config.root_dir)
    }

    fn served(&self) -> server::Served {
        server::Served {
            config: self.config.clone(),
            client: self.client.clone(),
            clock: self.clock,
            runtime: self.runtime.clone(),
            pods: self.pods.clone(),
            probes: self.prober.probes.clone(),
            admission: self.admission.clone(),
            workers: self.workers.clone(),
            collector: self.collector.clone(),
            devices: self.devices.clone(),
            managers: self.managers.clone(),
            pod_resources: PodResources::new(
                &self.config,
                self.pods.clone(),
                self.workers.clone(),
                (self.devices.clone(), self.managers.clone()),
            ),
            metrics: self.metrics.clone(),
            certificates: self.volumes.certificates().clone(),
            plugins: self.storage.plugins.clone(),
            mirrors: self.mirrors.clone(),
            shutdown: self.shutdown.clone(),
        }
    }
}

impl Kubelet {
    /// Prepares this machine and connects to the runtime; nothing runs yet.
    ///
    /// # Errors
    /// Where the runtime, a directory or a cgroup cannot be used.
    pub async fn new(
        config: Config,
        clients: &Clients,
        clock: Clock,
        shutdown: Shutdown,
    ) -> Result<Arc<Self>, StartError> {
        let config = Arc::new(config);
        let client = clients.of(&format!("system:node:{}", config.node_name)).counted();
        let recorder = recorder(&config, &client, clock, &shutdown);
        if let Err(error) = set_up::directories(&config) {
            error.tell(&config, &recorder.0, &client).await;
            return Err(error.into());
        }
        let runtime = connect(&config).await?;
        let health = Arc::new(Health::default());
        health.ask(&runtime).await;
        let users = UserNamespaces::new(&config)?;
        let pod_cidr = PodCidr::of_config(&config, runtime.clone()).await;
        let named = |field: &str| Selection {
            field_selector: format!("{field}={}", config.node_name),
            ..Selection::default()
        };
        let nodes: Informer<Node> = Informer::new(&client, named("metadata.name"));
        let node = NodeView::new(&config.node_name, nodes.clone(), config.node.nodes_of_machine);
        let (cgroups, of_all_pods) = cgroups_of_pods(&config, &runtime)?;
        let allocatable = NodeAllocatable {
            cgroups: cgroups.clone(),
            recorder: recorder.clone(),
            node: config.node_name.clone(),
            wanted: of_all_pods,
        };
        allocatable.reserve(&config.node.reserved_cgroups)?;
        let limited = allocatable.limit();
        let (workers, pods) = (Arc::new(Workers::default()), Arc::new(PodManager::default()));
        let addresses = Addresses::new(&config, pods.clone());
        let objects = objects_of_pods(&config, &client, &node, &workers, &shutdown);
        let giver = Giver { recorder: recorder.clone(), pods: config.pods_dir() };
        let devices = devices(&config, (&client, &node), &workers, &shutdown)?;
        let handlers = devices.handlers();
        let metrics = &runtime.metrics;
        let managers = ResourceManagers::new(&config, runtime.clone(), workers.clone()).await?;
        let storage = Storage::new(&config, (&client, clock), node.clone(), giver.clone(), handlers, metrics);
        let (api, of_pods) = ((&client, clock, &shutdown), (&objects, &recorder, &workers));
        let volumes = volumes_of_pods(&config, api, (&node, giver), of_pods, &storage, metrics);
        let killer = Killer::new(&config, runtime.clone(), recorder.clone(), addresses.clone());
        let prober = prober(&config, clock, &runtime, (&recorder, &addresses, &workers), &shutdown);
        let rules = Rules {
            sysctls: config.allowed_sysctls.clone(),
            tolerance: Tolerance::of(config.gates),
            app_armor: app_armor::is_enabled(),
            features: features::offered(config.gates, health.host_network_users()),
        };
        let bound = Informer::new(&client, named("spec.nodeName"));
        let images = image_manager(&config, (&client, clock), &runtime, &recorder, &objects);
        let disks =
            Disks::new(config.clone(), clock, workers.clone(), Some(volumes.clone()), recorder.clone());
        let collector = Collector::new(
            (config.clone(), clock),
            (runtime.clone(), health.clone()),
            pods.clone(),
            cgroups.clone(),
            Arc::new(disks),
        );
        let base = Base {
            images,
            collector: Arc::new(collector),
            metrics: runtime.metrics.clone(),
            mirrors: Arc::default(),
            services: Informer::new(&client, Selection::default()),
            volumes,
            storage,
            admission: Arc::new(Admission::new(rules, devices.plugins.clone())),
            devices,
            managers,
            allocated: Arc::new(Record::load(&config.root_dir)),
            users,
            pod_cidr,
            system_cgroups: system_cgroups(&config)?,
            housekeeping: Arc::default(),
            config,
            client,
            clock,
            shutdown,
            runtime,
            recorder,
            cgroups,
            health,
            node,
            pods,
            workers,
            addresses,
            killer,
            objects,
            prober,
        };
        let kubelet = Self::of(base, nodes, bound);
        if !limited {
            kubelet.until_shutdown(async move { allocatable.keep().await });
        }
        // Before the Node is reported: it must not say that nothing is in use.
        let (csi, disks) = (kubelet.storage.volumes.recover().await, kubelet.storage.disks.recover().await);
        if let Err(error) = csi.and(disks) {
            tracing::warn!(%error, "the volumes of an earlier process are not all known");
        }
        Ok(Arc::new(kubelet))
    }

    fn of(base: Base, nodes: Informer<Node>, bound: Informer<Pod>) -> Self {
        let host = PodHost {
            pods: base.pods.clone(),
            workers: base.workers.clone(),
            lifecycle: Arc::new(base.lifecycle()),
            recorder: base.recorder.clone(),
            mirrors: base.mirrors.clone(),
            shutdown: base.shutdown.clone(),
        };
        let sources = base.sources(bound);
        let mirroring = Mirroring {
            client: base.client.clone(),
            node: base.node.clone(),
            sources: sources.clone(),
            workers: base.workers.clone(),
            mirrors: base.mirrors.clone(),
        };
        let follower = Follower {
            clock: base.clock,
            runtime: base.runtime.clone(),
            health: base.health.clone(),
            workers: base.workers.clone(),
            housekeeping: base.housekeeping.clone(),
        };
        let rotation = Rotation {
            most: base.config.container_log_max_size,
            keep: base.config.container_log_max_files,
            at_once: base.config.container_log_max_workers,
            period: base.config.container_log_monitor_interval,
            clock: base.clock,
            runtime: base.runtime.clone(),
            workers: base.workers.clone(),
        };
        let collectors = base.collectors();
        let images = collectors.images.clone();
        let housekeeper = Housekeeper {
            config: base.config.clone(),
            runtime: base.runtime.clone(),
            recorder: base.recorder.clone(),
            cgroups: base.cgroups.clone(),
            collector: collectors.containers.clone(),
            volumes: base.volumes.clone(),
            workers: base.workers.clone(),
            sources: sources.clone(),
            allocated: base.allocated.clone(),
            woken: base.housekeeping.clone(),
        };
        let reported = node::Machinery {
            config: base.config.clone(),
            client: base.client.clone(),
            clock: base.clock,
            recorder: base.recorder.0.clone(),
            nodes: nodes.clone(),
            health: base.health.clone(),
            runtime: base.runtime.clone(),
            pressure: base.admission.pressure.clone(),
            going_down: base.admission.going_down.clone(),
            in_use: base.storage.in_use.clone(),
            devices: base.devices.plugins.clone(),
        };
        Self {
            evictor: Arc::new(base.evictor(collectors)),
            node_shutdown: base.node_shutdown().map(Arc::new),
            images,
            local_volumes: LocalVolumes::new(&base.config, base.client.clone(), nodes.clone()).map(Arc::new),
            served: base.served(),
            storage: base.storage.clone(),
            devices: base.devices.clone(),
            managers: base.managers.clone(),
            pod_cidr: base.pod_cidr.clone(),
            system_cgroups: base.system_cgroups.clone(),
            certificates: base.volumes.certificates().clone(),
            host: Arc::new(host),
            follower: Arc::new(follower),
            rotation: Arc::new(rotation),
            housekeeper: Arc::new(housekeeper),
            reported,
            nodes,
            sources,
            mirroring: Arc::new(mirroring),
            node: base.node.clone(),
            config: base.config,
            runtime: base.runtime,
            shutdown: base.shutdown,
            admission: base.admission,
            workers: base.workers,
            services: base.services,
            pods: base.pods,
        }
    }

    /// Runs a kubelet until `shutdown`, which leaves the containers running.
    ///
    /// # Errors
    /// Where it cannot start.
    pub async fn run(
        config: Config,
        clients: &Clients,
        clock: Clock,
        shutdown: Shutdown,
    ) -> Result<(), StartError> {
        let watchdog = watchdog::period()?;
        let kubelet = Self::new(config, clients, clock, shutdown).await?;
        server::start(kubelet.served.clone(), watchdog).await?;
        if !kubelet.config.standalone {
            kubelet.report_node();
        }
        kubelet.run_pods().await;
        Ok(())
    }

    /// Registers the Node and reports it until shutdown.
    pub fn report_node(&self) {
        node::start(self.reported.clone(), &self.shutdown);
    }

    /// Runs the Pods of this node until shutdown, which leaves the containers running.
    pub async fn run_pods(&self) {
        self.node.would_be(node::initial(&self.reported).await);
        if self.config.standalone {
            // Nobody else looks after the runtime's health.
            let (health, runtime) = (self.reported.health.clone(), self.runtime.clone());
            self.until_shutdown(async move { Box::pin(health::follow(&health, &runtime)).await });
        } else {
            self.follow_api();
        }
        self.follow_plugins();
        self.follow_devices();
        for source in self.sources.0.iter() {
            source.clone().follow(self.host.clone(), &self.shutdown);
        }
        let follower = self.follower.clone();
        self.until_shutdown(async move { Box::pin(follower.follow()).await });
        let system_cgroups = self.system_cgroups.clone();
        self.until_shutdown(async move { system_cgroups.keep().await });
        let rotation = self.rotation.clone();
        self.until_shutdown(async move { rotation.run().await });
        let (housekeeper, host) = (self.housekeeper.clone(), self.host.clone());
        self.until_shutdown(async move { Box::pin(housekeeper.keep(|worker| host.start(worker))).await });
        let (evictor, images) = (self.evictor.clone(), self.images.clone());
        let disks = evictor.collector.disks.clone();
        self.until_shutdown(async move { disks.keep().await });
        self.until_shutdown(async move { Box::pin(evictor.keep()).await });
        self.until_shutdown(async move { Box::pin(images.keep()).await });
        if let Some(node_shutdown) = self.node_shutdown.clone() {
            self.until_shutdown(async move { Box::pin(node_shutdown.keep(&node_shutdown::System)).await });
        }
        if let Some(volumes) = self.local_volumes.clone() {
            self.until_shutdown(async move { volumes.follow().await });
        }
        let _ = self.shutdown.run(self.open_admission()).await;
        self.shutdown.wait().await;
        self.runtime.finish().await;
    }

    /// Attends to plugins.
    fn follow_plugins(&self) {
        if self.config.standalone {
            // A driver is registered with the Node, which there is none of.
            return;
        }
        let (registrar, plugins) = (self.storage.registrar.clone(), self.storage.plugins.clone());
        let dra = self.devices.dra.clone();
        self.until_shutdown(async move { dra.begin().await });
        self.until_shutdown(async move {
            let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
            // The Node is registered meanwhile.
            while let Err(error) = registrar.nodes.initialize().await {
                tracing::debug!(%error, "no CSINode yet, will retry");
                tokio::time::sleep(backoff.delay()).await;
            }
            tokio::join!(Box::pin(registrar.keep_up()), Box::pin(plugins.run()));
        });
    }

    /// Looks after devices.
    fn follow_devices(&self) {
        let (devices, sources, workers) = (self.devices.clone(), self.sources.clone(), self.workers.clone());
        let told = self.served.pod_resources.clone();
        let managers = self.managers.clone();
        self.until_shutdown(async move {
            let reconcile = async {
                sources.known().await;
                devices.plugins.ready();
                managers.ready();
                devices.dra.reconcile(&workers).await;
            };
            let (health, plugins) =
                (devices.dra.follow_health(&workers), device_manager::serve(&devices.plugins));
            tokio::join!(reconcile, health, plugins, told.serve(), managers.reconcile());
        });
    }

    fn follow_api(&self) {
        self.storage.rules.start(&self.shutdown);
        let in_use = self.storage.in_use.clone();
        let (pod_cidr, node) = (self.pod_cidr.clone(), self.node.clone());
        let woken = pod_cidr.woken.clone();
        self.nodes.handle(move |_| {
            in_use.node_seen();
            woken.notify_one();
        });
        self.until_shutdown(async move { Box::pin(pod_cidr.follow(&node)).await });
        self.nodes.start(&self.shutdown);
        self.services.start(&self.shutdown);
        self.certificates.start(&self.shutdown);
        let (workers, mirrors) = (self.workers.clone(), self.mirroring.mirrors.clone());
        self.nodes.handle(move |change| {
            if matches!(change, Change::Added(_)) {
                workers.wake_all();
                mirrors.woken.notify_one();
            }
        });
        let mirroring = self.mirroring.clone();
        self.until_shutdown(async move { Box::pin(mirroring.keep()).await });
    }

    fn until_shutdown(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.shutdown.clone();
        self.shutdown.spawn(async move {
            let _ = stop.run(task).await;
        });
    }

    /// Lets Pods be admitted once it is known which are there and which of them run already.
    async fn open_admission(&self) {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
        let ran = loop {
            match Listing::of(&self.runtime, &self.config.root_dir).await {
                Ok(listing) => break listing,
                Err(error) => {
                    tracing::warn!(error = error.message(), "cannot list containers, will retry");
                    tokio::time::sleep(backoff.delay()).await;
                }
            }
        };
        self.admission.ran(ran.uids(), ran.going_on());
        self.sources.known().await;
        self.admission.open();
    }
}

/// Connects to the runtime, and to its service of images.
async fn connect(config: &Config) -> Result<Runtime, RuntimeError> {
    let (endpoint, images) = (&config.container_runtime_endpoint, config.image_service_endpoint.as_deref());
    let in_pieces = config.gates.enabled(Gate::CRIListStreaming);
    Runtime::connect_both(endpoint, images, (config.runtime_request_timeout, in_pieces)).await
}

/// Makes the part that asks containers how they are.
fn prober(
    config: &Config,
    clock: Clock,
    runtime: &Runtime,
    (recorder, addresses, workers): (&PodRecorder, &Addresses, &Arc<Workers>),
    shutdown: &Shutdown,
) -> Prober {
    Prober {
        probes: Arc::new(Probes::default()),
        runtime: runtime.clone(),
        recorder: recorder.clone(),
        clock,
        started_at: clock.now(),
        forgets: config.gates.enabled(Gate::ChangeContainerStatusOnKubeletRestart),
        addresses: addresses.clone(),
        workers: workers.clone(),
        shutdown: shutdown.clone(),
    }
}

/// Makes the cgroups of Pods; answers with the settings of that of all of them.
fn cgroups_of_pods(config: &Config, runtime: &Runtime) -> Result<(Cgroups, PodCgroup), StartError> {
    let machine = node_allocatable::machine(config);
    node_allocatable::check(config, &machine)?;
    let (by, reserved) = (config.enforcement, config.node.reserved.memory);
    let limits = Limits::new(by, &machine, reserved, Path::new(cgroups::MOUNT));
    let cgroups = Cgroups::new(&config.cgroup_root, runtime.cgroup_driver, limits)
        .if_wanted(config.pod_cgroups)
        .counted_by(&runtime.metrics);
    let all = node_allocatable::of_all_pods(config, &machine, Pids::read());
    cgroups.ensure_root(all.milli_cpus).map_err(StartError::Cgroups)?;
    Ok((cgroups, all.cgroup))
}

/// The cgroups of processes that are no Pod's.
fn system_cgroups(config: &Config) -> Result<SystemCgroups, SystemCgroupsError> {
    let places = (Path::new(cgroups::MOUNT), Path::new("/proc"));
    SystemCgroups::new(places, Some(&config.kubelet_cgroups), Some(&config.system_cgroups))
}

fn recorder(config: &Config, client: &client::Client, clock: Clock, shutdown: &Shutdown) -> PodRecorder {
    PodRecorder(if config.standalone {
        // Nobody would take its Events.
        Recorder::channel("kubelet", clock).0
    } else {
        let (client, host) = (client.clone(), &config.node_name);
        Recorder::start_at(config.event_rate, client, "kubelet", host, clock, shutdown)
    })
}

/// The objects that Pods refer to.
fn objects_of_pods(
    config: &Config,
    client: &client::Client,
    node: &NodeView,
    workers: &Arc<Workers>,
    shutdown: &Shutdown,
) -> Arc<Objects> {
    let workers = workers.clone();
    let wake = Arc::new(move |uid: &str| workers.wake(uid));
    let seen = Seen { detection: config.change_detection, period: config.sync_frequency, node: node.clone() };
    Objects::new(client.clone(), shutdown.clone(), wake, seen)
}

/// The images, with the providers of credentials for them.
fn image_manager(
    config: &Config,
    (client, clock): (&client::Client, Clock),
    runtime: &Runtime,
    recorder: &PodRecorder,
    objects: &Arc<Objects>,
) -> Arc<ImageManager> {
    let configured = config.credential_providers.as_ref();
    let providers =
        configured.map(|c| Providers::new(c, client, clock, config.standalone, runtime.metrics.clone()));
    let (runtime, recorder) = (runtime.clone(), recorder.clone());
    Arc::new(ImageManager::new(config, runtime, (client, clock), recorder, objects.clone(), providers))
}

/// The volumes of Pods, with the sources of their files.
fn volumes_of_pods(
    config: &Config,
    (client, clock, shutdown): (&client::Client, Clock, &Shutdown),
    (node, giver): (&NodeView, Giver),
    (objects, recorder, workers): (&Arc<Objects>, &PodRecorder, &Arc<Workers>),
    storage: &Storage,
    metrics: &Metrics,
) -> Arc<VolumeManager> {
    let api = (client, clock);
    let sources = payload::Sources {
        objects: objects.clone(),
        issuer: Issuer::new(client.clone(), clock),
        trust: TrustBundles::new(config, client, workers.clone(), shutdown),
        certificates: PodCertificates::new(config, api, node.clone(), recorder.clone(), workers.clone()),
    };
    let drivers = (storage.volumes.clone(), storage.disks.clone(), storage.labels.clone());
    VolumeManager::new(config, client.clone(), clock, sources, (node.clone(), giver), drivers, metrics)
}

/// The parts that look after devices, with what an earlier process left.
fn devices(
    config: &Config,
    (client, node): (&client::Client, &NodeView),
    workers: &Arc<Workers>,
    shutdown: &Shutdown,
) -> Result<Devices, StartError> {
    let dra = Dra::new(config, client.clone(), node.clone(), shutdown.clone());
    let unknown = |error| StartError::Claims { path: Dra::file(config), source: Box::new(error) };
    Ok(Devices {
        dra: Arc::new(dra.map_err(unknown)?),
        plugins: DeviceManager::new(config, workers.clone(), shutdown.clone()),
    })
}
