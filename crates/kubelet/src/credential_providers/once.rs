//! Work that several want at the same time, and that is done once.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// Results under way, by keys. Nothing is kept of one that is there.
#[derive(Debug)]
pub(super) struct Once<K, V>(Mutex<HashMap<K, Arc<OnceCell<V>>>>);

impl<K, V> Default for Once<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Somebody who waits for a result; the last one takes the key away.
struct Waiting<'a, K: Eq + Hash, V> {
    of: &'a Once<K, V>,
    key: K,
    cell: Arc<OnceCell<V>>,
}

impl<K: Eq + Hash + Clone, V: Clone> Once<K, V> {
    /// The result of the work that is under way for a key, or of this work. If the one whose work it is gives up, that of
    /// another one is begun.
    pub(super) async fn get(&self, key: K, work: impl Future<Output = V>) -> V {
        let cell = self.0.lock().entry(key.clone()).or_default().clone();
        let waiting = Waiting { of: self, key, cell };
        waiting.cell.get_or_init(|| work).await.clone()
    }
}

impl<K: Eq + Hash, V> Drop for Waiting<'_, K, V> {
    fn drop(&mut self) {
        let mut all = self.of.0.lock();
        // The map has one, and this one.
        let last = self.cell.initialized() || Arc::strong_count(&self.cell) <= 2;
        if last && all.get(&self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell)) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn work_is_done_once() {
        let (once, done) = (Once::default(), AtomicUsize::new(0));
        let work = async || {
            tokio::task::yield_now().await;
            done.fetch_add(1, Ordering::Relaxed)
        };
        let all = join_all((0..5).map(|n| once.get(n % 2, work()))).await;
        assert_eq!(done.load(Ordering::Relaxed), 2);
        assert_eq!((all[0], all[1]), (all[2], all[3]));
        assert_eq!(once.get(0, work()).await, 2, "that before is over");
        assert!(once.0.lock().is_empty());
    }

    #[tokio::test]
    async fn another_goes_on_for_one_that_gives_up() {
        let once = Once::default();
        let mut never = Box::pin(once.get("a", std::future::pending()));
        tokio::select! {
            biased;
            _ = &mut never => panic!("it never ends"),
            () = tokio::task::yield_now() => {}
        }
        let mut other = Box::pin(once.get("a", std::future::ready(7)));
        tokio::select! {
            biased;
            _ = &mut other => panic!("the first one is still under way"),
            () = tokio::task::yield_now() => {}
        }
        drop(never);
        assert_eq!(other.await, 7);
        assert!(once.0.lock().is_empty());
        let mut never = Box::pin(once.get("a", std::future::pending::<i32>()));
        tokio::select! {
            biased;
            _ = &mut never => panic!("it never ends"),
            () = tokio::task::yield_now() => {}
        }
        drop(never);
        assert!(once.0.lock().is_empty());
    }
}
