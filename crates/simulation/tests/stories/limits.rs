//! Things that are counted: quotas, budgets of disruption, replicas, ranges of addresses.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use client::{KubeObject, Patch};
use controllers::{LoadBalancers, Range};
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Pod, ReplicationController, ResourceQuota, Service};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::{Value, json};

use super::{Stage, disturbed, disturbed_with, state};
use crate::common::MINUTE;
use crate::workloads::phase;

async fn scale(cluster: &Cluster, replicas: u32) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    cluster.admin().api::<ReplicationController>("default").patch("web", &patch).await?;
    Ok(())
}

/// Waits until so many Pods run, the quota counts them, and the budget allows so many evictions.
async fn until(stage: &Stage<'_>, pods: usize, allowed: i32) -> Result<()> {
    stage
        .until_every(Duration::from_millis(500), &format!("{pods} Pods are counted"), async |cluster| {
            let running = |p: &&Pod| phase(p) == "Running" && p.metadata.deletion_timestamp.is_none();
            let all = cluster.list::<Pod>("default").await?;
            ensure!(all.len() <= 4, "the quota is for four Pods: {}", all.len());
            let counts = all.len() == pods && all.iter().filter(running).count() == pods;
            let quota = cluster.get::<ResourceQuota>("default", "q").await?.unwrap_or_default();
            let used = quota.status.and_then(|s| s.used).unwrap_or_default();
            let budget = cluster.get::<PodDisruptionBudget>("default", "b").await?.unwrap_or_default();
            let status = budget.status.unwrap_or_default();
            Ok(counts
                && used.get("pods").is_some_and(|q| q.0 == pods.to_string())
                && status.current_healthy == i32::try_from(pods).ok()
                && status.disruptions_allowed == Some(allowed)
                && status.disrupted_pods.is_none_or(|d| d.is_empty()))
        })
        .await
}

/// Replicas come and go, and are evicted: the quota and the budget count each once.
#[tokio::test(start_paused = true)]
async fn replicas_are_counted() -> Result<()> {
    let controllers = [
        "replicationcontroller-controller",
        "resourcequota-controller",
        "disruption-controller",
        "garbage-collector-controller",
    ];
    disturbed(&controllers, async |stage| {
        let cluster = stage.cluster;
        let meta = |name: &str| json!({"name": name, "namespace": "default"});
        let quota = json!({"metadata": meta("q"), "spec": {"hard": {"pods": "4"}}});
        cluster.create::<ResourceQuota>(&quota).await?;
        let budget = json!({"metadata": meta("b"), "spec": {"minAvailable": 2,
            "selector": {"matchLabels": {"app": "web"}}}});
        cluster.create::<PodDisruptionBudget>(&budget).await?;
        stage
            .until("the quota is counted", async |cluster| {
                let quota = cluster.get::<ResourceQuota>("default", "q").await?.unwrap_or_default();
                Ok(quota.status.is_some_and(|s| s.used.is_some_and(|u| !u.is_empty())))
            })
            .await?;
        let template = json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let replicas = json!({"metadata": meta("web"), "spec": {"replicas": 3, "template": template}});
        cluster.create::<ReplicationController>(&replicas).await?;
        until(stage, 3, 1).await?;
        let victim = cluster.list::<Pod>("default").await?.remove(0).metadata;
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": victim.name, "namespace": "default"}});
        let name = victim.name.clone().unwrap_or_default();
        let pods = cluster.admin().api::<Pod>("default");
        pods.post::<Value, Value>(&name, "eviction", &eviction).await?;
        stage.all::<Pod>("it goes", |all| all.iter().all(|p| p.metadata.uid != victim.uid)).await?;
        until(stage, 3, 1).await?;
        // The quota allows one more alone.
        scale(cluster, 6).await?;
        until(stage, 4, 2).await?;
        stage.pass(MINUTE).await?;
        scale(cluster, 2).await?;
        until(stage, 2, 0).await?;
        stage.pass(MINUTE).await?;
        until(stage, 2, 0).await?;
        let mut budgets = state::<PodDisruptionBudget>(cluster).await?;
        budgets[0]["status"]["conditions"].take();
        let end = json!([
            state::<ReplicationController>(cluster).await?,
            state::<ResourceQuota>(cluster).await?,
            budgets
        ]);
        // By default its Pods would stay.
        let all =
            DeleteOptions { propagation_policy: Some("Background".to_owned()), ..DeleteOptions::default() };
        cluster.admin().api::<ReplicationController>("default").delete("web", Some(&all)).await?;
        stage.all::<Pod>("no Pod is left", <[_]>::is_empty).await?;
        Ok(end)
    })
    .await
}

async fn gone<T: KubeObject>(stage: &Stage<'_>, name: &str) -> Result<()> {
    stage
        .until(&format!("{name} is gone"), async |cluster| Ok(cluster.get::<T>("", name).await?.is_none()))
        .await
}

/// A range of addresses is held as long as a Service has one of them.
#[tokio::test(start_paused = true)]
async fn a_range_of_addresses() -> Result<()> {
    disturbed(&["service-cidr-controller"], async |stage| {
        let cluster = stage.cluster;
        let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.200.0.0/24"]}});
        cluster.create::<ServiceCIDR>(&range).await?;
        let says = |range: &ServiceCIDR, status: &str| {
            let all = range.status.as_ref().and_then(|s| s.conditions.as_ref()).into_iter().flatten();
            all.filter(|c| c.type_ == "Ready").any(|c| c.status == status)
        };
        let until = async |status: &str| {
            stage
                .until(&format!("ready is {status}"), async |cluster| {
                    let range = cluster.get::<ServiceCIDR>("", "more").await?.unwrap_or_default();
                    Ok(says(&range, status))
                })
                .await
        };
        until("True").await?;
        let service = json!({"metadata": {"name": "web", "namespace": "default"},
            "spec": {"clusterIP": "10.200.0.7", "ports": [{"port": 80}]}});
        stage
            .until("a Service has an address of it", async |cluster| {
                let done = cluster.get::<Service>("default", "web").await?.is_some();
                Ok(done || cluster.create::<Service>(&service).await.is_ok())
            })
            .await?;
        ensure!(cluster.get::<IPAddress>("", "10.200.0.7").await?.is_some(), "it has no address");
        cluster.admin().api::<ServiceCIDR>("").delete("more", None).await?;
        until("False").await?;
        stage.pass(MINUTE).await?;
        until("False").await?;
        cluster.admin().api::<Service>("default").delete("web", None).await?;
        gone::<IPAddress>(stage, "10.200.0.7").await?;
        gone::<ServiceCIDR>(stage, "more").await?;
        Ok(Value::Null)
    })
    .await
}

/// The addresses of load balancers, by the names of their Services; none has two Services.
async fn balanced(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for service in cluster.list::<Service>("default").await? {
        let ingress = service.status.and_then(|s| s.load_balancer?.ingress).unwrap_or_default();
        let name = service.metadata.name.unwrap_or_default();
        for address in ingress.into_iter().filter_map(|i| i.ip) {
            ensure!(!all.values().any(|a| *a == address), "{address} is given twice");
            ensure!(all.insert(name.clone(), address).is_none(), "{name} has two");
        }
    }
    Ok(all)
}

/// Two addresses and three Services: one waits until another gives its address back.
#[tokio::test(start_paused = true)]
async fn addresses_of_load_balancers() -> Result<()> {
    let range = "192.0.2.1-192.0.2.2".parse::<Range>().map_err(anyhow::Error::msg)?;
    let set = |c: &mut controllers::Config| {
        c.load_balancers = Some(LoadBalancers { pool: vec![range], reserved: Vec::new() });
    };
    disturbed_with(&["service-lb-controller"], &set, async |stage| {
        let cluster = stage.cluster;
        for name in ["a", "b", "c"] {
            let service = json!({"metadata": {"name": name, "namespace": "default"},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
            cluster.create::<Service>(&service).await?;
        }
        stage.until("two have addresses", async |cluster| Ok(balanced(cluster).await?.len() == 2)).await?;
        stage.pass(MINUTE).await?;
        let before = balanced(cluster).await?;
        let (first, address) = before.first_key_value().ok_or_else(|| anyhow::anyhow!("no addresses"))?;
        let away = Patch::Merge(json!({"spec": {"type": "ClusterIP"}}));
        cluster.admin().api::<Service>("default").patch(first, &away).await?;
        stage
            .until("the third has its address", async |cluster| {
                let now = balanced(cluster).await?;
                Ok(now.len() == 2 && !now.contains_key(first) && now.values().any(|a| a == address))
            })
            .await?;
        for name in ["a", "b", "c"] {
            cluster.admin().api::<Service>("default").delete(name, None).await?;
        }
        stage.all::<Service>("the cluster's own is left", |all| all.len() == 1).await?;
        Ok(Value::Null)
    })
    .await
}
