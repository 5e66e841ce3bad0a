//! The terms of Pod affinity that only prefer: the scores of InterPodAffinity (upstream's `interpodaffinity/scoring.go`).

use objects::Labels;

use super::places::Places;
use crate::affinity::Term;
use crate::cache::{Cache, NodeInfo};
use crate::config::args::InterPodAffinityArgs;
use crate::framework::points::{Cycle, MAX_SCORE, Move, PreScore, Score};
use crate::pod::PodInfo;

/// Each term adds its weight, or takes it away, in the place where a Pod is that it speaks of: the Pod's own terms about
/// others, and those of others about the Pod. A required term of another Pod counts as one that would like company. The
/// node with the least gets 0, that with the most 100.
pub(super) struct Scores {
    pub(super) args: InterPodAffinityArgs,
}

/// The weights that a Pod would find in each place.
#[derive(Debug)]
pub(super) struct Wishes {
    /// Its own terms; those that would keep it away have negative weights.
    own: Vec<(i64, Term)>,
    namespace_labels: Option<Labels>,
    places: Places,
}

impl Wishes {
    /// Looks at every Pod once.
    pub(super) fn new(args: &InterPodAffinityArgs, pod: &PodInfo, cluster: &Cache) -> Self {
        let resolved = |list: &[(i32, Term)], sign: i64| -> Vec<(i64, Term)> {
            let each = list.iter();
            each.map(|(w, t)| (sign * i64::from(*w), t.clone().resolved(cluster.namespaces()))).collect()
        };
        let mut own = resolved(&pod.terms().preferred, 1);
        own.extend(resolved(&pod.terms().preferred_anti, -1));
        let namespace_labels = cluster.namespaces().get(pod.namespace()).cloned();
        let mut wishes = Self { own, namespace_labels, places: Places::default() };
        if args.ignore_preferred_terms_of_existing_pods && wishes.own.is_empty() {
            return wishes;
        }
        for node in cluster.nodes() {
            if wishes.own.is_empty() {
                node.with_terms().for_each(|p| wishes.count(args, pod, cluster, (p, node, 1)));
            } else {
                node.pods.values().for_each(|p| wishes.count(args, pod, cluster, (p, node, 1)));
            }
        }
        wishes
    }

    fn count(
        &mut self,
        args: &InterPodAffinityArgs,
        pod: &PodInfo,
        cluster: &Cache,
        (other, node, by): (&PodInfo, &NodeInfo, i64),
    ) {
        if args.ignore_preferred_terms_of_existing_pods && self.own.is_empty() {
            return;
        }
        for (weight, term) in &self.own {
            if term.matches(other.namespace(), &other.labels, None) {
                self.places.count(cluster, node, &term.topology_key, by * *weight);
            }
        }
        let terms = other.terms();
        let hard = i64::from(args.hard_pod_affinity_weight);
        let theirs = terms.required.iter().map(|t| (hard, t)).filter(|(w, _)| *w > 0);
        let theirs = theirs.chain(terms.preferred.iter().map(|(w, t)| (i64::from(*w), t)));
        let theirs = theirs.chain(terms.preferred_anti.iter().map(|(w, t)| (-i64::from(*w), t)));
        for (weight, term) in theirs {
            if term.matches(pod.namespace(), &pod.labels, self.namespace_labels.as_ref()) {
                self.places.count(cluster, node, &term.topology_key, by * weight);
            }
        }
    }
}

impl PreScore for Scores {
    fn pre_score(&self, cycle: &mut Cycle<'_>, _feasible: &[usize], kept: bool) -> Result<bool, String> {
        if !kept {
            let wishes = Wishes::new(&self.args, cycle.pod, cycle.cluster);
            cycle.state.put(wishes);
        }
        Ok(cycle.state.get::<Wishes>().is_some_and(|w| !w.places.is_empty()))
    }
    fn count(&self, cycle: &mut Cycle<'_>, change: Move<'_>) {
        if let Some(wishes) = cycle.state.get_mut::<Wishes>() {
            let change = (change.other, change.node, change.by);
            wishes.count(&self.args, cycle.pod, cycle.cluster, change);
        }
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

impl Score for Scores {
    fn score(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<i64, String> {
        Ok(cycle.state.get::<Wishes>().map_or(0, |w| w.places.sum(node.index)))
    }
    fn score_all(&self, cycle: &Cycle<'_>, nodes: &[usize]) -> Result<Vec<i64>, String> {
        let Some(wishes) = cycle.state.get::<Wishes>() else { return Ok(vec![0; nodes.len()]) };
        Ok(nodes.iter().map(|i| wishes.places.sum(*i)).collect())
    }
    fn normalize(&self, _cycle: &Cycle<'_>, _nodes: &[usize], scores: &mut [i64]) {
        let least = scores.iter().copied().min().unwrap_or(0);
        let most = scores.iter().copied().max().unwrap_or(0);
        for s in scores {
            *s = if most > least {
                (MAX_SCORE as f64 * ((*s - least) as f64 / (most - least) as f64)) as i64
            } else {
                0
            };
        }
    }
}
