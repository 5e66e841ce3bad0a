//! Workloads: made, rolled out, scaled, and gone.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use client::{KubeObject, Patch};
use ferrokube_simulation::Cluster;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::{Value, json};

use super::{Stage, disturbed, state};
use crate::workloads::phase;

const COLLECTOR: &str = "garbage-collector-controller";

fn workload(more: Value) -> Value {
    let labels = json!({"app": "web"});
    let mut all = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    crate::common::merge(&mut all, &json!({ "spec": more }));
    all
}

fn image(image: &str) -> Patch {
    Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}))
}

fn run(all: &[Pod], count: usize, image: &str) -> bool {
    let good = |p: &Pod| {
        let of = p.spec.as_ref().and_then(|s| s.containers.first()?.image.as_deref());
        phase(p) == "Running" && of == Some(image) && p.metadata.deletion_timestamp.is_none()
    };
    all.len() == count && all.iter().all(good)
}

async fn change<T: KubeObject>(cluster: &Cluster, patch: &Patch) -> Result<()> {
    cluster.admin().api::<T>("default").patch("web", patch).await?;
    Ok(())
}

/// Waits until the status of the workload has these fields.
async fn says<T: KubeObject>(stage: &Stage<'_>, wanted: Value) -> Result<()> {
    let all = |all: &[T]| {
        all.iter().all(|object| {
            let Ok(object) = object.to_json() else { return false };
            let object: Value = serde_json::from_slice(&object).unwrap_or_default();
            let (status, meta) = (&object["status"], &object["metadata"]);
            wanted.as_object().into_iter().flatten().all(|(k, v)| status[k] == *v)
                && status["observedGeneration"] == meta["generation"]
        })
    };
    stage.all::<T>(&format!("its status says {wanted}"), all).await
}

#[tokio::test(start_paused = true)]
async fn a_deployment() -> Result<()> {
    disturbed(&["deployment-controller", "replicaset-controller", COLLECTOR], async |stage| {
        let cluster = stage.cluster;
        cluster.create::<Deployment>(&workload(json!({"replicas": 3, "revisionHistoryLimit": 1}))).await?;
        stage.all::<Pod>("three run", |all| run(all, 3, "i")).await?;
        change::<Deployment>(cluster, &image("j")).await?;
        stage.all::<Pod>("three new ones run", |all| run(all, 3, "j")).await?;
        change::<Deployment>(cluster, &Patch::Merge(json!({"spec": {"replicas": 1}}))).await?;
        stage.all::<Pod>("one runs", |all| run(all, 1, "j")).await?;
        change::<Deployment>(cluster, &image("i")).await?;
        stage.all::<Pod>("an old one runs", |all| run(all, 1, "i")).await?;
        says::<Deployment>(stage, json!({"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}))
            .await?;
        stage.all::<ReplicaSet>("one is kept", |all| all.len() == 2).await?;
        stage.pass(crate::common::MINUTE).await?;
        let end = json!([
            state::<Deployment>(cluster).await?,
            state::<ReplicaSet>(cluster).await?,
            state::<Pod>(cluster).await?
        ]);
        cluster.admin().api::<Deployment>("default").delete("web", None).await?;
        stage.all::<ReplicaSet>("no ReplicaSet is left", <[_]>::is_empty).await?;
        stage.all::<Pod>("no Pod is left", <[_]>::is_empty).await?;
        Ok(end)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set() -> Result<()> {
    disturbed(&["statefulset-controller", COLLECTOR], async |stage| {
        let cluster = stage.cluster;
        cluster.create::<StatefulSet>(&workload(json!({"replicas": 2, "serviceName": "web"}))).await?;
        stage.all::<Pod>("two run", |all| run(all, 2, "i")).await?;
        change::<StatefulSet>(cluster, &image("j")).await?;
        stage.all::<Pod>("two new ones run", |all| run(all, 2, "j")).await?;
        change::<StatefulSet>(cluster, &Patch::Merge(json!({"spec": {"replicas": 1}}))).await?;
        stage.all::<Pod>("one runs", |all| run(all, 1, "j")).await?;
        says::<StatefulSet>(stage, json!({"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}))
            .await?;
        stage.pass(crate::common::MINUTE).await?;
        let mut sets = state::<StatefulSet>(cluster).await?;
        // It counts collisions of names for as long as the set lives.
        sets[0]["status"]["collisionCount"].take();
        let end = json!([sets, state::<ControllerRevision>(cluster).await?, state::<Pod>(cluster).await?]);
        cluster.admin().api::<StatefulSet>("default").delete("web", None).await?;
        stage.all::<ControllerRevision>("no revision is left", <[_]>::is_empty).await?;
        stage.all::<Pod>("no Pod is left", <[_]>::is_empty).await?;
        Ok(end)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set() -> Result<()> {
    disturbed(&["daemonset-controller", COLLECTOR], async |stage| {
        let cluster = stage.cluster;
        cluster.create::<DaemonSet>(&workload(json!({}))).await?;
        stage.all::<Pod>("two run", |all| run(all, 2, "i")).await?;
        change::<DaemonSet>(cluster, &image("j")).await?;
        stage.all::<Pod>("two new ones run", |all| run(all, 2, "j")).await?;
        says::<DaemonSet>(stage, json!({"numberAvailable": 2, "updatedNumberScheduled": 2})).await?;
        stage.pass(crate::common::MINUTE).await?;
        let mut pods = state::<Pod>(cluster).await?;
        pods.as_array_mut().into_iter().flatten().for_each(|p| drop(p["spec"]["affinity"].take()));
        let end =
            json!([state::<DaemonSet>(cluster).await?, state::<ControllerRevision>(cluster).await?, pods]);
        cluster.admin().api::<DaemonSet>("default").delete("web", None).await?;
        stage.all::<ControllerRevision>("no revision is left", <[_]>::is_empty).await?;
        stage.all::<Pod>("no Pod is left", <[_]>::is_empty).await?;
        Ok(end)
    })
    .await
}

/// The owner of each Pod that has one, sorted.
fn owners(all: &[Pod]) -> Vec<&str> {
    let mut names: Vec<&str> = all
        .iter()
        .flat_map(|p| p.metadata.owner_references.iter().flatten())
        .map(|o| o.name.as_str())
        .collect();
    names.sort_unstable();
    names
}

/// Pods change hands: one whose labels change is let go and replaced, one that fits is taken, and nobody takes another's.
/// So it is after upstream's `TestUpdatePods`, `TestOverlappingRSs` and `TestClaimPods`.
#[tokio::test(start_paused = true)]
async fn pods_that_change_hands() -> Result<()> {
    disturbed(&["replicaset-controller", COLLECTOR], async |stage| {
        let cluster = stage.cluster;
        let pods = cluster.admin().api::<Pod>("default");
        let live = |all: &[Pod]| {
            all.iter().all(|p| phase(p) == "Running" && p.metadata.deletion_timestamp.is_none())
        };
        let until = async |what: &str, wanted: &[&str], count: usize| {
            stage.all::<Pod>(what, |all| live(all) && all.len() == count && owners(all) == wanted).await
        };
        cluster.create::<ReplicaSet>(&workload(json!({"replicas": 2}))).await?;
        until("two run", &["web"; 2], 2).await?;
        let name = cluster.list::<Pod>("default").await?.remove(0).metadata.name.unwrap_or_default();
        let label = |app: &str| Patch::Merge(json!({"metadata": {"labels": {"app": app}}}));
        pods.patch(&name, &label("other")).await?;
        until("it is let go and replaced", &["web"; 2], 3).await?;
        ensure!(cluster.get::<Pod>("default", &name).await?.is_some_and(|p| owners(&[p]).is_empty()));
        pods.patch(&name, &label("web")).await?;
        until("it is taken, and one is too many", &["web"; 2], 2).await?;
        // Another one that selects the same Pods makes its own.
        let mut second = workload(json!({"replicas": 1}));
        second["metadata"]["name"] = json!("other");
        cluster.create::<ReplicaSet>(&second).await?;
        until("it has its own", &["other", "web", "web"], 3).await?;
        stage.pass(crate::common::MINUTE).await?;
        until("nobody takes another's", &["other", "web", "web"], 3).await?;
        let orphan =
            DeleteOptions { propagation_policy: Some("Orphan".to_owned()), ..DeleteOptions::default() };
        cluster.admin().api::<ReplicaSet>("default").delete("web", Some(&orphan)).await?;
        until("it takes those that are left, and keeps one", &["other"], 1).await?;
        says::<ReplicaSet>(stage, json!({"replicas": 1, "availableReplicas": 1})).await?;
        stage.pass(crate::common::MINUTE).await?;
        let end = state::<ReplicaSet>(cluster).await?;
        cluster.admin().api::<ReplicaSet>("default").delete("other", None).await?;
        stage.all::<Pod>("no Pod is left", <[_]>::is_empty).await?;
        Ok(end)
    })
    .await
}

/// A Deployment that is made anew takes the ReplicaSet that the one before it left, with the same Pods.
#[tokio::test(start_paused = true)]
async fn a_deployment_that_is_made_anew() -> Result<()> {
    disturbed(&["deployment-controller", "replicaset-controller", COLLECTOR], async |stage| {
        let cluster = stage.cluster;
        cluster.create::<Deployment>(&workload(json!({"replicas": 2}))).await?;
        stage.all::<Pod>("two run", |all| run(all, 2, "i")).await?;
        says::<Deployment>(stage, json!({"availableReplicas": 2})).await?;
        let uids = async || {
            let all = cluster.list::<Pod>("default").await?;
            anyhow::Ok(all.into_iter().filter_map(|p| p.metadata.uid).collect::<BTreeSet<_>>())
        };
        let before = uids().await?;
        let orphan =
            DeleteOptions { propagation_policy: Some("Orphan".to_owned()), ..DeleteOptions::default() };
        cluster.admin().api::<Deployment>("default").delete("web", Some(&orphan)).await?;
        stage.all::<Deployment>("it is gone", <[_]>::is_empty).await?;
        cluster.create::<Deployment>(&workload(json!({"replicas": 2}))).await?;
        says::<Deployment>(stage, json!({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}))
            .await?;
        stage.pass(crate::common::MINUTE).await?;
        ensure!(uids().await? == before, "the Pods are others");
        let end = json!([state::<Deployment>(cluster).await?, state::<ReplicaSet>(cluster).await?]);
        cluster.admin().api::<Deployment>("default").delete("web", None).await?;
        stage.all::<Pod>("no Pod is left", <[_]>::is_empty).await?;
        Ok(end)
    })
    .await
}
