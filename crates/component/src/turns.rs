//! One thing at a time is done to a volume, a claim or a download, in the order of those who ask.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// The turns of things, by their keys. Nothing is kept of a thing that nobody has or waits for.
#[derive(Debug)]
pub struct Turns<K>(Mutex<HashMap<K, Weak<Turn<()>>>>);

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Ord> Turns<K> {
    /// Waits for the turn of one thing; it ends with the answer.
    pub async fn take(&self, key: K) -> OwnedMutexGuard<()> {
        self.of(key).lock_owned().await
    }

    /// Waits for the turns of all these things; they end with the answer. Several are taken in the order of their keys, so
    /// that no two wait for each other.
    pub async fn take_all(&self, keys: BTreeSet<K>) -> Vec<OwnedMutexGuard<()>> {
        let mut held = Vec::with_capacity(keys.len());
        for key in keys {
            held.push(self.take(key).await);
        }
        held
    }

    fn of(&self, key: K) -> Arc<Turn<()>> {
        let mut all = self.0.lock();
        all.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = all.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        all.insert(key, Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn things_have_turns() {
        let turns = Turns::default();
        let first = turns.take_all(BTreeSet::from(["a", "b"])).await;
        let other = turns.take("c").await;
        let mut second = Box::pin(turns.take_all(BTreeSet::from(["b", "c"])));
        let now = tokio::select! {
            biased;
            _ = &mut second => true,
            () = tokio::task::yield_now() => false,
        };
        assert!(!now, "it is held");
        drop((first, other));
        assert_eq!(second.await.len(), 2);
        turns.take_all(BTreeSet::new()).await;
        turns.take("d").await;
        assert_eq!(turns.0.lock().len(), 1, "nothing is kept of those that ended");
    }
}
