//! The garbage collector: upstream's cases (`garbagecollector_test.go`) of what lies between its graph and the API server.
//!
//! A parent is a ConfigMap and a namespaced child a Secret, so that either can be seen first.

use std::time::Duration;

use anyhow::{Context, Result};
use api::Status;
use client::{KubeObject, Patch, Verb};
use ferrokube_simulation::{Cluster, Fault, Rule};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Secret};
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{MINUTE, eventually, started};

const COLLECTOR: &str = "garbage-collector-controller";
/// A time in which the collector has done all that it does at once.
const SOON: Duration = Duration::from_secs(10);

struct Run(Cluster);

/// A reference to an owner.
fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid})
}

impl Run {
    async fn new() -> Result<Self> {
        let run = Self(started(&[COLLECTOR]).await?);
        sleep(MINUTE).await;
        Ok(run)
    }

    /// Makes an object with these owners; returns its uid. `namespace` is "" for an object of the cluster.
    async fn make<T: KubeObject>(&self, namespace: &str, name: &str, owners: &[Value]) -> Result<String> {
        let mut meta = json!({"name": name, "ownerReferences": owners});
        if !namespace.is_empty() {
            meta["namespace"] = json!(namespace);
        }
        let labels = json!({"of": name});
        let template =
            json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut object = json!({ "metadata": meta });
        if matches!(T::KIND, "Deployment" | "ReplicaSet") {
            object["spec"] = json!({"selector": {"matchLabels": labels}, "template": template});
        }
        let made = self.0.create::<T>(&object).await?;
        made.metadata().uid.clone().context("no uid")
    }

    async fn parent(&self, namespace: &str) -> Result<String> {
        self.make::<ConfigMap>(namespace, "parent", &[]).await
    }

    async fn child(&self, name: &str, owners: &[Value]) -> Result<String> {
        self.make::<Secret>("default", name, owners).await
    }

    /// The names of the children that are left.
    async fn children(&self) -> Result<Vec<String>> {
        let all = self.0.list::<Secret>("default").await?.into_iter();
        Ok(all.filter_map(|s| s.metadata.name).collect())
    }

    /// The words of Events about owners in another namespace.
    async fn said(&self) -> Result<Vec<String>> {
        let all = self.0.list::<Event>("").await?.into_iter();
        let of = all.filter(|e| e.reason.as_deref() == Some("OwnerRefInvalidNamespace"));
        Ok(of.filter_map(|e| e.message).collect())
    }

    /// Makes objects such that those of one resource are seen after the others.
    async fn seen_last<T>(&self, plural: &str, make: impl AsyncFnOnce(&Self) -> Result<T>) -> Result<T> {
        self.0.faults().hold_events(plural);
        let made = make(self).await?;
        sleep(SOON).await;
        self.0.faults().let_events_come(plural);
        sleep(SOON).await;
        Ok(made)
    }
}

/// 5 of upstream's 17 cases of `TestConflictingData`: the owner is of the cluster, in another namespace, or of a child that
/// is of the cluster.
///
/// DIFFERENCE: a child that is seen first goes as soon as the server has no such owner in its namespace, so nobody learns
/// that there is one in another.
#[tokio::test(start_paused = true)]
async fn owners_elsewhere() -> Result<()> {
    let of = |uid: &str| owner("v1", "ConfigMap", "parent", uid);
    let text = |namespace: &str, uid: &str| {
        format!(
            "ownerRef [v1/ConfigMap, namespace: {namespace}, name: parent, uid: {uid}] does not exist in namespace \"{namespace}\""
        )
    };
    let run = Run::new().await?;
    let node = run.make::<Node>("", "node", &[]).await?;
    run.child("good", &[owner("v1", "Node", "node", &node)]).await?;
    sleep(MINUTE).await;
    assert_eq!((run.children().await?, run.said().await?.len()), (vec!["good".to_owned()], 0));
    for (last, told) in [("configmaps", false), ("secrets", true)] {
        let run = Run::new().await?;
        let uid = run
            .seen_last(last, async |run| {
                let uid = run.parent("kube-public").await?;
                run.child("bad", &[of(&uid)]).await?;
                Ok(uid)
            })
            .await?;
        assert!(run.children().await?.is_empty(), "{last}");
        assert!(run.0.get::<ConfigMap>("kube-public", "parent").await?.is_some());
        let want: Vec<String> = told.then(|| text("default", &uid)).into_iter().collect();
        assert_eq!(run.said().await?, want, "{last}");
    }
    for last in ["configmaps", "nodes"] {
        let run = Run::new().await?;
        let uid = run
            .seen_last(last, async |run| {
                let uid = run.parent("default").await?;
                run.make::<Node>("", "bad", &[of(&uid)]).await?;
                Ok(uid)
            })
            .await?;
        run.0.faults().record();
        // The informers' watches end within ten minutes and begin again.
        sleep(15 * MINUTE).await;
        assert!(run.0.get::<Node>("", "bad").await?.is_some(), "{last}");
        assert!(run.0.get::<ConfigMap>("default", "parent").await?.is_some());
        assert_eq!(run.said().await?, [text("", &uid)], "{last}");
        let asked = run.0.faults().seen();
        let mut asked = asked.iter().filter(|c| c.resource.plural == "nodes");
        assert!(asked.all(|c| c.verb == Verb::Watch), "it is not looked at again and again");
    }
    Ok(())
}

/// 8 more of upstream's 17 cases of `TestConflictingData`: the version of the owner's API is another one, or it is not
/// served, or the owner is of another kind than the child says.
///
/// DIFFERENCE: the version makes no difference where the group is served. Where it is not, the child stays, as upstream's.
#[tokio::test(start_paused = true)]
async fn owners_by_another_version_or_kind() -> Result<()> {
    for version in ["v1", "v1beta1"] {
        let run = Run::new().await?;
        let uid = run.make::<Role>("default", "role", &[]).await?;
        let reference = owner(&format!("rbac.authorization.k8s.io/{version}"), "Role", "role", &uid);
        run.child("good", &[reference]).await?;
        sleep(5 * MINUTE).await;
        assert_eq!(run.children().await?, ["good"], "{version}");
        run.0.take::<Role>("default", "role").await?;
        eventually("it goes", MINUTE, async || Ok(run.children().await?.is_empty())).await?;
    }
    for last in ["deployments", "secrets"] {
        let run = Run::new().await?;
        run.seen_last(last, async |run| {
            let uid = run.make::<Deployment>("default", "deployment", &[]).await?;
            run.child("old", &[owner("extensions/v1beta1", "Deployment", "deployment", &uid)]).await?;
            run.child("new", &[owner("apps/v1", "Deployment", "deployment", &uid)]).await
        })
        .await?;
        assert_eq!(run.children().await?, ["new", "old"], "{last}");
        run.0.take::<Deployment>("default", "deployment").await?;
        sleep(5 * MINUTE).await;
        // Nobody knows whether the owner is there under the name of the group that is not served.
        assert_eq!(run.children().await?, ["old"], "{last}");
    }
    for last in ["deployments", "secrets"] {
        let run = Run::new().await?;
        run.seen_last(last, async |run| {
            let uid = run.make::<Deployment>("default", "deployment", &[]).await?;
            run.child("bad", &[owner("v1", "Secret", "secretname", &uid)]).await?;
            run.child("good", &[owner("apps/v1", "Deployment", "deployment", &uid)]).await
        })
        .await?;
        sleep(5 * MINUTE).await;
        assert_eq!(run.children().await?, ["good"], "{last}");
    }
    Ok(())
}

/// 3 more of upstream's 17 cases of `TestConflictingData`: an object of the cluster and one of a namespace name an owner
/// that never was, or that is seen late. The first stays without being looked at again.
#[tokio::test(start_paused = true)]
async fn owners_that_are_missing_or_late() -> Result<()> {
    for last in ["nodes", "secrets"] {
        let run = Run::new().await?;
        let uid = run
            .seen_last(last, async |run| {
                let uid = "6a9bd8a4-0c1b-4c58-9b1e-000000000001".to_owned();
                let of = owner("v1", "ConfigMap", "parent", &uid);
                run.child("good", std::slice::from_ref(&of)).await?;
                run.make::<Node>("", "bad", &[of]).await
            })
            .await?;
        assert!(!uid.is_empty() && run.children().await?.is_empty(), "{last}");
        assert!(run.0.get::<Node>("", "bad").await?.is_some(), "{last}");
    }
    let run = Run::new().await?;
    run.seen_last("configmaps", async |run| {
        let of = owner("v1", "ConfigMap", "parent", &run.parent("default").await?);
        run.child("good", std::slice::from_ref(&of)).await?;
        run.make::<Node>("", "bad", &[of]).await
    })
    .await?;
    sleep(MINUTE).await;
    assert_eq!((run.children().await?.len(), run.said().await?.len()), (1, 1));
    assert!(run.0.get::<Node>("", "bad").await?.is_some());
    Ok(())
}

/// The last of upstream's 17 cases of `TestConflictingData`: a child is written between the look at it and its deletion.
/// If its owners are others by then, they decide; if not, it goes whatever its version is.
#[tokio::test(start_paused = true)]
async fn children_that_are_written_meanwhile() -> Result<()> {
    for (change, left) in [("data", false), ("gone", false), ("there", true)] {
        let run = Run::new().await?;
        let uid = run.parent("default").await?;
        let other = run.make::<ConfigMap>("default", "other", &[]).await?;
        run.child("child", &[owner("v1", "ConfigMap", "parent", &uid)]).await?;
        sleep(SOON).await;
        let held = run.0.faults().hold(|fault| Rule::new(fault).verb(Verb::Delete).resource("secrets"));
        run.0.take::<ConfigMap>("default", "parent").await?;
        sleep(SOON).await;
        let patch = match change {
            "data" => json!({"data": {"a": "YQ=="}}),
            "gone" => json!({"metadata": {"ownerReferences": [owner("v1", "ConfigMap", "nobody", "u")]}}),
            _ => json!({"metadata": {"ownerReferences": [owner("v1", "ConfigMap", "other", &other)]}}),
        };
        run.0.admin().api::<Secret>("default").patch("child", &Patch::Merge(patch)).await?;
        held.open(Ok(()));
        sleep(MINUTE).await;
        assert_eq!(run.children().await?.len(), usize::from(left), "{change}");
    }
    Ok(())
}

/// Upstream's cases of `TestAttemptToDeleteItem`, `TestAttemptToDeleteItemDeleteObjectNotFound` and
/// `TestAttemptToDeleteItemDeleteObjectNotFoundWaitingForDependents`: somebody else deletes the object first.
#[tokio::test(start_paused = true)]
async fn children_that_others_delete() -> Result<()> {
    for (policy, lost) in [("Background", false), ("Background", true), ("Foreground", true)] {
        let run = Run::new().await?;
        let mut of = owner("v1", "ConfigMap", "parent", &run.parent("default").await?);
        of["blockOwnerDeletion"] = json!(true);
        run.child("child", &[of]).await?;
        sleep(SOON).await;
        if lost {
            let gone = Status::not_found("", "secrets", "child");
            run.0.faults().add(Rule::new(Fault::Lose(gone)).verb(Verb::Delete).resource("secrets").times(1));
        }
        let options =
            DeleteOptions { propagation_policy: Some(policy.to_owned()), ..DeleteOptions::default() };
        run.0.faults().record();
        run.0.admin().api::<ConfigMap>("default").delete("parent", Some(&options)).await?;
        eventually("both are gone", MINUTE, async || {
            Ok(run.children().await?.is_empty() && run.0.list::<ConfigMap>("default").await?.is_empty())
        })
        .await?;
        let seen = run.0.faults().seen();
        let deletions = seen.iter().filter(|c| c.verb == Verb::Delete && c.resource.plural == "secrets");
        assert_eq!(deletions.count(), 1, "{policy} {lost}");
    }
    Ok(())
}

/// Upstream's case of `TestOrphanDependentsFailure`: an owner waits until the last dependent is free of it.
#[tokio::test(start_paused = true)]
async fn dependents_that_cannot_be_freed() -> Result<()> {
    let run = Run::new().await?;
    let uid = run.parent("default").await?;
    for name in ["a", "b"] {
        run.child(name, &[owner("v1", "ConfigMap", "parent", &uid)]).await?;
    }
    sleep(SOON).await;
    let conflict = Status::conflict("", "secrets", "b", "changed");
    run.0
        .faults()
        .add(Rule::new(Fault::Refuse(conflict)).verb(Verb::MergePatch).resource("secrets").name("b"));
    let orphan = DeleteOptions { propagation_policy: Some("Orphan".to_owned()), ..DeleteOptions::default() };
    run.0.admin().api::<ConfigMap>("default").delete("parent", Some(&orphan)).await?;
    sleep(MINUTE).await;
    assert!(run.0.get::<ConfigMap>("default", "parent").await?.is_some());
    run.0.faults().clear();
    eventually("it goes", 5 * MINUTE, async || {
        Ok(run.0.get::<ConfigMap>("default", "parent").await?.is_none())
    })
    .await?;
    let children = run.0.list::<Secret>("default").await?;
    assert!(children.iter().all(|c| c.metadata.owner_references.iter().flatten().next().is_none()));
    assert_eq!(children.len(), 2);
    Ok(())
}

/// Upstream's cases of `TestGarbageCollectorConstruction` and `TestGarbageCollectorSync`, and those of
/// `TestGetDeletableResources` that fail: nothing can be discovered, or not all of it, or a resource cannot be listed. The
/// collector goes on with what it sees, and takes up the rest later.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_seen_holds_up_nothing_else() -> Result<()> {
    let error = || Fault::Refuse(Status::internal("error"));
    let cases = [
        // Of a faulty discovery before the start, the collector sees nothing, and waits.
        (Rule::new(error()).path("/apis"), ["b", "c"].as_slice()),
        (Rule::new(error()).path("/apis/apps/v1"), &["b"]),
        (Rule::new(Fault::Refuse(Status::not_found("", "replicasets", ""))).resource("replicasets"), &["b"]),
    ];
    for (rule, left) in cases {
        let cluster = crate::common::bare().await?;
        cluster.faults().add(rule);
        cluster.controllers(&[COLLECTOR])?;
        let run = Run(cluster);
        let nobody = [owner("v1", "ConfigMap", "nobody", "u")];
        run.make::<ReplicaSet>("default", "b", &nobody).await?;
        run.child("c", &nobody).await?;
        sleep(2 * MINUTE).await;
        let mut there = run.children().await?;
        there.extend(run.0.list::<ReplicaSet>("default").await?.into_iter().filter_map(|o| o.metadata.name));
        there.sort();
        assert_eq!(there, left);
        run.0.faults().clear();
        eventually("all go", 5 * MINUTE, async || {
            Ok(run.children().await?.is_empty() && run.0.list::<ReplicaSet>("default").await?.is_empty())
        })
        .await?;
    }
    // A failure later changes nothing, even if what is served changes meanwhile.
    let run = Run::new().await?;
    run.0.faults().add(Rule::new(error()).path("/apis"));
    let uid = run.make::<Deployment>("default", "deployment", &[]).await?;
    run.child("child", &[owner("apps/v1", "Deployment", "deployment", &uid)]).await?;
    sleep(SOON).await;
    run.0.take::<Deployment>("default", "deployment").await?;
    eventually("it goes", MINUTE, async || Ok(run.children().await?.is_empty())).await
}
