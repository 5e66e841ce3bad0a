//! Upstream's tables of whole syncs (`job_controller_test.go`). The step of a plan succeeds here, and so do all writes,
//! unless a case says otherwise.

use serde_json::{Value, json};

use super::*;
use crate::views::tests::view;

mod failures;
mod indexed;

const NOW: i64 = 1_000_000;

/// The state before a sync. Fields are upstream's.
#[derive(Default, Clone)]
struct Given {
    parallelism: i32,
    /// -1 for none.
    completions: i32,
    limit: i32,
    indexed: bool,
    suspended: bool,
    was_suspended: bool,
    deleting: bool,
    /// Pods are replaced only once they have failed.
    failed_only: bool,
    spec: Value,
    status: Value,
    backoff: Backoff,
    /// The number of Pods: pending, active, of those ready, succeeded, failed, terminating.
    pods: [usize; 6],
    /// Pods by index (-1 for none) and phase.
    by_index: Vec<(i64, &'static str)>,
    /// Whether the cache is behind.
    unsettled: bool,
    /// Whether every write of a Pod fails; the number of Pods that can be made otherwise.
    broken: bool,
    room: Option<usize>,
}

/// The state after a sync.
#[derive(Debug, Default, PartialEq)]
struct Got {
    created: usize,
    deleted: usize,
    active: i32,
    ready: i32,
    succeeded: i32,
    failed: i32,
    terminating: i32,
    completed: String,
    /// The conditions that are true, or were.
    conditions: Vec<&'static str>,
    /// The indexes of new Pods.
    indexes: Vec<i64>,
}

const CONDITIONS: [&str; 5] = ["SuccessCriteriaMet", "FailureTarget", "Complete", "Failed", "Suspended"];

fn job(g: &Given) -> Job {
    let mut spec = json!({
        "parallelism": g.parallelism, "backoffLimit": g.limit, "suspend": g.suspended,
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}},
    });
    let fields = spec.as_object_mut().unwrap();
    if g.completions >= 0 {
        fields.insert("completions".into(), json!(g.completions));
    }
    if g.indexed {
        fields.insert("completionMode".into(), json!("Indexed"));
    }
    if g.failed_only {
        fields.insert("podReplacementPolicy".into(), json!("Failed"));
    }
    fields.extend(g.spec.as_object().cloned().unwrap_or_default());
    let mut status = if g.status.is_null() { json!({}) } else { g.status.clone() };
    if g.was_suspended {
        status["conditions"] = json!([{"type": "Suspended", "status": "True"}]);
    }
    let mut meta = json!({"name": "j", "namespace": "n", "uid": "u"});
    if g.deleting {
        meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": status})).unwrap()
}

fn pods(g: &Given) -> Vec<Arc<PodView>> {
    let mut all = Vec::new();
    let mut add = |phase: &str, ready: bool, going: bool, index: i64| {
        let uid = format!("p{:03}", all.len());
        let mut meta = json!({"name": uid, "uid": uid, "namespace": "n", "finalizers": [TRACKING],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]});
        if going {
            meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        if index >= 0 {
            meta["annotations"] = json!({"batch.kubernetes.io/job-completion-index": index.to_string()});
        }
        let conditions = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
        let node = if phase == "Pending" { "" } else { "node" };
        all.push(Arc::new(view(&json!({
            "metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase, "conditions": conditions},
        }))));
    };
    let [pending, active, ready, succeeded, failed, terminating] = g.pods;
    for _ in 0..pending {
        add("Pending", false, false, -1);
    }
    for i in 0..active {
        add("Running", i < ready, false, -1);
    }
    for _ in 0..succeeded {
        add("Succeeded", false, false, -1);
    }
    for _ in 0..failed {
        add("Failed", false, false, -1);
    }
    for _ in 0..terminating {
        add("Running", false, true, -1);
    }
    for (index, phase) in &g.by_index {
        add(phase, false, false, *index);
    }
    all
}

/// Makes one sync.
fn sync(g: &Given) -> Got {
    run(g, &job(g), &pods(g)).0
}

/// Makes one sync of a Job and its Pods; returns its status too.
fn run(g: &Given, job: &Job, pods: &[Arc<PodView>]) -> (Got, JobStatus) {
    let rules = Rules(job.spec.as_ref().unwrap());
    let none = std::collections::HashSet::new();
    let snapshot = Snapshot {
        job,
        rules,
        pods,
        released: &none,
        settled: !g.unsettled,
        backoff: g.backoff,
        suspended_anew: true,
        now: jiff::Timestamp::from_second(NOW).unwrap(),
    };
    let plan = plan::plan(&snapshot);
    let mut outcome = Outcome::default();
    let mut indexes = Vec::new();
    match &plan.step {
        Step::End(doomed) | Step::Delete(doomed) if !g.broken => {
            outcome.deleted = doomed.len();
            outcome.deleted_ready = doomed.iter().filter(|p| p.is_ready()).count();
        }
        Step::Create(new) if !g.broken => {
            outcome.created = new.len().min(g.room.unwrap_or(usize::MAX));
            indexes = new.iter().filter_map(|n| n.index).collect();
        }
        _ => {}
    }
    let mut tracking = tracking::track(&snapshot, plan, outcome);
    let mut status = tracking.status.clone();
    if !g.broken {
        for pod in &tracking.release {
            tracking.held.remove(pod.uid());
        }
        tracking::settle(&mut status, &tracking.held);
        tracking.finish(&mut status, snapshot.now);
    }
    let number = |n: Option<i32>| n.unwrap_or(0);
    let said =
        |kind: &&str| status.conditions.iter().flatten().any(|c| c.type_ == *kind && c.status == "True");
    let got = Got {
        created: outcome.created,
        deleted: outcome.deleted,
        active: number(status.active),
        ready: number(status.ready),
        succeeded: number(status.succeeded),
        failed: number(status.failed),
        terminating: number(status.terminating),
        completed: status.completed_indexes.clone().unwrap_or_default(),
        conditions: CONDITIONS.iter().filter(|c| said(c)).copied().collect(),
        indexes,
    };
    (got, status)
}

fn check(name: &str, given: &Given, want: Got) {
    assert_eq!(sync(given), want, "{name}");
}

fn given(parallelism: i32, completions: i32, pods: [usize; 6]) -> Given {
    Given { parallelism, completions, limit: 6, pods, ..Given::default() }
}

/// The figures of a status: active, ready, succeeded, failed, terminating.
fn got(created: usize, deleted: usize, figures: [i32; 5], conditions: &[&'static str]) -> Got {
    let [active, ready, succeeded, failed, terminating] = figures;
    let conditions = conditions.to_vec();
    Got { created, deleted, active, ready, succeeded, failed, terminating, conditions, ..Got::default() }
}

const DONE: &[&str] = &["SuccessCriteriaMet", "Complete"];
const FAILED: &[&str] = &["FailureTarget", "Failed"];

/// Cases of `TestControllerSyncJob` without indexes.
#[test]
fn numbers_of_pods() {
    let g = given;
    check("job start", &g(2, 5, [0; 6]), got(2, 0, [2, 0, 0, 0, 0], &[]));
    check("WQ job start", &g(2, -1, [0; 6]), got(2, 0, [2, 0, 0, 0, 0], &[]));
    check("pending pods", &g(2, 5, [2, 0, 0, 0, 0, 0]), got(0, 0, [2, 0, 0, 0, 0], &[]));
    check("correct # of pods", &g(3, 5, [0, 3, 2, 0, 0, 0]), got(0, 0, [3, 2, 0, 0, 0], &[]));
    check("WQ job: correct # of pods", &g(2, -1, [0, 2, 0, 0, 0, 0]), got(0, 0, [2, 0, 0, 0, 0], &[]));
    check("too few active pods", &g(2, 5, [0, 1, 0, 1, 0, 0]), got(1, 0, [2, 0, 1, 0, 0], &[]));
    let failed_only =
        |parallelism, completions, pods| Given { failed_only: true, ..g(parallelism, completions, pods) };
    check(
        "WQ job: recreate pods when failed",
        &failed_only(1, -1, [0, 1, 0, 0, 1, 1]),
        got(0, 0, [1, 0, 0, 1, 1], &[]),
    );
    check(
        "WQ job: recreate pods when terminating or failed",
        &g(1, -1, [0, 1, 0, 0, 1, 1]),
        got(0, 0, [1, 0, 0, 2, 1], &[]),
    );
    check(
        "more terminating pods than parallelism",
        &failed_only(1, 1, [0, 2, 0, 0, 0, 4]),
        got(0, 1, [1, 0, 0, 0, 5], &[]),
    );
    let policy = Given { spec: json!({"podFailurePolicy": {"rules": []}}), ..g(1, 1, [0, 2, 0, 0, 0, 4]) };
    check(
        "more terminating pods than parallelism; PodFailurePolicy used",
        &policy,
        got(0, 1, [1, 0, 0, 0, 5], &[]),
    );
    check(
        "too few active pods with a dynamic job",
        &g(2, -1, [0, 1, 0, 0, 0, 0]),
        got(1, 0, [2, 0, 0, 0, 0], &[]),
    );
    let broken = |pods| Given { broken: true, ..g(2, 5, pods) };
    check(
        "too few active pods, with controller error",
        &broken([0, 1, 0, 1, 0, 0]),
        got(0, 0, [1, 0, 0, 0, 0], &[]),
    );
    check("too many active pods", &g(2, 5, [0, 3, 0, 0, 0, 0]), got(0, 1, [2, 0, 0, 0, 1], &[]));
    check(
        "too many active pods, with controller error",
        &broken([0, 3, 0, 0, 0, 0]),
        got(0, 0, [3, 0, 0, 0, 0], &[]),
    );
    check(
        "count ready pods when too many active pods",
        &g(2, 5, [0, 3, 3, 0, 0, 0]),
        got(0, 1, [2, 2, 0, 0, 1], &[]),
    );
    check(
        "failed + succeed pods: reset backoff delay",
        &g(2, 5, [0, 1, 0, 1, 1, 0]),
        got(1, 0, [2, 0, 1, 1, 0], &[]),
    );
    check(
        "only new failed pod with controller error",
        &broken([0, 1, 0, 0, 1, 0]),
        got(0, 0, [1, 0, 0, 0, 0], &[]),
    );
    check("job finish", &g(2, 5, [0, 0, 0, 5, 0, 0]), got(0, 0, [0, 0, 5, 0, 0], DONE));
    check("WQ job finishing", &g(2, -1, [0, 1, 0, 1, 0, 0]), got(0, 0, [1, 0, 1, 0, 0], &[]));
    check("WQ job all finished", &g(2, -1, [0, 0, 0, 2, 0, 0]), got(0, 0, [0, 0, 2, 0, 0], DONE));
    check(
        "WQ job all finished despite one failure",
        &g(2, -1, [0, 0, 0, 1, 1, 0]),
        got(0, 0, [0, 0, 1, 1, 0], DONE),
    );
    check(
        "more active pods than parallelism",
        &g(2, 5, [0, 10, 0, 0, 0, 0]),
        got(0, 8, [2, 0, 0, 0, 8], &[]),
    );
    check(
        "more active pods than remaining completions",
        &g(3, 4, [0, 3, 0, 2, 0, 0]),
        got(0, 1, [2, 0, 2, 0, 1], &[]),
    );
    let started = Given { status: json!({"failed": 1, "active": 1}), ..g(1, 1, [0, 1, 0, 0, 0, 0]) };
    check("no new pod; possible finalizer update of failed pod", &started, got(0, 0, [1, 0, 0, 1, 0], &[]));
}

/// Cases of `TestControllerSyncJob` about limits, delays and the end.
#[test]
fn limits() {
    let g = given;
    let last = jiff::Timestamp::from_second(NOW).ok();
    let backoff = |failures, pods| Given { backoff: Backoff { failures, last }, ..g(1, 1, pods) };
    check("too few active pods and active back-off", &backoff(1, [0; 6]), got(0, 0, [0; 5], &[]));
    check("too few active pods and no back-offs", &backoff(0, [0; 6]), got(1, 0, [1, 0, 0, 0, 0], &[]));
    let limit = |limit, pods| Given { limit, ..g(1, 1, pods) };
    check("exceeded backoffLimit", &limit(0, [0, 0, 0, 0, 1, 0]), got(0, 0, [0, 0, 0, 1, 0], FAILED));
    // The end waits until the Pods that were deleted are gone.
    check(
        "it waits for its Pods",
        &limit(0, [0, 1, 1, 0, 1, 0]),
        got(0, 1, [0, 0, 0, 2, 1], &["FailureTarget"]),
    );
    let behind = Given { unsettled: true, ..limit(0, [0, 0, 0, 0, 1, 0]) };
    check("it waits for its cache", &behind, got(0, 0, [0, 0, 0, 1, 0], &[]));
    let restarts = |restarts: i32, limit: i32| {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "OnFailure", "containers": []}});
        let mut g = Given { limit, spec: json!({ "template": template }), ..g(1, 1, [0; 6]) };
        g.completions = 1;
        let job = job(&g);
        let pod = view(
            &json!({"metadata": {"uid": "p"}, "status": {"phase": "Running", "containerStatuses": [
            {"name": "c", "restartCount": restarts}], "initContainerStatuses": [{"name": "i", "restartCount": 0}]}}),
        );
        let none = std::collections::HashSet::new();
        let snapshot = Snapshot {
            job: &job,
            rules: Rules(job.spec.as_ref().unwrap()),
            pods: &[Arc::new(pod)],
            released: &none,
            settled: true,
            backoff: Backoff::default(),
            suspended_anew: true,
            now: jiff::Timestamp::from_second(NOW).unwrap(),
        };
        plan::plan(&snapshot).ending.and_then(|c| c.reason)
    };
    // Cases of `TestJobBackoffForOnFailure`.
    for (count, limit, fails) in
        [(0, 0, false), (1, 0, true), (0, 1, false), (1, 1, true), (1, 2, false), (2, 2, true)]
    {
        let want = fails.then(|| "BackoffLimitExceeded".to_owned());
        assert_eq!(restarts(count, limit), want, "{count} of {limit}");
    }
    // Cases of `TestSyncJobPastDeadline`.
    let begun = |ago: i64| jiff::Timestamp::from_second(NOW - ago).unwrap().to_string();
    let deadline = |ago: i64, pods| Given {
        spec: json!({"activeDeadlineSeconds": 10}),
        status: json!({"startTime": begun(ago)}),
        ..g(1, 1, pods)
    };
    check(
        "past its deadline",
        &deadline(15, [0, 1, 0, 0, 0, 0]),
        got(0, 1, [0, 0, 0, 1, 1], &["FailureTarget"]),
    );
    check("past its deadline with a success", &deadline(15, [0; 6]), got(0, 0, [0; 5], FAILED));
    check("exactly its deadline", &deadline(10, [0; 6]), got(0, 0, [0; 5], FAILED));
    check("before its deadline", &deadline(9, [0; 6]), got(1, 0, [1, 0, 0, 0, 0], &[]));
    let suspended = Given { suspended: true, ..deadline(15, [0; 6]) };
    check("suspended, past its deadline", &suspended, got(0, 0, [0; 5], &["Suspended"]));
    let deleting = Given { deleting: true, ..g(2, 5, [1, 1, 0, 0, 0, 0]) };
    check("job being deleted", &deleting, got(0, 0, [2, 0, 0, 0, 0], &[]));
    let room = Given { room: Some(10), ..g(200, 200, [0; 6]) };
    check("limited pods", &room, got(10, 0, [10, 0, 0, 0, 0], &[]));
    let many = got(500, 0, [500, 0, 0, 0, 0], &[]);
    check("more than are made at a time", &g(1000, 1000, [0; 6]), many);
    let behind = |pods| Given { unsettled: true, ..g(2, 5, pods) };
    check("nothing is made while Pods are expected", &behind([0; 6]), got(0, 0, [0; 5], &[]));
}

/// Cases of `TestControllerSyncJob` about suspension.
#[test]
fn suspension() {
    let suspended = |pods| Given { suspended: true, ..given(2, 4, pods) };
    check(
        "suspending a job with satisfied expectations",
        &suspended([0, 2, 0, 0, 0, 0]),
        got(0, 2, [0, 0, 0, 0, 2], &["Suspended"]),
    );
    let behind = Given { unsettled: true, ..suspended([0, 3, 0, 0, 0, 0]) };
    check("suspending a job with unsatisfied expectations", &behind, got(0, 0, [3, 0, 0, 0, 0], &[]));
    let resumed = Given { was_suspended: true, ..given(2, 4, [0; 6]) };
    check("resuming a suspended job", &resumed, got(2, 0, [2, 0, 0, 0, 0], &[]));
    let deleting = Given { deleting: true, ..suspended([0, 1, 0, 0, 0, 0]) };
    check("suspending a deleted job", &deleting, got(0, 0, [1, 0, 0, 0, 0], &[]));
    let failing = Given { limit: 0, ..suspended([0, 1, 1, 0, 1, 0]) };
    check("a suspended Job fails all the same", &failing, got(0, 1, [0, 0, 0, 2, 1], &["FailureTarget"]));
}

/// Cases of `TestControllerSyncJob` with indexes.
#[test]
fn indexes() {
    let g = |parallelism: i32, completions: i32, by_index: &[(i64, &'static str)]| Given {
        indexed: true,
        by_index: by_index.to_vec(),
        ..given(parallelism, completions, [0; 6])
    };
    let want = |got: Got, completed: &str, indexes: &[i64]| Got {
        completed: completed.to_owned(),
        indexes: indexes.to_vec(),
        ..got
    };
    check("indexed job start", &g(2, 5, &[]), want(got(2, 0, [2, 0, 0, 0, 0], &[]), "", &[0, 1]));
    check(
        "indexed job with some pods deleted, podReplacementPolicy Failed",
        &Given { failed_only: true, pods: [0, 0, 0, 0, 0, 1], ..g(2, 5, &[]) },
        want(got(1, 0, [1, 0, 0, 0, 1], &[]), "", &[0]),
    );
    check(
        "indexed job completed",
        &g(2, 3, &[(0, "Succeeded"), (1, "Failed"), (1, "Succeeded"), (2, "Succeeded")]),
        want(got(0, 0, [0, 0, 3, 1, 0], DONE), "0-2", &[]),
    );
    let repeated = [(0, "Succeeded"), (1, "Succeeded"), (1, "Succeeded")];
    check(
        "indexed job repeated completed index",
        &g(2, 3, &repeated),
        want(got(1, 0, [1, 0, 2, 0, 0], &[]), "0,1", &[2]),
    );
    check(
        "indexed job some running and completed pods",
        &g(
            8,
            20,
            &[
                (0, "Running"),
                (2, "Succeeded"),
                (3, "Running"),
                (4, "Succeeded"),
                (5, "Failed"),
                (5, "Running"),
                (6, "Succeeded"),
                (7, "Succeeded"),
                (8, "Running"),
                (9, "Failed"),
                (9, "Running"),
            ],
        ),
        want(got(3, 0, [8, 0, 4, 2, 0], &[]), "2,4,6,7", &[1, 10, 11]),
    );
    check(
        "indexed job some failed pods",
        &g(3, 4, &[(0, "Failed"), (1, "Pending"), (2, "Failed")]),
        want(got(2, 0, [3, 0, 0, 2, 0], &[]), "", &[0, 2]),
    );
    let extra = [(0, "Running"), (0, "Pending"), (2, "Failed"), (2, "Running"), (2, "Running")];
    check("indexed job repeated indexes", &g(4, 5, &extra), want(got(0, 2, [2, 0, 0, 1, 2], &[]), "", &[]));
    let invalid =
        [(-1, "Running"), (0, "Running"), (2, "Running"), (-1, "Succeeded"), (-1, "Failed"), (3, "Running")];
    check(
        "indexed job with indexes outside of range or none",
        &g(3, 3, &invalid),
        want(got(0, 2, [2, 0, 0, 0, 2], &[]), "", &[]),
    );
    let shrunk =
        Given { status: json!({"completedIndexes": "0,2-4", "succeeded": 4}), ..g(2, 3, &[(1, "Running")]) };
    check("elastic: a smaller Job", &shrunk, want(got(0, 0, [1, 0, 2, 0, 0], &[]), "0,2", &[]));
    let done = Given { status: json!({"completedIndexes": "0-4", "succeeded": 5}), ..g(3, 3, &[]) };
    check("elastic: a smaller Job that is done", &done, want(got(0, 0, [0, 0, 3, 0, 0], DONE), "0-2", &[]));
}

/// Cases of `TestSyncJobWithJobSuccessPolicy` and `TestSyncJobWithJobBackoffLimitPerIndex`.
#[test]
fn policies_of_indexes() {
    let g = |spec: Value, by_index: &[(i64, &'static str)]| Given {
        indexed: true,
        spec,
        by_index: by_index.to_vec(),
        ..given(2, 2, [0; 6])
    };
    let want = |got: Got, completed: &str, indexes: &[i64]| Got {
        completed: completed.to_owned(),
        indexes: indexes.to_vec(),
        ..got
    };
    let zero = json!({"successPolicy": {"rules": [{"succeededIndexes": "0"}]}});
    let met = &["SuccessCriteriaMet"][..];
    check(
        "met, and others still run",
        &g(zero.clone(), &[(0, "Succeeded"), (1, "Running")]),
        want(got(0, 1, [0, 0, 1, 0, 1], met), "0", &[]),
    );
    check(
        "met, and nothing runs",
        &g(zero.clone(), &[(0, "Succeeded")]),
        want(got(0, 0, [0, 0, 1, 0, 0], DONE), "0", &[]),
    );
    check(
        "met, and another failed",
        &g(zero.clone(), &[(0, "Succeeded"), (1, "Failed")]),
        want(got(0, 0, [0, 0, 1, 1, 0], DONE), "0", &[]),
    );
    check(
        "not met",
        &g(zero, &[(1, "Succeeded"), (0, "Running")]),
        want(got(0, 0, [1, 0, 1, 0, 0], &[]), "1", &[]),
    );
    let per_index =
        |limit: i32, most: Value| json!({"backoffLimitPerIndex": limit, "maxFailedIndexes": most});
    check(
        "all indexes are over, one failed",
        &g(per_index(0, Value::Null), &[(0, "Failed"), (1, "Succeeded")]),
        want(got(0, 0, [0, 0, 1, 1, 0], FAILED), "1", &[]),
    );
    check(
        "one index failed, another runs",
        &g(per_index(0, Value::Null), &[(0, "Failed"), (1, "Running")]),
        want(got(0, 0, [1, 0, 0, 1, 0], &[]), "", &[]),
    );
    check(
        "too many indexes failed",
        &g(per_index(0, json!(0)), &[(0, "Failed"), (1, "Running")]),
        want(got(0, 1, [0, 0, 0, 2, 1], &["FailureTarget"]), "", &[]),
    );
    // The Pod waits for its successor, to which its failures are handed on.
    check(
        "one index may fail again",
        &g(per_index(1, Value::Null), &[(0, "Failed"), (1, "Running")]),
        want(got(1, 0, [2, 0, 0, 0, 0], &[]), "", &[0]),
    );
}
