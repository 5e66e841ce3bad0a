//! Upstream's own cases of InterPodAffinity and PodTopologySpread (the tables of their `filtering_test.go` and
//! `scoring_test.go`, by the test's name and the case's number), with what upstream v1.36.2 answers to each: the
//! status or the score of every node, and the counts it had made. One case a line, in `cases/`.
//!
//! Cases of spreading by the cluster's defaults are not in these tables: they stand in `spread_defaults`. Both feature gates of
//! PodTopologySpread are on in all of them, as they are by default.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node};
use serde_json::{Value, json};

use super::inter_pod_affinity_score::Scores as AffinityScores;
use super::pod_topology_spread_score::Scores as SpreadScores;
use super::*;
use crate::cache::{Cache, NodeInfo};
use crate::config::args::InterPodAffinityArgs;
use crate::framework::points::{Cycle, PreScore, Score};
use crate::framework::state::State;
use crate::framework::verdict::{Rejection, Stop};
use crate::pod::PodInfo;

struct Case {
    name: String,
    fields: Value,
    cache: Cache,
    pod: PodInfo,
}

fn pod(case: &Value, uid: &str) -> PodInfo {
    let mut spec = case.get("spec").cloned().unwrap_or_else(|| json!({}));
    spec["containers"] = json!([]);
    let mut metadata = json!({"uid": uid, "namespace": case["namespace"], "labels": case["labels"]});
    if case["leaving"] == true {
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    PodInfo::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap())
}

fn read(text: &str, at_least: usize) -> Vec<Case> {
    let cases: Vec<Case> = text.lines().map(|line| one(serde_json::from_str(line).unwrap())).collect();
    assert!(cases.len() >= at_least, "{} cases", cases.len());
    cases
}

fn one(fields: Value) -> Case {
    let mut cache = Cache::default();
    for (name, labels) in fields["namespaces"].as_object().into_iter().flatten() {
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        cache.set_namespace(&serde_json::from_value::<Namespace>(namespace).unwrap());
    }
    for n in fields["nodes"].as_array().unwrap() {
        let node = json!({
            "metadata": {"name": n["name"], "labels": n["labels"]},
            "spec": {"taints": n["taints"], "unschedulable": n["unschedulable"]}
        });
        cache.set_node(Arc::new(serde_json::from_value::<Node>(node).unwrap()));
    }
    for (i, p) in fields["pods"].as_array().unwrap().iter().enumerate() {
        if let Some(node) = p["on"].as_str() {
            cache.set_pod(pod(p, &format!("there-{i}")), node);
        }
    }
    let name = fields["case"].as_str().unwrap().to_owned();
    let pod = pod(&fields["pod"], "incoming");
    Case { name, fields, cache, pod }
}

/// The answer of each node, in upstream's form.
fn answers(cache: &Cache, filter: impl Fn(&NodeInfo) -> Result<(), Rejection>) -> Value {
    let answer = |node: &NodeInfo| match filter(node) {
        Ok(()) => String::new(),
        Err(r) => {
            let code = if r.unresolvable { "unresolvable" } else { "unschedulable" };
            format!("{code}: {}", r.reasons.join(", "))
        }
    };
    cache.nodes().iter().map(answer).collect()
}

#[test]
fn inter_pod_affinity_as_upstream() {
    for case in read(include_str!("cases/inter_pod_affinity.jsonl"), 55) {
        let state = inter_pod_affinity::State::new(&case.pod, &case.cache);
        if let Some(why) = case.fields["stopped"].as_str() {
            let stop = Stop::rejected(inter_pod_affinity::NAME, why.to_owned());
            assert_eq!(state.unwrap_err(), stop, "{}", case.name);
            continue;
        }
        let mut state = state.unwrap();
        let counts = |s: &inter_pod_affinity::State| json!({"affinity": s.affinity.listed(), "anti": s.anti.listed(), "existing": s.existing_anti.listed()});
        let before = counts(&state);
        if let Some(added) = case.fields.get("added") {
            let (added, node) =
                (pod(added, "added"), case.cache.node(added["on"].as_str().unwrap()).unwrap());
            state.count(&case.cache, &added, node, 1);
            let mut with = case.cache.node(node.name()).unwrap().clone();
            with.add(added.clone());
            let mut back = state.clone();
            back.count(&case.cache, &added, &with, -1);
            assert_eq!(counts(&back), before, "{}: taken back", case.name);
        }
        assert_eq!(answers(&case.cache, |n| state.filter(n)), case.fields["filter"], "{}", case.name);
        if let Some(expected) = case.fields.get("counts") {
            assert_eq!(&counts(&state), expected, "{}", case.name);
        }
    }
}

#[test]
fn pod_topology_spread_as_upstream() {
    for case in read(include_str!("cases/pod_topology_spread.jsonl"), 93) {
        let none = constraint::Defaults::default();
        let mut state = pod_topology_spread::State::new(&case.pod, &case.cache, &none).unwrap();
        if let Some(changed) = case.fields.get("changed") {
            let node = case.cache.node(changed["on"].as_str().unwrap()).unwrap();
            state.count(&pod(changed, "changed"), node, case.fields["by"].as_i64().unwrap());
        }
        assert_eq!(answers(&case.cache, |n| state.filter(n)), case.fields["filter"], "{}", case.name);
        if let Some(counts) = case.fields.get("counts") {
            let got: Vec<BTreeMap<&str, i64>> = state.domains.iter().map(|d| d.listed()).collect();
            assert_eq!(&json!(got), counts, "{}", case.name);
            let fewest: Vec<i64> = state.domains.iter().map(|d| d.fewest(0)).collect();
            assert_eq!(json!(fewest), case.fields["fewest"], "{}", case.name);
        }
    }
}

/// The normalized scores of the nodes that no filter has refused; all 0 if the plugin has nothing to say.
fn scored(case: &Case, plugin: &(impl PreScore + Score)) -> Option<Vec<i64>> {
    let refused = |n: &&NodeInfo| {
        case.fields["nodes"].as_array().unwrap().iter().any(|f| f["name"] == n.name() && f["refused"] == true)
    };
    let feasible: Vec<usize> = case.cache.nodes().iter().filter(|n| !refused(n)).map(|n| n.index).collect();
    let mut cycle = Cycle { pod: &case.pod, cluster: &case.cache, state: State::default() };
    if !plugin.pre_score(&mut cycle, &feasible, false).unwrap() {
        return None;
    }
    let mut scores = plugin.score_all(&cycle, &feasible).unwrap();
    let one_by_one: Vec<i64> =
        feasible.iter().map(|i| plugin.score(&cycle, &case.cache.nodes()[*i]).unwrap()).collect();
    assert_eq!(scores, one_by_one, "{}", case.name);
    plugin.normalize(&cycle, &feasible, &mut scores);
    Some(scores)
}

#[test]
fn inter_pod_affinity_scores_as_upstream() {
    let plugin = AffinityScores { args: InterPodAffinityArgs::default() };
    for case in read(include_str!("cases/inter_pod_affinity_scores.jsonl"), 29) {
        let zeros = vec![0; case.fields["scores"].as_array().unwrap().len()];
        let scores = scored(&case, &plugin).unwrap_or(zeros);
        assert_eq!(json!(scores), case.fields["scores"], "{}", case.name);
    }
}

#[test]
fn pod_topology_spread_scores_as_upstream() {
    for case in read(include_str!("cases/pod_topology_spread_scores.jsonl"), 27) {
        let scores = scored(&case, &SpreadScores { defaults: constraint::Defaults::default() });
        assert_eq!(json!(scores), case.fields["scores"], "{}", case.name);
    }
}
