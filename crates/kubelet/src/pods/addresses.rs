//! The addresses of Pods.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::{PodManager, spec};
use crate::config::Config;

/// Knows where Pods are reached.
#[derive(Clone)]
pub(crate) struct Addresses {
    pods: Arc<PodManager>,
    /// The node's primary address.
    node: Option<String>,
}

impl Addresses {
    /// Of the Pods of a node.
    pub(crate) fn new(config: &Config, pods: Arc<PodManager>) -> Self {
        Self { pods, node: config.node_ips.first().map(ToString::to_string) }
    }
    /// The primary address of a Pod, if it has one.
    pub(crate) fn of(&self, pod: &Pod) -> Option<String> {
        if spec::host_network(pod) {
            return self.node.clone();
        }
        let observed = self.pods.observed(spec::namespace(pod), spec::name(pod), Some(spec::uid(pod)))?;
        observed.ips().first().cloned()
    }
}
