//! The arithmetic of a budget and its status: pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::common::conditions;
use crate::common::share::scaled;
use crate::views::{PodView, Truth};

/// The time within which a Pod is expected to be deleted after its eviction was allowed.
pub(super) const DELETION_TIMEOUT: Duration = Duration::from_mins(2);
const ALLOWED: &str = "DisruptionAllowed";

/// Whether a budget counts the Pods that its Pods' controllers want, and not the present ones.
pub(super) fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// The number of Pods that there should be, and the number of them that should be healthy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) expected: i32,
    pub(super) desired: i32,
}

/// Computes the counts from the number of Pods that match, and of those that their controllers want.
///
/// DIFFERENCE: numbers beyond 32 bits stay at the largest; upstream's wrap around, and could allow evictions.
pub(super) fn counts(spec: &PodDisruptionBudgetSpec, matching: usize, scale: i64) -> Result<Counts, String> {
    let narrow = |n: i64| i32::try_from(n).unwrap_or(if n < 0 { i32::MIN } else { i32::MAX });
    let (expected, desired) = match (&spec.max_unavailable, &spec.min_available) {
        (Some(unavailable), _) => {
            let unavailable = scaled(unavailable, scale, true)?;
            (scale, scale.saturating_sub(unavailable).max(0))
        }
        (None, Some(available @ IntOrString::Int(_))) => {
            (i64::try_from(matching).unwrap_or(i64::MAX), scaled(available, 0, true)?)
        }
        (None, Some(available)) => (scale, scaled(available, scale, true)?),
        (None, None) => (0, 0),
    };
    Ok(Counts { expected: narrow(expected), desired: narrow(desired) })
}

/// The Pods whose eviction was allowed, and that are still to be deleted.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Disrupted {
    /// The Pods and times in the form of the status.
    pub(super) pods: BTreeMap<String, Time>,
    /// The time after which the first of these Pods is not expected to be deleted any more.
    pub(super) recheck: Option<Duration>,
    /// The Pods that were expected to be deleted, and were not.
    pub(super) kept: Vec<Arc<PodView>>,
}

/// Goes through the status's disrupted Pods; `passed` returns the time since an eviction.
pub(super) fn disrupted(
    all: &[Arc<PodView>],
    noted: Option<&BTreeMap<String, Time>>,
    passed: impl Fn(&str, Timestamp) -> Duration,
) -> Disrupted {
    let mut found = Disrupted::default();
    let Some(noted) = noted else { return found };
    for pod in all.iter().filter(|p| !p.is_deleting()) {
        let name = pod.name();
        let Some(at) = noted.get(name) else { continue };
        let passed = passed(name, at.0);
        if passed > DELETION_TIMEOUT {
            found.kept.push(pod.clone());
            continue;
        }
        let left = DELETION_TIMEOUT.saturating_sub(passed);
        found.recheck = Some(found.recheck.map_or(left, |r| r.min(left)));
        found.pods.insert(name.to_owned(), at.clone());
    }
    found
}

/// Counts the Pods that are ready and will stay.
pub(super) fn healthy(all: &[Arc<PodView>], disrupted: &Disrupted) -> i32 {
    let stays = |p: &&Arc<PodView>| !p.is_deleting() && !disrupted.pods.contains_key(p.name());
    let count = all.iter().filter(stays).filter(|p| p.is_ready()).count();
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Computes the status of a budget; `None` if it has that already.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    counts: Counts,
    healthy: i32,
    disrupted: BTreeMap<String, Time>,
    now: Timestamp,
) -> Option<PodDisruptionBudgetStatus> {
    let old = budget.status.clone().unwrap_or_default();
    // Without Pods nothing is allowed, so that the first Pods are safe until they are counted.
    let surplus = healthy.saturating_sub(counts.desired).max(0);
    let allowed = if counts.expected > 0 { surplus } else { 0 };
    let generation = budget.metadata.generation;
    let (status, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let said = old.conditions.iter().flatten().find(|c| c.type_ == ALLOWED);
    let has = [old.current_healthy, old.desired_healthy, old.expected_pods, old.disruptions_allowed];
    if has == [Some(healthy), Some(counts.desired), Some(counts.expected), Some(allowed)]
        && old.disrupted_pods.clone().unwrap_or_default() == disrupted
        && old.observed_generation.unwrap_or(0) == generation.unwrap_or(0)
        && said.is_some_and(|c| (c.status.as_str(), c.reason.as_str()) == (status, reason))
    {
        return None;
    }
    let mut conditions = old.conditions.unwrap_or_default();
    let condition = Condition {
        type_: ALLOWED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        last_transition_time: Time(now),
        observed_generation: generation,
    };
    conditions::set(&mut conditions, condition);
    Some(PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(counts.desired),
        expected_pods: Some(counts.expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: Some(disrupted),
        observed_generation: generation,
        conditions: Some(conditions),
    })
}

/// Makes the status of a budget that cannot be counted: nothing is allowed, and a condition gives the reason; `None` if
/// the budget has that already.
pub(super) fn failed(
    budget: &PodDisruptionBudget,
    why: &str,
    now: Timestamp,
) -> Option<PodDisruptionBudgetStatus> {
    let old = budget.status.clone().unwrap_or_default();
    let mut status = old.clone();
    status.disruptions_allowed = Some(0);
    let condition = Condition {
        type_: ALLOWED.to_owned(),
        status: "False".to_owned(),
        reason: "SyncFailed".to_owned(),
        message: why.to_owned(),
        last_transition_time: Time(now),
        observed_generation: status.observed_generation,
    };
    conditions::set(status.conditions.get_or_insert_default(), condition);
    (status != old).then_some(status)
}

/// Returns the time for which a Pod's condition has announced a disruption that may not come; `None` without such a
/// condition. `passed` returns the time since the condition's change.
pub(super) fn stale(pod: &PodView, passed: impl Fn(Timestamp) -> Duration) -> Option<Duration> {
    if pod.is_deleting() || pod.is_terminal() {
        return None;
    }
    // The kubelet may take any time to end a Pod.
    let condition =
        pod.disruption().filter(|c| c.status == Truth::True && c.reason != "TerminationByKubelet")?;
    Some(passed(condition.since.unwrap_or(Timestamp::UNIX_EPOCH)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    #[test]
    fn arithmetic() {
        let check = |spec: Value, matching: usize, scale: i64, want: Result<(i32, i32), &str>| {
            let got = counts(&from_value(spec.clone()).unwrap(), matching, scale);
            let want = want.map(|(expected, desired)| Counts { expected, desired }).map_err(str::to_owned);
            assert_eq!(got, want, "{spec} {matching} {scale}");
        };
        check(json!({"minAvailable": 3}), 2, 99, Ok((2, 3)));
        check(json!({"minAvailable": "28%"}), 2, 11, Ok((11, 4)));
        check(json!({"minAvailable": "28%"}), 2, 22, Ok((22, 7)));
        check(json!({"minAvailable": "34%"}), 0, 3, Ok((3, 2)));
        check(json!({"minAvailable": "100%"}), 0, 0, Ok((0, 0)));
        check(json!({"maxUnavailable": 2}), 1, 7, Ok((7, 5)));
        check(json!({"maxUnavailable": 9}), 1, 7, Ok((7, 0)));
        check(json!({"maxUnavailable": "30%"}), 1, 7, Ok((7, 4)));
        check(json!({"maxUnavailable": "30%"}), 1, 3, Ok((3, 2)));
        check(json!({}), 5, 5, Ok((0, 0)));
        // A server lets none of these in, or they could exceed 32 bits.
        check(json!({"minAvailable": "1000000000%"}), 1, i64::from(i32::MAX), Ok((i32::MAX, i32::MAX)));
        check(json!({"maxUnavailable": "1%"}), 1, i64::from(i32::MAX) * 10_000, Ok((i32::MAX, i32::MAX)));
        check(json!({"maxUnavailable": i32::MIN}), 1, 5, Ok((5, i32::MAX)));
        check(json!({"minAvailable": i32::MIN}), 1, 5, Ok((1, i32::MIN)));
        let no_percent = "invalid value for IntOrString: invalid type: string is not a percentage";
        check(json!({"maxUnavailable": "x"}), 1, 5, Err(no_percent));
    }

    /// A budget whose selector cannot be read: an older server may have let it in. Upstream's cases of
    /// `TestInvalidSelectors`.
    #[test]
    fn what_cannot_be_counted_allows_nothing() {
        let now = Timestamp::UNIX_EPOCH;
        for selector in [
            json!({"matchLabels": {"k8s.io/too/many/slashes": "value"}}),
            json!({"matchExpressions": [{"key": "foo", "operator": "illegal", "values": ["bar"]}]}),
        ] {
            let spec = json!({"minAvailable": 3, "selector": selector});
            let allowing =
                json!({"disruptionsAllowed": 2, "currentHealthy": 5, "desiredHealthy": 3, "expectedPods": 5});
            let mut budget: PodDisruptionBudget =
                from_value(json!({"metadata": {}, "spec": spec, "status": allowing})).unwrap();
            let wrong = objects::Selector::new(budget.spec.as_ref().unwrap().selector.as_ref()).unwrap_err();
            let status = failed(&budget, &wrong.to_string(), now).unwrap();
            assert_eq!((status.disruptions_allowed, status.current_healthy), (Some(0), Some(5)));
            assert_eq!(status.conditions.as_ref().unwrap()[0].reason, "SyncFailed");
            budget.status = Some(status);
            assert_eq!(failed(&budget, &wrong.to_string(), now), None, "it is not written again");
        }
    }
}

#[cfg(test)]
#[path = "tables.rs"]
mod tables;
