//! Claims, volumes and classes in use are kept: upstream's cases (`pvc_protection_controller_test.go`,
//! `pv_protection_controller_test.go`, `vac_protection_controller_test.go`).

use std::time::Duration;

use anyhow::Result;
use api::{FeatureGates, Status};
use client::{Patch, Verb};
use ferrokube_simulation::{Cluster, Fault, Rule};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use serde_json::json;
use tokio::time::sleep;

use crate::common::{MINUTE, pod};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";
const CLASS: &str = "kubernetes.io/vac-protection";
/// It keeps a deleted object, so that the other finalizers can be looked at.
const STAY: &str = "example.com/stay";
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

/// The events of a case. The first part of them is there before the controller.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A claim comes, with its finalizer.
    Claim(&'static str),
    /// The finalizer of a claim is taken away.
    Bare(&'static str),
    /// It was said long ago whether a claim is unused.
    Told(&'static str, &'static str),
    /// A claim is deleted.
    Delete(&'static str),
    /// A Pod comes, or is changed: its name, whether it has a node, its claim ("" for none), its phase.
    Pod(&'static str, bool, &'static str, &'static str),
    /// A Pod goes.
    Gone(&'static str),
    /// A Pod goes and another one comes under its name, which the controller sees as one change.
    Instead(&'static str, bool, &'static str),
    /// The controller starts.
    Start,
    /// The controller sees no more of Pods.
    Late,
    /// So many requests of this kind fail.
    Fail(Verb, &'static str, usize),
}
use Step::{Bare, Claim, Delete, Fail, Gone, Instead, Late, Start, Told};

async fn step(cluster: &Cluster, step: Step, gates: FeatureGates) -> Result<()> {
    let claims = cluster.admin().api::<PersistentVolumeClaim>("default");
    let bound = async |name: &str, node: bool, claim: &str, phase: &str| -> Result<()> {
        let mut volumes = vec![json!({"name": "e", "emptyDir": {}})];
        if !claim.is_empty() {
            volumes.push(json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}}));
        }
        let node = node.then_some("node");
        let more = json!({"spec": {"nodeName": node, "volumes": volumes}, "status": {"phase": phase}});
        cluster.put::<Pod>(&pod(name, more)).await.map(drop)
    };
    match step {
        Claim(name) => {
            let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}}});
            let meta = json!({"name": name, "namespace": "default", "finalizers": [STAY]});
            cluster.create::<PersistentVolumeClaim>(&json!({"metadata": meta, "spec": spec})).await?;
        }
        Bare(name) => {
            let bare = json!({"metadata": {"finalizers": [STAY]}});
            claims.patch(name, &Patch::Merge(bare)).await?;
        }
        Told(name, status) => {
            let told = json!({"type": "Unused", "status": status, "lastTransitionTime": LONG_AGO});
            claims.patch_status(name, &Patch::Merge(json!({"status": {"conditions": [told]}}))).await?;
        }
        Delete(name) => claims.delete(name, None).await?,
        Step::Pod(name, node, claim, phase) => bound(name, node, claim, phase).await?,
        Gone(name) => cluster.take::<Pod>("default", name).await?,
        Instead(name, node, claim) => {
            cluster.faults().hold_events("pods");
            cluster.take::<Pod>("default", name).await?;
            bound(name, node, claim, "Pending").await?;
            cluster.faults().end_watches("pods");
            cluster.faults().let_events_come("pods");
        }
        Start => {
            let controller = "persistentvolumeclaim-protection-controller";
            cluster.controllers_with(&[controller], |c| c.gates = gates)?;
            sleep(Duration::from_secs(1)).await;
        }
        Late => cluster.faults().hold_events("pods"),
        Fail(verb, resource, times) => {
            let error = Status::failure(403, "Forbidden", "Mock error");
            cluster.faults().add(Rule::new(Fault::Refuse(error)).verb(verb).resource(resource).times(times));
        }
    }
    Ok(())
}

/// The state of a claim: whether it is kept, and whether it says that it is unused; that is so for long, where it is "old".
async fn state(cluster: &Cluster, name: &str) -> Result<(bool, String)> {
    let claim = cluster.get::<PersistentVolumeClaim>("default", name).await?.unwrap_or_default();
    let kept = claim.metadata.finalizers.iter().flatten().any(|f| f == CLAIM);
    let all = claim.status.and_then(|s| s.conditions).unwrap_or_default();
    let said = all.iter().find(|c| c.type_ == "Unused").map(|c| {
        let since = c.last_transition_time.as_ref().map(|t| t.0.to_string());
        let reason = c.reason.as_deref().unwrap_or("old");
        assert_eq!(since.as_deref() == Some(LONG_AGO), reason == "old");
        format!("{} {reason}", c.status)
    });
    Ok((kept, said.unwrap_or_default()))
}

/// The states of claims after a case: name, whether it is kept, and what it says.
type After = (&'static str, bool, &'static str);

async fn check(enabled: bool, name: &str, steps: &[Step], want: &[After]) -> Result<()> {
    let gates = FeatureGates::parse([&*format!("PersistentVolumeClaimUnusedSinceTime={enabled}")])?;
    let cluster = Cluster::start_with(|c| c.gates = gates).await?;
    let account = json!({"metadata": {"name": "default", "namespace": "default"}});
    cluster.create::<ServiceAccount>(&account).await?;
    for one in steps {
        step(&cluster, *one, gates).await?;
    }
    sleep(MINUTE).await;
    for (claim, kept, said) in want {
        assert_eq!(state(&cluster, claim).await?, (*kept, (*said).to_owned()), "{name}: {claim}");
    }
    cluster.stop().await;
    Ok(())
}

const UNUSED: &str = "True NoPodsUsingPVC";
const USED: &str = "False PodUsingPVC";

/// 13 of upstream's 37 cases of `TestPVCProtectionController`: those about events of claims, without the gate.
#[tokio::test(start_paused = true)]
async fn claims_that_are_deleted() -> Result<()> {
    let check = async |name: &str, steps: &[Step], want: &[After]| check(false, name, steps, want).await;
    let two = [Claim("a"), Claim("b")];
    let with = |steps: &[Step]| [&two[..], steps].concat();
    check("without finalizer", &with(&[Bare("a"), Bare("b"), Start]), &[("a", true, ""), ("b", true, "")])
        .await?;
    check("with finalizer", &with(&[Start]), &[("a", true, ""), ("b", true, "")]).await?;
    let fails = Fail(Verb::Update, "persistentvolumeclaims", 2);
    check("saving fails", &[Claim("a"), Bare("a"), fails, Start], &[("a", true, "")]).await?;
    let both = [Delete("a"), Delete("b")];
    let gone = &[("a", false, ""), ("b", false, "")];
    check("deleted", &with(&[both[0], both[1], Start]), gone).await?;
    check("deleted together", &with(&[Start, both[0], both[1]]), gone).await?;
    check("removal fails", &[Claim("a"), fails, Start, Delete("a")], &[("a", false, "")]).await?;
    let fails = Fail(Verb::List, "pods", 1);
    check("the list fails", &with(&[Start, fails, both[0], both[1]]), gone).await?;
    let uses = |claim, phase| Step::Pod("p", true, claim, phase);
    check("a Pod uses it", &[Claim("a"), uses("a", "Pending"), Start, Delete("a")], &[("a", true, "")])
        .await?;
    check("a Pod uses another", &[Claim("a"), uses("c", "Pending"), Start, Delete("a")], &[("a", false, "")])
        .await?;
    check("others", &with(&[uses("c", "Pending"), Start, both[0], both[1]]), gone).await?;
    check("the Pod has ended", &[Claim("a"), uses("a", "Failed"), Start, Delete("a")], &[("a", true, "")])
        .await?;
    check("late", &[Claim("a"), Start, Late, uses("a", "Pending"), Delete("a")], &[("a", true, "")]).await?;
    let mixed = [Start, Late, uses("a", "Pending"), both[0], both[1]];
    check("used and unused", &with(&mixed), &[("a", true, ""), ("b", false, "")]).await
}

/// 16 of upstream's 37 cases of `TestPVCProtectionController`: those about the condition `Unused`.
#[tokio::test(start_paused = true)]
async fn claims_tell_whether_they_are_used() -> Result<()> {
    let on = async |name: &str, steps: &[Step], want: After| check(true, name, steps, &[want]).await;
    let pod = |claim, phase| Step::Pod("p", true, claim, phase);
    let a = Claim("a");
    on("unused", &[a, Start], ("a", true, UNUSED)).await?;
    on("unused still", &[a, Told("a", "True"), Start], ("a", true, "True old")).await?;
    on("used", &[a, Told("a", "True"), Start, pod("a", "Running")], ("a", true, USED)).await?;
    on("used before", &[a, pod("a", "Running"), Start], ("a", true, USED)).await?;
    on("deleted", &[a, Delete("a"), Start], ("a", false, "")).await?;
    check(false, "without the gate", &[a, Start], &[("a", true, "")]).await?;
    on("without a node", &[a, Step::Pod("p", false, "a", "Pending"), Start], ("a", true, USED)).await?;
    on("succeeded", &[a, pod("a", "Succeeded"), Start], ("a", true, UNUSED)).await?;
    on("failed", &[a, pod("a", "Failed"), Start], ("a", true, UNUSED)).await?;
    let fails = Fail(Verb::Update, "persistentvolumeclaims", 2);
    on("the update fails", &[a, fails, Start], ("a", true, UNUSED)).await?;
    let late = [Start, Late, pod("a", "Pending"), a];
    on("late", &late, ("a", true, USED)).await?;
    let other = Step::Pod("q", true, "a", "Pending");
    on("one of two goes", &[a, pod("a", "Pending"), other, Start, Gone("q")], ("a", true, USED)).await?;
    on("deleted later", &[a, Told("a", "True"), Delete("a"), Start], ("a", false, "True old")).await?;
    on("the Pod goes", &[a, pod("a", "Pending"), Start, Gone("p")], ("a", true, UNUSED)).await?;
    on("without finalizer", &[a, Bare("a"), pod("a", "Pending"), Start], ("a", true, USED)).await?;
    on("deleted and used", &[a, pod("a", "Pending"), Delete("a"), Start], ("a", true, "")).await
}

/// 8 of upstream's 37 cases of `TestPVCProtectionController`: those about events of Pods.
#[tokio::test(start_paused = true)]
async fn pods_that_let_claims_go() -> Result<()> {
    let check =
        async |name: &str, steps: &[Step], kept: bool| check(false, name, steps, &[("a", kept, "")]).await;
    let pod = |node, claim, phase| Step::Pod("p", node, claim, phase);
    let used = [Claim("a"), pod(true, "a", "Pending"), Start, Delete("a")];
    let then = |steps: &[Step]| [&used[..], steps].concat();
    check("it runs", &then(&[pod(true, "a", "Running")]), true).await?;
    check("it ends", &then(&[pod(true, "a", "Succeeded")]), true).await?;
    let waits = [Claim("a"), pod(false, "a", "Pending"), Start, Delete("a")];
    check("it has no node", &waits, false).await?;
    check("it goes", &then(&[pod(true, "a", "Running"), Gone("p")]), false).await?;
    check("another one comes", &then(&[Instead("p", true, "")]), false).await?;
    let kept = [Claim("a"), pod(true, "a", "Pending"), Start, Instead("p", true, "")];
    check("the claim is not deleted", &kept, true).await?;
    check("another one uses it, too", &then(&[Instead("p", true, "a")]), true).await?;
    let bound = [Claim("a"), pod(false, "a", "Pending"), Start, Instead("p", true, "a"), Delete("a")];
    check("it gets a node", &bound, true).await
}

/// Upstream's 6 cases of `TestPVProtectionController`: whether a volume has its finalizer, is bound and is deleted, the number
/// of requests that fail, and whether it is kept.
#[tokio::test(start_paused = true)]
async fn volumes_that_are_bound() -> Result<()> {
    let check = async |finalizer: bool, bound: bool, deleted: bool, fails: usize, want: bool| -> Result<()> {
        let cluster = Cluster::start().await?;
        let phase = if bound { "Bound" } else { "Available" };
        let volume = json!({
            "metadata": {"name": "v", "finalizers": [STAY]},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/v"}},
            "status": {"phase": phase},
        });
        cluster.put::<PersistentVolume>(&volume).await?;
        let volumes = cluster.admin().api::<PersistentVolume>("");
        if !finalizer {
            volumes.patch("v", &Patch::Merge(json!({"metadata": {"finalizers": [STAY]}}))).await?;
        }
        let error = Status::failure(403, "Forbidden", "Mock error");
        let rule = Rule::new(Fault::Refuse(error)).verb(Verb::Update).resource("persistentvolumes");
        cluster.faults().add(rule.times(fails));
        if deleted {
            volumes.delete("v", None).await?;
        }
        cluster.controllers(&["persistentvolume-protection-controller"])?;
        sleep(MINUTE).await;
        let all = cluster.list::<PersistentVolume>("").await?;
        let finalizers: Vec<_> = all.iter().flat_map(|v| v.metadata.finalizers.iter().flatten()).collect();
        let case = format!("{finalizer} {bound} {deleted} {fails}");
        assert_eq!(finalizers.contains(&&VOLUME.to_owned()), want, "{case}");
        let writes = usize::from(finalizer != want);
        assert_eq!(cluster.faults().controller_writes(), writes * (1 + fails), "{case}");
        cluster.stop().await;
        Ok(())
    };
    check(false, false, false, 0, true).await?;
    check(true, false, false, 0, true).await?;
    check(false, false, false, 2, true).await?;
    check(true, false, true, 0, false).await?;
    check(true, false, true, 2, false).await?;
    check(true, true, true, 0, true).await
}

/// A volume or a claim that names classes: its name, and the classes that its spec names, that its status says it has, and
/// that it is to get; "" for none.
#[derive(Debug, Clone, Copy)]
enum Names {
    Volume(&'static str, &'static str),
    Claim(&'static str, [&'static str; 3]),
}

impl Names {
    async fn put(self, cluster: &Cluster) -> Result<()> {
        let class = |name: &'static str| (!name.is_empty()).then_some(name);
        let modes = json!(["ReadWriteOnce"]);
        match self {
            Self::Volume(name, of) => {
                let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": modes,
                    "volumeAttributesClassName": class(of), "csi": {"driver": "d.io", "volumeHandle": name}});
                let volume = json!({"metadata": {"name": name}, "spec": spec});
                cluster.put::<PersistentVolume>(&volume).await.map(drop)
            }
            Self::Claim(name, [of, current, target]) => {
                let spec = json!({"accessModes": modes, "storageClassName": "", "volumeName": "v",
                    "resources": {"requests": {"storage": "1Gi"}}, "volumeAttributesClassName": class(of)});
                let target = class(target)
                    .map(|t| json!({"targetVolumeAttributesClassName": t, "status": "InProgress"}));
                let status = json!({"phase": "Bound", "currentVolumeAttributesClassName": class(current),
                    "modifyVolumeStatus": target});
                let meta = json!({"name": name, "namespace": "default"});
                let claim = json!({"metadata": meta, "spec": spec, "status": status});
                cluster.put::<PersistentVolumeClaim>(&claim).await.map(drop)
            }
        }
    }

    /// Removes it, whatever holds it.
    async fn take(self, cluster: &Cluster) -> Result<()> {
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        match self {
            Self::Volume(name, _) => {
                cluster.admin().api::<PersistentVolume>("").patch(name, &free).await?;
                cluster.take::<PersistentVolume>("", name).await
            }
            Self::Claim(name, _) => {
                cluster.admin().api::<PersistentVolumeClaim>("default").patch(name, &free).await?;
                cluster.take::<PersistentVolumeClaim>("default", name).await
            }
        }
    }
}

/// Upstream's 16 cases of `TestVACProtectionController`: whether a class has its finalizer, is deleted, the number of
/// requests that fail; those that name it, and one of these that changes or goes; and whether the class is kept.
#[tokio::test(start_paused = true)]
async fn classes_that_are_named() -> Result<()> {
    type Changed = (Names, Option<Names>);
    let check = async |class: (bool, bool, usize), named: &[Names], change: Option<Changed>, want: bool| {
        let (finalizer, deleted, fails) = class;
        let cluster = Cluster::start().await?;
        let case = format!("{class:?} {named:?} {change:?}");
        let classes = cluster.admin().api::<VolumeAttributesClass>("");
        for name in ["a", "b"] {
            let meta = json!({"name": name, "finalizers": [STAY]});
            let class = json!({"metadata": meta, "driverName": "d.io", "parameters": {"p": name}});
            cluster.create::<VolumeAttributesClass>(&class).await?;
        }
        let finalizers = if finalizer { json!([STAY, CLASS]) } else { json!([STAY]) };
        classes.patch("a", &Patch::Merge(json!({"metadata": {"finalizers": finalizers}}))).await?;
        classes.patch("b", &Patch::Merge(json!({"metadata": {"finalizers": [STAY, CLASS]}}))).await?;
        for one in named.iter().chain(change.iter().map(|c| &c.0)) {
            one.put(&cluster).await?;
        }
        if deleted {
            classes.delete("a", None).await?;
        }
        let error = Status::failure(403, "Forbidden", "Mock error");
        let rule = Rule::new(Fault::Refuse(error)).verb(Verb::Update).resource("volumeattributesclasses");
        cluster.faults().add(rule.times(fails));
        cluster.controllers(&["volumeattributesclass-protection-controller"])?;
        if let Some((old, new)) = change {
            sleep(MINUTE).await;
            assert_eq!(cluster.faults().controller_writes(), 0, "it is held before: {case}");
            match new {
                Some(new) => new.put(&cluster).await?,
                None => old.take(&cluster).await?,
            }
        }
        sleep(MINUTE).await;
        let class = cluster.get::<VolumeAttributesClass>("", "a").await?.unwrap_or_default();
        let kept = class.metadata.finalizers.iter().flatten().any(|f| f == CLASS);
        assert_eq!(kept, want, "{case}");
        let writes = usize::from(finalizer != want);
        assert_eq!(cluster.faults().controller_writes(), writes * (1 + fails), "{case}");
        cluster.stop().await;
        anyhow::Ok(())
    };
    let volume = |class| Names::Volume("v", class);
    let claim = |spec, current, target| Names::Claim("c", [spec, current, target]);
    let (more_volumes, more_claims) = (Names::Volume("w", "a"), Names::Claim("d", ["a", "", ""]));
    check((false, false, 0), &[], None, true).await?;
    check((true, false, 0), &[], None, true).await?;
    check((false, false, 2), &[], None, true).await?;
    let goes = (true, true, 0);
    check(goes, &[], None, false).await?;
    check((true, true, 2), &[], None, false).await?;
    check(goes, &[volume("a")], None, true).await?;
    check(goes, &[claim("a", "", "")], None, true).await?;
    check(goes, &[], Some((volume("a"), Some(volume("b")))), false).await?;
    check(goes, &[], Some((volume("a"), None)), false).await?;
    check(goes, &[more_volumes], Some((volume("a"), None)), true).await?;
    check(goes, &[claim("a", "", "")], Some((volume("a"), None)), true).await?;
    let of_a = claim("a", "", "");
    check(goes, &[], Some((of_a, Some(claim("b", "", "")))), false).await?;
    check(goes, &[], Some((of_a, Some(claim("b", "a", "")))), true).await?;
    check(goes, &[], Some((of_a, Some(claim("b", "", "a")))), true).await?;
    check(goes, &[more_claims], Some((of_a, None)), true).await?;
    check(goes, &[volume("a")], Some((of_a, None)), true).await
}
