//! Upstream's own cases of VolumeZone, VolumeRestrictions and NodeVolumeLimits (the tables of their tests, by the test's
//! name and the case's), with upstream's answers. One case a line, in `cases/`.
//!
//! DIFFERENCE: upstream's fake listers name resources in the plural where what they do not find is told; real ones, and
//! these cases, do not.

use std::sync::Arc;

use api::{FeatureGates, Gate};
use client::Change;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::cache::{Cache, NodeInfo};
use crate::cycle::{Decision, Help};
use crate::framework::plugin::Plugin;
use crate::framework::points::{Cycle, Prefiltered};
use crate::framework::state::State;
use crate::framework::verdict::Stop;
use crate::nominated::Nominated;
use crate::pod::PodInfo;
use crate::storage::News;

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn added<T: DeserializeOwned>(value: &Value) -> Change<T> {
    Change::Added(Arc::new(serde_json::from_value(value.clone()).unwrap()))
}

fn pod(said: &Value, uid: &str) -> PodInfo {
    let or = |field: &str, default: &str| said[field].as_str().unwrap_or(default).to_owned();
    let pod = json!({
        "metadata": {
            "name": or("name", uid), "namespace": or("namespace", "default"), "uid": or("uid", uid),
        },
        "spec": {"containers": [], "volumes": said["volumes"], "priority": said["priority"]},
    });
    PodInfo::new(serde_json::from_value(pod).unwrap())
}

/// The cluster of a case: one node.
fn cluster(case: &Value) -> Cache {
    let mut cache = Cache::default();
    let mut labels = case["labels"].clone();
    if labels.is_null() {
        labels = json!({});
    }
    let node =
        json!({"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": {"pods": "99"}}});
    cache.set_node(Arc::new(serde_json::from_value(node).unwrap()));
    let storage = cache.storage();
    for claim in list(&case["claims"]) {
        let mut claim = claim.clone();
        if claim["metadata"]["namespace"].is_null() {
            claim["metadata"]["namespace"] = json!("default");
        }
        storage.take(&News::Claim(added(&claim)));
    }
    for volume in list(&case["volumes"]) {
        storage.take(&News::Volume(added(volume)));
    }
    for class in list(&case["classes"]) {
        storage.take(&News::Class(added(class)));
    }
    if let Some(drivers) = case.get("drivers") {
        let node = json!({"metadata": {"name": "n"}, "spec": {"drivers": drivers}});
        storage.take(&News::CsiNode(added(&node)));
    }
    for driver in list(&case["installed"]) {
        storage.take(&News::Driver(added(driver)));
    }
    for (i, attached) in list(&case["attached"]).iter().enumerate() {
        storage.take(&News::Attachment(added(&json!({
            "metadata": {"name": format!("a{i}")},
            "spec": {
                "attacher": attached["attacher"], "nodeName": "n",
                "source": {"persistentVolumeName": attached["volume"]},
            },
        }))));
    }
    for (i, there) in list(&case["there"]).iter().enumerate() {
        cache.set_pod(pod(there, &format!("there-{i}")), "n");
    }
    cache
}

/// The answer of a plugin: "skip", the error or refusal before any node is looked at, the node's refusal, or "".
fn answer(plugin: &Plugin, case: &Value) -> String {
    let cache = cluster(case);
    let pod = pod(&case["pod"], "incoming");
    let mut cycle = Cycle { pod: &pod, cluster: &cache, state: State::default() };
    match plugin.points.pre_filter.as_ref().unwrap().pre_filter(&mut cycle) {
        Ok(Prefiltered::Skip) => return "skip".to_owned(),
        Ok(_) => {}
        Err(Stop::Error(why)) => return format!("error: {why}"),
        Err(Stop::Rejected(r)) => {
            assert!(r.unresolvable, "{case}");
            return format!("stopped: {}", r.reasons.join(", "));
        }
    }
    let node: &NodeInfo = cache.node("n").unwrap();
    match plugin.points.filter.as_ref().unwrap().filter(&cycle, node) {
        Ok(()) => String::new(),
        Err(r) => {
            let code = if r.unresolvable { "unresolvable" } else { "unschedulable" };
            format!("{code}: {}", r.reasons.join(", "))
        }
    }
}

fn check(plugin: &Plugin, cases: &str, at_least: usize) {
    let all: Vec<Value> = cases.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(all.len() >= at_least, "{} cases", all.len());
    for case in all {
        assert_eq!(answer(plugin, &case), case["expected"].as_str().unwrap(), "{case}");
    }
}

#[test]
fn volume_zone_as_upstream() {
    check(&volume_zone::plugin(), include_str!("cases/volume_zone.jsonl"), 24);
}

#[test]
fn volume_restrictions_as_upstream() {
    check(&volume_restrictions::plugin(), include_str!("cases/volume_restrictions.jsonl"), 24);
}

#[test]
fn volume_limits_as_upstream() {
    check(&volume_limits::plugin(FeatureGates::default()), include_str!("cases/volume_limits.jsonl"), 32);
}

/// Upstream's 5 cases of `TestVolumeLimitScalingGate`: whether the gate is on, whether there is a driver's object that tells
/// whether Pods must not go to nodes without the driver, and whether this node has it.
#[test]
fn drivers_without_which_no_pod_comes() {
    let check = |on: bool, object: Option<Option<bool>>, has: bool, expected: &str| {
        let gates = FeatureGates::default().with(Gate::VolumeLimitScaling, on);
        let name = "ebs.csi.aws.com";
        let object = object.map(|prevents| {
            json!({"metadata": {"name": name}, "spec": {"preventPodSchedulingIfMissing": prevents}})
        });
        let has = has.then(|| json!({"name": name, "nodeID": "n", "allocatable": {"count": 2}}));
        let case = json!({
            "pod": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            "claims": [{"metadata": {"name": "c"}, "spec": {"volumeName": "pv"}}],
            "volumes": [{"metadata": {"name": "pv"}, "spec": {"csi": {"driver": name, "volumeHandle": "h"}}}],
            "installed": object.into_iter().collect::<Vec<_>>(),
            "drivers": has.into_iter().collect::<Vec<_>>(),
        });
        assert_eq!(answer(&volume_limits::plugin(gates), &case), expected, "{case}");
    };
    let missing = "unschedulable: ebs.csi.aws.com CSI driver is not installed on the node";
    check(true, Some(None), false, "");
    check(true, Some(Some(true)), false, missing);
    check(false, Some(Some(true)), false, "");
    check(true, Some(Some(true)), true, "");
    check(true, None, false, "");
    // Beside upstream's: a driver may say that it does not mind.
    check(true, Some(Some(false)), false, "");
}

/// A claim that one Pod alone may use goes to the more important one.
#[test]
fn claims_for_one_pod_are_taken_by_preemption() {
    let uses = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    let bound = json!({
        "metadata": {"name": "c", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": "pv"},
    });
    let case = json!({
        "claims": [bound], "volumes": [{"metadata": {"name": "pv"}, "spec": {}}],
        "there": [{"volumes": uses, "priority": 1}, {"volumes": [], "priority": 0}],
    });
    let cache = cluster(&case);
    let decided = |priority: i32| {
        let pod = pod(&json!({"volumes": uses, "priority": priority}), "incoming");
        super::tests::decided_with(&pod, &cache, &Nominated::default(), &[])
    };
    let Decision::Unschedulable(error, Help::Room(room)) = decided(2) else { panic!("another decision") };
    assert!(error.plugins().into_iter().eq([volume_restrictions::NAME]));
    let victims: Vec<&str> = room.victims.iter().map(|v| v.uid()).collect();
    assert_eq!((room.node.as_str(), victims), ("n", vec!["there-0"]));
    let Decision::Unschedulable(error, Help::Clear) = decided(1) else { panic!("another decision") };
    let said = error.to_string();
    assert!(
        said.starts_with(
            "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access \
             mode already in-use by another pod."
        ),
        "{said}"
    );
}

/// Claims are counted as their Pods come and go, on nodes that are known and others.
#[test]
fn users_of_claims_are_counted() {
    let uses = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    let mut cache = cluster(&json!({}));
    let used = |cache: &Cache| cache.is_claim_used("default", "c");
    assert!(!used(&cache));
    cache.set_pod(pod(&uses, "a"), "n");
    cache.set_pod(pod(&uses, "a"), "n");
    cache.assume(pod(&uses, "b"), "unknown");
    assert!(used(&cache) && !cache.is_claim_used("other", "c"));
    cache.remove_pod("a");
    assert!(used(&cache));
    cache.forget("b");
    assert!(!used(&cache));
    cache.set_pod(pod(&uses, "c"), "n");
    cache.remove_node("n");
    assert!(used(&cache));
    cache.remove_pod("c");
    assert!(!used(&cache));
}
