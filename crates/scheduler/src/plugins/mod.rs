//! The plugins: pure functions over a Pod, a node and the cluster.
//!
//! [`prepare`] looks at the cluster once for a Pod (upstream's PreFilter), [`Prepared::filter`] then judges each
//! node. Filters run in upstream's order and the first that refuses ends the node's turn, so that a node
//! counts for one plugin's reasons only.

#[cfg(test)]
mod cases;
pub mod claims;
pub mod inter_pod_affinity;
pub mod node;
pub mod pod_topology_spread;
#[cfg(test)]
mod properties;
pub mod score;
mod soft;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeSet;

use crate::cache::{Cache, NodeInfo};
use crate::pod::PodInfo;
pub use verdict::{Rejection, Stop};

/// The facts about the cluster that concern one Pod.
#[derive(Debug, Clone)]
pub struct Prepared<'a> {
    pod: &'a PodInfo,
    nodes: Option<BTreeSet<&'a str>>,
    spread: pod_topology_spread::State,
    affinity: inter_pod_affinity::State,
}

/// Looks at the cluster for a Pod, once.
pub fn prepare<'a>(pod: &'a PodInfo, cache: &Cache) -> Result<Prepared<'a>, Stop> {
    let nodes = node::nodes_by_name(pod)?;
    claims::volumes(pod, cache.claims())?;
    let spread = pod_topology_spread::State::new(pod, cache)?;
    let affinity = inter_pod_affinity::State::new(pod, cache)?;
    claims::devices(pod)?;
    Ok(Prepared { pod, nodes, spread, affinity })
}

impl Prepared<'_> {
    /// Whether the node need not be looked at, since the Pod names others.
    pub fn excludes(&self, node: &NodeInfo) -> bool {
        self.nodes.as_ref().is_some_and(|names| !names.contains(node.name()))
    }

    /// Runs every filter on a node.
    pub fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        node::unschedulable(self.pod, node)?;
        node::node_name(self.pod, node)?;
        node::taint_toleration(self.pod, node)?;
        node::affinity(self.pod, node)?;
        node::node_ports(self.pod, node)?;
        node::resources_fit(self.pod, node)?;
        self.spread.filter(node)?;
        self.affinity.filter(node)?;
        node::declared_features(self.pod, node)
    }

    /// Counts a Pod on a node, in a simulation; the node itself must hear of it too.
    pub fn add(&mut self, other: &PodInfo, node: &NodeInfo) {
        self.spread.count(other, node, 1);
        self.affinity.count(other, node, 1);
    }

    /// Counts a Pod no more.
    pub fn remove(&mut self, other: &PodInfo, node: &NodeInfo) {
        self.spread.count(other, node, -1);
        self.affinity.count(other, node, -1);
    }
}
