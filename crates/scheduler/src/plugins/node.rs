//! The filters that look at one node alone: what it is, what it offers, what is left of that.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

use super::{Rejection, Stop, reject};
use crate::cache::{NodeInfo, PodInfo};
use crate::resources::{Amount, Resources};

/// The plugin that reads node selectors and node affinity.
pub const NODE_AFFINITY: &str = "NodeAffinity";

pub(super) fn tolerations(pod: &PodInfo) -> &[Toleration] {
    pod.pod.spec.as_ref().and_then(|s| s.tolerations.as_deref()).unwrap_or_default()
}

/// Whether a toleration covers a taint (upstream's `ToleratesTaint`).
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let blank = |o: &Option<String>| o.as_deref().is_none_or(str::is_empty);
    let taint_value = taint.value.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    (blank(&toleration.effect) || toleration.effect.as_deref() == Some(taint.effect.as_str()))
        && (blank(&toleration.key) || toleration.key.as_deref() == Some(taint.key.as_str()))
        && match toleration.operator.as_deref() {
            None | Some("" | "Equal") => value == taint_value,
            Some("Exists") => true,
            _ => false,
        }
}

pub(super) fn unschedulable(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if node.node.spec.as_ref().and_then(|s| s.unschedulable) != Some(true) {
        return Ok(());
    }
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    if tolerations(pod).iter().any(|t| tolerates(t, &taint)) {
        return Ok(());
    }
    reject("NodeUnschedulable", "node(s) were unschedulable", true)
}

pub(super) fn node_name(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let wanted = pod.pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default();
    if wanted.is_empty() || wanted == node.name() {
        return Ok(());
    }
    reject("NodeName", "node(s) didn't match the requested node name", true)
}

/// Whether the node has a `NoSchedule` or `NoExecute` taint that the Pod does not tolerate.
pub(super) fn has_untolerated_taint(pod: &PodInfo, node: &NodeInfo) -> bool {
    let all = node.node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    all.iter()
        .filter(|t| t.effect == "NoSchedule" || t.effect == "NoExecute")
        .any(|taint| !tolerations(pod).iter().any(|t| tolerates(t, taint)))
}

pub(super) fn taints(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if has_untolerated_taint(pod, node) {
        return reject("TaintToleration", "node(s) had untolerated taint(s)", true);
    }
    Ok(())
}

/// Whether a node satisfies one requirement of a selector term.
fn requirement(r: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = r.values.as_deref().unwrap_or_default();
    let listed = |v: &str| values.iter().any(|x| x == v);
    match r.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        op @ ("Gt" | "Lt") => {
            let (Some(Ok(have)), Some(Ok(bound))) =
                (value.map(str::parse::<i64>), values.first().map(|v| v.parse::<i64>()))
            else {
                return false;
            };
            if op == "Gt" { have > bound } else { have < bound }
        }
        _ => false,
    }
}

/// Whether a node satisfies a selector term; an empty term matches nothing.
pub fn term_matches(term: &NodeSelectorTerm, node: &NodeInfo) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let labels = node.node.metadata.labels.as_ref();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|r| requirement(r, labels.and_then(|l| l.get(&r.key)).map(String::as_str)))
        && fields.iter().all(|r| r.key == "metadata.name" && requirement(r, Some(node.name())))
}

/// Whether the Pod's node selector and required node affinity admit the node.
pub(super) fn node_affinity_matches(pod: &PodInfo, node: &NodeInfo) -> bool {
    let Some(spec) = &pod.pod.spec else { return true };
    let labels = node.node.metadata.labels.as_ref();
    let selected = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(k, v)| labels.and_then(|l| l.get(k)).is_some_and(|have| have == v));
    selected && required_terms(pod).is_none_or(|terms| terms.iter().any(|t| term_matches(t, node)))
}

fn required_terms(pod: &PodInfo) -> Option<&[NodeSelectorTerm]> {
    let affinity = pod.pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    Some(&affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms)
}

pub(super) fn node_affinity(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if node_affinity_matches(pod, node) {
        return Ok(());
    }
    reject(NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector", true)
}

/// The only nodes that can take the Pod, if each term of its node affinity names some (as a DaemonSet's do).
pub(super) fn nodes_by_name(pod: &PodInfo) -> Result<Option<BTreeSet<&str>>, Stop> {
    let Some(terms) = required_terms(pod).filter(|t| !t.is_empty()) else { return Ok(None) };
    let mut all = BTreeSet::new();
    for term in terms {
        let mut named: Option<BTreeSet<&str>> = None;
        for r in term.match_fields.iter().flatten() {
            if r.key == "metadata.name" && r.operator == "In" {
                let these: BTreeSet<&str> = r.values.iter().flatten().map(String::as_str).collect();
                named = Some(match named {
                    Some(before) => &before & &these,
                    None => these,
                });
            }
        }
        let Some(named) = named else { return Ok(None) };
        all.extend(named);
    }
    if all.is_empty() {
        return Err(Stop::rejected(NODE_AFFINITY, "pod affinity terms conflict"));
    }
    Ok(Some(all))
}

pub(super) fn node_ports(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if !pod.ports.is_empty() && node.ports_taken(&pod.ports) {
        return reject("NodePorts", "node(s) didn't have free ports for the requested pod ports", false);
    }
    Ok(())
}

pub(super) fn resources_fit(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let (want, have, used) = (&pod.requests.fit, &node.allocatable, &node.requested);
    let mut reasons = Vec::new();
    let mut unresolvable = false;
    if node.pods.len() as i64 + 1 > node.max_pods {
        reasons.push("Too many pods".to_owned());
    }
    let mut lack = |name: &str, want: Amount, have: Amount, used: Amount| {
        if want > 0 && want > have - used {
            reasons.push(format!("Insufficient {name}"));
            unresolvable |= want > have;
        }
    };
    lack("cpu", want.milli_cpu, have.milli_cpu, used.milli_cpu);
    lack("memory", want.memory, have.memory, used.memory);
    lack("ephemeral-storage", want.ephemeral_storage, have.ephemeral_storage, used.ephemeral_storage);
    for (name, amount) in &want.scalar {
        let of = |r: &Resources| r.scalar.get(name).copied().unwrap_or(0);
        lack(name, *amount, of(have), of(used));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Rejection { plugin: "NodeResourcesFit", reasons, unresolvable })
}
