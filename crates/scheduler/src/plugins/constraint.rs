//! Constraints of topology spread: which nodes and which Pods count.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use objects::{Selector, node_affinity};

use super::node;
use crate::cache::NodeInfo;
use crate::pod::PodInfo;

/// A constraint, compiled.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Constraint {
    pub(super) max_skew: i64,
    pub(super) key: String,
    selector: Selector,
    pub(super) min_domains: usize,
    honor_affinity: bool,
    honor_taints: bool,
}

impl Constraint {
    /// Compiles the constraints of a Pod that say this about what to do when they can't be kept.
    pub(super) fn all(pod: &PodInfo, when: &str, word: &str) -> Result<Vec<Self>, String> {
        let all = pod.spec().and_then(|s| s.topology_spread_constraints.as_deref());
        let these = all.unwrap_or_default().iter().filter(|c| c.when_unsatisfiable == when);
        let constraints: Result<Vec<Self>, String> = these.map(|c| Self::new(pod, c)).collect();
        constraints.map_err(|e| format!("obtaining pod's {word} topology spread constraints: {e}"))
    }

    fn new(pod: &PodInfo, c: &TopologySpreadConstraint) -> Result<Self, String> {
        let same = c
            .match_label_keys
            .iter()
            .flatten()
            .filter_map(|key| pod.labels.get(key).map(|value| (key.clone(), value.to_owned())));
        let honors = |policy: &Option<String>, unset: bool| policy.as_ref().map_or(unset, |p| p == "Honor");
        Ok(Self {
            max_skew: i64::from(c.max_skew),
            key: c.topology_key.clone(),
            selector: Selector::new(c.label_selector.as_ref()).map_err(|e| e.to_string())?.and(same),
            min_domains: usize::try_from(c.min_domains.unwrap_or(1)).unwrap_or(0),
            honor_affinity: honors(&c.node_affinity_policy, true),
            honor_taints: honors(&c.node_taints_policy, false),
        })
    }

    /// Whether the node counts, provided it has the labels of all constraints.
    pub(super) fn counts_node(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        (!self.honor_affinity || node_affinity::admits(pod.whole(), &node.node))
            && (!self.honor_taints || !node::has_untolerated_taint(pod, node))
    }

    /// Whether another Pod counts.
    pub(super) fn counts_pod(&self, pod: &PodInfo, other: &PodInfo) -> bool {
        !self.selector.is_everything()
            && !other.leaving
            && other.namespace() == pod.namespace()
            && self.selector.matches_by(|key| other.labels.get(key))
    }

    /// Whether its selector selects a Pod, wherever that is.
    pub(super) fn selects(&self, pod: &PodInfo) -> bool {
        self.selector.matches_by(|key| pod.labels.get(key))
    }
}
