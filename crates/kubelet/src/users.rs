//! The Pods that are to have a volume, from before they have it: with them, nobody takes away what somebody is about to get.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use parking_lot::Mutex;

/// The uids of Pods, by volumes. Nothing is kept of a volume that no Pod is to have.
#[derive(Debug)]
pub(crate) struct Users<K>(Mutex<HashMap<K, BTreeSet<String>>>);

impl<K> Default for Users<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq + Clone> Users<K> {
    /// Notes that a Pod is to have a volume.
    pub(crate) fn enter(&self, uid: &str, volume: K) {
        self.0.lock().entry(volume).or_default().insert(uid.to_owned());
    }

    /// Forgets that a Pod is to have volumes; answers which those were.
    pub(crate) fn leave(&self, uid: &str) -> Vec<K> {
        let mut left = Vec::new();
        self.0.lock().retain(|volume, pods| {
            if pods.remove(uid) {
                left.push(volume.clone());
            }
            !pods.is_empty()
        });
        left
    }

    /// The Pods that are to have a volume.
    pub(crate) fn of(&self, volume: &K) -> BTreeSet<String> {
        self.0.lock().get(volume).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_come_and_go() {
        let users = Users::default();
        for (uid, volume) in [("a", 1), ("b", 1), ("a", 2), ("a", 2)] {
            users.enter(uid, volume);
        }
        assert_eq!(users.of(&1), ["a", "b"].map(str::to_owned).into());
        let mut left = users.leave("a");
        left.sort_unstable();
        assert_eq!(
            (left, users.of(&1), users.of(&2)),
            (vec![1, 2], ["b".to_owned()].into(), BTreeSet::new())
        );
        assert_eq!((users.leave("b"), users.leave("b"), users.0.lock().len()), (vec![1], Vec::new(), 0));
    }
}
