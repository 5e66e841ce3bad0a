//! The status of a StatefulSet.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};

use super::set;
use super::snapshot::{Snapshot, is_running_and_ready, revision_of};
use crate::views::PodView;

/// Counts the Pods.
pub(super) fn of(s: &Snapshot<'_>) -> StatefulSetStatus {
    let count = |counts: &dyn Fn(&PodView) -> bool| {
        let n = s.pods.values().filter(|pod| counts(pod)).count();
        i32::try_from(n).unwrap_or(i32::MAX)
    };
    let of_revision =
        |pod: &PodView, name: &str| !pod.phase.is_empty() && !pod.is_deleting() && revision_of(pod) == name;
    StatefulSetStatus {
        observed_generation: s.set.metadata.generation,
        replicas: count(&|pod| !pod.phase.is_empty()),
        ready_replicas: Some(count(&is_running_and_ready)),
        available_replicas: Some(count(&|pod| is_running_and_ready(pod) && s.is_available(pod))),
        current_replicas: Some(count(&|pod| of_revision(pod, &s.current.name))),
        updated_replicas: Some(count(&|pod| of_revision(pod, &s.update.name))),
        current_revision: Some(s.current.name.clone()),
        update_revision: Some(s.update.name.clone()),
        collision_count: Some(s.collisions),
        conditions: None,
    }
}

/// Makes the update revision the current one once all Pods are of it and ready.
pub(super) fn complete(set: &StatefulSet, status: &mut StatefulSetStatus) {
    let all = |n: Option<i32>| i64::from(n.unwrap_or(0)) == set::replicas(set);
    if set::is_rolling(set)
        && all(status.updated_replicas)
        && all(status.ready_replicas)
        && all(Some(status.replicas))
    {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
}

/// Whether a set's status does not say what this one says.
pub(super) fn differs(set: &StatefulSet, wanted: &StatefulSetStatus) -> bool {
    let told = set.status.clone().unwrap_or_default();
    let counts = |s: &StatefulSetStatus| {
        let of = |n: Option<i32>| n.unwrap_or(0);
        [
            s.replicas,
            of(s.ready_replicas),
            of(s.available_replicas),
            of(s.current_replicas),
            of(s.updated_replicas),
        ]
    };
    let names = |s: &StatefulSetStatus| {
        let of = |name: &Option<String>| name.clone().unwrap_or_default();
        [of(&s.current_revision), of(&s.update_revision)]
    };
    wanted.observed_generation.unwrap_or(0) > told.observed_generation.unwrap_or(0)
        || counts(wanted) != counts(&told)
        || names(wanted) != names(&told)
}
