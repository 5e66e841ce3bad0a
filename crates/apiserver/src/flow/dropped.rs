//! When those that were refused may try again: later, the more of them there are.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// The longest time, in seconds.
const MOST: u64 = 32;

/// The refusals of a level, by the second.
#[derive(Debug)]
pub(super) struct Dropped(Mutex<Seconds>);

#[derive(Debug)]
struct Seconds {
    /// The seconds before this one in which requests were refused, and how many; as far back as they matter.
    past: VecDeque<(u64, u64)>,
    now: (u64, u64),
    wait: u64,
    raised: Option<u64>,
}

impl Default for Dropped {
    fn default() -> Self {
        Self(Mutex::new(Seconds { past: VecDeque::new(), now: (0, 0), wait: 1, raised: None }))
    }
}

impl Dropped {
    /// One more was refused in this second; after how many seconds it may try again.
    pub(super) fn record(&self, second: u64) -> u64 {
        let mut seen = self.0.lock();
        if second <= seen.now.0 {
            seen.now.1 += 1;
            return seen.wait;
        }
        let last = std::mem::replace(&mut seen.now, (second, 1));
        seen.past.push_back(last);
        let old = last.0.saturating_sub(MOST.min(2 * seen.wait));
        while seen.past.front().is_some_and(|(at, _)| *at < old) {
            seen.past.pop_front();
        }
        seen.adjust(second);
        seen.wait
    }
}

impl Seconds {
    /// Doubles the time if three times as many were refused within it as it has seconds, at most once within it;
    /// shortens it by a second if there were fewer than one a second.
    fn adjust(&mut self, second: u64) {
        let begin = second.saturating_sub(self.wait);
        let recent = self.past.iter().filter(|(at, _)| (begin..second).contains(at));
        let dropped: u64 = recent.map(|(_, count)| count).sum();
        let due = self.raised.is_none_or(|at| second - at >= self.wait);
        if due && dropped >= 3 * self.wait {
            self.wait = (2 * self.wait).min(MOST);
            self.raised = Some(second);
        } else if dropped < self.wait && self.wait > 1 {
            self.wait -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps of upstream's `TestDroppedRequestsTracker`.
    #[test]
    fn the_more_the_later() {
        let (level, other) = (Dropped::default(), Dropped::default());
        let check = |second: u64, count: u64, expected: u64| {
            let waits: Vec<u64> = (0..count).map(|_| level.record(1_000_000 + second)).collect();
            assert_eq!(waits.last(), Some(&expected), "{second}");
        };
        for (second, count, expected) in [
            (0, 5, 1),
            (1, 11, 2),
            (2, 1, 2),
            (3, 11, 4),
            (4, 1, 4),
            (7, 1, 8),
            (11, 1, 8),
            (15, 1, 7),
            (17, 1, 6),
            (21, 14, 5),
            (22, 1, 10),
        ] {
            check(second, count, expected);
        }
        assert_eq!(other.record(1_000_022), 1, "levels do not know of each other");
        for second in 0..10_000 {
            for _ in 0..200 {
                level.record(2_000_000 + second);
            }
        }
        assert_eq!(level.record(2_010_000), MOST);
        assert!(level.0.lock().past.len() <= 2 * MOST as usize);
    }
}
