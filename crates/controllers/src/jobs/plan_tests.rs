//! Upstream's tables of the parts of a plan (`indexed_job_utils_test.go`, `job_controller_test.go`).

use serde_json::{Value, json};

use super::*;
use crate::jobs::testing::{Built, Given, NOW, at, pod};

const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";
const RUNNING: &str = "Running";
const PENDING: &str = "Pending";

fn failed(uid: &str, index: &str, failures: &str) -> Built {
    pod(uid, FAILED).index(index).failures(failures)
}

/// The spec of an indexed Job with a limit for each index.
fn per_index(completions: i32, limit: i32) -> Value {
    json!({"completionMode": "Indexed", "completions": completions, "backoffLimitPerIndex": limit})
}

/// Upstream's cases of `TestIsIndexFailed`.
#[test]
fn the_last_failure_of_an_index() {
    let check = |limit: i32, rules: Value, pod: &Built| {
        let mut spec = per_index(2, limit);
        spec["podFailurePolicy"] = rules;
        let given = Given::new(&spec, &json!({}), &[]);
        let rules = given.snapshot(NOW).rules;
        assert!(fails_index(rules, limit, &pod.view()), "{limit} {pod:?}");
    };
    check(0, json!(null), &failed("a", "0", "0").tracked());
    check(1, json!(null), &failed("a", "1", "1").tracked());
    let exits = json!({"operator": "In", "values": [3]});
    let policy = json!({"rules": [{"action": "FailIndex", "onExitCodes": exits}]});
    let ended = json!({"containerStatuses": [{"name": "", "state": {"terminated": {"exitCode": 3}}}]});
    check(1, policy, &failed("a", "0", "0").tracked().status(&ended));
}

/// Upstream's cases of `TestCalculateFailedIndexes`.
#[test]
fn failed_indexes() {
    let check = |limit: i32, before: Option<&str>, pods: &[Built], want: &str| {
        let given = Given::new(&per_index(2, limit), &json!({"failedIndexes": before}), pods);
        let got = plan(&given.snapshot(NOW)).failed_indexes.unwrap();
        assert_eq!(got.to_string(), want, "{before:?} {pods:?}");
    };
    check(1, None, &[failed("a", "0", "0").tracked(), failed("b", "1", "1").tracked()], "1");
    check(0, None, &[failed("a", "0", "0")], "");
    check(0, None, &[failed("a", "3", "0")], "");
    let second = [failed("a", "1", "0").tracked()];
    check(0, Some("0"), &second, "0,1");
    check(0, Some(""), &second, "1");
    check(0, Some("9"), &second, "1");
}

/// Upstream's cases of `TestGetPodsWithDelayedDeletionPerIndex`.
#[test]
fn pods_that_wait_for_their_successors() {
    let check = |(completions, limit): (i32, i32), pods: &[Built], released: &[&str], want: &[&str]| {
        let given = Given::new(&per_index(completions, limit), &json!({}), pods).released(released);
        let mut kept: Vec<String> = plan(&given.snapshot(NOW)).kept.into_iter().collect();
        kept.sort();
        assert_eq!(kept, want, "{pods:?}");
    };
    let lost = |uid: &str, index: &str, failures: &str| failed(uid, index, failures).tracked();
    check((3, 1), &[lost("a", "0", "0"), lost("b", "1", "1"), lost("c", "2", "0")], &[], &["a", "c"]);
    check((2, 0), &[failed("a", "0", "0")], &[], &[]);
    check((2, 0), &[lost("a", "0", "0")], &["a"], &[]);
    check((2, 0), &[lost("a", "4", "0")], &[], &[]);
    for phase in [RUNNING, SUCCEEDED] {
        let replaced = pod("a2", phase).index("0").failures("1").tracked();
        check((2, 1), &[lost("a1", "0", "0"), replaced], &[], &[]);
    }
    check((2, 4), &[lost("a1", "0", "0"), lost("a3", "0", "2"), lost("a2", "0", "1")], &[], &["a3"]);
    let ended = |uid: &str, second: i64| lost(uid, "0", "1").deleted(second);
    check((2, 4), &[ended("a1", NOW - 1), ended("a3", NOW), ended("a2", NOW - 2)], &[], &["a3"]);
}

/// Upstream's cases of `TestGetNewIndexFailureCountValue`.
#[test]
fn failures_that_are_handed_on() {
    let check = |policy: Value, before: Option<&Built>, want: (i32, i32)| {
        let mut spec = per_index(5, 9);
        spec["podFailurePolicy"] = policy;
        let given = Given::new(&spec, &json!({}), &[]);
        let kept = before.into_iter().map(|pod| (0, pod.view())).collect();
        let new = New { index: Some(0), failures: Some(want) };
        assert_eq!(create_indexes(&given.snapshot(NOW), &[0], &kept), Step::Create(vec![new]), "{before:?}");
    };
    check(json!(null), None, (0, 0));
    check(json!(null), Some(&failed("a", "0", "0").tracked()), (1, 0));
    check(json!(null), Some(&failed("a", "0", "3").tracked()), (4, 0));
    let target = json!([{"type": "DisruptionTarget", "status": "True"}]);
    let policy = json!({"rules": [{"action": "Ignore", "onPodConditions": target}]});
    let disrupted = failed("a", "3", "3").tracked().status(&json!({"conditions": target}));
    check(policy, Some(&disrupted), (3, 1));
}

/// Upstream's cases of `TestFirstPendingIndexes`.
#[test]
fn the_next_indexes() {
    let check = |(count, completions): (usize, i32),
                 active: &[(&str, &str)],
                 (succeeded, failed): (&str, &str),
                 want: &[i64]| {
        let pods: Vec<Built> = active.iter().map(|(index, phase)| pod("p", phase).index(index)).collect();
        let given = Given::new(&per_index(completions, 9), &json!({}), &pods);
        let (size, parsed) = (i64::from(completions), |text: &str| Indexes::parse(text, 100));
        let taken = parsed(succeeded).merge(&given.snapshot(NOW).indexes(PodView::is_active));
        assert_eq!(taken.merge(&parsed(failed)).first_free(count, size), want, "{active:?} {succeeded}");
    };
    check((5, 3), &[], ("", ""), &[0, 1, 2]);
    check((2, 5), &[], ("", ""), &[0, 1]);
    check((3, 10), &[("0", RUNNING), ("1", PENDING)], ("", ""), &[2, 3, 4]);
    check((6, 6), &[("6", PENDING)], ("4,5", ""), &[0, 1, 2, 3]);
    let mixed = [("3", PENDING), ("5", RUNNING), ("8", PENDING), ("", RUNNING), ("-3", RUNNING)];
    check((5, 20), &mixed, ("2-4,9", ""), &[0, 1, 6, 7, 10]);
    let active = [("3", PENDING), ("9", PENDING)];
    check((5, 20), &active, ("1,5,9", "2,6,7"), &[0, 4, 8, 10, 11]);
}

/// Upstream's cases of `TestAppendDuplicatedIndexPodsForRemoval`.
#[test]
fn one_pod_for_each_index() {
    type All<'a> = &'a [(&'a str, &'a str)];
    let check = |pods: All<'_>, removed: All<'_>| {
        let named = |i: usize| pod(&i.to_string(), pods[i].1).index(pods[i].0);
        let built: Vec<Built> = (0..pods.len()).map(named).collect();
        let given = Given::new(&per_index(6, 9), &json!({}), &built);
        let s = given.snapshot(NOW);
        let of = |pod: &Arc<PodView>| pods[pod.uid().parse::<usize>().unwrap()];
        let mut got: Vec<_> = surplus_of(s.rules, given.pods.clone(), 0).iter().map(of).collect();
        let mut want = removed.to_vec();
        got.sort_unstable();
        want.sort_unstable();
        assert_eq!(got, want, "{pods:?}");
    };
    let unique = [("", PENDING), ("2", PENDING), ("5", RUNNING), ("6", RUNNING)];
    check(&unique, &[("", PENDING), ("6", RUNNING)]);
    let indexed = [
        ("5", PENDING),
        ("0", RUNNING),
        ("3", PENDING),
        ("0", RUNNING),
        ("3", RUNNING),
        ("0", PENDING),
        ("6", RUNNING),
        ("6", PENDING),
    ];
    check(&indexed, &[("0", PENDING), ("0", RUNNING), ("3", PENDING), ("6", RUNNING), ("6", PENDING)]);
    let mixed = [
        ("", PENDING),
        ("invalid", RUNNING),
        ("-2", RUNNING),
        ("0", PENDING),
        ("1", PENDING),
        ("1", PENDING),
        ("1", RUNNING),
    ];
    let want = [("", PENDING), ("invalid", RUNNING), ("-2", RUNNING), ("1", PENDING), ("1", PENDING)];
    check(&mixed, &want);
}

/// Upstream's cases of `TestGetIndexFailureCount`.
#[test]
fn failures_of_an_index() {
    let check = |count: Option<&str>, want: i32| {
        let built = count.map_or_else(|| pod("a", ""), |count| pod("a", "").failures(count));
        assert_eq!(built.view().task().map_or(0, |t| t.failures), want, "{count:?}");
    };
    check(None, 0);
    check(Some("2"), 2);
    check(Some("2147483647"), i32::MAX);
    check(Some("2147483648"), 0);
    check(Some("-1"), 0);
    check(Some("xyz"), 0);
}

/// Upstream's cases of `TestCalculateSucceededIndexes`.
#[test]
fn completed_indexes() {
    let check = |before: &str, pods: &[(&str, &str)], completions: i32, want: [&str; 2]| {
        let made =
            |(i, (index, phase)): (usize, &(&str, &str))| pod(&i.to_string(), phase).index(index).tracked();
        let built: Vec<Built> = pods.iter().enumerate().map(made).collect();
        let spec = json!({"completionMode": "Indexed", "completions": completions});
        let given = Given::new(&spec, &json!({"completedIndexes": before}), &built);
        let (status, all) = plan(&given.snapshot(NOW)).completed;
        assert_eq!([status.to_string(), all.to_string()], want, "{before} {pods:?}");
    };
    let done = |indexes: &[&'static str]| -> Vec<(&'static str, &'static str)> {
        indexes.iter().map(|index| (*index, SUCCEEDED)).collect()
    };
    check("", &done(&["1"]), 2, ["", "1"]);
    let separate = [("2", FAILED), ("5", SUCCEEDED), ("5", SUCCEEDED), ("10", FAILED), ("10", SUCCEEDED)];
    check("", &separate, 11, ["", "5,10"]);
    let mut two = vec![("0", RUNNING), ("1", PENDING)];
    two.extend(done(&["2", "3", "5", "6", "7"]));
    check("", &two, 8, ["", "2,3,5-7"]);
    let mut one = vec![("1", FAILED)];
    one.extend(done(&["0", "2", "3", "4", "5", "", "-2"]));
    check("", &one, 6, ["", "0,2-5"]);
    let mut outside = vec![("3", FAILED)];
    outside.extend(done(&["0", "1", "2", "4", "5", "", "-2"]));
    check("", &outside, 5, ["", "0-2,4"]);
    check("0-5,8-10", &[], 8, ["0-5", "0-5"]);
    check("0-5,8-10", &[], 10, ["0-5,8,9", "0-5,8,9"]);
    check("0,4,5,10-12", &done(&["2", "7", "8"]), 13, ["0,4,5,10-12", "0,2,4,5,7,8,10-12"]);
    check("3,4,6", &done(&["2", "7", "8"]), 9, ["3,4,6", "2-4,6-8"]);
    check("2,7,8", &done(&["3", "4", "6"]), 9, ["2,7,8", "2-4,6-8"]);
    check("2-7", &done(&["0", "3", "5", "9"]), 10, ["2-7", "0,2-7,9"]);
    check("0,1-foo,bar", &done(&["3"]), 4, ["0", "0,3"]);
}

/// Upstream's cases of `TestGetPodCreationInfoForIndependentIndexes`.
#[test]
fn each_index_has_its_own_delay() {
    let check = |pending: &[i64], before: &[(i64, &str, i64)], want: &[i64], left: u64| {
        let kept = before.iter().map(|(index, failures, ended)| {
            (*index, failed("a", &index.to_string(), failures).deleted(*ended).view())
        });
        let given = Given::new(&per_index(9, 9), &json!({}), &[]);
        match create_indexes(&given.snapshot(NOW), pending, &kept.collect()) {
            Step::Create(new) => {
                let got: Vec<i64> = new.iter().filter_map(|n| n.index).collect();
                assert_eq!((got.as_slice(), 0), (want, left), "{before:?}");
            }
            other => {
                assert_eq!((other, want.len()), (Step::Wait(Duration::from_secs(left)), 0), "{before:?}");
            }
        }
    };
    check(&[1, 3], &[], &[1, 3], 0);
    check(&[1, 3], &[(1, "0", NOW)], &[3], 0);
    check(&[1, 3], &[(1, "0", NOW), (3, "0", NOW - 10)], &[3], 0);
    check(&[1, 2, 3], &[(1, "1", NOW), (2, "0", NOW), (3, "2", NOW)], &[], 10);
    let second_ago = [(1, "1", NOW - 1), (2, "0", NOW - 1), (3, "2", NOW - 1)];
    check(&[1, 2, 3], &second_ago, &[], 9);
}

/// Upstream's cases of `TestGetNewFinshedPods`.
#[test]
fn newly_ended_pods() {
    let check = |status: Value, pods: &[Built], released: &[&str], want: (i64, i64)| {
        let given = Given::new(&json!({}), &status, pods).released(released);
        let plan = plan(&given.snapshot(NOW));
        assert_eq!((plan.succeeded, plan.failed), want, "{status}");
    };
    let (ok, bad) = (|uid: &str| pod(uid, SUCCEEDED), |uid: &str| pod(uid, FAILED));
    check(
        json!({"succeeded": 2, "failed": 1}),
        &[ok("a"), ok("b").tracked(), ok("c").tracked(), bad("d"), bad("e").tracked(), pod("f", RUNNING)],
        &[],
        (4, 2),
    );
    check(
        json!({"succeeded": 1, "failed": 1,
            "uncountedTerminatedPods": {"succeeded": ["a", "c"], "failed": ["e", "f"]}}),
        &[
            ok("a"),
            ok("b"),
            ok("c").tracked(),
            ok("d").tracked(),
            bad("e"),
            bad("f").tracked(),
            bad("g").tracked(),
        ],
        &[],
        (4, 4),
    );
    check(
        json!({"succeeded": 2, "failed": 2, "uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["d"]}}),
        &[
            ok("a"),
            ok("b").tracked(),
            ok("c").tracked(),
            bad("d"),
            bad("e").tracked(),
            bad("f").tracked(),
            bad("g").tracked(),
        ],
        &["b", "f"],
        (4, 5),
    );
    let gone = |built: Built| built.deleted(NOW);
    check(
        json!({"succeeded": 1, "failed": 1}),
        &[
            gone(ok("a")).tracked(),
            gone(bad("b")).tracked(),
            gone(pod("c", RUNNING)).tracked(),
            gone(pod("d", PENDING)).tracked(),
            gone(pod("e", RUNNING)),
            gone(pod("f", PENDING)),
        ],
        &[],
        (2, 4),
    );
}

/// Upstream's cases of `TestPastDeadlineJobFinished`.
#[test]
fn a_deadline_begins_with_the_job() {
    let check = |started: Option<i64>| {
        let spec = json!({"parallelism": 1, "completions": 1, "activeDeadlineSeconds": 1});
        let status = json!({"startTime": started.map(|second| at(second).to_string())});
        let mut given = Given::new(&spec, &status, &[]);
        let first = plan(&given.snapshot(NOW));
        assert_eq!(first.status.start_time.as_ref().map(|t| t.0), Some(at(NOW)), "{started:?}");
        assert_eq!((first.ending, first.again), (None, Some(Duration::from_secs(1))), "{started:?}");
        given.job.status = Some(first.status);
        let reason = plan(&given.snapshot(NOW + 1)).ending.and_then(|c| c.reason);
        assert_eq!(reason.as_deref(), Some("DeadlineExceeded"), "{started:?}");
    };
    check(None);
    check(Some(NOW));
}
