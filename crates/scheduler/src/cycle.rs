//! One scheduling cycle: filter, score, choose.

use std::collections::{BTreeMap, BTreeSet};

use crate::cache::{Cache, NodeInfo};
use crate::nominated::Nominated;
use crate::plugins::{self, Prepared, Rejection, Stop, score};
use crate::pod::PodInfo;

/// Why no node can take a Pod.
#[derive(Debug, Clone, Default)]
pub struct FitError {
    /// How many nodes there are.
    pub nodes: usize,
    /// The refusal that came before any node was looked at.
    pub stopped: Option<Rejection>,
    /// Each node's refusal, by node name.
    pub rejections: BTreeMap<String, Rejection>,
    /// How many nodes were not looked at, since the Pod's node affinity names others.
    pub excluded: usize,
    /// The answer of preemption.
    pub post_filter: String,
}

impl FitError {
    /// The plugins that refused, each once.
    pub fn plugins(&self) -> BTreeSet<&'static str> {
        let mut all: BTreeSet<_> = self.rejections.values().chain(&self.stopped).map(|r| r.plugin).collect();
        if self.excluded > 0 {
            all.insert(plugins::node::NODE_AFFINITY);
        }
        all
    }
    /// Whether evicting Pods from a node could help, as far as the filters have looked.
    pub fn resolvable(&self, node: &str) -> bool {
        self.rejections.get(node).is_some_and(|r| !r.unresolvable)
    }
    /// Whether the filters have said that nothing can help on this node.
    pub fn hopeless(&self, node: &str) -> bool {
        let looked_at = self.rejections.get(node).map(|r| r.unresolvable);
        self.stopped.is_some() || looked_at.unwrap_or(self.excluded > 0)
    }
}

/// The end of a cycle that finds no node.
#[derive(Debug, Clone)]
pub enum Failure {
    /// None can take the Pod.
    Unschedulable(Box<FitError>),
    /// There is no decision; the Pod is tried again.
    Error(String),
}

impl std::fmt::Display for FitError {
    /// Upstream's sentence: the count of nodes, then each reason with its count, sorted as text.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0/{} nodes are available:", self.nodes)?;
        if let Some(stopped) = &self.stopped {
            write!(f, " {}.", stopped.reasons.join(", "))?;
        }
        let mut counts = BTreeMap::<&str, usize>::new();
        for reason in self.rejections.values().flat_map(|r| &r.reasons) {
            *counts.entry(reason).or_default() += 1;
        }
        let excluded = format!("node(s) didn't satisfy plugin(s) [{}]", plugins::node::NODE_AFFINITY);
        if self.excluded > 0 {
            *counts.entry(&excluded).or_default() += self.excluded;
        }
        let mut parts: Vec<String> = counts.into_iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        parts.sort();
        if !parts.is_empty() {
            write!(f, " {}.", parts.join(", "))?;
        }
        if !self.post_filter.is_empty() {
            write!(f, " {}", self.post_filter)?;
        }
        Ok(())
    }
}

/// How many feasible nodes are enough, of `nodes` (upstream's adaptive `percentageOfNodesToScore`).
fn enough(nodes: usize) -> usize {
    if nodes < 100 {
        return nodes;
    }
    let percent = 50usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(100)
}

/// Chooses a node. `start` is where to begin looking, so that big clusters are used evenly; the
/// result's second part is where the next cycle should begin. `pick` breaks ties among `n` equals.
/// Pods in `nominated` (preemptors waiting for room) count against lower or equal priorities.
pub fn schedule(
    pod: &PodInfo,
    cache: &Cache,
    nominated: &Nominated,
    start: usize,
    pick: &mut dyn FnMut(usize) -> usize,
) -> Result<(String, usize), Failure> {
    let nodes = cache.nodes();
    let mut error = FitError { nodes: nodes.len(), ..FitError::default() };
    if nodes.is_empty() {
        return Err(Failure::Unschedulable(Box::new(error)));
    }
    let mut prepared = match plugins::prepare(pod, cache) {
        Ok(prepared) => prepared,
        Err(Stop::Error(why)) => return Err(Failure::Error(why)),
        Err(Stop::Rejected(rejection)) => {
            error.stopped = Some(rejection);
            return Err(Failure::Unschedulable(Box::new(error)));
        }
    };
    // The node where room was made for it is likely the only one.
    if let Some(node) = nominated.node_of(pod.uid()).and_then(|n| cache.node(n))
        && !prepared.excludes(node)
        && filter_with_nominated(pod, node, &mut prepared, nominated).is_ok()
    {
        return Ok((node.name().to_owned(), start));
    }
    let wanted = enough(nodes.len());
    let mut feasible: Vec<&NodeInfo> = Vec::new();
    let mut looked = 0;
    for i in 0..nodes.len() {
        let node = &nodes[(start + i) % nodes.len()];
        looked += 1;
        if prepared.excludes(node) {
            error.excluded += 1;
            continue;
        }
        match filter_with_nominated(pod, node, &mut prepared, nominated) {
            Ok(()) => feasible.push(node),
            Err(r) => {
                error.rejections.insert(node.name().to_owned(), r);
            }
        }
        if feasible.len() >= wanted {
            break;
        }
    }
    let next = (start + looked) % nodes.len();
    match feasible[..] {
        [] => Err(Failure::Unschedulable(Box::new(error))),
        [one] => Ok((one.name().to_owned(), next)),
        _ => {
            let scores = score::score(pod, cache, &feasible).map_err(Failure::Error)?;
            let best = scores.iter().copied().max().unwrap_or(0);
            let ties: Vec<usize> = (0..scores.len()).filter(|i| scores[*i] == best).collect();
            let chosen = ties[pick(ties.len()).min(ties.len() - 1)];
            Ok((feasible[chosen].name().to_owned(), next))
        }
    }
}

/// Filters with the preemptors that wait for this node counted in, if they are as important, and then without
/// them, since they may end up elsewhere (upstream's `RunFilterPluginsWithNominatedPods`).
pub fn filter_with_nominated(
    pod: &PodInfo,
    node: &NodeInfo,
    prepared: &mut Prepared<'_>,
    nominated: &Nominated,
) -> Result<(), Rejection> {
    let waiting: Vec<&PodInfo> = nominated
        .on(node.name())
        .filter(|p| {
            p.uid() != pod.uid() && p.priority() >= pod.priority() && !node.pods.contains_key(p.uid())
        })
        .collect();
    if !waiting.is_empty() {
        let mut with = node.clone();
        for p in &waiting {
            with.add((*p).clone());
            prepared.add(p, node);
        }
        let result = prepared.filter(&with);
        for p in &waiting {
            prepared.remove(p, node);
        }
        result?;
    }
    prepared.filter(node)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn says_why_nothing_fits() {
        let mut cache = Cache::default();
        for (name, cpu, taint) in [("a", "1", false), ("b", "1", false), ("c", "8", true)] {
            let taints = if taint { json!([{"key": "k", "effect": "NoSchedule"}]) } else { json!([]) };
            let node = serde_json::from_value(json!({
                "metadata": {"name": name}, "spec": {"taints": taints},
                "status": {"allocatable": {"cpu": cpu, "pods": "110"}}
            }));
            cache.set_node(Arc::new(node.unwrap()));
        }
        let pod = serde_json::from_value(json!({
            "metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}
        }));
        let pod = PodInfo::new(pod.unwrap());
        let error = schedule(&pod, &cache, &Nominated::default(), 0, &mut |_| 0).unwrap_err();
        let Failure::Unschedulable(error) = error else { panic!("{error:?}") };
        assert_eq!(
            error.to_string(),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
        );
        assert!(error.plugins().into_iter().eq(["NodeResourcesFit", "TaintToleration"]));
    }

    #[test]
    fn looks_at_enough_nodes() {
        for (nodes, expected) in [(10, 10), (100, 100), (1000, 420), (5000, 500), (10_000, 500)] {
            assert_eq!(enough(nodes), expected, "{nodes} nodes");
        }
    }
}
