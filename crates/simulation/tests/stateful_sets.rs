//! StatefulSets: their course, and what interrupts it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use api::Status;
use client::{Patch, Verb};
use ferrokube_simulation::{Cluster, Fault, Rule, Shape};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

use crate::common::{MINUTE, eventually, interrupted, merge, said};
use crate::workloads::{cluster, cluster_with, phase};

fn stateful_set(more: Value) -> Value {
    let labels = json!({"app": "web"});
    let mut set = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 3, "serviceName": "web", "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    merge(&mut set, &more);
    set
}

fn image(image: &str) -> Patch {
    Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}))
}

fn image_of(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    spec.and_then(|s| s.containers.first()?.image.as_deref()).unwrap_or_default()
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn run(all: &[Pod], names: &[&str], image: &str) -> bool {
    let wanted: BTreeSet<&str> = names.iter().copied().collect();
    all.iter().map(name).collect::<BTreeSet<_>>() == wanted
        && all
            .iter()
            .all(|p| phase(p) == "Running" && p.metadata.deletion_timestamp.is_none() && image_of(p) == image)
}

async fn until(cluster: &Cluster, names: &[&str], image: &str) -> Result<Duration> {
    cluster.until::<Pod>(5 * MINUTE, "default", |all| run(all, names, image)).await
}

async fn change(cluster: &Cluster, patch: &Patch) -> Result<StatefulSet> {
    Ok(cluster.admin().api::<StatefulSet>("default").patch("web", patch).await?)
}

async fn scale(cluster: &Cluster, replicas: i32) -> Result<StatefulSet> {
    change(cluster, &Patch::Merge(json!({"spec": {"replicas": replicas}}))).await
}

const ALL: [&str; 3] = ["web-0", "web-1", "web-2"];

#[tokio::test(start_paused = true)]
async fn a_set_comes_in_order_is_updated_rolled_back_and_goes() -> Result<()> {
    let (cluster, _fleet) = cluster(2, &Shape::default()).await?;
    cluster.create::<StatefulSet>(&stateful_set(json!({}))).await?;
    until(&cluster, &ALL, "i").await?;
    let mut pods = cluster.list::<Pod>("default").await?;
    pods.sort_by_key(|p| name(p).to_owned());
    let made: Vec<_> = pods.iter().map(|p| p.metadata.creation_timestamp.clone().unwrap().0).collect();
    assert!(made.is_sorted() && made[0] < made[2], "{made:?}");
    let first = &pods[0];
    let spec = first.spec.as_ref().unwrap();
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("web-0"), Some("web")));
    let status = async || {
        Ok::<_, anyhow::Error>(cluster.get::<StatefulSet>("default", "web").await?.unwrap().status.unwrap())
    };
    eventually("all are available", MINUTE, async || Ok(status().await?.available_replicas == Some(3)))
        .await?;
    let before = status().await?;
    assert_eq!(before.current_revision, before.update_revision);
    assert_eq!(
        first.metadata.labels.as_ref().unwrap().get("controller-revision-hash"),
        before.update_revision.as_ref()
    );

    change(&cluster, &image("j")).await?;
    until(&cluster, &ALL, "j").await?;
    eventually("the update is complete", MINUTE, async || {
        let now = status().await?;
        Ok(now.current_revision == now.update_revision && now.current_revision != before.current_revision)
    })
    .await?;
    let revisions = cluster.list::<ControllerRevision>("default").await?;
    assert_eq!(revisions.len(), 2);

    // The patch is that of `kubectl rollout undo`.
    let undo = revisions.iter().find(|r| r.metadata.name == before.current_revision).unwrap();
    change(&cluster, &Patch::Strategic(undo.data.clone().unwrap().0)).await?;
    until(&cluster, &ALL, "i").await?;
    eventually("the revision counts anew", MINUTE, async || {
        Ok(status().await?.current_revision == before.current_revision)
    })
    .await?;
    let all = cluster.list::<ControllerRevision>("default").await?;
    let number = |name: &Option<String>| all.iter().find(|r| r.metadata.name == *name).unwrap().revision;
    assert_eq!((all.len(), number(&before.current_revision)), (2, 3));

    cluster.admin().api::<StatefulSet>("default").delete("web", None).await?;
    cluster.until::<Pod>(5 * MINUTE, "default", <[Pod]>::is_empty).await?;
    cluster.until::<ControllerRevision>(5 * MINUTE, "default", <[ControllerRevision]>::is_empty).await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_partition_holds_an_update_and_a_broken_pod_holds_the_scale_down() -> Result<()> {
    let (cluster, _fleet) = cluster(2, &Shape::default()).await?;
    let partition = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}});
    cluster.create::<StatefulSet>(&stateful_set(partition)).await?;
    until(&cluster, &ALL, "i").await?;
    change(&cluster, &image("j")).await?;
    let images = |all: &[Pod]| {
        let mut all: Vec<_> = all.iter().map(|p| (name(p).to_owned(), image_of(p).to_owned())).collect();
        all.sort();
        all.into_iter().map(|(_, image)| image).collect::<Vec<_>>()
    };
    let held = |all: &[Pod]| images(all) == ["i", "i", "j"] && all.iter().all(|p| phase(p) == "Running");
    cluster.until::<Pod>(5 * MINUTE, "default", held).await?;
    // A Pod below the partition comes back as it was.
    cluster.take::<Pod>("default", "web-0").await?;
    cluster.until::<Pod>(5 * MINUTE, "default", |all| all.len() == 3 && held(all)).await?;

    // web-1 is broken: web-2 stays until web-1 is well again.
    let ready = |status: &str| {
        let conditions =
            json!([{"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        Patch::Strategic(json!({"status": {"conditions": conditions}}))
    };
    let pods = cluster.admin().api::<Pod>("default");
    pods.patch_status("web-1", &ready("False")).await?;
    let told = |ready: i32| {
        async move |cluster: &Cluster| {
            let status = cluster.get::<StatefulSet>("default", "web").await?.unwrap().status.unwrap();
            Ok::<_, anyhow::Error>(status.ready_replicas == Some(ready))
        }
    };
    eventually("the set knows", MINUTE, async || told(2)(&cluster).await).await?;
    scale(&cluster, 2).await?;
    eventually("the set has looked", MINUTE, async || {
        let set = cluster.get::<StatefulSet>("default", "web").await?.unwrap();
        Ok(set.status.unwrap().observed_generation == set.metadata.generation)
    })
    .await?;
    assert_eq!(cluster.list::<Pod>("default").await?.len(), 3, "web-1 is to stay, and comes first");
    pods.patch_status("web-1", &ready("True")).await?;
    cluster.until::<Pod>(5 * MINUTE, "default", |all| all.len() == 2).await?;
    cluster.stop().await;
    Ok(())
}

fn with_claims(policy: (&str, &str)) -> Value {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let (deleted, scaled) = policy;
    stateful_set(
        json!({"spec": {"replicas": 2, "podManagementPolicy": "Parallel", "volumeClaimTemplates": [claim],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled}}}),
    )
}

/// Pods wait for their claims here, since nobody makes volumes: what the controller does needs none to run.
#[tokio::test(start_paused = true)]
async fn claims_go_as_their_policy_says() -> Result<()> {
    for (deleted, scaled) in
        [("Retain", "Retain"), ("Delete", "Retain"), ("Retain", "Delete"), ("Delete", "Delete")]
    {
        let (cluster, _fleet) = cluster(1, &Shape::default()).await?;
        cluster.create::<StatefulSet>(&with_claims((deleted, scaled))).await?;
        let owners = |all: &[PersistentVolumeClaim]| {
            all.iter()
                .flat_map(|c| c.metadata.owner_references.iter().flatten())
                .map(|r| r.kind.clone())
                .collect::<Vec<_>>()
        };
        let wanted = if deleted == "Delete" { vec!["StatefulSet"; 2] } else { Vec::new() };
        cluster
            .until::<PersistentVolumeClaim>(MINUTE, "default", |all| all.len() == 2 && owners(all) == wanted)
            .await?;
        cluster.until::<Pod>(MINUTE, "default", |all| all.len() == 2).await?;
        // A claim that somebody deletes is made anew for a Pod that waits for it.
        let claims = cluster.admin().api::<PersistentVolumeClaim>("default");
        let uid = claims.get("data-web-1").await?.metadata.uid;
        claims.patch("data-web-1", &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await?;
        claims.delete("data-web-1", None).await?;
        cluster
            .until::<PersistentVolumeClaim>(5 * MINUTE, "default", |all| {
                all.len() == 2 && all.iter().all(|c| c.metadata.uid != uid)
            })
            .await?;
        scale(&cluster, 1).await?;
        let kept = if scaled == "Delete" { 1 } else { 2 };
        cluster.until::<Pod>(5 * MINUTE, "default", |all| all.len() == 1).await?;
        cluster.until::<PersistentVolumeClaim>(5 * MINUTE, "default", |all| all.len() == kept).await?;
        cluster.admin().api::<StatefulSet>("default").delete("web", None).await?;
        cluster.until::<Pod>(5 * MINUTE, "default", <[Pod]>::is_empty).await?;
        let kept = if deleted == "Delete" { 0 } else { kept };
        cluster.until::<PersistentVolumeClaim>(5 * MINUTE, "default", |all| all.len() == kept).await?;
        cluster.stop().await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pods_are_adopted_and_released() -> Result<()> {
    let (cluster, _fleet) = cluster(1, &Shape::default()).await?;
    cluster.create::<StatefulSet>(&stateful_set(json!({"spec": {"replicas": 1}}))).await?;
    until(&cluster, &["web-0"], "i").await?;
    let pods = cluster.admin().api::<Pod>("default");
    let owned = async || {
        let pod = pods.get("web-0").await?;
        Ok::<_, anyhow::Error>(pod.metadata.owner_references.is_some_and(|r| !r.is_empty()))
    };
    // An orphan of the set's is adopted.
    pods.patch("web-0", &Patch::Merge(json!({"metadata": {"ownerReferences": null}}))).await?;
    eventually("the Pod is adopted", MINUTE, owned).await?;
    // One that its selector does not choose is let go, and holds the name.
    pods.patch("web-0", &Patch::Merge(json!({"metadata": {"labels": {"app": "other"}}}))).await?;
    eventually("the Pod is released", MINUTE, async || Ok(!owned().await?)).await?;
    pods.patch("web-0", &Patch::Merge(json!({"metadata": {"labels": {"app": "web"}}}))).await?;
    eventually("the Pod is adopted again", MINUTE, owned).await?;
    // A Pod that only looks like one of the set's is none.
    let stranger = crate::common::pod("web-00", json!({"metadata": {"labels": {"app": "web"}}}));
    cluster.create::<Pod>(&stranger).await?;
    // The set looks again, and still wants one Pod.
    change(&cluster, &Patch::Merge(json!({"spec": {"minReadySeconds": 1}}))).await?;
    eventually("the set has looked", MINUTE, async || {
        let set = cluster.get::<StatefulSet>("default", "web").await?.unwrap();
        Ok(set.status.unwrap().observed_generation == set.metadata.generation)
    })
    .await?;
    assert!(pods.get("web-00").await?.metadata.owner_references.is_none());
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn events_tell_what_is_done() -> Result<()> {
    let (cluster, _fleet) = cluster(1, &Shape::default()).await?;
    cluster.create::<StatefulSet>(&stateful_set(json!({"spec": {"replicas": 1}}))).await?;
    until(&cluster, &["web-0"], "i").await?;
    said(&cluster, "SuccessfulCreate").await?;
    let refused = Status::failure(403, "Forbidden", "exceeded quota");
    let rule = Rule::new(Fault::Refuse(refused)).verb(Verb::Create).resource("pods").subresource("");
    cluster.faults().add(rule.times(1));
    scale(&cluster, 2).await?;
    until(&cluster, &["web-0", "web-1"], "i").await?;
    said(&cluster, "FailedCreate").await?;
    scale(&cluster, 0).await?;
    said(&cluster, "SuccessfulDelete").await?;
    let events = cluster.list::<k8s_openapi::api::core::v1::Event>("default").await?;
    let texts: Vec<_> = events.iter().filter_map(|e| e.message.as_deref()).collect();
    for text in [
        "Create Pod web-0 in StatefulSet web successful",
        "Create Pod web-1 in StatefulSet web failed error: exceeded quota",
        "Delete Pod web-1 in StatefulSet web successful",
    ] {
        assert!(texts.contains(&text), "{text} in {texts:?}");
    }
    cluster.stop().await;
    Ok(())
}

/// A StatefulSet of one Pod with a claim, and the Events about it.
struct Told(Cluster);

type Said = (&'static str, &'static str, String);

impl Told {
    async fn start() -> Result<Self> {
        let cluster = crate::common::started(&["statefulset-controller"]).await?;
        let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}});
        let set = stateful_set(json!({"spec": {"replicas": 0, "volumeClaimTemplates": [claim]}}));
        cluster.create::<StatefulSet>(&set).await?;
        Ok(Self(cluster))
    }

    /// Gives the set another size, and lets time pass. The Events until then.
    async fn size(&self, replicas: i32) -> Result<Vec<(String, String, String)>> {
        self.0.faults().record();
        scale(&self.0, replicas).await?;
        self.events().await
    }

    /// Lets time pass; the Events since they are recorded.
    async fn events(&self) -> Result<Vec<(String, String, String)>> {
        tokio::time::sleep(MINUTE).await; // the time in which all of it is done, in simulated time
        let calls = self.0.faults().seen();
        let made = calls.iter().filter(|c| c.resource.plural == "events" && c.verb == Verb::Create);
        let events = made.filter_map(|c| serde_json::from_slice::<Value>(&c.body).ok());
        let text = |e: &Value, field: &str| e[field].as_str().unwrap_or_default().to_owned();
        Ok(events.map(|e| (text(&e, "type"), text(&e, "reason"), text(&e, "message"))).collect())
    }

    fn fails(&self, verb: Verb, plural: &str, status: Status) {
        let rule = Rule::new(Fault::Refuse(status)).resource(plural).subresource("").verb(verb);
        self.0.faults().add(rule.times(1));
    }
}

/// Upstream's cases of `TestStatefulPodControlCreatesPods`, `TestStatefulPodControlCreatePodExists`,
/// `TestStatefulPodControlCreatePodPvcCreateFailure`, `TestStatefulPodControlCreatePodPVCDeleting`,
/// `TestStatefulPodControlCreatePodFailed`, `TestStatefulPodControlUpdateIdentityFailure`,
/// `TestStatefulPodControlUpdatePodConflictSuccess`, `TestStatefulPodControlDeletesStatefulPod`,
/// `TestStatefulPodControlDeleteStatefulPodNotFound` and `TestStatefulPodControlDeleteFailure`: a write that fails once, and
/// the Events until it is done.
#[tokio::test(start_paused = true)]
async fn events_of_each_failure() -> Result<()> {
    let down = || Status::internal("API server down");
    let why = "Internal error occurred: API server down";
    let pod = |verb: &str, reason: &'static str| -> Said {
        ("Normal", reason, format!("{verb} Pod web-0 in StatefulSet web successful"))
    };
    let failed = |verb: &str, reason: &'static str, why: &str| -> Said {
        ("Warning", reason, format!("{verb} Pod web-0 in StatefulSet web failed error: {why}"))
    };
    let claimed = || -> Said {
        (
            "Normal",
            "SuccessfulCreate",
            "Create Claim data-web-0 Pod web-0 in StatefulSet web success".to_owned(),
        )
    };
    let created = || pod("Create", "SuccessfulCreate");
    let check = |got: Vec<(String, String, String)>, wanted: &[Said]| {
        let got: Vec<_> = got.iter().map(|(k, r, m)| (k.as_str(), r.as_str(), m.clone())).collect();
        assert_eq!(got, wanted);
    };
    let told = Told::start().await?;
    check(told.size(1).await?, &[claimed(), created()]);
    check(told.size(0).await?, &[pod("Delete", "SuccessfulDelete")]);
    // A claim that cannot be made, and a Pod.
    let told = Told::start().await?;
    told.fails(Verb::Create, "persistentvolumeclaims", down());
    let text = format!("Create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: {why}");
    let of_pod = failed("Create", "FailedCreate", &format!("failed to create PVC data-web-0: {why}"));
    check(told.size(1).await?, &[("Warning", "FailedCreate", text), of_pod, claimed(), created()]);
    let told = Told::start().await?;
    told.fails(Verb::Create, "pods", down());
    check(told.size(1).await?, &[claimed(), failed("Create", "FailedCreate", why), created()]);
    let told = Told::start().await?;
    told.fails(Verb::Create, "pods", Status::failure(409, "AlreadyExists", "pods \"web-0\" already exists"));
    check(told.size(1).await?, &[claimed(), created()]);
    // A claim that is being deleted.
    let claims = told.0.admin().api::<PersistentVolumeClaim>("default");
    told.size(0).await?;
    let held = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/held"]}}));
    claims.patch("data-web-0", &held).await?;
    claims.delete("data-web-0", None).await?;
    let said = told.size(1).await?;
    let wanted = failed("Create", "FailedCreate", "pvc data-web-0 is being deleted");
    assert!(said.iter().any(|e| e.2 == wanted.2), "{said:?}");
    assert!(said.iter().all(|e| e.1 == "FailedCreate"), "{said:?}");
    // A deletion that fails, and one of a Pod that is gone.
    let told = Told::start().await?;
    told.size(1).await?;
    told.fails(Verb::Delete, "pods", down());
    check(told.size(0).await?, &[failed("Delete", "FailedDelete", why), pod("Delete", "SuccessfulDelete")]);
    let told = Told::start().await?;
    told.size(1).await?;
    told.fails(Verb::Delete, "pods", Status::failure(404, "NotFound", "pods \"web-0\" not found"));
    check(told.size(0).await?, &[pod("Delete", "SuccessfulDelete")]);
    // An identity that is mended, at once and not.
    for status in [down(), Status::conflict("", "pods", "web-0", "it has been changed meanwhile")] {
        let told = Told::start().await?;
        told.size(1).await?;
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let ready = Patch::Merge(json!({ "status": ready }));
        told.0.admin().api::<Pod>("default").patch_status("web-0", &ready).await?;
        told.events().await?;
        let text = status.message.clone();
        told.fails(Verb::StrategicPatch, "pods", status);
        told.0.faults().record();
        let lost =
            Patch::Merge(json!({"metadata": {"labels": {"statefulset.kubernetes.io/pod-name": null}}}));
        told.0.admin().api::<Pod>("default").patch("web-0", &lost).await?;
        let updated = pod("Update", "SuccessfulUpdate");
        check(told.events().await?, &[failed("Update", "FailedUpdate", &text), updated]);
    }
    Ok(())
}

/// The controller loses the answer to each of its first writes in turn, and starts with what the server has: no Pod is
/// made twice, none is lost, and nothing is left behind.
#[tokio::test(start_paused = true)]
async fn lost_answers_do_no_harm() -> Result<()> {
    for parallel in [false, true] {
        let policy = if parallel { "Parallel" } else { "OrderedReady" };
        for verb in [Verb::Create, Verb::Delete, Verb::Update] {
            let (cluster, _fleet) = cluster(1, &Shape::default()).await?;
            let gone = || Status::failure(504, "Timeout", "the answer is lost");
            for resource in ["pods", "controllerrevisions", "statefulsets"] {
                for skip in 0..4 {
                    let rule = Rule::new(Fault::Lose(gone())).verb(verb).resource(resource);
                    cluster.faults().add(rule.skip(skip).times(1));
                }
            }
            cluster
                .create::<StatefulSet>(&stateful_set(json!({"spec": {"podManagementPolicy": policy}})))
                .await?;
            until(&cluster, &ALL, "i").await?;
            change(&cluster, &image("j")).await?;
            until(&cluster, &ALL, "j").await?;
            scale(&cluster, 1).await?;
            until(&cluster, &["web-0"], "j").await?;
            assert_eq!(cluster.list::<ControllerRevision>("default").await?.len(), 2);
            cluster.stop().await;
        }
    }
    Ok(())
}

/// The controller ends at each of its writes in turn, and another one begins.
#[tokio::test(start_paused = true)]
async fn an_end_between_two_actions_does_no_harm() -> Result<()> {
    let all = [
        (Verb::Create, "pods", "", 5),
        (Verb::Create, "controllerrevisions", "", 2),
        (Verb::Update, "statefulsets", "status", 4),
        (Verb::Delete, "pods", "", 1),
    ];
    let others = ["*", "-statefulset-controller"];
    for (verb, resource, subresource, count) in all {
        for skip in 0..count {
            let (cluster, _fleet) = cluster_with(&others, 2, &Shape::default()).await?;
            let at = (verb, resource, subresource, skip);
            interrupted(&cluster, "statefulset-controller", at, async |cluster| {
                cluster.create::<StatefulSet>(&stateful_set(json!({}))).await?;
                let made = |all: &[Pod]| all.len() == 3;
                let _ = cluster.until::<Pod>(MINUTE, "default", made).await;
                change(cluster, &image("j")).await.map(drop)
            })
            .await?;
            until(&cluster, &ALL, "j").await?;
            let revisions = cluster.list::<ControllerRevision>("default").await?;
            assert!(revisions.len() <= 2, "{at:?}: {} revisions", revisions.len());
            cluster.stop().await;
        }
    }
    Ok(())
}
