//! Claims that wait for a Pod: the scheduler chooses their volumes, and a controller, played here by the administrator,
//! binds them.

use std::time::Duration;

use anyhow::{Context, Result};
use api::Status;
use client::Patch;
use ferrokube_simulation::{Cluster, Fault, Gate, Rule};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::common::{MINUTE, bare, condition, eventually, merge, pod};

/// Longer than any back-off, any wait, and the time that claims have.
const LONG: Duration = Duration::from_mins(20);
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

struct Run(Cluster);

/// A Pod that uses claims, on nodes that are not ready.
fn with_claims(name: &str, claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    let tolerations = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
    pod(name, json!({"spec": {"volumes": volumes, "tolerations": tolerations}}))
}

impl Run {
    /// Nodes `n1` and `n2`, the class `static` whose volumes nobody provisions, and `made`.
    async fn start() -> Result<Self> {
        let cluster = bare().await?;
        for name in ["n1", "n2"] {
            let room = json!({"cpu": "4", "pods": "400"});
            let node = json!({
                "metadata": {"name": name, "labels": {"host": name}},
                "status": {"allocatable": room, "capacity": room},
            });
            cluster.put::<Node>(&node).await?;
        }
        for (name, provisioner) in [("static", "kubernetes.io/no-provisioner"), ("made", "example.com/p")] {
            let class = json!({
                "metadata": {"name": name}, "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            });
            cluster.create::<StorageClass>(&class).await?;
        }
        Ok(Self(cluster))
    }

    async fn volume(&self, name: &str, size: &str, node: &str) -> Result<()> {
        let term = json!({"matchExpressions": [{"key": "host", "operator": "In", "values": [node]}]});
        let volume = json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "static",
                "hostPath": {"path": "/data"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
            "status": {"phase": "Available"},
        });
        self.0.put::<PersistentVolume>(&volume).await.map(drop)
    }

    async fn claim(&self, name: &str, size: &str, class: &str) -> Result<()> {
        let claim = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": size}},
            },
        });
        self.0.create::<PersistentVolumeClaim>(&claim).await.map(drop)
    }

    async fn pod(&self, name: &str, claims: &[&str]) -> Result<()> {
        self.0.create::<Pod>(&with_claims(name, claims)).await.map(drop)
    }

    /// The claim that a volume names.
    async fn owner(&self, volume: &str) -> Result<Option<String>> {
        let volume = self.0.get::<PersistentVolume>("", volume).await?;
        Ok(volume.and_then(|v| v.spec?.claim_ref?.name))
    }

    /// Waits until a volume names its claim.
    async fn chosen(&self, volume: &str) -> Result<String> {
        let mut owner = None;
        eventually(&format!("{volume} has an owner"), LONG, async || {
            owner = self.owner(volume).await?;
            Ok(owner.is_some())
        })
        .await?;
        owner.context("an owner")
    }

    async fn annotation(&self, claim: &str) -> Result<Option<String>> {
        let claim = self.0.get::<PersistentVolumeClaim>("default", claim).await?;
        Ok(claim.and_then(|c| c.metadata.annotations?.remove(SELECTED_NODE)))
    }

    /// Waits until a node is chosen for a claim.
    async fn selected(&self, claim: &str) -> Result<String> {
        let mut node = None;
        eventually(&format!("a node for {claim}"), LONG, async || {
            node = self.annotation(claim).await?;
            Ok(node.is_some())
        })
        .await?;
        node.context("a node")
    }

    /// Binds a claim to a volume, as the controller of volumes does.
    async fn bind(&self, claim: &str, volume: &str) -> Result<()> {
        let done = json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume},
        });
        let claims = self.0.admin().api::<PersistentVolumeClaim>("default");
        claims.patch(claim, &Patch::Merge(done)).await?;
        Ok(())
    }

    async fn node_of(&self, pod: &str) -> Result<Option<String>> {
        Ok(self.0.get::<Pod>("default", pod).await?.and_then(|p| p.spec?.node_name))
    }

    /// Waits until a Pod has a node.
    async fn bound(&self, pod: &str) -> Result<String> {
        let mut node = None;
        eventually(&format!("{pod} has a node"), LONG, async || {
            node = self.node_of(pod).await?;
            Ok(node.is_some())
        })
        .await?;
        node.context("a node")
    }

    /// Waits until `PodScheduled` says this.
    async fn says(&self, pod: &str, reason: &str, part: &str) -> Result<()> {
        eventually(&format!("{pod}: {part}"), LONG, async || {
            let pod = self.0.get::<Pod>("default", pod).await?;
            Ok(pod.as_ref().and_then(|p| condition(p, "PodScheduled")).is_some_and(|c| {
                c.reason.as_deref() == Some(reason) && c.message.as_deref().is_some_and(|m| m.contains(part))
            }))
        })
        .await
    }

    /// Holds the scheduler's next write of such an object.
    fn hold(&self, plural: &str) -> Gate {
        self.0.faults().hold(|fault| Rule::new(fault).writes().resource(plural))
    }
}

fn down() -> Result<(), Status> {
    Err(Status::failure(500, "InternalError", "down"))
}

#[tokio::test(start_paused = true)]
async fn a_pod_goes_where_its_volumes_are() -> Result<()> {
    let run = Run::start().await?;
    run.volume("small", "1Gi", "n2").await?;
    run.volume("large", "9Gi", "n2").await?;
    run.volume("elsewhere", "1Gi", "n1").await?;
    run.claim("a", "5Gi", "static").await?;
    run.claim("b", "1Gi", "static").await?;
    run.0.scheduler();
    run.pod("p", &["a", "b"]).await?;
    assert_eq!(run.chosen("large").await?, "a");
    assert_eq!(run.chosen("small").await?, "b", "the smallest that will do");
    let volume = run.0.get::<PersistentVolume>("", "large").await?.context("the volume")?;
    let by = volume.metadata.annotations.unwrap_or_default();
    assert_eq!(by.get("pv.kubernetes.io/bound-by-controller").map(String::as_str), Some("yes"));
    let claim = run.0.get::<PersistentVolumeClaim>("default", "a").await?.context("the claim")?;
    assert_eq!(volume.spec.and_then(|s| s.claim_ref?.uid), claim.metadata.uid);
    run.bind("a", "large").await?;
    sleep(MINUTE).await;
    assert_eq!(run.node_of("p").await?, None, "it waits for both");
    run.bind("b", "small").await?;
    assert_eq!(run.bound("p").await?, "n2");
    assert_eq!(run.owner("elsewhere").await?, None);
    // Bound claims lead to the same node.
    run.pod("q", &["a"]).await?;
    assert_eq!(run.bound("q").await?, "n2");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn two_pods_do_not_get_one_volume() -> Result<()> {
    let run = Run::start().await?;
    run.volume("one", "1Gi", "n1").await?;
    run.claim("a", "1Gi", "static").await?;
    run.claim("b", "1Gi", "static").await?;
    // Neither is written before both are decided.
    let first = run.hold("persistentvolumes");
    run.pod("pa", &["a"]).await?;
    run.pod("pb", &["b"]).await?;
    run.0.scheduler();
    let no = "2 node(s) didn't find available persistent volumes to bind";
    let loser = tokio::select! {
        said = run.says("pa", "Unschedulable", no) => said.map(|()| "b"),
        said = run.says("pb", "Unschedulable", no) => said.map(|()| "a"),
    }?;
    let (winner, loser) = if loser == "a" { ("a", "b") } else { ("b", "a") };
    first.open(Ok(()));
    assert_eq!(run.chosen("one").await?, winner);
    run.bind(winner, "one").await?;
    assert_eq!(run.bound(&format!("p{winner}")).await?, "n1");
    run.volume("two", "1Gi", "n2").await?;
    assert_eq!(run.chosen("two").await?, loser);
    run.bind(loser, "two").await?;
    assert_eq!(run.bound(&format!("p{loser}")).await?, "n2");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_tried_again_with_what_is_there_then() -> Result<()> {
    let run = Run::start().await?;
    run.volume("one", "1Gi", "n1").await?;
    run.claim("a", "1Gi", "static").await?;
    run.claim("b", "1Gi", "static").await?;
    let first = run.hold("persistentvolumes");
    run.0.scheduler();
    run.pod("p", &["a"]).await?;
    sleep(MINUTE).await;
    first.open(down());
    run.says("p", "SchedulerError", "running PreBind plugin \"VolumeBinding\": down").await?;
    assert_eq!(run.chosen("one").await?, "a");
    // Somebody takes the volume between the choice and the write.
    run.volume("two", "1Gi", "n1").await?;
    let second = run.hold("persistentvolumes");
    run.pod("q", &["b"]).await?;
    sleep(MINUTE).await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"changed": "meanwhile"}}}));
    run.0.admin().api::<PersistentVolume>("").patch("two", &labels).await?;
    second.open(Ok(()));
    run.says("q", "SchedulerError", "the object has been modified").await?;
    assert_eq!(run.chosen("two").await?, "b");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn volumes_are_provisioned_for_the_node() -> Result<()> {
    let run = Run::start().await?;
    run.claim("a", "1Gi", "made").await?;
    run.0.scheduler();
    run.pod("p", &["a"]).await?;
    let node = run.selected("a").await?;
    // The provisioner cannot do it there.
    let none = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: null}}}));
    run.0.admin().api::<PersistentVolumeClaim>("default").patch("a", &none).await?;
    let why = "running PreBind plugin \"VolumeBinding\": binding volumes: ";
    run.says("p", "SchedulerError", why).await?;
    let again = run.selected("a").await?;
    run.volume("v", "1Gi", &again).await?;
    run.bind("a", "v").await?;
    assert_eq!(run.bound("p").await?, again, "it was {node} before");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn claims_have_ten_minutes() -> Result<()> {
    let run = Run::start().await?;
    run.volume("one", "1Gi", "n1").await?;
    run.claim("a", "1Gi", "static").await?;
    run.0.scheduler();
    run.pod("p", &["a"]).await?;
    run.chosen("one").await?;
    let start = Instant::now();
    let why = "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    run.says("p", "SchedulerError", why).await?;
    let waited = start.elapsed();
    assert!(waited > Duration::from_mins(9) && waited < Duration::from_mins(11), "{waited:?}");
    run.bind("a", "one").await?;
    assert_eq!(run.bound("p").await?, "n1");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_does_not_go_on_waiting() -> Result<()> {
    let run = Run::start().await?;
    run.claim("a", "1Gi", "made").await?;
    run.0.scheduler();
    let mut all = with_claims("p", &["a"]);
    let cpus = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]);
    merge(&mut all, &json!({"spec": {"containers": cpus}}));
    run.0.create::<Pod>(&all).await?;
    let node = run.selected("a").await?;
    run.0.take::<Pod>("default", "p").await?;
    // The node's room is free for the next, and so is the claim.
    let mut next = all;
    merge(&mut next, &json!({"metadata": {"name": "q"}}));
    run.0.create::<Pod>(&next).await?;
    run.volume("v", "1Gi", &node).await?;
    run.bind("a", "v").await?;
    assert_eq!(run.bound("q").await?, node);
    Ok(())
}

/// As many bindings may be under way as there are places; Pods that wait for their claims hold none.
#[tokio::test(start_paused = true)]
async fn pods_that_wait_hold_up_nobody() -> Result<()> {
    let run = Run::start().await?;
    run.claim("a", "1Gi", "made").await?;
    for i in 0..300 {
        run.pod(&format!("waits-{i}"), &["a"]).await?;
    }
    run.0.scheduler();
    let node = run.selected("a").await?;
    run.pod("plain", &[]).await?;
    run.bound("plain").await?;
    run.volume("v", "1Gi", &node).await?;
    run.bind("a", "v").await?;
    let there = |p: &Pod| p.spec.as_ref().is_some_and(|s| s.node_name.is_some());
    run.0.until::<Pod>(LONG, "default", |all| all.len() == 301 && all.iter().all(there)).await?;
    Ok(())
}

/// The scheduler ends between the writes for two claims; the next one finds one of them done.
#[tokio::test(start_paused = true)]
async fn the_next_scheduler_goes_on() -> Result<()> {
    let run = Run::start().await?;
    for (name, node) in [("one-a", "n1"), ("one-b", "n1"), ("two-a", "n2"), ("two-b", "n2")] {
        run.volume(name, "1Gi", node).await?;
    }
    run.claim("a", "1Gi", "static").await?;
    run.claim("b", "1Gi", "static").await?;
    let stop = run.0.shutdown().child();
    let hang = Rule::new(Fault::Hang).writes().resource("persistentvolumes");
    run.0.faults().add(hang.skip(1));
    run.0.scheduler_until(&stop);
    run.pod("p", &["a", "b"]).await?;
    let owned = async || -> Result<Vec<String>> {
        let all = run.0.list::<PersistentVolume>("").await?;
        let owned = all.into_iter().filter(|v| v.spec.as_ref().is_some_and(|s| s.claim_ref.is_some()));
        Ok(owned.filter_map(|v| v.metadata.name).collect())
    };
    eventually("one volume is written", LONG, async || Ok(owned().await?.len() == 1)).await?;
    stop.stop();
    run.0.faults().clear();
    run.0.scheduler();
    eventually("both volumes are written", LONG, async || Ok(owned().await?.len() == 2)).await?;
    let chosen = owned().await?;
    let prefix = |name: &str| name.split('-').next().map(str::to_owned);
    assert_eq!(prefix(&chosen[0]), prefix(&chosen[1]), "on one node: {chosen:?}");
    for name in &chosen {
        let claim = run.owner(name).await?.context("an owner")?;
        run.bind(&claim, name).await?;
    }
    let expected = if chosen[0].starts_with("one") { "n1" } else { "n2" };
    assert_eq!(run.bound("p").await?, expected);
    Ok(())
}
