//! Pods that are spread, and nodes that say what they can (upstream's `topology_spreading` and `nodedeclaredfeatures`).

use serde_json::{Value, json};

use super::objects::{
    HOST, ZONE, in_zones, labelled, light, marked, namespace, node, node_for, node_of, plain, pod, service,
    spread, with,
};
use super::{Step, Workload};

fn in_moons(i: usize) -> Value {
    in_zones(i, &["moon-1", "moon-2", "moon-3"])
}

fn over_zones(i: usize, when: &str) -> Value {
    spread(pod("default", &format!("spreading-{i}")), 5, ZONE, when, ["color", "blue"])
}

const SERVED: &str = "service-ns";

fn space(_: usize) -> Value {
    namespace(SERVED, &json!({}))
}

fn its_service(_: usize) -> Value {
    service(SERVED, "service", "scheduler-perf")
}

fn served(i: usize) -> Value {
    labelled(light(SERVED, &format!("pod-{i}")), json!({"app": "scheduler-perf"}))
}

fn tainted(i: usize) -> Value {
    marked(node_for(&format!("taint-node-{i}"), 110), json!({}), &["foo"])
}

fn over_fitting_nodes(i: usize) -> Value {
    let mut pod = spread(pod("default", &format!("spreading-{i}")), 1, HOST, "DoNotSchedule", ["foo", "bar"]);
    let rule = &mut pod["spec"]["topologySpreadConstraints"][0];
    rule["nodeAffinityPolicy"] = json!("Honor");
    rule["nodeTaintsPolicy"] = json!("Honor");
    pod
}

fn node_with_features(i: usize) -> Value {
    let room = json!({"cpu": "128", "memory": "16Gi", "pods": "110"});
    let mut features: Vec<String> = (1..=100).map(|n| format!("Feature{n}")).collect();
    features.sort();
    with(node_of(&format!("node-{i}"), &room), "status/declaredFeatures", json!(features))
}

fn with_whole_requests(name: &str, i: usize) -> Value {
    let pod = light("default", &format!("{name}-{i}"));
    with(pod, "spec/resources", json!({"requests": {"cpu": "100m", "memory": "200Mi"}}))
}

pub(super) const ALL: &[Workload] = &[
    Workload::new(
        "TopologySpreading/5000Nodes_5000Pods",
        &[
            Step::Make(5000, in_moons),
            Step::Place(5000, plain),
            Step::Measure,
            Step::Place(5000, |i| over_zones(i, "DoNotSchedule")),
        ],
    )
    .floor(85)
    .upstream(136),
    Workload::new(
        "PreferredTopologySpreading/5000Nodes_5000Pods",
        &[
            Step::Make(5000, in_moons),
            Step::Place(5000, plain),
            Step::Measure,
            Step::Place(5000, |i| over_zones(i, "ScheduleAnyway")),
        ],
    )
    .floor(125)
    .upstream(165),
    Workload::new(
        "DefaultTopologySpreading/5000Nodes_50000Pods",
        &[
            Step::Make(5000, in_moons),
            Step::Make(1, space),
            Step::Make(1, its_service),
            Step::Place(5000, plain),
            Step::Measure,
            Step::Place(50_000, served),
        ],
    ),
    Workload::new(
        "SchedulingWithNodeInclusionPolicy/5000Nodes",
        &[
            Step::Make(4000, node),
            Step::Make(1000, tainted),
            Step::Measure,
            Step::Place(4000, over_fitting_nodes),
        ],
    )
    .floor(68),
    Workload::new(
        "NodeDeclaredFeaturesEnabled/5000Nodes100DeclaredFeatures",
        &[
            Step::Make(5000, node_with_features),
            Step::Place(5000, |i| with_whole_requests("before", i)),
            Step::Measure,
            Step::Place(5000, |i| with_whole_requests("measured", i)),
        ],
    ),
];
