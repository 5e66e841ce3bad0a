//! Upstream's cases of spreading by the cluster's constraints (`TestPreScoreStateEmptyNodes` and
//! `TestPodTopologySpreadScore` of `scoring_test.go`, `TestPreFilterState` of `filtering_test.go`).

use std::sync::Arc;

use client::{Cached, Change};
use k8s_openapi::api::core::v1::Node;
use objects::taints::Tolerance;
use serde_json::{Value, json};

use super::constraint::Defaults;
use super::pod_topology_spread::State as Filtered;
use super::pod_topology_spread_score::{Alike, Scores};
use crate::cache::Cache;
use crate::config::args::PodTopologySpreadArgs;
use crate::framework::points::{Cycle, PreScore, Score};
use crate::framework::state::State;
use crate::owners::{Kind, Selecting};
use crate::pod::PodInfo;

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

fn defaults(kind: &str, constraints: Value) -> Defaults {
    let args = json!({"defaultingType": kind, "defaultConstraints": constraints});
    let args = serde_json::from_value::<PodTopologySpreadArgs>(args).unwrap();
    Defaults::new(&args, Tolerance::default())
}

/// Nodes, each with its zone, "" for none.
fn cluster(nodes: &[(&str, &str)]) -> Cache {
    let mut cache = Cache::default();
    for (name, zone) in nodes {
        let mut labels = json!({HOST: name});
        if !zone.is_empty() {
            labels[ZONE] = json!(zone);
        }
        let node = json!({"metadata": {"name": name, "labels": labels}});
        cache.set_node(Arc::new(serde_json::from_value::<Node>(node).unwrap()));
    }
    cache
}

fn own(cache: &mut Cache, kind: Kind, name: &str, selector: Value) {
    let object = json!({"metadata": {"namespace": "default", "name": name}, "spec": {"selector": selector}});
    let object = Selecting::decode(object.to_string().as_bytes()).unwrap();
    cache.owners_mut().take(kind, &Change::Added(Arc::new(object)));
}

fn pod(uid: &str, labels: Value, owner: &str, constraints: Value) -> PodInfo {
    let owners = match owner {
        "" => json!([]),
        name => {
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": true}])
        }
    };
    PodInfo::new(
        serde_json::from_value(json!({
            "metadata": {"uid": uid, "namespace": "default", "labels": labels, "ownerReferences": owners},
            "spec": {"containers": [], "topologySpreadConstraints": constraints},
        }))
        .unwrap(),
    )
}

fn zone_and_rack() -> Value {
    json!([
        {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
        {"maxSkew": 2, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"},
        {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"},
    ])
}

#[test]
fn nodes_are_scored_by_the_pods_of_a_service() {
    let mut cache = cluster(&[("node-a", ""), ("node-b", ""), ("node-c", ""), ("node-d", "")]);
    own(&mut cache, Kind::Service, "s", json!({"foo": ""}));
    for (node, count) in [("node-a", 4), ("node-b", 3), ("node-c", 2), ("node-d", 1)] {
        for i in 0..count {
            cache.set_pod(pod(&format!("{node}-{i}"), json!({"foo": ""}), "", json!([])), node);
        }
    }
    let incoming = pod("p", json!({"foo": ""}), "", json!([]));
    let mut cycle = Cycle { pod: &incoming, cluster: &cache, state: State::default() };
    let scores = Scores { defaults: defaults("System", json!([])) };
    assert!(scores.pre_score(&mut cycle, &[0, 1, 2, 3], false).unwrap());
    let mut got = scores.score_all(&cycle, &[0, 1, 2, 3]).unwrap();
    scores.normalize(&cycle, &[0, 1, 2, 3], &mut got);
    assert_eq!(got, [44, 66, 77, 100]);
    let other = pod("p", json!({"bar": ""}), "", json!([]));
    let mut cycle = Cycle { pod: &other, cluster: &cache, state: State::default() };
    assert!(!scores.pre_score(&mut cycle, &[0, 1, 2, 3], false).unwrap(), "no Service selects it");
}

#[test]
fn whose_constraints_count() {
    let mut cache = cluster(&[("node-a", "mars"), ("node-b", "mars"), ("node-c", ""), ("node-d", "")]);
    own(
        &mut cache,
        Kind::ReplicaSet,
        "rs1",
        json!({"matchExpressions": [{"key": "foo", "operator": "Exists"}]}),
    );
    let labels = || json!({"foo": "tar", "baz": "sup"});
    let owned = |owner: &str, constraints: Value| pod("p", labels(), owner, constraints);
    let weights = |pod: &PodInfo, defaults: &Defaults| {
        let mut alike = Alike::new(pod, &cache, defaults).unwrap();
        alike.look_at(&[0, 1, 2, 3]);
        alike.weights()
    };
    let log = |sizes: &[f64]| sizes.iter().map(|size| (size + 2.0).ln()).collect::<Vec<f64>>();
    // Nodes without a zone are not left out: they are a zone of their own.
    let system = defaults("System", json!([]));
    assert_eq!(weights(&owned("rs1", json!([])), &system), log(&[4.0, 2.0]));
    assert!(weights(&owned("rs2", json!([])), &system).is_empty(), "nobody knows its controller");
    let list = defaults("List", zone_and_rack());
    assert_eq!(weights(&owned("rs1", json!([])), &list), log(&[0.0, 0.0]), "no node has a rack");
    let selector = json!({"matchLabels": {"foo": "tar"}});
    let mine = json!([{"maxSkew": 2, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}]);
    assert_eq!(weights(&owned("rs1", mine.clone()), &list), log(&[1.0]), "it has its own");
    let hard = |pod: &PodInfo, defaults: &Defaults| {
        let state = Filtered::new(pod, &cache, defaults).unwrap();
        state.constraints.iter().map(|c| (c.key.clone(), c.max_skew)).collect::<Vec<_>>()
    };
    assert_eq!(hard(&owned("rs1", json!([])), &list), [(ZONE.to_owned(), 5)]);
    assert!(hard(&owned("rs1", mine), &list).is_empty());
    assert!(hard(&owned("rs1", json!([])), &system).is_empty());
}

/// The knowledge of a Pod's like ends with the selectors by which they are told, and not before.
#[test]
fn a_service_that_comes_is_seen() {
    let mut cache = cluster(&[("node-a", ""), ("node-b", "")]);
    cache.set_pod(pod("there", json!({"foo": ""}), "", json!([])), "node-a");
    let (profile, mut keeper) = (super::tests::profile(), crate::kept::Keeper::default());
    let mut scored = |cache: &Cache| {
        let incoming = pod("p", json!({"foo": ""}), "", json!([]));
        let (mut kept, mut cycle) = keeper.begin(&incoming, &profile, cache);
        let scores = kept.score(&mut cycle, &profile, &[0, 1]).unwrap();
        keeper.end(cycle, kept);
        scores[1] - scores[0]
    };
    let before = scored(&cache);
    own(&mut cache, Kind::Service, "other", json!({"bar": ""}));
    assert_eq!(scored(&cache), before);
    own(&mut cache, Kind::Service, "s", json!({"foo": ""}));
    assert!(scored(&cache) > before, "the node without such a Pod is better now");
}
