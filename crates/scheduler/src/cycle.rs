//! One scheduling cycle: filter, score, choose.

use std::collections::BTreeMap;

use crate::cache::{Cache, NodeInfo, PodInfo};
use crate::plugins::{self, Rejection};

/// Why no node can take a Pod.
#[derive(Debug, Clone, Default)]
pub struct FitError {
    /// How many nodes there are.
    pub nodes: usize,
    /// Each node's refusal, by node name.
    pub rejections: BTreeMap<String, Rejection>,
    /// What preemption said.
    pub post_filter: String,
}

impl FitError {
    /// The plugins that refused, each once.
    pub fn plugins(&self) -> Vec<&'static str> {
        let mut all: Vec<_> = self.rejections.values().map(|r| r.plugin).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl std::fmt::Display for FitError {
    /// Upstream's sentence: the count of nodes, then each reason with its count, sorted as text.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0/{} nodes are available:", self.nodes)?;
        let mut counts = BTreeMap::<&str, usize>::new();
        for reason in self.rejections.values().flat_map(|r| &r.reasons) {
            *counts.entry(reason).or_default() += 1;
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
/// Pods in `nominated` (preemptors waiting for room, by node) count against lower or equal priorities.
pub fn schedule(
    pod: &PodInfo,
    cache: &Cache,
    nominated: &[(String, PodInfo)],
    start: usize,
    pick: &mut dyn FnMut(usize) -> usize,
) -> Result<(String, usize), FitError> {
    let nodes = cache.nodes();
    let mut error = FitError { nodes: nodes.len(), ..FitError::default() };
    let wanted = enough(nodes.len());
    let mut feasible: Vec<&NodeInfo> = Vec::new();
    let mut looked = 0;
    for i in 0..nodes.len() {
        let node = &nodes[(start + i) % nodes.len()];
        looked += 1;
        match filter_with_nominated(pod, node, nominated) {
            Ok(()) => feasible.push(node),
            Err(r) => {
                error.rejections.insert(node.name().to_owned(), r);
            }
        }
        if feasible.len() >= wanted {
            break;
        }
    }
    let next = if nodes.is_empty() { 0 } else { (start + looked) % nodes.len() };
    match feasible[..] {
        [] => Err(error),
        [one] => Ok((one.name().to_owned(), next)),
        _ => {
            let scores = plugins::score(pod, cache, &feasible);
            let best = scores.iter().copied().max().unwrap_or(0);
            let ties: Vec<usize> = (0..scores.len()).filter(|i| scores[*i] == best).collect();
            let chosen = ties[pick(ties.len()).min(ties.len() - 1)];
            Ok((feasible[chosen].name().to_owned(), next))
        }
    }
}

/// Filters with the preemptors that wait for this node counted in, if they are as important.
fn filter_with_nominated(
    pod: &PodInfo,
    node: &NodeInfo,
    nominated: &[(String, PodInfo)],
) -> Result<(), Rejection> {
    let mut waiting = nominated
        .iter()
        .filter(|(n, p)| n == node.name() && p.uid() != pod.uid() && p.priority() >= pod.priority())
        .peekable();
    if waiting.peek().is_some() {
        let mut with = node.clone();
        waiting.for_each(|(_, p)| with.add(p.clone()));
        plugins::filter(pod, &with)?;
    }
    plugins::filter(pod, node)
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
        let pod = PodInfo::new(Arc::new(pod.unwrap()));
        let error = schedule(&pod, &cache, &[], 0, &mut |_| 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
        );
        assert_eq!(error.plugins(), ["NodeResourcesFit", "TaintToleration"]);
    }

    #[test]
    fn looks_at_enough_nodes() {
        for (nodes, expected) in [(10, 10), (100, 100), (1000, 420), (5000, 500), (10_000, 500)] {
            assert_eq!(enough(nodes), expected, "{nodes} nodes");
        }
    }
}
