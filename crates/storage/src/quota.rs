//! The limit of a store that this process alone keeps.
//!
//! The live objects count: the bytes of each, and its overhead. They stay in memory and make up a snapshot, so that the
//! files are never more than a few times as large; the history keeps few replaced or deleted objects and bounds itself.
//!
//! DIFFERENCE: etcd counts its file, with old revisions and free pages, and once that is too large it takes no write
//! but deletions until its alarm is disarmed by hand. Here writes that add nothing go on, and refused ones are taken
//! again as soon as there is room. Changes of objects have a little more room than creates, so that clients which make
//! room are not stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::NewObject;

/// The default limit of a store, in bytes; etcd's.
pub const DEFAULT_QUOTA: u64 = 2 << 30;

/// The overhead of an object, in bytes: its envelope and its places in the index.
const OBJECT: u64 = 512;

/// The part of the quota that only changes of objects may use above it.
const RESERVE: u64 = 16;

/// The part of the quota that must be free again before the log reports that there is room.
const CLEARED: u64 = 20;

/// The size of a store and its limit, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The live objects, which count against the quota.
    pub live: u64,
    /// The replaced and deleted objects, which only the history still holds.
    pub history: u64,
    /// The quota; `None` if there is none.
    pub quota: Option<u64>,
}

/// The weight of an object in the quota.
pub(crate) fn weight(object: &NewObject) -> u64 {
    OBJECT + object.body.len() as u64 + (object.namespace.len() + object.name.len()) as u64
}

/// The quota and its use, as the writer knows them.
#[derive(Debug)]
pub(crate) struct Quota {
    limit: Option<u64>,
    live: Arc<AtomicU64>,
    /// Whether a write was refused, and there was no room since.
    full: bool,
}

impl Quota {
    pub(crate) fn new(limit: Option<u64>, live: u64) -> Self {
        Self { limit, live: Arc::new(AtomicU64::new(live)), full: false }
    }

    /// The size of the live objects, for other tasks to read.
    pub(crate) fn shown(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.live)
    }

    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// The size of the live objects after `new` took the place of `old` or nothing, if there is room for it.
    pub(crate) fn with(&mut self, live: u64, new: &NewObject, old: Option<&NewObject>) -> Option<u64> {
        let (added, gone) = (weight(new), old.map_or(0, weight));
        let after = (live + added).saturating_sub(gone);
        let Some(limit) = self.limit else { return Some(after) };
        let most = match old {
            None => limit,
            // A deletion often begins with a change.
            Some(old) if added <= gone || new.deleting && !old.deleting => return Some(after),
            Some(_) => limit.saturating_add(limit / RESERVE),
        };
        if after <= most {
            return Some(after);
        }
        if !self.full {
            self.full = true;
            tracing::error!(
                live,
                quota = limit,
                "the store is full: delete objects, or raise --quota-backend-bytes; until then nothing new is stored"
            );
        }
        None
    }

    /// The size of the live objects after a deletion.
    pub(crate) fn without(live: u64, old: &NewObject) -> u64 {
        live.saturating_sub(weight(old))
    }

    /// Sets the size of the live objects.
    pub(crate) fn set(&mut self, live: u64) {
        self.live.store(live, Ordering::Relaxed);
        let limit = self.limit.unwrap_or(u64::MAX);
        if self.full && live <= limit - limit / CLEARED {
            self.full = false;
            tracing::info!(live, quota = limit, "the store has room again");
        }
    }
}
