//! The rules about other Pods that only prefer: what InterPodAffinity and PodTopologySpread give nodes as scores
//! (upstream's `scoring.go` of both).
//!
//! DIFFERENCE: Pods without constraints of their own are not spread by the cluster's defaults, which ask Services and
//! controllers for the Pods that are alike.

use std::collections::BTreeMap;

use super::inter_pod_affinity::Places;
use super::pod_topology_spread::Constraint;
use crate::affinity::Term;
use crate::cache::{Cache, NodeInfo};
use crate::pod::PodInfo;

/// The best score of a plugin for a node (upstream's `MaxNodeScore`).
pub const MAX_SCORE: i64 = 100;

/// The weight of a required affinity term of another Pod (upstream's `HardPodAffinityWeight`): it would like company.
const HARD_AFFINITY: i64 = 1;
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The scores of InterPodAffinity. Each term adds its weight, or takes it away, in the place where a Pod is that it speaks
/// of: the Pod's own terms about others, and those of others about the Pod. The node with the least gets 0, that with
/// the most 100.
pub(super) fn inter_pod_affinity(pod: &PodInfo, cache: &Cache, feasible: &[&NodeInfo]) -> Vec<i64> {
    let resolved = |list: &[(i32, Term)], sign: i64| -> Vec<(i64, Term)> {
        list.iter().map(|(w, t)| (sign * i64::from(*w), t.clone().resolved(cache.namespaces()))).collect()
    };
    let mut own = resolved(&pod.terms().preferred, 1);
    own.extend(resolved(&pod.terms().preferred_anti, -1));
    let namespace_labels = cache.namespaces().get(pod.namespace());
    let mut places = Places::default();
    let mut look_at = |other: &PodInfo, node: &NodeInfo| {
        for (weight, term) in &own {
            if term.matches(other.namespace(), &other.labels, None) {
                places.count(node, &term.topology_key, *weight);
            }
        }
        let terms = other.terms();
        let theirs = terms.required.iter().map(|t| (HARD_AFFINITY, t));
        let theirs = theirs.chain(terms.preferred.iter().map(|(w, t)| (i64::from(*w), t)));
        let theirs = theirs.chain(terms.preferred_anti.iter().map(|(w, t)| (-i64::from(*w), t)));
        for (weight, term) in theirs {
            if term.matches(pod.namespace(), &pod.labels, namespace_labels) {
                places.count(node, &term.topology_key, weight);
            }
        }
    };
    for node in cache.nodes() {
        if own.is_empty() {
            node.with_terms().for_each(|p| look_at(p, node));
        } else {
            node.pods.values().for_each(|p| look_at(p, node));
        }
    }
    let raw: Vec<i64> = feasible.iter().map(|n| places.sum(n)).collect();
    let (least, most) = (raw.iter().copied().min().unwrap_or(0), raw.iter().copied().max().unwrap_or(0));
    let scaled = |s: i64| (MAX_SCORE as f64 * ((s - least) as f64 / (most - least) as f64)) as i64;
    raw.into_iter().map(|s| if most > least { scaled(s) } else { 0 }).collect()
}

/// The scores of PodTopologySpread, by the Pod's `ScheduleAnyway` constraints. A node costs, for each constraint, the Pods
/// that are alike in its domain; domains of a label that has many weigh more, as there are fewer Pods in each. The
/// cheapest node gets the most. Nodes without a label of a constraint get 0. `None`: there are no such constraints.
pub(super) fn pod_topology_spread(
    pod: &PodInfo,
    cache: &Cache,
    feasible: &[&NodeInfo],
) -> Result<Option<Vec<i64>>, String> {
    let constraints = Constraint::all(pod, "ScheduleAnyway", "soft")?;
    if constraints.is_empty() {
        return Ok(None);
    }
    let has_labels = |n: &NodeInfo| constraints.iter().all(|c| n.label(&c.key).is_some());
    let scored: Vec<&NodeInfo> = feasible.iter().copied().filter(|n| has_labels(n)).collect();
    let alike =
        |c: &Constraint, n: &NodeInfo| n.pods.values().filter(|p| c.counts_pod(pod, p)).count() as f64;
    // The Pods of each domain that a node to be scored is in; those of a host are counted when it is.
    let mut domains: Vec<BTreeMap<&str, f64>> = Vec::new();
    for c in &constraints {
        let named = scored.iter().filter(|_| c.key != HOSTNAME).filter_map(|n| n.label(&c.key));
        let mut pods: BTreeMap<&str, f64> = named.map(|domain| (domain, 0.0)).collect();
        for n in cache.nodes().iter().filter(|n| has_labels(n) && c.counts_node(pod, n)) {
            if let Some(sum) = n.label(&c.key).and_then(|domain| pods.get_mut(domain)) {
                *sum += alike(c, n);
            }
        }
        domains.push(pods);
    }
    let cost = |n: &NodeInfo| {
        let each = constraints.iter().zip(&domains).map(|(c, pods)| {
            let (size, sum) = if c.key == HOSTNAME {
                (scored.len(), alike(c, n))
            } else {
                (pods.len(), n.label(&c.key).and_then(|domain| pods.get(domain)).copied().unwrap_or(0.0))
            };
            sum * ((size + 2) as f64).ln() + (c.max_skew - 1) as f64
        });
        each.sum::<f64>().round() as i64
    };
    let costs: Vec<Option<i64>> =
        feasible.iter().map(|n| if has_labels(n) { Some(cost(n)) } else { None }).collect();
    let (least, most) = (
        costs.iter().flatten().copied().min().unwrap_or(0),
        costs.iter().flatten().copied().max().unwrap_or(0),
    );
    let scaled = |cost: i64| {
        if most == 0 { MAX_SCORE } else { MAX_SCORE.saturating_mul(most.saturating_add(least) - cost) / most }
    };
    Ok(Some(costs.into_iter().map(|c| c.map_or(0, scaled)).collect()))
}
