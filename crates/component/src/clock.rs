//! Time, injected: the time of day, and monotonic time.
//!
//! The time of day ([`Clock::now`]) is for times that are written into objects and compared with those that others
//! wrote there. It jumps: NTP, an operator and the resume of a machine set it. So the time between two observations is
//! measured by [`Clock::monotonic`], as Go's monotonic readings do; that is tokio's clock, which all timers here use,
//! and which tests pause.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A clock of the time of day and of monotonic time.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Option<Simulated>);

#[derive(Debug, Clone, Copy)]
struct Simulated {
    start: Timestamp,
    origin: Instant,
    /// The milliseconds by which the time of day was set forward.
    stepped: &'static AtomicI64,
}

impl Clock {
    /// Returns the machine's clock.
    pub fn system() -> Self {
        Self(None)
    }
    /// Makes a clock for tests, whose time of day starts at `start`, runs as tokio's clock does, also when that is
    /// paused, and can be set. It is never freed.
    pub fn from(start: Timestamp) -> Self {
        Self(Some(Simulated { start, origin: Instant::now(), stepped: Box::leak(Box::default()) }))
    }
    /// The time of day.
    pub fn now(&self) -> Timestamp {
        let Some(simulated) = &self.0 else { return Timestamp::now() };
        let passed = SignedDuration::try_from(simulated.origin.elapsed()).unwrap_or_default();
        let stepped = SignedDuration::from_millis(simulated.stepped.load(Ordering::Relaxed));
        passed
            .checked_add(stepped)
            .and_then(|passed| simulated.start.checked_add(passed).ok())
            .unwrap_or(Timestamp::MAX)
    }
    /// A reading of the monotonic clock: never set, and the same for all clocks of a process.
    #[allow(clippy::unused_self, reason = "clocks are injected, also where all tell the same time")]
    pub fn monotonic(&self) -> Instant {
        Instant::now()
    }
    /// Sets the time of day forward, or back, as an operator or NTP does. The machine's clock is left alone.
    pub fn step(&self, by: SignedDuration) {
        if let Some(simulated) = &self.0 {
            let by = i64::try_from(by.as_millis()).unwrap_or_default();
            simulated.stepped.fetch_add(by, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_step_moves_the_time_of_day_alone() {
        let clock = Clock::from(Timestamp::UNIX_EPOCH);
        let began = clock.monotonic();
        for (step, day) in [(0, 1), (3600, 3602), (-7200, -3597)] {
            tokio::time::advance(Duration::from_secs(1)).await;
            clock.step(SignedDuration::from_secs(step));
            assert_eq!(clock.now().as_second(), day, "{step}");
        }
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }
}
