//! Upstream's tables of syncs of indexed Jobs with policies. Cases with a gate off that is locked to on are left out.

use super::*;
use crate::jobs::testing::{Built, pod};

/// A Job of so many indexes, all of which may run at once.
fn indexed(size: i32, limit: i32, spec: Value) -> Given {
    Given { indexed: true, limit, spec, ..given(size, size, [0; 6]) }
}

/// The reason of each condition that holds is the same.
type End<'a> = (&'a str, &'a [&'a str]);

/// Checks a sync: the numbers are those of active, succeeded, failed and terminating Pods, the indexes are the completed
/// and the failed ones.
fn check_sync(
    name: &str,
    given: &Given,
    pods: &[Built],
    numbers: [i32; 4],
    indexes: (&str, Option<&str>),
    (reason, kinds): End<'_>,
) {
    let pods: Vec<Arc<PodView>> = pods.iter().map(Built::view).collect();
    let (got, status) = run(given, &job(given), &pods);
    assert_eq!([got.active, got.succeeded, got.failed, got.terminating], numbers, "{name}");
    assert_eq!((got.completed.as_str(), status.failed_indexes.as_deref()), indexes, "{name}");
    assert_eq!(got.conditions, kinds, "{name}");
    for condition in status.conditions.iter().flatten() {
        assert_eq!(condition.reason.as_deref(), Some(reason), "{name}");
    }
}

const MET: &[&str] = &["SuccessCriteriaMet"];
const TARGET: &[&str] = &["FailureTarget"];
const RUNS: End<'_> = ("", &[]);

fn failed(uid: &str, index: &str, failures: &str) -> Built {
    pod(uid, "Failed").index(index).failures(failures).tracked()
}

fn is(uid: &str, index: &str, phase: &str) -> Built {
    pod(uid, phase).index(index).tracked()
}

/// 10 of upstream's 15 cases of `TestSyncJobWithJobBackoffLimitPerIndex`.
#[test]
fn limits_of_indexes() {
    let most = i32::MAX;
    let limit = || json!({"backoffLimitPerIndex": 1});
    let two = || indexed(2, most, limit());
    let done = |uid: &str, index: &str, failures: &str| is(uid, index, "Succeeded").failures(failures);
    let pods = [failed("a1", "0", "0"), done("a2", "0", "1"), done("b", "1", "0")];
    let reached = ("CompletionsReached", DONE);
    check_sync("success after a failure", &two(), &pods, [0, 2, 1, 0], ("0,1", Some("")), reached);
    let pods = [failed("a", "0", "0")];
    check_sync("not counted as yet", &two(), &pods, [2, 0, 0, 0], ("", Some("")), RUNS);
    let pods = [failed("a", "0", "0"), is("b", "0", "Pending").failures("1")];
    check_sync("replaced already", &two(), &pods, [2, 0, 1, 0], ("", Some("")), RUNS);
    let pods = [failed("a", "0", "1")];
    check_sync("exceeds the limit of its index", &two(), &pods, [1, 0, 1, 0], ("", Some("0")), RUNS);
    let with_action = |limit: i32, action: &str| {
        let codes = json!({"operator": "In", "values": [3]});
        let mut spec = json!({"podFailurePolicy": {"rules": [{"action": action, "onExitCodes": codes}]}});
        spec["backoffLimitPerIndex"] = json!(1);
        indexed(2, limit, spec)
    };
    let ended = json!({"containerStatuses": [{"name": "x", "state": {"terminated": {"exitCode": 3}}}]});
    let pods = [pod("a", "Failed").index("0").tracked().status(&ended)];
    let given = with_action(most, "FailIndex");
    check_sync("FailIndex action", &given, &pods, [1, 0, 1, 0], ("", Some("0")), RUNS);
    let end = ("PodFailurePolicy", FAILED);
    check_sync("FailJob action", &with_action(6, "FailJob"), &pods, [0, 0, 1, 0], ("", Some("")), end);
    check_sync("Ignore action", &with_action(6, "Ignore"), &pods, [2, 0, 0, 0], ("", Some("")), RUNS);
    let pods = [failed("a", "0", "0"), failed("b", "1", "0")];
    let end = ("BackoffLimitExceeded", FAILED);
    let strict = indexed(2, 1, limit());
    check_sync("backoffLimit before that", &strict, &pods, [0, 0, 2, 0], ("", Some("")), end);
    let pods = [failed("a", "0", "1"), done("b", "1", "0")];
    let end = ("FailedIndexes", FAILED);
    check_sync("failed indexes", &two(), &pods, [0, 1, 1, 0], ("1", Some("0")), end);
    let given = indexed(4, most, json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 1}));
    let last = is("d", "3", "Running").failures("0");
    let pods = [failed("a", "0", "1"), done("b", "1", "0"), failed("c", "2", "1"), last];
    let end = ("MaxFailedIndexesExceeded", TARGET);
    check_sync("max failed indexes", &given, &pods, [0, 1, 3, 1], ("1", Some("0,2")), end);
}

/// The spec of a success policy, and more.
fn succeeds(rule: Value, more: Value) -> Value {
    let mut spec = json!({"successPolicy": {"rules": [rule]}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// 13 of upstream's 17 cases of `TestSyncJobWithJobSuccessPolicy`.
#[test]
fn success_policies() {
    let most = i32::MAX;
    let one_of = || json!({"succeededIndexes": "0,1", "succeededCount": 1});
    let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
    let fails = json!({"podFailurePolicy": {"rules": [{"action": "FailJob", "onPodConditions": disrupted}]}});
    let by_index = |limit: i32| json!({"backoffLimitPerIndex": limit});
    let (met, done) = (("SuccessPolicy", MET), ("SuccessPolicy", DONE));
    let bad = || failed("a1", "0", "0");
    let (runs, ok) = (|uid: &str, index: &str| is(uid, index, "Running"), || is("b", "1", "Succeeded"));
    let given = indexed(3, most, succeeds(one_of(), json!({})));
    let pods = [bad(), runs("a2", "0"), ok(), runs("c", "2")];
    check_sync("some indexes fail", &given, &pods, [0, 1, 1, 2], ("1", None), met);
    let pods = [bad(), runs("a2", "0"), ok()];
    let given = indexed(2, most, succeeds(one_of(), fails.clone()));
    check_sync("no failure policy is met", &given, &pods, [0, 1, 1, 1], ("1", None), met);
    let given = indexed(2, most, succeeds(one_of(), by_index(2)));
    check_sync("no limit of an index is met", &given, &pods, [0, 1, 1, 1], ("1", Some("")), met);
    // A Job that is known to have succeeded.
    let known = |kind: &str, reason: &str, [failed, succeeded]: [i32; 2], completed: &str| {
        let conditions = json!([{"type": kind, "status": "True", "reason": reason}]);
        json!({"conditions": conditions, "failed": failed, "succeeded": succeeded,
            "completedIndexes": completed})
    };
    let after = |given: Given, succeeded: i32| {
        let completed = if succeeded > 0 { "1" } else { "" };
        let status = known("SuccessCriteriaMet", "SuccessPolicy", [0, succeeded], completed);
        Given { status, ..given }
    };
    let given = after(indexed(2, most, succeeds(one_of(), by_index(2))), 0);
    check_sync("all pods are gone", &given, &[bad(), ok()], [0, 1, 1, 0], ("1", Some("")), done);
    let given = after(indexed(3, most, succeeds(one_of(), by_index(3))), 0);
    let pods = [bad(), runs("a2", "1"), ok(), runs("c", "2")];
    check_sync("some pods still run", &given, &pods, [0, 1, 1, 2], ("1", Some("")), met);
    let marked = || pod("a", "Failed").index("0").status(&json!({"conditions": disrupted}));
    let given = indexed(2, most, succeeds(one_of(), fails.clone()));
    let pods = [marked().tracked(), runs("a2", "0"), ok()];
    let end = ("PodFailurePolicy", TARGET);
    check_sync("a failure policy is met too", &given, &pods, [0, 1, 2, 1], ("1", None), end);
    let given = indexed(2, most, succeeds(one_of(), by_index(1)));
    let pods = [failed("a", "0", "1"), ok()];
    let end = ("FailedIndexes", FAILED);
    check_sync("a limit of an index is met too", &given, &pods, [0, 1, 1, 0], ("1", Some("0")), end);
    let given = indexed(2, 1, succeeds(one_of(), json!({})));
    let end = ("BackoffLimitExceeded", FAILED);
    let pods = [bad(), failed("a2", "0", "0"), ok()];
    check_sync("the limit is met too", &given, &pods, [0, 1, 2, 0], ("1", None), end);
    let given = after(indexed(2, most, succeeds(json!({"succeededCount": 1}), fails.clone())), 1);
    let pods = [marked().tracked(), ok()];
    check_sync("a failure policy is met later", &given, &pods, [0, 1, 1, 0], ("1", None), done);
    let given = after(indexed(2, most, succeeds(json!({"succeededIndexes": "1"}), by_index(1))), 1);
    let pods = [failed("a", "0", "1"), ok()];
    check_sync("a limit of an index is met later", &given, &pods, [0, 1, 1, 0], ("1", Some("0")), done);
    let given = after(indexed(2, 1, succeeds(one_of(), json!({}))), 1);
    check_sync("the limit is met later", &given, &[bad(), ok()], [0, 1, 1, 0], ("1", None), done);
    let status = known("FailureTarget", "PodFailurePolicy", [1, 0], "1");
    let given = Given { status, ..indexed(2, most, succeeds(one_of(), fails)) };
    let end = ("PodFailurePolicy", FAILED);
    check_sync("a failed Job stays failed", &given, &[marked(), ok()], [0, 1, 1, 0], ("1", None), end);
    let given = indexed(1, most, json!({}));
    let reached = ("CompletionsReached", DONE);
    let pods = [is("a1", "0", "Succeeded")];
    check_sync("without a policy", &given, &pods, [0, 1, 0, 0], ("0", None), reached);
}
