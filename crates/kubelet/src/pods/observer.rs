//! A look at everything that the runtime has of a Pod.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use api::Gate;
use tokio::time::Instant;

use super::manager::PodManager;
use super::observed::{PodStatus, State};
use super::worker::Worker;
use super::{addresses, messages, spec};
use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::metrics;
use crate::runtime::{CallError, Runtime};

/// Asks the runtime about Pods.
#[derive(Clone)]
pub(crate) struct Observer {
    runtime: Runtime,
    pods: Arc<PodManager>,
    /// Where the Pods' directories are.
    dir: PathBuf,
    /// The node's primary address.
    node: Option<IpAddr>,
    cgroups: Cgroups,
    /// Whether figures of Pods' cgroups are wanted: they tell of the resources of whole Pods.
    figures: bool,
}

impl Observer {
    /// `pods` hears of what is seen.
    pub(crate) fn new(config: &Config, runtime: Runtime, pods: Arc<PodManager>, cgroups: Cgroups) -> Self {
        let (dir, node) = (config.pods_dir(), config.node_ips.first().copied());
        let figures = config.gates.enabled(Gate::InPlacePodLevelResourcesVerticalScaling);
        Self { runtime, pods, dir, node, cgroups, figures }
    }

    /// Asks the runtime, and notes the answer, with the messages that containers left. Calls of a step that was
    /// given up come to their end first, so that the answer is complete.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) async fn observe(&self, worker: &Worker) -> Result<Arc<PodStatus>, CallError> {
        self.runtime.idle(&worker.uid).await;
        let pod = worker.pod();
        let uid = spec::uid(&pod);
        let began = Instant::now();
        let mut observed = self.runtime.pod_status(uid, spec::namespace(&pod), spec::name(&pod)).await?;
        self.runtime.metrics.took(&metrics::PLEG_POD_RELIST_DURATION_SECONDS, &[], began.elapsed());
        for sandbox in &mut observed.sandboxes {
            sandbox.ips = addresses::preferred(&sandbox.ips, self.node.as_ref());
        }
        for c in observed.containers.iter_mut().filter(|c| c.state == State::Exited) {
            let dir = self.dir.join(uid).join("containers").join(&c.name);
            messages::complete(c, dir).await;
        }
        observed.cgroup = self.figures.then(|| self.cgroups.figures(&pod)).flatten();
        let observed = Arc::new(observed);
        worker.note(observed.clone());
        self.pods.observe(&worker.uid, observed.clone());
        Ok(observed)
    }
}
