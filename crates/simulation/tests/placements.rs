//! A plugin that is not the scheduler's own and places groups.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result};
use api::FeatureGates;
use apiserver::served::RuntimeConfig;
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use scheduler::config::read;
use scheduler::framework::placement::{Assignments, GroupCycle, Placement};
use scheduler::framework::plugin::{Plugin, Points};
use scheduler::framework::points::{PlacementGenerate, PlacementScore};
use scheduler::framework::verdict::Rejection;
use scheduler::run::Settings;
use serde_json::json;

use crate::common::pod;

const LONG: Duration = Duration::from_mins(6);

/// Each node is a placement, and its number the score. The plugin panics if it is asked to.
struct Numbers;

impl PlacementGenerate for Numbers {
    fn generate(&self, cycle: &mut GroupCycle<'_>, parent: &Placement) -> Result<Vec<Placement>, Rejection> {
        let (_, group) = cycle.name();
        assert!(group != "odd", "a plugin that nobody tested");
        if group == "refused" {
            return Err(Rejection::new("Numbers", "no place for it"));
        }
        if group == "failed" {
            return Err(Rejection::failure("Numbers", "error for test"));
        }
        let each = parent.nodes(cycle.cluster);
        let each = each.map(|node| Placement { name: node.name().to_owned(), nodes: vec![node.index] });
        let outside = (group == "outside").then(|| Placement { name: "no".to_owned(), nodes: vec![99] });
        let made = each.chain(outside).collect();
        cycle.state.put(group.len());
        Ok(made)
    }
}

impl PlacementScore for Numbers {
    fn score(&self, cycle: &GroupCycle<'_>, of: &Assignments<'_>) -> Result<i64, String> {
        let (_, group) = cycle.name();
        if cycle.state.get::<usize>() != Some(&group.len()) || of.proposed.is_empty() {
            return Err("the notes are gone".to_owned());
        }
        let number = of.placement.name.trim_start_matches('n').parse().unwrap_or(0);
        if group == "unscored" { Err("error for test".to_owned()) } else { Ok(number) }
    }
}

/// A scheduler with the plugin. `without`: the names of others that do not make placements, as a part of YAML.
fn settings(gates: FeatureGates, without: &str) -> Result<Settings> {
    let mut plugins = scheduler::plugins::registry_with(gates).map_err(Error::msg)?;
    let factory = |_: &_| {
        let plugin = Arc::new(Numbers);
        let points = Points {
            placement_generate: Some(plugin.clone()),
            placement_score: Some(plugin),
            ..Points::default()
        };
        Ok(Plugin::new("Numbers", points))
    };
    plugins.add("Numbers", factory).map_err(Error::msg)?;
    let config = format!(
        "
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles:
        - plugins:
            placementGenerate: {{enabled: [{{name: Numbers}}], disabled: [{without}]}}
            placementScore: {{enabled: [{{name: Numbers}}], disabled: [{{name: '*'}}]}}
        "
    );
    let config = read::parse(config.as_bytes()).map_err(Error::msg)?;
    Ok(Settings::new(&config, &plugins).map_err(Error::msg)?.with_gates(gates))
}

fn gates() -> Result<FeatureGates> {
    Ok(FeatureGates::parse(["GenericWorkload=true", "TopologyAwareWorkloadScheduling=true"])?)
}

const TOPOLOGY: &str = "{name: TopologyPlacementGenerator}";

#[test]
fn a_profile_has_one_plugin_that_makes_placements() -> Result<()> {
    let error = |settings: Result<Settings>| settings.err().map(|e| e.to_string()).unwrap_or_default();
    let two = error(settings(gates()?, ""));
    let why = "at most one placement generate plugin is allowed for profile with scheduler name \"default-scheduler\"";
    assert!(two.ends_with(why), "{two}");
    let off = error(settings(FeatureGates::default(), ""));
    let why = "profiles[0].plugins.placementGenerate.enabled: Forbidden: the gate TopologyAwareWorkloadScheduling is off";
    assert_eq!(off, why);
    settings(gates()?, TOPOLOGY).map(drop)
}

/// Makes a group of one Pod with its name; waits for the group's condition.
async fn group(cluster: &Cluster, name: &str, cpu: &str) -> Result<[String; 3]> {
    let group = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"schedulingPolicy": {"basic": {}}}});
    cluster.create::<PodGroup>(&group).await?;
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]);
    let tolerations = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
    let spec = json!({"tolerations": tolerations, "containers": containers,
        "schedulingGroup": {"podGroupName": name}});
    cluster.create::<Pod>(&pod(name, json!({ "spec": spec }))).await?;
    let says = |group: &PodGroup| {
        let said = group.status.iter().flat_map(|s| s.conditions.iter().flatten());
        said.map(|c| [c.status.clone(), c.reason.clone(), c.message.clone()]).next()
    };
    let named = |g: &&PodGroup| g.metadata.name.as_deref() == Some(name);
    cluster.until::<PodGroup>(LONG, "default", |all| all.iter().find(named).and_then(says).is_some()).await?;
    let found = cluster.get::<PodGroup>("default", name).await?;
    Ok(found.and_then(|g| says(&g)).unwrap_or_default())
}

/// The cases of upstream's `TestPodGroupSchedulingPlacementAlgorithm`, and what a plugin may do wrong besides.
#[tokio::test(start_paused = true)]
async fn a_plugin_places_groups() -> Result<()> {
    let (gates, all) = (gates()?, RuntimeConfig::parse(["api/all=true"])?);
    let cluster = Cluster::start_with(|c| {
        c.gates = gates;
        c.runtime_config = all;
    })
    .await?;
    let account = json!({"metadata": {"name": "default", "namespace": "default"}});
    cluster.create::<ServiceAccount>(&account).await?;
    let metrics = cluster.scheduler_with(settings(gates, TOPOLOGY)?);
    for (name, cpu) in [("n1", "4"), ("n7", "1"), ("n3", "4")] {
        let room = json!({"cpu": cpu, "pods": "9"});
        let status = json!({"allocatable": room, "capacity": room});
        cluster.put::<Node>(&json!({"metadata": {"name": name}, "status": status})).await?;
    }
    let scheduled = ["True", "Scheduled", ""];
    let [refused, error] = [["False", "Unschedulable"], ["False", "SchedulerError"]]
        .map(|[status, reason]| move |why| [status, reason, why]);
    let none = "0/3 placements are available, first placement status: pod group is unschedulable";
    let unscored = "running PlacementScore plugins: plugin \"Numbers\" failed with: error for test";
    let outside = "failed to assume pod group placement: node 99 in placement is not present in snapshot";
    let odd = "the scheduling cycle panicked: a plugin that nobody tested";
    for (name, cpu, node, expected) in [
        ("best", "1", "n7", scheduled),
        ("fits", "2", "n3", scheduled),
        ("large", "5", "", refused(none)),
        ("refused", "1", "", refused("no place for it")),
        ("failed", "1", "", error("error for test")),
        ("unscored", "1", "", error(unscored)),
        ("outside", "1", "", error(outside)),
        ("odd", "1", "", error(odd)),
        ("plain", "1", "n3", scheduled),
    ] {
        assert_eq!(group(&cluster, name, cpu).await?, expected, "{name}");
        let there =
            |p: &Pod| p.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default() == node;
        let named = |p: &&Pod| p.metadata.name.as_deref() == Some(name);
        cluster.until::<Pod>(LONG, "default", |all| all.iter().find(named).is_some_and(there)).await?;
    }
    let page = metrics.page().text();
    for point in ["PlacementGenerate", "PlacementScore"] {
        let line = format!(
            "scheduler_framework_extension_point_duration_seconds_count{{extension_point=\"{point}\",profile=\"default-scheduler\",status=\"Success\"}}"
        );
        assert!(page.contains(&line), "{point}");
    }
    Ok(())
}
