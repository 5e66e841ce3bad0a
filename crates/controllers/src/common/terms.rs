//! Terms that began at a time which stands in an object.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use component::Clock;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Measures the time since events, by key. The time of day is asked once, when an event's time is seen first; if the
/// clock is set later, no term ends early or late.
pub(crate) struct Terms<K>(Mutex<HashMap<K, Begun>>);

struct Begun {
    since: Timestamp,
    /// The time that had passed when the event was seen.
    passed: Duration,
    seen: Instant,
}

impl<K> Default for Terms<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Terms<K> {
    /// The time that has passed since `since`; zero if that lies ahead.
    pub(crate) fn passed(&self, key: K, since: Timestamp, clock: Clock) -> Duration {
        let begin = || Begun {
            since,
            passed: Duration::try_from(clock.now().duration_since(since)).unwrap_or_default(),
            seen: clock.monotonic(),
        };
        let mut all = self.0.lock();
        let known = all.entry(key).or_insert_with(begin);
        if known.since != since {
            *known = begin();
        }
        known.passed.saturating_add(clock.monotonic() - known.seen)
    }

    /// Forgets the keys for which `keep` is false.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&K) -> bool) {
        self.0.lock().retain(|key, _| keep(key));
    }

    /// Forgets a key.
    pub(crate) fn forget(&self, key: &K) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn steps_of_the_time_of_day_change_nothing() {
        for hours in [-1, 0, 1] {
            let (terms, clock) = (Terms::default(), Clock::from(Timestamp::from_second(1000).unwrap()));
            let at = |s: i64| Timestamp::from_second(s).unwrap();
            let passed = |since: i64| terms.passed("a", at(since), clock).as_secs();
            assert_eq!(passed(990), 10, "the time before it was seen counts");
            clock.step(SignedDuration::from_hours(hours));
            tokio::time::advance(Duration::from_secs(5)).await;
            assert_eq!(passed(990), 15, "{hours}");
            clock.step(SignedDuration::from_hours(-hours));
            assert_eq!(passed(1005), 0, "another time is another term");
            assert_eq!(passed(2000), 0, "a term that lies ahead has not begun");
            terms.forget(&"a");
            assert_eq!(passed(990), 15);
        }
    }
}
