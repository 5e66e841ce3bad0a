//! Upstream's cases of the arithmetic: the controllers' sizes are given here. The simulation has the cases that find these.
//! Together they are 23 of the 24 tests of `disruption_test.go`, with `TestInvalidSelectors` in `count.rs`; in the other
//! (`TestPDBNotExist`) there is no budget, and nothing to be counted.

use jiff::SignedDuration;
use serde_json::{Value, from_value, json};

use super::*;
use crate::disruption::STALE;
use crate::views::tests::view;

fn pod(name: &str, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": status}]}})
}

fn budget(spec: &Value) -> PodDisruptionBudget {
    from_value(json!({"metadata": {}, "spec": spec})).unwrap()
}

/// Counts Pods, of which so many are ready and so many are not, whose controllers want `scale`. The numbers are those of
/// allowed, healthy, desired and expected Pods.
fn check(name: &str, spec: &Value, (ready, unready): (usize, usize), scale: i64, want: [i32; 4]) {
    let budget = budget(spec);
    let pods: Vec<Arc<PodView>> =
        (0..ready + unready).map(|i| Arc::new(view(&pod(&format!("p{i}"), i < ready)))).collect();
    let counts = counts(budget.spec.as_ref().unwrap(), pods.len(), scale).unwrap();
    let healthy = healthy(&pods, &Disrupted::default());
    let status = status(&budget, counts, healthy, BTreeMap::new(), Timestamp::UNIX_EPOCH).unwrap();
    let numbers =
        [status.disruptions_allowed, status.current_healthy, status.desired_healthy, status.expected_pods];
    assert_eq!(numbers, want.map(Some), "{name}");
    let said = &status.conditions.unwrap()[0];
    let allowed = if want[0] > 0 { "True" } else { "False" };
    assert_eq!((said.type_.as_str(), said.status.as_str()), ("DisruptionAllowed", allowed), "{name}");
}

/// `TestNoSelector`, `TestUnavailable`, `TestIntegerMaxUnavailable`, `TestNakedPod`, `TestStatusForUnmanagedPod` and
/// `TestTotalUnmanagedPods`.
#[test]
fn pods_without_controllers() {
    let three = json!({"minAvailable": 3});
    check("no selector", &three, (0, 0), 0, [0, 0, 3, 0]);
    check("no selector", &three, (1, 0), 0, [0, 1, 3, 1]);
    for (i, count) in [0, 1, 2, 3].into_iter().zip(0..) {
        check("unavailable", &three, (count, 0), 0, [0, i, 3, i]);
    }
    check("unavailable", &three, (4, 0), 0, [1, 4, 3, 4]);
    check("unavailable", &three, (3, 1), 0, [0, 3, 3, 4]);
    for spec in [json!({"maxUnavailable": 1}), json!({"minAvailable": "28%"})] {
        check("no pod", &spec, (0, 0), 0, [0, 0, 0, 0]);
        check("a naked pod", &spec, (1, 0), 0, [0, 1, 0, 0]);
    }
}

/// `TestIntegerMaxUnavailableWithScaling`, `TestPercentageMaxUnavailableWithScaling`, `TestReplicaSet`,
/// `TestScaleResource`, `TestMultipleControllers`, `TestReplicationController`, `TestStatefulSetController` and
/// `TestTwoControllers`.
#[test]
fn pods_of_controllers() {
    let two = json!({"maxUnavailable": 2});
    check("integer with scaling", &two, (1, 0), 7, [0, 1, 5, 7]);
    check("integer with scaling", &two, (1, 0), 5, [0, 1, 3, 5]);
    let third = json!({"maxUnavailable": "30%"});
    check("percentage with scaling", &third, (1, 0), 7, [0, 1, 4, 7]);
    check("percentage with scaling", &third, (1, 0), 3, [0, 1, 2, 3]);
    check("replica set", &json!({"minAvailable": "20%"}), (1, 0), 10, [0, 1, 2, 10]);
    check("scale resource", &json!({"maxUnavailable": 5}), (4, 0), 10, [0, 4, 5, 10]);
    let little = json!({"minAvailable": "1%"});
    check("multiple controllers", &little, (2, 0), 0, [0, 2, 0, 0]);
    check("multiple controllers", &little, (2, 0), 1, [1, 2, 1, 1]);
    let third = json!({"minAvailable": "34%"});
    check("a controller", &third, (0, 0), 0, [0, 0, 0, 0]);
    for (ready, want) in [(1, [0, 1, 2, 3]), (2, [0, 2, 2, 3]), (3, [1, 3, 2, 3]), (4, [2, 4, 2, 3])] {
        check("a controller", &third, (ready, 0), 3, want);
    }
    let both = json!({"minAvailable": "28%"});
    check("two controllers", &both, (0, 0), 0, [0, 0, 0, 0]);
    for (i, count) in (1..=6).zip(1..=6) {
        check("the first", &both, (0, i), 11, [0, 0, 4, 11]);
        let allowed = i32::from(count == 5);
        if count < 6 {
            check("the first", &both, (i, 6), 11, [allowed, count, 4, 11]);
        }
    }
    for (ready, count) in (5..=9).zip(5..=9) {
        check("the second", &both, (ready, 13), 22, [(count - 7).max(0), count, 7, 22]);
    }
}

/// `TestUpdateDisruptedPods`.
#[test]
fn pods_that_may_go() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let ago = |minutes: i64| Time(now - SignedDuration::from_mins(minutes));
    let noted = [("p1", 0), ("p2", 3), ("p3", 1), ("notthere", 0)];
    let noted: BTreeMap<String, Time> = noted.map(|(pod, minutes)| (pod.to_owned(), ago(minutes))).into();
    let mut going = pod("p1", true);
    going["metadata"]["deletionTimestamp"] = json!(now.to_string());
    let pods = [going, pod("p2", true), pod("p3", true)].map(|pod| Arc::new(view(&pod)));
    let passed = |_: &str, at: Timestamp| Duration::try_from(now.duration_since(at)).unwrap();
    let found = disrupted(&pods, Some(&noted), passed);
    let kept: Vec<&str> = found.kept.iter().map(|pod| pod.name()).collect();
    assert_eq!((kept, found.recheck), (vec!["p2"], Some(Duration::from_mins(1))));
    let budget = budget(&json!({"minAvailable": 1}));
    let counts = counts(budget.spec.as_ref().unwrap(), pods.len(), 0).unwrap();
    let healthy = healthy(&pods, &found);
    let status = status(&budget, counts, healthy, found.pods, now).unwrap();
    let numbers =
        [status.disruptions_allowed, status.current_healthy, status.desired_healthy, status.expected_pods];
    assert_eq!(numbers, [0, 1, 1, 3].map(Some));
    assert_eq!(status.disrupted_pods, Some([("p3".to_owned(), ago(1))].into()));
}

/// `TestStalePodDisruption`.
#[test]
fn disruptions_that_do_not_come() {
    let check = |name: &str, status: Option<&str>, deleted: bool, passed: Duration, want: bool| {
        let conditions = status.map(|status| json!({"type": "DisruptionTarget", "status": status}));
        let at = deleted.then_some("2026-01-01T00:00:00Z");
        let pod = view(&json!({
            "metadata": {"name": "foo", "namespace": "default", "deletionTimestamp": at},
            "status": {"conditions": Vec::from_iter(conditions)},
        }));
        assert_eq!(stale(&pod, |_| passed).is_some_and(|passed| passed >= STALE), want, "{name}");
    };
    let second = Duration::from_secs(1);
    let (before, after) = (STALE.saturating_sub(second), STALE + second);
    check("stale pod disruption", Some("True"), false, after, true);
    check("pod disruption in progress", Some("True"), false, before, false);
    check("pod disruption actuated", Some("True"), true, after, false);
    check("no pod disruption", None, true, after, false);
    check("pod disruption cleared", Some("False"), true, after, false);
}

/// `TestKeepExistingPDBConditionDuringSync`.
#[test]
fn conditions_of_others() {
    let mut budget = budget(&json!({"minAvailable": 3, "selector": {}}));
    let mine = json!({"type": "ExistingTestCondition", "status": "True", "reason": "Test",
        "message": "This is a test condition", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let old = json!({"conditions": [mine], "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
        "disruptionsAllowed": 0});
    budget.status = from_value(old).unwrap();
    let counts = counts(budget.spec.as_ref().unwrap(), 0, 0).unwrap();
    let status = status(&budget, counts, 0, BTreeMap::new(), Timestamp::UNIX_EPOCH).unwrap();
    let conditions = status.conditions.unwrap();
    let kinds: Vec<&str> = conditions.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(kinds, ["ExistingTestCondition", "DisruptionAllowed"]);
    assert_eq!(
        (status.current_healthy, status.desired_healthy, status.expected_pods),
        (Some(0), Some(3), Some(0))
    );
}
