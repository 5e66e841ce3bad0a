//! The decisions about a CronJob: pure.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::go::quote;
use client::EventType;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use objects::time::whole_seconds;

use super::schedule::{Schedule, zone};
use super::times::{Missed, recent, until_next};
use crate::common::{controller_ref, deleting};
use crate::jobs::rules::{finished, is_finished};

/// The annotation of a Job that says for which time it was made.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// An Event: whether it is a warning, its reason and its message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said(pub(super) bool, pub(super) &'static str, pub(super) String);

impl Said {
    pub(super) fn kind(&self) -> EventType {
        if self.0 { EventType::Warning } else { EventType::Normal }
    }
}

/// The state on which the controller decides.
pub(super) struct Snapshot<'a> {
    pub(super) cron: &'a CronJob,
    /// Its Jobs.
    pub(super) jobs: &'a [Arc<Job>],
    /// The uids of active Jobs that do not exist any more.
    pub(super) gone: &'a HashSet<String>,
    pub(super) now: Timestamp,
}

/// A decision.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) status: CronJobStatus,
    pub(super) changed: bool,
    pub(super) events: Vec<Said>,
    pub(super) start: Option<Start>,
    /// The time after which the CronJob is looked at again.
    pub(super) again: Option<Duration>,
}

/// A Job to be made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Start {
    /// The time for which it is made.
    pub(super) time: Timestamp,
    /// The Jobs that are deleted before.
    pub(super) replaced: Vec<ObjectReference>,
}

fn uid(job: &Job) -> &str {
    job.metadata.uid.as_deref().unwrap_or_default()
}

/// Whether a status names a Job as active.
pub(super) fn is_active(status: &CronJobStatus, uid: &str) -> bool {
    status.active.iter().flatten().any(|r| r.uid.as_deref() == Some(uid))
}

/// Takes a Job from the active ones.
pub(super) fn forget(status: &mut CronJobStatus, uid: &str) {
    if let Some(active) = &mut status.active {
        active.retain(|r| r.uid.as_deref() != Some(uid));
    }
}

/// Returns the finished Jobs that are not kept any more: the oldest ones of those that succeeded, and of those that
/// failed.
pub(super) fn outdated(cron: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let spec = &cron.spec;
    let limits =
        [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
    let mut doomed = Vec::new();
    for (kind, limit) in limits {
        let Some(limit) = limit else { continue };
        let is = |job: &&Arc<Job>| finished(job).is_some_and(|c| c.type_ == kind);
        let mut all: Vec<Arc<Job>> = jobs.iter().filter(is).cloned().collect();
        let surplus = all.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        let started = |job: &Job| job.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0);
        // Those that never started come last.
        all.sort_by_cached_key(|job| {
            (started(job).is_none(), started(job), job.metadata.name.clone().unwrap_or_default())
        });
        doomed.extend(all.into_iter().take(surplus));
    }
    doomed
}

/// Decides what becomes of a CronJob.
pub(super) fn plan(s: &Snapshot<'_>) -> Plan {
    let mut plan = Plan { status: s.cron.status.clone().unwrap_or_default(), ..Plan::default() };
    look_at_jobs(s, &mut plan);
    let spec = &s.cron.spec;
    if deleting(&s.cron.metadata) {
        return plan;
    }
    let zone = match zone(spec.time_zone.as_deref().unwrap_or_default()) {
        Ok(zone) => zone,
        Err(why) => {
            let name = quote(spec.time_zone.as_deref().unwrap_or_default());
            plan.events.push(Said(true, "UnknownTimeZone", format!("invalid timeZone: {name}: {why}")));
            return plan;
        }
    };
    if spec.suspend == Some(true) {
        return plan;
    }
    if spec.schedule.contains("TZ") {
        let text = format!(
            "CRON_TZ or TZ used in schedule {} is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
            quote(&spec.schedule)
        );
        plan.events.push(Said(true, "UnsupportedSchedule", text));
    }
    match Schedule::parse(&spec.schedule, zone) {
        Ok(schedule) => schedule_one(s, &mut plan, spec, &schedule),
        Err(why) => {
            let text = format!("unparseable schedule: {} : {why}", quote(&spec.schedule));
            plan.events.push(Said(true, "UnparseableSchedule", text));
        }
    }
    plan
}

/// Brings the status up to date with the Jobs.
fn look_at_jobs(s: &Snapshot<'_>, plan: &mut Plan) {
    let status = &mut plan.status;
    for job in s.jobs {
        let (known, name) = (is_active(status, uid(job)), job.metadata.name.as_deref().unwrap_or_default());
        let Some(end) = finished(job) else {
            if !known {
                let text = format!("Saw a job that the controller did not create or forgot: {name}");
                plan.events.push(Said(true, "UnexpectedJob", text));
            }
            continue;
        };
        if known {
            forget(status, uid(job));
            let text = format!("Saw completed job: {name}, condition: {}", end.type_);
            plan.events.push(Said(false, "SawCompletedJob", text));
            plan.changed = true;
        }
        let time = |t: &Option<Time>| t.as_ref().map(|t| t.0);
        let completed = job.status.as_ref().and_then(|s| s.completion_time.clone());
        if end.type_ == "Complete" && time(&completed) > time(&status.last_successful_time) {
            status.last_successful_time = completed;
            plan.changed = true;
        }
    }
    let lost: Vec<ObjectReference> = status.active.iter().flatten().cloned().collect();
    for reference in lost {
        let uid = reference.uid.as_deref().unwrap_or_default();
        if s.gone.contains(uid) {
            let text = format!("Active job went missing: {}", reference.name.as_deref().unwrap_or_default());
            plan.events.push(Said(false, "MissingJob", text));
            forget(status, uid);
            plan.changed = true;
        }
    }
}

/// Decides whether a Job is made now.
fn schedule_one(s: &Snapshot<'_>, plan: &mut Plan, spec: &CronJobSpec, schedule: &Schedule) {
    let now = s.now;
    let due = match recent(s.cron, now, schedule, true) {
        Ok(due) => due,
        Err(why) => {
            let text = format!("invalid schedule: {} : {why}", spec.schedule);
            plan.events.push(Said(true, "InvalidSchedule", text));
            return;
        }
    };
    plan.again = until_next(s.cron, now, schedule);
    let Some(time) = due.last else { return };
    if due.missed == Missed::Many {
        let text =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.events.push(Said(true, "TooManyMissedTimes", text.to_owned()));
    }
    let late = now.duration_since(time).as_millis();
    if spec.starting_deadline_seconds.is_some_and(|limit| late > i128::from(limit) * 1000) {
        let text =
            format!("Missed scheduled time to start a job: {}", time.strftime("%a, %d %b %Y %H:%M:%S +0000"));
        plan.events.push(Said(true, "MissSchedule", text));
        return;
    }
    let name = job_name(s.cron, time);
    let active = plan.status.active.clone().unwrap_or_default();
    let last = plan.status.last_schedule_time.as_ref().map(|t| t.0);
    if last == Some(time) || active.iter().any(|r| r.name.as_deref() == Some(&name)) {
        return;
    }
    let policy = spec.concurrency_policy.as_deref();
    if policy == Some("Forbid") && !active.is_empty() {
        let text = "Not starting job because prior execution is running and concurrency policy is Forbid";
        plan.events.push(Said(false, "JobAlreadyActive", text.to_owned()));
        return;
    }
    let replaced = if policy == Some("Replace") { active } else { Vec::new() };
    plan.start = Some(Start { time, replaced });
}

/// The name of the Job for a time: it is the same whoever makes it, so that there is one.
fn job_name(cron: &CronJob, time: Timestamp) -> String {
    let name = cron.metadata.name.as_deref().unwrap_or_default();
    format!("{name}-{}", time.as_second().div_euclid(60))
}

/// Makes the Job for a time.
pub(super) fn job(cron: &CronJob, time: Timestamp) -> Job {
    let spec = &cron.spec;
    let template = spec.job_template.clone();
    let from = template.metadata.unwrap_or_default();
    let zone = zone(spec.time_zone.as_deref().unwrap_or_default()).unwrap_or(TimeZone::UTC);
    let local = time.to_zoned(zone);
    let mut written = local.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    if local.offset().seconds() == 0 {
        written.push('Z');
    } else {
        written.push_str(&local.strftime("%:z").to_string());
    }
    let mut annotations = from.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.to_owned(), written);
    Job {
        metadata: ObjectMeta {
            name: Some(job_name(cron, time)),
            namespace: cron.metadata.namespace.clone(),
            labels: from.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_ref(cron)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// Notes in a status that a Job was made for a time.
pub(super) fn started(status: &mut CronJobStatus, reference: ObjectReference, time: Timestamp) {
    status.active.get_or_insert_default().push(reference);
    status.last_schedule_time = Some(whole_seconds(time));
}

/// Whether a Job still runs that a status does not name.
pub(super) fn is_unknown(status: Option<&CronJobStatus>, job: &Job) -> bool {
    !is_finished(job) && !status.is_some_and(|s| is_active(s, uid(job)))
}
