//! Upstream's cases of TaintToleration (`taint_toleration_test.go`, v1.36.2), by the names of its tests.

use std::sync::Arc;

use api::{FeatureGates, Gate};
use k8s_openapi::api::core::v1::{Node, Pod};
use objects::taints::Tolerance;
use serde_json::{Value, json};

use super::node::taint_toleration;
use crate::cache::{Cache, NodeInfo};
use crate::events::{About, Events, Happening, Pair};
use crate::framework::points::Cycle;
use crate::framework::state::State;
use crate::pod::PodInfo;

const PREFER: &str = "PreferNoSchedule";

fn rule(compares: bool) -> Tolerance {
    Tolerance::of(FeatureGates::default().with(Gate::TaintTolerationComparisonOperators, compares))
}

/// A node with taints: key, value, effect.
fn tainted(taints: &[[&str; 3]]) -> Node {
    let taints: Vec<Value> =
        taints.iter().map(|[k, v, e]| json!({"key": k, "value": v, "effect": e})).collect();
    serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}})).unwrap()
}

/// A Pod with tolerations: key, operator, value, effect.
fn tolerant(tolerations: &[[&str; 4]]) -> PodInfo {
    let each = tolerations
        .iter()
        .map(|[k, o, v, e]| json!({"key": k, "operator": o, "value": v, "effect": e}))
        .collect::<Vec<_>>();
    let pod: Pod = serde_json::from_value(
        json!({"metadata": {"uid": "u"}, "spec": {"containers": [], "tolerations": each}}),
    )
    .unwrap();
    PodInfo::new(pod)
}

/// `TestTaintTolerationFilter` and `TestTaintTolerationFilterWithFeatureGate`.
#[test]
fn filter() {
    let check = |compares: bool, tolerations: &[[&str; 4]], taints: &[[&str; 3]], fits: bool| {
        let plugin = taint_toleration(rule(compares));
        let (pod, cluster, node) =
            (tolerant(tolerations), Cache::default(), NodeInfo::new(Arc::new(tainted(taints))));
        let cycle = Cycle { pod: &pod, cluster: &cluster, state: State::default() };
        let got = plugin.points.filter.unwrap().filter(&cycle, &node).err();
        let got = got.map(|r| (r.unresolvable, r.reasons));
        let refusal = (true, vec!["node(s) had untolerated taint(s)".into()]);
        assert_eq!(got, (!fits).then_some(refusal), "{compares} {tolerations:?} {taints:?}");
    };
    let user = |name| [["dedicated", name, "NoSchedule"]];
    check(false, &[], &user("user1"), false);
    check(false, &[["dedicated", "", "user1", "NoSchedule"]], &user("user1"), true);
    check(false, &[["dedicated", "Equal", "user2", "NoSchedule"]], &user("user1"), false);
    let foo = [["foo", "bar", "NoSchedule"]];
    check(false, &[["foo", "Exists", "", "NoSchedule"]], &foo, true);
    let two = [["dedicated", "Equal", "user2", "NoSchedule"], ["foo", "Exists", "", "NoSchedule"]];
    check(false, &two, &[user("user2")[0], foo[0]], true);
    check(false, &[["foo", "Equal", "bar", PREFER]], &foo, false);
    check(false, &[["foo", "Equal", "bar", ""]], &foo, true);
    let prefers = [["dedicated", "user1", PREFER]];
    check(false, &[["dedicated", "Equal", "user2", "NoSchedule"]], &prefers, true);
    check(false, &[], &prefers, true);
    for (operator, wanted, has, fits) in [
        ("Gt", "950", "800", false),
        ("Gt", "750", "950", true),
        ("Lt", "800", "950", false),
        ("Lt", "950", "800", true),
        ("Gt", "950", "high", false),
    ] {
        let key = "node.kubernetes.io/sla";
        check(true, &[[key, operator, wanted, "NoSchedule"]], &[[key, has, "NoSchedule"]], fits);
        check(false, &[[key, operator, wanted, "NoSchedule"]], &[[key, has, "NoSchedule"]], false);
    }
    let sla = "node.kubernetes.io/sla";
    let mixed = [["dedicated", "Equal", "user1", "NoSchedule"], [sla, "Gt", "750", "NoSchedule"]];
    check(false, &mixed, &user("user1"), true);
    check(false, &mixed, &[user("user1")[0], [sla, "950", "NoSchedule"]], false);
}

/// `TestTaintTolerationScore`.
#[test]
fn score() {
    let check = |compares: bool, tolerations: &[[&str; 4]], nodes: &[&[[&str; 3]]], want: &[i64]| {
        let plugin = taint_toleration(rule(compares)).points.score.unwrap();
        let (pod, cluster) = (tolerant(tolerations), Cache::default());
        let cycle = Cycle { pod: &pod, cluster: &cluster, state: State::default() };
        let mut scores: Vec<i64> = nodes
            .iter()
            .map(|taints| plugin.score(&cycle, &NodeInfo::new(Arc::new(tainted(taints)))).unwrap())
            .collect();
        let all: Vec<usize> = (0..nodes.len()).collect();
        plugin.normalize(&cycle, &all, &mut scores);
        assert_eq!(scores, want, "{compares} {tolerations:?} {nodes:?}");
    };
    let foo = [["foo", "Equal", "bar", PREFER]];
    check(false, &foo, &[&[["foo", "bar", PREFER]], &[["foo", "blah", PREFER]]], &[100, 0]);
    let (arm, ssd) = (["cpu-type", "arm64", PREFER], ["disk-type", "ssd", PREFER]);
    let both = [["cpu-type", "Equal", "arm64", PREFER], ["disk-type", "Equal", "ssd", PREFER]];
    check(false, &both, &[&[], &[arm], &[arm, ssd]], &[100, 100, 100]);
    check(false, &foo, &[&[], &[arm], &[arm, ssd]], &[100, 50, 0]);
    let hard = [["cpu-type", "Equal", "arm64", "NoSchedule"], ["disk-type", "Equal", "ssd", "NoSchedule"]];
    check(false, &hard, &[&[], &[["cpu-type", "arm64", "NoSchedule"]], &[arm, ssd]], &[100, 100, 0]);
    check(false, &[], &[&[], &[arm]], &[100, 0]);
    let sla = |value| ["node.kubernetes.io/sla", value, PREFER];
    let wants = |operator, value| [["node.kubernetes.io/sla", operator, value, PREFER]];
    check(true, &wants("Gt", "950"), &[&[sla("800")], &[sla("999")]], &[0, 100]);
    check(true, &wants("Lt", "800"), &[&[sla("950")], &[sla("700")]], &[0, 100]);
    check(false, &wants("Lt", "800"), &[&[sla("950")], &[sla("700")]], &[0, 0]);
}

/// A node whose taint gets another number wakes a Pod exactly if the Pod tolerates that one, and not the one before.
#[test]
fn numbers_wake_pods() {
    let check = |compares: bool, before: &str, after: &str, want: bool| {
        let hint = taint_toleration(rule(compares)).hint.unwrap();
        let node = |value| Arc::new(tainted(&[["sla", value, "NoExecute"]]));
        let pair = Pair { old: Some(node(before)), new: Some(node(after)) };
        let what = Happening::new(Events::NODE_TAINTS, About::Node(pair));
        let pod = tolerant(&[["sla", "Gt", "750", ""]]);
        assert_eq!(hint.lifts(&pod, &what, &Cache::default()), Ok(want), "{compares} {before} {after}");
    };
    check(true, "700", "800", true);
    check(true, "800", "900", false);
    check(true, "700", "750", false);
    check(true, "800", "700", false);
    check(false, "700", "800", false);
}
