//! The choice of devices for claims (upstream's `dynamic-resource-allocation/structured`).
//!
//! [`Allocator::allocate`] is pure: claims, the devices that drivers publish ([`stock`]), classes, and what is allocated
//! already ([`allocated`]) go in, an allocation for each claim comes out. It searches all combinations in a fixed order,
//! and the first that does is taken; the search is bounded in work and time ([`Limits`]).
//!
//! It is part of the scheduler, since nobody else allocates; rules on claims that controllers and kubelets need as well
//! are in `objects::claims`.

pub mod allocated;
mod capacity;
#[cfg(test)]
mod cases;
mod choose;
mod constraint;
mod counters;
mod pools;
mod request;
mod result;
mod search;
pub mod selector;
pub mod stock;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use api::{FeatureGates, Gate};
use compact_str::CompactString as Text;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim};
use objects::node_affinity::Seen;

use allocated::Allocated;
use counters::Available;
use search::Search;
use selector::Selectors;
use stock::Stock;

/// The most devices that one claim gets (upstream's `AllocationResultsMaxSize`).
const MOST_RESULTS: usize = 32;

/// A device, by its driver, pool and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each part has its name")]
pub struct DeviceId {
    pub driver: Text,
    pub pool: Text,
    pub device: Text,
}

impl DeviceId {
    /// The device of these names.
    pub fn new(driver: &str, pool: &str, device: &str) -> Self {
        Self { driver: driver.into(), pool: pool.into(), device: device.into() }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// A pool, by its driver and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PoolId {
    driver: Text,
    pool: Text,
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.driver, self.pool)
    }
}

/// The features by which allocations differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each has the name of its gate")]
#[allow(clippy::struct_excessive_bools, reason = "they are gates, independent of each other")]
pub struct Features {
    pub admin_access: bool,
    pub consumable_capacity: bool,
    /// DRADeviceBindingConditions and DRAResourceClaimDeviceStatus.
    pub binding_conditions: bool,
    pub device_taints: bool,
    pub list_attributes: bool,
    pub partitionable_devices: bool,
    pub prioritized_list: bool,
}

impl Features {
    /// The features that gates switch on.
    pub fn of(gates: FeatureGates) -> Self {
        Self {
            admin_access: gates.enabled(Gate::DRAAdminAccess),
            consumable_capacity: gates.enabled(Gate::DRAConsumableCapacity),
            binding_conditions: gates.enabled(Gate::DRADeviceBindingConditions)
                && gates.enabled(Gate::DRAResourceClaimDeviceStatus),
            device_taints: gates.enabled(Gate::DRADeviceTaints),
            // DIFFERENCE: expressions do not know `includes` yet, so lists are not values of attributes.
            list_attributes: false,
            partitionable_devices: gates.enabled(Gate::DRAPartitionableDevices),
            prioritized_list: gates.enabled(Gate::DRAPrioritizedList),
        }
    }
}

/// The bounds of one search.
#[derive(Clone, Copy)]
pub struct Limits<'l> {
    /// The most work: a look at a device counts as 1, and the evaluation of an expression as more.
    pub work: u64,
    /// Whether the time is up.
    pub expired: &'l dyn Fn() -> bool,
}

/// Enough work for any claim whose devices can be found without trying all their combinations, and less than half a
/// second.
pub const WORK: u64 = 2_000_000;

/// The reason for which there is no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllocationError {
    /// The search took too long.
    TimedOut,
    /// The node's pools cannot be used; others may.
    Node(String),
    /// Something is wrong with a claim or class, wherever it is to be allocated.
    Failed(String),
}

/// Allocates claims on nodes, for one turn of a Pod: what it works from does not change.
pub struct Allocator {
    features: Features,
    allocated: Arc<Allocated>,
    classes: Arc<BTreeMap<String, Arc<DeviceClass>>>,
    stock: Arc<Stock>,
    selectors: Arc<Selectors>,
    /// Makes the ids of shares of devices.
    share_id: fn() -> String,
    /// The counters that are left of each pool.
    counters: Mutex<HashMap<PoolId, Arc<Available>>>,
    /// The answers of expressions about devices, which are the same for all nodes.
    answers: Mutex<Answers>,
}

/// The answers of expressions: by the device's slice and place and the expression's number.
#[derive(Default)]
struct Answers {
    numbers: HashMap<Box<str>, usize>,
    known: HashMap<(usize, usize, usize), bool>,
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
        let (counters, answers) = (Mutex::default(), Mutex::default());
        Self { features, allocated, classes, stock, selectors, share_id, counters, answers }
    }

    /// An allocation for each claim, or `None` if there is none on this node.
    ///
    /// # Errors
    /// In upstream's words, if the search cannot be done, or took too long.
    pub fn allocate(
        &self,
        node: Seen<'_>,
        claims: &[&ResourceClaim],
        limits: Limits<'_>,
    ) -> Result<Option<Vec<AllocationResult>>, AllocationError> {
        let pools = pools::gather(&self.stock, node, self.features);
        Search::new(self, node, claims, &pools, limits)?.run()
    }

    fn available(&self, pool: &PoolId, count: impl FnOnce() -> Available) -> Arc<Available> {
        let mut all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(pool.clone()).or_insert_with(|| Arc::new(count())).clone()
    }

    /// The number of an expression among those that were asked.
    fn number(&self, expression: &str) -> usize {
        let numbers = &mut self.answers.lock().unwrap_or_else(PoisonError::into_inner).numbers;
        if let Some(number) = numbers.get(expression) {
            return *number;
        }
        let next = numbers.len();
        numbers.insert(expression.into(), next);
        next
    }

    fn answer(&self, key: (usize, usize, usize)) -> Option<bool> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).known.get(&key).copied()
    }

    fn answered(&self, key: (usize, usize, usize), answer: bool) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).known.insert(key, answer);
    }
}
