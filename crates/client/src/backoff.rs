//! Delays between attempts.

use std::time::Duration;

/// Exponential back-off with jitter: each delay is drawn from [d, 2d), where d doubles up to a limit.
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    limit: Duration,
    next: Duration,
}

impl Backoff {
    /// Starts at `base` and never exceeds `limit` (before jitter).
    pub fn new(base: Duration, limit: Duration) -> Self {
        Self { base, limit, next: base }
    }
    /// The delay before the next attempt.
    pub fn delay(&mut self) -> Duration {
        let d = self.next;
        self.next = (d * 2).min(self.limit);
        d + d.mul_f64(fastrand::f64())
    }
    /// Forgets past failures.
    pub fn reset(&mut self) {
        self.next = self.base;
    }
}
