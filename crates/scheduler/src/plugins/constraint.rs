//! Constraints of topology spread: which nodes and which Pods count.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use objects::taints::Tolerance;
use objects::{Selector, node_affinity};

use super::node;
use crate::cache::{Cache, NodeInfo};
use crate::config::args::PodTopologySpreadArgs;
use crate::pod::{PodInfo, PodView};

/// The constraints of Pods that have none of their own, and the rule about taints for all constraints.
#[derive(Debug, Clone, Default)]
pub(super) struct Defaults {
    constraints: Vec<TopologySpreadConstraint>,
    /// Whether they are upstream's, which a node may satisfy in part.
    system: bool,
    tolerance: Tolerance,
}

impl Defaults {
    /// Those of a configuration.
    pub(super) fn new(args: &PodTopologySpreadArgs, tolerance: Tolerance) -> Self {
        if args.defaulting_type != "System" {
            return Self { constraints: args.default_constraints.clone(), system: false, tolerance };
        }
        let constraint = |key: &str, max_skew: i32| TopologySpreadConstraint {
            topology_key: key.to_owned(),
            max_skew,
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            ..TopologySpreadConstraint::default()
        };
        let all = vec![constraint("kubernetes.io/hostname", 3), constraint("topology.kubernetes.io/zone", 5)];
        Self { constraints: all, system: true, tolerance }
    }
    /// Whether a node must have the labels of all constraints to be scored.
    pub(super) fn need_all_labels(&self, pod: &PodInfo) -> bool {
        let own = pod.spec().and_then(|s| s.topology_spread_constraints.as_deref());
        !self.system || own.is_some_and(|own| !own.is_empty())
    }
}

/// A constraint, compiled.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Constraint {
    pub(super) max_skew: i64,
    pub(super) key: String,
    /// A Pod is alike if all of them select it.
    selectors: Vec<Selector>,
    pub(super) min_domains: usize,
    honor_affinity: bool,
    /// The rule about taints of nodes that count; none if taints do not matter.
    honor_taints: Option<Tolerance>,
}

impl Constraint {
    /// Compiles the constraints of a Pod that say this about what to do when they can't be kept: its own, or else those
    /// of the cluster, if there are others like it.
    pub(super) fn all(
        pod: &PodInfo,
        cluster: &Cache,
        defaults: &Defaults,
        [when, word]: [&str; 2],
    ) -> Result<Vec<Self>, String> {
        let own = pod.spec().and_then(|s| s.topology_spread_constraints.as_deref()).unwrap_or_default();
        if !own.is_empty() {
            let these = own.iter().filter(|c| c.when_unsatisfiable == when);
            let constraints: Result<Vec<Self>, String> =
                these.map(|c| Self::new(pod, c, defaults.tolerance)).collect();
            return constraints
                .map_err(|e| format!("obtaining pod's {word} topology spread constraints: {e}"));
        }
        let mut these = defaults.constraints.iter().filter(|c| c.when_unsatisfiable == when).peekable();
        if these.peek().is_none() {
            return Ok(Vec::new());
        }
        let selectors = cluster.owners().selectors_of(pod);
        if selectors.iter().all(Selector::is_everything) {
            return Ok(Vec::new());
        }
        let constraints: Result<Vec<Self>, String> =
            these.map(|c| Self::new(pod, c, defaults.tolerance)).collect();
        let mut constraints =
            constraints.map_err(|e| format!("setting default {word} topology spread constraints: {e}"))?;
        for c in &mut constraints {
            c.selectors.clone_from(&selectors);
        }
        Ok(constraints)
    }

    fn new(pod: &PodInfo, c: &TopologySpreadConstraint, tolerance: Tolerance) -> Result<Self, String> {
        let same = c
            .match_label_keys
            .iter()
            .flatten()
            .filter_map(|key| pod.labels.get(key).map(|value| (key.clone(), value.to_owned())));
        let honors = |policy: &Option<String>, unset: bool| policy.as_ref().map_or(unset, |p| p == "Honor");
        Ok(Self {
            max_skew: i64::from(c.max_skew),
            key: c.topology_key.clone(),
            selectors: vec![Selector::new(c.label_selector.as_ref()).map_err(|e| e.to_string())?.and(same)],
            min_domains: usize::try_from(c.min_domains.unwrap_or(1)).unwrap_or(0),
            honor_affinity: honors(&c.node_affinity_policy, true),
            honor_taints: honors(&c.node_taints_policy, false).then_some(tolerance),
        })
    }

    /// Whether the node counts, provided it has the labels of all constraints.
    pub(super) fn counts_node(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        (!self.honor_affinity || node_affinity::admits(pod.whole(), &node.node))
            && self.honor_taints.is_none_or(|rule| !node::has_untolerated_taint(rule, pod, &node.node))
    }

    /// Whether it leaves out nodes with taints that the Pod does not tolerate.
    pub(super) fn honors_taints(&self) -> bool {
        self.honor_taints.is_some()
    }

    /// Whether another Pod counts.
    pub(super) fn counts_pod(&self, pod: &PodInfo, other: &PodInfo) -> bool {
        !other.leaving
            && other.namespace() == pod.namespace()
            && !self.selectors.iter().all(Selector::is_everything)
            && self.selects(other)
    }

    /// Whether its selector selects a Pod, wherever that is.
    pub(super) fn selects(&self, pod: &PodView) -> bool {
        self.selectors.iter().all(|s| s.matches_by(|key| pod.labels.get(key)))
    }
}
