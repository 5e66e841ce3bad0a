//! The end of a server: upstream's steps from the signal to the last answer (`RunWithContext` of its generic server).
//! The server is not ready at once, goes on for a time, then takes no more requests, and waits for those under way.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use component::Shutdown;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config;

/// At least so many watches end a second, however long their grace is; upstream's number.
const WATCHES_A_SECOND: f64 = 200.0;

/// A number of things under way, and a wait until there are none.
#[derive(Debug, Default)]
struct Count {
    number: AtomicUsize,
    none: Notify,
}

impl Count {
    fn add(self: &Arc<Self>) -> Counted {
        self.number.fetch_add(1, Ordering::AcqRel);
        Counted(Arc::clone(self))
    }

    fn now(&self) -> usize {
        self.number.load(Ordering::Acquire)
    }

    async fn gone(&self) {
        loop {
            let mut none = std::pin::pin!(self.none.notified());
            none.as_mut().enable();
            if self.now() == 0 {
                return;
            }
            none.await;
        }
    }
}

/// One of the things under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Count>);

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.number.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

/// The answer to a request that comes too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    /// 429, and the connection ends: another server may have it (`--shutdown-send-retry-after`).
    Elsewhere,
    /// 503: the server waits for its last requests.
    Unavailable,
}

/// The end of a server; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Ending(Arc<Steps>);

#[derive(Debug)]
struct Steps {
    settings: config::Ending,
    /// The time of the longest request.
    request_timeout: Duration,
    /// The end has begun: the server is not ready.
    begun: Shutdown,
    /// No more requests are taken.
    refusing: Shutdown,
    /// Connections are neither accepted nor kept.
    parting: Shutdown,
    requests: Arc<Count>,
    watches: Arc<Count>,
    /// When watches begin to end, and how many do each second.
    rate: OnceLock<(Instant, f64)>,
    turns: AtomicU64,
}

impl Ending {
    /// Of a server that ends by these settings, at the latest with `shutdown`.
    pub(crate) fn new(limits: &config::Limits, shutdown: &Shutdown) -> Self {
        Self(Arc::new(Steps {
            settings: limits.ending.clone(),
            request_timeout: limits.request_timeout,
            begun: shutdown.child(),
            refusing: shutdown.child(),
            parting: shutdown.child(),
            requests: Arc::default(),
            watches: Arc::default(),
            rate: OnceLock::new(),
            turns: AtomicU64::default(),
        }))
    }

    /// The beginning of the end: the signal of all that others are told about this server.
    pub(crate) fn begun(&self) -> &Shutdown {
        &self.0.begun
    }

    /// The time from which connections are neither accepted nor kept.
    pub(crate) fn parting(&self) -> &Shutdown {
        &self.0.parting
    }

    /// A request that has come: it is counted if it must end before the server does, or it comes too late.
    ///
    /// # Errors
    /// With the answer to a request that comes too late.
    pub(crate) fn request(&self, sort: Sort, user_agent: &[u8], path: &str) -> Result<Option<Counted>, Late> {
        let steps = &self.0;
        // Counted first: whoever waits for the last one sees this one, or this one sees that somebody waits.
        let counted = match sort {
            Sort::Watch if steps.settings.watches.is_zero() => None,
            Sort::Watch => Some(steps.watches.add()),
            Sort::LongRunning => None,
            Sort::Short => Some(steps.requests.add()),
        };
        if !steps.refusing.stopped() {
            return Ok(counted);
        }
        if exempt(user_agent, path) {
            return Ok(None);
        }
        if steps.settings.retry_after {
            return Err(Late::Elsewhere);
        }
        if counted.is_some() { Err(Late::Unavailable) } else { Ok(None) }
    }

    /// Resolves when a watch is to end so that its client goes elsewhere; never if watches are not waited for.
    pub(crate) async fn watch_turn(&self) {
        let steps = &self.0;
        steps.refusing.wait().await;
        let Some((begin, rate)) = steps.rate.get() else { return std::future::pending().await };
        let turn = steps.turns.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep_until(*begin + Duration::from_secs_f64(turn as f64 / rate)).await;
    }

    /// Goes through the steps, and returns once nothing is under way that must be waited for.
    pub(crate) async fn run(&self) {
        let steps = &self.0;
        // This server's address is taken back meanwhile; a store that does not answer holds nothing up for long.
        let told = tokio::time::timeout(steps.request_timeout, steps.begun.finish());
        let _ = tokio::join!(told, tokio::time::sleep(steps.settings.delay));
        let grace = steps.settings.watches;
        if !grace.is_zero() {
            let rate = (steps.watches.now() as f64 / grace.as_secs_f64()).max(WATCHES_A_SECOND);
            let _ = steps.rate.set((Instant::now(), rate));
        }
        steps.refusing.stop();
        if !steps.settings.retry_after {
            steps.parting.stop();
        }
        // Each has its own deadline; this bounds those whose clients do not take their answers.
        let requests = tokio::time::timeout(steps.request_timeout, steps.requests.gone());
        let watches = tokio::time::timeout(grace, steps.watches.gone());
        let _ = tokio::join!(requests, async { if grace.is_zero() { Ok(()) } else { watches.await } });
        steps.parting.stop();
    }
}

/// A request, as far as the server's end is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    /// A watch.
    Watch,
    /// Another one that goes on until its client ends it.
    LongRunning,
    /// One that is answered in its time.
    Short,
}

/// Whether a request is answered to the end: health, metrics, and what a server asks itself.
fn exempt(user_agent: &[u8], path: &str) -> bool {
    user_agent.starts_with(b"kube-apiserver/")
        || ["/readyz", "/livez", "/healthz", "/metrics"].iter().any(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(delay: u64, retry_after: bool, watches: u64) -> Ending {
        let ending = config::Ending {
            delay: Duration::from_secs(delay),
            retry_after,
            watches: Duration::from_secs(watches),
        };
        let limits = config::Limits { ending, ..config::Limits::default() };
        Ending::new(&limits, &Shutdown::new())
    }

    /// The steps that were reached: begun, refusing, parting.
    fn steps(ending: &Ending) -> (bool, bool, bool) {
        let steps = &ending.0;
        (steps.begun.stopped(), steps.refusing.stopped(), steps.parting.stopped())
    }

    async fn after(seconds: u64) {
        tokio::time::sleep(Duration::from_millis(seconds * 1000 + 1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_is_not_ready_at_once_and_takes_requests_for_the_delay() {
        let ending = ending(10, false, 0);
        let slow = ending.request(Sort::Short, b"", "/api").unwrap();
        let running = tokio::spawn({
            let ending = ending.clone();
            async move { ending.run().await }
        });
        after(0).await;
        assert_eq!(steps(&ending), (true, false, false));
        assert!(ending.request(Sort::Short, b"", "/api").is_ok());
        after(10).await;
        assert_eq!(steps(&ending), (true, true, true), "it listens no more, and waits");
        let check = |sort, agent: &[u8], path, expected| {
            let answer = ending.request(sort, agent, path).err();
            assert_eq!(answer, expected, "{sort:?} {path}");
        };
        check(Sort::Short, b"kubectl/v1", "/api", Some(Late::Unavailable));
        check(Sort::Short, b"kube-apiserver/v1", "/api", None);
        check(Sort::Short, b"", "/readyz/ping", None);
        check(Sort::Watch, b"", "/api/v1/pods", None);
        check(Sort::LongRunning, b"", "/api/v1/namespaces/a/pods/b/log", None);
        assert!(!running.is_finished(), "one is under way");
        drop(slow);
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_never_ends_holds_nothing_up_for_ever() {
        let ending = ending(0, false, 0);
        let _slow = ending.request(Sort::Short, b"", "/api").unwrap();
        let begin = Instant::now();
        ending.run().await;
        assert_eq!(begin.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn others_are_told_to_come_again_while_it_still_listens() {
        let ending = ending(0, true, 0);
        let slow = ending.request(Sort::Short, b"", "/api").unwrap();
        let running = tokio::spawn({
            let ending = ending.clone();
            async move { ending.run().await }
        });
        after(1).await;
        assert_eq!(steps(&ending), (true, true, false));
        for sort in [Sort::Short, Sort::Watch, Sort::LongRunning] {
            assert_eq!(ending.request(sort, b"", "/api").err(), Some(Late::Elsewhere));
        }
        assert!(ending.request(Sort::Short, b"", "/metrics").is_ok());
        drop(slow);
        running.await.unwrap();
        assert_eq!(steps(&ending), (true, true, true));
    }

    #[tokio::test(start_paused = true)]
    async fn watches_end_one_after_the_other_within_their_grace() {
        let ending = ending(0, false, 30);
        let begin = Instant::now();
        let mut ends = Vec::new();
        for _ in 0..400 {
            let counted = ending.request(Sort::Watch, b"", "/api/v1/pods").unwrap();
            let ending = ending.clone();
            ends.push(tokio::spawn(async move {
                ending.watch_turn().await;
                drop(counted);
                begin.elapsed()
            }));
        }
        tokio::task::yield_now().await;
        ending.run().await;
        // 200 a second, since a rate of 400 in half a minute would be lower.
        assert_eq!(begin.elapsed().as_secs(), 1);
        assert_eq!(ending.request(Sort::Watch, b"", "/api").err(), Some(Late::Unavailable));
        let mut early = 0;
        for end in ends {
            early += usize::from(end.await.unwrap() < Duration::from_secs(1));
        }
        assert!((199..=201).contains(&early), "{early}");
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_stay_are_waited_for_no_longer_than_their_grace() {
        let ending = ending(0, false, 30);
        let _stays = ending.request(Sort::Watch, b"", "/api/v1/pods").unwrap();
        let begin = Instant::now();
        ending.run().await;
        assert_eq!(begin.elapsed().as_secs(), 30);
    }
}
