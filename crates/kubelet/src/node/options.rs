//! How the Node is registered and reported.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;

use super::pressure::Thresholds;

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
    /// The thresholds below which the node is short of something.
    pub eviction_hard: Thresholds,
    /// The number of nodes that share this machine; each has an equal part of its processors and memory.
    pub nodes_of_machine: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hostname: None,
            port: 10250,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            eviction_hard: Thresholds::default(),
            nodes_of_machine: 1,
        }
    }
}
