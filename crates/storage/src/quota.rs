//! How much a store of its own may hold.
//!
//! Counted is what lives: the bytes of each object, and what it costs besides. That is what stays in memory and what a
//! snapshot has, so that the files are never more than a few times as large; of what was replaced or deleted, the
//! history keeps little and bounds itself.
//!
//! `DIFFERENCE`: etcd counts its file, with old revisions and free pages, and once that is too large it takes no write
//! but deletions until its alarm is disarmed by hand. Here writes that add nothing go on, and what was refused is taken
//! again as soon as there is room. What changes an object has a little more room than what makes one, so that those who
//! make room are not stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::NewObject;

/// How much a store may hold if nobody says, in bytes; etcd's.
pub const DEFAULT_QUOTA: u64 = 2 << 30;

/// What an object costs besides its body, in bytes: its envelope and its places in the index.
const OBJECT: u64 = 512;

/// The part of the quota that only changes of objects may use above it.
const RESERVE: u64 = 16;

/// The part of the quota that must be free again before it is said that there is room.
const CLEARED: u64 = 20;

/// What a store holds and may hold, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// What counts against the quota.
    pub live: u64,
    /// What only the history still holds.
    pub history: u64,
    /// The quota; nothing if there is none.
    pub quota: Option<u64>,
}

/// What an object counts.
pub(crate) fn weight(object: &NewObject) -> u64 {
    OBJECT + object.body.len() as u64 + (object.namespace.len() + object.name.len()) as u64
}

/// What the writer knows of the room that there is.
#[derive(Debug)]
pub(crate) struct Quota {
    limit: Option<u64>,
    live: Arc<AtomicU64>,
    /// Something was refused, and there was no room since.
    full: bool,
}

impl Quota {
    pub(crate) fn new(limit: Option<u64>, live: u64) -> Self {
        Self { limit, live: Arc::new(AtomicU64::new(live)), full: false }
    }

    /// What lives, for others to read.
    pub(crate) fn shown(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.live)
    }

    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// What lives after `new` took the place of `old` or nothing, if there is room for it.
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

    /// What lives after a deletion.
    pub(crate) fn without(live: u64, old: &NewObject) -> u64 {
        live.saturating_sub(weight(old))
    }

    /// What lives now.
    pub(crate) fn set(&mut self, live: u64) {
        self.live.store(live, Ordering::Relaxed);
        let limit = self.limit.unwrap_or(u64::MAX);
        if self.full && live <= limit - limit / CLEARED {
            self.full = false;
            tracing::info!(live, quota = limit, "the store has room again");
        }
    }
}
