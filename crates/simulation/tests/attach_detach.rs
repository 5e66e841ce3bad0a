//! Volumes of drivers are attached to nodes and detached; the drivers' attacher is played here by the administrator.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use api::Status;
use client::{Patch, Verb};
use ferrokube_simulation::{Cluster, Fault, Rule};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass, VolumeAttachment};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{MINUTE, bare, eventually, merge, pod, said};

const CONTROLLER: &str = "persistentvolume-attach-detach-controller";
const EXPANDER: &str = "persistentvolume-expander-controller";
/// The name by which nodes tell of the volume.
const UNIQUE: &str = "kubernetes.io/csi/d.io^h";
/// The name of the volume's attachment to node `a`: the digest of `hd.ioa`.
const ON_A: &str = "csi-b9df34ad01b487dabdb5b8011eb153b9bca45910cab020de09acc0d42e41cbeb";

struct Run(Cluster);

impl Run {
    /// Nodes `a` and `b`, and the claim `c`, which has the volume `v` of a driver.
    async fn start(modes: &[&str]) -> Result<Self> {
        Self::with(modes, json!({"csi": {"driver": "d.io", "volumeHandle": "h"}})).await
    }

    /// The same with a volume of another source.
    async fn with(modes: &[&str], source: Value) -> Result<Self> {
        let cluster = bare().await?;
        let run = Self(cluster);
        for name in ["a", "b"] {
            run.node(name, json!({})).await?;
        }
        let claim = json!({
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {"accessModes": modes, "storageClassName": "s", "volumeName": "v",
                "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound", "accessModes": modes, "capacity": {"storage": "1Gi"}},
        });
        let claim: PersistentVolumeClaim = run.0.put(&claim).await?;
        let mut volume = json!({
            "metadata": {"name": "v"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": modes, "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "s",
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c",
                    "uid": claim.metadata.uid},
            },
            "status": {"phase": "Bound"},
        });
        merge(&mut volume, &json!({ "spec": source }));
        run.0.put::<PersistentVolume>(&volume).await?;
        Ok(run)
    }

    async fn node(&self, name: &str, more: Value) -> Result<()> {
        let mut node = json!({
            "metadata": {"name": name,
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        merge(&mut node, &more);
        self.0.put::<Node>(&node).await.map(drop)
    }

    /// Says what a node's kubelet uses.
    async fn uses(&self, node: &str, volumes: &[&str]) -> Result<()> {
        self.node(node, json!({"status": {"volumesInUse": volumes}})).await
    }

    async fn pod(&self, name: &str, node: &str) -> Result<()> {
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        let more = json!({"spec": {"nodeName": node, "volumes": volumes}});
        self.0.create::<Pod>(&pod(name, more)).await.map(drop)
    }

    /// The nodes that the volume is attached to, or is to be.
    async fn places(&self) -> Result<Vec<String>> {
        let mut all: Vec<_> =
            self.0.list::<VolumeAttachment>("").await?.into_iter().map(|a| a.spec.node_name).collect();
        all.sort();
        Ok(all)
    }

    async fn until_places(&self, wanted: &[&str]) -> Result<()> {
        let what = format!("attached to {wanted:?}");
        eventually(&what, MINUTE, async || Ok(self.places().await? == wanted)).await
    }

    /// Does what an attacher does.
    async fn attach(&self) -> Result<()> {
        let done = Patch::Merge(json!({"status": {"attached": true}}));
        for attachment in self.0.list::<VolumeAttachment>("").await? {
            if attachment.status.is_none_or(|s| !s.attached) {
                let name = attachment.metadata.name.context("an attachment without a name")?;
                match self.0.admin().api::<VolumeAttachment>("").patch_status(&name, &done).await {
                    Err(error) if !error.is_not_found() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    async fn until_told(&self, node: &str, wanted: &[&str]) -> Result<()> {
        eventually(&format!("{node} is told of {wanted:?}"), MINUTE, async || {
            let node = self.0.get::<Node>("", node).await?.context("no node")?;
            let told = node.status.and_then(|s| s.volumes_attached).unwrap_or_default();
            Ok(told.iter().map(|v| v.name.as_str()).eq(wanted.iter().copied()))
        })
        .await
    }

    async fn until_said(&self, message: &str) -> Result<()> {
        eventually(message, MINUTE, async || {
            let events = self.0.list::<Event>("").await?;
            Ok(events.iter().any(|e| e.message.as_deref() == Some(message)))
        })
        .await
    }

    /// A volume that node `a` has, and uses.
    async fn in_use(modes: &[&str], set: impl FnOnce(&mut controllers::Config)) -> Result<Self> {
        let run = Self::start(modes).await?;
        run.0.controllers_with(&[CONTROLLER], set)?;
        run.pod("p", "a").await?;
        run.until_places(&["a"]).await?;
        run.attach().await?;
        run.until_told("a", &[UNIQUE]).await?;
        run.uses("a", &[UNIQUE]).await?;
        Ok(run)
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_goes_from_node_to_node() -> Result<()> {
    let run = Run::start(&["ReadWriteOnce"]).await?;
    run.0.controllers(&[CONTROLLER])?;
    run.pod("p", "a").await?;
    run.until_places(&["a"]).await?;
    let made = run.0.get::<VolumeAttachment>("", ON_A).await?.context("it has another name")?;
    assert_eq!(
        (made.spec.attacher.as_str(), made.spec.source.persistent_volume_name.as_deref()),
        ("d.io", Some("v"))
    );
    let error = Patch::Merge(json!({"status": {"attached": false, "attachError": {"message": "no room"}}}));
    run.0.admin().api::<VolumeAttachment>("").patch_status(ON_A, &error).await?;
    run.until_said("AttachVolume.Attach failed for volume \"v\" : no room").await?;
    run.until_told("a", &[]).await?;
    run.attach().await?;
    run.until_told("a", &[UNIQUE]).await?;
    run.until_said("AttachVolume.Attach succeeded for volume \"v\" ").await?;

    run.uses("a", &[UNIQUE]).await?;
    run.pod("q", "b").await?;
    run.until_said("Multi-Attach error for volume \"v\" Volume is already used by pod(s) p").await?;
    run.0.take::<Pod>("default", "p").await?;
    sleep(20 * MINUTE).await; // what must not happen has this long, in simulated time
    assert_eq!(run.places().await?, ["a"], "a node that is ready uses it");
    run.until_told("a", &[UNIQUE]).await?;

    run.uses("a", &[]).await?;
    run.until_told("a", &[]).await?;
    run.until_places(&["b"]).await?;
    run.until_told("b", &[]).await?;
    run.attach().await?;
    run.until_told("b", &[UNIQUE]).await?;
    run.0.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_being_detached_is_waited_for() -> Result<()> {
    let run = Run::in_use(&["ReadWriteOnce"], |_| {}).await?;
    let held = Patch::Merge(json!({"metadata": {"finalizers": ["external-attacher/d-io"]}}));
    run.0.admin().api::<VolumeAttachment>("").patch(ON_A, &held).await?;
    run.0.take::<Pod>("default", "p").await?;
    run.uses("a", &[]).await?;
    run.until_told("a", &[]).await?;
    run.pod("q", "b").await?;
    run.pod("r", "a").await?;
    sleep(MINUTE).await; // what must not happen has this long, in simulated time
    assert_eq!(run.places().await?, ["a"]);
    run.until_told("a", &[]).await?;
    run.0.take::<Pod>("default", "r").await?;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    run.0.admin().api::<VolumeAttachment>("").patch(ON_A, &free).await?;
    run.until_places(&["b"]).await?;
    run.0.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_several_nodes_may_have() -> Result<()> {
    let run = Run::start(&["ReadWriteMany"]).await?;
    let driver = json!({"metadata": {"name": "d.io"}, "spec": {"attachRequired": false}});
    run.0.create::<CSIDriver>(&driver).await?;
    run.0.controllers(&[CONTROLLER])?;
    run.pod("p", "a").await?;
    run.pod("q", "b").await?;
    sleep(MINUTE).await; // what must not happen has this long, in simulated time
    assert!(run.places().await?.is_empty(), "its driver attaches nothing");
    run.0.take::<CSIDriver>("", "d.io").await?;
    run.until_places(&["a", "b"]).await?;
    // A node that attaches volumes itself is left alone.
    let alone = json!({"metadata": {"name": "z", "annotations": null}});
    run.node("z", alone).await?;
    run.pod("r", "z").await?;
    sleep(MINUTE).await; // what must not happen has this long, in simulated time
    assert_eq!(run.places().await?, ["a", "b"]);
    run.0.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_off_loses_its_volumes() -> Result<()> {
    let off = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    for forced in [true, false] {
        let run = Run::in_use(&["ReadWriteOnce"], |c| c.force_detach = forced).await?;
        let mut state = off.clone();
        merge(&mut state, &json!({"status": {"volumesInUse": [UNIQUE]}}));
        run.node("a", state.clone()).await?;
        run.0.take::<Pod>("default", "p").await?;
        sleep(5 * MINUTE).await; // what must not happen has this long, in simulated time
        assert_eq!(run.places().await?, ["a"]);
        sleep(2 * MINUTE).await; // the rest of upstream's six minutes, in simulated time
        assert_eq!(run.places().await?.is_empty(), forced);
        if !forced {
            sleep(20 * MINUTE).await; // what must not happen has this long, in simulated time
            assert_eq!(run.places().await?, ["a"]);
            let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
            merge(&mut state, &json!({"spec": {"taints": [taint]}}));
            run.node("a", state).await?;
            run.until_places(&[]).await?;
        }
        run.until_told("a", &[]).await?;
        run.0.stop().await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn forced_detachments_are_counted() -> Result<()> {
    let run = Run::start(&["ReadWriteOnce"]).await?;
    let running = run.0.controllers(&[CONTROLLER])?;
    run.pod("p", "a").await?;
    run.until_places(&["a"]).await?;
    let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
    run.node("a", json!({"spec": {"taints": [taint]}, "status": {"volumesInUse": [UNIQUE]}})).await?;
    run.0.take::<Pod>("default", "p").await?;
    run.until_places(&[]).await?;
    let page = running.metrics.page().text();
    let name = "attach_detach_controller_attachdetach_controller_forced_detaches";
    assert!(page.contains(&format!("{name}{{reason=\"out-of-service\"}} 1")), "{page}");
    run.0.stop().await;
    Ok(())
}

/// Upstream's 3 cases of `node_status_updater_test.go`, and two of `reconciler_test.go`,
/// `Test_Run_Negative_OneDesiredVolumeAttachThenDetachWithUnmountedVolumeUpdateStatusFail` and
/// `Test_Run_UpdateNodeStatusFailBeforeOneVolumeDetachNodeWithReadWriteOnce`: a node that cannot be told of its volumes holds
/// up no other, and keeps a volume until it is told that this goes.
#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_told() -> Result<()> {
    let refused = |node: &str| {
        let error = Status::failure(500, "InternalError", "nope");
        Rule::new(Fault::Refuse(error)).resource("nodes").subresource("status").name(node)
    };
    let run = Run::start(&["ReadWriteMany"]).await?;
    run.0.controllers(&[CONTROLLER])?;
    run.0.faults().add(refused("a"));
    run.pod("p", "a").await?;
    run.pod("q", "b").await?;
    run.until_places(&["a", "b"]).await?;
    run.attach().await?;
    run.until_told("b", &[UNIQUE]).await?;
    run.until_told("a", &[]).await?;
    run.0.faults().clear();
    run.until_told("a", &[UNIQUE]).await?;
    run.0.faults().add(refused("a"));
    run.0.take::<Pod>("default", "p").await?;
    run.0.take::<Pod>("default", "q").await?;
    run.until_places(&["a"]).await?;
    run.until_told("b", &[]).await?;
    sleep(5 * MINUTE).await; // what must not happen has this long, in simulated time
    assert_eq!(run.places().await?, ["a"]);
    run.until_told("a", &[UNIQUE]).await?;
    run.0.faults().clear();
    run.until_places(&[]).await?;
    run.until_told("a", &[]).await?;
    run.0.stop().await;
    Ok(())
}

/// A volume of a plugin from which a driver took over is the driver's, with upstream's texts.
#[tokio::test(start_paused = true)]
async fn a_volume_of_a_plugin_is_its_drivers() -> Result<()> {
    // The plugin's mode for many writers was never one; its driver has the volume on one node.
    let disk = json!({"gcePersistentDisk": {"pdName": "d"}});
    let run = Run::with(&["ReadWriteMany"], disk).await?;
    let unique = "kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d";
    run.0.controllers(&[CONTROLLER])?;
    run.pod("p", "a").await?;
    run.until_places(&["a"]).await?;
    let made = run.0.list::<VolumeAttachment>("").await?.remove(0).spec;
    assert_eq!(made.attacher, "pd.csi.storage.gke.io");
    assert_eq!(made.source.persistent_volume_name.as_deref(), Some("v"));
    run.attach().await?;
    run.until_told("a", &[unique]).await?;
    run.uses("a", &[unique]).await?;
    run.until_said("AttachVolume.Attach succeeded for volume \"v\" ").await?;
    run.pod("q", "b").await?;
    run.until_said("Multi-Attach error for volume \"v\" Volume is already used by pod(s) p").await?;
    run.0.take::<Pod>("default", "p").await?;
    run.uses("a", &[]).await?;
    run.until_places(&["b"]).await?;
    run.0.stop().await;
    Ok(())
}

/// A volume that a Pod names itself is attached by what it is: there is no PersistentVolume.
#[tokio::test(start_paused = true)]
async fn a_volume_that_pods_name_is_its_drivers() -> Result<()> {
    let run = Run::start(&["ReadWriteOnce"]).await?;
    let unique = "kubernetes.io/csi/ebs.csi.aws.com^vol-1";
    let stop = run.0.shutdown().child();
    run.0.controllers_until(&stop, &[CONTROLLER], |_| {})?;
    let names = async |name: &str, node: &str, id: &str| -> Result<()> {
        let disk = json!({"volumeID": id, "fsType": "ext4", "readOnly": true});
        let volumes = json!([{"name": "v", "awsElasticBlockStore": disk}]);
        let more = json!({"spec": {"nodeName": node, "volumes": volumes}});
        run.0.create::<Pod>(&pod(name, more)).await.map(drop)
    };
    names("p", "a", "aws://z/vol-1").await?;
    run.until_places(&["a"]).await?;
    let made = run.0.list::<VolumeAttachment>("").await?.remove(0).spec;
    let source = json!(made.source);
    let expected = json!({"inlineVolumeSpec": {
        "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "readOnly": true, "fsType": "ext4",
            "volumeAttributes": {"partition": "0"}}}});
    assert_eq!((made.attacher.as_str(), source), ("ebs.csi.aws.com", expected));
    run.attach().await?;
    run.until_told("a", &[unique]).await?;
    run.uses("a", &[unique]).await?;
    run.until_said("AttachVolume.Attach succeeded for volume \"ebs.csi.aws.com-vol-1\" ").await?;
    names("q", "b", "vol-1").await?;
    let other = "Multi-Attach error for volume \"ebs.csi.aws.com-vol-1\" Volume is already used by pod(s) p";
    run.until_said(other).await?;
    // No driver has such a volume, and nobody else waits for it.
    names("r", "b", "aws://z/none").await?;
    // The next controller knows whose it is, even after its Pod is gone.
    stop.stop();
    run.0.take::<Pod>("default", "p").await?;
    run.0.controllers(&[CONTROLLER])?;
    sleep(10 * MINUTE).await; // what must not happen has this long, in simulated time
    assert_eq!(run.places().await?, ["a"], "node a uses it");
    run.until_told("a", &[unique]).await?;
    run.uses("a", &[]).await?;
    run.until_places(&["b"]).await?;
    run.attach().await?;
    run.until_told("b", &[unique]).await?;
    run.0.take::<Pod>("default", "q").await?;
    run.until_places(&[]).await?;
    run.0.stop().await;
    Ok(())
}

/// A controller takes up all that one before it left: attachments that nobody wants, and those whose volume is gone.
#[tokio::test(start_paused = true)]
async fn another_controller_knows_it_all() -> Result<()> {
    for volume_goes in [false, true] {
        let run = Run::start(&["ReadWriteOnce"]).await?;
        let stop = run.0.shutdown().child();
        run.0.controllers_until(&stop, &[CONTROLLER], |_| {})?;
        run.pod("p", "a").await?;
        run.until_places(&["a"]).await?;
        run.attach().await?;
        run.until_told("a", &[UNIQUE]).await?;
        run.uses("a", &[UNIQUE]).await?;
        // Somebody else's attachment is left alone.
        let other = json!({"metadata": {"name": "mine"}, "spec": {"attacher": "d.io", "nodeName": "b",
            "source": {"persistentVolumeName": "v"}}});
        run.0.create::<VolumeAttachment>(&other).await?;
        stop.stop();
        run.0.take::<Pod>("default", "p").await?;
        if volume_goes {
            run.0.take::<PersistentVolume>("", "v").await?;
            let unheld = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            match run.0.admin().api::<PersistentVolume>("").patch("v", &unheld).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        run.0.controllers(&[CONTROLLER])?;
        sleep(10 * MINUTE).await; // what must not happen has this long, in simulated time
        assert_eq!(run.places().await?, ["a", "b"], "node a uses it");
        run.until_told("a", &[UNIQUE]).await?;
        run.uses("a", &[]).await?;
        run.until_places(&["b"]).await?;
        run.until_told("a", &[]).await?;
        run.0.stop().await;
    }
    Ok(())
}

/// Upstream's 4 cases of `Test_ADC_VolumeAttachmentRecovery`: whether the volume is of a plugin, whether its attachment says
/// that it is attached, and whether its Pod is there still, when a controller starts. One that nobody wants goes, attached
/// or not, and one that is wanted stays as it is.
#[tokio::test(start_paused = true)]
async fn attachments_that_a_controller_finds() -> Result<()> {
    let check = async |of_plugin: bool, attached: bool, used: bool| -> Result<()> {
        let source = if of_plugin {
            json!({"gcePersistentDisk": {"pdName": "d"}})
        } else {
            json!({"csi": {"driver": "d.io", "volumeHandle": "h"}})
        };
        let run = Run::with(&["ReadWriteOnce"], source).await?;
        let stop = run.0.shutdown().child();
        run.0.controllers_until(&stop, &[CONTROLLER], |_| {})?;
        run.pod("p", "a").await?;
        run.until_places(&["a"]).await?;
        if attached {
            run.attach().await?;
        }
        stop.stop();
        if !used {
            run.0.take::<Pod>("default", "p").await?;
        }
        let uids = async || {
            let all = run.0.list::<VolumeAttachment>("").await?;
            anyhow::Ok(all.into_iter().filter_map(|a| a.metadata.uid).collect::<Vec<_>>())
        };
        let before = uids().await?;
        run.0.controllers(&[CONTROLLER])?;
        sleep(5 * MINUTE).await; // the time for which it works, in simulated time
        let expected = if used { before } else { Vec::new() };
        assert_eq!(uids().await?, expected, "{of_plugin} {attached} {used}");
        run.0.stop().await;
        Ok(())
    };
    check(false, true, false).await?;
    check(false, false, false).await?;
    check(true, false, true).await?;
    check(true, false, false).await
}

/// Upstream's `TestFindAndRemoveNonattachableVolumes`: a driver that wants no attachments any more. Its volumes are detached
/// when the node does not use them. Pods that are found and forgotten (`TestFindAndAddActivePods_FindAndRemoveDeletedPods`,
/// `Test_AttachDetachControllerRecovery`, `Test_AttachDetachControllerStateOfWorldPopulators_Positive`) are part of every test
/// here, since nothing is kept of them.
#[tokio::test(start_paused = true)]
async fn a_driver_that_wants_no_attachments_any_more() -> Result<()> {
    let run = Run::in_use(&["ReadWriteOnce"], |_| {}).await?;
    let driver = json!({"metadata": {"name": "d.io"}, "spec": {"attachRequired": false}});
    run.0.create::<CSIDriver>(&driver).await?;
    sleep(5 * MINUTE).await; // what must not happen has this long, in simulated time
    assert_eq!(run.places().await?, ["a"], "node a uses it");
    run.uses("a", &[]).await?;
    run.until_places(&[]).await?;
    run.until_told("a", &[]).await?;
    run.0.stop().await;
    Ok(())
}

/// Interrupts the controller before each of its writes, with and without a lost answer before.
#[tokio::test(start_paused = true)]
async fn work_that_is_interrupted_goes_on() -> Result<()> {
    for (count, lost) in (0..5).flat_map(|n| [(n, false), (n, true)]) {
        let run = Run::start(&["ReadWriteOnce"]).await?;
        let stop = run.0.shutdown().child();
        if lost {
            let lost = Fault::Lose(Status::failure(500, "InternalError", "the connection is lost"));
            run.0.faults().add(Rule::new(lost).writes().skip(count).times(1));
        }
        run.0.faults().add(Rule::new(Fault::Hang).writes().skip(count + usize::from(lost)));
        run.0.controllers_until(&stop, &[CONTROLLER], |_| {})?;
        run.pod("p", "a").await?;
        sleep(MINUTE).await; // the time for which the first one works, in simulated time
        run.attach().await?;
        sleep(MINUTE).await; // the time for which it goes on, in simulated time
        run.0.take::<Pod>("default", "p").await?;
        run.pod("q", "b").await?;
        for _ in 0..60 {
            let places = run.places().await?;
            assert!(places.len() < 2, "{count} {lost}: {places:?}");
            sleep(Duration::from_secs(1)).await; // the pace of looking, in simulated time
        }
        stop.stop();
        run.0.faults().clear();
        run.0.controllers(&[CONTROLLER])?;
        run.until_places(&["b"]).await?;
        run.attach().await?;
        run.until_told("b", &[UNIQUE]).await?;
        run.until_told("a", &[]).await?;
        run.0.stop().await;
    }
    Ok(())
}

/// A detachment that the server refuses is tried again.
#[tokio::test(start_paused = true)]
async fn a_detachment_that_fails_is_tried_again() -> Result<()> {
    let run = Run::in_use(&["ReadWriteOnce"], |_| {}).await?;
    let down = || Fault::Refuse(api::Status::failure(503, "ServiceUnavailable", "down"));
    run.0.faults().add(Rule::new(down()).resource("nodes").writes().times(2));
    run.0.faults().add(Rule::new(down()).resource("volumeattachments").verb(Verb::Delete).times(3));
    run.0.take::<Pod>("default", "p").await?;
    run.uses("a", &[]).await?;
    run.until_places(&[]).await?;
    run.until_told("a", &[]).await?;
    run.0.stop().await;
    Ok(())
}

/// A volume that needs no attacher: its node is told of it, and no other node has it meanwhile.
#[tokio::test(start_paused = true)]
async fn a_lun_goes_from_node_to_node() -> Result<()> {
    let lun = "kubernetes.io/iscsi/192.0.2.1:iqn.2014-12.com.example:x:1";
    let source = json!({"targetPortal": "192.0.2.1", "iqn": "iqn.2014-12.com.example:x", "lun": 1});
    let run = Run::with(&["ReadWriteOnce"], json!({ "iscsi": source })).await?;
    let stop = run.0.shutdown().child();
    run.0.controllers_until(&stop, &[CONTROLLER], |_| {})?;
    run.pod("p", "a").await?;
    run.until_told("a", &[lun]).await?;
    run.until_said("AttachVolume.Attach succeeded for volume \"v\" ").await?;
    run.uses("a", &[lun]).await?;
    run.pod("q", "b").await?;
    run.until_said("Multi-Attach error for volume \"v\" Volume is already used by pod(s) p").await?;
    run.until_told("b", &[]).await?;
    stop.stop();
    // Another controller knows it all.
    run.0.controllers(&[CONTROLLER])?;
    run.0.take::<Pod>("default", "p").await?;
    sleep(20 * MINUTE).await; // what must not happen has this long, in simulated time
    run.until_told("a", &[lun]).await?;
    run.until_told("b", &[]).await?;
    run.uses("a", &[]).await?;
    run.until_told("a", &[]).await?;
    run.until_told("b", &[lun]).await?;
    assert!(run.places().await?.is_empty(), "there are no objects of it");
    run.0.stop().await;
    Ok(())
}

/// Upstream's cases of `TestVolumesInUseMetricCollection` and `TestTotalVolumesMetricCollection`: the volumes that Pods use
/// on each node, and those that are to be attached and that are.
#[tokio::test(start_paused = true)]
async fn volumes_are_counted() -> Result<()> {
    let run = Run::start(&["ReadWriteOnce"]).await?;
    let running = run.0.controllers(&[CONTROLLER])?;
    let check = |wanted: &[&str]| {
        let page = running.metrics.page().text();
        let names = ["storage_count_attachable_volumes_in_use{", "attachdetach_controller_total_volumes{"];
        let mut lines: Vec<&str> =
            page.lines().filter(|line| names.iter().any(|name| line.starts_with(name))).collect();
        lines.sort_unstable();
        assert_eq!(lines, wanted);
    };
    let desired = "attachdetach_controller_total_volumes{state=\"desired_state_of_world\",plugin_name=\"kubernetes.io/csi:d.io\"} 1";
    let actual = "attachdetach_controller_total_volumes{state=\"actual_state_of_world\",plugin_name=\"kubernetes.io/csi:d.io\"} 1";
    let used =
        "storage_count_attachable_volumes_in_use{node=\"a\",volume_plugin=\"kubernetes.io/csi:d.io\"} 1";
    sleep(MINUTE).await; // the time in which all is seen, in simulated time
    check(&[]);
    run.pod("p", "a").await?;
    run.until_places(&["a"]).await?;
    check(&[desired, used]);
    run.attach().await?;
    run.until_told("a", &[UNIQUE]).await?;
    check(&[actual, desired, used]);
    run.0.stop().await;
    Ok(())
}

/// The calls of a driver, whose first one fails.
#[derive(Debug, Default)]
struct Driver(parking_lot::Mutex<Vec<String>>);

impl controllers::FlexDrivers for Driver {
    fn attach(
        &self,
        volume: String,
        of: controllers::FlexVolume,
        node: String,
    ) -> BoxFuture<'static, Result<Option<String>, String>> {
        let mut calls = self.0.lock();
        calls.push(format!("attach {} {volume} {node}", of.driver));
        let first = calls.len() == 1;
        Box::pin(async move { if first { Err("no room".into()) } else { Ok(Some("/dev/sdx".into())) } })
    }

    fn detach(&self, driver: String, volume: String, node: String) -> BoxFuture<'static, Result<(), String>> {
        self.0.lock().push(format!("detach {driver} {volume} {node}"));
        Box::pin(async { Ok(()) })
    }

    fn expand(
        &self,
        volume: String,
        of: controllers::FlexVolume,
        (new, old): (i64, i64),
    ) -> BoxFuture<'static, Result<bool, String>> {
        let mut calls = self.0.lock();
        calls.push(format!("expand {} {volume} {old} {new}", of.driver));
        let first = calls.len() == 1;
        let resizes = of.driver != "whole";
        Box::pin(async move { if first { Err("no room".into()) } else { Ok(resizes) } })
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_flex_volumes_attaches() -> Result<()> {
    let run = Run::with(&["ReadWriteOnce"], json!({"flexVolume": {"driver": "k8s.io/d"}})).await?;
    let driver = Arc::new(Driver::default());
    let given = driver.clone();
    run.0.controllers_with(&[CONTROLLER], |c| c.flex_drivers = Some(given))?;
    run.pod("p", "a").await?;
    run.until_said("AttachVolume.Attach failed for volume \"v\" : no room").await?;
    run.until_told("a", &["k8s.io/d/v"]).await?;
    let node = run.0.get::<Node>("", "a").await?.context("no node")?;
    let told = node.status.and_then(|s| s.volumes_attached).unwrap_or_default();
    assert_eq!(told[0].device_path, "/dev/sdx");
    // A Pod's own volume.
    let inline = json!([{"name": "w", "flexVolume": {"driver": "k8s.io/d"}}]);
    run.0.create::<Pod>(&pod("q", json!({"spec": {"nodeName": "b", "volumes": inline}}))).await?;
    run.until_told("b", &["k8s.io/d/w"]).await?;
    run.0.take::<Pod>("default", "p").await?;
    run.0.take::<Pod>("default", "q").await?;
    run.until_told("a", &[]).await?;
    run.until_told("b", &[]).await?;
    let mut calls: Vec<String> = driver.0.lock().clone();
    calls.sort();
    let expected = [
        "attach k8s.io/d v a",
        "attach k8s.io/d v a",
        "attach k8s.io/d w b",
        "detach k8s.io/d v a",
        "detach k8s.io/d w b",
    ];
    assert_eq!(calls, expected);
    run.0.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_wants_more_room_waits_for_a_resizer() -> Result<()> {
    let run = Run::start(&["ReadWriteOnce"]).await?;
    let class = json!({"metadata": {"name": "s"}, "provisioner": "d.io", "allowVolumeExpansion": true});
    run.0.create::<StorageClass>(&class).await?;
    run.0.controllers(&[EXPANDER])?;
    sleep(MINUTE).await; // what must not happen has this long, in simulated time
    assert!(!run.0.reasons().await?.iter().any(|r| r == "ExternalExpanding"));
    let claim = json!({
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"resources": {"requests": {"storage": "2Gi"}}},
    });
    let patch = Patch::Merge(claim);
    run.0.admin().api::<PersistentVolumeClaim>("default").patch("c", &patch).await?;
    said(&run.0, "ExternalExpanding").await?;
    run.0.stop().await;
    Ok(())
}

/// A claim of a FlexVolume that wants to grow.
async fn growing(driver: &str) -> Result<(Run, Arc<Driver>)> {
    let source = json!({"flexVolume": {"driver": driver}});
    let run = Run::with(&["ReadWriteOnce"], source).await?;
    let class = json!({"metadata": {"name": "s"}, "provisioner": "d.io", "allowVolumeExpansion": true});
    run.0.create::<StorageClass>(&class).await?;
    let calls = Arc::new(Driver::default());
    let given = calls.clone();
    run.0.controllers_with(&[EXPANDER], |c| c.flex_drivers = Some(given))?;
    let patch = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    run.0.admin().api::<PersistentVolumeClaim>("default").patch("c", &patch).await?;
    Ok((run, calls))
}

/// The state of the claim's growth, its capacity and its conditions.
async fn growth(run: &Run) -> Result<(String, String, Vec<String>)> {
    let claim = run.0.get::<PersistentVolumeClaim>("default", "c").await?.context("no claim")?;
    let status = claim.status.unwrap_or_default();
    let state = status.allocated_resource_statuses.and_then(|mut all| all.remove("storage"));
    let has = status.capacity.and_then(|mut all| all.remove("storage")).unwrap_or_default().0;
    let mut conditions: Vec<String> = status.conditions.into_iter().flatten().map(|c| c.type_).collect();
    conditions.sort();
    Ok((state.unwrap_or_default(), has, conditions))
}

/// The volume's capacity, and that of its claim before it grew.
async fn sizes(run: &Run) -> Result<(String, Option<String>)> {
    let volume = run.0.get::<PersistentVolume>("", "v").await?.context("no volume")?;
    let before = volume.metadata.annotations.unwrap_or_default();
    let before = before.get("volume.alpha.kubernetes.io/pre-resize-capacity").cloned();
    let capacity = volume.spec.and_then(|s| s.capacity).and_then(|mut all| all.remove("storage"));
    Ok((capacity.unwrap_or_default().0, before))
}

fn grown() -> (String, String, Vec<String>) {
    (String::new(), "2Gi".to_owned(), Vec::new())
}

#[tokio::test(start_paused = true)]
async fn a_flex_volume_grows_and_its_node_goes_on() -> Result<()> {
    let (run, driver) = growing("k8s.io/d").await?;
    run.until_said("error expanding pvc default/c: no room").await?;
    let waits = ["FileSystemResizePending", "Resizing"].map(str::to_owned).to_vec();
    eventually("the node's turn", MINUTE, async || {
        let state = growth(&run).await? == ("NodeResizePending".to_owned(), "1Gi".to_owned(), waits.clone());
        Ok(state && sizes(&run).await? == ("2Gi".to_owned(), Some("1Gi".to_owned())))
    })
    .await?;
    let claim = run.0.get::<PersistentVolumeClaim>("default", "c").await?.context("no claim")?;
    let annotations = claim.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations["volume.kubernetes.io/storage-resizer"], "k8s.io/d");
    let (old, new) = (1_u64 << 30, 2_u64 << 30);
    assert_eq!(*driver.0.lock(), vec![format!("expand k8s.io/d v {old} {new}"); 2]);
    // The node does its part.
    let done = json!({"status": {"capacity": {"storage": "2Gi"}, "conditions": null,
        "allocatedResourceStatuses": null}});
    run.0.admin().api::<PersistentVolumeClaim>("default").patch_status("c", &Patch::Merge(done)).await?;
    eventually("all of it", MINUTE, async || {
        Ok(growth(&run).await? == grown() && sizes(&run).await? == ("2Gi".to_owned(), None))
    })
    .await?;
    run.0.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_grows_file_systems_itself_leaves_the_node_nothing() -> Result<()> {
    let (run, _) = growing("whole").await?;
    eventually("all of it", MINUTE, async || {
        Ok(growth(&run).await? == grown() && sizes(&run).await? == ("2Gi".to_owned(), None))
    })
    .await?;
    said(&run.0, "VolumeResizeSuccessful").await?;
    run.0.stop().await;
    Ok(())
}
