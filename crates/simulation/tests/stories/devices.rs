//! Devices: Pods that leave tainted ones, answers about pools; groups of Pods.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use client::Patch;
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::resource::v1alpha3::ResourcePoolStatusRequest;
use k8s_openapi::api::resource::v1beta2::DeviceTaintRule;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{disturbed_where, state};
use crate::common::{MINUTE, merge, pod};
use crate::workloads::phase;

const DRIVER: &str = "gpu.example.com";

/// A claim on a device that tolerates a broken one with these additions.
fn claim(name: &str, tolerates: &[Value]) -> Value {
    let toleration = |more: &Value| {
        let mut toleration = json!({"key": "broken", "operator": "Exists", "effect": "NoExecute"});
        merge(&mut toleration, more);
        toleration
    };
    let all: Vec<Value> = tolerates.iter().map(toleration).collect();
    let exactly = json!({"deviceClassName": "gpu", "tolerations": all});
    let requests = json!([{"name": "r", "exactly": exactly}]);
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": requests}}})
}

fn slice(name: &str, generation: i64, count: i64, taints: &Value) -> Value {
    let device = |i: usize| json!({"name": format!("{name}-{i}"), "taints": taints});
    json!({"metadata": {"name": name}, "spec": {"driver": DRIVER, "allNodes": true,
        "devices": [device(0), device(1), device(2)],
        "pool": {"name": "p", "generation": generation, "resourceSliceCount": count}}})
}

/// The running Pods and their uids.
async fn running(cluster: &Cluster) -> Result<BTreeSet<(String, String)>> {
    let all = cluster.list::<Pod>("default").await?.into_iter();
    let runs = all.filter(|p| phase(p) == "Running" && p.metadata.deletion_timestamp.is_none());
    Ok(runs.filter_map(|p| Some((p.metadata.name?, p.metadata.uid?))).collect())
}

/// Devices are tainted, by a rule and by their driver: each Pod goes when its claim does not tolerate it any more, and the
/// others stay.
#[tokio::test(start_paused = true)]
async fn pods_of_tainted_devices() -> Result<()> {
    let features = ["DRADeviceTaints=true", "DRADeviceTaintRules=true"];
    let controllers = ["device-taint-eviction-controller", "resourceclaim-controller"];
    disturbed_where(&features, &controllers, &|_| {}, async |stage| {
        let cluster = stage.cluster;
        cluster.create::<DeviceClass>(&json!({"metadata": {"name": "gpu"}, "spec": {}})).await?;
        cluster.create::<ResourceSlice>(&slice("a", 1, 1, &json!([]))).await?;
        for (name, tolerates) in [("now", vec![]), ("later", vec![json!({"tolerationSeconds": 90})]), ("never", vec![json!({})])] {
            cluster.create::<ResourceClaim>(&claim(name, &tolerates)).await?;
            let place = json!([{"name": "device", "resourceClaimName": name}]);
            cluster.create::<Pod>(&pod(name, json!({"spec": {"resourceClaims": place}}))).await?;
        }
        stage.until("all run", async |cluster| Ok(running(cluster).await?.len() == 3)).await?;
        let first = running(cluster).await?;
        let is = |uid: &(String, String), names: &[&str]| names.contains(&uid.0.as_str());
        let left = |names: &[&str]| -> BTreeSet<_> { first.iter().filter(|p| is(p, names)).cloned().collect() };
        let until = async |names: &[&str]| {
            stage
                .until(&format!("{names:?} are left"), async |cluster| Ok(running(cluster).await? == left(names)))
                .await
        };
        let taint = json!({"key": "broken", "effect": "NoExecute"});
        let rule = json!({"metadata": {"name": "rule"}, "spec": {"deviceSelector": {"driver": DRIVER}, "taint": taint}});
        cluster.create::<DeviceTaintRule>(&rule).await?;
        let since = Instant::now();
        until(&["later", "never"]).await?;
        until(&["never"]).await?;
        ensure!(since.elapsed() >= Duration::from_secs(89), "it went after {:?}", since.elapsed());
        stage
            .until("the rule says so", async |cluster| {
                let rule = cluster.get::<DeviceTaintRule>("", "rule").await?.unwrap_or_default();
                let mut all = rule.status.into_iter().flat_map(|s| s.conditions.unwrap_or_default());
                Ok(all.any(|c| c.type_ == "EvictionInProgress" && c.status == "False"))
            })
            .await?;
        stage.pass(2 * MINUTE).await?;
        until(&["never"]).await?;
        let reserved = |all: &[ResourceClaim]| -> usize {
            let of = |c: &ResourceClaim| c.status.as_ref()?.reserved_for.as_ref().map(Vec::len);
            all.iter().filter_map(of).sum()
        };
        stage.all::<ResourceClaim>("one device is in use", |all| reserved(all) == 1).await?;
        // The driver says it of a newer generation, and takes it back before the time of one Pod has come.
        cluster.take::<DeviceTaintRule>("", "rule").await?;
        let place = json!([{"name": "device", "resourceClaimName": "later"}]);
        cluster.create::<Pod>(&pod("again", json!({"spec": {"resourceClaims": place}}))).await?;
        stage.until("it runs", async |cluster| Ok(running(cluster).await?.len() == 2)).await?;
        let both = running(cluster).await?;
        cluster.put::<ResourceSlice>(&slice("a", 2, 1, &json!([taint]))).await?;
        stage.pass(Duration::from_secs(30)).await?;
        cluster.put::<ResourceSlice>(&slice("a", 3, 1, &json!([]))).await?;
        stage.pass(3 * MINUTE).await?;
        ensure!(running(cluster).await? == both, "the taint is gone");
        Ok(Value::Null)
    })
    .await
}

/// The answer to a question about pools comes when all slices are there, once, and goes an hour later.
#[tokio::test(start_paused = true)]
async fn questions_about_pools() -> Result<()> {
    let controllers = ["resourcepoolstatusrequest-controller"];
    disturbed_where(&["DRAResourcePoolStatus=true"], &controllers, &|_| {}, async |stage| {
        let cluster = stage.cluster;
        cluster.create::<ResourceSlice>(&slice("a", 1, 2, &json!([]))).await?;
        let ask = json!({"metadata": {"name": "r"}, "spec": {"driver": DRIVER}});
        cluster.create::<ResourcePoolStatusRequest>(&ask).await?;
        let answer = async |cluster: &Cluster| {
            anyhow::Ok(cluster.get::<ResourcePoolStatusRequest>("", "r").await?.and_then(|r| r.status))
        };
        stage.pass(Duration::from_secs(20)).await?;
        ensure!(answer(cluster).await?.is_none(), "a slice is missing");
        cluster.create::<ResourceSlice>(&slice("b", 1, 2, &json!([]))).await?;
        stage.until("it is answered", async |cluster| Ok(answer(cluster).await?.is_some())).await?;
        let first = answer(cluster).await?;
        // Minutes pass: a look every 100 ms would be most of the work.
        let look = Duration::from_secs(20);
        let end = Instant::now() + 35 * MINUTE;
        stage.until_every(look, "time passes", async |_| Ok(Instant::now() > end)).await?;
        ensure!(answer(cluster).await? == first, "it is answered twice");
        let gone =
            async |cluster: &Cluster| Ok(cluster.get::<ResourcePoolStatusRequest>("", "r").await?.is_none());
        stage.until_every(look, "it goes", gone).await?;
        let pools = first.into_iter().flat_map(|s| s.pools.unwrap_or_default());
        Ok(json!(pools.map(|p| (p.pool_name, p.resource_slice_count, p.total_devices)).collect::<Vec<_>>()))
    })
    .await
}

/// A group of Pods stays as long as one of its Pods that has not ended.
#[tokio::test(start_paused = true)]
async fn a_group_of_pods() -> Result<()> {
    let controllers = ["podgroup-protection-controller"];
    disturbed_where(&["GenericWorkload=true"], &controllers, &|_| {}, async |stage| {
        let cluster = stage.cluster;
        let group = json!({"metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingPolicy": {"basic": {}}}});
        cluster.create::<PodGroup>(&group).await?;
        for (name, node) in [("p", "node-0"), ("q", "node-1")] {
            let more = json!({"spec": {"schedulingGroup": {"podGroupName": "g"}, "nodeName": node}});
            cluster.create::<Pod>(&pod(name, more)).await?;
        }
        stage.until("both run", async |cluster| Ok(running(cluster).await?.len() == 2)).await?;
        cluster.admin().api::<PodGroup>("default").delete("g", None).await?;
        let there = async || anyhow::Ok(cluster.get::<PodGroup>("default", "g").await?.is_some());
        stage.pass(MINUTE).await?;
        let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        cluster.admin().api::<Pod>("default").patch_status("p", &ended).await?;
        stage.pass(MINUTE).await?;
        ensure!(there().await?, "a Pod of it runs");
        let end = state::<PodGroup>(cluster).await?;
        cluster.take::<Pod>("default", "q").await?;
        stage.until("it goes", async |_| Ok(!there().await?)).await?;
        let mut end = end;
        end[0]["metadata"]["deletionTimestamp"].take();
        Ok(end)
    })
    .await
}
