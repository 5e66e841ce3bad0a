//! InterPodAffinity: Pods that must be near others, and Pods that must not be (upstream's
//! `plugins/interpodaffinity/filtering.go`, rule by rule).
//!
//! A *place* is a node label with its value, e.g. `zone=a`; nodes that share it are in the same place. All rules ask
//! how many Pods of some sort there are in the places a node belongs to, so these counts are made once for a Pod
//! ([`State::new`]) and kept true as Pods come and go ([`State::count`]); each node is judged by them alone
//! ([`State::filter`]). A node without the label of a term is in no place of it.
//!
//! The rules, in the order in which they are asked:
//!
//! 1. *Affinity* (`satisfyPodAffinity`). The node has the label of every required affinity term, and in each of these
//!    places there is a Pod of which *all* required affinity terms speak. The Pods may differ from place to place, but
//!    one that only some terms speak of counts in none.
//! 2. *The first of a group* (same function). If there is no such Pod in any place of the cluster, and the Pod's own
//!    terms all speak of itself, then the labels alone are enough. Otherwise no Pod of the group could ever start.
//! 3. *Anti-affinity* (`satisfyPodAntiAffinity`). For no required anti-affinity term is there a Pod that it speaks of in
//!    the node's place.
//! 4. *Anti-affinity of others* (`satisfyExistingPodsAntiAffinity`). The node is in no place of a required anti-affinity
//!    term that a Pod there has and that speaks of this Pod.
//!
//! Rule 1 is *unresolvable*: removing Pods cannot make others appear. Rules 3 and 4 are not.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use objects::Labels;

use super::inter_pod_affinity_score::Scores;
use super::places::{Found, Places};
use crate::affinity::{Term, all_match};
use crate::cache::{Cache, Column, NodeInfo};
use crate::config::args::PluginArgs;
use crate::events::{About, Events, Happening, Pair};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Cycle, Filter, Move, PreFilter, Prefiltered};
use crate::framework::verdict::{Rejection, Stop, Verdicts};
use crate::pod::{PodInfo, PodView};

/// The plugin's name.
pub const NAME: &str = "InterPodAffinity";
const AFFINITY: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const EXISTING_ANTI_AFFINITY: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// The facts about a Pod that is to be placed.
#[derive(Debug, Clone)]
pub struct State {
    pod: PodInfo,
    namespace_labels: Option<Labels>,
    required: Vec<Term>,
    /// The places by the label of each required affinity term.
    required_columns: Vec<Arc<Column>>,
    required_anti: Vec<Term>,
    /// The labels of the required anti-affinity terms, each once.
    anti_keys: HashSet<String>,
    /// Pods that the required affinity terms speak of, all at once.
    pub(super) affinity: Places,
    /// Pods that a required anti-affinity term speaks of, by that term's label.
    pub(super) anti: Places,
    /// Required anti-affinity terms of other Pods that speak of this one.
    pub(super) existing_anti: Places,
}

impl State {
    /// Looks at every Pod once.
    pub fn new(pod: &PodInfo, cache: &Cache) -> Result<Self, Stop> {
        let terms = pod.terms();
        if !terms.error.is_empty() {
            return Err(Stop::rejected(NAME, format!("parsing pod: {}", terms.error)));
        }
        let resolved = |list: &[Term]| list.iter().map(|t| t.clone().resolved(cache.namespaces())).collect();
        let required_anti: Vec<Term> = resolved(&terms.required_anti);
        let required: Vec<Term> = resolved(&terms.required);
        let mut state = Self {
            namespace_labels: cache.namespaces().get(pod.namespace()).cloned(),
            pod: pod.clone(),
            required_columns: required.iter().map(|t| cache.column(&t.topology_key)).collect(),
            required,
            anti_keys: required_anti.iter().map(|t| t.topology_key.clone()).collect(),
            required_anti,
            affinity: Places::default(),
            anti: Places::default(),
            existing_anti: Places::default(),
        };
        let asks = !state.required.is_empty() || !state.required_anti.is_empty();
        for node in cache.nodes() {
            if asks {
                node.pods.values().for_each(|p| state.count(cache, p, node, 1));
            } else {
                // Only those can matter that ask for something themselves.
                node.with_terms().for_each(|p| state.count(cache, p, node, 1));
            }
        }
        Ok(state)
    }

    /// Counts a Pod of a node, or with -1 counts it no more.
    pub fn count(&mut self, cluster: &Cache, other: &PodInfo, node: &NodeInfo, by: i64) {
        for term in &other.terms().required_anti {
            if term.matches(self.pod.namespace(), &self.pod.labels, self.namespace_labels.as_ref()) {
                self.existing_anti.count(cluster, node, &term.topology_key, by);
            }
        }
        if all_match(&self.required, other.namespace(), &other.labels) {
            for term in &self.required {
                self.affinity.count(cluster, node, &term.topology_key, by);
            }
        }
        for term in &self.required_anti {
            if term.matches(other.namespace(), &other.labels, None) {
                self.anti.count(cluster, node, &term.topology_key, by);
            }
        }
    }

    /// Whether the Pod may run on the node.
    pub fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        if !self.affinity_holds()(node.index) {
            return Err(Rejection::lasting(NAME, AFFINITY));
        }
        if self.anti_keys.iter().any(|key| self.anti.at(key, node.index) > 0) {
            return Err(Rejection::new(NAME, ANTI_AFFINITY));
        }
        if self.existing_anti.found().iter().any(|found| found.at(node.index) > 0) {
            return Err(Rejection::new(NAME, EXISTING_ANTI_AFFINITY));
        }
        Ok(())
    }

    /// The same for all nodes.
    fn filter_all(&self, verdicts: &mut Verdicts) {
        if !self.required.is_empty() {
            verdicts.refuse_unless(&Rejection::lasting(NAME, AFFINITY), self.affinity_holds());
        }
        for (places, why) in [(&self.anti, ANTI_AFFINITY), (&self.existing_anti, EXISTING_ANTI_AFFINITY)] {
            let found = places.found();
            if !found.is_empty() {
                verdicts.refuse_unless(&Rejection::new(NAME, why), |i| found.iter().all(|f| f.at(i) <= 0));
            }
        }
    }

    /// For each node by its index, whether its places have what the required affinity terms ask for.
    fn affinity_holds(&self) -> impl Fn(usize) -> bool {
        let itself = all_match(&self.required, self.pod.namespace(), &self.pod.labels);
        let first = self.affinity.is_empty() && itself;
        let found: Vec<Option<&Found>> =
            self.required.iter().map(|t| self.affinity.of(&t.topology_key)).collect();
        move |node| {
            self.required_columns.iter().all(|c| c.of(node).is_some())
                && (first || found.iter().all(|f| f.is_some_and(|f| f.at(node) > 0)))
        }
    }
}

struct Affinity;

impl PreFilter for Affinity {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        let state = State::new(cycle.pod, cycle.cluster)?;
        cycle.state.put(state);
        Ok(Prefiltered::All)
    }
    fn count(&self, cycle: &mut Cycle<'_>, change: Move<'_>) {
        if let Some(state) = cycle.state.get_mut::<State>() {
            state.count(cycle.cluster, change.other, change.node, change.by);
        }
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

impl Filter for Affinity {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        cycle.state.get::<State>().map_or(Ok(()), |state| state.filter(node))
    }
    fn filter_all(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
        if let Some(state) = cycle.state.get::<State>() {
            state.filter_all(verdicts);
        }
    }
}

/// Upstream's `isSchedulableAfterPodChange` and `isSchedulableAfterNodeChange`.
fn hint(pod: &PodInfo, what: &Happening, cluster: &Cache) -> Result<bool, String> {
    let terms = pod.terms();
    Ok(match &what.about {
        // Others may have spoken of its labels as they were.
        About::Pod(Pair { new: Some(new), .. }) if new.uid() == pod.uid() => true,
        About::Pod(Pair { old, new }) => after_pod(pod, [old.as_deref(), new.as_deref()], cluster),
        About::Node(Pair { old, new: Some(new) }) => {
            let value =
                |node: &Node, key: &str| node.metadata.labels.as_ref().and_then(|l| l.get(key)).cloned();
            let after = |key: &str| value(new, key);
            match old {
                None => {
                    !terms.required_anti.is_empty()
                        || terms.required.iter().any(|t| after(&t.topology_key).is_some())
                }
                Some(old) => {
                    let moved = |key: &str| (value(old, key), after(key));
                    terms.required.iter().map(|t| moved(&t.topology_key)).any(|(a, b)| b.is_some() && a != b)
                        || terms
                            .required_anti
                            .iter()
                            .map(|t| moved(&t.topology_key))
                            .any(|(a, b)| a.is_some() && a != b)
                }
            }
        }
        _ => true,
    })
}

/// Whether a Pod that came, went or changed may make room for this one by its labels or its terms.
///
/// DIFFERENCE: the labels of namespaces are looked at; upstream's hint takes terms with a selector of namespaces to speak
/// of no Pod. One term of anti-affinity is enough, as it is to refuse a Pod; upstream's hint wants all to speak of it.
fn after_pod(pod: &PodInfo, [old, new]: [Option<&PodView>; 2], cluster: &Cache) -> bool {
    let terms = pod.terms();
    let speaks = |term: &Term, of: &PodView| {
        term.matches(of.namespace(), &of.labels, cluster.namespaces().get(of.namespace()))
    };
    // Whether the terms are there and all speak of the other Pod.
    let speak = |terms: &[Term], of: &PodView| !terms.is_empty() && terms.iter().all(|term| speaks(term, of));
    match (old, new) {
        (Some(old), Some(new)) => {
            !speak(&terms.required, old) && speak(&terms.required, new)
                || terms.required_anti.iter().any(|term| speaks(term, old) && !speaks(term, new))
        }
        (None, Some(new)) => speak(&terms.required, new),
        (Some(old), None) => {
            terms.required_anti.iter().any(|term| speaks(term, old))
                || old.terms().required_anti.iter().any(|term| speaks(term, pod))
        }
        (None, None) => true,
    }
}

pub(super) fn plugin(args: &PluginArgs) -> Result<Plugin, String> {
    let PluginArgs::InterPodAffinity(args) = args else {
        return Err("want args to be of type InterPodAffinityArgs".to_owned());
    };
    let scores = Arc::new(Scores { args: args.clone() });
    let points = Points {
        pre_filter: Some(Arc::new(Affinity)),
        filter: Some(Arc::new(Affinity)),
        pre_score: Some(scores.clone()),
        score: Some(scores),
        ..Points::default()
    };
    let pods = Events::POD_ADDED | Events::POD_LABELS | Events::POD_DELETED | Events::OWN_LABELS;
    let nodes = Events::NODE_ADDED | Events::NODE_LABELS;
    Ok(Plugin::new(NAME, points).lifted_by(pods | nodes | Events::NAMESPACE).hinted(hint))
}
