//! Upstream's table of the counting of Pods (`TestTrackJobStatusAndRemoveFinalizers` of `job_controller_test.go`).

use serde_json::{Value, json};

use super::*;
use crate::jobs::plan;
use crate::jobs::testing::{Built, Given, NOW, pod};

const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";
const RUNNING: &str = "Running";
const PENDING: &str = "Pending";

/// The state before: what is not said is empty.
#[derive(Default)]
struct Case {
    spec: Value,
    status: Value,
    pods: Vec<Built>,
    /// The condition by which the Job is over.
    ending: Option<&'static str>,
    released: &'static [&'static str],
    deleting: bool,
    /// Whether no finalizer can be removed.
    failing: bool,
}

/// The numbers of a status, its uids that are not counted yet, its indexes, and the conditions that hold.
#[derive(Debug, Clone, Default, PartialEq)]
struct Told {
    succeeded: i32,
    failed: i32,
    open: [String; 2],
    completed: String,
    failed_indexes: Option<String>,
    conditions: Vec<String>,
}

fn told(succeeded: i32, failed: i32, open: [&str; 2]) -> Told {
    Told { succeeded, failed, open: open.map(str::to_owned), ..Told::default() }
}

impl Told {
    fn of(status: &JobStatus) -> Self {
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let joined = |uids: Option<Vec<String>>| uids.unwrap_or_default().join(",");
        let conditions = status.conditions.iter().flatten().filter(|c| c.status == "True");
        Self {
            succeeded: status.succeeded.unwrap_or(0),
            failed: status.failed.unwrap_or(0),
            open: [joined(uncounted.succeeded), joined(uncounted.failed)],
            completed: status.completed_indexes.clone().unwrap_or_default(),
            failed_indexes: status.failed_indexes.clone(),
            conditions: conditions.map(|c| c.type_.clone()).collect(),
        }
    }
    fn completed(self, indexes: &str) -> Self {
        Self { completed: indexes.to_owned(), ..self }
    }
    fn failed_indexes(self, indexes: &str) -> Self {
        Self { failed_indexes: Some(indexes.to_owned()), ..self }
    }
    fn with(self, conditions: &[&str]) -> Self {
        Self { conditions: conditions.iter().map(|c| (*c).to_owned()).collect(), ..self }
    }
}

/// Checks the number of finalizers that are removed, and the status before and after that.
fn check(name: &str, case: &Case, removed: usize, first: &Told, last: &Told) {
    let mut given = Given::new(&case.spec, &case.status, &case.pods).released(case.released);
    if case.deleting {
        given.job.metadata.deletion_timestamp = Some(whole_seconds(Timestamp::UNIX_EPOCH));
    }
    let s = given.snapshot(NOW);
    let mut plan = plan::plan(&s);
    // As upstream's test: only the counting itself is looked at.
    plan.ending = case.ending.map(|kind| condition(kind, "", "", s.now));
    plan.step = Step::End(Vec::new());
    plan.completed.1 = plan.completed.0.clone();
    let mut tracking = track(&s, plan, Outcome::default());
    assert_eq!((tracking.release.len(), &Told::of(&tracking.status)), (removed, first), "{name}");
    let mut status = tracking.status.clone();
    if !case.failing {
        for pod in &tracking.release {
            tracking.held.remove(pod.uid());
        }
    }
    settle(&mut status, &tracking.held);
    if !case.failing {
        tracking.finish(&mut status, s.now);
    }
    assert_eq!(&Told::of(&status), last, "{name}");
    let complete = last.conditions.iter().any(|c| c == "Complete");
    assert_eq!(status.completion_time.is_some(), complete, "{name}");
}

fn ok(uid: &str) -> Built {
    pod(uid, SUCCEEDED).tracked()
}

fn bad(uid: &str) -> Built {
    pod(uid, FAILED).tracked()
}

fn uncounted(succeeded: &[&str], failed: &[&str]) -> Value {
    json!({"succeeded": succeeded, "failed": failed})
}

/// Cases of `TestTrackJobStatusAndRemoveFinalizers` without indexes.
#[test]
fn pods_are_counted() {
    let none = told(0, 0, ["", ""]);
    check("no updates", &Case::default(), 0, &none, &none);
    let active = Case { status: json!({"active": 1}), ..Case::default() };
    check("new active", &active, 0, &none, &none);
    let pods = vec![
        ok("a"),
        bad("b"),
        ok("c").deleted(NOW),
        bad("d").deleted(NOW),
        pod("e", PENDING).tracked().deleted(NOW),
        pod("x", PENDING).tracked(),
        pod("y", RUNNING).tracked(),
    ];
    let case = Case { pods, ..Case::default() };
    check("track finished pods", &case, 5, &told(0, 0, ["a,c", "b,d,e"]), &told(2, 3, ["", ""]));
    let status = json!({"active": 1, "succeeded": 2, "failed": 3,
        "uncountedTerminatedPods": uncounted(&["a", "e"], &["b", "f"])});
    let pods =
        vec![pod("e", SUCCEEDED), pod("x", FAILED), pod("y", PENDING), ok("a"), bad("b"), ok("c"), bad("d")];
    let case = Case { status, pods, ..Case::default() };
    check("past and new finished pods", &case, 4, &told(3, 4, ["a,c", "b,d"]), &told(5, 6, ["", ""]));
    let status = json!({"succeeded": 2, "failed": 3,
        "uncountedTerminatedPods": uncounted(&["a", "g"], &["b", "h"])});
    let pods = vec![ok("a"), bad("b"), ok("c"), bad("d"), ok("e"), bad("f"), ok("g"), bad("h")];
    let case = Case { status, pods, released: &["c", "d", "g", "h"], ..Case::default() };
    check("expecting removed finalizers", &case, 4, &told(3, 4, ["a,e", "b,f"]), &told(5, 6, ["", ""]));
    // Upstream's case "status update error" is the first half of this one.
    let failing = Case { pods: vec![ok("a"), bad("b")], failing: true, ..Case::default() };
    let open = told(0, 0, ["a", "b"]);
    check("pod patch errors", &failing, 2, &open, &open);
    let status = json!({"uncountedTerminatedPods": uncounted(&["a"], &["b"])});
    let pods = vec![pod("a", SUCCEEDED), ok("c"), bad("d")];
    let failing = Case { status, pods, failing: true, ..Case::default() };
    let open = told(1, 1, ["c", "d"]);
    check("pod patch errors with partial success", &failing, 2, &open, &open);
    let mut pods: Vec<Built> = (0..500).map(|i| ok(&i.to_string())).collect();
    pods.push(bad("b"));
    let status = json!({"uncountedTerminatedPods": uncounted(&[], &["a", "b"])});
    let case = Case { status, pods, ..Case::default() };
    let uids: Vec<String> = (0..499).map(|i| i.to_string()).collect();
    let first = told(0, 1, [&uids.join(","), "b"]);
    check("too many finished", &case, 499, &first, &told(499, 1, ["", "b"]));
}

/// Cases of `TestTrackJobStatusAndRemoveFinalizers` about the end of a Job.
#[test]
fn the_end_waits_until_all_is_counted() {
    let pods = || vec![ok("a"), bad("b")];
    let mut with_third = pods();
    with_third.push(pod("c", PENDING).tracked());
    let met = "SuccessCriteriaMet";
    let case = Case { pods: with_third, ending: Some(met), ..Case::default() };
    check(
        "succeeding job by JobSuccessPolicy",
        &case,
        3,
        &told(0, 0, ["a", "b"]).with(&[met]),
        &told(1, 1, ["", ""]).with(&[met, "Complete"]),
    );
    let case = Case { pods: pods(), ending: Some("Complete"), ..Case::default() };
    let last = told(1, 1, ["", ""]).with(&["Complete"]);
    check("completing job", &case, 2, &told(0, 0, ["a", "b"]), &last);
    let mut running = pods();
    running.push(pod("c", RUNNING).tracked());
    let case = Case { pods: running.clone(), ending: Some("Failed"), ..Case::default() };
    let last = told(1, 2, ["", ""]).with(&["Failed"]);
    check("failing job", &case, 3, &told(0, 0, ["a", "b,c"]), &last);
    let case = Case { pods: running, deleting: true, status: json!({"active": 1}), ..Case::default() };
    check("deleted job", &case, 3, &told(0, 0, ["a", "b"]), &told(1, 1, ["", ""]));
    let spec = json!({"parallelism": 2, "completions": 2});
    let status = json!({"uncountedTerminatedPods": uncounted(&[], &["a", "b"])});
    let pods = vec![bad("a"), ok("b")];
    let case = Case { spec, status, pods, ending: Some("Failed"), ..Case::default() };
    let last = told(0, 2, ["", ""]).with(&["Failed"]);
    check("pod flips from failed to succeeded", &case, 2, &told(0, 0, ["", "a,b"]), &last);
    let spec = json!({"parallelism": 1, "completions": 1});
    let status = json!({"uncountedTerminatedPods": uncounted(&[], &["a"])});
    let case =
        Case { spec: spec.clone(), status, pods: vec![bad("a")], ending: Some("Failed"), ..Case::default() };
    let last = told(0, 1, ["", ""]).with(&["Failed"]);
    check("pod is terminal; JobFailed condition is set", &case, 1, &told(0, 0, ["", "a"]), &last);
    // Upstream has each of these two with two gates on, which are locked to on, and once with both off.
    for (ending, target, succeeded) in [("Failed", "FailureTarget", 0), ("Complete", met, 1)] {
        let known: &[&str] = if succeeded > 0 { &["b"] } else { &[] };
        let conditions = json!([{"type": target, "status": "True"}]);
        let status = json!({"conditions": conditions, "uncountedTerminatedPods": uncounted(known, &["a"])});
        let pods = vec![pod("a", RUNNING).deleted(NOW)];
        let case = Case { spec: spec.clone(), status, pods, ending: Some(ending), ..Case::default() };
        let told = told(succeeded, 1, ["", ""]).with(&[target]);
        check("pod is terminating; the end is delayed", &case, 0, &told, &told);
    }
}

/// Cases of `TestTrackJobStatusAndRemoveFinalizers` with indexes.
#[test]
fn indexes_are_counted() {
    let spec = |completions: i32| json!({"completionMode": "Indexed", "completions": completions});
    let pods = vec![
        ok("a").index("1"),
        ok("b").index("3"),
        ok("c").index("3"),
        pod("d", RUNNING).tracked().index("5"),
        ok("e"),
    ];
    let case = Case { spec: spec(6), pods, ..Case::default() };
    let told_done = told(2, 0, ["", ""]).completed("1,3");
    check("indexed job new successful pods", &case, 4, &told_done, &told_done);
    let running = |uid: &str, index: &str| pod(uid, RUNNING).tracked().index(index);
    let status = || json!({"active": 2, "succeeded": 1, "completedIndexes": "3"});
    let pods = vec![running("a", "0"), running("b", "1")];
    let case = Case { spec: spec(2), status: status(), pods, ..Case::default() };
    let none = told(0, 0, ["", ""]);
    check("prev successful pods outside the range", &case, 0, &none, &none);
    let pods = vec![running("a", "0"), ok("b").index("1")];
    let case = Case { spec: spec(2), status: status(), pods, ..Case::default() };
    let one = told(1, 0, ["", ""]).completed("1");
    check("the same with new succeeded pods in range", &case, 1, &one, &one);
    let pods =
        vec![bad("a").index("1"), bad("b").index("3"), bad("c").index("3"), running("d", "5"), bad("e")];
    let case = Case { spec: spec(6), pods, ..Case::default() };
    check("indexed job new failed pods", &case, 4, &told(0, 0, ["", "a,b,c"]), &told(0, 3, ["", ""]));
    let pods = vec![
        pod("s", SUCCEEDED).index("0"),
        pod("f", FAILED).index("1"),
        ok("t").index("1"),
        ok("u").index("3"),
        bad("a").index("2"),
        bad("b").index("5"),
    ];
    let status = json!({"failed": 2, "succeeded": 5, "completedIndexes": "0-2,4,6,7"});
    let case = Case { spec: spec(7), status, pods, ..Case::default() };
    let (first, last) = (told(6, 2, ["", "a,b"]), told(6, 4, ["", ""]));
    check("indexed job past and new pods", &case, 4, &first.completed("0-4,6"), &last.completed("0-4,6"));
    let pods = (0..501).map(|i| ok(&i.to_string()).index(&i.to_string())).collect();
    let case = Case { spec: spec(501), pods, ..Case::default() };
    let many = told(500, 0, ["", ""]).completed("0-499");
    check("too many indexed finished", &case, 500, &many, &many);

    let spec = json!({"completionMode": "Indexed", "completions": 6, "backoffLimitPerIndex": 1});
    let of = |failures: &str, uid: &str| bad(uid).failures(failures).index("1");
    let case = Case { spec: spec.clone(), pods: vec![of("0", "a")], ..Case::default() };
    let none = told(0, 0, ["", ""]).failed_indexes("");
    check("a failed pod with delayed finalizer removal is not counted", &case, 0, &none, &none);
    let pods = vec![of("0", "a1"), running("a2", "1").failures("1")];
    let case = Case { spec: spec.clone(), pods, status: json!({"active": 1}), ..Case::default() };
    let (first, last) = (told(0, 0, ["", "a1"]), told(0, 1, ["", ""]));
    let name = "a failed pod which is recreated by a running pod is counted";
    check(name, &case, 1, &first.failed_indexes(""), &last.failed_indexes(""));
    let case = Case { spec, pods: vec![of("1", "a")], ..Case::default() };
    let (first, last) = (told(0, 0, ["", "a"]), told(0, 1, ["", ""]));
    let name = "a failed pod for a failed index is counted";
    check(name, &case, 1, &first.failed_indexes("1"), &last.failed_indexes("1"));
}
