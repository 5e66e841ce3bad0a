//! A StatefulSet with what belongs to it, as a plan sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::claims::Owners;
use super::identity::Revision;
use super::set;
use crate::common::revisions::POD_REVISION;
use crate::views::PodView;

/// A set with what belongs to it.
pub(super) struct Snapshot<'a> {
    pub(super) set: &'a StatefulSet,
    /// The set's Pods by ordinal.
    pub(super) pods: BTreeMap<i64, Arc<PodView>>,
    /// Finds a claim of the set's namespace by its name.
    pub(super) claim: &'a (dyn Fn(&str) -> Option<Arc<PersistentVolumeClaim>> + Sync),
    pub(super) current: Revision,
    pub(super) update: Revision,
    pub(super) collisions: i32,
    /// Whether an update counts all Pods that are not available, by the feature `MaxUnavailableStatefulSet`.
    pub(super) counts_unavailable: bool,
    pub(super) now: Timestamp,
}

impl Snapshot<'_> {
    /// Returns the Pods that the set wants, in order.
    pub(super) fn wanted(&self) -> impl DoubleEndedIterator<Item = (&i64, &Arc<PodView>)> {
        self.pods.range(set::ordinals(self.set))
    }

    /// Returns the Pods that the set does not want any more, in order.
    pub(super) fn condemned(&self) -> impl DoubleEndedIterator<Item = (&i64, &Arc<PodView>)> {
        let wanted = set::ordinals(self.set);
        self.pods.iter().filter(move |(ordinal, _)| !wanted.contains(ordinal))
    }

    /// Whether a Pod is available.
    pub(super) fn is_available(&self, pod: &PodView) -> bool {
        pod.is_available(set::min_ready(self.set), self.now)
    }

    /// Whether a Pod is not available, or going.
    pub(super) fn is_unavailable(&self, pod: &PodView) -> bool {
        pod.is_deleting() || !self.is_available(pod)
    }

    /// Whether a Pod has been ready for long enough that the next one may follow.
    pub(super) fn is_settled(&self, pod: &PodView) -> bool {
        !pod.is_deleting() && is_running_and_ready(pod) && self.is_available(pod)
    }

    /// Returns the owners that the claims of a Pod may have.
    pub(super) fn owners<'a>(&'a self, ordinal: i64, pod: &'a str, uid: &'a str) -> Owners<'a> {
        Owners { set: self.set, pod, uid, wanted: set::ordinals(self.set).contains(&ordinal) }
    }

    /// Returns the number of wanted Pods that are not available.
    pub(super) fn unavailable(&self) -> i64 {
        let available = self.wanted().filter(|(_, pod)| !self.is_unavailable(pod)).count();
        set::replicas(self.set) - i64::try_from(available).unwrap_or(i64::MAX)
    }
}

/// Returns the name of a Pod's revision, "" for none.
pub(super) fn revision_of(pod: &PodView) -> &str {
    pod.labels.get(POD_REVISION).unwrap_or_default()
}

/// Whether a Pod runs and is ready.
pub(super) fn is_running_and_ready(pod: &PodView) -> bool {
    pod.phase == "Running" && pod.is_ready()
}

/// Returns the owners of a claim.
pub(super) fn references(claim: &PersistentVolumeClaim) -> &[OwnerReference] {
    claim.metadata.owner_references.as_deref().unwrap_or_default()
}
