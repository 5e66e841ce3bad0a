//! The names, features, bounds and errors of allocations.

use std::fmt;

use api::{FeatureGates, Gate};
use compact_str::CompactString as Text;

/// The most devices that one claim gets (upstream's `AllocationResultsMaxSize`).
pub(super) const MOST_RESULTS: usize = 32;

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
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PoolId {
    pub(super) driver: Text,
    pub(super) pool: Text,
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
