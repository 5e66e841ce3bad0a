//! When garbage is removed.

use std::time::Duration;

/// How many containers that have ended are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerPolicy {
    /// The least age of a container that is removed; upstream's `minimum-container-ttl-duration`.
    pub min_age: Duration,
    /// How many are kept of each container of a Pod; upstream's `maximum-dead-containers-per-container`, all if it is
    /// negative.
    pub max_per_pod_container: i32,
    /// How many are kept in all; upstream's `maximum-dead-containers`, all if it is negative.
    pub max_containers: i32,
}

impl Default for ContainerPolicy {
    /// Upstream's defaults.
    fn default() -> Self {
        Self { min_age: Duration::ZERO, max_per_pod_container: 1, max_containers: -1 }
    }
}

impl ContainerPolicy {
    /// How many are kept of each container of a Pod, if that is bounded and age does not count.
    pub(crate) fn kept_at_once(&self) -> Option<usize> {
        usize::try_from(self.max_per_pod_container).ok().filter(|_| self.min_age.is_zero())
    }
}

/// When images are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImagePolicy {
    /// The share of the disk in use, in percent, from which on images are removed; upstream's
    /// `imageGCHighThresholdPercent`.
    pub high_percent: u8,
    /// The share that is to be reached then; upstream's `imageGCLowThresholdPercent`.
    pub low_percent: u8,
    /// The least time since an image was first seen; upstream's `imageMinimumGCAge`.
    pub min_age: Duration,
    /// The time after which an image goes that nobody used; upstream's `imageMaximumGCAge`, zero for never.
    pub max_age: Duration,
}

impl Default for ImagePolicy {
    /// Upstream's defaults.
    fn default() -> Self {
        Self { high_percent: 85, low_percent: 80, min_age: Duration::from_mins(2), max_age: Duration::ZERO }
    }
}

/// A policy that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A share is no percentage.
    #[error("invalid {name} {value}, must be in range [0-100]")]
    Percent {
        /// Upstream's name of the share.
        name: &'static str,
        /// Its value.
        value: i32,
    },
    /// The share to be reached is above the other.
    #[error("LowThresholdPercent {low} can not be higher than HighThresholdPercent {high}")]
    Order {
        /// The share to be reached.
        low: u8,
        /// The other.
        high: u8,
    },
}

impl ImagePolicy {
    /// A policy of two percentages.
    ///
    /// # Errors
    /// They are none, or the wrong way round.
    pub fn new(high: i32, low: i32, min_age: Duration, max_age: Duration) -> Result<Self, PolicyError> {
        let percent = |name, value: i32| {
            u8::try_from(value).ok().filter(|p| *p <= 100).ok_or(PolicyError::Percent { name, value })
        };
        let high_percent = percent("HighThresholdPercent", high)?;
        let low_percent = percent("LowThresholdPercent", low)?;
        if low_percent > high_percent {
            return Err(PolicyError::Order { low: low_percent, high: high_percent });
        }
        Ok(Self { high_percent, low_percent, min_age, max_age })
    }

    /// Whether nothing is ever removed for its own sake; upstream's.
    pub(crate) fn is_off(&self) -> bool {
        self.high_percent == 100 && self.max_age.is_zero()
    }

    /// The bytes to be freed of a disk, and the percentage in use; none if there is enough room.
    pub(crate) fn wanted_room(&self, capacity: u64, available: u64) -> Option<(u64, u8)> {
        let available = available.min(capacity);
        let free = u128::from(available) * 100 / u128::from(capacity.max(1));
        let used = 100 - u8::try_from(free).unwrap_or(100);
        (used >= self.high_percent).then(|| {
            let wanted = u128::from(capacity) * u128::from(100 - self.low_percent) / 100;
            (u64::try_from(wanted).unwrap_or(u64::MAX).saturating_sub(available), used)
        })
    }
}
