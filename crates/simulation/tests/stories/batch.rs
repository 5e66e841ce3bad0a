//! Jobs, and CronJobs that make them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use client::Patch;
use ferrokube_simulation::Cluster;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{Stage, disturbed, state};
use crate::common::MINUTE;
use crate::workloads::phase;

const COLLECTOR: &str = "garbage-collector-controller";

fn template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}})
}

/// Lets all Pods succeed that run.
async fn succeed(cluster: &Cluster) -> Result<()> {
    let api = cluster.admin().api::<Pod>("default");
    for pod in cluster.list::<Pod>("default").await? {
        if phase(&pod) == "Running" && pod.metadata.deletion_timestamp.is_none() {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let state = json!({"terminated": {"exitCode": 0}});
            let container = json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            let status = json!({"phase": "Succeeded", "containerStatuses": [container]});
            match api.patch_status(name, &Patch::Strategic(json!({ "status": status }))).await {
                Err(e) if !e.is_not_found() => return Err(e.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

fn is_complete(job: &Job) -> bool {
    let mut conditions = job.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.any(|c| c.type_ == "Complete" && c.status == "True")
}

#[tokio::test(start_paused = true)]
async fn a_job_that_goes_when_it_has_ended() -> Result<()> {
    disturbed(&["job-controller", "ttl-after-finished-controller", COLLECTOR], async |stage| {
        let cluster = stage.cluster;
        let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 2, "ttlSecondsAfterFinished": 600, "template": template()});
        cluster.create::<Job>(&json!({"metadata": {"name": "j", "namespace": "default"}, "spec": spec})).await?;
        let mut seen = BTreeSet::new();
        stage
            .until("it is complete", async |cluster| {
                let pods = cluster.list::<Pod>("default").await?;
                seen.extend(pods.into_iter().filter_map(|p| p.metadata.uid));
                succeed(cluster).await?;
                Ok(cluster.list::<Job>("default").await?.iter().all(is_complete))
            })
            .await?;
        ensure!(seen.len() == 3, "{} Pods for three indexes", seen.len());
        stage.pass(MINUTE).await?;
        let mut jobs = state::<Job>(cluster).await?;
        jobs[0]["spec"]["selector"].take();
        jobs[0]["spec"]["template"]["metadata"].take();
        let end = jobs;
        stage.all::<Job>("it is gone", <[_]>::is_empty).await?;
        stage.all::<Pod>("no Pod is left", <[_]>::is_empty).await?;
        Ok(end)
    })
    .await
}

/// The minutes at which Jobs were made, in the story's first hour.
async fn made(stage: &Stage<'_>, until: &str, seen: &mut BTreeSet<i64>) -> Result<()> {
    let until: Timestamp = until.parse()?;
    let clock = stage.cluster.clock();
    // Minutes pass: a look every 100 ms would be most of the work.
    stage
        .until_every(Duration::from_secs(1), "time passes", async |cluster| {
            for job in cluster.list::<Job>("default").await? {
                let name = job.metadata.name.unwrap_or_default();
                let minute: i64 = name.trim_start_matches("tick-").parse()?;
                seen.insert(minute - "2026-01-01T00:00:00Z".parse::<Timestamp>()?.as_second() / 60);
            }
            succeed(cluster).await?;
            Ok(clock.now() >= until)
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn a_cron_job() -> Result<()> {
    disturbed(&["cronjob-controller", "job-controller", COLLECTOR], async |stage| {
        let cluster = stage.cluster;
        let mut seen = BTreeSet::new();
        made(stage, "2026-01-01T00:02:10Z", &mut seen).await?;
        let spec = json!({"schedule": "*/2 * * * *", "successfulJobsHistoryLimit": 2, "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": {"template": template()}}});
        cluster.create::<CronJob>(&json!({"metadata": {"name": "tick", "namespace": "default"}, "spec": spec})).await?;
        made(stage, "2026-01-01T00:09:10Z", &mut seen).await?;
        let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
        cluster.admin().api::<CronJob>("default").patch("tick", &suspend).await?;
        made(stage, "2026-01-01T00:13:10Z", &mut seen).await?;
        ensure!(seen == BTreeSet::from([4, 6, 8]), "Jobs were made at {seen:?}");
        let names: Vec<Option<String>> =
            cluster.list::<Job>("default").await?.into_iter().map(|j| j.metadata.name).collect();
        let end = json!([names, state::<CronJob>(cluster).await?]);
        cluster.admin().api::<CronJob>("default").delete("tick", None).await?;
        stage.all::<Job>("no Job is left", <[_]>::is_empty).await?;
        stage.all::<Pod>("no Pod is left", <[_]>::is_empty).await?;
        Ok(end)
    })
    .await
}
