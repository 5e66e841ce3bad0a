//! One thing at a time is done to a claim, in the order of those who ask.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use super::claims::Key;

/// Turns by claim.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Key, Weak<Turn<()>>>>);

impl Turns {
    /// Waits for the turns of all these claims; they end with what is answered. Several are taken in
    /// the order of their names, so that no two wait for each other.
    pub(super) async fn take(&self, keys: BTreeSet<Key>) -> Vec<OwnedMutexGuard<()>> {
        let mut held = Vec::with_capacity(keys.len());
        for key in keys {
            held.push(self.of(key).lock_owned().await);
        }
        held
    }

    fn of(&self, key: Key) -> Arc<Turn<()>> {
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
    async fn claims_have_turns() {
        let turns = Turns::default();
        let keys = |names: &[&str]| names.iter().map(|n| ("ns".to_owned(), (*n).to_owned())).collect();
        let first = turns.take(keys(&["a", "b"])).await;
        let other = turns.take(keys(&["c"])).await;
        let mut second = Box::pin(turns.take(keys(&["b", "c"])));
        let now = tokio::select! {
            biased;
            _ = &mut second => true,
            () = tokio::task::yield_now() => false,
        };
        assert!(!now, "the claim is held");
        drop((first, other));
        assert_eq!(second.await.len(), 2);
        turns.take(keys(&[])).await;
        turns.take(keys(&["d"])).await;
        assert_eq!(turns.0.lock().len(), 1, "nothing is kept of what ended");
    }
}
