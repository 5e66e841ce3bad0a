//! The things that an allocation works from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::DeviceClass;

use super::selector::Selectors;
use super::stock::Stock;
use super::terms::Features;
use super::usage::Usage;

/// Allocates claims on nodes, for one turn of a Pod: what it works from does not change.
pub struct Allocator {
    pub(super) features: Features,
    pub(super) usage: Arc<Usage>,
    pub(super) classes: Arc<BTreeMap<String, Arc<DeviceClass>>>,
    pub(super) stock: Arc<Stock>,
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
    /// An allocator for what is known. The use is that of the devices of this stock.
    pub fn new(
        features: Features,
        (stock, usage): (Arc<Stock>, Arc<Usage>),
        classes: Arc<BTreeMap<String, Arc<DeviceClass>>>,
        selectors: Arc<Selectors>,
        share_id: fn() -> String,
    ) -> Self {
        Self { features, usage, classes, stock, selectors, share_id }
    }
}
