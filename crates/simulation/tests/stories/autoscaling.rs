//! Autoscalers.

use std::time::Duration;

use anyhow::{Result, ensure};
use client::Patch;
use ferrokube_simulation::Cluster;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{disturbed, state};
use crate::workloads::{deployment, phase};

/// A Deployment follows its load up and down, never beyond what the load and the limits allow, and stays where a user
/// stops its autoscaler.
#[tokio::test(start_paused = true)]
async fn a_deployment_that_follows_its_load() -> Result<()> {
    let controllers = [
        "horizontal-pod-autoscaler-controller",
        "deployment-controller",
        "replicaset-controller",
        "garbage-collector-controller",
    ];
    disturbed(&controllers, async |stage| {
        let cluster = stage.cluster;
        // Minutes pass: a look every 100 ms would be most of the work.
        let look = Duration::from_secs(2);
        let size = async |cluster: &Cluster| {
            let web = cluster.get::<Deployment>("default", "web").await?.unwrap_or_default();
            anyhow::Ok(web.spec.and_then(|s| s.replicas).unwrap_or_default())
        };
        let until = async |replicas: i32| {
            stage
                .until_every(look, &format!("{replicas} run"), async |cluster| {
                    let pods = cluster.list::<Pod>("default").await?;
                    let running = pods.iter().filter(|p| phase(p) == "Running").count();
                    let now = size(cluster).await?;
                    ensure!((1..=5).contains(&now), "it has {now} replicas");
                    Ok(now == replicas && pods.len() == running && i32::try_from(running)? == replicas)
                })
                .await
        };
        cluster.create::<Deployment>(&deployment("web", 1, "100m")).await?;
        cluster.loads().set("web", 0.25).await?;
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}});
        let autoscaler = json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1, "maxReplicas": 6, "metrics": [cpu],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
            },
        });
        cluster.create::<HorizontalPodAutoscaler>(&autoscaler).await?;
        until(5).await?;
        cluster.loads().set("web", 0.095).await?;
        until(2).await?;
        stage
            .until_every(look, "it says so", async |cluster| {
                let all = cluster.list::<HorizontalPodAutoscaler>("default").await?;
                let status = all.into_iter().find_map(|a| a.status).unwrap_or_default();
                let held = |kind: &str, reason: &str| {
                    let mut all = status.conditions.iter().flatten();
                    all.any(|c| c.type_ == kind && c.reason.as_deref() == Some(reason))
                };
                Ok(status.current_replicas == Some(2)
                    && status.desired_replicas == 2
                    && held("AbleToScale", "ReadyForNewScale")
                    && held("ScalingLimited", "DesiredWithinRange"))
            })
            .await?;
        let mut end = state::<HorizontalPodAutoscaler>(cluster).await?;
        for status in ["lastScaleTime", "currentMetrics"] {
            end[0]["status"][status].take();
        }
        // Somebody sets the size to zero: the autoscaler leaves it there.
        let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
        cluster.admin().api::<Deployment>("default").patch("web", &none).await?;
        stage
            .until_every(look, "no Pod is left", async |cluster| {
                Ok(cluster.list::<Pod>("default").await?.is_empty())
            })
            .await?;
        stage
            .until_every(look, "scaling is off", async |cluster| {
                let all = cluster.list::<HorizontalPodAutoscaler>("default").await?;
                let status = all.into_iter().find_map(|a| a.status).unwrap_or_default();
                let mut all = status.conditions.into_iter().flatten();
                Ok(all.any(|c| c.reason.as_deref() == Some("ScalingDisabled")))
            })
            .await?;
        ensure!(size(cluster).await? == 0, "it has Pods again");
        cluster.take::<HorizontalPodAutoscaler>("default", "web").await?;
        let back: Value = json!({"spec": {"replicas": 1}});
        cluster.admin().api::<Deployment>("default").patch("web", &Patch::Merge(back)).await?;
        until(1).await?;
        Ok(end)
    })
    .await
}
