//! Upstream's tables of syncs of Jobs whose Pods fail.

use super::*;

/// A failed Pod with the exit codes of these containers, each of which has ended long ago if that is said.
fn ended(containers: &[(&str, i32, bool)]) -> Value {
    let state = |(name, code, long_ago): &(&str, i32, bool)| {
        let at = long_ago.then_some("1970-01-01T00:00:01Z");
        json!({"name": name, "state": {"terminated": {"exitCode": code, "finishedAt": at}}})
    };
    json!({"phase": "Failed", "containerStatuses": containers.iter().map(state).collect::<Vec<_>>()})
}

fn codes(action: &str, operator: &str, values: &[i32]) -> Value {
    json!({"action": action, "onExitCodes": {"operator": operator, "values": values}})
}

fn on_condition(action: &str, kind: &str) -> Value {
    json!({"action": action, "onPodConditions": [{"type": kind, "status": "True"}]})
}

/// A Pod whose conditions of these types hold.
fn marked(kinds: &[&str]) -> Value {
    let conditions: Vec<Value> = kinds.iter().map(|k| json!({"type": k, "status": "True"})).collect();
    json!({"phase": "Failed", "conditions": conditions})
}

/// A Job with a failure policy: its parallelism, its completions, its limit and whether it is indexed.
fn policy((parallelism, completions, limit): (i32, i32, i32), rules: &[Value]) -> Given {
    let spec = json!({"podFailurePolicy": {"rules": rules}});
    Given { failed_only: true, limit, spec, ..given(parallelism, completions, [0; 6]) }
}

/// The end of a Job: the reason, the message, and whether its Pods are gone.
type End<'a> = Option<(&'a str, &'a str, bool)>;

/// Checks the conditions and the numbers of active and failed Pods after a sync of Pods `mypod-0`, `mypod-1` and so on.
fn check_policy(name: &str, given: &Given, statuses: &[Value], end: End<'_>, numbers: [i32; 2]) {
    let made = |(i, status): (usize, &Value)| {
        let name = format!("mypod-{i}");
        let mut status = status.clone();
        let deleted = status.as_object_mut().unwrap().remove("deleted");
        let at = deleted.map(|_| jiff::Timestamp::from_second(NOW).unwrap().to_string());
        let index = "batch.kubernetes.io/job-completion-index";
        let annotations = if given.indexed { json!({index: i.to_string()}) } else { json!({}) };
        Arc::new(view(&json!({
            "metadata": {"name": name, "uid": name, "namespace": "default", "finalizers": [TRACKING],
                "deletionTimestamp": at, "annotations": annotations},
            "status": status,
        })))
    };
    let pods: Vec<Arc<PodView>> = statuses.iter().enumerate().map(made).collect();
    let (got, status) = run(given, &job(given), &pods);
    let said: Vec<[&str; 3]> = status
        .conditions
        .iter()
        .flatten()
        .map(|c| [c.type_.as_str(), c.reason.as_deref().unwrap(), c.message.as_deref().unwrap()])
        .collect();
    let want = match end {
        None => Vec::new(),
        Some((reason, message, true)) => {
            vec![["FailureTarget", reason, message], ["Failed", reason, message]]
        }
        Some((reason, message, false)) => vec![["FailureTarget", reason, message]],
    };
    assert_eq!(said, want, "{name}");
    assert_eq!(([got.active, got.failed], got.succeeded), (numbers, 0), "{name}");
}

const POLICY: &str = "PodFailurePolicy";

fn exited(container: &str, pod: &str, code: i32, rule: usize) -> String {
    format!(
        "Container {container} for pod default/{pod} failed with exit code {code} matching FailJob rule at index {rule}"
    )
}

/// Cases of `TestSyncJobWithJobPodFailurePolicy` about exit codes; those with a gate off that is locked to on are left
/// out.
#[test]
fn exit_codes() {
    let ok = (1, 1, 6);
    let rules = [codes("Ignore", "In", &[1, 2, 3]), codes("FailJob", "In", &[5, 6, 7])];
    let mut named = rules.clone();
    for rule in &mut named {
        rule["onExitCodes"]["containerName"] = json!("main-container");
    }
    let both = ended(&[("monitoring-container", 5, false), ("main-container", 42, true)]);
    check_policy("another container", &policy(ok, &named), &[both], None, [1, 1]);
    let main = |code: i32, long_ago: bool| ended(&[("main-container", code, long_ago)]);
    let mut running = main(5, false);
    running["phase"] = json!("Running");
    check_policy("running pod should not result in job fail", &policy(ok, &rules), &[running], None, [1, 0]);
    let text = exited("main-container", "mypod-0", 5, 1);
    let end = Some((POLICY, text.as_str(), true));
    check_policy("fail job based on OnExitCodes", &policy(ok, &rules), &[main(5, false)], end, [0, 1]);
    for pod in ["mypod-0", "already-deleted-pod"] {
        let text = exited("main-container", pod, 5, 1);
        let target = json!([{"type": "FailureTarget", "status": "True", "reason": POLICY, "message": text}]);
        let given = Given { status: json!({"conditions": target}), ..policy(ok, &rules) };
        let end = Some((POLICY, text.as_str(), true));
        check_policy("job marked already as failure target", &given, &[main(5, false)], end, [0, 1]);
    }
    let text = exited("main-container", "mypod-1", 5, 1);
    let pods = [json!({"phase": "Running"}), main(5, false)];
    let end = Some((POLICY, text.as_str(), false));
    check_policy("fail job with multiple pods", &policy((2, 2, 6), &rules), &pods, end, [0, 2]);
    let text = exited("main-container", "mypod-0", 5, 1);
    let indexed = Given { indexed: true, ..policy(ok, &rules) };
    let end = Some((POLICY, text.as_str(), true));
    check_policy("fail indexed job based on OnExitCodes", &indexed, &[main(5, false)], end, [0, 1]);
    let not_in = [codes("FailJob", "NotIn", &[5, 6, 7])];
    let text = exited("main-container", "mypod-0", 42, 0);
    let end = Some((POLICY, text.as_str(), true));
    check_policy("NotIn operator", &policy(ok, &not_in), &[main(42, false)], end, [0, 1]);
    check_policy("default with NotIn operator", &policy(ok, &not_in), &[main(5, true)], None, [1, 1]);
    let mut init = main(143, false);
    init["initContainerStatuses"] =
        json!([{"name": "init-container", "state": {"terminated": {"exitCode": 5}}}]);
    let text = exited("init-container", "mypod-0", 5, 1);
    let end = Some((POLICY, text.as_str(), true));
    check_policy(
        "fail job based on OnExitCodes for InitContainer",
        &policy(ok, &rules),
        &[init],
        end,
        [0, 1],
    );
    let strict = policy((1, 1, 0), &rules);
    let two = ended(&[("container1", 2, false), ("container2", 6, false)]);
    check_policy("ignore; the first rule is executed only", &strict, &[two], None, [1, 0]);
    check_policy("ignore pod failure", &strict, &[ended(&[("", 1, false)])], None, [1, 0]);
    let end = Some(("BackoffLimitExceeded", "Job has reached the specified backoff limit", true));
    check_policy("default job", &strict, &[ended(&[("", 10, false)])], end, [0, 1]);
    let counts = [codes("Count", "In", &[1, 2]), codes("Ignore", "In", &[2, 3])];
    let counted = [ended(&[("", 2, true)])];
    check_policy("count; the first rule is executed only", &policy(ok, &counts), &counted, None, [1, 1]);
}

/// Cases of `TestSyncJobWithJobPodFailurePolicy` about conditions of Pods.
#[test]
fn conditions_of_pods() {
    let target = "DisruptionTarget";
    let rules = [on_condition("Count", "ResourceLimitExceeded"), on_condition("Ignore", target)];
    let mut both = marked(&["ResourceLimitExceeded", target]);
    both["containerStatuses"] =
        json!([{"name": "", "state": {"terminated": {"finishedAt": "1970-01-01T00:00:01Z"}}}]);
    check_policy("count; the first rule is executed only", &policy((1, 1, 6), &rules), &[both], None, [1, 1]);
    let ignoring = policy((1, 1, 0), &[on_condition("Ignore", target)]);
    check_policy("ignore pod failure", &ignoring, &[marked(&[target])], None, [1, 0]);
    let mut just_now = marked(&[target]);
    just_now["deleted"] = json!(true);
    check_policy("ignored failures delays pod recreation", &ignoring, &[just_now], None, [0, 0]);
    let failing = policy((1, 1, 6), &[on_condition("FailJob", target)]);
    let text = "Pod default/mypod-0 has condition DisruptionTarget matching FailJob rule at index 0";
    let end = Some((POLICY, text, true));
    check_policy("fail job based on OnPodConditions", &failing, &[marked(&[target])], end, [0, 1]);
    let counting = policy((1, -1, 0), &[on_condition("Count", target)]);
    let terminating = json!({"deleted": true});
    check_policy("terminating Pod not considered failed", &counting, &[terminating], None, [0, 0]);
}

/// Upstream's cases of `TestJobBackoffOnRestartPolicyNever`.
#[test]
fn the_limit_of_failures() {
    let check_limit = |size: i32, limit: i32, active: usize, failed: usize, want: Got| {
        let mut g = Given { limit, ..given(size, size, [0, active, 0, 0, failed, 0]) };
        let meta = json!({"labels": {"a": "b"}});
        g.spec =
            json!({"template": {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": []}}});
        check(&format!("{active} active, {failed} failed, limit {limit}"), &g, want);
    };
    check_limit(1, 0, 1, 0, got(0, 0, [1, 0, 0, 0, 0], &[]));
    check_limit(1, 1, 0, 1, got(1, 0, [1, 0, 0, 1, 0], &[]));
    check_limit(1, 1, 0, 2, got(0, 0, [0, 0, 0, 2, 0], FAILED));
    check_limit(2, 6, 1, 6, got(1, 0, [2, 0, 0, 6, 0], &[]));
    check_limit(2, 6, 0, 7, got(0, 0, [0, 0, 0, 7, 0], FAILED));
}

/// Upstream's case of `TestSingleJobFailedCondition`.
#[test]
fn one_condition_of_a_type() {
    let begun = jiff::Timestamp::from_second(NOW - 15).unwrap().to_string();
    let message = "Job was active longer than specified deadline";
    let not_yet =
        json!([{"type": "Failed", "status": "False", "reason": "DeadlineExceeded", "message": message}]);
    let g = Given {
        spec: json!({"activeDeadlineSeconds": 10}),
        status: json!({"startTime": begun, "conditions": not_yet}),
        ..given(1, 1, [0; 6])
    };
    let (got, status) = run(&g, &job(&g), &[]);
    let failed: Vec<_> = status.conditions.iter().flatten().filter(|c| c.type_ == "Failed").collect();
    assert_eq!((got.deleted, failed.len(), failed[0].status.as_str()), (0, 1, "True"));
}

/// Upstream's cases of `TestSyncJobWhenManagedBy`; the gate of one is locked to on.
#[test]
fn jobs_of_other_controllers() {
    let check_managed = |by: Option<&str>, ours: bool| {
        let begun = jiff::Timestamp::from_second(NOW).unwrap().to_string();
        let g = Given {
            spec: json!({"managedBy": by}),
            status: json!({"active": 1, "ready": 1, "startTime": begun}),
            ..given(2, 2, [0; 6])
        };
        let job = job(&g);
        assert_eq!(Rules(job.spec.as_ref().unwrap()).managed_by_other().is_none(), ours, "{by:?}");
        if ours {
            check("managed here", &g, got(2, 0, [2, 0, 0, 0, 0], &[]));
        }
    };
    check_managed(Some("custom-managed-by"), false);
    check_managed(Some("kubernetes.io/job-controller"), true);
    check_managed(None, true);
}
