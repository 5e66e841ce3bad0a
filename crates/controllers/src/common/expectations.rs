//! Expectations: writes of a controller that its cache does not show yet.
//!
//! A controller that acted on a cache which lags behind its own writes would act twice. So it notes how many objects it
//! makes and which objects it deletes, and does not act again until the informer has shown them all, or five minutes
//! have passed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_mins(5);

struct Expected {
    creations: usize,
    deletions: HashSet<String>,
    since: Instant,
}

impl Expected {
    fn is_seen(&self) -> bool {
        self.creations == 0 && self.deletions.is_empty()
    }
}

/// The expectations of one controller, by the uid of the object for which it acts: another object of the same name has
/// expectations of its own. Those that the cache shows are forgotten.
#[derive(Default)]
pub(crate) struct Expectations(Mutex<HashMap<String, Expected>>);

impl Expectations {
    pub(crate) fn expect_creations(&self, owner: &str, count: usize) {
        self.set(owner, count, HashSet::new());
    }

    /// Expects deletions of the objects with these `uids`.
    pub(crate) fn expect_deletions(&self, owner: &str, uids: impl IntoIterator<Item = String>) {
        self.set(owner, 0, uids.into_iter().collect());
    }

    /// Expects both at once.
    pub(crate) fn expect(&self, owner: &str, creations: usize, deletions: impl IntoIterator<Item = String>) {
        self.set(owner, creations, deletions.into_iter().collect());
    }

    fn set(&self, owner: &str, creations: usize, deletions: HashSet<String>) {
        let mut all = self.0.lock();
        // Those of owners that went meanwhile.
        all.retain(|_, e| e.since.elapsed() <= TIMEOUT);
        all.insert(owner.to_owned(), Expected { creations, deletions, since: Instant::now() });
    }

    /// Notes that `count` objects came, or will not come.
    pub(crate) fn created(&self, owner: &str, count: usize) {
        self.note(owner, |e| e.creations = e.creations.saturating_sub(count));
    }

    /// Notes that an object went, or will not go.
    pub(crate) fn deleted(&self, owner: &str, uid: &str) {
        self.note(owner, |e| {
            e.deletions.remove(uid);
        });
    }

    fn note(&self, owner: &str, change: impl FnOnce(&mut Expected)) {
        let mut all = self.0.lock();
        let Some(expected) = all.get_mut(owner) else { return };
        change(expected);
        if expected.is_seen() {
            all.remove(owner);
        }
    }

    /// Whether the cache shows all expected writes.
    pub(crate) fn satisfied(&self, owner: &str) -> bool {
        self.0.lock().get(owner).is_none_or(|e| e.is_seen() || e.since.elapsed() > TIMEOUT)
    }

    pub(crate) fn forget(&self, owner: &str) {
        self.0.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn they_hold_until_seen_or_too_old() {
        let (e, owner) = (Expectations::default(), "uid");
        assert!(e.satisfied(owner));
        e.expect_creations(owner, 2);
        e.created(owner, 1);
        assert!(!e.satisfied(owner));
        e.created(owner, 1);
        assert!(e.satisfied(owner));
        e.expect_deletions(owner, ["a".to_owned(), "b".to_owned()]);
        e.deleted(owner, "a");
        e.deleted(owner, "a");
        assert!(!e.satisfied(owner), "one object is seen once");
        tokio::time::advance(Duration::from_secs(301)).await;
        assert!(e.satisfied(owner));
        assert!(e.satisfied("another"), "an owner waits for its own objects alone");
        e.expect_creations("another", 1);
        assert_eq!(e.0.lock().len(), 1, "what is too old is forgotten");
        e.created("another", 1);
        assert!(e.0.lock().is_empty(), "and what was seen");
    }
}
