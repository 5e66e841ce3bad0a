//! Answers of other servers, kept for a while: within a number of entries and of bytes, and one request for each
//! question at a time.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::Shared;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The number of answers; CoreDNS' two parts together.
    pub entries: usize,
    /// The bytes of answers and questions.
    pub bytes: usize,
    /// The longest time; that of CoreDNS' usual configuration.
    pub longest: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 2 * 9984, bytes: 8 << 20, longest: Duration::from_secs(30) }
    }
}

/// A question as another server is asked: its name in lower case, its type, and whether DNSSEC's records are wanted and
/// its checks left to the client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// The name on the wire, in lower case.
    pub name: Box<[u8]>,
    /// The type.
    pub kind: u16,
    /// Whether DNSSEC's records are wanted.
    pub dnssec: bool,
    /// Whether the server shall leave checks to the client.
    pub unchecked: bool,
}

/// Another server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The message, without an OPT record.
    pub message: Box<[u8]>,
    /// How long it holds, in seconds; 0 for one that is not kept.
    pub ttl: u32,
    /// Whether it says that there is nothing.
    pub denial: bool,
}

/// An answer, and how long it holds from now, in seconds.
pub type Held = (Arc<Answer>, u32);

/// The bytes that an entry takes beside its answer and its question's name, about.
const ENTRY: usize = 200;

struct Entry {
    answer: Arc<Answer>,
    until: Instant,
    /// Tells entries of one question apart.
    number: u64,
}

#[derive(Default)]
struct Kept {
    entries: HashMap<Question, Entry>,
    /// The questions in the order in which their answers came.
    order: VecDeque<(Question, u64)>,
    bytes: usize,
    denials: usize,
    number: u64,
}

/// The counts of a cache.
#[derive(Debug, Default)]
pub struct Counts {
    /// Questions.
    pub requests: AtomicU64,
    /// Answers that held still.
    pub hits: AtomicU64,
    /// Denials that held still.
    pub denial_hits: AtomicU64,
    /// Answers that went before their time.
    pub evictions: AtomicU64,
}

type Flight = Shared<oneshot::Receiver<Arc<Answer>>>;

/// The cache.
pub struct Cache {
    limits: Limits,
    kept: Mutex<Kept>,
    flights: Mutex<HashMap<Question, Flight>>,
    counts: Counts,
}

fn size(question: &Question, answer: &Answer) -> usize {
    // The name is in the entry, in the order, and in the answer.
    2 * question.name.len() + answer.message.len() + ENTRY
}

impl Kept {
    fn remove(&mut self, question: &Question) {
        if let Some(entry) = self.entries.remove(question) {
            self.bytes -= size(question, &entry.answer);
            self.denials -= usize::from(entry.answer.denial);
        }
    }

    /// Removes the oldest entry; whether it was of use still.
    fn remove_oldest(&mut self, now: Instant) -> Option<bool> {
        let (question, number) = self.order.pop_front()?;
        let entry = self.entries.get(&question).filter(|e| e.number == number);
        let useful = entry.map(|e| e.until > now);
        if useful.is_some() {
            self.remove(&question);
        }
        Some(useful.unwrap_or(false))
    }
}

impl Cache {
    /// An empty cache.
    pub fn new(limits: Limits) -> Self {
        Self { limits, kept: Mutex::default(), flights: Mutex::default(), counts: Counts::default() }
    }

    /// The counts of its use.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How many answers it has, and how many denials.
    pub fn len(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        (kept.entries.len() - kept.denials, kept.denials)
    }

    /// How many bytes it takes, about.
    pub fn bytes(&self) -> usize {
        self.kept.lock().bytes
    }

    /// The answer, if there is one that holds still.
    pub fn get(&self, question: &Question) -> Option<Held> {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let held = self.peek(question)?;
        let hits = if held.0.denial { &self.counts.denial_hits } else { &self.counts.hits };
        hits.fetch_add(1, Ordering::Relaxed);
        Some(held)
    }

    fn peek(&self, question: &Question) -> Option<Held> {
        let kept = self.kept.lock();
        let entry = kept.entries.get(question)?;
        let left = entry.until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero())?;
        // Begun seconds count, so that an answer that has just come holds as long as it says.
        Some((entry.answer.clone(), u32::try_from(left.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)))
    }

    /// The answer that `ask` brings, or that another one who asks the same gets at this time. The answer is kept as
    /// long as it holds; `spawn` runs the request, which goes on when those who wait for it are gone.
    pub async fn ask<F>(
        self: &Arc<Self>,
        question: &Question,
        spawn: impl FnOnce(BoxedTask),
        ask: F,
    ) -> Option<Held>
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let (flight, start) = {
            let mut flights = self.flights.lock();
            if let Some(flight) = flights.get(question) {
                (flight.clone(), None)
            } else if let Some(held) = self.peek(question) {
                return Some(held);
            } else {
                let (done, waiting) = oneshot::channel();
                let flight = waiting.shared();
                flights.insert(question.clone(), flight.clone());
                (flight, Some(done))
            }
        };
        if let Some(done) = start {
            // Without the lock: a task that is never run takes itself off the list at once.
            let landing = Landing { cache: self.clone(), question: question.clone() };
            spawn(Box::pin(async move {
                let answer = Arc::new(ask.await);
                landing.cache.keep(&landing.question, &answer);
                drop(landing);
                // Nobody may wait any more.
                let _ = done.send(answer);
            }));
        }
        let answer = flight.await.ok()?;
        let ttl = self.held_for(&answer);
        Some((answer, ttl))
    }

    /// How long an answer is kept, in seconds.
    fn held_for(&self, answer: &Answer) -> u32 {
        // DIFFERENCE: upstream keeps everything for 5 s at least, also what says that it is not to be kept.
        answer.ttl.min(self.limits.longest.as_secs() as u32)
    }

    fn keep(&self, question: &Question, answer: &Arc<Answer>) {
        let ttl = self.held_for(answer);
        let bytes = size(question, answer);
        if ttl == 0 || bytes > self.limits.bytes || self.limits.entries == 0 {
            return;
        }
        let now = Instant::now();
        let mut kept = self.kept.lock();
        kept.remove(question);
        // Entries whose time is over go first, then the oldest.
        while kept
            .order
            .front()
            .is_some_and(|(q, n)| kept.entries.get(q).is_none_or(|e| e.number != *n || e.until <= now))
            || kept.order.len() >= self.limits.entries
            || kept.bytes + bytes > self.limits.bytes
        {
            match kept.remove_oldest(now) {
                Some(useful) => self.counts.evictions.fetch_add(u64::from(useful), Ordering::Relaxed),
                None => break,
            };
        }
        kept.number += 1;
        let number = kept.number;
        let until = now + Duration::from_secs(u64::from(ttl));
        kept.bytes += bytes;
        kept.denials += usize::from(answer.denial);
        kept.order.push_back((question.clone(), number));
        kept.entries.insert(question.clone(), Entry { answer: answer.clone(), until, number });
    }
}

/// A task that a cache starts.
pub type BoxedTask = futures::future::BoxFuture<'static, ()>;

/// Takes a flight off the list, also when its task panics or is never run.
struct Landing {
    cache: Arc<Cache>,
    question: Question,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.cache.flights.lock().remove(&self.question);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn question(name: &str) -> Question {
        Question { name: name.as_bytes().into(), kind: 1, dnssec: false, unchecked: false }
    }

    fn answer(ttl: u32, bytes: usize) -> Answer {
        Answer { message: vec![0; bytes].into(), ttl, denial: false }
    }

    fn spawn(task: BoxedTask) {
        tokio::spawn(task);
    }

    async fn put(cache: &Arc<Cache>, name: &str, answer: Answer) -> Option<u32> {
        cache.ask(&question(name), spawn, async move { answer }).await.map(|(_, ttl)| ttl)
    }

    #[tokio::test(start_paused = true)]
    async fn answers_hold_as_long_as_they_say() {
        let cache = Arc::new(Cache::new(Limits::default()));
        assert_eq!(put(&cache, "a", answer(10, 50)).await, Some(10));
        assert_eq!(put(&cache, "long", answer(3600, 50)).await, Some(30));
        assert_eq!(put(&cache, "never", answer(0, 50)).await, Some(0));
        let left = |name: &str| cache.get(&question(name)).map(|(_, ttl)| ttl);
        for (after, a, long) in [
            (0, Some(10), Some(30)),
            (4, Some(6), Some(26)),
            (5, Some(1), Some(21)),
            (1, None, Some(20)),
            (20, None, None),
        ] {
            tokio::time::advance(Duration::from_secs(after)).await;
            assert_eq!((left("a"), left("long"), left("never")), (a, long, None), "{after}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn entries_and_bytes_are_bounded() {
        let limits = Limits { entries: 10, bytes: 5000, ..Limits::default() };
        let cache = Arc::new(Cache::new(limits));
        for n in 0..100 {
            put(&cache, &format!("name-{n}"), answer(30, 100)).await;
            assert!(cache.len().0 <= 10 && cache.bytes() <= 5000, "{:?} {}", cache.len(), cache.bytes());
        }
        assert!(cache.get(&question("name-99")).is_some());
        assert!(cache.get(&question("name-0")).is_none());
        put(&cache, "large", answer(30, 4000)).await;
        assert!(cache.bytes() <= 5000);
        put(&cache, "too-large", answer(30, 6000)).await;
        assert!(cache.get(&question("too-large")).is_none() && cache.get(&question("large")).is_some());
        // The same question again and again leaves nothing behind.
        for _ in 0..100 {
            tokio::time::advance(Duration::from_secs(31)).await;
            put(&cache, "name", answer(30, 100)).await;
        }
        assert_eq!(cache.len(), (1, 0));
        assert_eq!(cache.kept.lock().order.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_asked_once_at_a_time() {
        let cache = Arc::new(Cache::new(Limits::default()));
        let asked = Arc::new(AtomicUsize::new(0));
        let one = || {
            let (cache, asked) = (cache.clone(), asked.clone());
            async move {
                let ask = async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    answer(10, 50)
                };
                cache.ask(&question("a"), spawn, ask).await.map(|(_, ttl)| ttl)
            }
        };
        let all = futures::future::join_all((0..50).map(|_| one())).await;
        assert!(all.iter().all(|ttl| *ttl == Some(10)), "{all:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(one().await, Some(10), "it is kept");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        // Those who wait learn of a request that broke, and the next one asks again.
        let broken = cache.ask(&question("b"), drop, async { answer(10, 50) }).await;
        assert!(broken.is_none());
        assert_eq!(put(&cache, "b", answer(10, 50)).await, Some(10));
    }
}
