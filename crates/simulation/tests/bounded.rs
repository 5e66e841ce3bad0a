//! This is what grows with an object's size stays bounded: Jobs of very many completions, CronJobs that missed very many starts.

use std::time::Duration;

use anyhow::Result;
use client::{Patch, Verb};
use ferrokube_simulation::Cluster;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::time::sleep;

use crate::common::{MINUTE, bare, eventually, said};

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
