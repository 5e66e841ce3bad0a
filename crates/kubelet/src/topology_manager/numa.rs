//! The NUMA nodes of the machine and how far they are from each other. Pure.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::mask::NumaMask;
use crate::node::hardware::Hardware;

/// The NUMA nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NumaInfo {
    /// Their numbers.
    pub(crate) nodes: Vec<usize>,
    /// The distances from each node; empty where nobody asks for them.
    pub(crate) distances: BTreeMap<usize, Vec<u64>>,
}

/// The distances of NUMA nodes are not known; upstream's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("error getting NUMA distances from cadvisor")]
pub(crate) struct NoDistances;

impl NumaInfo {
    /// The nodes of a machine, with their distances if `closest` is to be found.
    ///
    /// # Errors
    /// The distances are wanted, and not known.
    pub(crate) fn of(hardware: &Hardware, closest: bool) -> Result<Self, NoDistances> {
        let nodes = hardware.nodes.iter().map(|n| n.id).collect();
        let mut distances = BTreeMap::new();
        for node in hardware.nodes.iter().filter(|_| closest) {
            distances.insert(node.id, node.distances.clone().ok_or(NoDistances)?);
        }
        Ok(Self { nodes, distances })
    }

    /// All nodes.
    pub(crate) fn all(&self) -> NumaMask {
        NumaMask::of(self.nodes.iter().copied())
    }

    /// The mean distance between nodes of a set, each to itself among them. A distance that is not known counts as none.
    pub(crate) fn mean_distance(&self, mask: NumaMask) -> f64 {
        let nodes = mask.nodes();
        if nodes.is_empty() {
            return 0.0;
        }
        let between = |a: &usize, b: &usize| self.distances.get(a).and_then(|all| all.get(*b)).copied();
        let sum: f64 = nodes
            .iter()
            .flat_map(|a| nodes.iter().map(move |b| between(a, b).unwrap_or_default() as f64))
            .sum();
        sum / (nodes.len() * nodes.len()) as f64
    }

    /// The better of two sets where nodes near to each other are preferred.
    pub(crate) fn closest(&self, a: NumaMask, b: NumaMask) -> NumaMask {
        if a.count() != b.count() {
            return a.narrowest(b);
        }
        match self.mean_distance(a).total_cmp(&self.mean_distance(b)) {
            Ordering::Less => a,
            Ordering::Equal if a.is_less(b) => a,
            Ordering::Equal | Ordering::Greater => b,
        }
    }
}
