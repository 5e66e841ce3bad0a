//! How much of the server its callers may use at once: so many requests, and so many bytes of bodies that are still
//! being read. No user has all of it, and some is kept for nodes and for what keeps the cluster going, in the
//! proportions of upstream's suggested priority levels.
//!
//! DIFFERENCE: upstream's levels also queue what is too much for a while. Here it is refused at once, as upstream's
//! `--max-requests-inflight` did, and a client tries again.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use access::{RequestInfo, UserInfo};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::Limits;
use crate::flow_levels::{Level, level};

/// Of 245 parts, which upstream's levels have together, those that each level never lends.
const KEPT: [usize; 5] = [30, 20, 10, 20, 0];
const PARTS: usize = 245;

/// How many users are told apart, most of the time.
const USERS: usize = 1024;

/// How long a caller in this process waits for a seat: a quarter of upstream's `--request-timeout`, as upstream's queues.
const QUEUED: Duration = Duration::from_secs(15);

/// Bytes of bodies that are being read, of all callers together.
const BODIES: usize = 256 << 20;

/// The share that a caller counts to; one of the others by default.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// None for those without limits.
    level: Option<Level>,
    user: usize,
}

impl Default for Caller {
    fn default() -> Self {
        Self { level: Some(Level::Others), user: 0 }
    }
}

impl Caller {
    /// A number that is most of the time the user's own.
    pub(crate) fn user(self) -> usize {
        self.user
    }
}

/// A pool of places or bytes.
#[derive(Debug)]
struct Pool {
    kept: [usize; KEPT.len()],
    used: [AtomicUsize; KEPT.len()],
    /// The part that any level may take beyond its own.
    shared: usize,
    shared_used: AtomicUsize,
    /// The part that one user may have.
    share: usize,
    of_users: Box<[AtomicUsize; USERS]>,
    /// All that is used, also by those without limits.
    all: AtomicUsize,
    /// Something was given back.
    freed: Notify,
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
            all: AtomicUsize::default(),
            freed: Notify::new(),
        }
    }

    /// Takes some of it; false if there is not as much for the caller.
    fn take(&self, caller: Caller, amount: usize) -> bool {
        let Some(level) = caller.level else {
            self.all.fetch_add(amount, Ordering::Relaxed);
            return true;
        };
        // The part that is kept for a level is taken first, as far as it goes.
        let used = self.used[level as usize].fetch_add(amount, Ordering::AcqRel);
        let shared = beyond(self.kept[level as usize], used, amount);
        let of_user = self.of_users[caller.user].fetch_add(amount, Ordering::AcqRel);
        let all_shared = self.shared_used.fetch_add(shared, Ordering::AcqRel);
        self.all.fetch_add(amount, Ordering::Relaxed);
        if shared > 0 && (all_shared + shared > self.shared || of_user + amount > self.share) {
            self.undo(caller, amount);
            return false;
        }
        true
    }

    fn give_back(&self, caller: Caller, amount: usize) {
        self.undo(caller, amount);
        if caller.level.is_some() {
            self.freed.notify_waiters();
        }
    }

    /// Undoes `take`. A vain attempt wakes nobody.
    fn undo(&self, caller: Caller, amount: usize) {
        self.all.fetch_sub(amount, Ordering::Relaxed);
        let Some(level) = caller.level else { return };
        let used = self.used[level as usize].fetch_sub(amount, Ordering::AcqRel);
        let shared = beyond(self.kept[level as usize], used.saturating_sub(amount), amount);
        self.of_users[caller.user].fetch_sub(amount, Ordering::AcqRel);
        self.shared_used.fetch_sub(shared, Ordering::AcqRel);
    }
}

/// How much of an amount that comes on top of what is used is beyond what is kept.
fn beyond(kept: usize, used: usize, amount: usize) -> usize {
    (used + amount).saturating_sub(kept.max(used))
}

/// The pools that callers share.
pub(crate) struct Flow {
    reading: Arc<Pool>,
    writing: Arc<Pool>,
    bodies: Arc<Pool>,
    hasher: RandomState,
}

/// Something that was taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    pool: Arc<Pool>,
    caller: Caller,
    amount: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.pool.give_back(self.caller, self.amount);
    }
}

impl Taken {
    /// Takes more, until it is as much as this; false if there is no more for the caller.
    pub(crate) fn at_least(&mut self, amount: usize) -> bool {
        let more = amount.saturating_sub(self.amount);
        if more > 0 && !self.pool.take(self.caller, more) {
            return false;
        }
        self.amount += more;
        true
    }
}

impl Flow {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            reading: Arc::new(Pool::new(limits.max_in_flight)),
            writing: Arc::new(Pool::new(limits.max_mutating_in_flight)),
            bodies: Arc::new(Pool::new(BODIES)),
            hasher: RandomState::new(),
        }
    }

    /// The share that a request counts to.
    pub(crate) fn caller(&self, user: &UserInfo, info: &RequestInfo) -> Caller {
        Caller { level: level(user, info), user: self.hasher.hash_one(&user.name) as usize % USERS }
    }

    /// A seat for a request, from where it begins to be handled until it is answered; none if too many have one.
    pub(crate) fn seat(&self, caller: Caller, mutating: bool) -> Option<Taken> {
        let pool = if mutating { &self.writing } else { &self.reading };
        pool.take(caller, 1).then(|| Taken { pool: Arc::clone(pool), caller, amount: 1 })
    }

    /// A seat for a request, as soon as there is one; none if there is none for too long. For callers in this process,
    /// whose number is bounded: upstream lets all callers wait as long.
    pub(crate) async fn wait_for_seat(&self, caller: Caller, mutating: bool) -> Option<Taken> {
        let pool = if mutating { &self.writing } else { &self.reading };
        let until = Instant::now() + QUEUED;
        loop {
            let mut freed = std::pin::pin!(pool.freed.notified());
            // A seat that is given back from here on is seen.
            freed.as_mut().enable();
            if let Some(seat) = self.seat(caller, mutating) {
                return Some(seat);
            }
            tokio::time::timeout_at(until, freed).await.ok()?;
        }
    }

    /// Room for a body, none of it yet.
    pub(crate) fn body(&self, caller: Caller) -> Taken {
        Taken { pool: Arc::clone(&self.bodies), caller, amount: 0 }
    }

    /// Registers the metrics of seats.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let (reading, writing) = (Arc::clone(&self.reading), Arc::clone(&self.writing));
        registry.register_collector(Box::new(Seats { reading, writing }));
    }
}

/// Tells how many requests have a seat when somebody asks.
#[derive(Debug)]
struct Seats {
    reading: Arc<Pool>,
    writing: Arc<Pool>,
}

impl Collector for Seats {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last second";
        let name = "apiserver_current_inflight_requests";
        let mut family = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (kind, pool) in [("readOnly", &self.reading), ("mutating", &self.writing)] {
            let seated = ConstGauge::new(pool.all.load(Ordering::Relaxed) as i64);
            seated.encode(family.encode_family(&[("request_kind", kind)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many requests have a seat: reading and writing ones.
    fn seated(flow: &Flow) -> (usize, usize) {
        (flow.reading.all.load(Ordering::Relaxed), flow.writing.all.load(Ordering::Relaxed))
    }

    #[test]
    fn nobody_has_all_and_some_is_kept() {
        let flow = Flow::new(&Limits { max_mutating_in_flight: 245, ..Limits::default() });
        let (mine, other) =
            (Caller { level: Some(Level::Others), user: 1 }, Caller { level: Some(Level::Others), user: 2 });
        let third = Caller { user: 3, ..mine };
        let node = Caller { level: Some(Level::NodeHigh), user: 4 };
        let master = Caller { level: None, user: 1 };
        let mut all = Vec::new();
        let mut take = |caller| {
            let before = all.len();
            all.extend(std::iter::from_fn(|| flow.seat(caller, true)).take(500));
            all.len() - before
        };
        assert_eq!(take(mine), 83, "half of what is shared");
        assert_eq!(take(other), 82, "the other half");
        assert_eq!((take(mine), take(other), take(third)), (0, 0, 0));
        assert_eq!(take(node), 30, "what is kept for it");
        assert_eq!(take(master), 500);
        assert_eq!(seated(&flow), (0, 695));
        assert!(flow.seat(mine, false).is_some(), "reading is apart");
        all.clear();
        assert_eq!(seated(&flow), (0, 0));
        let mut again: Vec<_> = std::iter::from_fn(|| flow.seat(node, true)).collect();
        assert_eq!(again.len(), 83, "its own, and of what is shared as much as any other");
        again.truncate(10);
        let mine: Vec<_> = std::iter::from_fn(|| flow.seat(mine, true)).collect();
        assert_eq!(mine.len(), 83, "what is given back is there for others");
    }

    #[tokio::test(start_paused = true)]
    async fn callers_in_this_process_wait_for_a_seat() {
        let flow = Flow::new(&Limits { max_mutating_in_flight: 245, ..Limits::default() });
        let caller = Caller { level: Some(Level::WorkloadHigh), user: 1 };
        let mut all: Vec<_> = std::iter::from_fn(|| flow.seat(caller, true)).collect();
        let start = Instant::now();
        assert!(flow.wait_for_seat(caller, true).await.is_none(), "not for ever");
        assert_eq!(start.elapsed(), QUEUED);
        let (got, ()) = tokio::join!(flow.wait_for_seat(caller, true), async {
            tokio::task::yield_now().await;
            all.pop();
        });
        assert!(got.is_some());
        assert_eq!(start.elapsed(), QUEUED, "as soon as there is one");
    }

    #[test]
    fn bodies_grow() {
        let flow = Flow::new(&Limits::default());
        let caller = Caller { level: Some(Level::Others), user: 1 };
        let mut body = flow.body(caller);
        assert!(body.at_least(1 << 20) && body.at_least(10) && body.at_least(2 << 20));
        assert_eq!(flow.bodies.all.load(Ordering::Relaxed), 2 << 20);
        let mut next = flow.body(caller);
        assert!(!next.at_least(BODIES / 2));
        assert_eq!(flow.bodies.all.load(Ordering::Relaxed), 2 << 20);
        drop(body);
        assert_eq!(flow.bodies.shared_used.load(Ordering::Relaxed), 0);
    }
}
