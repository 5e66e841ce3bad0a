//! PodTopologySpread: Pods of a sort are spread evenly over places (upstream's
//! `plugins/podtopologyspread/filtering.go`, rule by rule).
//!
//! Only constraints with `DoNotSchedule` are asked here. A Pod without constraints has those of the configuration; the
//! default ones are `ScheduleAnyway` and concern scores alone (`systemDefaultConstraints`).
//!
//! A *domain* of a constraint is a value of the node label it names. The counts are made once for a Pod
//! (`State::new`) and kept true as Pods come and go (`State::count`); each node is judged by them alone
//! ([`State::filter`]).
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
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use objects::taints::{self, Tolerance};

use super::constraint::{Constraint, Defaults};
use super::pod_topology_spread_score::Scores;
use crate::cache::{Cache, Column, NodeInfo};
use crate::config::args::PluginArgs;
use crate::events::{About, Events, Happening, Pair};
use crate::framework::hint::Hint;
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Cycle, Filter, Move, PreFilter, Prefiltered};
use crate::framework::verdict::{Rejection, Stop, Verdicts};
use crate::pod::{PodInfo, PodView};

/// The plugin's name.
pub const NAME: &str = "PodTopologySpread";
const SKEW: &str = "node(s) didn't match pod topology spread constraints";
const NO_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

/// How many Pods there are in each domain of a constraint.
#[derive(Debug, Clone, Default)]
pub(super) struct Domains {
    column: Arc<Column>,
    /// Whether a node counts, by its index.
    counting: Vec<bool>,
    /// The Pods of each domain, by its index in the column; `None` if no node of it counts.
    pods: Vec<Option<i64>>,
    /// How many domains there are.
    known: usize,
    /// How many domains have how many Pods: its first key is the fewest.
    sizes: BTreeMap<i64, usize>,
}

impl Domains {
    /// Adds Pods to a domain, which is known from then on.
    fn add(&mut self, domain: usize, by: i64) {
        let Some(place) = self.pods.get_mut(domain) else { return };
        let after = match *place {
            Some(_) if by == 0 => return,
            Some(before) => {
                if let Some(left) = self.sizes.get_mut(&before) {
                    *left -= 1;
                    if *left == 0 {
                        self.sizes.remove(&before);
                    }
                }
                before + by
            }
            None => {
                self.known += 1;
                by
            }
        };
        *place = Some(after);
        *self.sizes.entry(after).or_default() += 1;
    }
    /// The Pods of a node's domain; `None` without the label.
    fn of(&self, node: usize) -> Option<i64> {
        Some(self.pods.get(self.column.of(node)?).copied().flatten().unwrap_or(0))
    }
    /// The fewest Pods in a domain; none while there are too few domains.
    pub(super) fn fewest(&self, min_domains: usize) -> i64 {
        if self.known < min_domains { 0 } else { self.sizes.keys().next().copied().unwrap_or(0) }
    }
    #[cfg(test)]
    pub(super) fn listed(&self) -> BTreeMap<&str, i64> {
        let named = self.column.values.iter().zip(&self.pods);
        named.filter_map(|(name, n)| Some((name.as_str(), (*n)?))).collect()
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
    pub(super) fn new(pod: &PodInfo, cache: &Cache, defaults: &Defaults) -> Result<Self, String> {
        let constraints = Constraint::all(pod, cache, defaults, ["DoNotSchedule", "hard"])
            .map_err(|e| format!("get constraints from pod: {e}"))?;
        let mut state = Self { pod: pod.clone(), domains: Vec::new(), constraints };
        for c in &state.constraints {
            let column = cache.column(&c.key);
            state.domains.push(Domains {
                pods: vec![None; column.values.len()],
                counting: vec![false; cache.nodes().len()],
                column,
                ..Domains::default()
            });
        }
        if state.constraints.is_empty() {
            return Ok(state);
        }
        for node in cache.nodes() {
            if !state.has_labels(node) {
                continue;
            }
            for (c, domains) in state.constraints.iter().zip(&mut state.domains) {
                let Some(domain) = domains.column.of(node.index).filter(|_| c.counts_node(pod, node)) else {
                    continue;
                };
                domains.counting[node.index] = true;
                let pods = node.pods.values().filter(|p| c.counts_pod(pod, p)).count();
                domains.add(domain, pods as i64);
            }
        }
        Ok(state)
    }

    fn has_labels(&self, node: &NodeInfo) -> bool {
        self.domains.iter().all(|d| d.column.of(node.index).is_some())
    }

    /// Counts a Pod of a node, or with -1 counts it no more.
    ///
    /// DIFFERENCE: upstream's `updateWithPod` also takes away Pods that rule 2 never counted (those that are being
    /// deleted, all of an empty selector), so that a simulation may see fewer Pods than there are.
    pub fn count(&mut self, other: &PodInfo, node: &NodeInfo, by: i64) {
        for (c, domains) in self.constraints.iter().zip(&mut self.domains) {
            if domains.counting.get(node.index) == Some(&true)
                && let Some(domain) = domains.column.of(node.index)
                && c.counts_pod(&self.pod, other)
            {
                domains.add(domain, by);
            }
        }
    }

    /// 1 if the constraint's selector selects the Pod itself.
    fn itself(&self, c: &Constraint) -> i64 {
        i64::from(c.selects(&self.pod))
    }

    /// Whether the Pod may run on the node.
    pub fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        for (c, domains) in self.constraints.iter().zip(&self.domains) {
            let Some(there) = domains.of(node.index) else { return Err(Rejection::lasting(NAME, NO_LABEL)) };
            if there + self.itself(c) - domains.fewest(c.min_domains) > c.max_skew {
                return Err(Rejection::new(NAME, SKEW));
            }
        }
        Ok(())
    }

    /// The same for all nodes.
    fn filter_all(&self, verdicts: &mut Verdicts) {
        for (c, domains) in self.constraints.iter().zip(&self.domains) {
            let most = c.max_skew + domains.fewest(c.min_domains) - self.itself(c);
            verdicts.refuse_unless(&Rejection::lasting(NAME, NO_LABEL), |i| domains.column.of(i).is_some());
            let skew = Rejection::new(NAME, SKEW);
            verdicts.refuse_unless(&skew, |i| domains.of(i).is_none_or(|there| there <= most));
        }
    }
}

struct Spread {
    defaults: Defaults,
}

impl PreFilter for Spread {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        let state = State::new(cycle.pod, cycle.cluster, &self.defaults).map_err(Stop::Error)?;
        let skip = state.constraints.is_empty();
        cycle.state.put(state);
        Ok(if skip { Prefiltered::Skip } else { Prefiltered::All })
    }
    fn count(&self, cycle: &mut Cycle<'_>, change: Move<'_>) {
        if let Some(state) = cycle.state.get_mut::<State>() {
            state.count(change.other, change.node, change.by);
        }
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

impl Filter for Spread {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        cycle.state.get::<State>().map_or(Ok(()), |state| state.filter(node))
    }
    fn filter_all(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
        if let Some(state) = cycle.state.get::<State>() {
            state.filter_all(verdicts);
        }
    }
}

impl Hint for Spread {
    /// Upstream's `isSchedulableAfterPodChange` and `isSchedulableAfterNodeChange`.
    fn lifts(&self, pod: &PodInfo, what: &Happening, cluster: &Cache) -> Result<bool, String> {
        let constraints = Constraint::all(pod, cluster, &self.defaults, ["DoNotSchedule", "hard"])?;
        Ok(match &what.about {
            About::Pod(Pair { old, new }) => after_pod(pod, &constraints, [old.as_deref(), new.as_deref()]),
            About::Node(Pair { old, new }) => after_node(&constraints, [old.as_deref(), new.as_deref()]),
            _ => true,
        })
    }
}

/// Whether a Pod that came, went or changed may count otherwise now.
///
/// DIFFERENCE: a Pod that is being deleted counts no more, so that is looked at, too.
fn after_pod(pod: &PodInfo, constraints: &[Constraint], [old, new]: [Option<&PodView>; 2]) -> bool {
    let itself = |p: &PodView| p.uid() == pod.uid();
    let concerns = |p: &PodView| itself(p) || p.namespace() == pod.namespace();
    if ![old, new].into_iter().flatten().all(concerns) {
        return false;
    }
    match (old, new) {
        (Some(old), Some(new)) => {
            let tolerations = |p: &PodView| taints::tolerations(p.whole()).to_vec();
            itself(new)
                && tolerations(old) != tolerations(new)
                && constraints.iter().any(Constraint::honors_taints)
                || old.leaving != new.leaving && constraints.iter().all(|c| c.selects(new))
                || constraints.iter().any(|c| c.selects(old) != c.selects(new))
        }
        (Some(only), None) | (None, Some(only)) => constraints.iter().any(|c| c.selects(only)),
        (None, None) => true,
    }
}

/// Whether a node that came, went or changed may count otherwise now.
fn after_node(constraints: &[Constraint], [old, new]: [Option<&Node>; 2]) -> bool {
    let value = |n: &Node, key: &str| n.metadata.labels.as_ref().and_then(|l| l.get(key)).cloned();
    let counts = |n: &Node| constraints.iter().all(|c| value(n, &c.key).is_some());
    match (old, new) {
        (Some(old), Some(new)) => {
            let moved = || constraints.iter().any(|c| value(old, &c.key) != value(new, &c.key));
            counts(old) != counts(new)
                || counts(new) && (moved() || taints::of_node(old) != taints::of_node(new))
        }
        (Some(only), None) | (None, Some(only)) => counts(only),
        (None, None) => true,
    }
}

pub(super) fn plugin(args: &PluginArgs, tolerance: Tolerance) -> Result<Plugin, String> {
    let PluginArgs::PodTopologySpread(args) = args else {
        return Err("want args to be of type PodTopologySpreadArgs".to_owned());
    };
    let defaults = Defaults::new(args, tolerance);
    let spread = Arc::new(Spread { defaults: defaults.clone() });
    let scores = Arc::new(Scores { defaults });
    let points = Points {
        pre_filter: Some(spread.clone()),
        filter: Some(spread.clone()),
        pre_score: Some(scores.clone()),
        score: Some(scores),
        ..Points::default()
    };
    let placed = Events::POD_ADDED | Events::POD_LABELS | Events::POD_DELETED;
    let own = Events::OWN_LABELS | Events::OWN_TOLERATIONS;
    let hint = Spread { defaults: spread.defaults.clone() };
    let nodes = Events::NODE_ADDED | Events::NODE_DELETED | Events::NODE_LABELS | Events::NODE_TAINTS;
    Ok(Plugin::new(NAME, points).lifted_by(nodes | placed | own).hinted(hint))
}
