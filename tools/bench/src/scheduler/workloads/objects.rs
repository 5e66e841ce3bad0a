//! The objects of workloads.

use serde_json::{Map, Value, json};

pub(crate) const HOST: &str = "kubernetes.io/hostname";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// Sets a field, which a path names with slashes.
pub(super) fn with(mut object: Value, path: &str, value: Value) -> Value {
    let mut at = &mut object;
    for part in path.split('/') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[part];
    }
    *at = value;
    object
}

/// A node of these resources that is ready.
pub(super) fn node_of(name: &str, room: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HOST: name}}, "spec": {},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// A node of 4 CPUs and 32 GiB for so many Pods.
pub(super) fn node_for(name: &str, pods: u32) -> Value {
    node_of(name, &json!({"pods": pods.to_string(), "cpu": "4", "memory": "32Gi"}))
}

/// A usual node.
pub(super) fn node(i: usize) -> Value {
    node_for(&format!("scheduler-perf-{i}"), 110)
}

/// A usual node with labels and taints.
pub(super) fn marked(node: Value, labels: Value, taints: &[&str]) -> Value {
    let mut node =
        with(node, "spec/taints", taints.iter().map(|t| json!({"key": t, "effect": "NoSchedule"})).collect());
    if let (Some(all), Value::Object(more)) = (node["metadata"]["labels"].as_object_mut(), labels) {
        all.extend(more);
    }
    node
}

/// A usual node in one of these zones, each in turn.
pub(super) fn in_zones(i: usize, zones: &[&str]) -> Value {
    marked(node(i), json!({ZONE: zones[i % zones.len()]}), &[])
}

/// A namespace.
pub(super) fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// A Pod without requests.
pub(super) fn light(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "labels": {}},
        "spec": {
            "containers": [{"name": "pause", "image": "registry.k8s.io/pause:3.10.2"}],
            "schedulerName": "default-scheduler", "priority": 0, "terminationGracePeriodSeconds": 0,
        },
    })
}

/// A Pod with requests.
pub(super) fn asking(namespace: &str, name: &str, requests: &Value) -> Value {
    with(
        light(namespace, name),
        "spec/containers",
        json!([{
            "name": "pause", "image": "registry.k8s.io/pause:3.10.2", "ports": [{"containerPort": 80}],
            "resources": {"requests": requests, "limits": requests},
        }]),
    )
}

/// A Pod that asks for a tenth of a CPU and 500 MiB.
pub(super) fn pod(namespace: &str, name: &str) -> Value {
    asking(namespace, name, &json!({"cpu": "100m", "memory": "500Mi"}))
}

/// A usual Pod.
pub(super) fn plain(i: usize) -> Value {
    pod("default", &format!("pod-{i}"))
}

/// A usual Pod that is measured.
pub(super) fn measured(i: usize) -> Value {
    pod("default", &format!("measured-{i}"))
}

/// A Pod with other labels.
pub(super) fn labelled(pod: Value, labels: Value) -> Value {
    with(pod, "metadata/labels", labels)
}

/// A Pod that is as important as that.
pub(super) fn important(pod: Value, priority: i32) -> Value {
    with(pod, "spec/priority", json!(priority))
}

/// A Pod that tolerates a taint.
pub(super) fn tolerant(pod: Value, key: &str) -> Value {
    with(pod, "spec/tolerations", json!([{"key": key, "operator": "Exists", "effect": "NoSchedule"}]))
}

/// A Pod with a gate.
pub(super) fn gated(pod: Value) -> Value {
    with(pod, "spec/schedulingGates", json!([{"name": "test.k8s.io/hold"}]))
}

/// A term of affinity: Pods with a label in these namespaces, or in those that the owners of a label have.
pub(super) fn term(label: [&str; 2], key: &str, namespaces: &[&str]) -> Value {
    let [name, value] = label;
    json!({"labelSelector": {"matchLabels": {name: value}}, "topologyKey": key, "namespaces": namespaces})
}

/// A Pod that must be where a term says; `kind` is that of the affinity.
pub(super) fn must(pod: Value, kind: &str, term: Value) -> Value {
    let path = format!("spec/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution");
    with(pod, &path, json!([term]))
}

/// A Pod that should be where a term says.
pub(super) fn should(pod: Value, kind: &str, term: Value) -> Value {
    let path = format!("spec/affinity/{kind}/preferredDuringSchedulingIgnoredDuringExecution");
    with(pod, &path, json!([{"podAffinityTerm": term, "weight": 1}]))
}

/// A Pod that must be on nodes that an expression of labels, or of fields, selects.
pub(super) fn on_nodes(pod: Value, by: &str, key: &str, values: &[&str]) -> Value {
    let path = "spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = json!([{by: [{"key": key, "operator": "In", "values": values}]}]);
    with(pod, path, json!({"nodeSelectorTerms": terms}))
}

/// A Pod that is spread: a skew over places, with all Pods that have its label.
pub(super) fn spread(pod: Value, skew: u32, key: &str, when: &str, label: [&str; 2]) -> Value {
    let [name, value] = label;
    let rule = json!({
        "maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {name: value}},
    });
    with(labelled(pod, json!({name: value})), "spec/topologySpreadConstraints", json!([rule]))
}

/// A Service.
pub(super) fn service(namespace: &str, name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"app": app}, "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8000}]},
    })
}
