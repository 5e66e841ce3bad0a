//! The workloads of upstream's scheduler_perf, by their names and parameters (`test/integration/scheduler_perf`, its
//! templates and `performance-config.yaml`).

use serde_json::{Value, json};

/// A workload: Pods that are there, and Pods whose placing is measured.
pub(crate) struct Workload {
    /// Upstream's name.
    pub(crate) name: &'static str,
    /// Nodes of 4 CPUs and 32 GiB for 110 Pods.
    pub(crate) nodes: usize,
    /// The zones in which the nodes are, in turn.
    pub(crate) zones: &'static [&'static str],
    /// Pods that are placed before.
    pub(crate) initial: (usize, fn(usize) -> Value),
    /// Pods that are measured.
    pub(crate) measured: (usize, fn(usize) -> Value),
    /// Pods that nobody can take, of which one comes every 200 ms.
    pub(crate) churn: Option<fn(usize) -> Value>,
    /// Pods a second of upstream's scheduler with API server and etcd on two cores, where it was measured.
    pub(crate) upstream: Option<f64>,
}

fn pod(name: &str, namespace: &str, labels: &Value, requests: &Value, rules: Value) -> Value {
    let container = json!({
        "name": "pause", "image": "registry.k8s.io/pause:3.10.2", "ports": [{"containerPort": 80}],
        "resources": {"requests": requests, "limits": requests},
    });
    let mut spec = json!({"containers": [container], "schedulerName": "default-scheduler", "priority": 0});
    if let (Some(spec), Value::Object(rules)) = (spec.as_object_mut(), rules) {
        spec.extend(rules);
    }
    json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels}, "spec": spec})
}

fn small() -> Value {
    json!({"cpu": "100m", "memory": "500Mi"})
}

fn plain(i: usize) -> Value {
    pod(&format!("pod-{i}"), "default", &json!({}), &small(), json!({}))
}

fn near(i: usize, namespace: &str, kind: &str, [color, key]: [&str; 2], preferred: bool) -> Value {
    let term = json!({
        "labelSelector": {"matchLabels": {"color": color}}, "topologyKey": key, "namespaces": ["sched-1", "sched-0"],
    });
    let affinity = if preferred {
        json!({kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term, "weight": 1}]}})
    } else {
        json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    };
    let name = format!("{namespace}-{color}-{i}");
    pod(&name, namespace, &json!({"color": color}), &small(), json!({"affinity": affinity}))
}

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

fn apart(i: usize, namespace: &str) -> Value {
    near(i, namespace, "podAntiAffinity", ["green", HOST], false)
}

fn together(i: usize, namespace: &str) -> Value {
    near(i, namespace, "podAffinity", ["blue", ZONE], false)
}

fn rather_together(i: usize, namespace: &str) -> Value {
    near(i, namespace, "podAffinity", ["red", HOST], true)
}

fn rather_apart(i: usize, namespace: &str) -> Value {
    near(i, namespace, "podAntiAffinity", ["yellow", HOST], true)
}

fn spread(i: usize, when: &str) -> Value {
    let rule = json!({
        "maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"color": "blue"}},
    });
    let labels = json!({"color": "blue"});
    let rules = json!({"topologySpreadConstraints": [rule]});
    pod(&format!("spreading-{i}"), "default", &labels, &small(), rules)
}

fn low(i: usize) -> Value {
    let requests = json!({"cpu": "900m", "memory": "500Mi"});
    pod(&format!("low-{i}"), "default", &json!({}), &requests, json!({}))
}

fn high(i: usize) -> Value {
    let requests = json!({"cpu": "3000m", "memory": "500Mi"});
    pod(&format!("high-{i}"), "default", &json!({}), &requests, json!({"priority": 10}))
}

fn large(i: usize) -> Value {
    let requests = json!({"cpu": "9", "memory": "500Mi"});
    pod(&format!("large-{i}"), "default", &json!({}), &requests, json!({"priority": 10}))
}

const MOONS: &[&str] = &["moon-1", "moon-2", "moon-3"];

/// All of them.
pub(crate) const WORKLOADS: [Workload; 9] = [
    Workload {
        name: "SchedulingBasic/5000Nodes_10000Pods",
        nodes: 5000,
        zones: &[],
        initial: (1000, plain),
        measured: (10_000, |i| plain(i + 1000)),
        churn: None,
        upstream: Some(173.0),
    },
    Workload {
        name: "SchedulingPodAntiAffinity/5000Nodes_2000Pods",
        nodes: 5000,
        zones: &[],
        initial: (1000, |i| apart(i, "sched-0")),
        measured: (2000, |i| apart(i, "sched-1")),
        churn: None,
        upstream: Some(61.0),
    },
    Workload {
        name: "SchedulingPodAffinity/5000Nodes_5000Pods",
        nodes: 5000,
        zones: &["zone1"],
        initial: (5000, |i| together(i, "sched-0")),
        measured: (5000, |i| together(i, "sched-1")),
        churn: None,
        upstream: Some(35.0),
    },
    Workload {
        name: "SchedulingPreferredPodAffinity/5000Nodes_5000Pods",
        nodes: 5000,
        zones: &[],
        initial: (5000, |i| rather_together(i, "sched-0")),
        measured: (5000, |i| rather_together(i, "sched-1")),
        churn: None,
        upstream: None,
    },
    Workload {
        name: "SchedulingPreferredPodAntiAffinity/5000Nodes_5000Pods",
        nodes: 5000,
        zones: &[],
        initial: (5000, |i| rather_apart(i, "sched-0")),
        measured: (5000, |i| rather_apart(i, "sched-1")),
        churn: None,
        upstream: None,
    },
    Workload {
        name: "TopologySpreading/5000Nodes_5000Pods",
        nodes: 5000,
        zones: MOONS,
        initial: (5000, plain),
        measured: (5000, |i| spread(i, "DoNotSchedule")),
        churn: None,
        upstream: Some(136.0),
    },
    Workload {
        name: "PreferredTopologySpreading/5000Nodes_5000Pods",
        nodes: 5000,
        zones: MOONS,
        initial: (5000, plain),
        measured: (5000, |i| spread(i, "ScheduleAnyway")),
        churn: None,
        upstream: Some(165.0),
    },
    Workload {
        name: "Unschedulable/5000Nodes/200Init/5000Pods",
        nodes: 5000,
        zones: &[],
        initial: (200, plain),
        measured: (5000, |i| plain(i + 200)),
        churn: Some(large),
        upstream: None,
    },
    Workload {
        name: "PreemptionBasic/1000Nodes",
        nodes: 1000,
        zones: &[],
        initial: (4000, low),
        measured: (1000, high),
        churn: None,
        upstream: None,
    },
];

/// A node of a workload.
pub(crate) fn node(i: usize, zones: &[&str]) -> Value {
    let name = format!("scheduler-perf-{i}");
    let mut labels = json!({HOST: name});
    if let Some(zone) = zones.get(i % zones.len().max(1)) {
        labels[ZONE] = json!(zone);
    }
    let room = json!({"pods": "110", "cpu": "4", "memory": "32Gi"});
    json!({
        "metadata": {"name": name, "labels": labels}, "spec": {},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}
