//! The things that an allocation works from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::DeviceClass;

use super::selector::Selectors;
use super::snapshot::Snapshot;
use super::terms::Features;

/// Allocates claims on nodes, for one turn of a Pod: what it works from does not change.
pub struct Allocator {
    pub(super) features: Features,
    pub(super) snapshot: Snapshot,
    pub(super) classes: Arc<BTreeMap<String, Arc<DeviceClass>>>,
    pub(super) selectors: Arc<Selectors>,
    /// Makes the ids of shares of devices.
    pub(super) share_id: fn() -> String,
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").field("features", &self.features).finish_non_exhaustive()
    }
}

impl Allocator {
    /// An allocator for what is known.
    pub fn new(
        features: Features,
        snapshot: Snapshot,
        classes: Arc<BTreeMap<String, Arc<DeviceClass>>>,
        selectors: Arc<Selectors>,
        share_id: fn() -> String,
    ) -> Self {
        Self { features, snapshot, classes, selectors, share_id }
    }
}
