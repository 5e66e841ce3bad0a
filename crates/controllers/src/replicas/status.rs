//! The status of a set of replicas.

use std::sync::Arc;

use api::Status;
use client::Api;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::kinds::{Condition, Counts, Replicated};
use crate::views::PodView;
use objects::Selector;

const FAILURE: &str = "ReplicaFailure";

/// Computes the status of a set; `error` is the error that kept the set from making or deleting Pods.
pub(super) fn of<T: Replicated>(
    set: &T,
    active: &[Arc<PodView>],
    terminating: Option<usize>,
    error: Option<&Status>,
    now: Timestamp,
) -> Counts {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let labels = set.template().and_then(|t| t.metadata.as_ref()?.labels.clone()).unwrap_or_default();
    let template = Selector::exactly(&labels);
    let ready: Vec<&Arc<PodView>> = active.iter().filter(|p| p.is_ready()).collect();
    let mut conditions = set.counts().conditions;
    let failing = conditions.iter().any(|c| c.kind == FAILURE);
    match error {
        Some(error) if !failing => {
            let reason = match count(active.len()) - set.wanted() {
                missing if missing < 0 => Some("FailedCreate"),
                surplus if surplus > 0 => Some("FailedDelete"),
                _ => None,
            };
            conditions.push(Condition {
                kind: FAILURE.to_owned(),
                status: "True".to_owned(),
                reason: reason.map(str::to_owned),
                message: Some(error.to_string()),
                since: Some(Time(now)),
            });
        }
        None => conditions.retain(|c| c.kind != FAILURE),
        Some(_) => {}
    }
    Counts {
        replicas: count(active.len()),
        fully_labeled: count(active.iter().filter(|p| p.is_selected_by(&template)).count()),
        available: count(ready.iter().filter(|p| p.is_available(set.min_ready(), now)).count()),
        ready: count(ready.len()),
        terminating: terminating.map(count),
        observed_generation: set.metadata().generation.unwrap_or(0),
        conditions,
    }
}

/// Writes a status if it differs; once more on the newest object if another write came between.
pub(super) async fn update<T: Replicated>(api: &Api<T>, set: &T, wanted: Counts) -> Result<Counts, Status> {
    if set.counts() == wanted {
        return Ok(wanted);
    }
    let mut changed = set.clone();
    changed.set_counts(wanted.clone());
    match api.update_status(&changed).await {
        Err(e) if e.is_conflict() => {
            let mut fresh = api.get(set.metadata().name.as_deref().unwrap_or_default()).await?;
            fresh.set_counts(wanted.clone());
            api.update_status(&fresh).await?;
        }
        other => drop(other?),
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::view;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use serde_json::json;

    fn set(status: serde_json::Value) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "rs", "generation": 3},
            "spec": {"replicas": 2, "minReadySeconds": 10, "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b", "c": "d"}}}},
            "status": status,
        }))
        .unwrap()
    }

    fn pod(labels: serde_json::Value, ready_since: Option<i64>) -> Arc<PodView> {
        let conditions = ready_since.map(|s| {
            json!([{"type": "Ready", "status": "True",
                "lastTransitionTime": Timestamp::from_second(s).unwrap().to_string()}])
        });
        Arc::new(view(&json!({"metadata": {"labels": labels}, "status": {"conditions": conditions}})))
    }

    #[test]
    fn counts() {
        let now = Timestamp::from_second(100).unwrap();
        let full = json!({"a": "b", "c": "d"});
        let check = |pods: &[Arc<PodView>], want: (i32, i32, i32, i32)| {
            let c = of(&set(json!({"replicas": 0})), pods, Some(1), None, now);
            assert_eq!((c.replicas, c.fully_labeled, c.ready, c.available), want);
            assert_eq!((c.terminating, c.observed_generation), (Some(1), 3));
        };
        check(&[], (0, 0, 0, 0));
        check(&[pod(full.clone(), None), pod(json!({"a": "b"}), None)], (2, 1, 0, 0));
        check(&[pod(full.clone(), Some(90)), pod(full.clone(), Some(91))], (2, 2, 2, 1));
    }

    #[test]
    fn failures_become_conditions() {
        let now = Timestamp::from_second(100).unwrap();
        let quota = Status::failure(403, "Forbidden", "exceeded quota");
        let mut failing = set(json!({"replicas": 0}));
        let counts = of(&failing, &[], None, Some(&quota), now);
        let c = &counts.conditions[0];
        assert_eq!((c.kind.as_str(), c.reason.as_deref()), ("ReplicaFailure", Some("FailedCreate")));
        assert_eq!(c.message.as_deref(), Some("exceeded quota"));
        failing.set_counts(counts.clone());
        let later = Timestamp::from_second(200).unwrap();
        assert_eq!(of(&failing, &[], None, Some(&quota), later).conditions, counts.conditions);
        assert!(of(&failing, &[], None, None, later).conditions.is_empty());
    }

    /// The ReplicaSet of upstream's `newReplicaSet`: its size, its labels, and `minReadySeconds`.
    fn upstreams(
        replicas: i32,
        labels: &serde_json::Value,
        min_ready: i32,
        status: serde_json::Value,
    ) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "foobar", "uid": "u"},
            "spec": {"replicas": replicas, "minReadySeconds": min_ready, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": {"name": "foo", "type": "production"}}}},
            "status": status,
        }))
        .unwrap()
    }

    /// The Pod of upstream's `newPod`: its phase, and the time since when it is ready.
    fn upstreams_pod(labels: &serde_json::Value, phase: &str, since: Option<i64>) -> Arc<PodView> {
        let mut conditions = json!([]);
        if phase == "Running" {
            let since = since.map(|s| Timestamp::from_second(s).unwrap().to_string());
            conditions = json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
        }
        let status = json!({"phase": phase, "conditions": conditions});
        Arc::new(view(&json!({"metadata": {"labels": labels}, "status": status})))
    }

    /// Upstream's cases of `TestCalculateStatus`: whether each Pod has all labels, its phase and the time since when it is
    /// ready; `minReadySeconds`; the number of terminating Pods, where it counts; and what the status says.
    #[test]
    fn upstreams_counts() {
        let (some, all) = (json!({"name": "foo"}), json!({"name": "foo", "type": "production"}));
        let now = 10_000;
        type Pod<'a> = (bool, &'a str, Option<i64>);
        let check = |pods: &[Pod<'_>], min_ready: i32, terminating: Option<usize>, want: [i32; 4]| {
            let pod = |(full, phase, since): &Pod<'_>| {
                upstreams_pod(if *full { &all } else { &some }, phase, *since)
            };
            let pods: Vec<_> = pods.iter().map(pod).collect();
            let set = upstreams(1, &some, min_ready, json!(null));
            let c = of(&set, &pods, terminating, None, Timestamp::from_second(now).unwrap());
            assert_eq!([c.replicas, c.fully_labeled, c.ready, c.available], want, "{pods:?}");
            assert_eq!(c.terminating, terminating.map(|n| i32::try_from(n).unwrap()));
        };
        let (full, part) = ((true, "Running", None), (false, "Running", None));
        check(&[full], 0, None, [1, 1, 1, 1]);
        check(&[part], 0, None, [1, 0, 1, 1]);
        check(&[full, full], 0, None, [2, 2, 2, 2]);
        check(&[full, full], 0, Some(0), [2, 2, 2, 2]);
        check(&[part, part], 0, None, [2, 0, 2, 2]);
        check(&[part, full], 0, None, [2, 1, 2, 2]);
        check(&[(true, "Pending", None)], 0, None, [1, 1, 0, 0]);
        check(&[(true, "Running", Some(now))], 3600, None, [1, 1, 1, 0]);
        check(&[(true, "Running", Some(now - 3600))], 3600, None, [1, 1, 1, 1]);
        check(&[(true, "Running", Some(now - 7200))], 3600, None, [1, 1, 1, 1]);
        check(&[full], 0, Some(2), [1, 1, 1, 1]);
        // Those of ReplicationControllers never count.
        use k8s_openapi::api::core::v1::ReplicationController;
        assert_eq!((ReplicaSet::TERMINATING, ReplicationController::TERMINATING), (true, false));
    }

    /// Upstream's case of `TestReplicaSetAvailabilityCheck`: a set waits for the Pod that is available next.
    #[test]
    fn pods_that_become_available() {
        let labels = json!({"name": "foo"});
        let now = Timestamp::from_second(100).unwrap();
        let since = |phase: &str, millis: i64| {
            let at = Timestamp::from_millisecond(100_000 - millis).unwrap().to_string();
            let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": at}]);
            let conditions = if phase == "Running" { ready } else { json!([]) };
            let status = json!({"phase": phase, "conditions": conditions});
            Arc::new(view(&json!({"metadata": {"labels": labels}, "status": status})))
        };
        let pods = [since("Pending", 0), since("Running", 0), since("Running", 2000), since("Running", 4300)];
        let c = of(&upstreams(4, &labels, 5, json!(null)), &pods, None, None, now);
        assert_eq!((c.replicas, c.ready, c.available), (4, 3, 0));
        let next = pods.iter().filter_map(|p| p.available_in(5, now)).min();
        assert_eq!(next, Some(std::time::Duration::from_millis(700)));
    }

    /// Upstream's cases of `TestCalculateStatusConditions`, `TestGetCondition`, `TestSetCondition` and
    /// `TestRemoveCondition`: the size, the conditions that there are, the number of Pods, whether something failed, and the
    /// conditions with their reasons.
    #[test]
    fn upstreams_conditions() {
        let labels = json!({"name": "foo"});
        let check = |size: i32, there: &[&str], pods: usize, fails: bool, want: &[(&str, Option<&str>)]| {
            let told: Vec<_> = there.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
            let set = upstreams(size, &labels, 0, json!({"replicas": 0, "conditions": told}));
            let pods: Vec<_> = (0..pods).map(|_| upstreams_pod(&labels, "Running", None)).collect();
            let error = Status::failure(500, "InternalError", "fake manageReplicasErr");
            let now = Timestamp::from_second(100).unwrap();
            let counts = of(&set, &pods, None, fails.then_some(&error), now);
            let got: Vec<_> =
                counts.conditions.iter().map(|c| (c.kind.as_str(), c.reason.as_deref())).collect();
            assert_eq!(got, want, "{size} {there:?} {pods:?}");
            for new in counts.conditions.iter().filter(|c| c.reason.is_some()) {
                assert_eq!(new.message.as_deref(), Some("fake manageReplicasErr"));
                assert_eq!((new.status.as_str(), &new.since), ("True", &Some(Time(now))));
            }
        };
        check(2, &[], 1, true, &[(FAILURE, Some("FailedCreate"))]);
        check(2, &[], 3, true, &[(FAILURE, Some("FailedDelete"))]);
        check(10, &[FAILURE], 1, false, &[]);
        check(10, &[FAILURE], 1, true, &[(FAILURE, None)]);
        check(2, &[], 1, false, &[]);
        // Conditions of another kind stay.
        check(
            2,
            &["ImagePullBackOff"],
            1,
            true,
            &[("ImagePullBackOff", None), (FAILURE, Some("FailedCreate"))],
        );
        check(2, &["ImagePullBackOff", FAILURE], 1, false, &[("ImagePullBackOff", None)]);
        check(2, &["ImagePullBackOff"], 1, false, &[("ImagePullBackOff", None)]);
    }
}
