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
}
