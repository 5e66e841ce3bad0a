//! DaemonSets: their course, and what interrupts it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use api::Status;
use client::{Patch, Verb};
use ferrokube_simulation::{Cluster, Fault, Fleet, Rule, Running, Shape};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::common::{MINUTE, eventually, interrupted, merge, said};
use crate::workloads::{cluster, cluster_with, node_of, phase};

fn daemon_set(more: Value) -> Value {
    let labels = json!({"app": "agent"});
    let mut set = json!({
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    merge(&mut set, &more);
    set
}

fn image(image: &str) -> Patch {
    Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}))
}

fn is(pod: &Pod, image: &str) -> bool {
    let spec = pod.spec.as_ref();
    phase(pod) == "Running"
        && pod.metadata.deletion_timestamp.is_none()
        && spec.and_then(|s| s.containers.first()?.image.as_deref()) == Some(image)
}

/// Whether exactly one Pod of an image runs on each of so many nodes.
fn one_each(all: &[Pod], nodes: usize, image: &str) -> bool {
    let mut on: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in all {
        *on.entry(node_of(pod)).or_default() += 1;
    }
    on.len() == nodes && on.values().all(|n| *n == 1) && all.iter().all(|p| is(p, image))
}

async fn until(cluster: &Cluster, nodes: usize, image: &str) -> Result<Duration> {
    cluster.until::<Pod>(5 * MINUTE, "default", |all| one_each(all, nodes, image)).await
}

async fn change(cluster: &Cluster, patch: &Patch) -> Result<DaemonSet> {
    Ok(cluster.admin().api::<DaemonSet>("default").patch("agent", patch).await?)
}

/// Waits until the status counts so many nodes that want a Pod, that have an up-to-date one, and that have one wrongly.
async fn counted(cluster: &Cluster, desired: i32, updated: i32, wrong: i32) -> Result<()> {
    eventually("the status", 5 * MINUTE, async || {
        let set = cluster.get::<DaemonSet>("default", "agent").await?.unwrap_or_default();
        let s = set.status.unwrap_or_default();
        let got =
            (s.desired_number_scheduled, s.updated_number_scheduled.unwrap_or(0), s.number_misscheduled);
        Ok(got == (desired, updated, wrong) && s.observed_generation == set.metadata.generation)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_set_runs_everywhere_is_updated_rolled_back_and_goes() -> Result<()> {
    for strategy in [json!({"maxUnavailable": 1}), json!({"maxSurge": 1, "maxUnavailable": 0})] {
        let (cluster, _fleet) = cluster(3, &Shape::default()).await?;
        let rolling = json!({"spec": {"updateStrategy": {"rollingUpdate": strategy}}});
        cluster.create::<DaemonSet>(&daemon_set(rolling)).await?;
        until(&cluster, 3, "i").await?;
        counted(&cluster, 3, 3, 0).await?;
        change(&cluster, &image("j")).await?;
        until(&cluster, 3, "j").await?;
        counted(&cluster, 3, 3, 0).await?;
        let mut revisions = cluster.list::<ControllerRevision>("default").await?;
        revisions.sort_by_key(|r| r.revision);
        assert_eq!(revisions.iter().map(|r| r.revision).collect::<Vec<_>>(), [1, 2]);
        // The patch is that of `kubectl rollout undo`.
        change(&cluster, &Patch::Strategic(revisions[0].data.clone().unwrap().0)).await?;
        until(&cluster, 3, "i").await?;
        eventually("the revision counts anew", MINUTE, async || {
            let all = cluster.list::<ControllerRevision>("default").await?;
            let again = all.iter().find(|r| r.metadata.name == revisions[0].metadata.name);
            Ok(all.len() == 2 && again.is_some_and(|r| r.revision == 3))
        })
        .await?;
        cluster.admin().api::<DaemonSet>("default").delete("agent", None).await?;
        cluster.until::<Pod>(5 * MINUTE, "default", <[Pod]>::is_empty).await?;
        cluster.until::<ControllerRevision>(5 * MINUTE, "default", <[ControllerRevision]>::is_empty).await?;
        cluster.stop().await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn nodes_come_and_are_tainted_and_go() -> Result<()> {
    let (cluster, _fleet) = cluster(2, &Shape::default()).await?;
    cluster.create::<DaemonSet>(&daemon_set(json!({}))).await?;
    until(&cluster, 2, "i").await?;
    let _more = Fleet::start(&cluster, "more", 1, &Shape::default());
    until(&cluster, 3, "i").await?;
    let nodes = cluster.admin().api::<Node>("");
    let taint = async |effect: &str| {
        let taints = json!([{"key": "k", "effect": effect}]);
        nodes.patch("node-1", &Patch::Merge(json!({"spec": {"taints": taints}}))).await
    };
    // The Pod of a node that new Pods avoid stays, and is counted.
    taint("NoSchedule").await?;
    counted(&cluster, 2, 2, 1).await?;
    assert_eq!(cluster.list::<Pod>("default").await?.len(), 3);
    taint("NoExecute").await?;
    until(&cluster, 2, "i").await?;
    counted(&cluster, 2, 2, 0).await?;
    nodes.patch("node-1", &Patch::Merge(json!({"spec": {"taints": null}}))).await?;
    until(&cluster, 3, "i").await?;
    // By their labels, all but one node are left.
    nodes.patch("node-0", &Patch::Merge(json!({"metadata": {"labels": {"color": "blue"}}}))).await?;
    let selector = json!({"spec": {"template": {"spec": {"nodeSelector": {"color": "blue"}}}}});
    change(&cluster, &Patch::Merge(selector)).await?;
    until(&cluster, 1, "i").await?;
    counted(&cluster, 1, 1, 0).await?;
    nodes.delete("node-0", None).await?;
    counted(&cluster, 0, 0, 0).await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failed_pods_are_replaced_later_and_later() -> Result<()> {
    let (cluster, _fleet) = cluster(1, &Shape::default()).await?;
    cluster.create::<DaemonSet>(&daemon_set(json!({}))).await?;
    let mut waits = Vec::new();
    for _ in 0..4 {
        until(&cluster, 1, "i").await?;
        let pod = cluster.list::<Pod>("default").await?.remove(0);
        let name = pod.metadata.name.unwrap();
        let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
        cluster.admin().api::<Pod>("default").patch_status(&name, &failed).await?;
        let gone = |all: &[Pod]| all.iter().all(|p| p.metadata.name.as_ref() != Some(&name));
        waits.push(cluster.until::<Pod>(5 * MINUTE, "default", gone).await?);
    }
    said(&cluster, "FailedDaemonPod").await?;
    // The first goes at once, the second too, since a new one took longer than a second; then they wait.
    assert!(waits[3] > waits[0], "{waits:?}");
    cluster.stop().await;
    Ok(())
}

/// Returns the number of times that a queue was asked to look at something.
fn adds(running: &Running, queue: &str) -> u64 {
    let page = running.metrics.page().text();
    let line = format!("workqueue_adds_total{{name=\"{queue}\"}} ");
    page.lines().find_map(|l| l.strip_prefix(&line)?.parse().ok()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn heartbeats_cost_nothing() -> Result<()> {
    let (cluster, _fleet) = cluster_with(&["*", "-daemonset-controller"], 5, &Shape::default()).await?;
    let running = cluster.controllers(&["daemonset-controller"])?;
    cluster.create::<DaemonSet>(&daemon_set(json!({}))).await?;
    until(&cluster, 5, "i").await?;
    counted(&cluster, 5, 5, 0).await?;
    let looks = || (adds(&running, "daemonset"), adds(&running, "daemonset-node-updates"));
    let (sets, changed) = looks();
    assert!(sets > 0 && changed >= 5);
    let nodes = cluster.admin().api::<Node>("");
    for beat in 0..20 {
        for n in 0..5 {
            let time = format!("2026-01-01T01:00:{beat:02}Z");
            let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True",
                "lastHeartbeatTime": time, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
            nodes.patch_status(&format!("node-{n}"), &Patch::Merge(status)).await?;
        }
    }
    // A label is looked at, once. It comes after all heartbeats.
    nodes.patch("node-0", &Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}))).await?;
    eventually("the label is looked at", MINUTE, async || Ok(looks().1 > changed)).await?;
    assert_eq!(looks(), (sets, changed + 1));
    cluster.stop().await;
    Ok(())
}

/// The controller loses the answer to each of its first writes in turn: no Pod is made twice, none is lost.
#[tokio::test(start_paused = true)]
async fn lost_answers_do_no_harm() -> Result<()> {
    for verb in [Verb::Create, Verb::Delete, Verb::Update] {
        let (cluster, _fleet) = cluster(3, &Shape::default()).await?;
        let gone = || Status::failure(504, "Timeout", "the answer is lost");
        for resource in ["pods", "controllerrevisions", "daemonsets"] {
            for skip in 0..4 {
                let rule = Rule::new(Fault::Lose(gone())).verb(verb).resource(resource);
                cluster.faults().add(rule.skip(skip).times(1));
            }
        }
        cluster.create::<DaemonSet>(&daemon_set(json!({}))).await?;
        until(&cluster, 3, "i").await?;
        change(&cluster, &image("j")).await?;
        until(&cluster, 3, "j").await?;
        counted(&cluster, 3, 3, 0).await?;
        assert_eq!(cluster.list::<ControllerRevision>("default").await?.len(), 2);
        cluster.stop().await;
    }
    Ok(())
}

/// The controller ends at each of its writes in turn, and another one begins.
#[tokio::test(start_paused = true)]
async fn an_end_between_two_actions_does_no_harm() -> Result<()> {
    let all = [
        (Verb::Create, "pods", "", 5),
        (Verb::Create, "controllerrevisions", "", 2),
        (Verb::Update, "daemonsets", "status", 4),
        (Verb::Delete, "pods", "", 1),
    ];
    let others = ["*", "-daemonset-controller"];
    for (verb, resource, subresource, count) in all {
        for skip in 0..count {
            let (cluster, _fleet) = cluster_with(&others, 3, &Shape::default()).await?;
            let at = (verb, resource, subresource, skip);
            interrupted(&cluster, "daemonset-controller", at, async |cluster| {
                cluster.create::<DaemonSet>(&daemon_set(json!({}))).await?;
                let made = |all: &[Pod]| all.len() == 3;
                let _ = cluster.until::<Pod>(MINUTE, "default", made).await;
                change(cluster, &image("j")).await.map(drop)
            })
            .await?;
            until(&cluster, 3, "j").await?;
            let revisions = cluster.list::<ControllerRevision>("default").await?;
            assert!(revisions.len() <= 2, "{at:?}: {} revisions", revisions.len());
            cluster.stop().await;
        }
    }
    Ok(())
}
