//! TopologyPlacementGenerator: a PodGroup with a topology constraint is placed within one domain of that topology
//! (upstream's `plugins/topologyaware`). It is one of the default plugins where its gate is on.

use std::collections::HashMap;
use std::sync::Arc;

use api::go::quote;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;

use crate::events::Events;
use crate::framework::placement::{GroupCycle, Placement};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::PlacementGenerate;
use crate::framework::verdict::Rejection;

/// The plugin's name.
pub const NAME: &str = "TopologyPlacementGenerator";

/// The label whose values are the domains for a group; the API allows one.
fn key(group: &PodGroup) -> Option<&str> {
    let all = group.spec.scheduling_constraints.as_ref()?.topology.as_deref()?;
    all.first().map(|t| t.key.as_str())
}

struct Topology;

impl PlacementGenerate for Topology {
    fn generate(&self, cycle: &mut GroupCycle<'_>, parent: &Placement) -> Result<Vec<Placement>, Rejection> {
        let Some(group) = cycle.group.clone() else {
            let name = quote(cycle.name().1);
            return Err(Rejection::failure(NAME, format!("podgroup.scheduling.k8s.io {name} not found")));
        };
        let Some(key) = key(&group) else { return Ok(vec![parent.clone()]) };
        let taken = domain_of_placed(cycle, key).map_err(|why| {
            Rejection::failure(NAME, format!("cannot determine domain for already scheduled pods: {why}"))
        })?;
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut placements: Vec<Placement> = Vec::new();
        for node in parent.nodes(cycle.cluster) {
            let Some(domain) = node.label(key) else { continue };
            if taken.as_deref().is_some_and(|taken| taken != domain) {
                continue;
            }
            let at = *places.entry(domain).or_insert_with(|| {
                placements.push(Placement { name: domain.to_owned(), nodes: Vec::new() });
                placements.len() - 1
            });
            placements[at].nodes.push(node.index);
        }
        Ok(placements)
    }
}

/// The domain of the group's Pods that have nodes; `None` if there are none.
fn domain_of_placed(cycle: &GroupCycle<'_>, key: &str) -> Result<Option<String>, String> {
    let Some(one) = cycle.pods.first() else { return Ok(None) };
    let (namespace, _) = cycle.name();
    let placed: Vec<Arc<str>> = cycle.cluster.groups().members(one, |all| all.placed().cloned().collect());
    let mut domain: Option<&str> = None;
    for uid in placed {
        let (name, node) = cycle.cluster.names_of_placed(&uid).unwrap_or_default();
        let Some(node) = cycle.cluster.node(node) else {
            let missing = format!("nodeinfo not found for node name {}", quote(node));
            return Err(format!("getting node for pod {namespace}/{name}: {missing}"));
        };
        let Some(own) = node.label(key) else {
            return Err(format!("no topology domain found for pod {namespace}/{name}"));
        };
        if let Some(other) = domain.filter(|d| *d != own) {
            return Err(format!("more than 1 domain found for pod group: {other}, {own}"));
        }
        domain = Some(own);
    }
    Ok(domain.map(str::to_owned))
}

pub(super) fn plugin() -> Plugin {
    let points = Points { placement_generate: Some(Arc::new(Topology)), ..Points::default() };
    // It refuses no Pod; the plugins that refuse the Pods in every placement say what helps.
    Plugin::new(NAME, points).lifted_by(Events::NONE)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use client::Change;
    use serde_json::{Value, json};

    use super::*;
    use crate::cache::Cache;
    use crate::framework::state::State;
    use crate::pod::PodInfo;

    type Nodes<'a> = &'a [(&'a str, &'a str, &'a str)];
    type Expected<'a> = Result<&'a [(&'a str, &'a [&'a str])], &'a str>;

    fn pod(uid: &str) -> PodInfo {
        let group = json!({"podGroupName": "pg1"});
        let pod = json!({"metadata": {"namespace": "default", "name": uid, "uid": uid},
            "spec": {"containers": [], "schedulingGroup": group}});
        PodInfo::new(serde_json::from_value(pod).unwrap())
    }

    /// Nodes are names with one label each, "" for none; the first ones are the parent placement.
    fn check(
        key: Option<&str>,
        placed: &[(&str, &str)],
        [inside, others]: [Nodes<'_>; 2],
        expected: Expected<'_>,
    ) {
        let mut cluster = Cache::default();
        for (name, key, value) in inside.iter().chain(others) {
            let mut labels = json!({});
            if !key.is_empty() {
                labels[*key] = json!(value);
            }
            let node = json!({"metadata": {"name": name, "labels": labels}});
            cluster.set_node(Arc::new(serde_json::from_value(node).unwrap()));
        }
        let constraints: Option<Value> = key.map(|key| json!({"topology": [{"key": key}]}));
        let group = json!({"metadata": {"namespace": "default", "name": "pg1"},
            "spec": {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": constraints}});
        cluster.groups().take(&Change::Added(Arc::new(serde_json::from_value(group).unwrap())));
        let unscheduled = [pod("unscheduled")];
        cluster.groups().waits(&unscheduled[0]);
        for (name, node) in placed {
            cluster.set_pod(pod(name), node);
        }
        let parent = Placement { name: "test-placement".into(), nodes: (0..inside.len()).collect() };
        let group = cluster.groups().of(&unscheduled[0]);
        let mut cycle = GroupCycle { pods: &unscheduled, group, cluster: &cluster, state: State::default() };
        let made = match (Topology.generate(&mut cycle, &parent), expected) {
            (Err(rejection), Err(why)) => {
                assert_eq!((rejection.reasons.join(", ").as_str(), rejection.failed), (why, true));
                return;
            }
            (made, _) => made.unwrap(),
        };
        let named = |p: &Placement| p.nodes(&cluster).map(|n| n.name().to_owned()).collect::<Vec<_>>();
        let made: BTreeMap<String, Vec<String>> = made.iter().map(|p| (p.name.clone(), named(p))).collect();
        let expected = expected.unwrap().iter().map(|(name, nodes)| {
            ((*name).to_owned(), nodes.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())
        });
        assert_eq!(made, expected.collect());
    }

    /// The eight cases of upstream's `TestGeneratePlacements`, with the reasons of its errors.
    #[test]
    fn upstreams_placements() {
        let free = [("node1", "", ""), ("node2", "foo", "bar")];
        check(None, &[], [&free, &[("node3", "", "")]], Ok(&[("test-placement", &["node1", "node2"])]));
        let several = [
            ("node0", "topology2", "d1"),
            ("node1", "topology2", "d4"),
            ("node2", "topology1", "d1"),
            ("node3", "topology1", "d2"),
            ("node4", "topology1", "d1"),
            ("node5", "topology1", "d3"),
        ];
        let each: &[(&str, &[&str])] = &[("d1", &["node2", "node4"]), ("d2", &["node3"]), ("d3", &["node5"])];
        check(Some("topology1"), &[], [&several, &[]], Ok(each));
        check(Some("topology3"), &[], [&several, &[]], Ok(&[]));
        let placed = [("pod1", "node2"), ("pod2", "node3")];
        let inside = [("node0", "topology", "d2"), ("node1", "topology", "d1")];
        let same = [("node2", "topology", "d1"), ("node3", "topology", "d1")];
        check(Some("topology"), &placed, [&inside, &same], Ok(&[("d1", &["node1"])]));
        check(Some("topology"), &placed, [&inside[..1], &same], Ok(&[]));
        let failed = |why: &str| format!("cannot determine domain for already scheduled pods: {why}");
        let two = [("node2", "topology", "d0"), ("node3", "topology", "d1")];
        let why = failed("more than 1 domain found for pod group: d0, d1");
        check(Some("topology"), &placed, [&inside, &two], Err(&why));
        let gone = [("pod1", "node2"), ("pod2", "node4")];
        let why = failed("getting node for pod default/pod2: nodeinfo not found for node name \"node4\"");
        check(Some("topology"), &gone, [&inside, &same], Err(&why));
        let other = [("node2", "foo", "bar")];
        let why = failed("no topology domain found for pod default/pod1");
        check(Some("topology"), &placed[..1], [&[("node1", "topology", "d2")], &other], Err(&why));
    }

    #[test]
    fn a_group_that_is_gone() {
        let (cluster, pods) = (Cache::default(), [pod("p")]);
        let mut cycle = GroupCycle { pods: &pods, group: None, cluster: &cluster, state: State::default() };
        let rejection = Topology.generate(&mut cycle, &Placement::all(&cluster)).unwrap_err();
        assert_eq!(rejection.reasons, ["podgroup.scheduling.k8s.io \"pg1\" not found"]);
    }
}
