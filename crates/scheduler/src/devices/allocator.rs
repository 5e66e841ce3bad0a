//! The things that an allocation works from, and what is worked out of them once for all nodes.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::resource::v1::DeviceClass;

use super::allocated::Allocated;
use super::counters::Available;
use super::selector::Selectors;
use super::stock::Stock;
use super::terms::{Features, PoolId};

/// Allocates claims on nodes, for one turn of a Pod: what it works from does not change.
pub struct Allocator {
    pub(super) features: Features,
    pub(super) allocated: Arc<Allocated>,
    pub(super) classes: Arc<BTreeMap<String, Arc<DeviceClass>>>,
    pub(super) stock: Arc<Stock>,
    pub(super) selectors: Arc<Selectors>,
    /// Makes the ids of shares of devices.
    pub(super) share_id: fn() -> String,
    /// The counters that are left of each pool.
    counters: Mutex<HashMap<PoolId, Arc<Available>>>,
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
        allocated: Arc<Allocated>,
        classes: Arc<BTreeMap<String, Arc<DeviceClass>>>,
        stock: Arc<Stock>,
        selectors: Arc<Selectors>,
        share_id: fn() -> String,
    ) -> Self {
        Self { features, allocated, classes, stock, selectors, share_id, counters: Mutex::default() }
    }

    pub(super) fn available(&self, pool: &PoolId, count: impl FnOnce() -> Available) -> Arc<Available> {
        let mut all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(pool.clone()).or_insert_with(|| Arc::new(count())).clone()
    }
}
