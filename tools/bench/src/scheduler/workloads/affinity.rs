//! Pods that are drawn to others or kept from them, and to nodes (upstream's `affinity`).

use serde_json::{Value, json};

use super::objects::{
    HOST, ZONE, in_zones, labelled, measured, must, namespace, node, on_nodes, plain, pod, should, term, with,
};
use super::{Step, Workload};

const AWAY: &str = "podAntiAffinity";
const NEAR: &str = "podAffinity";
/// The namespaces in which Pods are looked for by name.
const SPACES: &[&str] = &["sched-1", "sched-0"];

fn space(i: usize) -> Value {
    namespace(&format!("sched-{i}"), &json!({}))
}

fn zoned(i: usize) -> Value {
    in_zones(i, &["zone1"])
}

fn coloured(space: &str, color: &str, i: usize) -> Value {
    labelled(pod(space, &format!("{color}-{i}")), json!({"color": color}))
}

fn apart(space: &str, i: usize) -> Value {
    must(coloured(space, "green", i), AWAY, term(["color", "green"], HOST, SPACES))
}

fn together(space: &str, i: usize) -> Value {
    must(coloured(space, "blue", i), NEAR, term(["color", "blue"], ZONE, SPACES))
}

fn rather_together(space: &str, i: usize) -> Value {
    should(coloured(space, "red", i), NEAR, term(["color", "red"], HOST, SPACES))
}

fn rather_apart(space: &str, i: usize) -> Value {
    should(coloured(space, "yellow", i), AWAY, term(["color", "yellow"], HOST, SPACES))
}

fn in_one_of_two_zones(name: &str, i: usize) -> Value {
    on_nodes(pod("default", &format!("{name}-{i}")), "matchExpressions", ZONE, &["zone1", "zone2"])
}

/// A hundred namespaces of one team, and one for the Pods that are measured.
fn team(i: usize) -> Value {
    let name = if i < 100 { format!("init-ns-{i}") } else { "measure-ns-0".to_owned() };
    namespace(&name, &json!({"team": "devops"}))
}

/// A term that finds the Pods of a colour in all namespaces of the team.
fn in_team(color: &str, key: &str) -> Value {
    let term = term(["color", color], key, &[]);
    with(term, "namespaceSelector", json!({"matchLabels": {"team": "devops"}}))
}

/// The namespace of the team in which the Pod of a number is, each in turn.
fn of_team(i: usize) -> String {
    format!("init-ns-{}", i % 100)
}

const MEASURED: &str = "measure-ns-0";

fn apart_in_team(space: &str, i: usize) -> Value {
    must(coloured(space, "green", i), AWAY, in_team("green", HOST))
}

fn rather_apart_in_team(space: &str, i: usize) -> Value {
    should(coloured(space, "green", i), AWAY, in_team("green", HOST))
}

fn together_in_team(space: &str, i: usize) -> Value {
    must(coloured(space, "blue", i), NEAR, in_team("blue", ZONE))
}

fn rather_together_in_team(space: &str, i: usize) -> Value {
    should(coloured(space, "red", i), NEAR, in_team("red", HOST))
}

pub(super) const ALL: &[Workload] = &[
    Workload::new(
        "SchedulingPodAntiAffinity/5000Nodes_2000Pods",
        &[
            Step::Make(5000, node),
            Step::Make(2, space),
            Step::Place(1000, |i| apart("sched-0", i)),
            Step::Measure,
            Step::Place(2000, |i| apart("sched-1", i)),
        ],
    )
    .floor(60)
    .upstream(61),
    Workload::new(
        "SchedulingPodMatchingAntiAffinity/5000Nodes_5000Pods",
        &[
            Step::Make(5000, node),
            Step::Make(2, space),
            Step::Place(1000, |i| apart("sched-0", i)),
            Step::Measure,
            Step::Place(5000, |i| coloured("sched-1", "green", i)),
        ],
    )
    .floor(540),
    Workload::new(
        "SchedulingPodAffinity/5000Nodes_5000Pods",
        &[
            Step::Make(5000, zoned),
            Step::Make(2, space),
            Step::Place(5000, |i| together("sched-0", i)),
            Step::Measure,
            Step::Place(5000, |i| together("sched-1", i)),
        ],
    )
    .floor(35)
    .upstream(35),
    Workload::new(
        "SchedulingPreferredPodAffinity/5000Nodes_5000Pods",
        &[
            Step::Make(5000, node),
            Step::Make(2, space),
            Step::Place(5000, |i| rather_together("sched-0", i)),
            Step::Measure,
            Step::Place(5000, |i| rather_together("sched-1", i)),
        ],
    )
    .floor(90),
    Workload::new(
        "SchedulingPreferredPodAntiAffinity/5000Nodes_5000Pods",
        &[
            Step::Make(5000, node),
            Step::Make(2, space),
            Step::Place(5000, |i| rather_apart("sched-0", i)),
            Step::Measure,
            Step::Place(5000, |i| rather_apart("sched-1", i)),
        ],
    )
    .floor(90),
    Workload::new(
        "SchedulingNodeAffinity/5000Nodes_10000Pods",
        &[
            Step::Make(5000, zoned),
            Step::Place(5000, |i| in_one_of_two_zones("before", i)),
            Step::Measure,
            Step::Place(10_000, |i| in_one_of_two_zones("measured", i)),
        ],
    )
    .floor(220),
    Workload::new(
        "MixedSchedulingBasePod/5000Nodes_5000Pods",
        &[
            Step::Make(5000, zoned),
            Step::Make(2, space),
            Step::Place(2000, plain),
            Step::Place(2000, |i| together("sched-0", i)),
            Step::Place(2000, |i| apart("sched-0", i)),
            Step::Place(2000, |i| rather_together("sched-0", i)),
            Step::Place(2000, |i| rather_apart("sched-0", i)),
            Step::Measure,
            Step::Place(5000, measured),
        ],
    )
    .floor(140),
    Workload::new(
        "SchedulingRequiredPodAntiAffinityWithNSSelector/5000Nodes_2000Pods",
        &[
            Step::Make(6000, node),
            Step::Make(101, team),
            Step::Place(4000, |i| apart_in_team(&of_team(i), i)),
            Step::Measure,
            Step::Place(2000, |i| apart_in_team(MEASURED, i)),
        ],
    )
    .floor(24),
    Workload::new(
        "SchedulingPreferredAntiAffinityWithNSSelector/5000Nodes_2000Pods",
        &[
            Step::Make(5000, node),
            Step::Make(101, team),
            Step::Place(4000, |i| rather_apart_in_team(&of_team(i), i)),
            Step::Measure,
            Step::Place(2000, |i| rather_apart_in_team(MEASURED, i)),
        ],
    )
    .floor(55),
    Workload::new(
        "SchedulingRequiredPodAffinityWithNSSelector/5000Nodes_2000Pods",
        &[
            Step::Make(5000, zoned),
            Step::Make(101, team),
            Step::Place(5000, |i| together_in_team(&of_team(i), i)),
            Step::Measure,
            Step::Place(2000, |i| together_in_team(MEASURED, i)),
        ],
    )
    .floor(35),
    Workload::new(
        "SchedulingPreferredAffinityWithNSSelector/5000Nodes_5000Pods",
        &[
            Step::Make(5000, node),
            Step::Make(101, team),
            Step::Place(5000, |i| rather_together_in_team(&of_team(i), i)),
            Step::Measure,
            Step::Place(5000, |i| rather_together_in_team(MEASURED, i)),
        ],
    )
    .floor(90),
];
