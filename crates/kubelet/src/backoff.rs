//! Back-off by key, counted from events in wall-clock time; upstream's `flowcontrol.Backoff`.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// A key that was quiet for so long starts anew.
const FORGET: SignedDuration = SignedDuration::from_secs(600);

#[derive(Debug, Clone, Copy)]
struct Entry {
    delay: SignedDuration,
    updated: Timestamp,
}

/// The delays after which a container that ended is started again: the first one, which doubles, and the longest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartBackoff {
    /// The first one; 10 s.
    pub first: SignedDuration,
    /// The longest one; upstream's `crashLoopBackOff.maxContainerRestartPeriod`, 5 min.
    pub longest: SignedDuration,
}

impl Default for RestartBackoff {
    /// Upstream's defaults.
    fn default() -> Self {
        Self { first: SignedDuration::from_secs(10), longest: SignedDuration::from_secs(300) }
    }
}

/// Delays by key, doubled up to the longest, forgotten after 10 quiet minutes.
#[derive(Debug, Default)]
pub(crate) struct Backoffs {
    entries: Mutex<HashMap<String, Entry>>,
    by: RestartBackoff,
}

impl Backoffs {
    /// With these delays.
    pub(crate) fn new(by: RestartBackoff) -> Self {
        Self { entries: Mutex::default(), by }
    }
    /// When the key may be tried again after an event at `since`; none if that is now.
    pub(crate) fn until(&self, key: &str, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let entry = *self.entries.lock().get(key)?;
        if since.duration_since(entry.updated) > FORGET {
            return None;
        }
        let until = since.checked_add(entry.delay).ok()?;
        (until > now).then_some(until)
    }
    /// When the key may be tried again after its last failure; none if that is now.
    pub(crate) fn until_since_update(&self, key: &str, now: Timestamp) -> Option<Timestamp> {
        let updated = self.entries.lock().get(key)?.updated;
        self.until(key, updated, now)
    }
    /// The key's present delay.
    pub(crate) fn delay(&self, key: &str) -> SignedDuration {
        self.entries.lock().get(key).map_or(SignedDuration::ZERO, |e| e.delay)
    }
    /// Counts an attempt after an event at `since`.
    pub(crate) fn next(&self, key: &str, since: Timestamp, now: Timestamp) {
        let mut entries = self.entries.lock();
        let entry = entries
            .entry(key.to_owned())
            .and_modify(|e| {
                e.delay = if since.duration_since(e.updated) > FORGET {
                    self.by.first
                } else {
                    e.delay.saturating_add(e.delay).min(self.by.longest)
                };
            })
            .or_insert(Entry { delay: self.by.first, updated: now });
        entry.updated = now;
    }
    /// Forgets the keys that begin with `prefix`.
    pub(crate) fn forget(&self, prefix: &str) {
        self.entries.lock().retain(|key, _| !key.starts_with(prefix));
    }
}

/// A delay as Go prints it (`1m20s`).
pub(crate) fn go_duration(d: SignedDuration) -> String {
    let seconds = d.as_secs();
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (h, m) {
        (0, 0) => format!("{s}s"),
        (0, m) => format!("{m}m{s}s"),
        (h, m) => format!("{h}h{m}m{s}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_are_forgotten() {
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        let b = Backoffs::default();
        assert_eq!(b.until("k", at(0), at(0)), None);
        b.next("k", at(0), at(0));
        assert_eq!(b.until("k", at(5), at(6)), Some(at(15)));
        assert_eq!(b.until("k", at(5), at(15)), None);
        for want in [20, 40, 80, 160, 300, 300] {
            b.next("k", at(5), at(5));
            assert_eq!(b.delay("k").as_secs(), want);
        }
        assert_eq!(b.until("k", at(700), at(700)), None, "quiet for ten minutes");
        b.next("k", at(700), at(700));
        assert_eq!(b.delay("k").as_secs(), 10);
        b.forget("k");
        assert_eq!(b.until("k", at(700), at(700)), None);
        let by =
            RestartBackoff { first: SignedDuration::from_secs(3), longest: SignedDuration::from_secs(7) };
        let b = Backoffs::new(by);
        for want in [3, 6, 7, 7] {
            b.next("k", at(0), at(0));
            assert_eq!(b.delay("k").as_secs(), want);
        }
        assert_eq!(go_duration(SignedDuration::from_secs(80)), "1m20s");
        assert_eq!(go_duration(SignedDuration::from_secs(300)), "5m0s");
    }
}
