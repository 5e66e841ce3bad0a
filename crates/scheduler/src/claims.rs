//! The claims of volumes, and what is known of how they are bound.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;

/// The claims and classes of the cluster.
#[derive(Debug, Default)]
pub struct Claims {
    /// By namespace and name.
    pub claims: HashMap<(String, String), Arc<PersistentVolumeClaim>>,
    /// By name.
    pub classes: HashMap<String, Arc<StorageClass>>,
}

impl Claims {
    /// Whether claims of the class are bound when a Pod needs them, not before.
    pub fn waits_for_consumer(&self, claim: &PersistentVolumeClaim) -> bool {
        // The annotation comes before the field, as upstream's `GetPersistentVolumeClaimClass` reads them.
        let old = claim
            .metadata
            .annotations
            .as_ref()
            .and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"));
        let class = old.or(claim.spec.as_ref().and_then(|s| s.storage_class_name.as_ref()));
        let mode = class.and_then(|c| self.classes.get(c)).and_then(|c| c.volume_binding_mode.as_deref());
        mode == Some("WaitForFirstConsumer")
    }
}
