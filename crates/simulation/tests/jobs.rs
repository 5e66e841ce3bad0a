//! Jobs: Pods are counted once, and no index runs twice, whenever the controller ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use api::Status;
use client::{Patch, Verb};
use ferrokube_simulation::{Cluster, Fault, Rule};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::common::{MINUTE, bare, eventually, merge, said, started};
use crate::workloads::phase;

const CONTROLLER: &str = "job-controller";
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

fn job(name: &str, more: Value) -> Value {
    let mut job = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    merge(&mut job, &json!({ "spec": more }));
    job
}

fn index(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(INDEX).map(String::as_str)
}

fn of_job<'a>(pods: &'a [Pod], job: &str) -> Vec<&'a Pod> {
    let owner = |p: &Pod| p.metadata.owner_references.iter().flatten().any(|r| r.name == job);
    pods.iter().filter(|p| owner(p)).collect()
}

fn is_active(pod: &Pod) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed") && pod.metadata.deletion_timestamp.is_none()
}

fn holds(job: &Job, kind: &str) -> bool {
    let status = job.status.as_ref();
    status.is_some_and(|s| s.conditions.iter().flatten().any(|c| c.type_ == kind && c.status == "True"))
}

async fn get(cluster: &Cluster, name: &str) -> Result<Job> {
    cluster.get::<Job>("default", name).await?.ok_or_else(|| anyhow::anyhow!("no job {name}"))
}

/// Sets the phase of a Pod, with the exit code of its container.
async fn end(cluster: &Cluster, pod: &Pod, phase: &str, code: i32) -> Result<()> {
    let now = api::time::format(cluster.clock().now());
    let state = json!({"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}});
    let container =
        json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
    let status = json!({"status": {"phase": phase, "containerStatuses": [container]}});
    let name = pod.metadata.name.clone().unwrap_or_default();
    cluster.admin().api::<Pod>("default").patch_status(&name, &Patch::Strategic(status)).await?;
    Ok(())
}

/// Nodes, as far as Jobs need them: each Pod of a Job ends at the next look, and the first Pod of index 1, or the first
/// of all, fails.
#[derive(Default)]
struct Nodes {
    seen: BTreeSet<String>,
    failed: BTreeSet<String>,
    succeeded: usize,
}

impl Nodes {
    /// Lets Pods end that were there at the last look. No index may have two active ones.
    async fn look(&mut self, cluster: &Cluster, job: &str) -> Result<()> {
        let all = cluster.list::<Pod>("default").await?;
        let pods = of_job(&all, job);
        let mut active: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in pods.iter().filter(|p| is_active(p)) {
            let index = index(pod).unwrap_or_default();
            *active.entry(index).or_default() += 1;
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            if self.seen.insert(uid.clone()) {
                continue;
            }
            if self.failed.is_empty() && matches!(index, "" | "1") {
                self.failed.insert(uid);
                end(cluster, pod, "Failed", 1).await?;
            } else {
                self.succeeded += 1;
                end(cluster, pod, "Succeeded", 0).await?;
            }
        }
        ensure!(active.iter().all(|(i, n)| i.is_empty() || *n <= 1), "an index runs twice: {active:?}");
        ensure!(active.values().sum::<usize>() <= 3, "too many run: {active:?}");
        Ok(())
    }
}

/// The controller ends after each of its actions, answered or not, and another one goes on.
async fn goes_on(mode: &str, unanswered: bool) -> Result<()> {
    let cluster = bare().await?;
    for actions in 0..200 {
        let name = format!("j-{actions}");
        let stop = cluster.shutdown().child();
        if unanswered {
            let lost = Fault::Lose(Status::failure(500, "InternalError", "the connection is lost"));
            cluster.faults().add(Rule::new(lost).writes().skip(actions).times(1));
        }
        cluster.faults().add(Rule::new(Fault::Hang).writes().skip(actions));
        cluster.controllers_until(&stop, &[CONTROLLER], |_| {})?;
        let spec = json!({"completionMode": mode, "completions": 5, "parallelism": 3});
        cluster.create::<Job>(&job(&name, spec)).await?;
        let mut nodes = Nodes::default();
        let mut over = false;
        for _ in 0..60 {
            nodes.look(&cluster, &name).await?;
            tokio::time::sleep(Duration::from_secs(1)).await; // the pace of the nodes, in simulated time
            over = holds(&get(&cluster, &name).await?, "Complete");
            if over {
                break;
            }
        }
        stop.stop();
        cluster.faults().clear();
        let again = cluster.shutdown().child();
        cluster.controllers_until(&again, &[CONTROLLER], |_| {})?;
        eventually("the Job completes", 5 * MINUTE, async || {
            nodes.look(&cluster, &name).await?;
            tokio::time::sleep(Duration::from_secs(1)).await; // the pace of the nodes, in simulated time
            Ok(holds(&get(&cluster, &name).await?, "Complete"))
        })
        .await?;
        let status = get(&cluster, &name).await?.status.unwrap_or_default();
        let open = status.uncounted_terminated_pods.clone().unwrap_or_default();
        assert_eq!((status.succeeded, status.failed), (Some(5), Some(1)), "{mode} {actions} {status:?}");
        assert_eq!((open.succeeded.unwrap_or_default(), open.failed.unwrap_or_default()), (vec![], vec![]));
        assert_eq!((nodes.succeeded, nodes.failed.len()), (5, 1), "{mode} {actions}: one Pod for each");
        let all = cluster.list::<Pod>("default").await?;
        for pod in of_job(&all, &name) {
            let finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
            assert!(!finalizers.contains(&TRACKING.to_owned()), "{mode} {actions}: {pod:?}");
        }
        if mode == "Indexed" {
            assert_eq!(status.completed_indexes.as_deref(), Some("0-4"));
        }
        again.stop();
        for pod in of_job(&all, &name) {
            cluster.take::<Pod>("default", pod.metadata.name.as_deref().unwrap_or_default()).await?;
        }
        if over {
            assert!(actions > 10, "{actions} actions are too few for a test");
            return Ok(());
        }
    }
    anyhow::bail!("the Job takes too many actions")
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_goes_on_wherever_its_controller_ended() -> Result<()> {
    goes_on("Indexed", false).await?;
    goes_on("Indexed", true).await
}

#[tokio::test(start_paused = true)]
async fn a_job_goes_on_wherever_its_controller_ended() -> Result<()> {
    goes_on("NonIndexed", false).await?;
    goes_on("NonIndexed", true).await
}

/// The cache comes to show that a Pod's finalizer is gone while the next look at the Job is under way, which began with
/// the Pod as it was before.
#[tokio::test(start_paused = true)]
async fn a_pod_counts_once_while_the_cache_catches_up() -> Result<()> {
    let cluster = started(&[CONTROLLER]).await?;
    let faults = cluster.faults();
    cluster.create::<Job>(&job("j", json!({"parallelism": 2, "completions": 5}))).await?;
    let running = async || {
        let all = cluster.list::<Pod>("default").await?;
        anyhow::Ok(of_job(&all, "j").into_iter().filter(|p| is_active(p)).cloned().collect::<Vec<_>>())
    };
    eventually("two run", MINUTE, async || Ok(running().await?.len() == 2)).await?;
    let first = running().await?.remove(0);
    let patch = |fault: Fault, name: &str| {
        Rule::new(fault).controllers().verb(Verb::StrategicPatch).resource("pods").name(name)
    };
    let release = faults.hold(|fault| patch(fault, first.metadata.name.as_deref().unwrap_or_default()));
    end(&cluster, &first, "Succeeded", 0).await?;
    eventually("its finalizer is to go", MINUTE, async || Ok(faults.met() == 1)).await?;

    // The next look has a Pod to adopt, and waits for that.
    let adoption = faults.hold(|fault| patch(fault, "orphan"));
    let selector = get(&cluster, "j").await?.spec.and_then(|spec| spec.selector).unwrap_or_default();
    let labels = json!({"metadata": {"labels": selector.match_labels}});
    cluster.create::<Pod>(&crate::common::pod("orphan", labels)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await; // until the cache shows the orphan, in simulated time
    faults.hold_events("pods");
    release.open(Ok(()));
    eventually("the orphan is to be adopted", MINUTE, async || Ok(faults.met() == 2)).await?;
    faults.let_events_come("pods");
    tokio::time::sleep(Duration::from_secs(1)).await; // until the cache shows the removal, in simulated time
    adoption.open(Ok(()));

    tokio::time::sleep(MINUTE).await; // all that follows, in simulated time
    let status = get(&cluster, "j").await?.status.unwrap_or_default();
    assert_eq!((status.succeeded, status.active), (Some(1), Some(2)), "{status:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_job_is_suspended_and_resumed() -> Result<()> {
    let cluster = started(&[CONTROLLER]).await?;
    cluster.create::<Job>(&job("j", json!({"parallelism": 2, "completions": 2, "suspend": true}))).await?;
    said(&cluster, "Suspended").await?;
    let suspended = get(&cluster, "j").await?;
    assert!(holds(&suspended, "Suspended") && suspended.status.unwrap().start_time.is_none());
    assert!(cluster.list::<Pod>("default").await?.is_empty());
    let set = async |suspend: bool| {
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        cluster.admin().api::<Job>("default").patch("j", &patch).await.map(drop)
    };
    let count = async |n: usize| {
        eventually("Pods", MINUTE, async || {
            Ok(cluster.list::<Pod>("default").await?.iter().filter(|p| is_active(p)).count() == n)
        })
        .await
    };
    set(false).await?;
    eventually("it is resumed", MINUTE, async || Ok(!holds(&get(&cluster, "j").await?, "Suspended"))).await?;
    count(2).await?;
    assert!(get(&cluster, "j").await?.status.unwrap().start_time.is_some());
    set(true).await?;
    count(0).await?;
    eventually("it is told", MINUTE, async || Ok(holds(&get(&cluster, "j").await?, "Suspended"))).await?;
    let status = get(&cluster, "j").await?.status.unwrap();
    assert_eq!((status.failed.unwrap_or(0), status.start_time), (0, None), "what was stopped has not failed");
    set(false).await?;
    count(2).await
}

/// Failures by index, a policy for exit codes, and the order of the conditions.
#[tokio::test(start_paused = true)]
async fn indexes_fail_alone() -> Result<()> {
    let cluster = started(&[CONTROLLER]).await?;
    let policy = json!({"rules": [
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]});
    let spec = json!({
        "completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 1,
        "podFailurePolicy": policy,
    });
    cluster.create::<Job>(&job("j", spec)).await?;
    let mut ended = 0;
    eventually("it ends", 5 * MINUTE, async || {
        for pod in cluster.list::<Pod>("default").await?.iter().filter(|p| is_active(p)) {
            ended += 1;
            match index(pod) {
                Some("0") => end(&cluster, pod, "Succeeded", 0).await?,
                Some("1") => end(&cluster, pod, "Failed", 42).await?,
                _ => end(&cluster, pod, "Failed", 1).await?,
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await; // the pace of the nodes, in simulated time
        Ok(holds(&get(&cluster, "j").await?, "Failed"))
    })
    .await?;
    assert_eq!(ended, 4, "index 2 has a second attempt, index 1 has none");
    let status = get(&cluster, "j").await?.status.unwrap();
    assert_eq!(
        (status.completed_indexes.as_deref(), status.failed_indexes.as_deref()),
        (Some("0"), Some("1,2"))
    );
    assert_eq!((status.succeeded, status.failed), (Some(1), Some(3)));
    let told: Vec<_> =
        status.conditions.iter().flatten().map(|c| (c.type_.as_str(), c.reason.as_deref())).collect();
    assert_eq!(told, [("FailureTarget", Some("FailedIndexes")), ("Failed", Some("FailedIndexes"))]);
    said(&cluster, "FailedIndexes").await
}

/// A Job ends by its time; its Pods are deleted before it says so.
#[tokio::test(start_paused = true)]
async fn a_job_has_a_deadline() -> Result<()> {
    let cluster = started(&[CONTROLLER]).await?;
    cluster.create::<Job>(&job("j", json!({"parallelism": 2, "activeDeadlineSeconds": 30}))).await?;
    let begun = tokio::time::Instant::now();
    eventually("it fails", MINUTE, async || Ok(holds(&get(&cluster, "j").await?, "Failed"))).await?;
    assert!(begun.elapsed() >= Duration::from_secs(29), "{:?}", begun.elapsed());
    said(&cluster, "DeadlineExceeded").await?;
    eventually("its Pods go", MINUTE, async || Ok(cluster.list::<Pod>("default").await?.is_empty())).await
}

/// Pods whose Job is gone lose their finalizer, and those of a Job that another controller manages keep it.
#[tokio::test(start_paused = true)]
async fn orphans_are_freed() -> Result<()> {
    let cluster = started(&[CONTROLLER]).await?;
    cluster.create::<Job>(&job("j", json!({"managedBy": "example.com/other"}))).await?;
    let owner = get(&cluster, "j").await?;
    let owned = |name: &str, uid: &str| {
        crate::common::pod(
            name,
            json!({"metadata": {"finalizers": [TRACKING], "ownerReferences": [{
            "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": true}]}}),
        )
    };
    cluster.create::<Pod>(&owned("theirs", owner.metadata.uid.as_deref().unwrap_or_default())).await?;
    cluster.create::<Pod>(&owned("gone", "another")).await?;
    cluster
        .create::<Pod>(&crate::common::pod("free", json!({"metadata": {"finalizers": [TRACKING]}})))
        .await?;
    cluster.admin().api::<Pod>("default").delete("gone", None).await?;
    cluster.admin().api::<Pod>("default").delete("theirs", None).await?;
    let held = async |name: &str| {
        let pod = cluster.get::<Pod>("default", name).await?;
        anyhow::Ok(pod.is_some_and(|p| p.metadata.finalizers.is_some_and(|f| !f.is_empty())))
    };
    eventually("the others are free", MINUTE, async || Ok(!held("gone").await? && !held("free").await?))
        .await?;
    assert!(held("theirs").await?, "its manager counts it");
    let status = get(&cluster, "j").await?.status.unwrap_or_default();
    assert_eq!((status.start_time, status.active), (None, None), "another controller looks after it");
    Ok(())
}
