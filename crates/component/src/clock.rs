//! Wall-clock time, injected.
//!
//! Durations and timers are tokio's (`tokio::time`), which tests pause; the wall clock follows
//! tokio's clock from the moment it was made, so that paused tests move both.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the time of day.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Timestamp,
    origin: Option<Instant>,
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self { start: Timestamp::UNIX_EPOCH, origin: None }
    }
    /// A clock that starts at `start` and runs as tokio's does, also when that is paused.
    pub fn from(start: Timestamp) -> Self {
        Self { start, origin: Some(Instant::now()) }
    }
    /// Now.
    pub fn now(&self) -> Timestamp {
        match self.origin {
            None => Timestamp::now(),
            Some(origin) => {
                let passed = SignedDuration::try_from(origin.elapsed()).unwrap_or_default();
                self.start.checked_add(passed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}
