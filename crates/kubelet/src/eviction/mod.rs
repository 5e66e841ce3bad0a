//! Eviction of Pods when the node runs short of memory, disks or process ids, and of Pods that take more of the disks than
//! they may.
//!
//! Everything but `manager` decides purely: what was seen of each signal becomes a verdict (`state`), Pods are put in
//! an order (`rank`), limits are compared with what was measured (`limits`).

mod layout;
mod limits;
pub(crate) mod manager;
mod message;
mod observe;
pub(crate) mod pressure;
mod rank;
pub(crate) mod signal;
mod state;
pub(crate) mod threshold;

#[cfg(test)]
mod cases;

use std::time::Duration;

pub use self::signal::Signal;
pub use self::threshold::{Amount, Statement, Statements, Threshold, ThresholdError, default_hard};

/// How Pods are evicted.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The thresholds.
    pub thresholds: Vec<Threshold>,
    /// How they were stated.
    pub stated: Statement,
    /// How long a shortage is reported after it has gone; upstream's `evictionPressureTransitionPeriod`.
    pub transition: Duration,
    /// The longest grace of a Pod for a soft threshold, in seconds; upstream's `evictionMaxPodGracePeriod`.
    pub max_pod_grace: i64,
    /// Whether Pods are held to their limits of local storage; upstream's `localStorageCapacityIsolation`.
    pub local_storage: bool,
}

impl Default for Settings {
    /// Upstream's defaults.
    fn default() -> Self {
        let stated = Statement::default();
        Self {
            thresholds: stated.thresholds(true).unwrap_or_default(),
            stated,
            transition: Duration::from_mins(5),
            max_pod_grace: 0,
            local_storage: true,
        }
    }
}

impl Settings {
    /// The least of a signal that is kept free for the node: its hard threshold.
    pub(crate) fn reserved(&self, signal: Signal, capacity: u64) -> u64 {
        let capacity = i64::try_from(capacity).unwrap_or(i64::MAX);
        let hard = self.thresholds.iter().find(|t| t.signal == signal && t.is_hard());
        hard.map_or(0, |t| u64::try_from(t.value.of(capacity)).unwrap_or_default())
    }
}
