//! Objects and those that own them: they are adopted and let go, change hands and go, and each owner has as many as it wants.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::{Patch, Resource};
use ferrokube_simulation::{Cluster, Shape};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{MINUTE, eventually, pod, started};
use crate::workloads::{cluster_with, deployment};

/// A kind of owner of Pods.
struct Kind {
    controller: &'static str,
    /// Group, version, plural, and kind.
    of: (&'static str, &'static str, &'static str, &'static str),
    /// The fields of its spec besides template and selector.
    spec: Value,
    /// Whether its selector is of labels alone.
    by_labels: bool,
}

fn kinds() -> [Kind; 4] {
    let kind = |controller, of, spec: Value, by_labels| Kind { controller, of, spec, by_labels };
    [
        kind(
            "replicaset-controller",
            ("apps", "v1", "replicasets", "ReplicaSet"),
            json!({"replicas": 1}),
            false,
        ),
        kind(
            "replicationcontroller-controller",
            ("", "v1", "replicationcontrollers", "ReplicationController"),
            json!({"replicas": 1}),
            true,
        ),
        kind("daemonset-controller", ("apps", "v1", "daemonsets", "DaemonSet"), json!({}), false),
        kind(
            "job-controller",
            ("batch", "v1", "jobs", "Job"),
            json!({"parallelism": 1, "backoffLimit": 100, "manualSelector": true}),
            false,
        ),
    ]
}

/// A Pod as far as it matters here: its label, its controller's name, and its uid.
type Seen = (String, String, String);

struct Run<'k> {
    cluster: Cluster,
    kind: &'k Kind,
}

impl Run<'_> {
    fn owners(&self) -> client::Api<Value> {
        let (group, version, plural, _) = self.kind.of;
        let resource = Resource { group: group.into(), version: version.into(), plural: plural.into() };
        self.cluster.admin().resource::<Value>(resource, "default")
    }

    /// Makes a node on which Pods may run.
    async fn node(&self) -> Result<()> {
        self.cluster.create::<Node>(&json!({"metadata": {"name": "n"}})).await?;
        let ready = Patch::Merge(json!({"spec": {"taints": null}}));
        self.cluster.admin().api::<Node>("").patch("n", &ready).await.map(drop).context("a node")
    }

    /// Makes an owner of a Pod with the label of its own name.
    async fn owner(&self, name: &str) -> Result<()> {
        let (group, version, _, kind) = self.kind.of;
        let labels = json!({"app": name});
        let never = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        let always = json!({"containers": [{"name": "c", "image": "i"}]});
        let template = if kind == "Job" { never } else { always };
        let mut spec = self.kind.spec.clone();
        spec["template"] = json!({"metadata": {"labels": labels}, "spec": template});
        spec["selector"] = if self.kind.by_labels { labels } else { json!({ "matchLabels": labels }) };
        let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let owner = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        self.owners().post::<Value, Value>("", "", &owner).await.map(drop).context("an owner")
    }

    /// The reference to an owner.
    async fn reference(&self, name: &str) -> Result<Value> {
        let owner = self.owners().get(name).await?;
        let (group, version, _, kind) = self.kind.of;
        let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        Ok(json!({"apiVersion": version, "kind": kind, "name": name, "uid": owner["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true}))
    }

    /// The Pods that do not go.
    async fn pods(&self) -> Result<BTreeSet<Seen>> {
        let all = self.cluster.list::<Pod>("default").await?.into_iter().map(|p| p.metadata);
        let left = all.filter(|m| m.deletion_timestamp.is_none());
        Ok(left
            .map(|m| {
                let label = m.labels.and_then(|mut l| l.remove("app")).unwrap_or_default();
                let mut owners = m.owner_references.into_iter().flatten();
                let owner = owners.find(|o| o.controller == Some(true)).map(|o| o.name);
                (label, owner.unwrap_or_default(), m.uid.unwrap_or_default())
            })
            .collect())
    }

    /// Waits until the Pods have these labels and controllers, and stay so; the Pods.
    async fn until(&self, step: &str, wanted: &[(&str, &str)]) -> Result<BTreeSet<Seen>> {
        let what = format!("{}: {step}", self.kind.controller);
        let is = async || {
            let pods = self.pods().await?;
            Ok(pods.iter().map(|p| (p.0.as_str(), p.1.as_str())).eq(wanted.iter().copied()))
        };
        let done = eventually(&what, 10 * MINUTE, is).await;
        if done.is_err() {
            return done.map(|()| BTreeSet::new()).with_context(|| format!("wanted {wanted:?}"));
        }
        sleep(MINUTE).await; // in which nothing else may happen, in simulated time
        ensure!(is().await?, "{what}: it does not stay so: {:?}", self.pods().await?);
        self.pods().await
    }

    /// The name of the Pod of an owner.
    async fn pod_of(&self, owner: &str) -> Result<String> {
        let all = self.cluster.list::<Pod>("default").await?.into_iter().map(|p| p.metadata);
        let mut left = all.filter(|m| m.deletion_timestamp.is_none());
        let is = |m: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            m.owner_references.iter().flatten().any(|o| o.name == owner)
        };
        left.find(is).and_then(|m| m.name).with_context(|| format!("{owner} has no Pod"))
    }

    async fn patch(&self, pod: &str, metadata: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        self.cluster.admin().api::<Pod>("default").patch(pod, &patch).await.map(drop).context("a patch")
    }

    /// Makes a Pod of nobody.
    async fn orphan(&self, name: &str, label: &str) -> Result<()> {
        // For the node, and not on it: there it would not go at once.
        let field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
        let required = json!({"nodeSelectorTerms": [field]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        let more = json!({"metadata": {"labels": {"app": label}}, "spec": {"affinity": affinity}});
        self.cluster.create::<Pod>(&pod(name, more)).await.map(drop)
    }

    /// The number of writes while something happens that concerns nobody.
    async fn idle(&self, change: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        let before = self.cluster.faults().controller_writes();
        change().await?;
        sleep(MINUTE).await; // in which nothing may happen, in simulated time
        let writes = self.cluster.faults().controller_writes() - before;
        ensure!(writes == 0, "{}: {writes} writes about a Pod of nobody", self.kind.controller);
        Ok(())
    }
}

/// The changes of upstream's `TestAddPod`, `TestAddPodOrphan`, `TestUpdatePod`, `TestUpdatePodOrphanSameLabels`,
/// `TestUpdatePodOrphanWithNewLabels`, `TestUpdatePodChangeControllerRef`, `TestUpdatePodControllerRefRemoved`,
/// `TestUpdatePodRelease`, `TestDeletePod` and `TestDeletePodOrphan` of four controllers, and those of `TestWatchPods`,
/// `TestWatchOrphanPods` and `TestDeleteFinalStateUnknown`: each change leads to one Pod of each owner.
#[tokio::test(start_paused = true)]
async fn pods_change_hands() -> Result<()> {
    for kind in &kinds() {
        let run = Run { cluster: started(&[kind.controller]).await?, kind };
        run.node().await?;
        for name in ["a", "b"] {
            run.owner(name).await?;
        }
        let one_each = [("a", "a"), ("b", "b")];
        let before = run.until("each has its Pod", &one_each).await?;
        run.cluster.take::<Pod>("default", &run.pod_of("a").await?).await?;
        let after = run.until("a Pod that is deleted is replaced", &one_each).await?;
        ensure!(before.intersection(&after).count() == 1, "{before:?} {after:?}");
        let free = run.pod_of("a").await?;
        run.patch(&free, json!({"labels": {"app": "x"}})).await?;
        run.until("a Pod that is not selected is let go", &[("a", "a"), ("b", "b"), ("x", "")]).await?;
        run.idle(async || run.patch(&free, json!({"labels": {"more": "y"}})).await).await?;
        run.idle(async || run.patch(&free, json!({"annotations": {"more": "y"}})).await).await?;
        run.patch(&free, json!({"labels": {"app": "b"}})).await?;
        run.until("it is adopted, and one too many goes", &one_each).await?;
        run.orphan("orphan", "b").await?;
        run.until("a new one, too", &one_each).await?;
        run.orphan("other", "x").await?;
        run.idle(async || run.cluster.take::<Pod>("default", "other").await).await?;
        let mine = run.pod_of("a").await?;
        run.patch(&mine, json!({"ownerReferences": [run.reference("b").await?]})).await?;
        run.until("a Pod that somebody gave to another comes back", &one_each).await?;
        let before = run.pods().await?;
        let mine = run.pod_of("a").await?;
        run.patch(&mine, json!({"ownerReferences": null})).await?;
        let after = run.until("a Pod that lost its owner is adopted", &one_each).await?;
        ensure!(before == after, "{}: {before:?} {after:?}", kind.controller);
        run.cluster.stop().await;
    }
    Ok(())
}

/// Upstream's cases of `TestGetPodsForJob` and of the races with a deletion: `TestDoNotAdoptOrCreateIfBeingDeletedRace`,
/// `TestDontDoAnythingIfBeingDeleted`, `TestDontDoAnythingIfBeingDeletedRace`. An owner that goes makes nothing and adopts
/// nothing, whether its controller has seen that or not.
#[tokio::test(start_paused = true)]
async fn owners_that_go_adopt_nothing() -> Result<()> {
    for (kind, seen) in kinds().iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let run = Run { cluster: started(&[kind.controller]).await?, kind };
        run.node().await?;
        run.owner("a").await?;
        run.until("it has its Pod", &[("a", "a")]).await?;
        let held = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/held"]}}));
        run.owners().patch("a", &held).await?;
        sleep(MINUTE).await; // the time in which it is seen, in simulated time
        if !seen {
            run.cluster.faults().hold_events(kind.of.2);
        }
        run.owners().delete("a", None).await?;
        sleep(Duration::from_secs(5)).await; // the time in which it could be seen, in simulated time
        run.orphan("orphan", "a").await?;
        run.until("it adopts nothing", &[("a", ""), ("a", "a")]).await?;
        run.cluster.faults().let_events_come(kind.of.2);
        run.until("it adopts nothing", &[("a", ""), ("a", "a")]).await?;
        run.cluster.take::<Pod>("default", &run.pod_of("a").await?).await?;
        run.until("it makes nothing", &[("a", "")]).await?;
        run.cluster.stop().await;
    }
    Ok(())
}

/// The ReplicaSets and how many replicas each wants: label, controller.
async fn sets(cluster: &Cluster) -> Result<(Vec<(String, String)>, i32)> {
    let mut all = Vec::new();
    let mut replicas = 0;
    for set in cluster.list::<ReplicaSet>("default").await? {
        let label = set.metadata.labels.and_then(|mut l| l.remove("app")).unwrap_or_default();
        let owner = set.metadata.owner_references.into_iter().flatten().find(|o| o.controller == Some(true));
        if owner.is_some() {
            replicas += set.spec.and_then(|s| s.replicas).unwrap_or(1);
        }
        all.push((label, owner.map(|o| o.name).unwrap_or_default()));
    }
    all.sort();
    Ok((all, replicas))
}

/// The changes of upstream's `TestAddReplicaSet`, `TestAddReplicaSetOrphan`, `TestUpdateReplicaSet`,
/// `TestUpdateReplicaSetOrphanWithNewLabels`, `TestUpdateReplicaSetChangeControllerRef`, `TestUpdateReplicaSetRelease`,
/// `TestDeleteReplicaSet` and `TestDeleteReplicaSetOrphan`, with the sets of `TestGetReplicaSetsForDeployment`: Deployments
/// adopt ReplicaSets, let them go, and want one Pod each all the time.
#[tokio::test(start_paused = true)]
async fn replica_sets_change_hands() -> Result<()> {
    let controllers = [
        "deployment-controller",
        "replicaset-controller",
        "serviceaccount-controller",
        "node-lifecycle-controller",
    ];
    let (cluster, _fleet) = cluster_with(&controllers, 1, &Shape::default()).await?;
    for name in ["a", "b"] {
        cluster.create::<k8s_openapi::api::apps::v1::Deployment>(&deployment(name, 1, "1")).await?;
    }
    let until = async |step: &str, wanted: &[(&str, &str)]| {
        let is = async || {
            let (all, replicas) = sets(&cluster).await?;
            Ok(replicas == 2 && all.iter().map(|s| (s.0.as_str(), s.1.as_str())).eq(wanted.iter().copied()))
        };
        eventually(step, 10 * MINUTE, is).await.with_context(|| format!("wanted {wanted:?}"))?;
        sleep(MINUTE).await; // in which nothing else may happen, in simulated time
        ensure!(is().await?, "{step}: it does not stay so: {:?}", sets(&cluster).await?);
        anyhow::Ok(())
    };
    let api = cluster.admin().api::<ReplicaSet>("default");
    let of = async |owner: &str| -> Result<ReplicaSet> {
        let all = cluster.list::<ReplicaSet>("default").await?.into_iter();
        let is = |s: &ReplicaSet| s.metadata.owner_references.iter().flatten().any(|o| o.name == owner);
        all.filter(is).find(|s| s.spec.as_ref().and_then(|s| s.replicas) == Some(1)).context("no set")
    };
    let name = |set: &ReplicaSet| set.metadata.name.clone().unwrap_or_default();
    let one_each = [("a", "a"), ("b", "b")];
    until("each has its set", &one_each).await?;
    cluster.take::<ReplicaSet>("default", &name(&of("a").await?)).await?;
    until("a set that is deleted is replaced", &one_each).await?;
    let free = name(&of("a").await?);
    let label = |label: &str| Patch::Merge(json!({"metadata": {"labels": {"app": label}}}));
    api.patch(&free, &label("x")).await?;
    until("a set that is not selected is let go", &[("a", "a"), ("b", "b"), ("x", "")]).await?;
    api.patch(&free, &label("a")).await?;
    until("it is adopted again", &[("a", "a"), ("a", "a"), ("b", "b")]).await?;
    let theirs = of("b").await?.metadata.owner_references;
    api.patch(&free, &Patch::Merge(json!({"metadata": {"ownerReferences": theirs}}))).await?;
    until("a set that somebody gave to another comes back", &[("a", "a"), ("a", "a"), ("b", "b")]).await?;
    api.patch(&free, &Patch::Merge(json!({"metadata": {"ownerReferences": null}}))).await?;
    until("a set that lost its owner is adopted", &[("a", "a"), ("a", "a"), ("b", "b")]).await?;
    api.patch(&free, &label("x")).await?;
    until("it is let go", &[("a", "a"), ("b", "b"), ("x", "")]).await?;
    let before = cluster.faults().controller_writes();
    cluster.take::<ReplicaSet>("default", &free).await?;
    until("it goes", &one_each).await?;
    ensure!(cluster.faults().controller_writes() == before, "it was nobody's");
    cluster.stop().await;
    Ok(())
}

/// Upstream's case of `TestSyncDeploymentDeletionRace`: a Deployment that goes adopts nothing, though its controller has not
/// seen it.
#[tokio::test(start_paused = true)]
async fn a_deployment_that_goes_adopts_nothing() -> Result<()> {
    let cluster = started(&["deployment-controller"]).await?;
    let mut web = deployment("a", 1, "1");
    web["metadata"]["finalizers"] = json!(["example.com/held"]);
    cluster.create::<Deployment>(&web).await?;
    eventually("it has its set", MINUTE, async || Ok(sets(&cluster).await?.0.len() == 1)).await?;
    sleep(MINUTE).await; // in which it settles, in simulated time
    cluster.faults().hold_events("deployments");
    cluster.admin().api::<Deployment>("default").delete("a", None).await?;
    let labels = json!({"app": "a", "more": "x"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let orphan = json!({"metadata": {"name": "orphan", "namespace": "default", "labels": labels},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}});
    cluster.create::<ReplicaSet>(&orphan).await?;
    let owned = async || {
        let set = cluster.get::<ReplicaSet>("default", "orphan").await?.unwrap_or_default();
        anyhow::Ok(set.metadata.owner_references.is_some_and(|all| !all.is_empty()))
    };
    sleep(MINUTE).await; // in which nothing may happen, in simulated time
    ensure!(!owned().await?, "it is adopted");
    cluster.faults().let_events_come("deployments");
    sleep(MINUTE).await; // in which nothing may happen, in simulated time
    ensure!(!owned().await?, "it is adopted");
    cluster.stop().await;
    Ok(())
}

/// The number, the name, and the controller's name of each revision.
async fn revisions(cluster: &Cluster) -> Result<Vec<(i64, String, String)>> {
    let mut all = Vec::new();
    for revision in cluster.list::<ControllerRevision>("default").await? {
        let meta = revision.metadata;
        let owner = meta.owner_references.into_iter().flatten().find(|o| o.controller == Some(true));
        all.push((
            revision.revision,
            meta.name.unwrap_or_default(),
            owner.map(|o| o.name).unwrap_or_default(),
        ));
    }
    all.sort();
    Ok(all)
}

/// The cases of upstream's `TestRealHistory_ListControllerRevisions`, `TestRealHistory_CreateControllerRevision`,
/// `TestRealHistory_UpdateControllerRevision`, `TestRealHistory_DeleteControllerRevision` and
/// `TestRealHistory_AdoptControllerRevision` that a set's history meets: a name that another revision has, a revision that
/// is adopted, numbered anew, and removed.
#[tokio::test(start_paused = true)]
async fn revisions_change_hands() -> Result<()> {
    let cluster = started(&["statefulset-controller"]).await?;
    let labels = json!({"app": "a"});
    let set = |image: &str| {
        json!({"metadata": {"name": "a", "namespace": "default"}, "spec": {"replicas": 0, "serviceName": "a",
            "revisionHistoryLimit": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": image}]}}}})
    };
    let state = async || revisions(&cluster).await;
    let until = async |what: &str, wanted: &[(i64, &str, &str)]| {
        let is = async || {
            let all = state().await?;
            Ok(all
                .iter()
                .map(|(n, name, owner)| (*n, name.as_str(), owner.as_str()))
                .eq(wanted.iter().copied()))
        };
        let done = eventually(what, 10 * MINUTE, is).await;
        done.with_context(|| format!("wanted {wanted:?}"))?;
        sleep(MINUTE).await; // in which nothing else may happen, in simulated time
        let now = state().await?;
        ensure!(is().await?, "{what}: it does not stay so: {now:?}");
        anyhow::Ok(())
    };
    cluster.create::<StatefulSet>(&set("i")).await?;
    eventually("it has a revision", MINUTE, async || Ok(state().await?.len() == 1)).await?;
    let first = state().await?[0].1.clone();
    cluster.take::<StatefulSet>("default", "a").await?;
    cluster.take::<ControllerRevision>("default", &first).await?;
    // Somebody else has the name.
    let other =
        json!({"metadata": {"name": first, "namespace": "default"}, "revision": 1, "data": {"spec": {}}});
    cluster.create::<ControllerRevision>(&other).await?;
    cluster.create::<StatefulSet>(&set("i")).await?;
    eventually("it has another name", MINUTE, async || Ok(state().await?.len() == 2)).await?;
    let own = |all: &[(i64, String, String)]| all.iter().find(|r| r.2 == "a").map(|r| r.1.clone());
    let second = own(&state().await?).context("a revision")?;
    let status = cluster.get::<StatefulSet>("default", "a").await?.and_then(|s| s.status).unwrap_or_default();
    eventually("it is counted", MINUTE, async || {
        let set = cluster.get::<StatefulSet>("default", "a").await?.unwrap_or_default();
        Ok(set.status.and_then(|s| s.collision_count) == Some(1))
    })
    .await
    .with_context(|| format!("{status:?}"))?;
    cluster.take::<ControllerRevision>("default", &first).await?;
    until("its own is left", &[(1, &second, "a")]).await?;
    let api = cluster.admin().api::<ControllerRevision>("default");
    let change = async |metadata: Value| -> Result<()> {
        api.patch(&second, &Patch::Merge(json!({ "metadata": metadata }))).await?;
        // A look at a set is a look at its revisions.
        let look = Patch::Merge(json!({"metadata": {"annotations": {"look": metadata.to_string()}}}));
        cluster.admin().api::<StatefulSet>("default").patch("a", &look).await?;
        Ok(())
    };
    let mine = api.get(&second).await?.metadata.owner_references;
    change(json!({"ownerReferences": null})).await?;
    until("it is adopted", &[(1, &second, "a")]).await?;
    // Another template, and the first one again.
    let image = async |image: &str| -> Result<()> {
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
        cluster.admin().api::<StatefulSet>("default").patch("a", &Patch::Strategic(patch)).await?;
        Ok(())
    };
    image("j").await?;
    eventually("it has two", MINUTE, async || Ok(state().await?.len() == 2)).await?;
    let all = state().await?;
    let third = all.iter().find(|r| r.1 != second).map(|r| r.1.clone()).context("a revision")?;
    until("two", &[(1, &second, "a"), (2, &third, "a")]).await?;
    image("i").await?;
    until("the first one is the newest", &[(2, &third, "a"), (3, &second, "a")]).await?;
    ensure!(mine.is_some_and(|all| all.len() == 1), "it had one owner");
    cluster.stop().await;
    Ok(())
}

/// The case of upstream's `TestRealHistory_ReleaseControllerRevision`: a DaemonSet lets a revision go that it does not select,
/// and makes no second one of its content.
#[tokio::test(start_paused = true)]
async fn revisions_are_let_go() -> Result<()> {
    let cluster = started(&["daemonset-controller"]).await?;
    let labels = json!({"app": "d"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let daemon = json!({"metadata": {"name": "d", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template}});
    cluster.create::<DaemonSet>(&daemon).await?;
    let of = async |name: &str| {
        let all = revisions(&cluster).await?.into_iter();
        anyhow::Ok(all.filter(|r| r.1.starts_with(name)).map(|r| (r.1, r.2)).collect::<Vec<_>>())
    };
    eventually("it has a revision", MINUTE, async || {
        Ok(of("d-").await?.iter().map(|r| r.1.as_str()).eq(["d"]))
    })
    .await?;
    let name = of("d-").await?.remove(0).0;
    let away = Patch::Merge(json!({"metadata": {"labels": {"app": "x"}}}));
    cluster.admin().api::<ControllerRevision>("default").patch(&name, &away).await?;
    let look = Patch::Merge(json!({"metadata": {"annotations": {"look": "again"}}}));
    cluster.admin().api::<DaemonSet>("default").patch("d", &look).await?;
    eventually("it is let go", MINUTE, async || Ok(of("d-").await? == [(name.clone(), String::new())]))
        .await?;
    cluster.stop().await;
    Ok(())
}
