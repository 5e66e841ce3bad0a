//! Pods that wait for something, and what they wait for (upstream's `event_handling`). Most of their time is the pace of
//! the changes.

use serde_json::{Value, json};

use super::objects::{
    HOST, ZONE, asking, gated, labelled, light, marked, must, namespace, node, node_for, node_of, on_nodes,
    spread, term, tolerant, with,
};
use super::volumes::{claim, csi, csi_node, volume, with_claim};
use super::{Change, Step, Workload};

/// A change a second.
const PACE: usize = 100;
const STRICT: &str = "DoNotSchedule";
const NEAR: &str = "podAffinity";
const AWAY: &str = "podAntiAffinity";

/// The namespaces of all these workloads.
fn space(i: usize) -> Value {
    const NAMES: [&str; 12] = [
        "blockertopology",
        "blockeraffinity",
        "nodeports",
        "noderesources",
        "nodevolumelimits",
        "interpodaffinity",
        "nodeunschedulable",
        "tainttoleration",
        "blocker",
        "schedulinggates",
        "nodeaffinity",
        "podtopologyspread",
    ];
    namespace(NAMES[i % NAMES.len()], &json!({}))
}
const SPACES: Step = Step::Make(12, space);

/// A Pod that asks for this without a limit.
fn wanting(namespace: &str, name: &str, cpu: &str, memory: &str) -> Value {
    let pod = asking(namespace, name, &json!({"cpu": cpu, "memory": memory}));
    let mut container = pod["spec"]["containers"][0].clone();
    if let Some(resources) = container["resources"].as_object_mut() {
        resources.remove("limits");
    }
    with(pod, "spec/containers", json!([container]))
}

/// A Pod that is spread where so many places at least are wanted.
fn spread_wide(pod: Value, skew: u32, least: u32, key: &str, label: [&str; 2]) -> Value {
    let mut pod = spread(pod, skew, key, STRICT, label);
    pod["spec"]["topologySpreadConstraints"][0]["minDomains"] = json!(least);
    pod
}

fn with_port(mut pod: Value, i: usize) -> Value {
    let port: u32 = format!("8{}", i % 12).parse().unwrap_or(80);
    pod["spec"]["containers"][0]["ports"] = json!([{"hostPort": port, "containerPort": port}]);
    pod
}

/// A Pod after its claim and the volume of that.
fn with_volume(namespace: &str, pod: Value, i: usize, mode: &str) -> Value {
    let (of, name) = (format!("pvc-{i}"), format!("{namespace}-vol-{i}"));
    let volume = volume(&name, [namespace, &of], mode, "csi", csi(&name));
    json!([claim(namespace, &of, &name, mode), volume, with_claim(pod, &of)])
}

fn twenty_volumes(i: usize) -> Value {
    csi_node(i, 20, "")
}

const BLOCKED_BY: &str = "blockertopology";

fn topology_blocker(i: usize) -> Value {
    let pod = with_port(wanting(BLOCKED_BY, &format!("pod-blocker-topology-{i}"), "350m", "3Gi"), i);
    spread_wide(pod, 10, 10_000, HOST, ["topology", "blue"])
}

fn affinity_blocker(i: usize) -> Value {
    labelled(light("blockeraffinity", &format!("pod-blocker-affinity-{i}")), json!({"color": "green"}))
}

fn behind_topology(i: usize) -> Value {
    spread_wide(light(BLOCKED_BY, &format!("pod-unsched-{i}")), 11, 10_000, HOST, ["topology", "blue"])
}

fn behind_claim(i: usize) -> Value {
    with_claim(light("blockeraffinity", &format!("pod-unsched-{i}")), &format!("pvc-{i}"))
}

fn behind_port(i: usize) -> Value {
    with_port(light("nodeports", &format!("pod-unsched-{i}")), i)
}

fn behind_requests(i: usize) -> Value {
    wanting("noderesources", &format!("pod-unsched-{i}"), "200m", "1Gi")
}

fn behind_limit(i: usize) -> Value {
    light("nodevolumelimits", &format!("pod-unsched-{i}"))
}

fn behind_affinity(i: usize) -> Value {
    let pod = labelled(light("interpodaffinity", &format!("pod-unsched-{i}")), json!({"color": "green"}));
    must(pod, AWAY, term(["color", "green"], HOST, &["blockeraffinity"]))
}

const POD_DELETE: &[Step] = &[
    Step::Make(50, node),
    Step::Make(50, twenty_volumes),
    SPACES,
    Step::Place(480, |i| with_volume(BLOCKED_BY, topology_blocker(i), i, "ReadOnlyMany")),
    Step::Place(480, |i| with_volume("blockeraffinity", affinity_blocker(i), i, "ReadWriteOncePod")),
    Step::Measure,
    Step::Leave(500, behind_topology),
    Step::Leave(480, behind_claim),
    Step::Leave(500, behind_port),
    Step::Leave(500, behind_requests),
    Step::Leave(480, |i| with_volume("nodevolumelimits", behind_limit(i), i, "ReadOnlyMany")),
    Step::Leave(500, behind_affinity),
    Step::Tried,
    Step::Delete(480, PACE, topology_blocker),
    Step::Delete(480, PACE, affinity_blocker),
    Step::Bound,
];

fn unschedulable(node: Value) -> Value {
    with(node, "spec/unschedulable", json!(true))
}

/// One Pod of so many whose memory is almost that of a node together.
fn thousandth(namespace: &str, name: &str) -> Value {
    wanting(namespace, name, "1m", "30Mi")
}

fn blocker(i: usize) -> Value {
    let labels = json!({"color": format!("green-{i}"), "topology": "blue"});
    labelled(thousandth("blocker", &format!("pod-blocker-{i}")), labels)
}

/// Names a Pod that is changed.
fn changed(namespace: &str, name: &str, i: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": format!("{name}-{i}")}})
}

fn without_labels(i: usize) -> Value {
    with(changed("blocker", "pod-blocker", i), "metadata/labels", json!({"color": null, "topology": null}))
}

fn scaled_down(i: usize) -> Value {
    let resources = json!({"requests": {"cpu": "1m", "memory": "1Mi"}});
    with(
        changed("blocker", "pod-blocker", i),
        "spec/containers",
        json!([{"name": "pause", "resources": resources}]),
    )
}

fn gone_gate(i: usize) -> Value {
    with(changed("schedulinggates", "pod-schedulinggates", i), "spec/schedulingGates", Value::Null)
}

fn away_from_blocker(i: usize) -> Value {
    let color = format!("green-{i}");
    let pod =
        labelled(light("interpodaffinity", &format!("pod-interpodaffinity-{i}")), json!({"color": color}));
    must(pod, AWAY, term(["color", &color], HOST, &["blocker"]))
}

const CORDONED: &str = "node.kubernetes.io/unschedulable";

const POD_UPDATE: &[Step] = &[
    SPACES,
    Step::Measure,
    Step::Make(1, |_| unschedulable(node_for("unschedulable-node", 90_000))),
    Step::Leave(1000, |i| light("nodeunschedulable", &format!("pod-nodeunschedulable-{i}"))),
    Step::Make(1, |_| marked(node_for("node-with-taint", 90_000), json!({}), &["toleration"])),
    Step::Leave(1000, |i| light("tainttoleration", &format!("pod-tainttoleration-{i}"))),
    Step::Tried,
    Step::Update(1000, PACE, Change::Object, |i| {
        tolerant(changed("nodeunschedulable", "pod-nodeunschedulable", i), CORDONED)
    }),
    Step::Update(1000, PACE, Change::Object, |i| {
        tolerant(changed("tainttoleration", "pod-tainttoleration", i), "toleration")
    }),
    Step::Bound,
    Step::Make(1, |_| node_for("scheduler-perf-node", 90_000)),
    Step::Place(1000, blocker),
    Step::Leave(1000, away_from_blocker),
    Step::Leave(1000, |i| thousandth("noderesources", &format!("pod-noderesources-{i}"))),
    Step::Leave(1000, |i| {
        let pod = light("blocker", &format!("pod-podtopologyspread-{i}"));
        spread_wide(pod, 1000, 100, HOST, ["topology", "blue"])
    }),
    Step::Leave(1000, |i| gated(light("schedulinggates", &format!("pod-schedulinggates-{i}")))),
    Step::Tried,
    Step::Update(1000, PACE, Change::Object, without_labels),
    Step::Update(1000, PACE, Change::Resize, scaled_down),
    Step::Update(1000, PACE, Change::Object, gone_gate),
    Step::Bound,
];

fn kept(name: &str, i: usize, taint: &str) -> Value {
    marked(node_for(&format!("{name}-{i}"), 3000), json!({}), &[taint])
}

fn labels() -> Value {
    json!({ZONE: "zone1", "affinity": "allow", "topology": "allow"})
}

fn sized(name: &str, i: usize, taint: &str, cpu: &str, memory: &str) -> Value {
    let room = json!({"pods": "3000", "cpu": cpu, "memory": memory});
    marked(node_of(&format!("{name}-{i}"), &room), json!({}), &[taint])
}

fn allowed(namespace: &str, i: usize) -> Value {
    tolerant(light(namespace, &format!("pod-unsched-{i}")), "allow")
}

fn near_itself(i: usize) -> Value {
    must(
        labelled(allowed("interpodaffinity", i), json!({"color": "green"})),
        NEAR,
        term(["color", "green"], ZONE, &[]),
    )
}

fn on_allowing(i: usize) -> Value {
    on_nodes(allowed("nodeaffinity", i), "matchExpressions", "affinity", &["allow"])
}

fn over_topology(i: usize, skew: u32, least: u32) -> Value {
    spread_wide(allowed("podtopologyspread", i), skew, least, "topology", ["color", "blue"])
}

const NODE_ADD: &[Step] = &[
    SPACES,
    Step::Measure,
    Step::Make(1, |i| unschedulable(marked(kept("node-unschedulable", i, "allow"), labels(), &["allow"]))),
    Step::Leave(1000, |i| allowed("nodeunschedulable", i)),
    Step::Tried,
    Step::Make(1, |i| sized("node-low-capacity", i, "allow", "100m", "100Mi")),
    Step::Leave(1000, |i| {
        tolerant(wanting("noderesources", &format!("pod-unsched-{i}"), "200m", "200Mi"), "allow")
    }),
    Step::Tried,
    Step::Make(100, |i| sized("node-high-capacity", i, "allow", "200", "200Gi")),
    Step::Bound,
    Step::Leave(1000, near_itself),
    Step::Leave(1000, on_allowing),
    Step::Leave(1000, |i| over_topology(i, 1000, 10_000)),
    Step::Tried,
    Step::Make(100, |i| marked(kept("node-unblocker", i, "allow"), labels(), &["allow"])),
    Step::Bound,
    Step::Leave(1000, |i| tolerant(light("tainttoleration", &format!("pod-unsched-{i}")), "toleration")),
    Step::Tried,
    Step::Make(100, |i| kept("node-with-taint", i, "toleration")),
    Step::Bound,
];

const TOPOLOGY: &str = "podtopologyspread";

fn green(i: usize) -> Value {
    labelled(light(TOPOLOGY, &format!("pod-with-label-{i}")), json!({"color": "green"}))
}

fn over_two(i: usize) -> Value {
    let pod =
        spread(light(TOPOLOGY, &format!("pod-podtopologyspread-{i}")), 1, HOST, STRICT, ["topology", "blue"]);
    must(pod, AWAY, term(["color", "green"], HOST, &[TOPOLOGY]))
}

fn near_its_own(i: usize) -> Value {
    let pod = light("interpodaffinity", &format!("pod-interpodaffinity-{i}"));
    must(pod, NEAR, term(["color", &format!("yellow-{i}")], HOST, &["interpodaffinity"]))
}

fn topology_helper(i: usize) -> Value {
    let pod = light(TOPOLOGY, &format!("pod-unblocker-topology-{i}"));
    let pod = labelled(pod, json!({"topology": "blue", "color": "green"}));
    must(pod, NEAR, term(["color", "green"], HOST, &[TOPOLOGY]))
}

fn affinity_helper(i: usize) -> Value {
    let pod = light("interpodaffinity", &format!("pod-unblocker-affinity-{i}"));
    labelled(pod, json!({"color": format!("yellow-{i}")}))
}

const POD_ADD: &[Step] = &[
    SPACES,
    Step::Make(2, |i| node_for(&format!("scheduler-perf-{i}"), 3000)),
    Step::Place(1, green),
    Step::Measure,
    Step::Leave(1000, over_two),
    Step::Leave(1000, near_its_own),
    Step::Tried,
    Step::Place(1000, topology_helper),
    Step::Place(1000, affinity_helper),
    Step::Bound,
];

/// Names a node that is changed.
fn renewed(name: &str, i: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("{name}-{i}")}})
}

fn with_room(i: usize) -> Value {
    let room = json!({"pods": "3000", "cpu": "4", "memory": "32Gi"});
    with(renewed("node-low-capacity", i), "status", json!({"capacity": room, "allocatable": room}))
}

fn with_taint(i: usize) -> Value {
    let taint = json!([{"key": format!("toleration-{i}"), "effect": "NoSchedule"}]);
    with(renewed("node-without-taints", i), "spec/taints", taint)
}

fn tolerating_one(i: usize) -> Value {
    tolerant(light("tainttoleration", &format!("pod-unsched-{i}")), &format!("toleration-{}", i / 10))
}

const NARROW: &str = "allow-noderesources";

const NODE_UPDATE: &[Step] = &[
    SPACES,
    Step::Measure,
    Step::Make(100, |i| unschedulable(kept("node-unschedulable", i, "allow"))),
    Step::Leave(1000, |i| allowed("nodeunschedulable", i)),
    Step::Tried,
    Step::Update(100, PACE, Change::Object, |i| {
        let node = with(renewed("node-unschedulable", i), "spec/unschedulable", Value::Null);
        with(node, "spec/taints", json!([{"key": "allow", "effect": "NoSchedule"}]))
    }),
    Step::Bound,
    Step::Make(100, |i| sized("node-low-capacity", i, NARROW, "1m", "1Mi")),
    Step::Leave(1000, |i| {
        tolerant(wanting("noderesources", &format!("pod-unsched-{i}"), "350m", "3Gi"), NARROW)
    }),
    Step::Tried,
    Step::Update(100, PACE, Change::Status, with_room),
    Step::Bound,
    Step::Make(100, |i| kept("node-without-labels", i, "allow")),
    Step::Leave(1000, near_itself),
    Step::Leave(1000, on_allowing),
    Step::Leave(1000, |i| over_topology(i, 1, 1)),
    Step::Tried,
    Step::Update(100, PACE, Change::Object, |i| {
        with(renewed("node-without-labels", i), "metadata/labels", labels())
    }),
    Step::Bound,
    Step::Make(100, |i| kept("node-without-taints", i, "allow")),
    Step::Leave(1000, tolerating_one),
    Step::Tried,
    Step::Update(100, PACE, Change::Object, with_taint),
    Step::Bound,
];

pub(super) const ALL: &[Workload] = &[
    Workload::new("EventHandlingPodDelete/50Nodes_500Pods", POD_DELETE),
    Workload::new("EventHandlingPodUpdate/1Node_1000Pods", POD_UPDATE),
    Workload::new("EventHandlingNodeAdd/100Nodes_1000Pods", NODE_ADD),
    Workload::new("EventHandlingPodAdd/1000Pods", POD_ADD),
    Workload::new("EventHandlingNodeUpdate/100Nodes_1000Pods", NODE_UPDATE),
];
