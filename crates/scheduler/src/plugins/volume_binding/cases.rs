//! Upstream's own cases of VolumeBinding (the tables of `binder_test.go` and `volume_binding_test.go`, by the test's name
//! and the case's), in upstream's names for claims and volumes. One case a line, in `plugins/cases`.
//!
//! Cases of the translation of older plugins' volumes are left out, and those of scores, whose gate is off.

use std::sync::Arc;

use client::Change;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::bind::{Held, Progress};
use super::needs::{Found, Needs};
use super::*;
use crate::storage::{News, Storage};

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A claim by upstream's name for it.
fn claim(name: &str) -> Value {
    let with = |name: &str, size: &str, class: &str, volume: &str, annotations: Value| {
        json!({
            "metadata": {
                "name": name, "namespace": "testns", "uid": "pvc-uid", "resourceVersion": "1",
                "annotations": annotations,
            },
            "spec": {
                "resources": {"requests": {"storage": size}}, "storageClassName": class, "volumeName": volume,
                "volumeMode": "Filesystem",
            },
        })
    };
    let (open, done) = (|| json!(null), || json!({"pv.kubernetes.io/bind-completed": "yes"}));
    let on = |node: &str| json!({"volume.kubernetes.io/selected-node": node});
    let provisioner = "waitClassWithProvisioner";
    match name {
        "unbound-pvc" => with(name, "1G", "waitClass", "", open()),
        "unbound-pvc-bound" => with("unbound-pvc", "1G", "waitClass", "pv-node1a", done()),
        "unbound-pvc-prebound" => with("unbound-pvc", "1G", "waitClass", "pv-node1a", open()),
        "unbound-pvc2" => with(name, "5G", "waitClass", "", open()),
        "prebound-pvc" => with(name, "1G", "waitClass", "pv-node1a", open()),
        "bound-pvc" => with(name, "1G", "waitClass", "pv-bound", done()),
        "lost-pvc" => {
            let mut lost = with(name, "1G", "waitClass", "pv-bound", done());
            lost["status"] = json!({"phase": "Lost"});
            lost
        }
        "immediate-unbound-pvc" => with(name, "1G", "immediateClass", "", open()),
        "immediate-bound-pvc" => with(name, "1G", "immediateClass", "pv-bound-immediate", done()),
        "provisioned-pvc" => with(name, "1Gi", provisioner, "", open()),
        "provisioned-pvc-no-annotations" => with("provisioned-pvc", "1Gi", provisioner, "", json!({})),
        "provisioned-pvc-bound-selected" => {
            let mut both = done();
            both["volume.kubernetes.io/selected-node"] = json!("node1");
            with("provisioned-pvc", "1Gi", provisioner, "pv-bound", both)
        }
        "selected-node-pvc" => with("provisioned-pvc", "1Gi", provisioner, "", on("node1")),
        "wrong-node-pvc" => with("provisioned-pvc", "1Gi", provisioner, "", on("wrong-node")),
        "no-provisioner-pvc" => with(name, "1Gi", "waitClass", "", open()),
        "topo-mismatch-pvc" => with(name, "1Gi", "topoMismatchClass", "", open()),
        "owned-pvc" | "not-owned-pvc" => {
            let mut made = with("test-pod-test-volume", "1G", "immediateClass", "pv-bound", done());
            if name == "owned-pvc" {
                let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "test-pod", "uid": "pod-uid", "controller": true});
                made["metadata"]["ownerReferences"] = json!([owner]);
            }
            made
        }
        other => panic!("no claim {other}"),
    }
}

/// A volume by upstream's name for it.
fn volume(name: &str) -> Value {
    let with = |name: &str, node: &str, size: &str, class: &str, claim: &str| {
        let term = json!({"matchExpressions": [{"key": "nodeKey", "operator": "In", "values": [node]}]});
        let named = json!({"name": claim, "namespace": "testns", "uid": "pvc-uid"});
        json!({
            "metadata": {"name": name, "resourceVersion": "1"},
            "spec": {
                "capacity": {"storage": size}, "storageClassName": class, "volumeMode": "Filesystem",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                "claimRef": if claim.is_empty() { Value::Null } else { named },
            },
            "status": {"phase": "Available"},
        })
    };
    match name {
        "pv-node1a" => with(name, "node1", "5G", "waitClass", ""),
        "pv-node1a-bound" => with("pv-node1a", "node1", "5G", "waitClass", "unbound-pvc"),
        "pv-node1a-no-uid" => {
            let mut volume = with("pv-node1a", "node1", "5G", "waitClass", "unbound-pvc");
            volume["spec"]["claimRef"]["uid"] = Value::Null;
            volume
        }
        "pv-node1b" => with(name, "node1", "10G", "waitClass", ""),
        "pv-node1b-bound" => with("pv-node1b", "node1", "10G", "waitClass", "unbound-pvc2"),
        "pv-node2" => with(name, "node2", "1G", "waitClass", ""),
        "pv-bound" => with(name, "node1", "1G", "waitClass", "bound-pvc"),
        "pv-bound-node2" => with("pv-bound", "node2", "1G", "waitClass", "bound-pvc"),
        "pv-bound-immediate" => with(name, "node1", "1G", "immediateClass", "immediate-bound-pvc"),
        "pv-bound-immediate-node2" => {
            with("pv-bound-immediate", "node2", "1G", "immediateClass", "immediate-bound-pvc")
        }
        other => panic!("no volume {other}"),
    }
}

fn added<T: DeserializeOwned>(value: Value) -> Change<T> {
    Change::Added(Arc::new(serde_json::from_value(value).unwrap()))
}

/// The storage of a case: upstream's classes, and what the case names.
fn storage(case: &Value, claims: &[Value]) -> Storage {
    let storage = Storage::default();
    let elsewhere = json!([{"matchLabelExpressions": [{"key": "nodeKey", "values": ["reference-value"]}]}]);
    for (name, provisioner, mode, topologies) in [
        ("waitClass", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", json!([])),
        ("waitClassWithProvisioner", "test-provisioner", "WaitForFirstConsumer", json!([])),
        ("topoMismatchClass", "test-provisioner", "WaitForFirstConsumer", elsewhere),
        ("immediateClass", "test-provisioner", "Immediate", json!([])),
    ] {
        storage.take(&News::Class(added(json!({
            "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode,
            "allowedTopologies": topologies,
        }))));
    }
    for name in claims {
        storage.take(&News::Claim(added(claim(text(name)))));
    }
    for name in list(&case["volumes"]) {
        storage.take(&News::Volume(added(volume(text(name)))));
    }
    if let Some(tells) = case["driver"].as_bool() {
        let driver = json!({"metadata": {"name": "test-provisioner"}, "spec": {"storageCapacity": tells}});
        storage.take(&News::Driver(added(driver)));
    }
    for (i, c) in list(&case["capacities"]).iter().enumerate() {
        let labels = c[1].as_str().map(|node| json!({"nodeKey": node}));
        storage.take(&News::Capacity(added(json!({
            "metadata": {"namespace": "d", "name": format!("c{i}")}, "storageClassName": c[0],
            "nodeTopology": {"matchLabels": labels}, "capacity": c[2], "maximumVolumeSize": c[3],
        }))));
    }
    storage.set_node(&Arc::new(serde_json::from_value(node()).unwrap()));
    storage
}

fn node() -> Value {
    json!({"metadata": {"name": "node1", "labels": {"nodeKey": "node1"}}})
}

fn pod(case: &Value) -> PodInfo {
    let mut volumes: Vec<Value> = list(&case["claims"])
        .iter()
        .map(|name| {
            let name = &claim(text(name))["metadata"]["name"];
            json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
        })
        .collect();
    if let Some(name) = case["ephemeral"].as_str() {
        volumes.push(json!({"name": name, "ephemeral": {}}));
    }
    let pod = json!({
        "metadata": {"name": "test-pod", "namespace": "testns", "uid": "pod-uid"},
        "spec": {"containers": [], "volumes": volumes},
    });
    PodInfo::new(serde_json::from_value(pod).unwrap())
}

fn read(cases: &str, at_least: usize) -> Vec<Value> {
    let all: Vec<Value> = cases.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(all.len() >= at_least, "{} cases", all.len());
    all
}

fn shown(found: &Found) -> (Vec<String>, Vec<String>) {
    let name = |m: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| m.name.clone().unwrap();
    let bindings = found.volumes.iter().map(|(v, c)| format!("{}={}", name(&c.metadata), name(&v.metadata)));
    (bindings.collect(), found.provisioned.iter().map(|c| name(&c.metadata)).collect())
}

#[test]
fn volumes_are_found_as_upstream_finds_them() {
    for case in read(include_str!("../cases/volume_binding.jsonl"), 110) {
        let claims = case.get("known").unwrap_or(&case["claims"]);
        let known = storage(&case, list(claims));
        let needs = Needs::of(&pod(&case), &known.read());
        if let Some(why) = case["stopped"].as_str() {
            assert_eq!(needs.err(), Some(Stop::rejected(NAME, why.to_owned())), "{case}");
            continue;
        }
        let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(node()).unwrap();
        let Some(needs) = needs.unwrap() else {
            assert!(list(&case["claims"]).is_empty() && case["reasons"] == json!([]), "{case}");
            continue;
        };
        match needs.find("node1", node.metadata.labels.as_ref(), |_| false) {
            Ok(found) => {
                let (bindings, provisions) = shown(&found);
                assert_eq!(json!(bindings), case["bindings"], "{case}");
                assert_eq!(json!(provisions), case["provisions"], "{case}");
            }
            Err(rejection) => assert_eq!(json!(rejection.reasons), case["reasons"], "{case}"),
        }
    }
}

#[test]
fn bindings_progress_as_upstreams_do() {
    for case in read(include_str!("../cases/volume_binding_progress.jsonl"), 17) {
        let known = storage(&case, list(&case["claims"]));
        let object = |v: Value| Arc::new(serde_json::from_value(v).unwrap());
        let found = Found {
            volumes: list(&case["bindings"])
                .iter()
                .map(|pair| {
                    let (c, v) = text(pair).split_once('=').unwrap();
                    let object = serde_json::from_value(volume(v)).unwrap();
                    (Arc::new(object), Arc::new(serde_json::from_value(claim(c)).unwrap()))
                })
                .collect(),
            provisioned: list(&case["provisions"]).iter().map(|c| object(claim(text(c)))).collect(),
            capacities: Vec::new(),
        };
        let versions = vec![1; found.volumes.len() + found.provisioned.len()];
        let held = Held::assume(found, "node1", &known);
        let got = match held.progress(&versions, &known.read()) {
            Ok(Progress::Bound) => "bound".to_owned(),
            Ok(Progress::Waits) => "waits".to_owned(),
            Err(why) => why,
        };
        assert_eq!(got, text(&case["expected"]), "{case}");
        if case["expected"] == "bound" && !versions.is_empty() {
            let newer: Vec<u64> = versions.iter().map(|v| v + 1).collect();
            let waits = held.progress(&newer, &known.read());
            assert_eq!(waits, Ok(Progress::Waits), "{case}: the API shows an older state");
        }
    }
}

/// One Pod's choice is another's no more, until it is given back.
#[test]
fn what_is_held_is_taken() {
    let case = json!({"claims": ["unbound-pvc"], "volumes": ["pv-node1a"]});
    let known = storage(&case, &[json!("unbound-pvc"), json!("unbound-pvc2"), json!("provisioned-pvc")]);
    let labels = std::collections::BTreeMap::from([("nodeKey".to_owned(), "node1".to_owned())]);
    let find = |claims: Value| {
        let needs = Needs::of(&pod(&json!({"claims": claims})), &known.read()).unwrap().unwrap();
        needs.find("node1", Some(&labels), |_| false)
    };
    let held = Held::assume(find(json!(["unbound-pvc"])).unwrap(), "node1", &known);
    assert!(find(json!(["unbound-pvc2"])).is_err());
    let again = find(json!(["unbound-pvc"])).unwrap();
    assert_eq!(shown(&again).0, ["unbound-pvc=pv-node1a"], "it is this claim's");
    held.give_back();
    assert_eq!(shown(&find(json!(["unbound-pvc2"])).unwrap()).0, ["unbound-pvc2=pv-node1a"]);
    let provisions = find(json!(["provisioned-pvc"])).unwrap();
    let held = Held::assume(provisions, "node2", &known);
    assert!(find(json!(["provisioned-pvc"])).is_err(), "another node was chosen for it");
    held.give_back();
    assert!(find(json!(["provisioned-pvc"])).is_ok());
}
