//! InterPodAffinity: Pods that must be near others, and Pods that must not be (upstream's
//! `plugins/interpodaffinity/filtering.go`, rule by rule).
//!
//! A *place* is a node label with its value, e.g. `zone=a`; nodes that share it are in the same place. All rules ask
//! how many Pods of some sort there are in the places a node belongs to, so these counts are made once for a Pod
//! ([`State::new`]) and each node is then judged by them alone ([`State::filter`]). A node without the label of a term
//! is in no place of it.
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

use std::collections::{HashMap, HashSet};

use super::verdict::{Rejection, Stop, reject};
use crate::affinity::{Term, all_match};
use crate::cache::{Cache, NodeInfo};
use crate::pod::PodInfo;
use objects::Labels;

/// The plugin's name.
pub const NAME: &str = "InterPodAffinity";
const AFFINITY: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const EXISTING_ANTI_AFFINITY: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// How often something was found in each place: by label, then by value. Things that were found nowhere are not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Places(HashMap<String, HashMap<String, i64>>);

impl Places {
    /// Counts `by` in the node's place, if it has the label.
    pub(super) fn count(&mut self, node: &NodeInfo, key: &str, by: i64) {
        let Some(value) = node.label(key) else { return };
        let values = self.0.entry(key.to_owned()).or_default();
        let n = values.entry(value.to_owned()).or_default();
        *n += by;
        if *n == 0 {
            values.remove(value);
            if values.is_empty() {
                self.0.remove(key);
            }
        }
    }
    fn get(&self, key: &str, value: &str) -> i64 {
        self.0.get(key).and_then(|values| values.get(value)).copied().unwrap_or(0)
    }
    /// The sum of the counts in all places of a node.
    pub(super) fn sum(&self, node: &NodeInfo) -> i64 {
        self.0.iter().filter_map(|(key, values)| values.get(node.label(key)?)).sum()
    }
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    #[cfg(test)]
    pub(super) fn listed(&self) -> Vec<String> {
        let places =
            self.0.iter().flat_map(|(k, values)| values.iter().map(move |(v, n)| format!("{k}={v}:{n}")));
        let mut all: Vec<String> = places.collect();
        all.sort();
        all
    }
}

/// The facts about a Pod that is to be placed.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pod: PodInfo,
    namespace_labels: Option<Labels>,
    required: Vec<Term>,
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
        let mut state = Self {
            namespace_labels: cache.namespaces().get(pod.namespace()).cloned(),
            pod: pod.clone(),
            required: resolved(&terms.required),
            anti_keys: required_anti.iter().map(|t| t.topology_key.clone()).collect(),
            required_anti,
            affinity: Places::default(),
            anti: Places::default(),
            existing_anti: Places::default(),
        };
        let asks = !state.required.is_empty() || !state.required_anti.is_empty();
        for node in cache.nodes() {
            if asks {
                node.pods.values().for_each(|p| state.count(p, node, 1));
            } else {
                // Only those can matter that ask for something themselves.
                node.with_terms().for_each(|p| state.count(p, node, 1));
            }
        }
        Ok(state)
    }

    /// Counts a Pod of a node, or with -1 counts it no more. A simulation tells its changes here.
    pub fn count(&mut self, other: &PodInfo, node: &NodeInfo, by: i64) {
        for term in &other.terms().required_anti {
            if term.matches(self.pod.namespace(), &self.pod.labels, self.namespace_labels.as_ref()) {
                self.existing_anti.count(node, &term.topology_key, by);
            }
        }
        if all_match(&self.required, other.namespace(), &other.labels) {
            for term in &self.required {
                self.affinity.count(node, &term.topology_key, by);
            }
        }
        for term in &self.required_anti {
            if term.matches(other.namespace(), &other.labels, None) {
                self.anti.count(node, &term.topology_key, by);
            }
        }
    }

    /// Whether the Pod may run on the node.
    pub fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        if !self.affinity_holds(node) {
            return reject(NAME, AFFINITY, true);
        }
        let here =
            |places: &Places, key: &str| node.label(key).is_some_and(|value| places.get(key, value) > 0);
        if self.anti_keys.iter().any(|key| here(&self.anti, key)) {
            return reject(NAME, ANTI_AFFINITY, false);
        }
        if self.existing_anti.0.keys().any(|key| here(&self.existing_anti, key)) {
            return reject(NAME, EXISTING_ANTI_AFFINITY, false);
        }
        Ok(())
    }

    fn affinity_holds(&self, node: &NodeInfo) -> bool {
        let mut all_there = true;
        for term in &self.required {
            let Some(value) = node.label(&term.topology_key) else { return false };
            all_there &= self.affinity.get(&term.topology_key, value) > 0;
        }
        all_there
            || (self.affinity.is_empty() && all_match(&self.required, self.pod.namespace(), &self.pod.labels))
    }
}
