//! The course of workloads.

use std::time::Duration;

use anyhow::Result;
use ferrokube_simulation::{Cluster, Fleet, Shape};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_mins(1);

pub(crate) fn deployment(name: &str, replicas: u32, cpu: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
        }},
    })
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default()
}

/// A cluster with all controllers, the scheduler and nodes.
pub(crate) async fn cluster(nodes: usize, shape: &Shape) -> Result<(Cluster, Fleet)> {
    cluster_with(&["*"], nodes, shape).await
}

/// The same with these controllers.
pub(crate) async fn cluster_with(chosen: &[&str], nodes: usize, shape: &Shape) -> Result<(Cluster, Fleet)> {
    let cluster = Cluster::start().await?;
    cluster.controllers(chosen)?;
    cluster.scheduler();
    let fleet = Fleet::start(&cluster, "node", nodes, shape);
    cluster.until::<Node>(MINUTE, "", |all| all.len() == nodes).await?;
    // Pods are refused until their account is there.
    cluster
        .until::<k8s_openapi::api::core::v1::ServiceAccount>(MINUTE, "default", |all| !all.is_empty())
        .await?;
    Ok((cluster, fleet))
}

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_is_rolled_out_and_goes() -> Result<()> {
    let (cluster, _fleet) = cluster(3, &Shape::default()).await?;
    cluster.create::<Deployment>(&deployment("web", 6, "1")).await?;
    let running = |all: &[Pod], count: usize| all.len() == count && all.iter().all(|p| phase(p) == "Running");
    cluster.until::<Pod>(MINUTE, "default", |all| running(all, 6)).await?;
    cluster
        .until::<Deployment>(MINUTE, "default", |all| {
            all.iter().all(|d| d.status.as_ref().and_then(|s| s.available_replicas) == Some(6))
        })
        .await?;
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}});
    let deployments = cluster.admin().api::<Deployment>("default");
    deployments.patch("web", &client::Patch::Strategic(patch)).await?;
    let image = |p: &Pod| p.spec.as_ref().and_then(|s| s.containers.first()?.image.clone());
    cluster
        .until::<Pod>(5 * MINUTE, "default", |all| {
            running(all, 6) && all.iter().all(|p| image(p).as_deref() == Some("j"))
        })
        .await?;
    assert_eq!(cluster.list::<ReplicaSet>("default").await?.len(), 2, "the old one is kept for a rollback");
    deployments.delete("web", None).await?;
    cluster.until::<Pod>(5 * MINUTE, "default", <[Pod]>::is_empty).await?;
    cluster.until::<ReplicaSet>(5 * MINUTE, "default", <[ReplicaSet]>::is_empty).await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_silent_node_run_elsewhere() -> Result<()> {
    let (cluster, fleet) = cluster(2, &Shape::default()).await?;
    cluster.create::<Deployment>(&deployment("web", 4, "1")).await?;
    let on =
        |all: &[Pod], node: &str| all.iter().filter(|p| phase(p) == "Running" && node_of(p) == node).count();
    cluster.until::<Pod>(MINUTE, "default", |all| on(all, "node-0") == 2 && on(all, "node-1") == 2).await?;
    assert!(fleet.fail("node-1"));
    // 50 seconds until it counts as silent, and the five minutes for which Pods tolerate that.
    let took = cluster.until::<Pod>(10 * MINUTE, "default", |all| on(all, "node-0") == 4).await?;
    assert!(took > Duration::from_mins(5), "{took:?}");
    let node = cluster.get::<Node>("", "node-1").await?.unwrap();
    let taints = node.spec.unwrap().taints.unwrap_or_default();
    assert!(taints.iter().any(|t| t.key == "node.kubernetes.io/unreachable"), "{taints:?}");
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_waits_for_room() -> Result<()> {
    let (cluster, _fleet) = cluster(1, &Shape { cpu: 2, ..Shape::default() }).await?;
    cluster.create::<Deployment>(&deployment("web", 3, "1")).await?;
    let running = |all: &[Pod]| all.iter().filter(|p| phase(p) == "Running").count();
    cluster.until::<Pod>(MINUTE, "default", |all| running(all) == 2).await?;
    let says = |p: &Pod| {
        let conditions = p.status.iter().flat_map(|s| s.conditions.iter().flatten());
        conditions.filter(|c| c.type_ == "PodScheduled").find_map(|c| c.message.clone())
    };
    let waiting = |all: &[Pod]| all.iter().find(|p| node_of(p).is_empty()).and_then(says);
    let refusal = "0/1 nodes are available: 1 Insufficient cpu. ";
    cluster
        .until::<Pod>(MINUTE, "default", |all| waiting(all).is_some_and(|m| m.starts_with(refusal)))
        .await?;
    let _more = Fleet::start(&cluster, "more", 1, &Shape::default());
    cluster.until::<Pod>(MINUTE, "default", |all| running(all) == 3).await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_all_that_is_in_it() -> Result<()> {
    let (cluster, _fleet) = cluster(1, &Shape::default()).await?;
    cluster.create::<Namespace>(&json!({"metadata": {"name": "team"}})).await?;
    cluster
        .until::<k8s_openapi::api::core::v1::ServiceAccount>(MINUTE, "team", |all| !all.is_empty())
        .await?;
    let mut wanted = deployment("web", 2, "1");
    wanted["metadata"]["namespace"] = "team".into();
    cluster.create::<Deployment>(&wanted).await?;
    cluster
        .until::<Pod>(MINUTE, "team", |all| all.iter().filter(|p| phase(p) == "Running").count() == 2)
        .await?;
    cluster.admin().api::<Namespace>("").delete("team", None).await?;
    cluster
        .until::<Namespace>(5 * MINUTE, "", |all| {
            all.iter().all(|n| n.metadata.name.as_deref() != Some("team"))
        })
        .await?;
    assert!(cluster.list::<Pod>("team").await?.is_empty());
    cluster.stop().await;
    Ok(())
}
