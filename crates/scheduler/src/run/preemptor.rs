//! Those for whom others are deleted.

use super::pods::scheduler_of;
use crate::pod::PodInfo;

/// A Pod or a group for which others go.
pub(super) struct Preemptor {
    pub(super) uid: String,
    /// Upstream's word for what it is.
    pub(super) kind: &'static str,
    /// The node, or all of them.
    pub(super) node: String,
    pub(super) scheduler: String,
    /// One of the Pods, if it is a group.
    pub(super) group: Option<PodInfo>,
}

impl Preemptor {
    /// A Pod that gets room on a node.
    pub(super) fn pod(pod: &PodInfo, node: String) -> Self {
        let (uid, scheduler) = (pod.uid().to_owned(), scheduler_of(pod).to_owned());
        Self { uid, kind: "pod", node, scheduler, group: None }
    }

    /// A group with this uid and Pod, which gets room anywhere.
    pub(super) fn group(uid: String, pod: &PodInfo) -> Self {
        let scheduler = scheduler_of(pod).to_owned();
        Self { uid, kind: "podgroup", node: "cluster".to_owned(), scheduler, group: Some(pod.clone()) }
    }
}

/// The victims of a preemptor are gone, or some could not be deleted.
pub(super) struct Evicted {
    pub(super) uid: String,
    /// One of the Pods, if it is a group.
    pub(super) group: Option<PodInfo>,
    /// The uids of those that were deleted, if all were.
    pub(super) victims: Vec<String>,
}
