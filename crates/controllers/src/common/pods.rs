//! The informer of Pods that the controllers share.

use client::{Factory, Informer, Selection, resource_of};
use k8s_openapi::api::core::v1::Pod;

use crate::views::PodView;

/// The index of Pods by the uid of their controller; orphans stand under [`orphans`].
pub(crate) const BY_OWNER: &str = "owner";
/// The index of Pods by node.
pub(crate) const BY_NODE: &str = "node";

/// The key of a namespace's orphans in [`BY_OWNER`].
pub(crate) fn orphans(namespace: &str) -> String {
    format!("orphan/{namespace}")
}

/// The informer of all Pods, with both indexes.
pub fn informer(factory: &Factory) -> Informer<PodView> {
    let pods = factory.select::<PodView>(resource_of::<Pod>(), Selection::default());
    pods.index(BY_OWNER, |pod| {
        let owner = pod.controller().map(|r| r.uid.as_str().into());
        vec![owner.unwrap_or_else(|| orphans(pod.namespace()).into())]
    });
    pods.index(BY_NODE, |pod| vec![pod.node.clone()]);
    pods
}
