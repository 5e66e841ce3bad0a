//! CronJobs: Jobs that are made by a schedule (upstream: `pkg/controller/cronjob`).

mod plan;
mod schedule;
#[cfg(test)]
mod syncs;
#[cfg(test)]
mod tables;
mod times;

use std::collections::HashSet;
use std::sync::Arc;

use api::Status;
use client::{Api, Cached, Change, Client, EventType, Index, Informer, Key, Queue, Recorder, reference};
use component::Clock;
use component::metrics::{Histogram, Page};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use parking_lot::Mutex;

use crate::common::owners::resolve;
use crate::common::{controller_of, retry};
use crate::config::Config;
use crate::host::{Controller, Host, Next, Wiring};
use plan::{Plan, Snapshot, Start, forget, is_unknown, outdated};
use schedule::{Schedule, zone};

const COMPONENT: &str = "cronjob-controller";
/// Upstream's buckets of seconds: 1, 2, 4 and so on.
const SECONDS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// The controller of CronJobs.
pub(crate) struct CronJobs {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    crons: Informer<CronJob>,
    jobs: Informer<Job>,
    jobs_by_owner: Index<Job>,
    /// The times between that for which a Job is made and that at which it is.
    skew: Arc<Mutex<Histogram>>,
}

impl Controller for CronJobs {
    const NAME: &'static str = "cronjob-controller";
    const ALIASES: &'static [&'static str] = &["cronjob"];
    const ACCOUNT: &'static str = COMPONENT;
    const QUEUE: &'static str = "cronjob";
    type Key = Key;

    fn workers(config: &Config) -> usize {
        config.workers.cron_jobs
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let skew = Arc::new(Mutex::new(Histogram::new(SECONDS)));
        let told = skew.clone();
        host.metrics().register("cronjob-controller/skew", move |page| report(&told.lock(), page));
        let jobs = host.informer::<Job>();
        // DIFFERENCE: upstream takes the Jobs of an earlier CronJob of the same name for its own too.
        let jobs_by_owner = jobs.index("owner", |job| {
            controller_of(&job.metadata).map(|r| r.uid.as_str().into()).into_iter().collect()
        });
        Self {
            client: host.client(),
            clock: host.clock(),
            recorder: host.recorder(COMPONENT),
            crons: host.informer(),
            jobs,
            jobs_by_owner,
            skew,
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, c) = (wiring.queue(), self.clone());
        self.crons.handle(move |change| c.cron_changed(change, &queue));
        let (queue, c) = (wiring.queue(), self.clone());
        self.jobs.handle(move |change| {
            for job in change.states() {
                if let Some((key, _)) = resolve(&c.crons, job.namespace(), controller_of(&job.metadata)) {
                    queue.add(key);
                }
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(cron) = self.crons.get_key(&key) else { return Ok(Next::Done) };
        let jobs = self.jobs_by_owner.get(cron.uid());
        let mut cron = CronJob::clone(&cron);
        // The cache may not show the last write of the status yet.
        if jobs.iter().any(|job| is_unknown(cron.status.as_ref(), job)) {
            let fresh = self.crons_of(&key).get(&key.name).await?;
            if fresh.metadata.uid == cron.metadata.uid {
                cron.status = fresh.status;
                cron.metadata.resource_version = fresh.metadata.resource_version;
            }
        }
        let mut cleaned = false;
        for job in outdated(&cron, &jobs) {
            cleaned |= self.delete(&mut cron, &job).await.is_ok();
        }
        let gone = self.gone(&cron, &jobs).await?;
        let now = self.clock.now();
        let plan = plan::plan(&Snapshot { cron: &cron, jobs: &jobs, gone: &gone, now });
        let Plan { status, changed, events, start, again } = plan;
        for said in events {
            self.recorder.event(&cron, said.kind(), said.1, said.2);
        }
        cron.status = Some(status);
        let (started, result) = match start {
            None => (false, Ok(())),
            Some(start) => self.start(&key, &mut cron, start).await,
        };
        if cleaned || changed || started {
            self.crons_of(&key).update_status(&cron).await?;
        }
        result?;
        Ok(Next::at(again))
    }
}

impl CronJobs {
    fn crons_of(&self, key: &Key) -> Api<CronJob> {
        self.client.api(&key.namespace)
    }

    fn cron_changed(&self, change: &Change<CronJob>, queue: &Queue<Key>) {
        let Change::Updated { old, new } = change else { return queue.add(change.object().key()) };
        let (was, is) = (&old.spec, &new.spec);
        if was.schedule == is.schedule && was.time_zone == is.time_zone {
            return queue.add(new.key());
        }
        let zone = zone(is.time_zone.as_deref().unwrap_or_default()).unwrap_or(jiff::tz::TimeZone::UTC);
        let Ok(schedule) = Schedule::parse(&is.schedule, zone) else {
            let text = format!("unparseable schedule for cronjob: {}", is.schedule);
            return self.recorder.event(&**new, EventType::Warning, "UnParseableCronJobSchedule", text);
        };
        if let Some(left) = times::until_next(new, self.clock.now(), &schedule) {
            queue.add_after(new.key(), left);
        }
    }

    /// Finds the active Jobs that do not exist any more: the cache may not show them yet.
    async fn gone(&self, cron: &CronJob, jobs: &[Arc<Job>]) -> Result<HashSet<String>, Status> {
        let mut gone = HashSet::new();
        for job in cron.status.iter().flat_map(|s| s.active.iter().flatten()) {
            let uid = job.uid.clone().unwrap_or_default();
            if jobs.iter().any(|j| j.uid() == uid) {
                continue;
            }
            let api = self.client.api::<Job>(job.namespace.as_deref().unwrap_or_default());
            match api.get(job.name.as_deref().unwrap_or_default()).await {
                Err(e) if e.is_not_found() => {
                    gone.insert(uid);
                }
                Err(e) => return Err(e),
                Ok(_) => {}
            }
        }
        Ok(gone)
    }

    /// Deletes a Job with its Pods, and takes it from the active ones.
    async fn delete(&self, cron: &mut CronJob, job: &Job) -> Result<(), Status> {
        let options =
            DeleteOptions { propagation_policy: Some("Background".to_owned()), ..DeleteOptions::default() };
        if let Err(e) = self.client.api::<Job>(job.namespace()).delete(job.name(), Some(&options)).await {
            self.recorder.event(cron, EventType::Warning, "FailedDelete", format!("Deleted job: {e}"));
            return Err(e);
        }
        if let Some(status) = &mut cron.status {
            forget(status, job.uid());
        }
        self.recorder.event(
            cron,
            EventType::Normal,
            "SuccessfulDelete",
            format!("Deleted job {}", job.name()),
        );
        Ok(())
    }

    /// Makes a Job; returns whether the status changed, and the result.
    async fn start(&self, key: &Key, cron: &mut CronJob, start: Start) -> (bool, Result<(), Status>) {
        let mut changed = false;
        for replaced in &start.replaced {
            match self.replace(cron, replaced).await {
                Ok(()) => changed = true,
                Err(error) => return (changed, Err(error)),
            }
        }
        let api = self.client.api::<Job>(&key.namespace);
        let wanted = plan::job(cron, start.time);
        let made = match api.create(&wanted).await {
            Ok(made) => {
                let created = made.metadata.creation_timestamp.as_ref().map_or(start.time, |t| t.0);
                self.skew.lock().observe(created.duration_since(start.time).as_secs_f64());
                let text = format!("Created job {}", made.name());
                self.recorder.event(cron, EventType::Normal, "SuccessfulCreate", text);
                made
            }
            // It was made before the controller ended, or by somebody else, who keeps account of it.
            Err(e) if e.is_already_exists() => match api.get(wanted.name()).await {
                Ok(found) if is_ours(cron, &found) => found,
                Ok(_) => return (changed, Ok(())),
                Err(error) => return (changed, Err(error)),
            },
            Err(e) => {
                if !crate::common::namespace_is_terminating(&e) {
                    let text = format!("Error creating job: {e}");
                    self.recorder.event(cron, EventType::Warning, "FailedCreate", text);
                }
                return (changed, Err(e));
            }
        };
        let status = cron.status.get_or_insert_with(CronJobStatus::default);
        if plan::is_active(status, made.uid()) {
            return (changed, Ok(()));
        }
        plan::started(status, reference(&made), start.time);
        (true, Ok(()))
    }

    /// Deletes a Job that still runs.
    async fn replace(&self, cron: &mut CronJob, job: &ObjectReference) -> Result<(), Status> {
        let (namespace, name) =
            (job.namespace.as_deref().unwrap_or_default(), job.name.as_deref().unwrap_or_default());
        let found = match self.client.api::<Job>(namespace).get(name).await {
            Ok(found) => found,
            Err(e) => {
                self.recorder.event(cron, EventType::Warning, "FailedGet", format!("Get job: {e}"));
                return Err(e);
            }
        };
        let deleted = self.delete(cron, &found).await;
        deleted.map_err(|_| retry(format_args!("could not replace job {namespace}/{name}")))
    }
}

/// Whether a Job is one of a CronJob's.
fn is_ours(cron: &CronJob, job: &Job) -> bool {
    controller_of(&job.metadata).is_some_and(|r| Some(&r.uid) == cron.metadata.uid.as_ref())
}

fn report(skew: &Histogram, page: &mut Page) {
    let name = "cronjob_controller_job_creation_skew_duration_seconds";
    let help = "[STABLE] Time between when a cronjob is scheduled to be run, and when the corresponding job is created";
    page.metric(name, "histogram", help).histogram(name, &[], skew);
}
