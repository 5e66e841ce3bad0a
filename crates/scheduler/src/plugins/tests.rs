//! The filters that look at one node alone, and scores.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::score::score;
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
    PodInfo::new(pod)
}

fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    prepare(pod, &Cache::default()).unwrap().filter(node)
}

fn check(pod_spec: Value, node_spec: Value, expected: &[&str]) {
    let node =
        node(node_spec, json!({"zone": "a", "size": "5"}), json!({"cpu": "2", "memory": "1Gi", "pods": "1"}));
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
    check(
        json!({"containers": [{"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]}),
        json!({}),
        &["node(s) didn't match Pod's required features"],
    );
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
    let one =
        pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}]}));
    cache.set_pod(one.clone(), "a");
    let nodes: Vec<&NodeInfo> = cache.nodes().iter().collect();
    let scores = score(&one, &cache, &nodes).unwrap();
    assert!(scores[1] > scores[0], "{scores:?}");
}
