//! The Node object of this machine: registration, status, heartbeats.

mod lease;
pub mod machine;
pub mod pressure;
mod reporter;
pub mod status;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::Recorder;
use component::Shutdown;
use k8s_openapi::api::core::v1::{NodeStatus, Taint};

use self::machine::{Filesystem, Machine, Pids};
use self::pressure::{Reported, Room};
pub use self::pressure::{Threshold, Thresholds};
pub(crate) use self::reporter::REPORT;
use self::reporter::Reporter;
use self::status::Observation;
use crate::{Kubelet, health};

/// How often the status is made, and how long a request may take that reports it; upstream's
/// `nodeStatusUpdateFrequency`.
pub(crate) const UPDATE: Duration = Duration::from_secs(10);

/// How the Node is registered.
#[derive(Debug, Clone)]
pub struct Options {
    /// The host name it reports; its own name without.
    pub hostname: Option<String>,
    /// The port of this kubelet's server.
    pub port: u16,
    /// More labels.
    pub labels: BTreeMap<String, String>,
    /// Taints of a new Node.
    pub taints: Vec<Taint>,
    /// What is kept free, and when the node is short of something.
    pub eviction_hard: Thresholds,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hostname: None,
            port: 10250,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            eviction_hard: Thresholds::default(),
        }
    }
}

/// Registers the Node and reports it until `shutdown`.
pub fn start(kubelet: Arc<Kubelet>, recorder: Recorder, shutdown: &Shutdown) {
    let stop = shutdown.clone();
    shutdown.spawn(async move {
        let _ = stop.run(Box::pin(report(kubelet, recorder))).await;
    });
}

async fn report(kubelet: Arc<Kubelet>, recorder: Recorder) {
    let watch = health::follow(&kubelet);
    let keep = async {
        let name = kubelet.config.node_name.clone();
        let mut observer = Observer::new(kubelet.clone());
        let mut reporter = Reporter::new(&kubelet.client, kubelet.nodes.clone(), recorder, &kubelet.config);
        let mut initial = status::initial(&name, &kubelet.config.node, &observer.machine);
        let observation = observer.observe().await;
        initial.status =
            Some(status::status(&name, &kubelet.config.node, &observation, &NodeStatus::default()));
        reporter.register(&initial).await;
        let alive = lease::keep(kubelet.client.clone(), kubelet.clock, &name);
        let report = async {
            loop {
                let observation = observer.observe().await;
                reporter.sync(&observation).await;
                tokio::select! {
                    () = tokio::time::sleep(UPDATE) => {}
                    () = kubelet.health.changed.notified() => {}
                }
            }
        };
        tokio::join!(alive, report);
    };
    tokio::join!(watch, keep);
}

/// Looks at the machine and the runtime.
struct Observer {
    kubelet: Arc<Kubelet>,
    machine: Machine,
    addresses: Vec<String>,
    reported: Reported,
}

impl Observer {
    fn new(kubelet: Arc<Kubelet>) -> Self {
        let config = &kubelet.config;
        let addresses = if config.node_ips.is_empty() {
            machine::default_address().iter().map(ToString::to_string).collect()
        } else {
            config.node_ips.iter().map(ToString::to_string).collect()
        };
        Self { machine: Machine::read(), addresses, reported: Reported::default(), kubelet }
    }

    /// Makes no call to the runtime: one that hangs must not keep this from being told.
    async fn observe(&mut self) -> Observation {
        let runtime = self.kubelet.health.report(&self.kubelet.runtime).await;
        let now = self.kubelet.clock.now();
        let nodefs = Filesystem::of(existing(&self.kubelet.config.root_dir));
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let room = Room {
            memory: machine::memory_available(&meminfo).map(|available| (self.machine.memory, available)),
            nodefs,
            imagefs: self.kubelet.health.image_dir().as_deref().and_then(Filesystem::of),
            pids: Pids::read(),
        };
        let seen = self.kubelet.config.node.eviction_hard.check(&room);
        Observation {
            now,
            machine: self.machine.clone(),
            nodefs,
            pressures: self.reported.observe(now, seen),
            runtime,
            addresses: self.addresses.clone(),
            max_pods: self.kubelet.config.max_pods,
        }
    }
}

/// The nearest directory above a path that is there.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|p| p.exists()).unwrap_or(path)
}
