//! The informer of Pods that the controllers share.

use std::ops::Deref;
use std::sync::Arc;

use client::{Factory, Index, Informer, Selection, resource_of};
use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::Pod;

use crate::views::PodView;

/// All Pods, with indexes.
pub(crate) struct Pods {
    all: Informer<PodView>,
    by_owner: Index<PodView>,
    by_node: Index<PodView>,
}

impl Pods {
    /// The Pods of a user's informers.
    pub(crate) fn of(factory: &Factory) -> Self {
        let all = factory.select::<PodView>(resource_of::<Pod>(), Selection::default());
        let by_owner = all.index("owner", |pod| {
            let owner = pod.controller().map(|r| owner(pod.namespace(), &r.kind, &r.uid));
            vec![owner.unwrap_or_else(|| orphans(pod.namespace())).into()]
        });
        let by_node = all.index("node", |pod| vec![pod.node.clone()]);
        Self { all, by_owner, by_node }
    }
    /// The Pods of the controller of a kind with this uid, in its own namespace: anybody may write any uid into a
    /// reference.
    pub(crate) fn of_owner<T: Resource>(&self, namespace: &str, uid: &str) -> Vec<Arc<PodView>> {
        self.by_owner.get(&owner(namespace, T::KIND, uid))
    }
    /// The Pods of a namespace that no controller has.
    pub(crate) fn orphans(&self, namespace: &str) -> Vec<Arc<PodView>> {
        self.by_owner.get(&orphans(namespace))
    }
    /// The Pods that are bound to a node.
    pub(crate) fn on_node(&self, name: &str) -> Vec<Arc<PodView>> {
        self.by_node.get(name)
    }
}

impl Deref for Pods {
    type Target = Informer<PodView>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// The value under which the Pods of an owner stand.
fn owner(namespace: &str, kind: &str, uid: &str) -> String {
    format!("{namespace}/{kind}/{uid}")
}

/// The value under which a namespace's orphans stand beside the Pods of owners.
fn orphans(namespace: &str) -> String {
    format!("orphan/{namespace}")
}

/// The value under which the Pods stand that use a claim or another object of their namespace.
pub(crate) fn claim_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// The Pods by the claims that they use.
pub(crate) fn by_claim(pods: &Informer<PodView>) -> Index<PodView> {
    pods.index("claim", |pod| {
        let names = pod.claims().chain(pod.ephemeral_claims());
        names.map(|name| claim_key(pod.namespace(), name).into()).collect()
    })
}

/// The Pods by their PodGroups, whose keys are those of [`claim_key`].
pub(crate) fn by_group(pods: &Informer<PodView>) -> Index<PodView> {
    pods.index("group", |pod| {
        let group = Some(pod.group()).filter(|name| !name.is_empty());
        group.map(|name| claim_key(pod.namespace(), name).into()).into_iter().collect()
    })
}

/// The informer of all Pods, with the indexes.
pub fn informer(factory: &Factory) -> Informer<PodView> {
    Pods::of(factory).all
}
