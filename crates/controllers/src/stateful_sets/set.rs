//! The settings of a StatefulSet.

use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::Selector;

use crate::common::pod_owners::PodOwner;
use crate::common::share::scaled;

impl PodOwner for StatefulSet {
    fn selector(&self) -> Selector {
        self.spec.as_ref().map_or_else(Selector::nothing, |s| Selector::or_nothing(&s.selector))
    }
    /// Each Pod that is ready may let the next one start, so that no look waits.
    fn pods(&self) -> usize {
        0
    }
}

fn spec(set: &StatefulSet) -> Option<&StatefulSetSpec> {
    set.spec.as_ref()
}

pub(super) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Returns the number of wanted Pods.
pub(super) fn replicas(set: &StatefulSet) -> i64 {
    spec(set).and_then(|s| s.replicas).unwrap_or(1).max(0).into()
}

/// Returns the first ordinal.
pub(super) fn start(set: &StatefulSet) -> i64 {
    spec(set).and_then(|s| s.ordinals.as_ref()?.start).unwrap_or(0).max(0).into()
}

/// Returns the ordinals of the wanted Pods.
pub(super) fn ordinals(set: &StatefulSet) -> std::ops::Range<i64> {
    start(set)..start(set) + replicas(set)
}

/// Whether Pods come and go all at once.
pub(super) fn is_parallel(set: &StatefulSet) -> bool {
    spec(set).and_then(|s| s.pod_management_policy.as_deref()) == Some("Parallel")
}

/// Returns the seconds for which a ready Pod must stay so to be available.
pub(super) fn min_ready(set: &StatefulSet) -> i32 {
    spec(set).and_then(|s| s.min_ready_seconds).unwrap_or(0)
}

/// Returns the number of revisions that are kept besides those in use; `None` for all.
pub(super) fn history_limit(set: &StatefulSet) -> Option<usize> {
    usize::try_from(spec(set).and_then(|s| s.revision_history_limit).unwrap_or(10)).ok()
}

/// Returns the name of the update strategy.
fn strategy(set: &StatefulSet) -> Option<&str> {
    spec(set)?.update_strategy.as_ref()?.type_.as_deref()
}

fn rolling(set: &StatefulSet) -> Option<&RollingUpdateStatefulSetStrategy> {
    spec(set)?.update_strategy.as_ref()?.rolling_update.as_ref()
}

/// Whether Pods are updated only when somebody deletes them.
pub(super) fn is_on_delete(set: &StatefulSet) -> bool {
    strategy(set) == Some("OnDelete")
}

/// Whether Pods are updated one after the other.
pub(super) fn is_rolling(set: &StatefulSet) -> bool {
    strategy(set) == Some("RollingUpdate")
}

/// Returns the number of Pods that keep the current revision, if the strategy has parameters.
pub(super) fn partition(set: &StatefulSet) -> Option<i64> {
    rolling(set).map(|r| r.partition.unwrap_or(0).max(0).into())
}

/// Returns the number of Pods that an update may take away at a time (upstream's `getStatefulSetMaxUnavailable`).
///
/// # Errors
/// The setting is no number.
pub(super) fn max_unavailable(set: &StatefulSet) -> Result<i64, String> {
    match rolling(set).and_then(|r| r.max_unavailable.as_ref()) {
        Some(value) => scaled(value, replicas(set), false).map(|n| n.max(1)),
        None => Ok(1),
    }
}

/// Returns the templates of the claims that each Pod gets.
pub(super) fn claim_templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    spec(set).and_then(|s| s.volume_claim_templates.as_deref()).unwrap_or_default()
}

/// The fate of the claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Retention {
    /// Claims go with the set.
    pub(super) with_set: bool,
    /// Claims go with the Pods that the set no longer wants.
    pub(super) with_pod: bool,
}

/// Returns the retention policy; a policy that is not known counts as `Retain`.
pub(super) fn retention(set: &StatefulSet) -> Retention {
    let policy = spec(set).and_then(|s| s.persistent_volume_claim_retention_policy.as_ref());
    let deletes = |value: Option<&String>| value.is_some_and(|v| v == "Delete");
    Retention {
        with_set: deletes(policy.and_then(|p| p.when_deleted.as_ref())),
        with_pod: deletes(policy.and_then(|p| p.when_scaled.as_ref())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(more: &Value) -> StatefulSet {
        let mut spec = json!({"replicas": 3, "selector": {}, "serviceName": "s", "template": {}});
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "foo"}, "spec": spec})).unwrap()
    }

    /// Upstream's cases of `TestGetStatefulSetMaxUnavailable`.
    #[test]
    fn unavailable_pods() {
        let check = |value: Value, replicas: i32, want: i64| {
            let set = set(
                &json!({"replicas": replicas, "updateStrategy": {"rollingUpdate": {"maxUnavailable": value}}}),
            );
            assert_eq!(max_unavailable(&set), Ok(want), "{value} of {replicas}");
        };
        check(Value::Null, 10, 1);
        check(json!(3), 10, 3);
        check(json!(3), 0, 3);
        check(json!(0), 0, 1);
        check(json!("10%"), 25, 2);
        check(json!("100%"), 5, 5);
        check(json!("50%"), 5, 2);
        check(json!("10%"), 5, 1);
        check(json!("1%"), 0, 1);
        check(json!("0%"), 1, 1);
        assert!(
            max_unavailable(&set(&json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "x"}}})))
                .is_err()
        );
        assert_eq!(max_unavailable(&set(&json!({}))), Ok(1));
    }

    /// Upstream's cases of `TestGetPersistentVolumeClaimRetentionPolicy`.
    #[test]
    fn policies() {
        let check = |policy: Value, with_set: bool, with_pod: bool| {
            let got = retention(&set(&json!({"persistentVolumeClaimRetentionPolicy": policy})));
            assert_eq!(got, Retention { with_set, with_pod }, "{policy}");
        };
        check(Value::Null, false, false);
        check(json!({"whenScaled": "Retain", "whenDeleted": "Delete"}), true, false);
        check(json!({"whenScaled": "Delete", "whenDeleted": "Retain"}), false, true);
        check(json!({"whenScaled": "Delete", "whenDeleted": "Delete"}), true, true);
        check(json!({"whenScaled": "odd", "whenDeleted": "odd"}), false, false);
    }

    #[test]
    fn ranges() {
        assert_eq!(ordinals(&set(&json!({}))), 0..3);
        assert_eq!(ordinals(&set(&json!({"ordinals": {"start": 2}}))), 2..5);
        let most = i64::from(i32::MAX);
        assert_eq!(
            ordinals(&set(&json!({"replicas": i32::MAX, "ordinals": {"start": i32::MAX}}))),
            most..2 * most
        );
        assert_eq!(ordinals(&set(&json!({"replicas": -1}))), 0..0);
    }
}
