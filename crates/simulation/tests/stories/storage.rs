//! Volumes: claims that are made for Pods, bound, attached to nodes, and given back.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use client::Patch;
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment, VolumeAttributesClass};
use serde_json::{Value, json};

use super::{Stage, disturbed};
use crate::common::{MINUTE, pod};
use crate::workloads::phase;

const CONTROLLERS: [&str; 6] = [
    "ephemeral-volume-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "garbage-collector-controller",
];

/// Two volumes of a driver, of a class whose claims wait for their Pod; the nodes' volumes are attached for them.
async fn volumes(cluster: &Cluster) -> Result<()> {
    let class = json!({"metadata": {"name": "s"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.create::<StorageClass>(&class).await?;
    for name in ["v0", "v1"] {
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "s",
            "csi": {"driver": "d.io", "volumeHandle": name}});
        cluster.create::<PersistentVolume>(&json!({"metadata": {"name": name}, "spec": spec})).await?;
    }
    let managed = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    let managed = Patch::Merge(json!({"metadata": {"annotations": managed}}));
    for name in ["node-0", "node-1"] {
        cluster.admin().api::<Node>("").patch(name, &managed).await?;
    }
    Ok(())
}

/// A Pod with an ephemeral volume.
fn ephemeral(name: &str) -> Value {
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "s",
        "resources": {"requests": {"storage": "1Gi"}}}});
    let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": template}});
    pod(name, json!({"spec": {"volumes": [volume]}}))
}

/// Does what an attacher does; no volume is on two nodes, and none has two attachments.
async fn attach(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let mut places = BTreeMap::new();
    for attachment in cluster.list::<VolumeAttachment>("").await? {
        let name = attachment.metadata.name.unwrap_or_default();
        let volume = attachment.spec.source.persistent_volume_name.unwrap_or_default();
        let twice = places.insert(volume.clone(), attachment.spec.node_name);
        ensure!(twice.is_none(), "{volume} is attached twice");
        if attachment.status.is_none_or(|s| !s.attached) {
            let done = Patch::Merge(json!({"status": {"attached": true}}));
            match cluster.admin().api::<VolumeAttachment>("").patch_status(&name, &done).await {
                Err(e) if !e.is_not_found() => return Err(e.into()),
                _ => {}
            }
        }
    }
    Ok(places)
}

/// The volumes that nodes are told of, each with its node.
async fn told(cluster: &Cluster) -> Result<BTreeSet<(String, String)>> {
    let mut all = BTreeSet::new();
    for node in cluster.list::<Node>("").await? {
        let name = node.metadata.name.unwrap_or_default();
        for volume in node.status.and_then(|s| s.volumes_attached).into_iter().flatten() {
            let volume = volume.name.rsplit('^').next().unwrap_or_default().to_owned();
            all.insert((volume, name.clone()));
        }
    }
    Ok(all)
}

fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

/// Waits until these Pods run with a volume each, which is bound to their claim, attached to their node and nowhere else.
async fn until_used(stage: &Stage<'_>, pods: &[&str]) -> Result<()> {
    stage
        .until(&format!("{pods:?} have their volumes"), async |cluster| {
            let places = attach(cluster).await?;
            let mut wanted = BTreeMap::new();
            for name in pods {
                let pod = cluster.get::<Pod>("default", name).await?.unwrap_or_default();
                let claim = cluster.get::<PersistentVolumeClaim>("default", &format!("{name}-v")).await?;
                let claim = claim.unwrap_or_default();
                let bound = claim.status.and_then(|s| s.phase).as_deref() == Some("Bound");
                let volume = claim.spec.and_then(|s| s.volume_name).unwrap_or_default();
                if phase(&pod) != "Running" || !bound {
                    return Ok(false);
                }
                let node = pod.spec.and_then(|s| s.node_name).unwrap_or_default();
                ensure!(wanted.insert(volume, node).is_none(), "two Pods have one volume");
            }
            let all = cluster.list::<PersistentVolume>("").await?;
            let bound = all.iter().filter(|v| volume_phase(v) == "Bound").count();
            Ok(places == wanted
                && bound == pods.len()
                && told(cluster).await? == wanted.into_iter().collect::<BTreeSet<_>>())
        })
        .await
}

/// Two Pods have an ephemeral volume each: a claim, a volume, a place on their node. All is given back with the Pod, and
/// the next Pod gets nothing of it.
#[tokio::test(start_paused = true)]
async fn ephemeral_volumes() -> Result<()> {
    disturbed(&CONTROLLERS, async |stage| {
        let cluster = stage.cluster;
        volumes(cluster).await?;
        for name in ["p", "q"] {
            cluster.create::<Pod>(&ephemeral(name)).await?;
        }
        until_used(stage, &["p", "q"]).await?;
        stage.pass(MINUTE).await?;
        until_used(stage, &["p", "q"]).await?;
        cluster.admin().api::<Pod>("default").delete("p", None).await?;
        stage.all::<PersistentVolumeClaim>("its claim goes", |all| all.len() == 1).await?;
        until_used(stage, &["q"]).await?;
        // A volume that is kept is nobody's: the next claim waits.
        cluster.create::<Pod>(&ephemeral("r")).await?;
        stage.all::<PersistentVolumeClaim>("there is another claim", |all| all.len() == 2).await?;
        stage.pass(MINUTE).await?;
        until_used(stage, &["q"]).await?;
        for name in ["q", "r"] {
            cluster.admin().api::<Pod>("default").delete(name, None).await?;
        }
        stage.all::<Pod>("no Pod is left", <[_]>::is_empty).await?;
        stage.all::<PersistentVolumeClaim>("no claim is left", <[_]>::is_empty).await?;
        stage
            .until("no volume is attached", async |cluster| {
                Ok(attach(cluster).await?.is_empty() && told(cluster).await?.is_empty())
            })
            .await?;
        stage
            .until("the volumes are released", async |cluster| {
                let all = cluster.list::<PersistentVolume>("").await?;
                Ok(all.iter().all(|v| volume_phase(v) == "Released"))
            })
            .await?;
        let released = cluster.list::<PersistentVolume>("").await?;
        let claim = |v: &PersistentVolume| v.spec.as_ref().and_then(|s| s.claim_ref.as_ref()?.name.clone());
        let claims: BTreeSet<Option<String>> = released.iter().map(claim).collect();
        for name in ["v0", "v1"] {
            cluster.admin().api::<PersistentVolume>("").delete(name, None).await?;
        }
        stage
            .until("no volume is held", async |cluster| {
                Ok(cluster.list::<PersistentVolume>("").await?.is_empty())
            })
            .await?;
        Ok(json!(claims))
    })
    .await
}

/// Objects that are used stay until they are not: a claim that a Pod uses, its volume, and the class of its attributes.
#[tokio::test(start_paused = true)]
async fn storage_that_is_deleted_while_it_is_used() -> Result<()> {
    let controllers =
        [CONTROLLERS[1], CONTROLLERS[3], CONTROLLERS[4], "volumeattributesclass-protection-controller"];
    disturbed(&controllers, async |stage| {
        let cluster = stage.cluster;
        volumes(cluster).await?;
        let class = json!({"metadata": {"name": "fast"}, "driverName": "d.io", "parameters": {"iops": "1"}});
        cluster.create::<VolumeAttributesClass>(&class).await?;
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "s",
            "resources": {"requests": {"storage": "1Gi"}}});
        let claim = json!({"metadata": {"name": "c", "namespace": "default"}, "spec": spec});
        cluster.create::<PersistentVolumeClaim>(&claim).await?;
        let user = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        cluster.create::<Pod>(&pod("p", json!({"spec": {"volumes": [user]}}))).await?;
        stage.all::<Pod>("it runs", |all| all.iter().all(|p| phase(p) == "Running")).await?;
        let named = Patch::Merge(json!({"spec": {"volumeAttributesClassName": "fast"}}));
        cluster.admin().api::<PersistentVolumeClaim>("default").patch("c", &named).await?;
        let held = async |cluster: &Cluster| {
            let class = cluster.get::<VolumeAttributesClass>("", "fast").await?;
            let all = cluster.list::<PersistentVolume>("").await?;
            let names =
                all.iter().filter(|v| volume_phase(v) == "Bound").filter_map(|v| v.metadata.name.clone());
            let claim = cluster.get::<PersistentVolumeClaim>("default", "c").await?;
            let held = class.is_some_and(|c| c.metadata.finalizers.is_some());
            anyhow::Ok((held, names.collect::<Vec<_>>(), claim.and_then(|c| c.metadata.finalizers)))
        };
        stage
            .until("all are held", async |cluster| {
                let (class, volumes, claim) = held(cluster).await?;
                Ok(class && volumes.len() == 1 && claim.is_some())
            })
            .await?;
        let volume = held(cluster).await?.1.remove(0);
        cluster.admin().api::<VolumeAttributesClass>("").delete("fast", None).await?;
        cluster.admin().api::<PersistentVolume>("").delete(&volume, None).await?;
        cluster.admin().api::<PersistentVolumeClaim>("default").delete("c", None).await?;
        stage.pass(MINUTE).await?;
        let (class, volumes, claim) = held(cluster).await?;
        ensure!(class && volumes == [volume] && claim.is_some(), "{class} {volumes:?} {claim:?}");
        cluster.take::<Pod>("default", "p").await?;
        stage
            .until("all go", async |cluster| {
                let (class, volumes, claim) = held(cluster).await?;
                Ok(!class && volumes.is_empty() && claim.is_none())
            })
            .await?;
        stage
            .until("the other volume is left", async |cluster| {
                let all = cluster.list::<PersistentVolume>("").await?;
                Ok(all.len() == 1 && volume_phase(&all[0]) == "Available")
            })
            .await?;
        Ok(Value::Null)
    })
    .await
}
