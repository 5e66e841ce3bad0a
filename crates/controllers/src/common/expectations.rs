//! Expectations: writes of a controller that its cache does not show yet.
//!
//! A controller that acted on a cache which lags behind its own writes would act twice. So it notes how many objects it
//! makes and which objects it deletes, and does not act again until the informer has shown them all, or five minutes
//! have passed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use client::Key;
use parking_lot::Mutex;
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_mins(5);

struct Expected {
    creations: usize,
    deletions: HashSet<String>,
    since: Instant,
}

/// The expectations of one controller, by the key of the object for which it acts.
#[derive(Default)]
pub(crate) struct Expectations(Mutex<HashMap<Key, Expected>>);

impl Expectations {
    pub(crate) fn expect_creations(&self, key: &Key, count: usize) {
        self.set(key, count, HashSet::new());
    }

    /// Expects deletions of the objects with these `uids`.
    pub(crate) fn expect_deletions(&self, key: &Key, uids: impl IntoIterator<Item = String>) {
        self.set(key, 0, uids.into_iter().collect());
    }

    /// Expects both at once.
    pub(crate) fn expect(&self, key: &Key, creations: usize, deletions: impl IntoIterator<Item = String>) {
        self.set(key, creations, deletions.into_iter().collect());
    }

    fn set(&self, key: &Key, creations: usize, deletions: HashSet<String>) {
        self.0.lock().insert(key.clone(), Expected { creations, deletions, since: Instant::now() });
    }

    /// Notes that `count` objects came, or will not come.
    pub(crate) fn created(&self, key: &Key, count: usize) {
        if let Some(e) = self.0.lock().get_mut(key) {
            e.creations = e.creations.saturating_sub(count);
        }
    }

    /// Notes that an object went, or will not go.
    pub(crate) fn deleted(&self, key: &Key, uid: &str) {
        if let Some(e) = self.0.lock().get_mut(key) {
            e.deletions.remove(uid);
        }
    }

    /// Whether the cache shows all expected writes.
    pub(crate) fn satisfied(&self, key: &Key) -> bool {
        self.0
            .lock()
            .get(key)
            .is_none_or(|e| (e.creations == 0 && e.deletions.is_empty()) || e.since.elapsed() > TIMEOUT)
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn they_hold_until_seen_or_too_old() {
        let (e, key) = (Expectations::default(), Key::new("ns", "rs"));
        assert!(e.satisfied(&key));
        e.expect_creations(&key, 2);
        e.created(&key, 1);
        assert!(!e.satisfied(&key));
        e.created(&key, 1);
        assert!(e.satisfied(&key));
        e.expect_deletions(&key, ["a".to_owned(), "b".to_owned()]);
        e.deleted(&key, "a");
        e.deleted(&key, "a");
        assert!(!e.satisfied(&key), "one object is seen once");
        tokio::time::advance(Duration::from_secs(301)).await;
        assert!(e.satisfied(&key));
    }
}
