//! Upstream's tables of the policies (`pod_failure_policy_test.go`, `success_policy_test.go`), as they are with all
//! features on; those are locked to on.

use serde_json::{Value, json};

use super::*;
use crate::views::tests::view;

/// A failed Pod: the exit codes of its init containers and containers by name, and its conditions.
fn failed(inits: &[(&str, i32)], containers: &[(&str, Option<i32>)], conditions: &[(&str, &str)]) -> PodView {
    let state = |name: &str, code: Option<i32>| {
        let state = code.map_or(json!({}), |code| json!({"terminated": {"exitCode": code}}));
        json!({"name": name, "state": state})
    };
    let inits: Vec<Value> = inits.iter().map(|(name, code)| state(name, Some(*code))).collect();
    let containers: Vec<Value> = containers.iter().map(|(name, code)| state(name, *code)).collect();
    let conditions: Vec<Value> = conditions.iter().map(|(k, s)| json!({"type": k, "status": s})).collect();
    view(&json!({
        "metadata": {"namespace": "default", "name": "mypod",
            "finalizers": ["batch.kubernetes.io/job-tracking"]},
        "spec": {"containers": []},
        "status": {"phase": "Failed", "initContainerStatuses": inits, "containerStatuses": containers,
            "conditions": conditions},
    }))
}

fn codes(action: &str, operator: &str, values: &[i32]) -> Value {
    json!({"action": action, "onExitCodes": {"operator": operator, "values": values}})
}

fn target(action: &str, status: &str) -> Value {
    json!({"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": status}]})
}

/// 22 of upstream's 24 cases of `TestMatchPodFailurePolicy`; the two others turn a feature off.
#[test]
fn failures() {
    let check =
        |name: &str, rules: Option<&[Value]>, pod: &PodView, want: (Option<&str>, bool, Option<&str>)| {
            let policy = rules.map(|rules| serde_json::from_value(json!({ "rules": rules })).unwrap());
            let got = judge(policy.as_ref(), pod);
            assert_eq!((got.fails_job.as_deref(), got.counts, got.action), want, "{name}");
        };
    let exit = |code: i32| failed(&[], &[("main-container", Some(code))], &[]);
    let marked = |status: &str| failed(&[], &[], &[("DisruptionTarget", status)]);
    let text = |code: i32, rule: usize| {
        format!(
            "Container main-container for pod default/mypod failed with exit code {code} matching FailJob rule at index {rule}"
        )
    };
    let (fails, counts) = ((Some("FailJob")), (None, true, None));
    let (two, six, one) = (text(2, 1), text(6, 1), text(1, 0));
    let unknown = [codes("UnknownAction", "In", &[1, 2]), codes("FailJob", "In", &[2, 3])];
    check("unknown action, exit codes", Some(&unknown), &exit(2), (Some(&two), true, fails));
    let unknown = [target("UnknownAction", "True"), target("Ignore", "True")];
    check("unknown action, conditions", Some(&unknown), &marked("True"), (None, false, Some("Ignore")));
    let unknown = [codes("Ignore", "UnknownOperator", &[1, 2]), codes("FailJob", "In", &[2, 3])];
    check("unknown operator", Some(&unknown), &exit(2), (Some(&two), true, fails));
    check("no policy", None, &exit(2), counts);
    let ignored = (None, false, Some("Ignore"));
    check("ignored by code", Some(&[codes("Ignore", "In", &[1, 2, 3])]), &exit(2), ignored);
    let negative = [codes("Ignore", "In", &[-1_073_741_676, -1_073_741_510])];
    check("negative codes", Some(&negative), &exit(-1_073_741_510), ignored);
    let first = text(2, 0);
    check(
        "fails by code",
        Some(&[codes("FailJob", "In", &[1, 2, 3])]),
        &exit(2),
        (Some(&first), true, fails),
    );
    let several = failed(
        &[("init-container", 0)],
        &[("main-container", Some(111)), ("support-container", Some(0))],
        &[],
    );
    check("successes are skipped", Some(&[codes("FailJob", "NotIn", &[111])]), &several, counts);
    let index = (None, true, Some("FailIndex"));
    check("index by code", Some(&[codes("FailIndex", "In", &[1, 2, 3])]), &exit(2), index);
    let pair = failed(&[], &[("main-container", Some(1)), ("support-container", Some(0))], &[]);
    check("not in 0", Some(&[codes("FailJob", "NotIn", &[0])]), &pair, (Some(&one), true, fails));
    let second = [codes("Count", "In", &[1, 2, 3]), codes("FailJob", "In", &[4, 5, 6])];
    check("second rule", Some(&second), &exit(6), (Some(&six), true, fails));
    let waiting = failed(&[], &[("foo", None), ("bar", Some(2))], &[]);
    check("counted", Some(&[codes("Count", "In", &[1, 2, 3])]), &waiting, (None, true, Some("Count")));
    check("index by condition", Some(&[target("FailIndex", "True")]), &marked("True"), index);
    for status in ["True", "False", "Unknown"] {
        check("ignored by condition", Some(&[target("Ignore", status)]), &marked(status), ignored);
    }
    check("False is not True", Some(&[target("Ignore", "False")]), &marked("True"), counts);
    check("True is not False", Some(&[target("Ignore", "True")]), &marked("False"), counts);
    let bare = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
    check("True by default", Some(&[bare]), &marked("False"), counts);
    let text = "Pod default/mypod has condition DisruptionTarget matching FailJob rule at index 0";
    check(
        "fails by condition",
        Some(&[target("FailJob", "True")]),
        &marked("True"),
        (Some(text), true, fails),
    );
    let count = [target("Count", "True")];
    check("counted by condition", Some(&count), &marked("True"), (None, true, Some("Count")));
    let five = [
        codes("Count", "NotIn", &[8]),
        codes("Ignore", "In", &[1, 2, 3]),
        codes("FailJob", "NotIn", &[5, 6, 7]),
        json!({"action": "Count", "onPodConditions": [{"type": "ResourceLimitExceeded", "status": "True"}]}),
        target("Ignore", "True"),
    ];
    check("the first rule decides", Some(&five), &exit(32), (None, true, Some("Count")));
    check("no rule fits", Some(&[codes("FailJob", "In", &[9])]), &exit(2), counts);
}

/// 31 of upstream's 32 cases of `TestMatchSuccessPolicy`; the other one turns the feature off.
#[test]
fn successes() {
    type Rule = (Option<&'static str>, Option<i32>);
    let check = |rules: Option<&[Rule]>, succeeded: &str, want: Option<usize>| {
        let policy = rules.map(|rules| SuccessPolicy {
            rules: rules
                .iter()
                .map(|(indexes, count)| k8s_openapi::api::batch::v1::SuccessPolicyRule {
                    succeeded_indexes: indexes.map(str::to_owned),
                    succeeded_count: *count,
                })
                .collect(),
        });
        // Upstream hands over indexes that are not below the completions.
        let got = enough(policy.as_ref(), 10, &Indexes::parse(succeeded, 100));
        assert_eq!(got, want.map(|i| format!("Matched rules at index {i}")), "{rules:?} {succeeded}");
    };
    check(None, "0", None);
    check(Some(&[]), "0", None);
    check(Some(&[(Some("invalid-form"), None)]), "0", None);
    check(Some(&[(Some("0-2"), None)]), "0-2,4-7", Some(0));
    check(Some(&[(Some("3"), None)]), "0-2", None);
    check(Some(&[(None, Some(2))]), "0-2", Some(0));
    check(Some(&[(None, Some(4))]), "0-2", None);
    check(Some(&[(Some("9"), None), (Some("4,6"), None)]), "0-2,4-7", Some(1));
    check(Some(&[(Some("0,1"), None), (Some("5"), None)]), "0-2,4-7", Some(0));
    check(Some(&[(Some("3-6"), Some(2))]), "0-2,4-7", Some(0));
    check(Some(&[(Some("3-6"), Some(2))]), "0-2,6,7", None);
    check(Some(&[(None, Some(4))]), "", None);
    check(Some(&[(Some("2-4,6-8"), None)]), "1-5,6-9", Some(0));
    check(Some(&[(Some("2-4,6-9"), None)]), "2-4,6-9", Some(0));
    check(Some(&[(Some("2-4,8-12"), None)]), "2-5,7-15", Some(0));
    check(Some(&[(Some(""), None)]), "1-3", None);
    check(Some(&[(Some(""), None)]), "", None);
    check(Some(&[(Some("10-12,14-16"), None)]), "1-3,5-7", None);
    for (rule, count, succeeded) in [
        ("1-3,5-7", 4, "2-4,6-8"),
        ("2-4,6-9", 4, "1-3,5-7"),
        ("0-4,6-9", 5, "1-3,7,8"),
        ("0-6,8-9", 7, "1-3,5-9"),
        ("0-5,7-9", 8, "1-5,7-10"),
        ("0-3,6-9", 7, "1-10"),
    ] {
        check(Some(&[(Some(rule), None)]), succeeded, None);
        check(Some(&[(Some(rule), Some(count))]), succeeded, Some(0));
    }
}
