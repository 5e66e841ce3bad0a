//! Groups of Pods that are scheduled together, where the gates are on.

use std::time::Duration;

use anyhow::{Context, Error, Result};
use api::FeatureGates;
use apiserver::served::RuntimeConfig;
use client::Resource;
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use scheduler::run::Settings;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{MINUTE, condition, eventually, merge, pod};

/// Longer than any back-off.
const LONG: Duration = Duration::from_mins(2);

struct Run(Cluster);

impl Run {
    async fn start(gates: &[&str]) -> Result<Self> {
        let gates = FeatureGates::parse(gates.iter().copied())?;
        let all = RuntimeConfig::parse(["api/all=true"])?;
        let cluster = Cluster::start_with(|c| {
            c.gates = gates;
            c.runtime_config = all;
        })
        .await?;
        let account = json!({"metadata": {"name": "default", "namespace": "default"}});
        cluster.create::<ServiceAccount>(&account).await?;
        cluster.scheduler_with(Settings::standard_with(gates).map_err(Error::msg)?);
        Ok(Self(cluster))
    }

    async fn gang() -> Result<Self> {
        Self::start(&["GenericWorkload=true", "GangScheduling=true"]).await
    }

    async fn node(&self, name: &str, cpu: &str) -> Result<()> {
        let room = json!({"cpu": cpu, "pods": "20"});
        let status = json!({"allocatable": room, "capacity": room});
        self.0.put::<Node>(&json!({"metadata": {"name": name}, "status": status})).await.map(drop)
    }

    async fn group(&self, name: &str, policy: Value) -> Result<()> {
        let group =
            json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"schedulingPolicy": policy}});
        self.0.create::<PodGroup>(&group).await.map(drop)
    }

    /// Makes Pods of a group that ask for a CPU each.
    async fn pods(&self, group: &str, names: &[&str], more: Value) -> Result<()> {
        for name in names {
            let tolerations = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
            let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
            let mut spec = json!({"spec": {"tolerations": tolerations, "containers": containers}});
            if !group.is_empty() {
                spec["spec"]["schedulingGroup"] = json!({"podGroupName": group});
            }
            merge(&mut spec, &more);
            self.0.create::<Pod>(&pod(name, spec)).await?;
        }
        Ok(())
    }

    /// How many of these Pods have nodes.
    async fn bound(&self, names: &[&str]) -> Result<usize> {
        let mut bound = 0;
        for name in names {
            let pod = self.0.get::<Pod>("default", name).await?;
            bound += usize::from(pod.and_then(|p| p.spec?.node_name).is_some());
        }
        Ok(bound)
    }

    async fn all_bound(&self, names: &[&str]) -> Result<()> {
        eventually("all have nodes", LONG, async || Ok(self.bound(names).await? == names.len())).await
    }

    /// The reasons for which these Pods have no nodes, sorted.
    async fn reasons(&self, names: &[&str]) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for name in names {
            let pod = self.0.get::<Pod>("default", name).await?;
            all.extend(
                pod.as_ref().and_then(|p| condition(p, "PodScheduled")).and_then(|c| c.message.clone()),
            );
        }
        all.sort();
        Ok(all)
    }

    /// Status, reason and message of a group's condition.
    async fn says(&self, group: &str) -> Result<[String; 3]> {
        let group = self.0.get::<PodGroup>("default", group).await?.context("the group")?;
        let all = group.status.and_then(|s| s.conditions).unwrap_or_default();
        let one = all.into_iter().find(|c| c.type_ == "PodGroupScheduled").context("a condition")?;
        Ok([one.status, one.reason, one.message])
    }
}

fn gang(count: u32) -> Value {
    json!({"gang": {"minCount": count}})
}

#[tokio::test(start_paused = true)]
async fn a_gang_waits_for_all_of_it() -> Result<()> {
    let run = Run::gang().await?;
    run.node("n", "4").await?;
    run.pods("g", &["a", "b"], json!({})).await?;
    sleep(LONG).await;
    assert_eq!(run.bound(&["a", "b"]).await?, 0, "there is no such group");
    run.group("g", gang(3)).await?;
    sleep(LONG).await;
    assert_eq!(run.bound(&["a", "b"]).await?, 0, "one is missing");
    run.pods("g", &["c"], json!({})).await?;
    run.all_bound(&["a", "b", "c"]).await?;
    assert_eq!(run.says("g").await?, ["True", "Scheduled", ""]);
    // A further one has what it needs.
    run.pods("g", &["d"], json!({})).await?;
    run.all_bound(&["d"]).await
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_does_not_fit_gets_nothing() -> Result<()> {
    let run = Run::gang().await?;
    run.node("n", "2").await?;
    run.group("g", gang(3)).await?;
    let names = ["a", "b", "c"];
    run.pods("g", &names, json!({})).await?;
    eventually("they are told", LONG, async || Ok(run.reasons(&names).await?.len() == 3)).await?;
    sleep(10 * MINUTE).await;
    assert_eq!(run.bound(&names).await?, 0);
    let reasons = run.reasons(&names).await?;
    assert!(reasons[0].starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{reasons:?}");
    let waits = "waiting for minCount pods from a gang to be scheduled, one or more plugins asked to wait and no plugin rejected pod";
    assert_eq!(reasons[1..], [waits, waits]);
    assert_eq!(run.says("g").await?, ["False", "Unschedulable", ""]);
    // Nothing is held for it.
    run.pods("", &["alone"], json!({})).await?;
    run.all_bound(&["alone"]).await?;
    run.node("m", "2").await?;
    run.all_bound(&names).await?;
    assert_eq!(run.says("g").await?, ["True", "Scheduled", ""]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_of_two_gangs_gets_all() -> Result<()> {
    let run = Run::gang().await?;
    run.node("n", "3").await?;
    let (one, other) = (["a", "b"], ["c", "d"]);
    for (group, names) in [("one", &one), ("other", &other)] {
        run.group(group, gang(2)).await?;
        // Each has half of its Pods before the other has all.
        run.pods(group, &names[..1], json!({})).await?;
    }
    run.pods("one", &one[1..], json!({})).await?;
    run.pods("other", &other[1..], json!({})).await?;
    sleep(10 * MINUTE).await;
    let mut bound = [run.bound(&one).await?, run.bound(&other).await?];
    bound.sort_unstable();
    assert_eq!(bound, [0, 2]);
    run.node("m", "1").await?;
    run.all_bound(&["a", "b", "c", "d"]).await
}

#[tokio::test(start_paused = true)]
async fn a_gang_makes_room_for_all_of_it_or_for_none() -> Result<()> {
    let run = Run::gang().await?;
    let classes = Resource {
        group: "scheduling.k8s.io".into(),
        version: "v1".into(),
        plural: "priorityclasses".into(),
    };
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9,
    });
    run.0.admin().resource::<Value>(classes, "").post::<Value, Value>("", "", &class).await?;
    run.node("n", "2").await?;
    let low = ["low-1", "low-2"];
    run.pods("", &low, json!({"spec": {"terminationGracePeriodSeconds": 0}})).await?;
    run.all_bound(&low).await?;
    let high = || json!({"spec": {"priorityClassName": "high"}});
    let there = async || {
        let mut n = 0;
        for name in low {
            n += usize::from(run.0.get::<Pod>("default", name).await?.is_some());
        }
        Ok::<_, Error>(n)
    };
    run.group("large", gang(3)).await?;
    run.pods("large", &["a", "b", "c"], high()).await?;
    sleep(10 * MINUTE).await;
    assert_eq!((there().await?, run.bound(&["a", "b", "c"]).await?), (2, 0), "it would not help");
    for name in ["a", "b", "c"] {
        run.0.take::<Pod>("default", name).await?;
    }
    run.group("small", gang(2)).await?;
    run.pods("small", &["d", "e"], high()).await?;
    run.all_bound(&["d", "e"]).await?;
    assert_eq!(there().await?, 0);
    assert_eq!(run.says("small").await?, ["True", "Scheduled", ""]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_group_without_a_gang_gets_what_there_is() -> Result<()> {
    let run = Run::gang().await?;
    run.node("n", "2").await?;
    run.group("g", json!({"basic": {}})).await?;
    run.pods("g", &["a", "b", "c"], json!({})).await?;
    eventually("two fit", LONG, async || Ok(run.bound(&["a", "b", "c"]).await? == 2)).await?;
    assert_eq!(run.says("g").await?, ["True", "Scheduled", ""]);
    // Without the gate, a Pod's group is nobody's business.
    let run = Run::start(&[]).await?;
    run.node("n", "2").await?;
    run.pods("g", &["a"], json!({})).await?;
    run.all_bound(&["a"]).await
}
