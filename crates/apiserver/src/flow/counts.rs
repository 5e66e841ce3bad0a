//! The counts of a flow schema's requests at its level, and of all requests that read or write.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use api::Text;
use parking_lot::Mutex;

use super::demand::{Nanos, Seen, TimingRatio};
use super::queues::{Counted, Reason, Step};

/// Upstream's `requestDurationSecondsBuckets`.
const SECONDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
/// Upstream's `queueLengthBuckets`.
const LENGTHS: &[f64] = &[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
/// Upstream's buckets of `watch_count_samples`.
const WATCHERS: &[f64] = &[0.0, 1.0, 10.0, 100.0, 1000.0, 10_000.0];
/// Upstream's buckets of `work_estimated_seats`.
const SEATS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
/// Upstream's buckets of `read_vs_write_current_requests`.
const KINDS: &[f64] = &[0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

/// A histogram that takes no lock.
#[derive(Debug)]
pub(super) struct Buckets {
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>,
    /// In millionths.
    sum: AtomicU64,
}

impl Buckets {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::default()).collect(),
            sum: AtomicU64::default(),
        }
    }

    /// Counts a value.
    pub(super) fn observe(&self, value: f64) {
        let at = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }

    /// Sum, count and buckets; nothing if nothing was counted.
    pub(super) fn seen(&self) -> Option<Seen> {
        let bounds = self.bounds.iter().copied().chain([f64::MAX]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<_> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|bucket| bucket.1).sum();
        (count > 0).then(|| (self.sum.load(Ordering::Relaxed) as f64 / 1e6, count, buckets))
    }
}

/// Why requests did not run.
pub(super) const REASONS: [&str; 3] = ["concurrency-limit", "queue-full", "time-out"];

/// The requests of a flow schema at its level.
#[derive(Debug)]
pub(super) struct Counts {
    /// The level's name.
    pub(super) level: Text,
    /// The schema's name.
    pub(super) schema: Text,
    /// Requests that ran.
    pub(super) dispatched: AtomicU64,
    /// Requests that did not, by [`REASONS`].
    pub(super) rejected: [AtomicU64; 3],
    /// Requests that wait, and their seats.
    pub(super) queued: [AtomicI64; 2],
    /// Requests that run.
    pub(super) running: AtomicI64,
    /// The seats that are taken.
    pub(super) seats: AtomicI64,
    /// How often the next request needed more seats than were free.
    pub(super) too_wide: AtomicU64,
    /// Seconds in the queue: of those that did not run, and of those that did.
    pub(super) waited: [Buckets; 2],
    /// Seconds of running: of watches, until they have begun, and of all others.
    pub(super) ran: [Buckets; 2],
    /// The length of a queue after a request came.
    pub(super) lengths: Buckets,
    /// The seats of requests.
    pub(super) widths: Buckets,
    /// The watchers of writes.
    pub(super) watchers: Buckets,
}

impl Counts {
    /// Of a schema at a level, nothing yet.
    pub(super) fn new(level: &Text, schema: &Text) -> Self {
        Self {
            level: level.clone(),
            schema: schema.clone(),
            dispatched: AtomicU64::default(),
            rejected: Default::default(),
            queued: Default::default(),
            running: AtomicI64::default(),
            seats: AtomicI64::default(),
            too_wide: AtomicU64::default(),
            waited: [Buckets::new(SECONDS), Buckets::new(SECONDS)],
            ran: [Buckets::new(SECONDS), Buckets::new(SECONDS)],
            lengths: Buckets::new(LENGTHS),
            widths: Buckets::new(SEATS),
            watchers: Buckets::new(WATCHERS),
        }
    }

    /// A request came and was refused.
    pub(super) fn refused(&self, reason: Reason) {
        let at = match reason {
            Reason::ConcurrencyLimit => 0,
            Reason::QueueFull => 1,
        };
        self.rejected[at].fetch_add(1, Ordering::Relaxed);
    }

    /// A request waited in vain.
    pub(super) fn timed_out(&self) {
        self.rejected[2].fetch_add(1, Ordering::Relaxed);
    }

    /// A request waited for so long.
    pub(super) fn waited(&self, time: Duration, runs: bool) {
        self.waited[usize::from(runs)].observe(time.as_secs_f64());
    }

    /// Whether any of its requests waits, runs or has seats.
    pub(super) fn is_busy(&self) -> bool {
        [&self.queued[0], &self.running, &self.seats].iter().any(|n| n.load(Ordering::Relaxed) > 0)
    }

    /// Whether it ever had a request.
    pub(super) fn is_used(&self) -> bool {
        self.is_busy()
            || self.rejected.iter().chain([&self.dispatched]).any(|n| n.load(Ordering::Relaxed) > 0)
    }
}

impl Counted for Counts {
    fn step(&self, step: Step, seats: u32) {
        let seats = i64::from(seats);
        let add = |to: &AtomicI64, more: i64| {
            to.fetch_add(more, Ordering::Relaxed);
        };
        match step {
            Step::Queued(length) => {
                self.lengths.observe(length as f64);
                add(&self.queued[0], 1);
                add(&self.queued[1], seats);
            }
            Step::Left => {
                add(&self.queued[0], -1);
                add(&self.queued[1], -seats);
            }
            Step::Began => {
                self.dispatched.fetch_add(1, Ordering::Relaxed);
                add(&self.running, 1);
                add(&self.seats, seats);
            }
            Step::Ended => add(&self.running, -1),
            Step::Freed => add(&self.seats, -seats),
            Step::TooWide => {
                self.too_wide.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The requests that read, or that write, in one phase.
#[derive(Debug)]
pub(super) struct Phase(Mutex<(u32, TimingRatio)>);

impl Phase {
    fn new() -> Self {
        Self(Mutex::new((0, TimingRatio::new(KINDS, 0))))
    }

    fn change(&self, now: Nanos, change: impl FnOnce(u32) -> u32) {
        let (count, ratio) = &mut *self.0.lock();
        *count = change(*count);
        ratio.set(now, f64::from(*count));
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.0.lock().0
    }

    /// There may be so many of them.
    pub(super) fn of(&self, now: Nanos, most: u32) {
        self.0.lock().1.of(now, f64::from(most));
    }

    /// For how long there was which part of them.
    pub(super) fn seen(&self, now: Nanos) -> Seen {
        self.0.lock().1.seen(now)
    }
}

/// The requests that read, and those that write: those that wait, and those that run.
#[derive(Debug)]
pub(super) struct Kinds {
    /// By whether they write.
    pub(super) waiting: [Phase; 2],
    /// By whether they write.
    pub(super) running: [Phase; 2],
    start: tokio::time::Instant,
}

impl Kinds {
    /// None yet.
    pub(super) fn new(start: tokio::time::Instant) -> Self {
        let phases = || [Phase::new(), Phase::new()];
        Self { waiting: phases(), running: phases(), start }
    }

    /// The time, by these counts.
    pub(super) fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    /// A request runs, or does so no longer.
    pub(super) fn runs(&self, mutating: bool, runs: bool) {
        let change = |count: u32| if runs { count + 1 } else { count.saturating_sub(1) };
        self.running[usize::from(mutating)].change(self.now(), change);
    }

    /// A request waits, or does so no longer.
    pub(super) fn waits(&self, mutating: bool, waits: bool) {
        let change = |count: u32| if waits { count + 1 } else { count.saturating_sub(1) };
        self.waiting[usize::from(mutating)].change(self.now(), change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_into_their_buckets() {
        let buckets = Buckets::new(WATCHERS);
        assert_eq!(buckets.seen(), None);
        for value in [0.0, 1.0, 1.5, 20_000.0] {
            buckets.observe(value);
        }
        let (sum, count, all) = buckets.seen().unwrap();
        assert_eq!((sum, count), (20_002.5, 4));
        assert_eq!(all.iter().map(|bucket| bucket.1).collect::<Vec<_>>(), [1, 1, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn what_began_ends() {
        let counts = Counts::new(&"l".into(), &"s".into());
        assert!(!counts.is_used());
        for step in [Step::Queued(1), Step::Left, Step::Began, Step::Ended] {
            counts.step(step, 3);
        }
        assert!(counts.is_busy(), "its seats are taken");
        counts.step(Step::Freed, 3);
        assert!(!counts.is_busy() && counts.is_used());
    }
}
