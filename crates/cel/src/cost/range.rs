//! Ranges of costs and sizes.

/// A range of costs or sizes. Beyond the greatest number all is the greatest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The greatest.
    pub max: u64,
}

impl Range {
    /// A range of everything.
    pub const UNKNOWN: Self = Self { min: 0, max: u64::MAX };
    /// Nothing.
    pub const ZERO: Self = Self { min: 0, max: 0 };

    /// One number.
    pub fn fixed(n: u64) -> Self {
        Self { min: n, max: n }
    }
    /// The sums.
    pub fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }
    /// The products.
    pub fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }
    /// The products with a factor, rounded up.
    pub fn factor(self, by: f64) -> Self {
        Self { min: scaled(self.min, by), max: scaled(self.max, by) }
    }
    /// The range of both.
    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// A number by a factor, rounded up.
pub(super) fn scaled(n: u64, by: f64) -> u64 {
    // A float above the greatest number becomes that number.
    (n as f64 * by).ceil() as u64
}
