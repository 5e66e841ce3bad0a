//! Claims and volumes: how they are bound, made and removed, and what interrupts that.

use std::time::Duration;

use anyhow::Result;
use client::{ListParams, Patch};
use ferrokube_simulation::{Cluster, Fault, Rule};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use crate::common::{MINUTE, bare, eventually, merge, pod, said};

/// The annotations by which the provisioner and a node's agent talk.
const DIRECTORY: &str = "ferrokube.io/local-path-directory";
const REMOVE: &str = "ferrokube.io/local-path-remove";
const REMOVED: &str = "ferrokube.io/local-path-removed";

const BINDER: &str = "persistentvolume-binder-controller";
const LOCAL: &str = "local-path-provisioner-controller";
const ALL: [&str; 5] = [
    BINDER,
    LOCAL,
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "ephemeral-volume-controller",
];

fn volume(name: &str, size: &str, more: Value) -> Value {
    let mut volume = json!({
        "metadata": {"name": name},
        "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": format!("/mnt/{name}")}},
    });
    merge(&mut volume, &more);
    volume
}

fn claim(name: &str, size: &str, more: Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": size}}},
    });
    merge(&mut claim, &more);
    claim
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound")
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

async fn volume_of(cluster: &Cluster, claim: &str) -> Result<String> {
    let found = cluster.get::<PersistentVolumeClaim>("default", claim).await?;
    Ok(found.and_then(|claim| claim.spec?.volume_name).unwrap_or_default())
}

async fn until_bound(cluster: &Cluster, name: &str) -> Result<()> {
    eventually(name, MINUTE, async || {
        let found = cluster.get::<PersistentVolumeClaim>("default", name).await?;
        Ok(found.as_ref().is_some_and(is_bound))
    })
    .await
}

async fn until_phase(cluster: &Cluster, name: &str, wanted: &str) -> Result<()> {
    eventually(&format!("{name} {wanted}"), MINUTE, async || {
        let found = cluster.get::<PersistentVolume>("", name).await?;
        Ok(found.as_ref().is_some_and(|v| phase(v) == wanted))
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_a_volume_that_fits_and_leaves_it_released() -> Result<()> {
    let cluster = bare().await?;
    cluster.controllers(&ALL)?;
    cluster.create::<PersistentVolumeClaim>(&claim("c", "2Gi", json!({}))).await?;
    said(&cluster, "FailedBinding").await?;
    for (name, size) in [("small", "1Gi"), ("big", "10Gi")] {
        cluster.create::<PersistentVolume>(&volume(name, size, json!({}))).await?;
    }
    // A volume that comes later is seen without a look at all claims now and then.
    until_bound(&cluster, "c").await?;
    let named = volume_of(&cluster, "c").await?;
    assert_eq!(named, "big");
    until_phase(&cluster, &named, "Bound").await?;
    until_phase(&cluster, "small", "Available").await?;
    let bound = cluster.get::<PersistentVolumeClaim>("default", "c").await?.unwrap();
    let status = bound.status.unwrap();
    let size = cluster.get::<PersistentVolume>("", &named).await?.unwrap().spec.unwrap().capacity;
    assert_eq!((status.capacity, status.access_modes), (size, Some(vec!["ReadWriteOnce".to_owned()])));

    cluster.create::<PersistentVolumeClaim>(&claim("d", "1Gi", json!({}))).await?;
    until_bound(&cluster, "d").await?;
    assert_eq!(volume_of(&cluster, "d").await?, "small");

    cluster.take::<PersistentVolumeClaim>("default", "c").await?;
    until_phase(&cluster, &named, "Released").await?;
    // The volume keeps its reference, so that nobody gets somebody else's data.
    cluster.create::<PersistentVolumeClaim>(&claim("c", "9Gi", json!({}))).await?;
    tokio::time::sleep(MINUTE).await; // what must not happen has this long, in simulated time
    assert!(!is_bound(&cluster.get::<PersistentVolumeClaim>("default", "c").await?.unwrap()));
    let free = Patch::Merge(json!({"spec": {"claimRef": null}}));
    cluster.admin().api::<PersistentVolume>("").patch(&named, &free).await?;
    until_bound(&cluster, "c").await?;

    cluster.admin().api::<PersistentVolume>("").delete("small", None).await?;
    let held = cluster.get::<PersistentVolume>("", "small").await?.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some(), "a claim holds it");
    let unheld = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.admin().api::<PersistentVolume>("").patch("small", &unheld).await?;
    said(&cluster, "ClaimLost").await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn sides_that_name_each_other_are_bound() -> Result<()> {
    let cluster = bare().await?;
    cluster.controllers(&ALL)?;
    let for_claim = json!({"spec": {"claimRef": {"namespace": "default", "name": "a"}}});
    cluster.create::<PersistentVolume>(&volume("meant", "10Gi", for_claim)).await?;
    cluster.create::<PersistentVolume>(&volume("free", "1Gi", json!({}))).await?;
    until_phase(&cluster, "meant", "Available").await?;
    until_phase(&cluster, "free", "Available").await?;
    cluster.create::<PersistentVolumeClaim>(&claim("a", "1Gi", json!({}))).await?;
    until_bound(&cluster, "a").await?;
    assert_eq!(volume_of(&cluster, "a").await?, "meant");

    let named = json!({"spec": {"volumeName": "later"}});
    cluster.create::<PersistentVolumeClaim>(&claim("b", "1Gi", named)).await?;
    let too_small = json!({"spec": {"volumeName": "free"}});
    cluster.create::<PersistentVolumeClaim>(&claim("e", "5Gi", too_small)).await?;
    said(&cluster, "VolumeMismatch").await?;
    cluster.create::<PersistentVolume>(&volume("later", "1Gi", json!({}))).await?;
    until_bound(&cluster, "b").await?;
    // Another claim names the same volume.
    let taken = json!({"spec": {"volumeName": "later"}});
    cluster.create::<PersistentVolumeClaim>(&claim("f", "1Gi", taken)).await?;
    said(&cluster, "FailedBinding").await?;
    cluster.take::<PersistentVolumeClaim>("default", "b").await?;
    until_phase(&cluster, "later", "Released").await?;
    let free = Patch::Merge(json!({"spec": {"claimRef": null}}));
    cluster.admin().api::<PersistentVolume>("").patch("later", &free).await?;
    until_bound(&cluster, "f").await?;
    cluster.stop().await;
    Ok(())
}

/// Interrupts the binder before each of its writes: another one goes on, and one volume is bound to one claim.
#[tokio::test(start_paused = true)]
async fn a_binding_that_is_interrupted_goes_on() -> Result<()> {
    for (count, lost) in (0..8).flat_map(|n| [(n, false), (n, true)]) {
        let cluster = bare().await?;
        let stop = cluster.shutdown().child();
        if lost {
            let lost = Fault::Lose(api::Status::failure(500, "InternalError", "the connection is lost"));
            cluster.faults().add(Rule::new(lost).writes().skip(count).times(1));
        }
        cluster.faults().add(Rule::new(Fault::Hang).writes().skip(count + usize::from(lost)));
        cluster.controllers_until(&stop, &[BINDER], |_| {})?;
        for name in ["v", "w"] {
            cluster.create::<PersistentVolume>(&volume(name, "1Gi", json!({}))).await?;
        }
        cluster.create::<PersistentVolumeClaim>(&claim("c", "1Gi", json!({}))).await?;
        tokio::time::sleep(MINUTE).await; // the time for which the first one works, in simulated time
        stop.stop();
        cluster.faults().clear();
        cluster.controllers(&[BINDER])?;
        until_bound(&cluster, "c").await?;
        let (named, other) = match volume_of(&cluster, "c").await?.as_str() {
            "v" => ("v", "w"),
            _ => ("w", "v"),
        };
        until_phase(&cluster, named, "Bound").await?;
        until_phase(&cluster, other, "Available").await?;
        let free = cluster.get::<PersistentVolume>("", other).await?.unwrap();
        assert!(free.spec.unwrap().claim_ref.is_none(), "{count} {lost}");
        cluster.stop().await;
    }
    Ok(())
}

/// A Node whose agent has a directory for volumes.
async fn node(cluster: &Cluster, name: &str) -> Result<()> {
    let meta = json!({"name": name, "labels": {"kubernetes.io/hostname": name},
        "annotations": {DIRECTORY: "/data/volumes"}});
    cluster.create::<Node>(&json!({"metadata": meta})).await?;
    Ok(())
}

/// The volumes that a Node is asked to remove.
fn asked(node: &Node) -> Vec<String> {
    let text = node.metadata.annotations.as_ref().and_then(|a| a.get(REMOVE));
    text.map(|t| t.split(',').map(str::to_owned).collect()).unwrap_or_default()
}

/// Does what a node's agent does: tells which of the volumes that it is asked for are gone.
async fn answer(cluster: &Cluster, name: &str) -> Result<Vec<String>> {
    let Some(node) = cluster.get::<Node>("", name).await? else { return Ok(Vec::new()) };
    let asked = asked(&node);
    let gone = (!asked.is_empty()).then(|| asked.join(","));
    let patch = json!({"metadata": {"annotations": {REMOVED: gone}}});
    cluster.admin().api::<Node>("").patch(name, &Patch::Merge(patch)).await?;
    Ok(asked)
}

fn local_claim(name: &str, more: Value) -> Value {
    let base = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "a"}},
        "spec": {"storageClassName": "local-path"}});
    let mut all = claim(name, "1Gi", base);
    merge(&mut all, &more);
    all
}

async fn with_class(cluster: &Cluster) -> Result<()> {
    eventually("the class", MINUTE, async || {
        Ok(cluster.get::<StorageClass>("", "local-path").await?.is_some())
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn the_class_is_made_once() -> Result<()> {
    let cluster = bare().await?;
    let stop = cluster.shutdown().child();
    cluster.controllers_until(&stop, &ALL, |c| c.local_path = true)?;
    with_class(&cluster).await?;
    let class = cluster.get::<StorageClass>("", "local-path").await?.unwrap();
    assert_eq!(class.metadata.annotations.unwrap()["storageclass.kubernetes.io/is-default-class"], "true");
    assert_eq!(class.volume_binding_mode.as_deref(), Some("WaitForFirstConsumer"));
    // A claim without a class gets it by admission; it waits for its Pod.
    let unclassed = json!({"spec": {"storageClassName": null}});
    cluster.create::<PersistentVolumeClaim>(&claim("c", "1Gi", unclassed)).await?;
    let found = cluster.get::<PersistentVolumeClaim>("default", "c").await?.unwrap();
    assert_eq!(found.spec.unwrap().storage_class_name.as_deref(), Some("local-path"));
    said(&cluster, "WaitForFirstConsumer").await?;
    tokio::time::sleep(MINUTE).await; // the time in which it is noted, in simulated time
    stop.stop();
    // A user takes it away: it is not made again.
    cluster.take::<StorageClass>("", "local-path").await?;
    cluster.controllers_with(&ALL, |c| c.local_path = true)?;
    tokio::time::sleep(MINUTE).await; // what must not happen has this long, in simulated time
    assert!(cluster.get::<StorageClass>("", "local-path").await?.is_none());
    // A claim that came while there was no default gets one that comes later.
    cluster
        .create::<PersistentVolumeClaim>(&claim("d", "1Gi", json!({"spec": {"storageClassName": null}})))
        .await?;
    said(&cluster, "FailedBinding").await?;
    let class = json!({"metadata": {"name": "mine", "annotations": {
        "storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "mine.io/p"});
    cluster.create::<StorageClass>(&class).await?;
    said(&cluster, "ExternalProvisioning").await?;
    let found = cluster.get::<PersistentVolumeClaim>("default", "d").await?.unwrap();
    assert_eq!(found.spec.unwrap().storage_class_name.as_deref(), Some("mine"));
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_made_on_its_node_and_goes_after_its_content() -> Result<()> {
    let cluster = bare().await?;
    cluster.controllers_with(&ALL, |c| c.local_path = true)?;
    with_class(&cluster).await?;
    node(&cluster, "a").await?;
    cluster.create::<PersistentVolumeClaim>(&local_claim("c", json!({}))).await?;
    until_bound(&cluster, "c").await?;
    let named = volume_of(&cluster, "c").await?;
    let made = cluster.get::<PersistentVolume>("", &named).await?.unwrap();
    let path = made.spec.unwrap().local.unwrap().path;
    assert_eq!(path, format!("/data/volumes/{named}"));
    // Events of one instant have one name, so only the first of them is kept in simulated time.
    said(&cluster, "ExternalProvisioning").await?;
    let many = json!({"spec": {"accessModes": ["ReadWriteMany"]}});
    cluster.create::<PersistentVolumeClaim>(&local_claim("many", many)).await?;
    tokio::time::sleep(MINUTE).await; // what must not happen has this long, in simulated time
    assert_eq!(volume_of(&cluster, "many").await?, "");
    assert_eq!(cluster.list::<PersistentVolume>("").await?.len(), 1);
    // A node that is not there: the scheduler may choose another.
    let elsewhere = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "z"}}});
    cluster.create::<PersistentVolumeClaim>(&local_claim("lost", elsewhere)).await?;
    eventually("another node", MINUTE, async || {
        let found = cluster.get::<PersistentVolumeClaim>("default", "lost").await?.unwrap();
        Ok(!found.metadata.annotations.unwrap().contains_key("volume.kubernetes.io/selected-node"))
    })
    .await?;
    assert_eq!(answer(&cluster, "a").await?, [""; 0]);

    cluster.take::<PersistentVolumeClaim>("default", "c").await?;
    eventually("the node is asked", MINUTE, async || {
        let node = cluster.get::<Node>("", "a").await?.unwrap();
        Ok(asked(&node).contains(&named))
    })
    .await?;
    let going = cluster.get::<PersistentVolume>("", &named).await?.unwrap();
    assert!(going.metadata.deletion_timestamp.is_some(), "its deletion began first");
    tokio::time::sleep(MINUTE).await; // what must not happen has this long, in simulated time
    assert!(cluster.get::<PersistentVolume>("", &named).await?.is_some(), "its content is still there");
    assert_eq!(answer(&cluster, "a").await?, std::slice::from_ref(&named));
    cluster.until::<PersistentVolume>(MINUTE, "", <[PersistentVolume]>::is_empty).await?;
    eventually("the node is asked no more", MINUTE, async || {
        let node = cluster.get::<Node>("", "a").await?.unwrap();
        Ok(asked(&node).is_empty())
    })
    .await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn content_stays_with_another_policy_or_without_a_node() -> Result<()> {
    let cluster = bare().await?;
    cluster.controllers_with(&ALL, |c| c.local_path = true)?;
    with_class(&cluster).await?;
    node(&cluster, "a").await?;
    for name in ["kept", "far"] {
        cluster.create::<PersistentVolumeClaim>(&local_claim(name, json!({}))).await?;
        until_bound(&cluster, name).await?;
    }
    let (kept, far) = (volume_of(&cluster, "kept").await?, volume_of(&cluster, "far").await?);
    let retain = Patch::Merge(json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    cluster.admin().api::<PersistentVolume>("").patch(&kept, &retain).await?;
    tokio::time::sleep(MINUTE).await; // the time in which it is seen, in simulated time
    cluster.take::<PersistentVolumeClaim>("default", "kept").await?;
    until_phase(&cluster, &kept, "Released").await?;
    tokio::time::sleep(MINUTE).await; // what must not happen has this long, in simulated time
    let there = cluster.get::<PersistentVolume>("", &kept).await?.unwrap();
    assert!(there.metadata.deletion_timestamp.is_none());
    assert_eq!(answer(&cluster, "a").await?, [""; 0]);
    // The node goes: the volume does not wait for its answer.
    cluster.take::<Node>("", "a").await?;
    cluster.take::<PersistentVolumeClaim>("default", "far").await?;
    cluster
        .until::<PersistentVolume>(MINUTE, "", |all| {
            all.iter().all(|v| v.metadata.name.as_ref() != Some(&far))
        })
        .await?;
    cluster.stop().await;
    Ok(())
}

/// Interrupts the provisioner before each of its writes, for making and for removing a volume.
#[tokio::test(start_paused = true)]
async fn a_provisioner_that_is_interrupted_goes_on() -> Result<()> {
    for count in 0..7 {
        let cluster = bare().await?;
        cluster.controllers(&[BINDER, ALL[2], ALL[3]])?;
        node(&cluster, "a").await?;
        let first = cluster.shutdown().child();
        let hang = || Rule::new(Fault::Hang).writes();
        // The class has two writes before this.
        cluster.controllers_until(&first, &[LOCAL], |c| c.local_path = true)?;
        with_class(&cluster).await?;
        tokio::time::sleep(MINUTE).await; // the time in which it is noted, in simulated time
        first.stop();
        let second = cluster.shutdown().child();
        cluster.controllers_until(&second, &[LOCAL], |c| c.local_path = true)?;
        // Only the provisioner writes Nodes, and makes and deletes volumes.
        let one = |rule: Rule, at: usize| {
            if count == at {
                cluster.faults().add(rule);
            }
        };
        one(hang().verb(client::Verb::Create).resource("persistentvolumes"), 0);
        one(hang().verb(client::Verb::Delete).resource("persistentvolumes"), 1);
        one(hang().resource("nodes"), 2);
        one(hang().resource("nodes").skip(1), 3);
        let lost = || Fault::Lose(api::Status::failure(500, "InternalError", "the connection is lost"));
        one(Rule::new(lost()).verb(client::Verb::Create).resource("persistentvolumes").times(1), 4);
        one(Rule::new(lost()).verb(client::Verb::Delete).resource("persistentvolumes").times(1), 5);
        one(Rule::new(lost()).writes().resource("nodes").times(1), 6);
        cluster.create::<PersistentVolumeClaim>(&local_claim("c", json!({}))).await?;
        let begun = Duration::from_secs(30);
        if count == 0 {
            tokio::time::sleep(begun).await; // the time for which the first one works, in simulated time
            second.stop();
            cluster.faults().clear();
            cluster.controllers_with(&[LOCAL], |c| c.local_path = true)?;
        }
        until_bound(&cluster, "c").await?;
        assert_eq!(cluster.list::<PersistentVolume>("").await?.len(), 1, "{count}");
        cluster.take::<PersistentVolumeClaim>("default", "c").await?;
        if (1..4).contains(&count) {
            for _ in 0..30 {
                answer(&cluster, "a").await?;
                tokio::time::sleep(Duration::from_secs(1)).await; // the pace of the node, in simulated time
            }
            second.stop();
            cluster.faults().clear();
            cluster.controllers_with(&[LOCAL], |c| c.local_path = true)?;
        }
        eventually("the volume is gone", 2 * MINUTE, async || {
            answer(&cluster, "a").await?;
            Ok(cluster.list::<PersistentVolume>("").await?.is_empty())
        })
        .await?;
        eventually("the node is asked no more", MINUTE, async || {
            let node = cluster.get::<Node>("", "a").await?.unwrap();
            Ok(asked(&node).is_empty())
        })
        .await?;
        cluster.stop().await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_volume_has_a_claim_of_its_pod() -> Result<()> {
    let cluster = bare().await?;
    cluster.controllers(&ALL)?;
    let with_volume = |name: &str| {
        let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}});
        pod(
            name,
            json!({"spec": {"volumes": [
            {"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]}}),
        )
    };
    let made = cluster.create::<Pod>(&with_volume("p")).await?;
    cluster.until::<PersistentVolumeClaim>(MINUTE, "default", |all| all.len() == 1).await?;
    let claimed = cluster.get::<PersistentVolumeClaim>("default", "p-v").await?.unwrap();
    let owner = &claimed.metadata.owner_references.unwrap()[0];
    assert_eq!((Some(&owner.uid), owner.controller), (made.metadata.uid.as_ref(), Some(true)));
    assert_eq!(claimed.metadata.labels.unwrap()["app"], "x");
    // Somebody else's claim has the name.
    cluster.create::<PersistentVolumeClaim>(&claim("q-v", "1Gi", json!({}))).await?;
    cluster.create::<Pod>(&with_volume("q")).await?;
    eventually("the conflict is told", MINUTE, async || {
        let events = cluster.admin().api::<Event>("default").list(&ListParams::default()).await?.items;
        let wanted =
            "ephemeral volume v: PVC default/q-v was not created for pod default/q (pod is not owner)";
        Ok(events.iter().any(|e| e.message.as_deref() == Some(wanted)))
    })
    .await?;
    // When that claim goes, the Pod gets its own.
    cluster.take::<PersistentVolumeClaim>("default", "q-v").await?;
    eventually("the Pod's own claim", MINUTE, async || {
        let found = cluster.get::<PersistentVolumeClaim>("default", "q-v").await?;
        Ok(found.is_some_and(|c| c.metadata.owner_references.is_some()))
    })
    .await?;
    cluster.stop().await;
    Ok(())
}
