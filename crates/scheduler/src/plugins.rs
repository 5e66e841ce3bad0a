//! The plugins: pure functions over a Pod and a node.
//!
//! Filters run in upstream's order and the first that refuses ends the node's turn, so that a node
//! counts for one plugin's reasons only. Scores are 0 to 100 before weights.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

use crate::cache::{Cache, NodeInfo, PodInfo};

/// The best score of a plugin for a node (upstream's `MaxNodeScore`).
pub const MAX_SCORE: i64 = 100;

/// Why a node can't take a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The plugin that refused.
    pub plugin: &'static str,
    /// Its reasons, in upstream's words.
    pub reasons: Vec<String>,
    /// Whether evicting other Pods could not change it.
    pub unresolvable: bool,
}

fn reject(plugin: &'static str, reason: impl Into<String>, unresolvable: bool) -> Result<(), Rejection> {
    Err(Rejection { plugin, reasons: vec![reason.into()], unresolvable })
}

/// Runs every filter on a node.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    unschedulable(pod, node)?;
    node_name(pod, node)?;
    taints(pod, node)?;
    node_affinity(pod, node)?;
    node_ports(pod, node)?;
    resources_fit(pod, node)
}

fn tolerations(pod: &PodInfo) -> &[Toleration] {
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

fn unschedulable(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
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

fn node_name(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let wanted = pod.pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default();
    if wanted.is_empty() || wanted == node.name() {
        return Ok(());
    }
    reject("NodeName", "node(s) didn't match the requested node name", true)
}

fn taints(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let all = node.node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let untolerated = all
        .iter()
        .filter(|t| t.effect == "NoSchedule" || t.effect == "NoExecute")
        .find(|taint| !tolerations(pod).iter().any(|t| tolerates(t, taint)));
    match untolerated {
        None => Ok(()),
        Some(_) => reject("TaintToleration", "node(s) had untolerated taint(s)", true),
    }
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

fn node_affinity(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let Some(spec) = &pod.pod.spec else { return Ok(()) };
    let labels = node.node.metadata.labels.as_ref();
    let selected = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(k, v)| labels.and_then(|l| l.get(k)).is_some_and(|have| have == v));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    if selected && required.is_none_or(|s| s.node_selector_terms.iter().any(|t| term_matches(t, node))) {
        return Ok(());
    }
    reject("NodeAffinity", "node(s) didn't match Pod's node affinity/selector", true)
}

fn node_ports(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if !pod.ports.is_empty() && node.ports_taken(&pod.ports) {
        return reject("NodePorts", "node(s) didn't have free ports for the requested pod ports", false);
    }
    Ok(())
}

fn resources_fit(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let (want, have, used) = (&pod.requests.fit, &node.allocatable, &node.requested);
    let mut reasons = Vec::new();
    let mut unresolvable = false;
    if node.pods.len() as i64 + 1 > node.max_pods {
        reasons.push("Too many pods".to_owned());
    }
    let mut lack = |name: &str, want: i64, have: i64, used: i64| {
        if want > 0 && want > have - used {
            reasons.push(format!("Insufficient {name}"));
            unresolvable |= want > have;
        }
    };
    lack("cpu", want.milli_cpu, have.milli_cpu, used.milli_cpu);
    lack("memory", want.memory, have.memory, used.memory);
    lack("ephemeral-storage", want.ephemeral_storage, have.ephemeral_storage, used.ephemeral_storage);
    for (name, amount) in &want.scalar {
        let of = |r: &crate::resources::Resources| r.scalar.get(name).copied().unwrap_or(0);
        lack(name, *amount, of(have), of(used));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Rejection { plugin: "NodeResourcesFit", reasons, unresolvable })
}

/// The weighted sum of every score, for each of the feasible nodes.
pub fn score(pod: &PodInfo, cache: &Cache, feasible: &[&NodeInfo]) -> Vec<i64> {
    let mut total = vec![0; feasible.len()];
    let mut add = |scores: Vec<i64>, weight: i64| {
        for (t, s) in total.iter_mut().zip(scores) {
            *t += weight * s;
        }
    };
    add(normalized(feasible.iter().map(|n| intolerable_preferences(pod, n)).collect(), true), 3);
    add(normalized(feasible.iter().map(|n| preferred_affinity(pod, n)).collect(), false), 2);
    add(feasible.iter().map(|n| least_allocated(pod, n)).collect(), 1);
    add(feasible.iter().map(|n| balanced(pod, n)).collect(), 1);
    add(feasible.iter().map(|n| image_locality(pod, cache, n)).collect(), 1);
    total
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
    let taints = node.node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let usable: Vec<&Toleration> = tolerations(pod)
        .iter()
        .filter(|t| matches!(t.effect.as_deref(), None | Some("" | "PreferNoSchedule")))
        .collect();
    taints
        .iter()
        .filter(|t| t.effect == "PreferNoSchedule" && !usable.iter().any(|u| tolerates(u, t)))
        .count() as i64
}

fn preferred_affinity(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let terms = pod
        .pod
        .spec
        .as_ref()
        .and_then(|s| s.affinity.as_ref())
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default();
    terms
        .iter()
        .filter(|t| t.weight != 0 && term_matches(&t.preference, node))
        .map(|t| i64::from(t.weight))
        .sum()
}

fn least_allocated(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let part = |used: i64, want: i64, have: i64| {
        let sum = used + want;
        if have == 0 || sum > have { 0 } else { (have - sum) * MAX_SCORE / have }
    };
    let parts = [
        (
            node.allocatable.milli_cpu,
            part(node.nonzero.0, pod.requests.nonzero_milli_cpu, node.allocatable.milli_cpu),
        ),
        (node.allocatable.memory, part(node.nonzero.1, pod.requests.nonzero_memory, node.allocatable.memory)),
    ];
    let offered = parts.iter().filter(|p| p.0 > 0).count() as i64;
    if offered == 0 { 0 } else { parts.iter().filter(|p| p.0 > 0).map(|p| p.1).sum::<i64>() / offered }
}

fn balanced(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let want = &pod.requests.fit;
    if want.milli_cpu == 0 && want.memory == 0 {
        return 0;
    }
    let balance = |cpu: i64, memory: i64| {
        let parts: Vec<f64> = [(cpu, node.allocatable.milli_cpu), (memory, node.allocatable.memory)]
            .into_iter()
            .filter(|(_, have)| *have > 0)
            .map(|(used, have)| (used as f64 / have as f64).min(1.0))
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
    let Some(spec) = &pod.pod.spec else { return 0 };
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
        .sum();
    let max = MAX_PER_CONTAINER * containers.len().max(1) as i64;
    MAX_SCORE * (sum.clamp(MIN, max) - MIN) / (max - MIN)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::{Value, json};

    use super::*;

    fn node(spec: Value, labels: Value, allocatable: Value) -> NodeInfo {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}
        }))
        .unwrap();
        NodeInfo::new(Arc::new(node))
    }

    fn pod(spec: Value) -> PodInfo {
        let mut full = json!({"containers": [{"name": "c", "image": "i"}]});
        for (k, v) in spec.as_object().unwrap() {
            full[k] = v.clone();
        }
        let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": full})).unwrap();
        PodInfo::new(Arc::new(pod))
    }

    fn check(pod_spec: Value, node_spec: Value, expected: &[&str]) {
        let node = node(
            node_spec,
            json!({"zone": "a", "size": "5"}),
            json!({"cpu": "2", "memory": "1Gi", "pods": "1"}),
        );
        let got = filter(&pod(pod_spec), &node).err().map(|r| r.reasons).unwrap_or_default();
        assert_eq!(got, expected);
    }

    #[test]
    fn filters_refuse_with_upstreams_words() {
        check(json!({}), json!({}), &[]);
        check(json!({}), json!({"unschedulable": true}), &["node(s) were unschedulable"]);
        check(
            json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}),
            json!({"unschedulable": true}),
            &[],
        );
        check(json!({"nodeName": "other"}), json!({}), &["node(s) didn't match the requested node name"]);
        let tainted = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
        check(json!({}), tainted.clone(), &["node(s) had untolerated taint(s)"]);
        check(json!({"tolerations": [{"key": "k", "value": "v"}]}), tainted.clone(), &[]);
        check(
            json!({"tolerations": [{"key": "k", "value": "w"}]}),
            tainted.clone(),
            &["node(s) had untolerated taint(s)"],
        );
        check(json!({"tolerations": [{"operator": "Exists"}]}), tainted, &[]);
        let soft = json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]});
        check(json!({}), soft, &[]);
        check(json!({"nodeSelector": {"zone": "a"}}), json!({}), &[]);
        check(
            json!({"nodeSelector": {"zone": "b"}}),
            json!({}),
            &["node(s) didn't match Pod's node affinity/selector"],
        );
    }

    #[test]
    fn node_affinity_terms() {
        let wanted = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        let no = &["node(s) didn't match Pod's node affinity/selector"][..];
        let expression = |key: &str, op: &str, values: Value| json!([{"matchExpressions": [{"key": key, "operator": op, "values": values}]}]);
        check(wanted(expression("zone", "In", json!(["a", "b"]))), json!({}), &[]);
        check(wanted(expression("zone", "NotIn", json!(["a"]))), json!({}), no);
        check(wanted(expression("none", "NotIn", json!(["a"]))), json!({}), &[]);
        check(wanted(expression("size", "Gt", json!(["4"]))), json!({}), &[]);
        check(wanted(expression("size", "Lt", json!(["4"]))), json!({}), no);
        check(wanted(expression("zone", "Gt", json!(["4"]))), json!({}), no);
        check(wanted(expression("zone", "Exists", json!([]))), json!({}), &[]);
        check(wanted(expression("zone", "DoesNotExist", json!([]))), json!({}), no);
        check(wanted(json!([{}])), json!({}), no);
        let field =
            |v: &str| json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [v]}]}]);
        check(wanted(field("n")), json!({}), &[]);
        check(wanted(field("m")), json!({}), no);
    }

    #[test]
    fn resources_and_ports() {
        let asks = |r: Value| json!({"containers": [{"name": "c", "resources": {"requests": r}}]});
        check(asks(json!({"cpu": "2"})), json!({}), &[]);
        check(
            asks(json!({"cpu": "2100m", "memory": "2Gi", "example.com/gpu": "1"})),
            json!({}),
            &["Insufficient cpu", "Insufficient memory", "Insufficient example.com/gpu"],
        );
        let port = |ip: &str| {
            pod(
                json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80, "hostIP": ip}]}]}),
            )
        };
        let mut full = node(json!({}), json!({}), json!({"cpu": "2", "pods": "5"}));
        full.add(port("10.0.0.1"));
        assert!(filter(&port("10.0.0.2"), &full).is_ok());
        assert_eq!(filter(&port(""), &full).unwrap_err().plugin, "NodePorts");
        full.max_pods = 1;
        assert_eq!(filter(&pod(json!({})), &full).unwrap_err().reasons, ["Too many pods"]);
    }

    #[test]
    fn scores_prefer_the_emptier_node() {
        let mut cache = Cache::default();
        for name in ["a", "b"] {
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
            }))
            .unwrap();
            cache.set_node(Arc::new(node));
        }
        let one = pod(
            json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}]}),
        );
        cache.set_pod(one.clone(), "a");
        let nodes: Vec<&NodeInfo> = cache.nodes().iter().collect();
        let scores = score(&one, &cache, &nodes);
        assert!(scores[1] > scores[0], "{scores:?}");
    }
}
