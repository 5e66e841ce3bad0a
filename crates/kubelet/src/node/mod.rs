//! The Node object of this machine: registration, status, heartbeats.

pub mod hardware;
mod lease;
pub mod machine;
mod oom;
mod options;
mod reporter;
mod startup;
pub mod status;
mod view;
mod warnings;

use std::path::Path;
use std::sync::Arc;

use client::{Client, Informer, Recorder};
use component::{Clock, Shutdown};
use k8s_openapi::api::core::v1::{Node, NodeStatus};

use self::machine::{Filesystem, Machine};
pub use self::options::{Options, Others, Reserved, ReservedCgroup};
use self::reporter::Reporter;
use self::startup::Startup;
use self::status::{Observation, Pressures};
pub(crate) use self::view::NodeView;
use crate::csi::InUse;
use crate::device_manager::DeviceManager;
use crate::eviction::pressure::Pressure;
use crate::eviction::signal::Condition;
use crate::health::Health;
use crate::node_shutdown::{self, GoingDown};
use crate::stats::room::existing;
use crate::{Config, Runtime, health};

/// The parts of a kubelet that the Node tells of, and those that report it.
#[derive(Clone)]
pub(crate) struct Machinery {
    pub(crate) config: Arc<Config>,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) nodes: Informer<Node>,
    pub(crate) health: Arc<Health>,
    pub(crate) runtime: Runtime,
    /// The things that the node is short of.
    pub(crate) pressure: Arc<Pressure>,
    /// Whether the machine is going down.
    pub(crate) going_down: Arc<GoingDown>,
    /// The volumes that its Pods use.
    pub(crate) in_use: Arc<InUse>,
    /// The devices that plugins offer.
    pub(crate) devices: Arc<DeviceManager>,
}

/// Registers the Node and reports it until `shutdown`.
pub(crate) fn start(reported: Machinery, shutdown: &Shutdown) {
    let stop = shutdown.clone();
    shutdown.spawn(async move {
        let tell = async {
            warnings::tell(&reported.config, &reported.recorder).await;
            oom::watch(Path::new(oom::LOG), &reported.recorder, &reported.config.node_name).await;
        };
        let _ = stop.run(async { tokio::join!(Box::pin(report(reported.clone())), tell) }).await;
    });
}

/// The Node as this kubelet would register it now.
pub(crate) async fn initial(reported: &Machinery) -> Node {
    let observer = Observer::new(reported.clone());
    let (name, config) = (&reported.config.node_name, &reported.config);
    let mut initial = status::initial(name, &config.node, &observer.machine);
    let observation = observer.observe().await;
    let told = status::provided_addresses(&config.node, &observation.addresses, &initial);
    let told = told.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    initial.metadata.annotations.get_or_insert_default().extend(told);
    initial.status = Some(status::status(name, config, &observation, &NodeStatus::default()));
    initial
}

async fn report(reported: Machinery) {
    let watch = health::follow(&reported.health, &reported.runtime);
    let keep = async {
        let name = reported.config.node_name.clone();
        let observer = Observer::new(reported.clone());
        let mut reporter = Reporter::new(
            &reported.client,
            reported.nodes.clone(),
            reported.recorder.clone(),
            &reported.config,
        );
        let initial = initial(&reported).await;
        let mut startup = Startup::new(reported.clock.now(), &reported.runtime.metrics);
        if reported.config.node.register {
            startup.registers(reported.clock.now());
            reporter.register(&initial, reported.devices.is_new()).await;
            startup.registered(reported.clock.now());
        }
        let alive = lease::keep(reported.client.clone(), reported.clock, &name, reported.config.node.lease);
        let report = async {
            loop {
                let observation = observer.observe().await;
                reporter.sync(&observation).await;
                startup.reported(reported.clock.now(), observation.runtime.errors.is_empty());
                tokio::select! {
                    () = tokio::time::sleep(reported.config.node.update) => {}
                    () = reported.health.changed.notified() => {}
                    () = reported.pressure.changed.notified() => {}
                    () = reported.going_down.changed.notified() => {}
                    () = reported.in_use.changed.notified() => {}
                    () = reported.devices.changed.notified() => {}
                }
            }
        };
        tokio::join!(alive, report);
    };
    tokio::join!(watch, keep);
}

/// Looks at the machine and the runtime.
struct Observer {
    of: Machinery,
    machine: Machine,
    addresses: Vec<String>,
}

impl Observer {
    fn new(of: Machinery) -> Self {
        let config = &of.config;
        let addresses = if config.node_ips.is_empty() {
            machine::default_address().iter().map(ToString::to_string).collect()
        } else {
            config.node_ips.iter().map(ToString::to_string).collect()
        };
        let machine = config.node.machine();
        Self { of, machine, addresses }
    }

    /// Makes no call to the runtime: one that hangs must not keep this from being told.
    async fn observe(&self) -> Observation {
        let mut runtime = self.of.health.report(&self.of.runtime).await;
        if self.of.going_down.is() {
            runtime.errors.push(node_shutdown::NOT_READY.to_owned());
        }
        let now = self.of.clock.now();
        let has = |condition| self.of.pressure.has(condition);
        Observation {
            now,
            machine: self.machine.clone(),
            nodefs: Filesystem::of(existing(&self.of.config.root_dir)),
            pressures: Pressures {
                memory: has(Condition::Memory),
                disk: has(Condition::Disk),
                pids: has(Condition::Pid),
            },
            runtime,
            addresses: self.addresses.clone(),
            max_pods: self.of.config.max_pods,
            volumes_in_use: self.of.in_use.all(),
            devices: self.of.devices.offer().await,
        }
    }
}
