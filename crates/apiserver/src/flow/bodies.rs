//! How many bytes of bodies that are still being read callers may have at once. No user has all of it, and some is kept
//! for nodes and for what keeps the cluster going, in the proportions of upstream's suggested priority levels.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A share of the bytes that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// The heartbeats of nodes.
    NodeHigh,
    /// All other requests of nodes.
    System,
    /// Locks of the control plane.
    LeaderElection,
    /// The control plane's controllers.
    WorkloadHigh,
    /// All others.
    Others,
}

impl Share {
    /// Of a priority level.
    pub(super) fn of_level(name: &str) -> Self {
        match name {
            "node-high" => Self::NodeHigh,
            "system" => Self::System,
            "leader-election" => Self::LeaderElection,
            "workload-high" => Self::WorkloadHigh,
            _ => Self::Others,
        }
    }
}

/// Of 245 parts, which upstream's levels have together, those that each level never lends.
const KEPT: [usize; 5] = [30, 20, 10, 20, 0];
const PARTS: usize = 245;

/// How many users are told apart, most of the time.
pub(super) const USERS: usize = 1024;

/// Bytes of bodies that are being read, of all callers together.
const BODIES: usize = 256 << 20;

/// The owner of some bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    /// None for those without limits.
    pub(super) share: Option<Share>,
    /// Most of the time the user's own.
    pub(super) user: usize,
}

/// All bytes.
#[derive(Debug)]
struct Pool {
    kept: [usize; KEPT.len()],
    used: [AtomicUsize; KEPT.len()],
    /// The part that anybody may take beyond its own.
    shared: usize,
    shared_used: AtomicUsize,
    /// The part that one user may have.
    share: usize,
    of_users: Box<[AtomicUsize; USERS]>,
}

impl Pool {
    fn new(limit: usize) -> Self {
        let kept = KEPT.map(|part| limit * part / PARTS);
        let shared = limit - kept.iter().sum::<usize>();
        Self {
            kept,
            used: Default::default(),
            shared,
            shared_used: AtomicUsize::default(),
            share: shared.div_ceil(2),
            of_users: Box::new([const { AtomicUsize::new(0) }; USERS]),
        }
    }

    /// Takes some of it; false if there is not as much for the reader.
    fn take(&self, reader: Reader, amount: usize) -> bool {
        let Some(share) = reader.share else { return true };
        // The part that is kept for a level is taken first, as far as it goes.
        let used = self.used[share as usize].fetch_add(amount, Ordering::AcqRel);
        let shared = beyond(self.kept[share as usize], used, amount);
        let of_user = self.of_users[reader.user].fetch_add(amount, Ordering::AcqRel);
        let all_shared = self.shared_used.fetch_add(shared, Ordering::AcqRel);
        if shared > 0 && (all_shared + shared > self.shared || of_user + amount > self.share) {
            self.give_back(reader, amount);
            return false;
        }
        true
    }

    fn give_back(&self, reader: Reader, amount: usize) {
        let Some(share) = reader.share else { return };
        let used = self.used[share as usize].fetch_sub(amount, Ordering::AcqRel);
        let shared = beyond(self.kept[share as usize], used.saturating_sub(amount), amount);
        self.of_users[reader.user].fetch_sub(amount, Ordering::AcqRel);
        self.shared_used.fetch_sub(shared, Ordering::AcqRel);
    }
}

/// How much of an amount that comes on top of what is used is beyond what is kept.
fn beyond(kept: usize, used: usize, amount: usize) -> usize {
    (used + amount).saturating_sub(kept.max(used))
}

/// The bytes of all bodies.
#[derive(Debug, Clone)]
pub(super) struct Bodies(Arc<Pool>);

impl Default for Bodies {
    fn default() -> Self {
        Self(Arc::new(Pool::new(BODIES)))
    }
}

impl Bodies {
    /// Room for a body, none of it yet.
    pub(super) fn room(&self, reader: Reader) -> Room {
        Room { pool: Arc::clone(&self.0), reader, amount: 0 }
    }
}

/// Bytes that were taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    pool: Arc<Pool>,
    reader: Reader,
    amount: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.pool.give_back(self.reader, self.amount);
    }
}

impl Room {
    /// Takes more, until it is as much as this; false if there is no more for the caller.
    pub(crate) fn at_least(&mut self, amount: usize) -> bool {
        let more = amount.saturating_sub(self.amount);
        if more > 0 && !self.pool.take(self.reader, more) {
            return false;
        }
        self.amount += more;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_all_and_some_is_kept() {
        let bodies = Bodies(Arc::new(Pool::new(245)));
        let reader = |share, user| Reader { share, user };
        let others = |user| reader(Some(Share::Others), user);
        let node = reader(Some(Share::of_level("node-high")), 4);
        let mut all = Vec::new();
        let mut take = |reader| {
            let before = all.len();
            let next = || {
                let mut room = bodies.room(reader);
                room.at_least(1).then_some(room)
            };
            all.extend(std::iter::from_fn(next).take(500));
            all.len() - before
        };
        assert_eq!(take(others(1)), 83, "half of what is shared");
        assert_eq!(take(others(2)), 82, "the other half");
        assert_eq!((take(others(1)), take(others(2)), take(others(3))), (0, 0, 0));
        assert_eq!(take(node), 30, "what is kept for it");
        assert_eq!(take(reader(None, 1)), 500);
        all.clear();
        let used = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        assert_eq!((used(&bodies.0.shared_used), bodies.0.used.iter().map(used).sum()), (0, 0_usize));
    }

    #[test]
    fn bodies_grow() {
        let bodies = Bodies::default();
        let reader = Reader { share: Some(Share::Others), user: 1 };
        let mut body = bodies.room(reader);
        assert!(body.at_least(1 << 20) && body.at_least(10) && body.at_least(2 << 20));
        let used = || bodies.0.shared_used.load(Ordering::Relaxed);
        assert_eq!(used(), 2 << 20);
        assert!(!bodies.room(reader).at_least(BODIES / 2));
        assert_eq!(used(), 2 << 20);
        drop(body);
        assert_eq!(used(), 0);
    }
}
