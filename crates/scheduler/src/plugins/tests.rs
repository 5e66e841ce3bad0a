//! The filters that look at one node alone, and scores.

use std::sync::Arc;

use api::{FeatureGates, Gate};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use crate::cache::{Cache, NodeInfo};
use crate::config::defaults;
use crate::config::document::Document;
use crate::cycle::{Around, Decision, Part, decide};
use crate::framework::points::Cycle;
use crate::framework::profile::{Profile, profiles};
use crate::framework::verdict::Rejection;
use crate::kept::Keeper;
use crate::nominated::Nominated;
use crate::pod::PodInfo;

/// The default profile; tolerations compare numbers, too.
pub(crate) fn profile() -> Profile {
    profile_with(FeatureGates::default().with(Gate::TaintTolerationComparisonOperators, true))
}

/// The default profile with other features.
fn profile_with(gates: FeatureGates) -> Profile {
    let mut config = Document::default();
    defaults::complete(&mut config);
    profiles(&config, &super::registry_with(gates).unwrap())
        .unwrap()
        .remove(defaults::SCHEDULER_NAME)
        .unwrap()
}

/// The decision of the default profile; the first of equals is taken.
pub(crate) fn decided(pod: &PodInfo, cluster: &Cache) -> Decision {
    decided_with(pod, cluster, &Nominated::default(), &[])
}

/// The same by what was kept of other Pods.
pub(crate) fn decided_by(pod: &PodInfo, cluster: &Cache, keeper: &mut Keeper) -> Decision {
    let (profile, nominated) = (profile(), Nominated::default());
    let around =
        Around { profile: &profile, cluster, nominated: &nominated, budgets: &[], part: Part::default() };
    decide(pod, around, keeper, &mut |_| 0)
}

/// The same where Pods wait for room, and budgets keep Pods.
pub(crate) fn decided_with(
    pod: &PodInfo,
    cluster: &Cache,
    nominated: &Nominated,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Decision {
    let profile = profile();
    let around = Around { profile: &profile, cluster, nominated, budgets, part: Part::default() };
    decide(pod, around, &mut Keeper::default(), &mut |_| 0)
}

/// The total score of every node, whether it fits or not.
pub(crate) fn scores(pod: &PodInfo, cluster: &Cache) -> Result<Vec<i64>, String> {
    let profile = profile();
    let (mut kept, mut cycle) = Keeper::default().begin(pod, &profile, cluster);
    let all: Vec<usize> = (0..cluster.nodes().len()).collect();
    kept.score(&mut cycle, &profile, &all)
}

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
    let (profile, cluster) = (profile(), Cache::default());
    let mut cycle = Cycle { pod, cluster: &cluster, state: crate::framework::state::State::default() };
    for at in &profile.pre_filter {
        at.plugin.pre_filter(&mut cycle).unwrap();
    }
    profile.filter.iter().try_for_each(|at| at.plugin.filter(&cycle, node))
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
    let scores = scores(&one, &cache).unwrap();
    assert!(scores[1] > scores[0], "{scores:?}");
}

#[test]
fn says_why_nothing_fits() {
    let mut cache = Cache::default();
    for (name, cpu, taint) in [("a", "1", false), ("b", "1", false), ("c", "8", true)] {
        let taints = if taint { json!([{"key": "k", "effect": "NoSchedule"}]) } else { json!([]) };
        let node = serde_json::from_value(json!({
            "metadata": {"name": name}, "spec": {"taints": taints},
            "status": {"allocatable": {"cpu": cpu, "pods": "110"}}
        }));
        cache.set_node(Arc::new(node.unwrap()));
    }
    let asks = pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}));
    let Decision::Unschedulable(error, _) = decided(&asks, &cache) else { panic!("another decision") };
    assert_eq!(
        error.to_string(),
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. no new claims to \
         deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    );
    assert!(error.plugins().into_iter().eq(["NodeResourcesFit", "TaintToleration"]));
    let named = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]});
    let wants = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [named]}}});
    let asks = pod(
        json!({"affinity": wants, "containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}),
    );
    let Decision::Unschedulable(error, _) = decided(&asks, &cache) else { panic!("another decision") };
    let said = error.to_string();
    assert!(
        said.starts_with(
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
        ),
        "{said}"
    );
}
