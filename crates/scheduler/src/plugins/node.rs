//! The filters that look at one node alone: what it is, what it offers, what is left of that.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;
use objects::taints::{self, NO_EXECUTE, NO_SCHEDULE};
use objects::{Amount, Resources, features, node_affinity};

use super::verdict::{Rejection, Stop, reject};
use crate::cache::NodeInfo;
use crate::pod::PodInfo;

/// The plugin that reads node selectors and node affinity.
pub const NODE_AFFINITY: &str = "NodeAffinity";

pub(super) fn unschedulable(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if node.node.spec.as_ref().and_then(|s| s.unschedulable) != Some(true) {
        return Ok(());
    }
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: NO_SCHEDULE.into(),
        ..Taint::default()
    };
    if taints::untolerated([&taint], taints::tolerations(pod.whole())).is_none() {
        return Ok(());
    }
    reject("NodeUnschedulable", "node(s) were unschedulable", true)
}

pub(super) fn node_name(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if pod.node().is_none_or(|wanted| wanted == node.name()) {
        return Ok(());
    }
    reject("NodeName", "node(s) didn't match the requested node name", true)
}

/// Whether the node has a `NoSchedule` or `NoExecute` taint that the Pod does not tolerate.
pub(super) fn has_untolerated_taint(pod: &PodInfo, node: &NodeInfo) -> bool {
    let hard =
        taints::of_node(&node.node).iter().filter(|t| t.effect == NO_SCHEDULE || t.effect == NO_EXECUTE);
    taints::untolerated(hard, taints::tolerations(pod.whole())).is_some()
}

pub(super) fn taint_toleration(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if has_untolerated_taint(pod, node) {
        return reject("TaintToleration", "node(s) had untolerated taint(s)", true);
    }
    Ok(())
}

pub(super) fn affinity(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if node_affinity::admits(pod.whole(), &node.node) {
        return Ok(());
    }
    reject(NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector", true)
}

/// The only nodes that can take the Pod, if each term of its node affinity names some (as a DaemonSet's do).
pub(super) fn nodes_by_name(pod: &PodInfo) -> Result<Option<BTreeSet<&str>>, Stop> {
    let Some(terms) = node_affinity::required_terms(pod.whole()).filter(|t| !t.is_empty()) else {
        return Ok(None);
    };
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

/// The plugin that reads which features nodes declare.
pub const NODE_DECLARED_FEATURES: &str = "NodeDeclaredFeatures";

pub(super) fn declared_features(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if features::missing(pod.whole(), &node.node).is_empty() {
        return Ok(());
    }
    reject(NODE_DECLARED_FEATURES, "node(s) didn't match Pod's required features", true)
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
