//! Rates at which something may be done.

use std::time::Duration;

use tokio::time::Instant;

/// The longest wait for a turn.
const LONGEST: Duration = Duration::from_hours(1);

/// So often in a second, after so many at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How often in a second, in the long run; more than 0.
    pub per_second: f64,
    /// How many at once.
    pub burst: u32,
}

/// Turns at a rate; upstream's token bucket.
#[derive(Debug)]
pub struct Bucket {
    rate: Rate,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// A full one.
    pub fn new(rate: Rate) -> Self {
        Self { rate, tokens: f64::from(rate.burst), at: Instant::now() }
    }

    fn fill(&mut self) {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate.per_second).min(f64::from(self.rate.burst));
        self.at = now;
    }

    /// Takes a turn if it can be had at once.
    pub fn try_turn(&mut self) -> bool {
        self.fill();
        let has = self.tokens >= 1.0;
        if has {
            self.tokens -= 1.0;
        }
        has
    }

    /// Takes the next turn, in advance if need be; how long until it comes.
    pub fn reserve(&mut self) -> Duration {
        self.fill();
        self.tokens -= 1.0;
        // A rate of next to nothing waits for long, but not for ever.
        let wait = (-self.tokens).max(0.0) / self.rate.per_second;
        Duration::try_from_secs_f64(wait).map_or(LONGEST, |wait| wait.min(LONGEST))
    }

    /// Takes the next turn, and waits for it.
    pub async fn turn(&mut self) {
        let wait = self.reserve();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_come_at_the_rate() {
        let rate = Rate { per_second: 2.0, burst: 3 };
        let mut bucket = Bucket::new(rate);
        let began = Instant::now();
        for _ in 0..7 {
            bucket.turn().await;
        }
        assert_eq!(began.elapsed().as_millis() / 100, 20, "three at once, then four at two a second");
        let mut bucket = Bucket::new(rate);
        let at_once = (0..5).filter(|_| bucket.try_turn()).count();
        assert_eq!(at_once, 3);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((0..5).filter(|_| bucket.try_turn()).count(), 2);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!((0..9).filter(|_| bucket.try_turn()).count(), 3);
    }
}
