//! The addresses of Pods, which the runtime is told: those of the configuration first, and of the Node once it has some.

use std::sync::Arc;
use std::time::Duration;

use cri::runtime as pb;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::config::Config;
use crate::node::NodeView;
use crate::runtime::Runtime;

/// After which time it is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Tells the runtime which addresses Pods have. The blocks of both families are separated by a comma, as upstream writes
/// them.
pub(crate) struct PodCidr {
    runtime: Runtime,
    /// The addresses that the runtime knows.
    told: Mutex<String>,
    /// The Node may have others.
    pub(crate) woken: Arc<Notify>,
}

impl PodCidr {
    /// Tells the runtime of the configuration's addresses.
    pub(crate) async fn of_config(config: &Config, runtime: Runtime) -> Arc<Self> {
        let own = Self { runtime, told: Mutex::default(), woken: Arc::default() };
        own.set(&config.pod_cidr).await;
        Arc::new(own)
    }

    /// Tells the runtime of other addresses than it knows; whether it knows them now.
    pub(crate) async fn set(&self, cidr: &str) -> bool {
        let before = self.told.lock().clone();
        if before == cidr {
            return true;
        }
        let network_config = Some(pb::NetworkConfig { pod_cidr: cidr.to_owned() });
        let runtime_config = Some(pb::RuntimeConfig { network_config });
        let request = pb::UpdateRuntimeConfigRequest { runtime_config };
        match self.runtime.service().update_runtime_config(request).await {
            Ok(_) => {
                tracing::info!(original_pod_cidr = before, new_pod_cidr = cidr, "Updating Pod CIDR");
                cidr.clone_into(&mut self.told.lock());
                true
            }
            Err(error) => {
                tracing::error!(error = error.message(), pod_cidr = cidr, "Pod CIDR update failed");
                false
            }
        }
    }

    /// Tells the runtime what the Node says, again whenever that changes.
    pub(crate) async fn follow(&self, node: &NodeView) {
        loop {
            let cidrs = node.registered().and_then(|node| node.spec.as_ref()?.pod_cidrs.clone());
            let cidrs = cidrs.unwrap_or_default().join(",");
            if cidrs.is_empty() || self.set(&cidrs).await {
                self.woken.notified().await;
            } else {
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
