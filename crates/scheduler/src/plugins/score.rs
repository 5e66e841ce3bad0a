//! Scores: which of the nodes that can take a Pod is the best. 0 to 100 a plugin, before its weight.

use k8s_openapi::api::core::v1::Toleration;
use objects::taints::{self, PREFER_NO_SCHEDULE};
use objects::{Amount, node_affinity};

use super::pod_topology_spread::NAME as SPREAD;
use super::soft;
pub use super::soft::MAX_SCORE;
use crate::cache::{Cache, NodeInfo};
use crate::pod::PodInfo;

/// The weighted sum of every score, for each of the feasible nodes. An error is one of the Pod: it is tried again.
pub fn score(pod: &PodInfo, cache: &Cache, feasible: &[&NodeInfo]) -> Result<Vec<i64>, String> {
    let mut total = vec![0; feasible.len()];
    let mut add = |scores: Vec<i64>, weight: i64| {
        for (t, s) in total.iter_mut().zip(scores) {
            *t += weight * s;
        }
    };
    add(normalized(feasible.iter().map(|n| intolerable_preferences(pod, n)).collect(), true), 3);
    add(normalized(feasible.iter().map(|n| preferred_affinity(pod, n)).collect(), false), 2);
    add(feasible.iter().map(|n| least_allocated(pod, n)).collect(), 1);
    let spread = soft::pod_topology_spread(pod, cache, feasible)
        .map_err(|e| format!("running PreScore plugin {SPREAD:?}: calculating preScoreState: {e}"))?;
    add(spread.unwrap_or_default(), 2);
    add(soft::inter_pod_affinity(pod, cache, feasible), 2);
    add(feasible.iter().map(|n| balanced(pod, n)).collect(), 1);
    add(feasible.iter().map(|n| image_locality(pod, cache, n)).collect(), 1);
    Ok(total)
}

/// Scales scores so that the largest becomes 100; `reverse` turns them round.
fn normalized(mut scores: Vec<i64>, reverse: bool) -> Vec<i64> {
    let max = scores.iter().copied().max().unwrap_or(0);
    for s in &mut scores {
        *s = if max == 0 { 0 } else { MAX_SCORE * *s / max };
        if reverse {
            *s = MAX_SCORE - *s;
        }
    }
    scores
}

/// How many PreferNoSchedule taints the Pod does not tolerate.
fn intolerable_preferences(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let usable: Vec<&Toleration> = taints::tolerations(pod.whole())
        .iter()
        .filter(|t| matches!(t.effect.as_deref(), None | Some("" | PREFER_NO_SCHEDULE)))
        .collect();
    let soft = taints::of_node(&node.node).iter().filter(|t| t.effect == PREFER_NO_SCHEDULE);
    soft.filter(|t| !usable.iter().any(|u| taints::tolerates(u, t))).count() as i64
}

fn preferred_affinity(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let terms = pod
        .spec()
        .and_then(|s| s.affinity.as_ref())
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default();
    terms
        .iter()
        .filter(|t| t.weight != 0 && node_affinity::term_matches(&t.preference, &node.node))
        .map(|t| i64::from(t.weight))
        .sum()
}

fn least_allocated(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let part = |used: Amount, want: Amount, have: Amount| {
        let sum = used + want;
        if have <= 0 || sum > have { 0 } else { (have - sum.max(0)) * Amount::from(MAX_SCORE) / have }
    };
    let parts = [
        (
            node.allocatable.milli_cpu,
            part(node.nonzero.0, pod.requests.nonzero_milli_cpu, node.allocatable.milli_cpu),
        ),
        (node.allocatable.memory, part(node.nonzero.1, pod.requests.nonzero_memory, node.allocatable.memory)),
    ];
    let offered = parts.iter().filter(|p| p.0 > 0).count() as Amount;
    if offered == 0 {
        0
    } else {
        (parts.iter().filter(|p| p.0 > 0).map(|p| p.1).sum::<Amount>() / offered) as i64
    }
}

fn balanced(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let want = &pod.requests.fit;
    if want.milli_cpu == 0 && want.memory == 0 {
        return 0;
    }
    let balance = |cpu: Amount, memory: Amount| {
        let parts: Vec<f64> = [(cpu, node.allocatable.milli_cpu), (memory, node.allocatable.memory)]
            .into_iter()
            .filter(|(_, have)| *have > 0)
            .map(|(used, have)| (used as f64 / have as f64).clamp(0.0, 1.0))
            .collect();
        let deviation = if let [a, b] = parts[..] { ((a - b) / 2.0).abs() } else { 0.0 };
        ((1.0 - deviation) * MAX_SCORE as f64) as i64
    };
    let used = &node.requested;
    let with = balance(used.milli_cpu + want.milli_cpu, used.memory + want.memory);
    let without = balance(used.milli_cpu, used.memory);
    MAX_SCORE / 2 + (MAX_SCORE / 2 + with - without) / 2
}

fn image_locality(pod: &PodInfo, cache: &Cache, node: &NodeInfo) -> i64 {
    const MIN: i64 = 23 * 1024 * 1024;
    const MAX_PER_CONTAINER: i64 = 1000 * 1024 * 1024;
    let Some(spec) = pod.spec() else { return 0 };
    let containers: Vec<_> = spec.containers.iter().chain(spec.init_containers.iter().flatten()).collect();
    let volumes = spec.volumes.iter().flatten().filter_map(|v| v.image.as_ref()?.reference.as_deref());
    let names = containers.iter().filter_map(|c| c.image.as_deref()).chain(volumes);
    let nodes = cache.nodes().len().max(1) as f64;
    let sum: i64 = names
        .map(|image| {
            let name = if image.rfind(':') <= image.rfind('/') {
                format!("{image}:latest")
            } else {
                image.to_owned()
            };
            let Some(size) = node.images.get(&name) else { return 0 };
            (*size as f64 * cache.nodes_with_image(&name) as f64 / nodes) as i64
        })
        .fold(0, i64::saturating_add);
    let max = MAX_PER_CONTAINER * containers.len().max(1) as i64;
    MAX_SCORE * (sum.clamp(MIN, max) - MIN) / (max - MIN)
}
