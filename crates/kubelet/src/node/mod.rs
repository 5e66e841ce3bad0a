//! The Node object of this machine: registration, status, heartbeats.

mod lease;
pub mod machine;
mod options;
pub mod pressure;
mod reporter;
pub mod status;
mod view;

use std::path::Path;
use std::sync::Arc;

use client::{Client, Informer, Recorder};
use component::{Clock, Shutdown};
use k8s_openapi::api::core::v1::{Node, NodeStatus};

use self::machine::{Filesystem, Machine, Pids};
pub use self::options::Options;
pub(crate) use self::options::UPDATE;
use self::pressure::{Reported, Room};
pub use self::pressure::{Threshold, ThresholdError, Thresholds};
pub(crate) use self::reporter::REPORT;
use self::reporter::Reporter;
use self::status::Observation;
pub(crate) use self::view::NodeView;
use crate::health::Health;
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
}

/// Registers the Node and reports it until `shutdown`.
pub(crate) fn start(reported: Machinery, shutdown: &Shutdown) {
    let stop = shutdown.clone();
    shutdown.spawn(async move {
        let _ = stop.run(Box::pin(report(reported))).await;
    });
}

async fn report(reported: Machinery) {
    let watch = health::follow(&reported.health, &reported.runtime);
    let keep = async {
        let name = reported.config.node_name.clone();
        let mut observer = Observer::new(reported.clone());
        let mut reporter = Reporter::new(
            &reported.client,
            reported.nodes.clone(),
            reported.recorder.clone(),
            &reported.config,
        );
        let mut initial = status::initial(&name, &reported.config.node, &observer.machine);
        let observation = observer.observe().await;
        initial.status =
            Some(status::status(&name, &reported.config.node, &observation, &NodeStatus::default()));
        reporter.register(&initial).await;
        let alive = lease::keep(reported.client.clone(), reported.clock, &name);
        let report = async {
            loop {
                let observation = observer.observe().await;
                reporter.sync(&observation).await;
                tokio::select! {
                    () = tokio::time::sleep(UPDATE) => {}
                    () = reported.health.changed.notified() => {}
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
    reported: Reported,
}

impl Observer {
    fn new(of: Machinery) -> Self {
        let config = &of.config;
        let addresses = if config.node_ips.is_empty() {
            machine::default_address().iter().map(ToString::to_string).collect()
        } else {
            config.node_ips.iter().map(ToString::to_string).collect()
        };
        let machine = Machine::read().shared_by(config.node.nodes_of_machine);
        Self { machine, addresses, reported: Reported::default(), of }
    }

    /// Makes no call to the runtime: one that hangs must not keep this from being told.
    async fn observe(&mut self) -> Observation {
        let runtime = self.of.health.report(&self.of.runtime).await;
        let now = self.of.clock.now();
        let nodefs = Filesystem::of(existing(&self.of.config.root_dir));
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let room = Room {
            memory: machine::memory_available(&meminfo).map(|available| {
                // A machine that is short of memory is so for each of its nodes.
                (self.machine.memory, available.min(self.machine.memory))
            }),
            nodefs,
            imagefs: self.of.health.image_dir().as_deref().and_then(Filesystem::of),
            pids: Pids::read(),
        };
        let seen = self.of.config.node.eviction_hard.check(&room);
        Observation {
            now,
            machine: self.machine.clone(),
            nodefs,
            pressures: self.reported.observe(now, seen),
            runtime,
            addresses: self.addresses.clone(),
            max_pods: self.of.config.max_pods,
        }
    }
}

/// The nearest directory above a path that is there.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|p| p.exists()).unwrap_or(path)
}
