//! A Deployment's status and its conditions about progress.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::common::conditions;

use super::sizes::{available, max_unavailable, size, sum as add_up, wanted};

pub(super) const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const FAILURE: &str = "ReplicaFailure";
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
pub(super) const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";
const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";
const UPDATED: &str = "ReplicaSetUpdated";

/// Returns the seconds without progress after which a rollout counts as stuck; `None` for never.
pub(super) fn deadline(d: &Deployment) -> Option<i32> {
    d.spec.as_ref()?.progress_deadline_seconds.filter(|s| *s != i32::MAX)
}

pub(super) fn condition<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    conditions::find(status.conditions.iter().flatten(), kind)
}

pub(super) fn new_condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Sets a condition, unless one of the same status and reason is there; the transition's time changes
/// with the status only.
pub(super) fn set_condition(status: &mut DeploymentStatus, mut wanted: DeploymentCondition) {
    if let Some(current) = condition(status, &wanted.type_) {
        if (&current.status, &current.reason) == (&wanted.status, &wanted.reason) {
            return;
        }
        wanted = conditions::after(current, wanted);
    }
    remove_condition(status, &wanted.type_);
    status.conditions.get_or_insert_default().push(wanted);
}

/// Sets the condition about a rollout's progress.
pub(super) fn note_progress(d: &mut Deployment, value: &str, reason: &str, text: String, now: Timestamp) {
    let condition = new_condition(PROGRESSING, value, reason, text, now);
    set_condition(d.status.get_or_insert_default(), condition);
}

fn remove_condition(status: &mut DeploymentStatus, kind: &str) {
    if let Some(all) = &mut status.conditions {
        all.retain(|c| c.type_ != kind);
        if all.is_empty() {
            status.conditions = None;
        }
    }
}

/// Returns the condition to be written when a Deployment was paused or resumed just now. It keeps the time of a pause
/// from counting as lack of progress.
pub(super) fn pause_condition(d: &Deployment, now: Timestamp) -> Option<DeploymentCondition> {
    deadline(d)?;
    let current = d.status.as_ref().and_then(|s| condition(s, PROGRESSING)).and_then(|c| c.reason.as_deref());
    if current == Some(TIMED_OUT) {
        return None;
    }
    let paused = d.spec.as_ref().and_then(|s| s.paused).unwrap_or(false);
    match (paused, current == Some(PAUSED)) {
        (true, false) => Some((PAUSED, "Deployment is paused")),
        (false, true) => Some((RESUMED, "Deployment is resumed")),
        _ => None,
    }
    .map(|(reason, text)| new_condition(PROGRESSING, "Unknown", reason, text.to_owned(), now))
}

/// Computes the status's counts and availability from the ReplicaSets.
pub(super) fn of(
    d: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &[Arc<ReplicaSet>],
    now: Timestamp,
) -> DeploymentStatus {
    let all = || old.iter().chain(new);
    let sum = |count: fn(&ReplicaSet) -> i32| Some(add_up(all().map(|rs| count(rs)))).filter(|n| *n != 0);
    let ready = |rs: &ReplicaSet| rs.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or(0);
    let actual = |rs: &ReplicaSet| rs.status.as_ref().map_or(0, |s| s.replicas);
    let have = add_up(all().map(|rs| available(rs)));
    let missing = add_up(all().map(|rs| size(rs))).saturating_sub(have);
    let before = d.status.clone().unwrap_or_default();
    let mut status = DeploymentStatus {
        observed_generation: d.metadata.generation,
        replicas: sum(actual),
        updated_replicas: new.map(|rs| actual(rs)).filter(|n| *n != 0),
        ready_replicas: sum(ready),
        available_replicas: sum(available),
        unavailable_replicas: Some(missing).filter(|n| *n > 0),
        terminating_replicas: terminating(all()),
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    let condition = if have >= wanted(d) - max_unavailable(d) {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    let (value, reason, text) = condition;
    set_condition(&mut status, new_condition(AVAILABLE, value, reason, text.to_owned(), now));
    status
}

/// Counts the terminating Pods of all sets; `None` if one was synced and does not give its own number.
fn terminating<'a>(sets: impl Iterator<Item = &'a Arc<ReplicaSet>>) -> Option<i32> {
    let mut total = 0;
    for rs in sets {
        let status = rs.status.as_ref();
        match status.and_then(|s| s.terminating_replicas) {
            Some(n) => total += n,
            None if status.and_then(|s| s.observed_generation).unwrap_or(0) == 0 => {}
            None => return None,
        }
    }
    Some(total)
}

/// Whether every Pod is of the new version and available, and no other is left.
pub(super) fn is_complete(d: &Deployment, status: &DeploymentStatus) -> bool {
    let n = wanted(d);
    status.updated_replicas.unwrap_or(0) == n
        && status.replicas.unwrap_or(0) == n
        && status.available_replicas.unwrap_or(0) == n
        && status.observed_generation.unwrap_or(0) >= d.metadata.generation.unwrap_or(0)
}

fn has_progressed(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let n = |v: Option<i32>| v.unwrap_or(0);
    let old = |s: &DeploymentStatus| n(s.replicas) - n(s.updated_replicas);
    n(after.updated_replicas) > n(before.updated_replicas)
        || old(after) < old(before)
        || n(after.ready_replicas) > n(before.ready_replicas)
        || n(after.available_replicas) > n(before.available_replicas)
}

fn has_timed_out(d: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    let (Some(deadline), Some(c)) = (deadline(d), condition(status, PROGRESSING)) else { return false };
    match c.reason.as_deref() {
        Some(NEW_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => c
            .last_update_time
            .as_ref()
            .is_some_and(|t| now.duration_since(t.0) > SignedDuration::from_secs(i64::from(deadline))),
    }
}

/// Computes the status during a rollout: counts, availability, progress, failures.
pub(super) fn of_rollout(
    d: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &[Arc<ReplicaSet>],
    now: Timestamp,
) -> DeploymentStatus {
    let mut status = of(d, new, old, now);
    let before = d.status.clone().unwrap_or_default();
    let current = condition(&before, PROGRESSING);
    let settled = status.replicas == status.updated_replicas
        && current.is_some_and(|c| c.reason.as_deref() == Some(NEW_AVAILABLE));
    let subject = match new {
        Some(rs) => format!("ReplicaSet \"{}\"", rs.metadata.name.as_deref().unwrap_or_default()),
        None => format!("Deployment \"{}\"", d.metadata.name.as_deref().unwrap_or_default()),
    };
    if deadline(d).is_none() {
        remove_condition(&mut status, PROGRESSING);
    } else if settled {
        // The sync is only a resync; no rollout's progress could be judged.
    } else if is_complete(d, &status) {
        let text = format!("{subject} has successfully progressed.");
        set_condition(&mut status, new_condition(PROGRESSING, "True", NEW_AVAILABLE, text, now));
    } else if has_progressed(&before, &status) {
        let mut c = new_condition(PROGRESSING, "True", UPDATED, format!("{subject} is progressing."), now);
        if let Some(current) = current.filter(|c| c.status == "True") {
            c.last_transition_time.clone_from(&current.last_transition_time);
        }
        // Progress renews the update's time even if status and reason stay.
        remove_condition(&mut status, PROGRESSING);
        set_condition(&mut status, c);
    } else if has_timed_out(d, &status, now) {
        let text = format!("{subject} has timed out progressing.");
        set_condition(&mut status, new_condition(PROGRESSING, "False", TIMED_OUT, text, now));
    }
    match failure(new, old) {
        Some(c) => set_condition(&mut status, c),
        None => remove_condition(&mut status, FAILURE),
    }
    status
}

/// Finds the condition about a ReplicaSet's failure to make its Pods, the new one's first.
fn failure(new: Option<&Arc<ReplicaSet>>, old: &[Arc<ReplicaSet>]) -> Option<DeploymentCondition> {
    let conditions = new
        .into_iter()
        .chain(old)
        .flat_map(|rs| rs.status.iter().flat_map(|s| s.conditions.iter().flatten()));
    conditions
        .filter(|c| c.type_ == FAILURE)
        .map(|c| DeploymentCondition {
            type_: c.type_.clone(),
            status: c.status.clone(),
            reason: c.reason.clone(),
            message: c.message.clone(),
            last_update_time: c.last_transition_time.clone(),
            last_transition_time: c.last_transition_time.clone(),
        })
        .next()
}

/// Returns the time after which a rollout may be stuck and is looked at again; `None` if there is nothing to wait for.
pub(super) fn next_check(d: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<Duration> {
    let deadline = deadline(d)?;
    let current = d.status.as_ref().and_then(|s| condition(s, PROGRESSING))?;
    if is_complete(d, status) || current.reason.as_deref() == Some(TIMED_OUT) {
        return None;
    }
    let since = current.last_update_time.as_ref()?.0;
    let left = SignedDuration::from_secs(i64::from(deadline)) - now.duration_since(since);
    // One second more makes sure that the deadline has passed.
    Some(Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn deployment(replicas: i32, status: Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "d", "generation": 1},
            "spec": {"replicas": replicas, "selector": {}, "template": {}, "progressDeadlineSeconds": 600,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
            "status": status,
        }))
        .unwrap()
    }

    fn set(name: &str, replicas: i32, available: i32) -> Arc<ReplicaSet> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {}},
                "status": {"replicas": replicas, "readyReplicas": available, "availableReplicas": available,
                    "terminatingReplicas": 0, "observedGeneration": 1},
            }))
            .unwrap(),
        )
    }

    fn progressing(reason: &str, status: &str, second: i64) -> Value {
        let time = at(second).to_string();
        json!({"type": PROGRESSING, "status": status, "reason": reason,
            "lastUpdateTime": time, "lastTransitionTime": time})
    }

    fn outcome(
        d: &Deployment,
        new: &Arc<ReplicaSet>,
        old: &[Arc<ReplicaSet>],
        now: i64,
    ) -> (String, String, i64) {
        let status = of_rollout(d, Some(new), old, at(now));
        let c = condition(&status, PROGRESSING).unwrap();
        (c.status.clone(), c.reason.clone().unwrap(), c.last_update_time.as_ref().unwrap().0.as_second())
    }

    #[test]
    fn progress() {
        let check = |d: Deployment, new: (i32, i32), old: (i32, i32), now: i64, want: (&str, &str, i64)| {
            let got = outcome(&d, &set("new", new.0, new.1), &[set("old", old.0, old.1)], now);
            assert_eq!((got.0.as_str(), got.1.as_str(), got.2), want);
        };
        let rolling = |reason: &str, second: i64| {
            deployment(
                3,
                json!({"replicas": 4, "updatedReplicas": 1, "readyReplicas": 3, "availableReplicas": 3,
                "conditions": [progressing(reason, "True", second)]}),
            )
        };
        check(rolling(UPDATED, 100), (1, 0), (3, 3), 200, ("True", UPDATED, 100));
        check(rolling(UPDATED, 100), (2, 1), (2, 2), 200, ("True", UPDATED, 200));
        check(rolling(UPDATED, 100), (1, 0), (3, 3), 701, ("False", TIMED_OUT, 701));
        check(rolling(NEW_AVAILABLE, 100), (1, 0), (3, 3), 9999, ("True", NEW_AVAILABLE, 100));
        check(rolling(UPDATED, 100), (3, 3), (0, 0), 200, ("True", NEW_AVAILABLE, 200));
        check(rolling(TIMED_OUT, 100), (2, 1), (2, 2), 900, ("True", UPDATED, 900));
    }

    #[test]
    fn availability_and_counts() {
        let status = of(&deployment(3, json!({})), Some(&set("new", 1, 0)), &[set("old", 3, 3)], at(1));
        assert_eq!(condition(&status, AVAILABLE).unwrap().status, "True");
        assert_eq!(
            (
                status.replicas,
                status.updated_replicas,
                status.available_replicas,
                status.unavailable_replicas
            ),
            (Some(4), Some(1), Some(3), Some(1))
        );
        assert_eq!(status.terminating_replicas, Some(0));
        let status = of(&deployment(3, json!({})), Some(&set("new", 3, 2)), &[], at(1));
        let c = condition(&status, AVAILABLE).unwrap();
        assert_eq!((c.status.as_str(), c.reason.as_deref()), ("False", Some("MinimumReplicasUnavailable")));
    }

    #[test]
    fn checks_are_due_after_the_deadline() {
        let d = deployment(3, json!({"conditions": [progressing(UPDATED, "True", 100)]}));
        let status = d.status.clone().unwrap();
        assert_eq!(next_check(&d, &status, at(280)), Some(Duration::from_secs(421)));
        assert_eq!(next_check(&d, &status, at(9999)), Some(Duration::from_secs(1)));
        let d = deployment(3, json!({"conditions": [progressing(TIMED_OUT, "False", 100)]}));
        assert_eq!(next_check(&d, &d.status.clone().unwrap(), at(280)), None);
    }

    #[test]
    fn pausing() {
        let check = |paused: bool, reason: &str, want: Option<&str>| {
            let mut d = deployment(1, json!({"conditions": [progressing(reason, "True", 1)]}));
            d.spec.as_mut().unwrap().paused = Some(paused);
            assert_eq!(pause_condition(&d, at(2)).and_then(|c| c.reason).as_deref(), want);
        };
        check(true, UPDATED, Some(PAUSED));
        check(true, PAUSED, None);
        check(false, PAUSED, Some(RESUMED));
        check(true, TIMED_OUT, None);
        check(false, UPDATED, None);
    }
    fn counted(replicas: i32, updated: i32, ready: i32, available: i32) -> DeploymentStatus {
        DeploymentStatus {
            replicas: Some(replicas),
            updated_replicas: Some(updated),
            ready_replicas: Some(ready),
            available_replicas: Some(available),
            observed_generation: Some(1),
            ..DeploymentStatus::default()
        }
    }

    /// Upstream's cases of `TestDeploymentComplete`.
    #[test]
    fn completeness() {
        let check = |wanted: i32, replicas: i32, updated: i32, available: i32, want: bool| {
            let status = counted(replicas, updated, available, available);
            assert_eq!(is_complete(&deployment(wanted, json!({})), &status), want, "{wanted} {status:?}");
        };
        check(5, 5, 5, 4, false);
        check(5, 5, 5, 3, false);
        check(5, 5, 5, 5, true);
        check(5, 5, 4, 5, false);
        check(1, 2, 1, 1, false);
        check(1, 1, 1, 0, false);
    }

    /// Upstream's cases of `TestDeploymentProgressing`.
    #[test]
    fn what_is_progress() {
        let check = |before: [i32; 4], after: [i32; 4], want: bool| {
            let of = |[replicas, updated, ready, available]: [i32; 4]| {
                counted(replicas, updated, ready, available)
            };
            assert_eq!(has_progressed(&of(before), &of(after)), want, "{before:?} {after:?}");
        };
        check([10, 4, 4, 4], [10, 6, 4, 4], true);
        check([10, 4, 4, 4], [10, 4, 4, 4], false);
        check([10, 4, 6, 6], [8, 4, 6, 6], true);
        check([10, 7, 3, 3], [10, 6, 3, 3], false);
        check([10, 4, 7, 7], [8, 8, 5, 5], true);
        check([10, 10, 9, 8], [10, 10, 10, 8], true);
        check([10, 10, 10, 9], [10, 10, 10, 10], true);
    }

    /// Upstream's cases of `TestDeploymentTimedOut`.
    #[test]
    fn time_outs() {
        let check = |reason: &str, deadline: Option<i32>, since: i64, now: i64, want: bool| {
            let mut d = deployment(1, json!({"conditions": [progressing(reason, "True", since)]}));
            d.spec.as_mut().unwrap().progress_deadline_seconds = deadline;
            assert_eq!(has_timed_out(&d, &d.status.clone().unwrap(), at(now)), want, "{reason} {deadline:?}");
        };
        check("", None, 69, 80, false);
        check("", Some(i32::MAX), 69, 80, false);
        check("", Some(10), 69, 80, true);
        check("", Some(10), 71, 80, false);
        check(NEW_AVAILABLE, Some(10), 0, 80, false);
    }

    /// Upstream's cases of `TestGetReplicaCountForReplicaSets`: the sets, the sums of their sizes and of their Pods, and of
    /// the terminating ones where they are known.
    #[test]
    fn sums_of_sets() {
        let made = |n: usize| -> Arc<ReplicaSet> {
            let (size, status) = [
                (1, json!({"observedGeneration": 1, "replicas": 2, "terminatingReplicas": 3})),
                (2, json!({"replicas": 3, "terminatingReplicas": 1})),
                (3, json!({"replicas": 0})),
                (1, json!({"observedGeneration": 1, "replicas": 1})),
            ][n - 1]
                .clone();
            let set = json!({"metadata": {"name": n.to_string()}, "spec": {"replicas": size, "selector": {}}, "status": status});
            Arc::new(serde_json::from_value(set).unwrap())
        };
        let check = |sets: &[usize], sizes: i32, replicas: i32, ends: Option<i32>| {
            let all: Vec<_> = sets.iter().map(|n| made(*n)).collect();
            assert_eq!(crate::deployment::sizes::total(&all), sizes, "{sets:?}");
            assert_eq!(terminating(all.iter()), ends, "{sets:?}");
            let status = of(&deployment(1, json!({})), None, &all, at(0));
            assert_eq!((status.replicas.unwrap_or(0), status.terminating_replicas), (replicas, ends));
        };
        check(&[1], 1, 2, Some(3));
        check(&[1, 2], 3, 5, Some(4));
        check(&[3], 3, 0, Some(0));
        check(&[1, 2, 3], 6, 5, Some(4));
        check(&[4], 1, 1, None);
        check(&[1, 2, 3, 4], 7, 6, None);
    }

    /// Upstream's cases of `TestGetCondition`, `TestSetCondition` and `TestRemoveCondition` of Deployments.
    #[test]
    fn conditions_are_set_and_removed() {
        let known = |name: &str| match name {
            "progressing" => new_condition(PROGRESSING, "False", "ForSomeReason", String::new(), at(1)),
            "progressing2" => new_condition(PROGRESSING, "True", "BecauseItIs", String::new(), at(1)),
            _ => new_condition(AVAILABLE, "True", "AwesomeController", String::new(), at(1)),
        };
        let status = |all: &[&str]| {
            let conditions: Vec<_> = all.iter().map(|name| known(name)).collect();
            DeploymentStatus {
                conditions: Some(conditions).filter(|c| !c.is_empty()),
                ..DeploymentStatus::default()
            }
        };
        let both = ["progressing", "available"];
        assert!(condition(&status(&both), AVAILABLE).is_some());
        assert!(condition(&status(&both), FAILURE).is_none());
        let set = |before: &[&str], new: &str, after: &[&str]| {
            let mut got = status(before);
            set_condition(&mut got, known(new));
            assert_eq!(got, status(after), "{before:?} {new}");
        };
        set(&[], "available", &["available"]);
        set(&["progressing"], "available", &both);
        set(&["progressing"], "progressing2", &["progressing2"]);
        let remove = |before: &[&str], kind: &str, after: &[&str]| {
            let mut got = status(before);
            remove_condition(&mut got, kind);
            assert_eq!(got, status(after), "{before:?} {kind}");
        };
        remove(&[], PROGRESSING, &[]);
        remove(&["progressing"], PROGRESSING, &[]);
        remove(&both, FAILURE, &both);
    }

    /// Upstream's `currentDeployment`: its deadline, its size, and the replicas, updated and available ones of its status.
    fn current(deadline: Option<i32>, wanted: i32, told: [i32; 3], conditions: Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "progress-test"},
            "spec": {"replicas": wanted, "selector": {}, "template": {}, "progressDeadlineSeconds": deadline,
                "strategy": {"type": "Recreate"}},
            "status": {"replicas": told[0], "updatedReplicas": told[1], "availableReplicas": told[2],
                "conditions": conditions},
        }))
        .unwrap()
    }

    /// Upstream's cases of `TestRequeueStuckDeployment`: the milliseconds since the last progress, and the milliseconds until
    /// the next look.
    ///
    /// DIFFERENCE: upstream looks again without delay where less than a second is left, since it counts in whole seconds;
    /// here that look is a second after the deadline, too. Both add a second elsewhere.
    #[test]
    fn stuck_deployments() {
        let check = |deadline: Option<i32>,
                     told: [i32; 3],
                     reason: Option<&str>,
                     passed: i64,
                     want: Option<u64>| {
            let since = at(1000).to_string();
            let condition =
                json!([{"type": PROGRESSING, "status": "True", "reason": reason, "lastUpdateTime": since}]);
            let conditions = if reason.is_some() { condition } else { json!([]) };
            let d = current(deadline, if told[2] == 2 { 4 } else { 3 }, told, conditions);
            let now = Timestamp::from_millisecond(1_000_000 + passed).unwrap();
            let got = next_check(&d, &d.status.clone().unwrap(), now);
            assert_eq!(
                got,
                want.map(|ms| Duration::from_millis(ms + 1000)),
                "{deadline:?} {told:?} {passed}"
            );
        };
        check(None, [3, 3, 2], None, 0, None);
        check(Some(i32::MAX), [3, 3, 2], None, 0, None);
        check(Some(60), [3, 3, 2], None, 0, None);
        check(Some(60), [3, 3, 3], None, 0, None);
        check(Some(60), [3, 3, 0], Some(TIMED_OUT), 0, None);
        let stuck = Some("");
        check(Some(60), [3, 3, 1], stuck, 30_000, Some(30_000));
        check(Some(60), [3, 3, 1], stuck, 59_000, Some(1000));
        check(Some(60), [3, 3, 1], stuck, 59_001, Some(999));
        check(Some(60), [3, 3, 1], stuck, 60_000, Some(0));
        check(Some(60), [3, 3, 1], stuck, 61_000, Some(0));
        check(Some(60), [3, 3, 1], stuck, 120_000, Some(0));
    }

    /// Upstream's cases of `TestSyncRolloutStatus`: the deadline, the size, the status, the reason of its condition, the old
    /// and the new set (size, Pods, available ones), and the condition's status and reason, and whether its transition is
    /// new.
    #[test]
    fn rollouts() {
        type Set = Option<[i32; 3]>;
        let check = |(deadline, wanted): (Option<i32>, i32),
                     told: [i32; 3],
                     reason: &str,
                     (old, new): (Set, Set),
                     want: Option<(&str, &str, bool)>| {
            let time = at(1000).to_string();
            let status = if reason == TIMED_OUT { "False" } else { "True" };
            let there = json!([{"type": PROGRESSING, "status": status, "reason": reason,
                "lastUpdateTime": time, "lastTransitionTime": time}]);
            let d = current(deadline, wanted, told, if reason.is_empty() { json!([]) } else { there });
            let made = |name: &str, [size, replicas, available]: [i32; 3]| -> Arc<ReplicaSet> {
                let status = json!({"replicas": replicas, "availableReplicas": available});
                let set = json!({"metadata": {"name": name}, "spec": {"replicas": size, "selector": {}}, "status": status});
                Arc::new(serde_json::from_value(set).unwrap())
            };
            let old: Vec<_> = old.map(|set| made("bar", set)).into_iter().collect();
            let new = new.map(|set| made("foo", set));
            let now = at(9999);
            let after = of_rollout(&d, new.as_ref(), &old, now);
            let got = condition(&after, PROGRESSING).map(|c| {
                let renewed = c.last_transition_time.as_ref().is_some_and(|t| t.0 == now);
                (c.status.as_str(), c.reason.as_deref().unwrap(), renewed)
            });
            assert_eq!(got, want, "{deadline:?} {told:?} {reason}");
        };
        let pds = (Some(60), 3);
        let (some, all) = ([2, 2, 2], [3, 3, 3]);
        let rolls = (Some([0, 1, 1]), Some([3, 2, 2]));
        check((None, 3), some, UPDATED, rolls, None);
        check(pds, all, NEW_AVAILABLE, (Some(all), None), Some(("True", NEW_AVAILABLE, false)));
        check(pds, some, UPDATED, rolls, Some(("True", UPDATED, false)));
        check(pds, some, TIMED_OUT, rolls, Some(("True", UPDATED, true)));
        check(pds, some, "", rolls, Some(("True", UPDATED, true)));
        let done = (None, Some(all));
        check(pds, all, UPDATED, done, Some(("True", NEW_AVAILABLE, false)));
        check(pds, all, TIMED_OUT, done, Some(("True", NEW_AVAILABLE, true)));
        check(pds, all, "", done, Some(("True", NEW_AVAILABLE, true)));
        check((Some(60), 0), all, UPDATED, (Some([0, 0, 0]), None), Some(("True", NEW_AVAILABLE, false)));
        let slow = (None, Some([3, 2, 2]));
        check(pds, some, UPDATED, slow, Some(("False", TIMED_OUT, true)));
        check(pds, some, TIMED_OUT, slow, Some(("False", TIMED_OUT, false)));
    }
}
