//! Room for data: volumes that grow, volumes in directories of nodes, labels that exclude each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::Patch;
use controllers::{FlexDrivers, FlexVolume};
use ferrokube_simulation::Cluster;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use serde_json::{Value, json};

use super::{Stage, disturbed_with};
use crate::common::{MINUTE, labelled, merge, pod};
use crate::workloads::{node_of, phase};

const GIB: i64 = 1 << 30;

/// A driver of FlexVolumes that makes each as large as it is asked to, and never smaller. The node has work with those of
/// `node` alone.
#[derive(Debug, Default)]
struct Grows;

impl FlexDrivers for Grows {
    fn attach(
        &self,
        _volume: String,
        _of: FlexVolume,
        _node: String,
    ) -> BoxFuture<'static, Result<Option<String>, String>> {
        async { Ok(None) }.boxed()
    }
    fn detach(
        &self,
        _driver: String,
        _volume: String,
        _node: String,
    ) -> BoxFuture<'static, Result<(), String>> {
        async { Ok(()) }.boxed()
    }
    fn expand(
        &self,
        volume: String,
        of: FlexVolume,
        (new, old): (i64, i64),
    ) -> BoxFuture<'static, Result<bool, String>> {
        let fits = old == GIB && new == 2 * GIB;
        async move {
            if fits { Ok(of.driver == "node") } else { Err(format!("{volume} from {old} to {new}")) }
        }
        .boxed()
    }
}

/// The sources of the volumes: a driver's whose nodes go on, a driver's that does all, an external one's, a built-in one's
/// that a driver took over from.
fn sources() -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        ("node", json!({"flexVolume": {"driver": "node"}})),
        ("whole", json!({"flexVolume": {"driver": "whole"}})),
        ("csi", json!({"csi": {"driver": "d.io", "volumeHandle": "h"}})),
        ("old", json!({"awsElasticBlockStore": {"volumeID": "vol-1"}})),
    ])
}

/// Claims with a volume each, bound to each other.
async fn bound(stage: &Stage<'_>) -> Result<()> {
    let cluster = stage.cluster;
    let class = json!({"metadata": {"name": "s"}, "provisioner": "d.io", "allowVolumeExpansion": true});
    cluster.create::<StorageClass>(&class).await?;
    for (name, source) in sources() {
        let modes = ["ReadWriteOnce"];
        let claim = json!({"metadata": {"name": name, "namespace": "default"},
            "spec": {"accessModes": modes, "storageClassName": "s", "volumeName": name,
                "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound", "accessModes": modes, "capacity": {"storage": "1Gi"}}});
        let claim: PersistentVolumeClaim = cluster.put(&claim).await?;
        let mut volume = json!({"metadata": {"name": name},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": modes, "storageClassName": "s",
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name,
                    "uid": claim.metadata.uid}},
            "status": {"phase": "Bound"}});
        merge(&mut volume, &json!({ "spec": source }));
        cluster.put::<PersistentVolume>(&volume).await?;
    }
    Ok(())
}

/// A claim's state of growth and its size, the size of its volume and that before.
async fn growth(cluster: &Cluster, name: &str) -> Result<Value> {
    let claim = cluster.get::<PersistentVolumeClaim>("default", name).await?.context("the claim")?;
    let volume = cluster.get::<PersistentVolume>("", name).await?.context("the volume")?;
    let status = claim.status.unwrap_or_default();
    let mut conditions: Vec<String> = status.conditions.into_iter().flatten().map(|c| c.type_).collect();
    conditions.sort();
    let before = volume.metadata.annotations.unwrap_or_default();
    Ok(json!([
        status.allocated_resource_statuses.and_then(|mut all| all.remove("storage")),
        status.capacity.and_then(|mut all| all.remove("storage")),
        conditions,
        volume.spec.and_then(|s| s.capacity).and_then(|mut all| all.remove("storage")),
        before.get("volume.alpha.kubernetes.io/pre-resize-capacity")
    ]))
}

/// Claims want more room: each gets it once, from its driver, its node or a resizer that is told.
#[tokio::test(start_paused = true)]
async fn claims_that_grow() -> Result<()> {
    let set = |c: &mut controllers::Config| c.flex_drivers = Some(Arc::new(Grows));
    Box::pin(disturbed_with(&["persistentvolume-expander-controller"], &set, async |stage| {
        let cluster = stage.cluster;
        bound(stage).await?;
        let more = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
        for name in sources().keys() {
            cluster.admin().api::<PersistentVolumeClaim>("default").patch(name, &more).await?;
        }
        let until = async |name: &str, wanted: Value| {
            let what = format!("{name} is {wanted}");
            stage.until(&what, async |cluster| Ok(growth(cluster, name).await? == wanted)).await
        };
        let pending = ["FileSystemResizePending", "Resizing"];
        until("node", json!(["NodeResizePending", "1Gi", pending, "2Gi", "1Gi"])).await?;
        until("whole", json!([null, "2Gi", [], "2Gi", null])).await?;
        let resizer = async |cluster: &Cluster, name: &str| {
            let claim = cluster.get::<PersistentVolumeClaim>("default", name).await?.unwrap_or_default();
            let told = claim.metadata.annotations.unwrap_or_default();
            anyhow::Ok(told.get("volume.kubernetes.io/storage-resizer").cloned())
        };
        stage
            .until("the resizer is told", async |cluster| {
                Ok(resizer(cluster, "old").await?.as_deref() == Some("ebs.csi.aws.com"))
            })
            .await?;
        stage
            .until("somebody else is waited for", async |cluster| {
                let all = cluster.list::<Event>("default").await?;
                let is = |e: &Event| {
                    e.involved_object.name.as_deref() == Some("csi")
                        && e.reason.as_deref() == Some("ExternalExpanding")
                };
                Ok(all.iter().any(is))
            })
            .await?;
        stage.pass(MINUTE).await?;
        until("csi", json!([null, "1Gi", [], "1Gi", null])).await?;
        until("node", json!(["NodeResizePending", "1Gi", pending, "2Gi", "1Gi"])).await?;
        // The node does its part.
        let done = json!({"status": {"capacity": {"storage": "2Gi"}, "conditions": null,
            "allocatedResourceStatuses": null}});
        let claims = cluster.admin().api::<PersistentVolumeClaim>("default");
        claims.patch_status("node", &Patch::Merge(done)).await?;
        until("node", json!([null, "2Gi", [], "2Gi", null])).await?;
        Ok(json!([resizer(cluster, "node").await?, resizer(cluster, "whole").await?]))
    }))
    .await
}

/// The annotations by which the provisioner and a node's agent talk.
const DIRECTORY: &str = "ferrokube.io/local-path-directory";
const REMOVE: &str = "ferrokube.io/local-path-remove";
const REMOVED: &str = "ferrokube.io/local-path-removed";

/// Does what the nodes' agents do: tells which of the volumes that they are asked for are gone. The volumes that are asked
/// for now.
async fn remove(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for node in cluster.list::<Node>("").await? {
        let name = node.metadata.name.unwrap_or_default();
        let annotations = node.metadata.annotations.unwrap_or_default();
        let asked = annotations.get(REMOVE).filter(|text| !text.is_empty());
        if asked != annotations.get(REMOVED) {
            let patch = json!({"metadata": {"annotations": {REMOVED: asked}}});
            cluster.admin().api::<Node>("").patch(&name, &Patch::Merge(patch)).await?;
        }
        all.extend(asked.iter().flat_map(|text| text.split(',')).map(str::to_owned));
    }
    Ok(all)
}

/// A claim gets a directory of its Pod's node, and the node removes the content before the volume goes.
#[tokio::test(start_paused = true)]
async fn directories_of_nodes() -> Result<()> {
    let controllers = [
        "local-path-provisioner-controller",
        "persistentvolume-binder-controller",
        "persistentvolumeclaim-protection-controller",
        "persistentvolume-protection-controller",
    ];
    disturbed_with(&controllers, &|c| c.local_path = true, async |stage| {
        let cluster = stage.cluster;
        for name in ["node-0", "node-1"] {
            let has = Patch::Merge(json!({"metadata": {"annotations": {DIRECTORY: "/volumes"}}}));
            cluster.admin().api::<Node>("").patch(name, &has).await?;
        }
        stage
            .until("there is the class", async |cluster| {
                Ok(cluster.get::<StorageClass>("", "local-path").await?.is_some())
            })
            .await?;
        let claim = json!({"metadata": {"name": "c", "namespace": "default"}, "spec": {"accessModes":
            ["ReadWriteOnce"], "storageClassName": "local-path", "resources": {"requests": {"storage": "1Gi"}}}});
        cluster.create::<PersistentVolumeClaim>(&claim).await?;
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        cluster.create::<Pod>(&pod("p", json!({"spec": {"volumes": volumes}}))).await?;
        let runs = |all: &[Pod]| all.len() == 1 && all.iter().all(|p| phase(p) == "Running");
        stage.all::<Pod>("it runs", runs).await?;
        stage.pass(MINUTE).await?;
        let all = cluster.list::<PersistentVolume>("").await?;
        let [volume] = &all[..] else { anyhow::bail!("{} volumes for one claim", all.len()) };
        let named = volume.metadata.name.clone().unwrap_or_default();
        let place = serde_json::to_string(&volume.spec.as_ref().and_then(|s| s.node_affinity.clone()))?;
        let node = cluster.list::<Pod>("default").await?.first().map(|p| node_of(p).to_owned());
        ensure!(node.is_some_and(|node| place.contains(&node)), "{place}");
        ensure!(remove(cluster).await?.is_empty(), "it is in use");
        cluster.take::<Pod>("default", "p").await?;
        cluster.admin().api::<PersistentVolumeClaim>("default").delete("c", None).await?;
        let mut asked = false;
        stage
            .until("it goes after its content", async |cluster| {
                let there = cluster.get::<PersistentVolume>("", &named).await?.is_some();
                ensure!(there || asked, "its content is still there");
                asked |= remove(cluster).await?.contains(&named);
                Ok(!there)
            })
            .await?;
        stage
            .until("nobody is asked any more", async |cluster| Ok(remove(cluster).await?.is_empty()))
            .await?;
        Ok(Value::Null)
    })
    .await
}

/// Pods that use a volume with labels of which only one can hold are told so, whatever is seen first.
#[tokio::test(start_paused = true)]
async fn labels_of_pods() -> Result<()> {
    disturbed_with(&["selinux-warning-controller"], &|_| {}, async |stage| {
        let cluster = stage.cluster;
        let labelled = async |name: &str, level: &str| {
            let mut pod = labelled(name, level);
            pod["spec"]["nodeName"] = json!("node-0");
            cluster.create::<Pod>(&pod).await
        };
        labelled("one", "s0:c1").await?;
        labelled("two", "s0:c2").await?;
        let spec = json!({"volumeName": "v", "accessModes": ["ReadWriteMany"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}}});
        let claim = json!({"metadata": {"name": "c", "namespace": "default"}, "spec": spec,
            "status": {"phase": "Bound"}});
        let claim = cluster.put::<PersistentVolumeClaim>(&claim).await?;
        let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"], "csi": {"driver": "d.io", "volumeHandle": "h"},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c",
            "uid": claim.metadata.uid}}});
        cluster.create::<PersistentVolume>(&volume).await?;
        stage.pass(MINUTE).await?;
        let told = async |cluster: &Cluster| {
            let all = cluster.list::<Event>("default").await?;
            let of = |e: &Event| e.reason.as_deref() == Some("SELinuxLabelConflict");
            anyhow::Ok(all.into_iter().filter(of).filter_map(|e| e.message).collect::<BTreeSet<_>>())
        };
        ensure!(told(cluster).await?.is_empty(), "the driver is not known");
        let driver = json!({"metadata": {"name": "d.io"}, "spec": {"seLinuxMount": true}});
        cluster.create::<CSIDriver>(&driver).await?;
        stage.pass(MINUTE).await?;
        labelled("three", "s0:c3").await?;
        let wanted = "SELinuxLabel \":::s0:c1\" conflicts with pod three that uses the same volume as this pod with SELinuxLabel \":::s0:c3\". If both pods land on the same node, only one of them may access the volume.";
        // A Pod's Events of one instant have one name, so that some of them may be missing in simulated time.
        stage
            .until_every(Duration::from_secs(1), "a Pod is told", async |cluster| {
                Ok(told(cluster).await?.contains(wanted))
            })
            .await?;
        Ok(Value::Null)
    })
    .await
}
