//! The content and layers of a pull under way: nobody collects them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::Store;
use crate::store::collect::Item;

/// Content and layers that must not be collected. Those that no image has when it is dropped are kept for a while, for the
/// next try.
#[derive(Debug)]
pub(crate) struct Lease {
    store: Arc<Store>,
    items: Mutex<Vec<Item>>,
    /// Whether the pull has succeeded: what no image has then is garbage at once.
    done: AtomicBool,
}

impl Lease {
    /// A lease of nothing.
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store), items: Mutex::default(), done: AtomicBool::new(false) }
    }

    /// The pull has succeeded.
    pub(crate) fn done(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    /// Holds something, which may not be there yet.
    pub(crate) fn hold(&self, item: Item) {
        *self.store.state.lock().leases.entry(item.clone()).or_default() += 1;
        self.items.lock().push(item);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        for item in self.items.lock().drain(..) {
            if let Some(count) = state.leases.get_mut(&item) {
                *count -= 1;
                if *count == 0 {
                    state.leases.remove(&item);
                }
            }
            if !self.done.load(Ordering::Relaxed) {
                state.leftovers.insert(item, Instant::now());
            }
        }
        drop(state);
        self.store.wake.notify_one();
    }
}
