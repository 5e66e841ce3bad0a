//! The Pods of this node, as everybody in the kubelet sees them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::RwLock;

use super::observed::{ContainerStatus, PodStatus};

/// One Pod: what the API wants, with the status that this kubelet reports, and what the runtime has.
#[derive(Debug, Clone)]
struct Entry {
    pod: Arc<Pod>,
    observed: Arc<PodStatus>,
}

/// The Pods of this node. Readers never wait for the work on Pods.
#[derive(Debug, Default)]
pub struct PodManager {
    entries: RwLock<HashMap<String, Entry>>,
}

/// A container in the runtime, and where its log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRef {
    /// CRI id.
    pub id: String,
    /// Id of its sandbox.
    pub sandbox_id: String,
    /// Whether its process runs.
    pub running: bool,
    /// Its log on the node.
    pub log_path: PathBuf,
    /// How often it was restarted before.
    pub restart_count: u32,
}

impl From<&ContainerStatus> for ContainerRef {
    fn from(c: &ContainerStatus) -> Self {
        Self {
            id: c.id.clone(),
            sandbox_id: c.sandbox_id.clone(),
            running: c.running(),
            log_path: PathBuf::from(&c.log_path),
            restart_count: c.restart_count,
        }
    }
}

impl PodManager {
    /// Every Pod with the newest status this kubelet knows, in no order.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.entries.read().values().map(|e| e.pod.clone()).collect()
    }
    /// The Pod of a name; with `uid`, only if it has that uid.
    pub fn get(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Arc<Pod>> {
        self.find(namespace, name, uid).map(|e| e.pod)
    }
    /// The sandboxes and containers of a Pod, as last seen.
    pub fn observed(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Arc<PodStatus>> {
        self.find(namespace, name, uid).map(|e| e.observed)
    }
    /// The CRI id of a Pod's ready sandbox.
    pub fn sandbox_id(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<String> {
        self.observed(namespace, name, uid)?.ready_sandbox().map(|s| s.id.clone())
    }
    /// The newest container of a name.
    pub fn container(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        container: &str,
    ) -> Option<ContainerRef> {
        self.observed(namespace, name, uid)?.container(container).map(ContainerRef::from)
    }
    /// The container of a name before its last restart; what `logs --previous` reads.
    pub fn previous_container(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        container: &str,
    ) -> Option<ContainerRef> {
        self.observed(namespace, name, uid)?.previous(container).map(ContainerRef::from)
    }
    /// The CRI id of the newest container of a name.
    pub fn container_id(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        container: &str,
    ) -> Option<String> {
        self.container(namespace, name, uid, container).map(|c| c.id)
    }

    fn find(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Entry> {
        let entries = self.entries.read();
        if let Some(uid) = uid.filter(|u| !u.is_empty()) {
            return entries.get(uid).filter(|e| is(&e.pod, namespace, name)).cloned();
        }
        // A deleted Pod may still stop while its successor of the same name starts: the newer one is meant.
        entries
            .values()
            .filter(|e| is(&e.pod, namespace, name))
            .max_by_key(|e| e.pod.metadata.creation_timestamp.as_ref().map(|t| t.0))
            .cloned()
    }

    /// Notes the newest state of a Pod.
    pub(crate) fn put(&self, uid: &str, pod: Arc<Pod>) {
        match self.entries.write().entry(uid.to_owned()) {
            std::collections::hash_map::Entry::Occupied(mut e) => e.get_mut().pod = pod,
            std::collections::hash_map::Entry::Vacant(e) => {
                e.insert(Entry { pod, observed: Arc::default() });
            }
        }
    }
    /// Notes what the runtime has of a Pod.
    pub(crate) fn observe(&self, uid: &str, observed: Arc<PodStatus>) {
        if let Some(entry) = self.entries.write().get_mut(uid) {
            entry.observed = observed;
        }
    }
    /// Forgets a Pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.entries.write().remove(uid);
    }
}

fn is(pod: &Pod, namespace: &str, name: &str) -> bool {
    pod.metadata.namespace.as_deref() == Some(namespace) && pod.metadata.name.as_deref() == Some(name)
}
