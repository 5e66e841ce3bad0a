//! Constraints of topology spread that only prefer: the scores of PodTopologySpread (upstream's
//! `podtopologyspread/scoring.go`). Pods without constraints are spread by those of the configuration, among the Pods of
//! their Services and controllers.

use std::sync::Arc;

use super::constraint::{Constraint, Defaults};
use crate::cache::{Cache, Column, NodeInfo};
use crate::framework::points::{Cycle, MAX_SCORE, Move, PreScore, Score};
use crate::pod::PodInfo;

const HOSTNAME: &str = "kubernetes.io/hostname";
/// The raw score of a node without a label of a constraint, which is 0 in the end.
const LEFT_OUT: i64 = i64::MIN;

/// A node costs, for each `ScheduleAnyway` constraint, the Pods that are alike in its domain; domains of a label that has
/// many weigh more, as there are fewer Pods in each. The cheapest node gets the most.
pub(super) struct Scores {
    pub(super) defaults: Defaults,
}

/// The Pods that are alike, for each constraint.
#[derive(Debug)]
pub(super) struct Alike {
    constraints: Vec<Counted>,
    /// Whether nodes count only if they have the labels of all constraints.
    whole: bool,
    /// Of the nodes that are scored now, those with the labels of all constraints.
    scored: usize,
}

#[derive(Debug)]
struct Counted {
    rule: Constraint,
    column: Arc<Column>,
    /// Whether a node counts, by its index; every node counts for itself if the label is that of the host.
    counting: Vec<bool>,
    /// By node for the label of the host, else by the domain's index in the column.
    pods: Vec<i64>,
    /// How many domains the nodes have that are scored now.
    domains: usize,
}

impl Counted {
    fn is_host(&self) -> bool {
        self.rule.key == HOSTNAME
    }
    fn place(&self, node: usize) -> Option<usize> {
        if self.is_host() { Some(node) } else { self.column.of(node) }
    }
}

impl Alike {
    /// Looks at every node and Pod once.
    pub(super) fn new(pod: &PodInfo, cluster: &Cache, defaults: &Defaults) -> Result<Self, String> {
        let rules = Constraint::all(pod, cluster, defaults, ["ScheduleAnyway", "soft"])?;
        let nodes = cluster.nodes();
        let counted = rules.into_iter().map(|rule| {
            let column = cluster.column(&rule.key);
            let places = if rule.key == HOSTNAME { nodes.len() } else { column.values.len() };
            Counted { rule, column, counting: vec![false; nodes.len()], pods: vec![0; places], domains: 0 }
        });
        let whole = defaults.need_all_labels(pod);
        let mut alike = Self { constraints: counted.collect(), whole, scored: 0 };
        if alike.constraints.is_empty() {
            return Ok(alike);
        }
        for node in nodes {
            let labelled = alike.counts(node.index);
            for c in &mut alike.constraints {
                c.counting[node.index] = c.is_host() || labelled && c.rule.counts_node(pod, node);
            }
            node.pods.values().for_each(|other| alike.count(pod, other, node, 1));
        }
        Ok(alike)
    }

    fn counts(&self, node: usize) -> bool {
        !self.whole || self.constraints.iter().all(|c| c.column.of(node).is_some())
    }

    fn count(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
        for c in &mut self.constraints {
            if c.counting.get(node.index) == Some(&true)
                && c.rule.counts_pod(pod, other)
                && let Some(place) = c.place(node.index)
                && let Some(pods) = c.pods.get_mut(place)
            {
                *pods += by;
            }
        }
    }

    /// Counts the domains of the nodes that are to be scored.
    pub(super) fn look_at(&mut self, feasible: &[usize]) {
        self.scored = feasible.iter().filter(|i| self.counts(**i)).count();
        let columns: Vec<Arc<Column>> = self.constraints.iter().map(|c| c.column.clone()).collect();
        let whole = self.whole;
        let labelled = |i: usize| !whole || columns.iter().all(|c| c.of(i).is_some());
        for c in self.constraints.iter_mut().filter(|c| c.rule.key != HOSTNAME) {
            let mut seen = vec![false; c.column.values.len()];
            for place in feasible.iter().filter(|i| labelled(**i)).filter_map(|i| c.column.of(*i)) {
                seen[place] = true;
            }
            // As upstream has it, nodes without the label are in a domain, too.
            let without = feasible.iter().any(|i| labelled(*i) && c.column.of(*i).is_none());
            c.domains = seen.into_iter().filter(|s| *s).count() + usize::from(without);
        }
    }

    /// The factor of each constraint, by the number of its domains.
    pub(super) fn weights(&self) -> Vec<f64> {
        let size = |c: &Counted| if c.is_host() { self.scored } else { c.domains };
        self.constraints.iter().map(|c| ((size(c) + 2) as f64).ln()).collect()
    }

    fn cost(&self, node: usize, weights: &[f64]) -> i64 {
        let mut cost = 0.0;
        for (c, weight) in self.constraints.iter().zip(weights) {
            if c.column.of(node).is_none() {
                if self.whole {
                    return LEFT_OUT;
                }
                continue;
            }
            let pods = c.place(node).and_then(|place| c.pods.get(place)).copied().unwrap_or(0);
            cost += pods as f64 * weight + (c.rule.max_skew - 1) as f64;
        }
        cost.round() as i64
    }
}

impl PreScore for Scores {
    fn pre_score(&self, cycle: &mut Cycle<'_>, feasible: &[usize], kept: bool) -> Result<bool, String> {
        if !kept {
            let alike = Alike::new(cycle.pod, cycle.cluster, &self.defaults);
            cycle.state.put(alike.map_err(|e| format!("calculating preScoreState: {e}"))?);
        }
        let Some(alike) = cycle.state.get_mut::<Alike>() else { return Ok(false) };
        if alike.constraints.is_empty() {
            return Ok(false);
        }
        alike.look_at(feasible);
        Ok(true)
    }
    fn count(&self, cycle: &mut Cycle<'_>, change: Move<'_>) {
        if let Some(alike) = cycle.state.get_mut::<Alike>() {
            alike.count(cycle.pod, change.other, change.node, change.by);
        }
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

impl Score for Scores {
    fn score(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<i64, String> {
        Ok(cycle.state.get::<Alike>().map_or(0, |alike| alike.cost(node.index, &alike.weights())))
    }
    fn score_all(&self, cycle: &Cycle<'_>, nodes: &[usize]) -> Result<Vec<i64>, String> {
        let Some(alike) = cycle.state.get::<Alike>() else { return Ok(vec![0; nodes.len()]) };
        let weights = alike.weights();
        Ok(nodes.iter().map(|i| alike.cost(*i, &weights)).collect())
    }
    fn normalize(&self, _cycle: &Cycle<'_>, _nodes: &[usize], scores: &mut [i64]) {
        let costs = || scores.iter().copied().filter(|c| *c != LEFT_OUT);
        let (least, most) = (costs().min().unwrap_or(0), costs().max().unwrap_or(0));
        for s in scores {
            *s = match *s {
                LEFT_OUT => 0,
                _ if most == 0 => MAX_SCORE,
                cost => MAX_SCORE.saturating_mul(most.saturating_add(least) - cost) / most,
            };
        }
    }
}
