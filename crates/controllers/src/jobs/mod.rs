//! Jobs: Pods that are made until enough of them have succeeded (upstream: `pkg/controller/job`).
//!
//! A look at a Job is made of decisions and their execution in turn: [`plan`] decides on Pods to make or delete,
//! [`tracking`] on the counting of those that have ended. Its other knowledge (delays,
//! writes that the caches do not show yet) may be lost at any time.

mod backoff;
mod gangs;
mod indexes;
mod metrics;
mod orphans;
mod plan;
mod pods;
mod policies;
pub(crate) mod rules;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod testing;
mod tracking;
mod writes;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::{Gate, Status};
use client::{
    Api, Cached, Change, Client, EventType, Informer, Key, Patch, Queue, Rate, RateLimit, Recorder,
    resource_of,
};
use component::Clock;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use parking_lot::Mutex;
use serde_json::json;

use crate::common::batch::{self, slow_start};
use crate::common::claim::claim_holding;
use crate::common::expectations::Expectations;
use crate::common::owners::resolve;
use crate::common::pace::pause;
use crate::common::pod_control::{Deletion, PodControl};
use crate::common::pods::Pods;
use crate::common::selecting::{Selecting, label_pairs};
use crate::common::{deleting, retry};
use crate::config::Config;
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::{PodView, TRACKING};
use backoff::Backoff;
use gangs::Gangs;
use metrics::Metrics;
use objects::Selector;
use orphans::{Orphan, is_orphan};
use plan::{New, Plan, Snapshot, Step};
use rules::{Rules, finished, is_finished};
use tracking::{Outcome, Tracking, Turn};
use writes::{Released, Written};

/// The shortest time for which a look waits for further changes of Pods: many often end at once.
const BATCH: Duration = Duration::from_millis(20);
/// The time after which a Job is looked at again if the cache does not show a write.
const AGAIN: Duration = Duration::from_secs(30);
const COMPONENT: &str = "job-controller";

/// The controller of Jobs.
pub(crate) struct Jobs {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    control: PodControl,
    jobs: Informer<Job>,
    selecting: Selecting<Job>,
    pods: Pods,
    expectations: Expectations,
    released: Released,
    written: Written,
    backoffs: Mutex<HashMap<Key, Backoff>>,
    orphans: Queue<Orphan>,
    metrics: Arc<Metrics>,
    /// With the gate, the groups in which Pods are scheduled together.
    gangs: Option<Gangs>,
    /// Whether a Job that is suspended has not begun.
    suspended_anew: bool,
}

impl Controller for Jobs {
    const NAME: &'static str = "job-controller";
    const ALIASES: &'static [&'static str] = &["job"];
    const ACCOUNT: &'static str = COMPONENT;
    const QUEUE: &'static str = "job";
    const RATE: RateLimit = RateLimit {
        base: Duration::from_secs(1),
        limit: Duration::from_mins(1),
        all: Rate { per_second: 1e6, burst: 1_000_000 },
    };
    type Key = Key;

    fn workers(config: &Config) -> usize {
        config.workers.jobs
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let metrics: Arc<Metrics> = Arc::default();
        let told = metrics.clone();
        host.metrics().register("job-controller/figures", move |page| told.report(page));
        let jobs = host.informer();
        let gates = host.config().gates;
        Self {
            client: host.client(),
            clock: host.clock(),
            recorder: host.recorder(COMPONENT),
            control: PodControl::new(host.client(), host.recorder(COMPONENT)),
            selecting: Selecting::new(&jobs, selector),
            jobs,
            pods: Pods::of(host.factory()),
            expectations: Expectations::default(),
            released: Released::default(),
            written: Written::default(),
            backoffs: Mutex::default(),
            orphans: host.queue("job_orphan_pod"),
            metrics,
            gangs: gates.enabled(Gate::WorkloadWithJob).then(|| Gangs::new(host)),
            suspended_anew: gates.enabled(Gate::MutableSchedulingDirectivesForSuspendedJobs),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, c) = (wiring.queue(), self.clone());
        self.jobs.handle(move |change| c.job_changed(change, &queue));
        let (queue, c) = (wiring.queue(), self.clone());
        self.pods.handle(move |change| {
            c.count_terminated(change);
            match change {
                Change::Added(pod) => c.pod_added(pod, &queue),
                Change::Updated { old, new } => c.pod_updated(old, new, &queue),
                Change::Deleted(pod) => c.pod_deleted(pod, true, &queue),
            }
        });
        let c = self.clone();
        wiring.work(&self.orphans, "job-orphan-pod", 1, move |orphan| {
            let c = c.clone();
            async move { c.sync_orphan(orphan).await }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(job) = self.jobs.get_key(&key) else {
            self.forget(&key);
            return Ok(Next::Done);
        };
        let Some(spec) = &job.spec else { return Ok(Next::Done) };
        let rules = Rules(spec);
        if rules.managed_by_other().is_some() {
            return Ok(Next::Done);
        }
        if is_finished(&job) {
            self.forget(&key);
            return Ok(Next::Done);
        }
        if self.written.is_ahead_of(&key, &job) {
            self.metrics.count("stale_sync_skips_total", &["batch", "jobs"], 1);
            return Ok(Next::After(AGAIN));
        }
        if !matches!(spec.completion_mode.as_deref(), None | Some("Indexed" | "NonIndexed")) {
            let text = "Skipped Job sync because completion mode is unknown";
            self.recorder.event(&*job, EventType::Warning, "UnknownCompletionMode", text);
            return Ok(Next::Done);
        }
        let begun = self.clock.monotonic();
        let mut action = "reconciling";
        let result = self.look(&key, &job, rules, &mut action).await;
        let said = if result.is_ok() { "success" } else { "error" };
        self.metrics.synced([rules.mode(), said, action], self.clock.monotonic() - begun);
        result
    }
}

impl Jobs {
    /// Looks at a Job that is not finished.
    async fn look(
        &self,
        key: &Key,
        job: &Arc<Job>,
        rules: Rules<'_>,
        action: &mut &'static str,
    ) -> Result<Next, Status> {
        // Both are asked before the cache is: a Pod of which the cache comes to show meanwhile that its finalizer is gone
        // is no longer among those released, but among the Pods as they were it still has the finalizer, and would be
        // counted twice.
        let settled = self.expectations.satisfied(job.uid());
        let released = self.released.of(key);
        let pods = self.claimed(key, job).await?;
        let group = self.group(job, rules, &pods).await?;
        let backoff = self.backoffs.lock().get(key).copied().unwrap_or_default();
        let now = self.clock.now();
        let suspended_anew = self.suspended_anew;
        let snapshot =
            Snapshot { job, rules, pods: &pods, released: &released, settled, backoff, suspended_anew, now };
        let plan = plan::plan(&snapshot);
        *action = match plan.step {
            Step::End(_) | Step::Defer => "reconciling",
            Step::Delete(_) => "pods_deleted",
            Step::Create(_) | Step::Wait(_) => "pods_created",
            Step::Nothing => "tracking",
        };
        let wait = match plan.step {
            Step::Wait(left) => Some(left.max(batch(job))),
            _ => None,
        };
        let next = [plan.again, wait, (!settled).then_some(AGAIN)].into_iter().flatten().min();
        let backoff = plan.backoff;
        let (outcome, managed) = self.execute(job, rules, &plan, group.as_deref()).await;
        let tracking = tracking::track(&snapshot, plan, outcome);
        self.count(key, job, rules, tracking, backoff)
            .await
            .map_err(|e| Status { message: format!("tracking status: {}", e.message), ..e })?;
        managed?;
        Ok(Next::at(next))
    }

    /// Returns the Pods of a Job, after adoption and release.
    async fn claimed(&self, key: &Key, job: &Arc<Job>) -> Result<Vec<Arc<PodView>>, Status> {
        let mut all = self.pods.of_owner::<Job>(&key.namespace, job.uid());
        all.extend(self.pods.orphans(&key.namespace));
        let owners: Api<Job> = self.client.api(&key.namespace);
        let claimed =
            claim_holding(&**job, &owners, &selector(job), all, &self.api(&key.namespace), TRACKING).await?;
        // Adopted Pods have got the finalizer with their owner.
        let adopted = |pod: Arc<PodView>| match pod.controller() {
            Some(_) => pod,
            None => Arc::new(pod.with_tracking()),
        };
        Ok(claimed.into_iter().map(adopted).collect())
    }

    /// Returns the group in which a Job's Pods are scheduled together.
    async fn group(
        &self,
        job: &Job,
        rules: Rules<'_>,
        pods: &[Arc<PodView>],
    ) -> Result<Option<Arc<PodGroup>>, Status> {
        let Some(gangs) = self.gangs.as_ref().filter(|_| !deleting(&job.metadata)) else { return Ok(None) };
        gangs.of(&self.client, &self.recorder, (job, rules), pods).await.map_err(|e| {
            let name = job.key();
            Status { message: format!("ensuring Workload and PodGroup for Job {name}: {}", e.message), ..e }
        })
    }

    fn api(&self, namespace: &str) -> Api<PodView> {
        self.client.resource(resource_of::<Pod>(), namespace)
    }

    /// Carries out a step. The result counts as far as there is an error.
    async fn execute(
        &self,
        job: &Arc<Job>,
        rules: Rules<'_>,
        plan: &Plan,
        group: Option<&PodGroup>,
    ) -> (Outcome, Result<(), Status>) {
        match &plan.step {
            Step::End(active) => {
                let deletions = active.iter().map(|pod| async move {
                    (pod.is_ready(), self.control.delete(&**job, pod.name()).await.map(drop))
                });
                outcome_of(batch::all(deletions).await)
            }
            Step::Delete(doomed) => {
                self.expectations.expect_deletions(job.uid(), doomed.iter().map(|p| p.uid().to_owned()));
                let deletions = doomed.iter().map(|pod| async move {
                    let deleted = self.discard(job, pod).await;
                    if !matches!(deleted, Ok(Deletion::Begun)) {
                        // The informer will not show this Pod's deletion.
                        self.expectations.deleted(job.uid(), pod.uid());
                    }
                    (pod.is_ready(), deleted.map(drop))
                });
                outcome_of(batch::all(deletions).await)
            }
            Step::Create(new) => {
                let (created, result) = self.create(job, (rules, group), new).await;
                self.count_created(rules, plan, created, new.len() - created);
                (Outcome { created, ..Outcome::default() }, result)
            }
            Step::Wait(_) | Step::Nothing | Step::Defer => (Outcome::default(), Ok(())),
        }
    }

    /// Deletes a Pod that does not count.
    async fn discard(&self, job: &Arc<Job>, pod: &PodView) -> Result<Deletion, Status> {
        match self.release(pod).await {
            Ok(()) => self.control.delete(&**job, pod.name()).await,
            Err(e) if e.is_not_found() => Ok(Deletion::Gone),
            Err(e) => Err(retry(format_args!("removing completion finalizer: {e}"))),
        }
    }

    /// Removes the finalizer of a Pod.
    async fn release(&self, pod: &PodView) -> Result<(), Status> {
        if pod.task().is_none_or(|t| !t.tracked) {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "uid": pod.uid(), "$deleteFromPrimitiveList/finalizers": [TRACKING],
        }});
        self.api(pod.namespace()).patch(pod.name(), &Patch::Strategic(patch)).await.map(drop)
    }

    /// Removes the finalizers of orphans.
    async fn sync_orphan(&self, orphan: Orphan) -> Result<Next, Status> {
        let pods = match &orphan {
            Orphan::Pod(key) => self.pods.get_key(key).into_iter().collect(),
            Orphan::OfJob(key, uid) => self.pods.of_owner::<Job>(&key.namespace, uid),
        };
        let mut result = Ok(Next::Done);
        for pod in &pods {
            let job = |of: &_| resolve(&self.jobs, pod.namespace(), Some(of)).map(|(_, job)| job);
            if !is_orphan(pod, job) {
                continue;
            }
            match self.release(pod).await {
                Err(e) if !e.is_not_found() => result = Err(e),
                _ => {}
            }
        }
        result
    }

    /// Makes Pods; returns how many.
    async fn create(
        &self,
        job: &Arc<Job>,
        (rules, group): (Rules<'_>, Option<&PodGroup>),
        new: &[New],
    ) -> (usize, Result<(), Status>) {
        let mut common = match pods::common(job, rules) {
            Ok(common) => common,
            Err(error) => return (0, Err(error)),
        };
        if let Some(group) = group {
            gangs::join(&mut common, group);
        }
        self.expectations.expect_creations(job.uid(), new.len());
        let made = AtomicUsize::new(0);
        let (_, result) = slow_start(new.len(), |i| {
            let (made, pod) = (&made, new.get(i).map(|new| pods::one(job, &common, new)));
            async move {
                if let Some(pod) = pod
                    && self.control.create(&**job, &pod).await?
                {
                    made.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, Status>(())
            }
        })
        .await;
        let made = made.into_inner();
        // Pods that were not tried, or failed, will not be seen.
        self.expectations.created(job.uid(), new.len() - made);
        (made, result)
    }

    /// Writes what is to be counted, removes the finalizers, and counts.
    async fn count(
        &self,
        key: &Key,
        job: &Arc<Job>,
        rules: Rules<'_>,
        mut tracking: Tracking,
        backoff: Backoff,
    ) -> Result<(), Status> {
        let mut current = Job::clone(job);
        if tracking.changed {
            current = self.write(key, rules, &current, &tracking.status).await?;
            self.backoffs.lock().insert(key.clone(), backoff);
            if let Some(turn) = tracking.turn {
                let (reason, text) = match turn {
                    Turn::Suspended => ("Suspended", "Job suspended"),
                    Turn::Resumed => ("Resumed", "Job resumed"),
                };
                self.recorder.event(&**job, EventType::Normal, reason, text);
            }
        }
        for (action, count) in &tracking.actions {
            self.metrics.count("pod_failures_handled_by_failure_policy_total", &[action], *count);
        }
        let released = self.release_all(key, &mut tracking).await;
        let mut status = current.status.clone().unwrap_or_default();
        let mut changed = tracking::settle(&mut status, &tracking.held);
        let is_finished = released.is_ok() && tracking.finish(&mut status, self.clock.now());
        changed |= is_finished;
        if changed {
            let written = self.write(key, rules, &current, &status).await?;
            if is_finished {
                self.tell_end(rules, &written);
            }
        }
        released
    }

    /// Removes the finalizers of the Pods that are counted.
    async fn release_all(&self, key: &Key, tracking: &mut Tracking) -> Result<(), Status> {
        self.released.expect(key, tracking.release.iter().map(|p| p.uid().to_owned()));
        let removals = tracking.release.iter().map(|pod| self.release(pod));
        let mut result = Ok(());
        for (pod, answer) in tracking.release.iter().zip(batch::all(removals).await) {
            if answer.is_err() {
                // The informer will not show the removal.
                self.released.seen(key, pod.uid());
            }
            match answer {
                Err(e) if !e.is_not_found() => result = Err(e),
                _ => {
                    tracking.held.remove(pod.uid());
                }
            }
        }
        result
    }

    async fn write(&self, key: &Key, rules: Rules<'_>, job: &Job, status: &JobStatus) -> Result<Job, Status> {
        let changed = Job { status: Some(status.clone()), ..job.clone() };
        let written = self.client.api::<Job>(&key.namespace).update_status(&changed).await?;
        self.written.note(key, &written);
        let none = JobStatus::default();
        self.metrics.counted(
            rules,
            job.status.as_ref().unwrap_or(&none),
            written.status.as_ref().unwrap_or(&none),
        );
        Ok(written)
    }

    /// Tells of the end of a Job.
    fn tell_end(&self, rules: Rules<'_>, job: &Job) {
        let Some(last) = finished(job) else { return };
        let said = |text: &Option<String>| text.clone().unwrap_or_default();
        let reason = said(&last.reason);
        if last.type_ == "Complete" {
            let succeeded = job.status.as_ref().and_then(|s| s.succeeded).unwrap_or(0);
            if rules.completions().is_some_and(|completions| i64::from(succeeded) > completions) {
                let text = "Too many succeeded pods running after completion count reached";
                self.recorder.event(job, EventType::Warning, "TooManySucceededPods", text);
            }
            self.recorder.event(job, EventType::Normal, "Completed", "Job completed");
            self.metrics.count("jobs_finished_total", &[rules.mode(), "succeeded", &reason], 1);
        } else {
            self.recorder.event(job, EventType::Warning, &reason, said(&last.message));
            self.metrics.count("jobs_finished_total", &[rules.mode(), "failed", &reason], 1);
        }
    }

    fn count_created(&self, rules: Rules<'_>, plan: &Plan, created: usize, failed: usize) {
        let only_failed = rules.0.pod_replacement_policy.as_deref() == Some("Failed");
        let reason = if only_failed && plan.failed > 0 {
            "recreate_failed"
        } else if plan.failed > 0 || plan.terminating > 0 {
            "recreate_terminating_or_failed"
        } else {
            "new"
        };
        for (status, count) in [("succeeded", created), ("failed", failed)] {
            if count > 0 {
                self.metrics.count("job_pods_creation_total", &[reason, status], count as u64);
            }
        }
    }

    /// Forgets what belongs to a Job that is over or gone.
    fn forget(&self, key: &Key) {
        self.released.forget(key);
        self.written.forget(key);
        self.backoffs.lock().remove(key);
    }
}

/// Adds up the deletions of Pods: of each, whether it was ready, and the result.
fn outcome_of(deletions: Vec<(bool, Result<(), Status>)>) -> (Outcome, Result<(), Status>) {
    let (mut outcome, mut result) = (Outcome::default(), Ok(()));
    for (ready, deleted) in deletions {
        match deleted {
            Ok(()) => {
                outcome.deleted += 1;
                outcome.deleted_ready += usize::from(ready);
            }
            Err(error) => result = Err(error),
        }
    }
    (outcome, result)
}

/// Returns the selector of a Job's Pods.
fn selector(job: &Job) -> Selector {
    let given = job.spec.as_ref().and_then(|s| s.selector.as_ref());
    given.map_or_else(Selector::nothing, Selector::or_nothing)
}

/// Returns the time for which a look at a Job waits for further changes of its Pods.
///
/// DIFFERENCE: upstream waits for a second, so that no Job is Complete sooner after the end of its last Pod, and 5,000
/// Pods, of which 500 are made in a look, take ten.
fn batch(job: &Job) -> Duration {
    let wanted = job.spec.as_ref().map_or(0, |s| s.completions.max(s.parallelism).unwrap_or(1));
    pause(usize::try_from(wanted).unwrap_or(0)).max(BATCH)
}

/// The changes that make the controller look.
impl Jobs {
    fn job_changed(&self, change: &Change<Job>, queue: &Queue<Key>) {
        let job = change.object();
        let key = job.key();
        let uid = || job.uid().to_owned();
        match change {
            Change::Added(_) => {
                if let Some(other) =
                    job.spec.as_ref().and_then(|s| Rules(s).managed_by_other().map(str::to_owned))
                {
                    self.metrics.count("jobs_by_external_controller_total", &[&other], 1);
                }
                queue.add(key);
            }
            Change::Deleted(_) => {
                self.expectations.forget(job.uid());
                self.orphans.add(Orphan::OfJob(key.clone(), uid()));
                queue.add(key);
            }
            Change::Updated { old, new } => {
                if old.uid() != new.uid() {
                    self.expectations.forget(old.uid());
                    self.orphans.add(Orphan::OfJob(old.key(), old.uid().to_owned()));
                    self.forget(&key);
                }
                if is_finished(new) {
                    // All finalizers are gone before a Job is finished; this makes sure.
                    self.orphans.add(Orphan::OfJob(key.clone(), uid()));
                    self.forget(&key);
                } else if old.metadata.generation == new.metadata.generation {
                    queue.add_after(key, batch(new));
                } else {
                    queue.add(key);
                }
            }
        }
    }

    fn pod_added(&self, pod: &PodView, queue: &Queue<Key>) {
        if pod.is_deleting() {
            return self.pod_deleted(pod, false, queue);
        }
        if pod.controller().is_some() {
            if let Some((key, job)) = resolve(&self.jobs, pod.namespace(), pod.controller()) {
                self.expectations.created(job.uid(), 1);
                // More may have to be made.
                let settled = self.expectations.satisfied(job.uid());
                queue.add_after(key, if settled { Duration::ZERO } else { batch(&job) });
            }
            return;
        }
        self.orphaned(pod);
        self.enqueue_matching(pod, queue);
    }

    fn pod_updated(&self, old: &PodView, new: &PodView, queue: &Queue<Key>) {
        if new.is_deleting() {
            return self.pod_deleted(new, false, queue);
        }
        let freed = new.task().is_none_or(|t| !t.tracked);
        let touch = |pod: &PodView| {
            if let Some((key, job)) = resolve(&self.jobs, pod.namespace(), pod.controller()) {
                if freed {
                    self.released.seen(&key, new.uid());
                }
                queue.add_after(key, batch(&job));
            }
        };
        let moved = old.controller() != new.controller();
        if moved {
            touch(old);
        }
        if new.controller().is_some() {
            return touch(new);
        }
        self.orphaned(new);
        if moved || old.labels != new.labels {
            self.enqueue_matching(new, queue);
        }
    }

    /// Notes a Pod's deletion: that it has begun, or with `gone` that it is over.
    fn pod_deleted(&self, pod: &PodView, gone: bool, queue: &Queue<Key>) {
        let tracked = pod.task().is_some_and(|t| t.tracked);
        let job = resolve(&self.jobs, pod.namespace(), pod.controller());
        let Some((key, job)) = job.filter(|(_, job)| !is_finished(job)) else {
            if !gone {
                self.orphaned(pod);
            }
            return;
        };
        self.expectations.deleted(job.uid(), pod.uid());
        if gone || !tracked {
            self.released.seen(&key, pod.uid());
        }
        queue.add_after(key, batch(&job));
    }

    /// Queues a Pod whose finalizer no look at a Job will remove.
    fn orphaned(&self, pod: &PodView) {
        if pod.task().is_some_and(|t| t.tracked) {
            self.orphans.add(Orphan::Pod(pod.key()));
        }
    }

    /// Queues the Jobs that may want to adopt an orphan.
    fn enqueue_matching(&self, pod: &PodView, queue: &Queue<Key>) {
        for job in self.selecting.of(pod.namespace(), label_pairs(&pod.labels)) {
            queue.add_after(job.key(), batch(&job));
        }
    }

    fn count_terminated(&self, change: &Change<PodView>) {
        if let Some(event) = metrics::terminated(change) {
            self.metrics.count("terminated_pods_tracking_finalizer_total", &[event], 1);
        }
    }
}
