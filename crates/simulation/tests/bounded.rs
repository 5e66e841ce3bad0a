//! This is what grows with an object's size stays bounded: Jobs of very many completions, CronJobs that missed very many starts.

use std::time::Duration;

use anyhow::Result;
use client::{Patch, Verb};
use ferrokube_simulation::Cluster;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::time::sleep;

use crate::common::{MINUTE, bare, eventually, said};
use crate::workloads::deployment;

fn template() -> serde_json::Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}})
}

fn writes_of_status(cluster: &Cluster, plural: &str) -> usize {
    let seen = cluster.faults().seen();
    let status = |c: &&client::Call| c.subresource == "status" && !matches!(c.verb, Verb::Get);
    seen.iter().filter(|c| c.resource.plural == plural).filter(status).count()
}

/// A Job of 100,000 completions, of which every second index of the first 1,200 ends: its status stays small, and is
/// written once for many Pods.
#[tokio::test(start_paused = true)]
async fn a_job_of_a_hundred_thousand() -> Result<()> {
    const RUNNING: usize = 600;
    let cluster = bare().await?;
    cluster.faults().record();
    cluster.controllers(&["job-controller"])?;
    let job = json!({"metadata": {"name": "j", "namespace": "default"}, "spec": {
        "completionMode": "Indexed", "completions": 100_000, "parallelism": RUNNING, "template": template()}});
    cluster.create::<Job>(&job).await?;
    let active = async || cluster.list::<Pod>("default").await;
    eventually("its Pods are made", 5 * MINUTE, async || Ok(active().await?.len() == RUNNING)).await?;
    let before = writes_of_status(&cluster, "jobs");
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let mut succeeded = 0;
    for pod in active().await? {
        let index =
            pod.metadata.annotations.unwrap_or_default().remove("batch.kubernetes.io/job-completion-index");
        if index.and_then(|i| i.parse::<usize>().ok()).is_some_and(|i| i % 2 == 0) {
            cluster
                .admin()
                .api::<Pod>("default")
                .patch_status(&pod.metadata.name.unwrap_or_default(), &ended)
                .await?;
            succeeded += 1;
        }
    }
    let get = async || Ok::<_, anyhow::Error>(cluster.get::<Job>("default", "j").await?.unwrap_or_default());
    eventually("they are counted", 5 * MINUTE, async || {
        Ok(get().await?.status.and_then(|s| s.succeeded) == Some(succeeded))
    })
    .await?;
    sleep(MINUTE).await;
    let status = get().await?.status.unwrap_or_default();
    let open = status.uncounted_terminated_pods.clone().unwrap_or_default();
    assert!(open.succeeded.unwrap_or_default().is_empty());
    let size = serde_json::to_string(&status)?.len();
    assert!(size < 4000, "{size} bytes");
    let writes = writes_of_status(&cluster, "jobs") - before;
    assert!(writes < 40, "{writes} writes for {succeeded} Pods");
    assert_eq!(status.active.unwrap_or(0) as usize, RUNNING, "others are made in their place");
    Ok(())
}

/// A Deployment of 1,000, of whose Pods one becomes Ready each millisecond: the statuses are written once for many of them.
#[tokio::test(start_paused = true)]
async fn a_deployment_of_a_thousand() -> Result<()> {
    const REPLICAS: usize = 1000;
    let cluster = bare().await?;
    cluster.faults().record();
    cluster.controllers(&["deployment-controller", "replicaset-controller"])?;
    cluster.create::<Deployment>(&deployment("web", u32::try_from(REPLICAS)?, "1m")).await?;
    let pods = async || cluster.list::<Pod>("default").await;
    eventually("its Pods are made", 5 * MINUTE, async || Ok(pods().await?.len() == REPLICAS)).await?;
    let written = || (writes_of_status(&cluster, "replicasets"), writes_of_status(&cluster, "deployments"));
    let made = written();
    let ready = Patch::Strategic(json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}));
    let api = cluster.admin().api::<Pod>("default");
    for pod in pods().await? {
        api.patch_status(&pod.metadata.name.unwrap_or_default(), &ready).await?;
        // In one instant all changes would be one.
        sleep(Duration::from_millis(1)).await;
    }
    let all = i32::try_from(REPLICAS)?;
    let available =
        |d: &[Deployment]| d.iter().filter_map(|d| d.status.as_ref()?.available_replicas).sum::<i32>() == all;
    let waited = cluster.until::<Deployment>(MINUTE, "default", available).await?;
    assert!(waited < Duration::from_secs(1), "told {waited:?} after the last");
    let (sets, deployments) = written();
    assert!(sets - made.0 < 40, "{} writes for {REPLICAS} Pods", sets - made.0);
    assert!(deployments - made.1 < 40, "{} writes for {REPLICAS} Pods", deployments - made.1);
    assert!(made.0 < 40, "{} writes while {REPLICAS} Pods were made", made.0);
    Ok(())
}

/// A CronJob whose controller was not there for a day: the last start alone is made up for, with few writes.
#[tokio::test(start_paused = true)]
async fn a_cron_job_that_missed_a_day() -> Result<()> {
    let cluster = bare().await?;
    let cron = json!({"metadata": {"name": "c", "namespace": "default"}, "spec": {
        "schedule": "* * * * *", "jobTemplate": {"spec": {"template": template()}}}});
    cluster.create::<CronJob>(&cron).await?;
    sleep(Duration::from_hours(24)).await;
    cluster.faults().record();
    cluster.controllers(&["cronjob-controller"])?;
    let jobs = async || cluster.list::<Job>("default").await;
    eventually("one starts", MINUTE, async || Ok(!jobs().await?.is_empty())).await?;
    sleep(Duration::from_secs(20)).await;
    assert!(jobs().await?.len() <= 2, "the missed one, and perhaps the next minute's");
    let writes = cluster.faults().controller_writes();
    assert!(writes <= 6, "{writes} writes");
    said(&cluster, "TooManyMissedTimes").await
}
