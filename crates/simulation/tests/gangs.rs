//! Groups of Pods that are scheduled together, where the gates are on.

use std::time::Duration;

use anyhow::{Context, Error, Result};
use api::FeatureGates;
use apiserver::served::RuntimeConfig;
use client::Resource;
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use scheduler::run::Settings;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{MINUTE, condition, eventually, merge, pod};

/// Longer than any back-off.
const LONG: Duration = Duration::from_mins(2);

const RACK: &str = "example.com/rack";

struct Run(Cluster);

impl Run {
    async fn start(gates: &[&str]) -> Result<Self> {
        Self::start_by(gates, |gates| Settings::standard_with(gates).map_err(Error::msg)).await
    }

    async fn start_by(
        gates: &[&str],
        settings: impl FnOnce(FeatureGates) -> Result<Settings>,
    ) -> Result<Self> {
        let gates = FeatureGates::parse(gates.iter().copied())?;
        let all = RuntimeConfig::parse(["api/all=true"])?;
        let cluster = Cluster::start_with(|c| {
            c.gates = gates;
            c.runtime_config = all;
        })
        .await?;
        let account = json!({"metadata": {"name": "default", "namespace": "default"}});
        cluster.create::<ServiceAccount>(&account).await?;
        cluster.scheduler_with(settings(gates)?);
        Ok(Self(cluster))
    }

    async fn gang() -> Result<Self> {
        Self::start(&["GenericWorkload=true", "GangScheduling=true"]).await
    }

    async fn node(&self, name: &str, cpu: &str) -> Result<()> {
        self.node_in("", name, cpu).await
    }

    async fn node_in(&self, rack: &str, name: &str, cpu: &str) -> Result<()> {
        let room = json!({"cpu": cpu, "pods": "20"});
        let status = json!({"allocatable": room, "capacity": room});
        let labels = if rack.is_empty() { json!({}) } else { json!({ RACK: rack }) };
        let node = json!({"metadata": {"name": name, "labels": labels}, "status": status});
        self.0.put::<Node>(&node).await.map(drop)
    }

    async fn group(&self, name: &str, policy: Value) -> Result<()> {
        self.group_with(name, policy, json!({})).await
    }

    async fn group_with(&self, name: &str, policy: Value, more: Value) -> Result<()> {
        let mut spec = json!({"schedulingPolicy": policy});
        merge(&mut spec, &more);
        let group = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        self.0.create::<PodGroup>(&group).await.map(drop)
    }

    async fn class(&self, name: &str, value: i32) -> Result<()> {
        let classes = Resource {
            group: "scheduling.k8s.io".into(),
            version: "v1".into(),
            plural: "priorityclasses".into(),
        };
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value});
        self.0.admin().resource::<Value>(classes, "").post::<Value, Value>("", "", &class).await?;
        Ok(())
    }

    /// The nodes of these Pods, "" for none.
    async fn nodes(&self, names: &[&str]) -> Result<Vec<String>> {
        let mut nodes = Vec::new();
        for name in names {
            let pod = self.0.get::<Pod>("default", name).await?;
            nodes.push(pod.and_then(|p| p.spec?.node_name).unwrap_or_default());
        }
        Ok(nodes)
    }

    async fn until_says(&self, group: &str, expected: [&str; 3]) -> Result<()> {
        let says = async || Ok(self.says(group).await.is_ok_and(|said| said == expected));
        eventually(expected[2], LONG, says).await.with_context(|| format!("{expected:?}"))
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

/// The reason of a Pod that has a node while others of its gang have none.
const WAITS: &str = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, one or more plugins asked to wait and no plugin rejected pod";

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
    assert_eq!(reasons[1..], [WAITS, WAITS]);
    assert_eq!(run.says("g").await?, ["False", "Unschedulable", "pod group is unschedulable"]);
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
    run.class("high", 9).await?;
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

/// A cluster in which groups are placed in racks.
async fn racks(nodes: &[(&str, &str, &str)], more: &[&str]) -> Result<Run> {
    let mut gates =
        vec!["GenericWorkload=true", "GangScheduling=true", "TopologyAwareWorkloadScheduling=true"];
    gates.extend(more);
    let run = Run::start(&gates).await?;
    for (rack, name, cpu) in nodes {
        run.node_in(rack, name, cpu).await?;
    }
    Ok(run)
}

fn in_one_rack() -> Value {
    json!({"schedulingConstraints": {"topology": [{"key": RACK}]}})
}

#[tokio::test(start_paused = true)]
async fn a_gang_goes_into_the_rack_that_has_room_for_all_of_it() -> Result<()> {
    let run = racks(&[("a", "a1", "2"), ("", "other", "9"), ("b", "b1", "2"), ("b", "b2", "1")], &[]).await?;
    run.group_with("g", gang(3), in_one_rack()).await?;
    let names = ["p1", "p2", "p3"];
    run.pods("g", &names, json!({})).await?;
    run.all_bound(&names).await?;
    let mut nodes = run.nodes(&names).await?;
    nodes.sort();
    assert_eq!(nodes, ["b1", "b1", "b2"]);
    assert_eq!(run.says("g").await?, ["True", "Scheduled", ""]);
    // A further one belongs there, too, and there is no room any more.
    run.pods("g", &["p4"], json!({})).await?;
    eventually("it is told", LONG, async || Ok(!run.reasons(&["p4"]).await?.is_empty())).await?;
    let why = run.reasons(&["p4"]).await?;
    assert!(why[0].starts_with("0/2 nodes are available: 2 Insufficient cpu."), "{why:?}");
    run.0.take::<Pod>("default", "p1").await?;
    run.all_bound(&["p4"]).await?;
    assert!(run.nodes(&["p4"]).await?[0].starts_with('b'));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_fits_no_rack_waits_until_one_is_freed() -> Result<()> {
    let run = racks(&[("a", "a1", "2"), ("b", "b1", "3")], &[]).await?;
    run.pods("", &["there"], json!({"spec": {"nodeName": "b1"}})).await?;
    run.group_with("g", gang(3), in_one_rack()).await?;
    let names = ["p1", "p2", "p3"];
    run.pods("g", &names, json!({})).await?;
    let why = "0/2 placements are available, first placement status: pod group is unschedulable";
    run.until_says("g", ["False", "Unschedulable", why]).await?;
    sleep(10 * MINUTE).await;
    assert_eq!(run.bound(&names).await?, 0);
    let reasons = run.reasons(&names).await?;
    let expected = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to placement-based pod group scheduling limitation";
    assert_eq!(reasons, [expected, WAITS, WAITS]);
    run.0.take::<Pod>("default", "there").await?;
    run.all_bound(&names).await?;
    assert_eq!(run.nodes(&names).await?, ["b1"; 3]);
    assert_eq!(run.says("g").await?, ["True", "Scheduled", ""]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_group_goes_where_most_of_it_fits() -> Result<()> {
    let run = racks(&[("a", "a1", "1"), ("b", "b1", "2"), ("c", "c1", "1")], &[]).await?;
    run.group_with("g", json!({"basic": {}}), in_one_rack()).await?;
    let names = ["p1", "p2", "p3"];
    // They have their turn together.
    let gated = json!({"spec": {"schedulingGates": [{"name": "example.com/later"}]}});
    run.pods("g", &names, gated).await?;
    for name in names {
        let free = client::Patch::Merge(json!({"spec": {"schedulingGates": []}}));
        run.0.admin().api::<Pod>("default").patch(name, &free).await?;
    }
    eventually("two fit", LONG, async || Ok(run.bound(&names).await? == 2)).await?;
    sleep(10 * MINUTE).await;
    let mut nodes = run.nodes(&names).await?;
    nodes.sort();
    assert!(nodes[0].is_empty() && nodes[1] == nodes[2], "{nodes:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_gang_without_any_rack_is_told_so() -> Result<()> {
    let run = racks(&[("", "n", "9")], &["WorkloadAwarePreemption=true"]).await?;
    run.group_with("g", gang(2), in_one_rack()).await?;
    run.pods("g", &["p1", "p2"], json!({})).await?;
    let why = "no feasible placements found, workload aware preemption is not supported for pod groups with scheduling constraints";
    run.until_says("g", ["False", "Unschedulable", why]).await?;
    assert_eq!(run.reasons(&["p1", "p2"]).await?, [why, why]);
    run.group("free", gang(1)).await?;
    run.pods("free", &["q"], json!({})).await?;
    run.all_bound(&["q"]).await?;
    // It is tried again and again; a rack of its own is one.
    run.node_in("a", "a1", "2").await?;
    run.all_bound(&["p1", "p2"]).await
}

/// A cluster in which groups make room for groups, with a node of four CPUs.
async fn preempting() -> Result<Run> {
    let gates = ["GenericWorkload=true", "GangScheduling=true", "WorkloadAwarePreemption=true"];
    let run = Run::start(&gates).await?;
    run.class("high", 9).await?;
    run.node("n", "4").await?;
    Ok(run)
}

#[tokio::test(start_paused = true)]
async fn a_gang_preempts_a_less_important_gang_whole() -> Result<()> {
    let run = preempting().await?;
    let (low, high) = (["l1", "l2", "l3"], ["h1", "h2"]);
    run.group_with("low", gang(2), json!({"disruptionMode": "PodGroup"})).await?;
    run.pods("low", &low, json!({})).await?;
    run.all_bound(&low).await?;
    run.group_with("high", gang(2), json!({"priorityClassName": "high"})).await?;
    let group = run.0.get::<PodGroup>("default", "high").await?.context("the group")?;
    assert_eq!((group.spec.priority, group.spec.disruption_mode.as_deref()), (Some(9), Some("Pod")));
    run.pods("high", &high, json!({"spec": {"priorityClassName": "high"}})).await?;
    run.until_says("high", ["False", "Unschedulable", "pod group is unschedulable"]).await?;
    let uid = group.metadata.uid.unwrap_or_default();
    let preempted = format!("Preempted by podgroup {uid} on node cluster");
    let told = async || {
        let events = run.0.list::<Event>("default").await?;
        Ok(events.iter().filter(|e| e.message.as_ref() == Some(&preempted)).count() == 3)
    };
    eventually("all three are told", LONG, told).await?;
    for name in low {
        let pod = run.0.get::<Pod>("default", name).await?.context("it ends in its time")?;
        assert!(pod.metadata.deletion_timestamp.is_some());
        let target = condition(&pod, "DisruptionTarget").context("a condition")?;
        let why = "default-scheduler: preempting to accommodate a higher priority podgroup";
        assert_eq!(
            (target.reason.as_deref(), target.message.as_deref()),
            (Some("PreemptionByScheduler"), Some(why))
        );
    }
    sleep(10 * MINUTE).await;
    assert_eq!(run.bound(&high).await?, 0, "they are still there");
    let reasons = run.reasons(&high).await?;
    let alone = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to workload aware preemption enabled";
    assert_eq!(reasons, [alone, "pod group is unschedulable"]);
    let nominated = async || {
        let mut nodes = Vec::new();
        for name in high {
            let pod = run.0.get::<Pod>("default", name).await?;
            nodes.extend(pod.and_then(|p| p.status?.nominated_node_name));
        }
        Ok::<_, Error>(nodes)
    };
    assert_eq!(nominated().await?, ["n"]);
    for name in low {
        run.0.take::<Pod>("default", name).await?;
    }
    run.all_bound(&high).await?;
    assert_eq!(run.says("high").await?, ["True", "Scheduled", ""]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_gang_preempts_single_pods_where_it_may() -> Result<()> {
    let run = preempting().await?;
    // All may go one by one: those of a group whose mode says so, and one that is alone, which goes first.
    let quick = || json!({"spec": {"terminationGracePeriodSeconds": 0}});
    run.group("low", gang(1)).await?;
    run.pods("low", &["l1", "l2"], quick()).await?;
    run.all_bound(&["l1", "l2"]).await?;
    run.pods("", &["alone"], quick()).await?;
    run.all_bound(&["alone"]).await?;
    run.group_with("equal", gang(2), json!({})).await?;
    run.pods("equal", &["e1", "e2"], json!({})).await?;
    let why = "pod group is unschedulable, No preemption victims found for incoming preemptor";
    run.until_says("equal", ["False", "Unschedulable", why]).await?;
    run.group_with("large", gang(5), json!({"priorityClassName": "high"})).await?;
    run.pods("large", &["x1", "x2", "x3", "x4", "x5"], json!({})).await?;
    // Upstream says it twice: once of the group as it is, once of the group without the others.
    let why = "pod group is unschedulable, pod group is unschedulable";
    run.until_says("large", ["False", "Unschedulable", why]).await?;
    assert_eq!(run.bound(&["l1", "l2", "alone"]).await?, 3, "it would not help");
    run.group_with("high", gang(2), json!({"priorityClassName": "high"})).await?;
    run.pods("high", &["h1", "h2"], json!({})).await?;
    run.all_bound(&["h1", "h2"]).await?;
    assert_eq!(run.bound(&["l1", "l2", "alone"]).await?, 2);
    assert!(run.0.get::<Pod>("default", "alone").await?.is_none());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_group_have_one_scheduler() -> Result<()> {
    let two = |gates| {
        let config = "
            apiVersion: kubescheduler.config.k8s.io/v1
            kind: KubeSchedulerConfiguration
            profiles: [{schedulerName: default-scheduler}, {schedulerName: second}]
            ";
        let config = scheduler::config::read::parse(config.as_bytes()).map_err(Error::msg)?;
        let plugins = scheduler::plugins::registry_with(gates).map_err(Error::msg)?;
        Ok(Settings::new(&config, &plugins).map_err(Error::msg)?.with_gates(gates))
    };
    let run = Run::start_by(&["GenericWorkload=true", "GangScheduling=true"], two).await?;
    run.node("n", "4").await?;
    run.group("g", gang(2)).await?;
    run.pods("g", &["a"], json!({})).await?;
    run.pods("g", &["b"], json!({"spec": {"schedulerName": "second"}})).await?;
    let told = async || Ok(run.reasons(&["a", "b"]).await?.len() == 2);
    eventually("both are told", LONG, told).await?;
    for why in run.reasons(&["a", "b"]).await? {
        let start = "all pods in a single pod group should have the same .spec.schedulerName set, got: ";
        assert!(why.starts_with(start), "{why}");
    }
    assert!(run.says("g").await.is_err(), "nothing is said of the group");
    Ok(())
}
