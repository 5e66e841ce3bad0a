//! PodTopologySpread: Pods of a sort are spread evenly over places (upstream's
//! `plugins/podtopologyspread/filtering.go`, rule by rule).
//!
//! Only constraints with `DoNotSchedule` are asked here. The cluster's own default constraints are `ScheduleAnyway`
//! and concern scores alone (`systemDefaultConstraints`).
//!
//! A *domain* of a constraint is a value of the node label it names. The counts are made once for a Pod
//! ([`State::new`]), each node is then judged by them alone ([`State::filter`]).
//!
//! 1. *Which nodes count* (`calPreFilterState`). A node that has the labels of all the Pod's constraints, and, for each
//!    constraint alone, that the Pod's node selector and node affinity admit, unless `nodeAffinityPolicy` is `Ignore`,
//!    and whose `NoSchedule` and `NoExecute` taints the Pod tolerates, if `nodeTaintsPolicy` is `Honor`. A domain is
//!    one of such a node, also without Pods.
//! 2. *Which Pods count* (`countPodsMatchSelector`). Those of the Pod's namespace on such nodes that the constraint's
//!    selector selects and that are not being deleted. An empty selector counts none.
//! 3. *The selector* (`filterTopologySpreadConstraints`). `labelSelector`, and for each of `matchLabelKeys` that the Pod
//!    has, the same value. (The API server merges them too; asked twice they say the same.)
//! 4. *Labels* (`Filter`). A node without the label of a constraint is refused, and evicting Pods cannot change that.
//! 5. *Skew* (`Filter`). The Pods in the node's domain, and one more if the constraint selects the Pod itself, are at
//!    most `maxSkew` more than those in the domain that has the fewest. While there are fewer domains than `minDomains`
//!    (1 if unset), the fewest are none (`minMatchNum`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::node;
use super::verdict::{Rejection, Stop, reject};
use crate::cache::{Cache, NodeInfo};
use crate::pod::PodInfo;
use objects::{Selector, node_affinity};

/// The plugin's name.
pub const NAME: &str = "PodTopologySpread";
const SKEW: &str = "node(s) didn't match pod topology spread constraints";
const NO_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

/// A constraint, compiled.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Constraint {
    pub(super) max_skew: i64,
    pub(super) key: String,
    selector: Selector,
    min_domains: usize,
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
}

/// How many Pods there are in each domain of a constraint.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Domains {
    pub(super) pods: BTreeMap<String, i64>,
    /// How many domains have how many Pods: its first key is the fewest.
    sizes: BTreeMap<i64, usize>,
}

impl Domains {
    /// Adds Pods to a domain, which is known from then on.
    fn add(&mut self, domain: &str, by: i64) {
        if let Some(n) = self.pods.get_mut(domain) {
            if by == 0 {
                return;
            }
            let before = *n;
            *n += by;
            let after = *n;
            if let Some(left) = self.sizes.get_mut(&before) {
                *left -= 1;
                if *left == 0 {
                    self.sizes.remove(&before);
                }
            }
            *self.sizes.entry(after).or_default() += 1;
        } else {
            self.pods.insert(domain.to_owned(), by);
            *self.sizes.entry(by).or_default() += 1;
        }
    }
    /// The fewest Pods in a domain; none while there are too few domains.
    pub(super) fn fewest(&self, min_domains: usize) -> i64 {
        if self.pods.len() < min_domains { 0 } else { self.sizes.keys().next().copied().unwrap_or(0) }
    }
}

/// The facts about a Pod that is to be placed.
#[derive(Debug, Clone)]
pub struct State {
    pod: PodInfo,
    pub(super) constraints: Vec<Constraint>,
    pub(super) domains: Vec<Domains>,
}

impl State {
    /// Looks at every node and Pod once.
    pub fn new(pod: &PodInfo, cache: &Cache) -> Result<Self, Stop> {
        let constraints = Constraint::all(pod, "DoNotSchedule", "hard").map_err(|e| {
            Stop::Error(format!("running PreFilter plugin {NAME:?}: get constraints from pod: {e}"))
        })?;
        let mut state =
            Self { pod: pod.clone(), domains: vec![Domains::default(); constraints.len()], constraints };
        if state.constraints.is_empty() {
            return Ok(state);
        }
        for node in cache.nodes() {
            if !state.has_labels(node) {
                continue;
            }
            for (c, domains) in state.constraints.iter().zip(&mut state.domains) {
                let Some(domain) = node.label(&c.key).filter(|_| c.counts_node(pod, node)) else { continue };
                let pods = node.pods.values().filter(|p| c.counts_pod(pod, p)).count();
                domains.add(domain, pods as i64);
            }
        }
        Ok(state)
    }

    fn has_labels(&self, node: &NodeInfo) -> bool {
        self.constraints.iter().all(|c| node.label(&c.key).is_some())
    }

    /// Counts a Pod of a node, or with -1 counts it no more. A simulation tells its changes here.
    ///
    /// DIFFERENCE: upstream's `updateWithPod` also takes away Pods that rule 2 never counted (those that are being
    /// deleted, all of an empty selector), so that a simulation may see fewer Pods than there are.
    pub fn count(&mut self, other: &PodInfo, node: &NodeInfo, by: i64) {
        if self.constraints.is_empty() || !self.has_labels(node) {
            return;
        }
        for (c, domains) in self.constraints.iter().zip(&mut self.domains) {
            if let Some(domain) = node.label(&c.key)
                && c.counts_pod(&self.pod, other)
                && c.counts_node(&self.pod, node)
            {
                domains.add(domain, by);
            }
        }
    }

    /// Whether the Pod may run on the node.
    pub fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        for (c, domains) in self.constraints.iter().zip(&self.domains) {
            let Some(domain) = node.label(&c.key) else { return reject(NAME, NO_LABEL, true) };
            let itself = i64::from(c.selector.matches_by(|key| self.pod.labels.get(key)));
            let there = domains.pods.get(domain).copied().unwrap_or(0);
            if there + itself - domains.fewest(c.min_domains) > c.max_skew {
                return reject(NAME, SKEW, false);
            }
        }
        Ok(())
    }
}
