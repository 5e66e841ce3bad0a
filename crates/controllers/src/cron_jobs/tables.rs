//! Upstream's tables (`cronjob_controllerv2_test.go`, `utils_test.go`).

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::plan::{Snapshot, job, outdated, plan};
use super::schedule::Schedule;
use super::times::{Missed, recent, until_next};
use super::*;

fn at(text: &str) -> Timestamp {
    format!("2016-05-19T{text}Z").parse().unwrap()
}

fn cron(spec: Value, status: Value) -> CronJob {
    let mut all = json!({"schedule": "0 * * * *", "concurrencyPolicy": "Allow", "jobTemplate": {
        "metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}}, "spec": {"template": {}}}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let meta =
        json!({"name": "c", "namespace": "n", "uid": "u", "creationTimestamp": "2016-05-19T09:00:00Z"});
    serde_json::from_value(json!({"metadata": meta, "spec": all, "status": status})).unwrap()
}

fn child(name: &str, end: &str, started: &str) -> Arc<Job> {
    let conditions = if end.is_empty() { json!([]) } else { json!([{"type": end, "status": "True"}]) };
    let done = (end == "Complete").then(|| at("10:30:00").to_string());
    let status =
        json!({"conditions": conditions, "completionTime": done, "startTime": at(started).to_string()});
    let meta = json!({"name": name, "namespace": "n", "uid": name});
    Arc::new(
        serde_json::from_value(json!({"metadata": meta, "spec": {"template": {}}, "status": status}))
            .unwrap(),
    )
}

fn active(names: &[&str]) -> Value {
    let references: Vec<Value> =
        names.iter().map(|n| json!({"name": n, "namespace": "n", "uid": n})).collect();
    json!({ "active": references })
}

/// Decides at a time; returns the time for which a Job is made, and the reasons of Events.
fn decide(
    spec: Value,
    status: Value,
    jobs: &[Arc<Job>],
    now: &str,
) -> (Option<String>, Vec<&'static str>, Plan) {
    let cron = cron(spec, status);
    let snapshot = Snapshot { cron: &cron, jobs, gone: &HashSet::new(), now: at(now) };
    let plan = plan(&snapshot);
    let time = plan.start.as_ref().map(|s| s.time.strftime("%H:%M:%S").to_string());
    (time, plan.events.iter().map(|e| e.1).collect(), plan)
}

/// Cases of `TestControllerV2SyncCronJob`.
#[test]
fn whether_a_job_is_made() {
    let check = |spec: Value, status: Value, now: &str, start: Option<&str>, said: &[&str], again: bool| {
        let what = format!("{spec} {status} {now}");
        let (time, events, plan) = decide(spec, status, &[], now);
        assert_eq!(
            (time.as_deref(), events.as_slice(), plan.again.is_some()),
            (start, said, again),
            "{what}"
        );
    };
    let (hour, last) = ("10:00:00", |t: &str| json!({"lastScheduleTime": at(t).to_string()}));
    check(json!({}), json!({}), "09:30:00", None, &[], true);
    check(json!({}), json!({}), "10:00:01", Some(hour), &[], true);
    check(json!({}), last("10:00:00"), "10:30:00", None, &[], true);
    check(json!({}), last("10:00:00"), "11:00:01", Some("11:00:00"), &[], true);
    check(json!({"suspend": true}), json!({}), "10:00:01", None, &[], false);
    check(json!({"startingDeadlineSeconds": 10}), json!({}), "10:00:05", Some(hour), &[], true);
    check(json!({"startingDeadlineSeconds": 10}), json!({}), "10:05:00", None, &[], true);
    check(
        json!({"schedule": "not a schedule"}),
        json!({}),
        "10:00:01",
        None,
        &["UnparseableSchedule"],
        false,
    );
    check(json!({"schedule": "59 23 31 2 *"}), json!({}), "10:00:01", None, &["InvalidSchedule"], false);
    check(json!({"timeZone": "Mars/Olympus"}), json!({}), "10:00:01", None, &["UnknownTimeZone"], false);
    check(
        json!({"schedule": "TZ=UTC 0 * * * *"}),
        json!({}),
        "10:00:01",
        Some(hour),
        &["UnsupportedSchedule"],
        true,
    );
    check(
        json!({"timeZone": "Pacific/Honolulu", "schedule": "0 0 * * *"}),
        json!({}),
        "10:00:01",
        Some(hour),
        &[],
        true,
    );
    check(
        json!({"timeZone": "Pacific/Honolulu", "schedule": "0 0 * * *"}),
        json!({}),
        "09:59:01",
        None,
        &[],
        true,
    );
    check(json!({"schedule": "* * * * *"}), json!({}), "10:40:30", Some("10:40:00"), &[], true);
    check(
        json!({"schedule": "* * * * *"}),
        json!({}),
        "10:41:30",
        Some("10:41:00"),
        &["TooManyMissedTimes"],
        true,
    );
    check(json!({"concurrencyPolicy": "Forbid"}), json!({}), "10:00:01", Some(hour), &[], true);
    check(
        json!({"concurrencyPolicy": "Forbid"}),
        active(&["j"]),
        "10:00:01",
        None,
        &["JobAlreadyActive"],
        true,
    );
    check(json!({}), active(&["j"]), "10:00:01", Some(hour), &[], true);
    check(json!({}), active(&["c-24394200"]), "10:00:01", None, &[], true);
    let (_, _, plan) = decide(json!({"concurrencyPolicy": "Replace"}), active(&["j"]), &[], "10:00:01");
    assert_eq!(plan.start.unwrap().replaced.len(), 1);
}

/// Cases of `TestControllerV2UpdateCronJob` and of the status.
#[test]
fn the_status_follows_the_jobs() {
    let check =
        |status: Value, jobs: &[Arc<Job>], gone: &[&str], left: &[&str], said: &[&str], changed: bool| {
            let cron = cron(json!({"suspend": true}), status);
            let gone = gone.iter().map(|n| (*n).to_owned()).collect();
            let plan = plan(&Snapshot { cron: &cron, jobs, gone: &gone, now: at("10:00:00") });
            let names: Vec<_> =
                plan.status.active.iter().flatten().filter_map(|r| r.name.as_deref()).collect();
            let events: Vec<_> = plan.events.iter().map(|e| e.1).collect();
            assert_eq!((names.as_slice(), events.as_slice(), plan.changed), (left, said, changed));
            plan.status.last_successful_time.is_some()
        };
    let (done, failed, runs) =
        (child("d", "Complete", hour()), child("f", "Failed", hour()), child("r", "", hour()));
    assert!(!check(active(&["r"]), std::slice::from_ref(&runs), &[], &["r"], &[], false));
    assert!(check(
        active(&["d", "r"]),
        &[done.clone(), runs.clone()],
        &[],
        &["r"],
        &["SawCompletedJob"],
        true
    ));
    assert!(check(json!({}), &[done], &[], &[], &[], true), "it need not be known");
    assert!(!check(active(&["f"]), &[failed], &[], &[], &["SawCompletedJob"], true));
    assert!(!check(json!({}), &[runs], &[], &[], &["UnexpectedJob"], false));
    assert!(!check(active(&["x", "y"]), &[], &["x"], &["y"], &["MissingJob"], true));
}

fn hour() -> &'static str {
    "10:00:00"
}

/// Cases of `TestControllerV2CleanupFinishedJobs`.
#[test]
fn history() {
    let all = [
        child("a", "Complete", "04:00:00"),
        child("b", "Complete", "05:00:00"),
        child("c", "Failed", "06:00:00"),
        child("d", "Failed", "06:00:00"),
        child("e", "", "03:00:00"),
    ];
    let check = |succeeded: Option<i32>, failed: Option<i32>, want: &[&str]| {
        let limits = json!({"successfulJobsHistoryLimit": succeeded, "failedJobsHistoryLimit": failed});
        let doomed = outdated(&cron(limits, json!({})), &all);
        let names: Vec<&str> = doomed.iter().map(|j| j.name()).collect();
        assert_eq!(names, want, "{succeeded:?} {failed:?}");
    };
    check(Some(1), Some(1), &["a", "c"]);
    check(Some(0), Some(0), &["a", "b", "c", "d"]);
    check(None, Some(1), &["c"]);
    check(Some(5), None, &[]);
    check(None, None, &[]);
}

/// Cases of `TestMostRecentScheduleTime` and `TestNextScheduleTimeDuration`.
#[test]
fn missed_times() {
    let check = |text: &str,
                 status: Value,
                 deadline: Option<i64>,
                 now: &str,
                 want: Result<(Option<&str>, Missed), ()>| {
        let cron = cron(json!({"schedule": text, "startingDeadlineSeconds": deadline}), status);
        let schedule = Schedule::parse(text, TimeZone::UTC).unwrap();
        let now: Timestamp = now.parse().unwrap();
        let got = recent(&cron, now, &schedule, true).map_err(drop).map(|r| (r.last, r.missed));
        let want = want.map(|(last, missed)| (last.map(|t| t.parse().unwrap()), missed));
        assert_eq!(got, want, "{text} {now}");
        let next = until_next(&cron, now, &schedule);
        assert!(next.is_none_or(|n| n <= std::time::Duration::from_hours(24 * 366)), "{next:?}");
    };
    let none = json!({});
    check("0 * * * *", none.clone(), None, "2016-05-19T09:30:00Z", Ok((None, Missed::None)));
    check(
        "0 * * * *",
        none.clone(),
        None,
        "2016-05-19T10:30:00Z",
        Ok((Some("2016-05-19T10:00:00Z"), Missed::None)),
    );
    check(
        "0 * * * *",
        none.clone(),
        None,
        "2016-05-19T15:30:00Z",
        Ok((Some("2016-05-19T15:00:00Z"), Missed::Few)),
    );
    check(
        "0 * * * *",
        none.clone(),
        None,
        "2016-05-29T10:30:00Z",
        Ok((Some("2016-05-29T10:00:00Z"), Missed::Many)),
    );
    let late = Ok((Some("2016-05-29T10:00:00Z"), Missed::None));
    check("0 * * * *", none.clone(), Some(3600), "2016-05-29T10:30:00Z", late);
    check(
        "30 6-16/4 * * 1-5",
        none.clone(),
        None,
        "2016-05-23T08:00:00Z",
        Ok((Some("2016-05-23T06:30:00Z"), Missed::Few)),
    );
    check(
        "@every 1h",
        none.clone(),
        None,
        "2016-05-19T11:10:00Z",
        Ok((Some("2016-05-19T11:00:00Z"), Missed::Few)),
    );
    let last = json!({"lastScheduleTime": "2016-05-19T10:00:00Z"});
    check("0 * * * *", last, None, "2016-05-19T10:59:59Z", Ok((None, Missed::None)));
    check("59 23 31 2 *", none.clone(), None, "2016-05-19T10:00:00Z", Err(()));
    // Decades of minutes are not counted one by one.
    check("* * * * *", none, None, "2096-05-19T10:00:00Z", Ok((Some("2096-05-19T10:00:00Z"), Missed::Many)));
}

/// Cases of `TestGetJobFromTemplate2`.
#[test]
fn jobs() {
    let check = |zone: Option<&str>, want: &str| {
        let cron = cron(json!({ "timeZone": zone }), json!({}));
        let job = job(&cron, at("10:00:00"));
        assert_eq!((job.name(), job.namespace()), ("c-24394200", "n"));
        let said = |key: &str| job.metadata.annotations.as_ref().unwrap().get(key).cloned();
        assert_eq!(said("batch.kubernetes.io/cronjob-scheduled-timestamp").as_deref(), Some(want));
        assert_eq!(said("x").as_deref(), Some("y"));
        assert_eq!(job.metadata.labels.as_ref().unwrap()["a"], "b");
        assert_eq!(controller_of(&job.metadata).unwrap().uid, "u");
    };
    check(None, "2016-05-19T10:00:00Z");
    check(Some("UTC"), "2016-05-19T10:00:00Z");
    check(Some("Europe/Rome"), "2016-05-19T12:00:00+02:00");
    check(Some("Asia/Tokyo"), "2016-05-19T19:00:00+09:00");
    check(Some("America/St_Johns"), "2016-05-19T07:30:00-02:30");
}
