//! The Pods that the API has for the static Pods of this node.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::RwLock;
use tokio::sync::Notify;

use super::{labels, spec};

/// Namespace and name.
pub(crate) type Name = (String, String);

/// The name of a Pod.
pub(crate) fn name(pod: &Pod) -> Name {
    (spec::namespace(pod).to_owned(), spec::name(pod).to_owned())
}

/// The mirrors that the API has.
#[derive(Default)]
pub(crate) struct Mirrors {
    known: RwLock<HashMap<Name, Arc<Pod>>>,
    /// Something has changed.
    pub(crate) woken: Notify,
}

impl Mirrors {
    /// Takes a mirror as the API has it.
    pub(crate) fn put(&self, mirror: Arc<Pod>) {
        self.known.write().insert(name(&mirror), mirror);
        self.woken.notify_one();
    }

    /// Forgets a mirror that is gone.
    pub(crate) fn remove(&self, mirror: &Pod) {
        let mut known = self.known.write();
        if known.get(&name(mirror)).is_some_and(|k| spec::uid(k) == spec::uid(mirror)) {
            known.remove(&name(mirror));
        }
        self.woken.notify_one();
    }

    /// The mirror of a static Pod.
    pub(crate) fn of(&self, pod: &Pod) -> Option<Arc<Pod>> {
        self.known.read().get(&name(pod)).filter(|mirror| is_mirror_of(mirror, pod)).cloned()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Pod>> {
        self.known.read().values().cloned().collect()
    }
}

/// An annotation of a Pod.
pub(crate) fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether a mirror is one of this manifest.
pub(crate) fn is_mirror_of(mirror: &Pod, pod: &Pod) -> bool {
    annotation(mirror, labels::CONFIG_MIRROR) == annotation(pod, labels::CONFIG_HASH)
}
