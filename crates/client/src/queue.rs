//! The work queue: keys to look at, each at most once at a time, failures later and later.
//!
//! The semantics are client-go's: a key that is added while it waits is there once; one that is
//! added while it is worked on comes again after [`Queue::done`]. Delays need no task of their own:
//! a waiting worker sleeps until the first delayed key is due.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use component::Shutdown;
use component::metrics::{Histogram, Page};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::rate::{Bucket, Rate};

/// The delay of what is due after the end of time.
const FAR: Duration = Duration::from_hours(24 * 365 * 30);

/// Upstream's buckets of seconds.
const SECONDS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 1.0, 10.0];

/// The counts of a queue, for metrics.
struct Counts {
    adds: u64,
    retries: u64,
    /// How long keys waited.
    waited: Histogram,
    /// How long they were worked on.
    worked: Histogram,
}

impl Default for Counts {
    fn default() -> Self {
        Self { adds: 0, retries: 0, waited: Histogram::new(SECONDS), worked: Histogram::new(SECONDS) }
    }
}

/// How failures are spread over time: per key exponential, and a token bucket over all keys.
#[derive(Debug, Clone, Copy)]
pub struct RateLimit {
    /// The first delay of a key.
    pub base: Duration,
    /// The longest delay of a key.
    pub limit: Duration,
    /// Retries over all keys.
    pub all: Rate,
}

impl RateLimit {
    /// client-go's: 5 ms to 1000 s a key; 10 a second, 100 at once.
    pub const UPSTREAM: Self = Self {
        base: Duration::from_millis(5),
        limit: Duration::from_secs(1000),
        all: Rate { per_second: 10.0, burst: 100 },
    };
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::UPSTREAM
    }
}

struct State<K> {
    ready: VecDeque<K>,
    /// Wants work, waiting or worked on; with the time since when.
    dirty: HashMap<K, Instant>,
    processing: HashMap<K, Instant>,
    delayed: BTreeMap<(Instant, u64), K>,
    delayed_at: HashMap<K, (Instant, u64)>,
    sequence: u64,
    failures: HashMap<K, u32>,
    retries: Bucket,
    shut: bool,
    counts: Counts,
}

struct Inner<K> {
    state: Mutex<State<K>>,
    wake: Notify,
    rate: RateLimit,
}

/// A rate-limited work queue. Clones are the same queue.
pub struct Queue<K>(Arc<Inner<K>>);

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Default for Queue<K> {
    fn default() -> Self {
        Self::new(RateLimit::default())
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Queue<K> {
    /// An empty queue.
    pub fn new(rate: RateLimit) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                dirty: HashMap::new(),
                processing: HashMap::new(),
                delayed: BTreeMap::new(),
                delayed_at: HashMap::new(),
                sequence: 0,
                failures: HashMap::new(),
                retries: Bucket::new(rate.all),
                shut: false,
                counts: Counts::default(),
            }),
            wake: Notify::new(),
            rate,
        }))
    }

    /// Adds a key, unless it waits already.
    pub fn add(&self, key: K) {
        let mut s = self.0.state.lock();
        if Self::add_locked(&mut s, key) {
            drop(s);
            self.0.wake.notify_one();
        }
    }

    /// Adds a key; whether a worker is to be woken.
    fn add_locked(s: &mut State<K>, key: K) -> bool {
        if s.shut || s.dirty.contains_key(&key) {
            return false;
        }
        s.dirty.insert(key.clone(), Instant::now());
        let waits = !s.processing.contains_key(&key);
        if waits {
            s.ready.push_back(key);
        }
        s.counts.adds += 1;
        waits
    }

    /// Adds a key after a delay. Of several delays of one key the shortest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut s = self.0.state.lock();
        if s.shut {
            return;
        }
        // Some delays are what users wrote, and these may be any.
        let now = Instant::now();
        let at = now.checked_add(delay).unwrap_or_else(|| now + FAR);
        if let Some(&old) = s.delayed_at.get(&key) {
            if old.0 <= at {
                return;
            }
            s.delayed.remove(&old);
        }
        s.sequence += 1;
        let slot = (at, s.sequence);
        let first = s.delayed.first_key_value().is_none_or(|(f, _)| slot < *f);
        s.delayed.insert(slot, key.clone());
        s.delayed_at.insert(key, slot);
        drop(s);
        if first {
            self.0.wake.notify_one();
        }
    }

    /// Adds a key once the rate limit allows, later with each failure.
    pub fn add_rate_limited(&self, key: K) {
        let delay = {
            let mut s = self.0.state.lock();
            let rate = &self.0.rate;
            let failures = s.failures.entry(key.clone()).or_insert(0);
            let own = rate.base.mul_f64(2f64.powi((*failures).min(60) as i32).min(1e12)).min(rate.limit);
            *failures = failures.saturating_add(1);
            s.counts.retries += 1;
            own.max(s.retries.reserve())
        };
        self.add_after(key, delay);
    }

    /// Forgets a key's failures.
    pub fn forget(&self, key: &K) {
        self.0.state.lock().failures.remove(key);
    }

    /// How often a key failed since it was forgotten.
    pub fn retries(&self, key: &K) -> u32 {
        self.0.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// How many keys are ready.
    pub fn len(&self) -> usize {
        self.0.state.lock().ready.len()
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For how long the key that is worked on longest has been; zero where none is.
    pub fn longest_work(&self) -> Duration {
        let s = self.0.state.lock();
        s.processing.values().map(Instant::elapsed).max().unwrap_or_default()
    }

    /// Tells upstream's metrics of work queues for this one, under a name.
    pub fn report(&self, name: &str, page: &mut Page) {
        let s = self.0.state.lock();
        let labels = [("name", name)];
        let running: Vec<f64> = s.processing.values().map(|since| since.elapsed().as_secs_f64()).collect();
        let longest = running.iter().copied().fold(0.0, f64::max);
        let mut one = |metric: &str, kind: &str, help: &str, value: f64| {
            page.metric(metric, kind, help).value(metric, &labels, value);
        };
        one("workqueue_depth", "gauge", "[BETA] Current depth of workqueue", s.ready.len() as f64);
        let help = "[BETA] Total number of adds handled by workqueue";
        one("workqueue_adds_total", "counter", help, s.counts.adds as f64);
        let help = "[BETA] Total number of retries handled by workqueue";
        one("workqueue_retries_total", "counter", help, s.counts.retries as f64);
        let help = "[BETA] How many seconds of work is in progress and not yet part of work_duration. Large values point to stuck workers.";
        one("workqueue_unfinished_work_seconds", "gauge", help, running.iter().sum());
        let help = "[BETA] How many seconds the longest running worker of workqueue has been running.";
        one("workqueue_longest_running_processor_seconds", "gauge", help, longest);
        let mut spread = |metric: &str, help: &str, histogram: &Histogram| {
            page.metric(metric, "histogram", help).histogram(metric, &labels, histogram);
        };
        let help = "[BETA] How long in seconds an item stays in workqueue before being requested.";
        spread("workqueue_queue_duration_seconds", help, &s.counts.waited);
        let help = "[BETA] How long in seconds processing an item from workqueue takes.";
        spread("workqueue_work_duration_seconds", help, &s.counts.worked);
    }

    /// Waits for a key. The caller owns it until [`Queue::done`]. `None` once the queue was shut
    /// and what was ready is taken.
    pub async fn get(&self) -> Option<K> {
        loop {
            let wake = self.0.wake.notified();
            let due = {
                let mut s = self.0.state.lock();
                let now = Instant::now();
                while let Some(first) = s.delayed.first_entry() {
                    if first.key().0 > now {
                        break;
                    }
                    let key = first.remove();
                    s.delayed_at.remove(&key);
                    Self::add_locked(&mut s, key);
                }
                if let Some(key) = s.ready.pop_front() {
                    let since = s.dirty.remove(&key).unwrap_or(now);
                    s.processing.insert(key.clone(), now);
                    s.counts.waited.observe((now - since).as_secs_f64());
                    let more = !s.ready.is_empty() || !s.delayed.is_empty();
                    drop(s);
                    if more {
                        self.0.wake.notify_one();
                    }
                    return Some(key);
                }
                if s.shut {
                    drop(s);
                    self.0.wake.notify_one();
                    return None;
                }
                s.delayed.first_key_value().map(|(slot, _)| slot.0)
            };
            match due {
                None => wake.await,
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, wake).await;
                }
            }
        }
    }

    /// Gives a key back. If it was added meanwhile, it is ready again.
    pub fn done(&self, key: &K) {
        let mut s = self.0.state.lock();
        if let Some(since) = s.processing.remove(key) {
            s.counts.worked.observe(since.elapsed().as_secs_f64());
        }
        if s.dirty.contains_key(key) {
            s.ready.push_back(key.clone());
            drop(s);
            self.0.wake.notify_one();
        }
    }

    /// Takes no more keys and drops the delayed ones; what is ready is still given out.
    pub fn shut(&self) {
        let mut s = self.0.state.lock();
        s.shut = true;
        s.delayed.clear();
        s.delayed_at.clear();
        drop(s);
        self.0.wake.notify_waiters();
        self.0.wake.notify_one();
    }

    /// Starts `workers` tasks that hand each key to `work` until `shutdown`. A failure is logged and
    /// tried again by the rate limit; a success forgets past failures.
    pub fn work<F, R, E>(&self, name: &'static str, workers: usize, shutdown: &Shutdown, work: F)
    where
        K: std::fmt::Display,
        F: Fn(K) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send,
        E: std::fmt::Display + Send,
    {
        // The rest is compiled once for each type of key, not for each controller.
        let work: Work<K> = Arc::new(move |key| {
            let work = work.clone();
            Box::pin(async move { work(key).await.map_err(|e| e.to_string()) })
        });
        for _ in 0..workers {
            shutdown.spawn(self.clone().worker(name, work.clone(), shutdown.clone()));
        }
    }

    async fn worker(self, name: &'static str, work: Work<K>, stop: Shutdown)
    where
        K: std::fmt::Display,
    {
        while let Some(Some(key)) = stop.run(self.get()).await {
            // A defect that shows at one key must not end the work on all others.
            let (run, again) = (&work, key.clone());
            let attempt = AssertUnwindSafe(async move { run(again).await }).catch_unwind();
            let Some(result) = stop.run(attempt).await else { break };
            match result {
                Ok(Ok(())) => self.forget(&key),
                Err(_) => {
                    tracing::error!(controller = name, %key, "sync panicked, will retry");
                    self.add_rate_limited(key.clone());
                }
                Ok(Err(error)) => {
                    tracing::debug!(controller = name, %key, error, "sync failed, will retry");
                    self.add_rate_limited(key.clone());
                }
            }
            self.done(&key);
        }
    }
}

/// The work on a key, and why it failed.
type Work<K> = Arc<dyn Fn(K) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Removes duplicates while it keeps the order; for handlers that collect keys from several owners.
pub fn unique<K: Clone + Eq + Hash>(keys: impl IntoIterator<Item = K>) -> Vec<K> {
    let mut seen = HashSet::new();
    keys.into_iter().filter(|k| seen.insert(k.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn take(q: &Queue<&'static str>) -> Option<&'static str> {
        tokio::time::timeout(Duration::from_hours(1), q.get()).await.ok().flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once_and_comes_again_if_added_while_worked_on() {
        let q: Queue<&str> = Queue::default();
        q.add("a");
        q.add("a");
        q.add("b");
        assert_eq!(q.len(), 2);
        assert_eq!(take(&q).await, Some("a"));
        q.add("a");
        assert_eq!(take(&q).await, Some("b"));
        assert!(q.is_empty(), "a is worked on and must not be given to another worker");
        q.done(&"a");
        assert_eq!(take(&q).await, Some("a"));
        q.done(&"a");
        q.done(&"b");
        assert!(q.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_delays_the_shorter_counts() {
        let q: Queue<&str> = Queue::default();
        q.add_after("never", Duration::MAX);
        let start = Instant::now();
        q.add_after("a", Duration::from_mins(1));
        q.add_after("a", Duration::from_secs(5));
        q.add_after("b", Duration::from_secs(9));
        assert_eq!(take(&q).await, Some("a"));
        assert_eq!(start.elapsed().as_secs(), 5);
        q.done(&"a");
        assert_eq!(take(&q).await, Some("b"));
        assert_eq!(start.elapsed().as_secs(), 9);
        assert_eq!(take(&q).await, None, "the longer delay is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_worker_sees_an_earlier_delay() {
        let q: Queue<&str> = Queue::default();
        q.add_after("late", Duration::from_secs(100));
        let worker = tokio::spawn({
            let q = q.clone();
            async move { q.get().await }
        });
        tokio::task::yield_now().await;
        q.add_after("soon", Duration::from_secs(1));
        assert_eq!(worker.await.unwrap(), Some("soon"));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_double_the_delay_until_forgotten() {
        let q: Queue<&str> = Queue::default();
        let mut delays = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            q.add_rate_limited("a");
            assert_eq!(take(&q).await, Some("a"));
            q.done(&"a");
            delays.push(start.elapsed().as_millis());
        }
        assert_eq!(delays, [5, 10, 20, 40, 80]);
        assert_eq!(q.retries(&"a"), 5);
        for _ in 0..40 {
            q.add_rate_limited("a");
        }
        q.forget(&"a");
        assert_eq!(q.retries(&"a"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_bucket_spreads_many_failures() {
        let q: Queue<u32> = Queue::default();
        let start = Instant::now();
        for i in 0..200 {
            q.add_rate_limited(i);
        }
        for _ in 0..200 {
            q.get().await.unwrap();
        }
        let took = start.elapsed().as_secs_f64();
        assert!((9.9..10.2).contains(&took), "100 at once, then 10 a second: {took}");
    }

    #[tokio::test(start_paused = true)]
    async fn every_worker_leaves_when_it_is_shut() {
        let q: Queue<&str> = Queue::default();
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let q = q.clone();
                tokio::spawn(async move { q.get().await })
            })
            .collect();
        tokio::task::yield_now().await;
        q.add_after("never", Duration::from_secs(1));
        q.shut();
        q.add("refused");
        for w in workers {
            assert_eq!(w.await.unwrap(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_at_one_key_is_a_failure_of_that_key() {
        let (queue, shutdown) = (Queue::<&'static str>::default(), Shutdown::new());
        let (tell, mut done) = tokio::sync::mpsc::channel(8);
        let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        queue.work("test", 1, &shutdown, move |key| {
            let first = key == "bad" && tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
            assert!(!first, "the first try of this key");
            let tell = tell.clone();
            async move {
                let _ = tell.send(key).await;
                Ok::<(), String>(())
            }
        });
        queue.add("bad");
        queue.add("good");
        assert_eq!(done.recv().await, Some("good"));
        assert_eq!(done.recv().await, Some("bad"));
        shutdown.finish().await;
    }
}
