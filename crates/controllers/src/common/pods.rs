//! Questions about a Pod that several controllers ask.

use client::{Factory, Informer};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

pub(crate) use objects::pod::{condition, is_terminal, node_name, phase};

/// Whether a Pod counts as a replica: it has not ended and is not being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a Pod is being deleted and has not ended.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_some()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|c| c.status == "True")
}

/// The time since which a Pod is ready; `None` also if it is ready and its condition has no time.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    condition(pod, "Ready").filter(|c| c.status == "True")?.last_transition_time.as_ref().map(|t| t.0)
}

/// Whether a Pod has been ready for `min_ready` seconds.
pub(crate) fn is_available(pod: &Pod, min_ready: i32, now: Timestamp) -> bool {
    if !is_ready(pod) {
        return false;
    }
    min_ready == 0
        || ready_since(pod)
            .is_some_and(|since| now.duration_since(since) >= SignedDuration::from_secs(i64::from(min_ready)))
}

/// The time until the next of the ready Pods becomes available; `None` if none is waiting.
pub(crate) fn next_available<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    min_ready: i32,
    now: Timestamp,
) -> Option<std::time::Duration> {
    let term = SignedDuration::from_secs(i64::from(min_ready));
    pods.into_iter()
        .filter_map(ready_since)
        .map(|since| term - now.duration_since(since))
        .filter(SignedDuration::is_positive)
        .min()
        .and_then(|left| std::time::Duration::try_from(left).ok())
}

/// The index of Pods by the uid of their controller; orphans stand under [`orphans`].
pub(crate) const BY_OWNER: &str = "owner";
/// The index of Pods by node.
pub(crate) const BY_NODE: &str = "node";

/// The key of a namespace's orphans in [`BY_OWNER`].
pub(crate) fn orphans(namespace: &str) -> String {
    format!("orphan/{namespace}")
}

/// The informer of all Pods, with both indexes.
pub(crate) fn informer(factory: &Factory) -> Informer<Pod> {
    let pods = factory.informer::<Pod>();
    pods.index(BY_OWNER, |pod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let owner = super::controller_of(&pod.metadata).map(|r| r.uid.clone());
        vec![owner.unwrap_or_else(|| orphans(namespace)).into()]
    });
    pods.index(BY_NODE, |pod| vec![node_name(pod).into()]);
    pods
}
