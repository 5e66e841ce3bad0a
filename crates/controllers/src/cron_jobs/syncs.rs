//! Upstream's tables of whole syncs and of times, row by row (`cronjob_controllerv2_test.go`, `utils_test.go`).

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::plan::{Snapshot, is_active, job, outdated, plan, started};
use super::schedule::Schedule;
use super::times::{Missed, recent, until_next};
use super::*;

/// One row of `TestControllerV2SyncCronJob`; what is not written is not so.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    policy: String,
    #[serde(default)]
    suspend: bool,
    schedule: String,
    zone: Option<String>,
    deadline: Option<i64>,
    limit: Option<i32>,
    /// Whether a Job was made before, and whether it still runs.
    #[serde(default)]
    ran: bool,
    #[serde(default)]
    active: bool,
    /// Whether the status names that Job, and whether the cache does not show it.
    #[serde(default)]
    known: bool,
    #[serde(default)]
    unlisted: bool,
    created: Option<Timestamp>,
    made: Timestamp,
    last: Option<Timestamp>,
    now: Timestamp,
    #[serde(default)]
    create: bool,
    #[serde(default)]
    delete: bool,
    #[serde(default)]
    completed: bool,
    #[serde(default)]
    warnings: usize,
    /// The milliseconds after which it is looked at again.
    again: Option<u64>,
    #[serde(default)]
    update: bool,
}

fn at(text: &str) -> Timestamp {
    format!("2016-05-19T{text}Z").parse().unwrap()
}

/// A time after ten o'clock.
fn after(hours: i64, minutes: i64, seconds: i64) -> Timestamp {
    at("10:00:00") + SignedDuration::from_secs(hours * 3600 + minutes * 60 + seconds)
}

fn cron(created: Timestamp, last: Option<Timestamp>, spec: Value) -> CronJob {
    let mut all = json!({"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": {}}}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let meta = json!({"name": "mycronjob", "namespace": "snazzycats", "uid": "1a2b3c",
        "creationTimestamp": created.to_string()});
    let status = json!({"lastScheduleTime": last.map(|t| t.to_string())});
    serde_json::from_value(json!({"metadata": meta, "spec": all, "status": status})).unwrap()
}

impl Row {
    fn cron(&self) -> CronJob {
        let usual = if self.ran { at("08:59:00") } else { at("09:59:00") };
        let last = self.ran.then(|| self.last.unwrap_or_else(|| at("09:01:00")));
        let spec = json!({
            "concurrencyPolicy": self.policy, "suspend": self.suspend, "schedule": self.schedule,
            "timeZone": self.zone, "startingDeadlineSeconds": self.deadline,
            "successfulJobsHistoryLimit": self.limit,
        });
        cron(self.created.unwrap_or(usual), last, spec)
    }

    /// The Job that was made before.
    fn job(&self, cron: &CronJob) -> Job {
        let mut made = job(cron, self.made);
        made.metadata.uid = Some("1234".to_owned());
        if !self.active {
            let done = self.made + SignedDuration::from_secs(10);
            let status = json!({"completionTime": done.to_string(),
                "conditions": [{"type": "Complete", "status": "True"}]});
            made.status = serde_json::from_value(status).unwrap();
        }
        made
    }

    fn check(&self) {
        let name = &self.name;
        let mut cron = self.cron();
        let made = self.job(&cron);
        let jobs = if self.ran && !self.unlisted { vec![Arc::new(made.clone())] } else { Vec::new() };
        // The server's status names a Job that runs.
        let missing = jobs.iter().any(|job| is_unknown(cron.status.as_ref(), job));
        if self.ran && (self.known || missing) {
            cron.status.as_mut().unwrap().active = Some(vec![reference(&made)]);
        }
        let plan = plan(&Snapshot { cron: &cron, jobs: &jobs, gone: &HashSet::new(), now: self.now });
        let start = plan.start.as_ref();
        let replaced = start.is_some_and(|s| !s.replaced.is_empty());
        assert_eq!((start.is_some(), replaced), (self.create, self.delete), "{name}");
        assert_eq!(plan.changed || start.is_some(), self.update, "{name}");
        let warnings = plan.events.iter().filter(|said| said.0).count();
        let refused = usize::from(name == "still active, is time, F");
        let events = warnings + usize::from(self.completed) + refused;
        assert_eq!((warnings, plan.events.len()), (self.warnings, events), "{name} {:?}", plan.events);
        if let Some(again) = self.again {
            assert_eq!(plan.again, Some(Duration::from_millis(again)), "{name}");
        }
        if self.ran && !self.active {
            let succeeded = plan.status.last_successful_time.map(|t| t.0);
            assert_eq!(succeeded, Some(self.made + SignedDuration::from_secs(10)), "{name}");
        }
    }
}

/// 70 of upstream's 74 cases of `TestControllerV2SyncCronJob`; requests fail in the others. Upstream's expected numbers
/// of active Jobs are left out: its test does not compare them.
#[test]
fn syncs() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("cases/syncs.json")).unwrap();
    assert_eq!(rows.len(), 70);
    rows.iter().for_each(Row::check);
}

/// Upstream's cases of `TestNextScheduleTime`.
#[test]
fn the_time_that_is_due() {
    let check =
        |schedule: &str, deadline: Option<i64>, times: [Option<Timestamp>; 3], want: Result<_, ()>| {
            let [created, last, now] = times;
            let cron = cron(created.unwrap(), last, json!({"startingDeadlineSeconds": deadline}));
            let schedule = Schedule::parse(schedule, TimeZone::UTC).unwrap();
            let due = recent(&cron, now.unwrap(), &schedule, true).map(|r| r.last).map_err(drop);
            assert_eq!(due, want, "{times:?}");
        };
    let hourly = "0 * * * ?";
    let (before, t1, t2) = (Some(after(0, -10, 0)), after(0, 0, 0), after(1, 0, 0));
    check(hourly, None, [before, None, Some(after(0, -7, 0))], Ok(None));
    check(hourly, None, [before, None, Some(after(0, 0, 2))], Ok(Some(t1)));
    check(hourly, None, [before, Some(t1), Some(after(0, 2, 0))], Ok(None));
    check(hourly, None, [before, Some(t1), Some(after(1, 5, 0))], Ok(Some(t2)));
    let (early, hour_ago) = (Some(after(-2, 0, 0)), Some(after(-1, 0, 0)));
    check(hourly, None, [early, hour_ago, Some(after(1, 5, 0))], Ok(Some(t2)));
    let long_after = after(241, 0, 0);
    check(hourly, None, [early, hour_ago, Some(long_after)], Ok(Some(long_after)));
    check(hourly, Some(2 * 60 * 60), [early, hour_ago, Some(long_after)], Ok(Some(long_after)));
    check("59 23 31 2 *", None, [Some(after(0, 0, 10)), None, Some(t2)], Err(()));
}

/// Upstream's cases of `TestMostRecentScheduleTime`.
#[test]
fn the_last_time() {
    type Want = Option<(Timestamp, Option<Timestamp>, Missed)>;
    let check = |schedule: &str,
                 (created, last): (Timestamp, Option<Timestamp>),
                 (deadline, counts): (Option<i64>, bool),
                 now: Timestamp,
                 want: Want| {
        let cron = cron(created, last, json!({"startingDeadlineSeconds": deadline}));
        let parsed = Schedule::parse(schedule, TimeZone::UTC).unwrap();
        let got = recent(&cron, now, &parsed, counts).ok().map(|r| (r.earliest, r.last, r.missed));
        assert_eq!(got, want, "{schedule} {now}");
    };
    let (top, half, none) = (after(0, 0, 0), after(0, 30, 0), (None, false));
    let hourly = "0 * * * *";
    check(hourly, (top, None), none, after(0, 0, 30), Some((top, None, Missed::None)));
    check(hourly, (top, None), none, after(0, 61, 0), Some((top, Some(after(1, 0, 0)), Missed::None)));
    let late = after(0, 0, 10);
    check(hourly, (late, None), none, after(0, 301, 0), Some((late, Some(after(5, 0, 0)), Missed::Few)));
    let odd = "30 6-16/4 * * 1-5";
    let day = Some((half, Some(after(24, 30, 0)), Missed::Few));
    check(odd, (top, Some(half)), none, after(24, 31, 0), day);
    let next_day = after(30, 30, 0);
    check("30 10,11,12 * * 1-5", (top, Some(half)), none, next_day, Some((half, None, Missed::Few)));
    let days = Some((half, Some(after(96, 30, 0)), Missed::Few));
    check(odd, (top, Some(half)), none, after(96, 31, 0), days);
    let day = Some((top, Some(after(24, 30, 0)), Missed::Few));
    check(odd, (top, None), none, after(24, 31, 0), day);
    let (created, minute) = (after(0, -59, 0), after(0, 1, 0));
    let week = Some((minute, Some(after(6 * 24 + 23, 1, 0)), Missed::Many));
    check("@every 1h", (created, Some(minute)), (Some(10), false), after(7 * 24, 0, 0), week);
    check("59 23 31 2 *", (late, None), none, after(1, 0, 0), None);
    check(hourly, (top, Some(top)), none, after(0, 0, 30), Some((top, None, Missed::None)));
    let five = "*/5 * * * *";
    check(five, (top, Some(half)), none, after(0, 31, 0), Some((half, None, Missed::None)));
    check(five, (top, Some(half)), (Some(60), false), after(0, 31, 0), Some((half, None, Missed::None)));
    let cut = Some((after(0, 31, 0), None, Missed::None));
    check(five, (top, Some(half)), (Some(60), true), after(0, 32, 0), cut);
}

/// Upstream's cases of `TestNextScheduleTimeDuration`.
#[test]
fn the_wait() {
    let check = |schedule: &str, last: Option<Timestamp>, now: Timestamp, (hours, minutes): (u64, u64)| {
        let cron = cron(after(0, 0, 0), last, json!({}));
        let parsed = Schedule::parse(schedule, TimeZone::UTC).unwrap();
        let want = Duration::from_secs(hours * 3600 + minutes * 60) + Duration::from_millis(100);
        assert_eq!(until_next(&cron, now, &parsed), Some(want), "{schedule}");
    };
    let half = Some(after(0, 30, 0));
    check("30 6-16/4 * * 1-5", half, after(24, 31, 0), (3, 59));
    check("30 10,11,12 * * 1-5", half, after(30, 30, 0), (66, 0));
    check("0 12 * * 4", Some(after(2, 0, 0)), after(19 * 24 + 1, 30, 0), (48, 30));
    check("0 12 * * 5", None, after(6, 0, 0), (20, 0));
}

fn finished(name: &str, started: Option<&str>) -> Arc<Job> {
    let status = json!({"startTime": started, "conditions": [{"type": "Complete", "status": "True"}]});
    let meta = json!({"name": name, "uid": name});
    let job = json!({"metadata": meta, "spec": {"template": {}}, "status": status});
    Arc::new(serde_json::from_value(job).unwrap())
}

/// Upstream's cases of `TestByJobStartTime`.
#[test]
fn the_order_of_old_jobs() {
    let (now, later) = (Some("2018-01-01T02:03:04Z"), Some("2019-01-01T02:03:04Z"));
    let check = |first: (&str, Option<&str>), second: (&str, Option<&str>), want: [&str; 2]| {
        let jobs = [finished(first.0, first.1), finished(second.0, second.1)];
        let cron = cron(after(0, 0, 0), None, json!({"successfulJobsHistoryLimit": 0}));
        let names: Vec<String> = outdated(&cron, &jobs).iter().map(|j| j.name().to_owned()).collect();
        assert_eq!(names, want, "{first:?} {second:?}");
    };
    check(("b", None), ("a", None), ["a", "b"]);
    check(("a", None), ("b", now), ["b", "a"]);
    check(("a", now), ("b", None), ["a", "b"]);
    check(("b", now), ("a", now), ["a", "b"]);
    check(("a", later), ("b", now), ["b", "a"]);
}

/// Upstream's cases of `TestControllerV2CleanupFinishedJobs`.
#[test]
fn old_jobs() {
    let check = |limit: i32, jobs: &[Arc<Job>], want: &[&str]| {
        let last = Some(at("09:01:00"));
        let cron = cron(after(-2, 0, 0), last, json!({"successfulJobsHistoryLimit": limit}));
        let names: Vec<String> = outdated(&cron, jobs).iter().map(|j| j.name().to_owned()).collect();
        assert_eq!(names, want, "{limit}");
    };
    let old = finished("finished-job-started-hour-ago", Some("2016-05-19T08:59:00Z"));
    let new = finished("finished-job-started-minute-ago", Some("2016-05-19T09:59:00Z"));
    check(1, &[old.clone(), new], &["finished-job-started-hour-ago"]);
    check(2, &[old], &[]);
}

/// The Jobs of upstream's `TestControllerV2JobAlreadyExistsButNotInActiveStatus` and
/// `TestControllerV2JobAlreadyExistsButDifferentOwner`.
#[test]
fn jobs_that_are_there_already() {
    let check = |owned: bool| {
        let spec = json!({"concurrencyPolicy": "Forbid", "schedule": "@every 1h"});
        let mut cron = cron(at("09:59:00"), Some(at("08:59:00")), spec);
        let mut made = job(&cron, at("09:01:00"));
        made.metadata.uid = Some("1234".to_owned());
        if !owned {
            made.metadata.owner_references = None;
        }
        assert_eq!(is_ours(&cron, &made), owned);
        if !owned {
            return;
        }
        let none = &HashSet::new();
        let due = plan(&Snapshot { cron: &cron, jobs: &[], gone: none, now: at("09:59:00") }).start.unwrap();
        let status = cron.status.get_or_insert_default();
        assert!(!is_active(status, "1234"));
        started(status, reference(&made), due.time);
        assert_eq!(status.active, Some(vec![reference(&made)]));
        assert_eq!(status.last_schedule_time.as_ref().map(|t| t.0), Some(at("09:59:00")));
    };
    check(true);
    check(false);
}
