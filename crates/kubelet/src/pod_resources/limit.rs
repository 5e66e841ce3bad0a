//! How many questions are answered. Pure but for the clock, which callers hand in.

use tokio::time::Instant;

/// Questions a second, and how many may come at once; upstream's.
const QPS: f64 = 100.0;
const BURST: f64 = 10.0;

/// A bucket of tokens.
#[derive(Debug)]
pub(super) struct Limit {
    tokens: f64,
    at: Instant,
}

impl Limit {
    /// A full one.
    pub(super) fn new(now: Instant) -> Self {
        Self { tokens: BURST, at: now }
    }

    /// Whether one more question is answered.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * QPS).min(BURST);
        self.at = now;
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_and_then_the_rate() {
        let now = Instant::now();
        let mut limit = Limit::new(now);
        let mut count = |at: u64| (0..100).filter(|_| limit.allows(now + Duration::from_millis(at))).count();
        assert_eq!(count(0), 10);
        assert_eq!(count(5), 0);
        assert_eq!(count(55), 5);
        assert_eq!(count(10_000), 10, "no more than a burst is kept");
    }
}
