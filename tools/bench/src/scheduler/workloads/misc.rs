//! Pods that differ in little (upstream's `misc`).

use std::time::Duration;

use serde_json::{Value, json};

use super::objects::{
    HOST, asking, gated, important, labelled, light, measured, must, node, node_for, on_nodes, plain,
    service, term, with,
};
use super::{Step, Workload};

/// The node that some workloads have alone.
fn alone(_: usize) -> Value {
    node_for("scheduler-perf-node", 90_000)
}

fn of_daemon_set(i: usize) -> Value {
    on_nodes(
        light("default", &format!("daemonset-{i}")),
        "matchFields",
        "metadata.name",
        &["scheduler-perf-node"],
    )
}

pub(super) fn low(i: usize) -> Value {
    asking("default", &format!("low-{i}"), &json!({"cpu": "900m", "memory": "500Mi"}))
}

pub(super) fn high(i: usize) -> Value {
    important(asking("default", &format!("high-{i}"), &json!({"cpu": "3000m", "memory": "500Mi"})), 10)
}

/// A Pod that no node can take.
fn large(i: usize) -> Value {
    important(asking("default", &format!("large-{i}"), &json!({"cpu": "9", "memory": "500Mi"})), 10)
}

fn empty_node(i: usize) -> Value {
    node_for(&format!("node-churn-{i}"), 0)
}

fn churned_service(i: usize) -> Value {
    service("default", &format!("service-churn-{i}"), "foo")
}

fn held(i: usize) -> Value {
    gated(light("default", &format!("gated-{i}")))
}

fn held_near(i: usize) -> Value {
    let near = term(["app", "scheduler-perf"], HOST, &[]);
    labelled(must(held(i), "podAffinity", near), json!({"app": "scheduler-perf"}))
}

fn passing(i: usize) -> Value {
    light("default", &format!("passing-{i}"))
}

fn light_measured(i: usize) -> Value {
    light("default", &format!("light-{i}"))
}

fn app(i: usize) -> Value {
    labelled(light_measured(i), json!({"app": "scheduler-perf"}))
}

fn with_finalizer(i: usize) -> Value {
    let pod = light("default", &format!("finalized-{i}"));
    with(pod, "metadata/finalizers", json!(["test.k8s.io/finalizer"]))
}

fn extended(i: usize) -> String {
    format!("foo.com/bar-{i}")
}

fn node_with_extended(i: usize) -> Value {
    let node = with(
        node(i),
        "status/capacity",
        json!({"pods": "110", "cpu": "4", "memory": "32Gi", extended(i): "1"}),
    );
    let room = node["status"]["capacity"].clone();
    with(node, "status/allocatable", room)
}

fn pod_with_extended(i: usize) -> Value {
    asking("default", &format!("test-extended-resource-{i}"), &json!({extended(i): "1"}))
}

const FIFTH: Duration = Duration::from_millis(200);
const SECOND: Duration = Duration::from_secs(1);

pub(super) const ALL: &[Workload] = &[
    Workload::new(
        "SchedulingBasic/5000Nodes_10000Pods",
        &[Step::Make(5000, node), Step::Place(1000, plain), Step::Measure, Step::Place(10_000, measured)],
    )
    .floor(270)
    .upstream(173),
    Workload::new(
        "SchedulingBasic/5000Nodes_50000Pods",
        &[Step::Make(5000, node), Step::Place(5000, plain), Step::Measure, Step::Place(50_000, measured)],
    ),
    Workload::new(
        "SchedulingDaemonset/15000Nodes",
        &[Step::Make(1, alone), Step::Make(15_000, node), Step::Measure, Step::Place(30_000, of_daemon_set)],
    )
    .floor(390),
    Workload::new(
        "PreemptionBasic/1000Nodes",
        &[Step::Make(1000, node), Step::Place(4000, low), Step::Measure, Step::Place(1000, high)],
    ),
    Workload::new(
        "PreemptionAsync/5000Nodes",
        &[
            Step::Make(5000, node),
            Step::Place(20_000, low),
            Step::Churn(FIFTH, &[high]),
            Step::Measure,
            Step::Place(5000, measured),
        ],
    )
    .floor(160),
    Workload::new(
        "Unschedulable/5kNodes/100Init/10kPods",
        &[
            Step::Make(5000, node),
            Step::Place(100, plain),
            Step::Churn(FIFTH, &[large]),
            Step::Measure,
            Step::Place(10_000, measured),
        ],
    )
    .floor(170),
    Workload::new(
        "Unschedulable/5kNodes/20kInit/10kPods",
        &[
            Step::Make(5000, node),
            Step::Place(20_000, plain),
            Step::Churn(FIFTH, &[large]),
            Step::Measure,
            Step::Place(10_000, measured),
        ],
    ),
    Workload::new(
        "SchedulingWithMixedChurn/5000Nodes_10000Pods",
        &[
            Step::Make(5000, node),
            Step::Recreate(SECOND, &[empty_node, large, churned_service]),
            Step::Measure,
            Step::Place(10_000, measured),
        ],
    )
    .floor(265),
    Workload::new(
        "SchedulingWhileGated/1Node_10000GatedPods",
        &[
            Step::Make(1, alone),
            Step::Make(10_000, held),
            Step::Place(20_000, passing),
            Step::Delete(20_000, 50, passing),
            Step::Measure,
            Step::Place(20_000, light_measured),
        ],
    )
    .floor(130),
    Workload::new(
        "SchedulingGatedPodsWithPodAffinityImpactForThroughput/1Node_10000GatedPods",
        &[Step::Make(1, alone), Step::Make(10_000, held_near), Step::Measure, Step::Place(20_000, app)],
    )
    .floor(110),
    Workload::new(
        "SchedulingDeletedPodsWithFinalizers/5000Node_5000DeletingPods",
        &[
            Step::Make(5000, node),
            Step::Make(5000, with_finalizer),
            Step::Delete(5000, 100, with_finalizer),
            Step::Measure,
            Step::Place(5000, light_measured),
        ],
    ),
    Workload::new(
        "SchedulingWithExtendedResource/5000pods_5000nodes_DRAExtendedResourceEnabled",
        &[Step::Make(5000, node_with_extended), Step::Measure, Step::Place(5000, pod_with_extended)],
    ),
];
