//! The workers of this node's Pods, by the Pods' uids.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::RwLock;

use super::worker::Worker;

/// Every worker. It lets them look again, and does not know what they do.
#[derive(Default)]
pub(crate) struct Workers(RwLock<HashMap<String, Arc<Worker>>>);

impl Workers {
    /// The worker of a Pod.
    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Worker>> {
        self.0.read().get(uid).cloned()
    }
    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Worker>> {
        self.0.read().values().cloned().collect()
    }
    /// The Pods that use the node's resources.
    pub(crate) fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.all().into_iter().filter(|w| w.active()).map(|w| w.pod()).collect()
    }
    /// Adds one.
    pub(crate) fn put(&self, worker: &Arc<Worker>) {
        self.0.write().insert(worker.uid.clone(), worker.clone());
    }
    /// Forgets the worker of a Pod of which nothing is left.
    pub(crate) fn remove(&self, uid: &str) {
        self.0.write().remove(uid);
    }
    /// Lets a Pod's worker look again.
    pub(crate) fn wake(&self, uid: &str) {
        if let Some(worker) = self.get(uid) {
            worker.wake.notify_one();
        }
    }
    /// Lets every worker look again.
    pub(crate) fn wake_all(&self) {
        for worker in self.all() {
            worker.wake.notify_one();
        }
    }
    /// Something that a Pod's status shows has changed.
    pub(crate) fn changed(&self, uid: &str) {
        if let Some(worker) = self.get(uid) {
            worker.changed();
        }
    }
}
