//! When a connection ends that its client does not end: after a time without requests, and when what it is
//! sent is not taken. A body is not polled while its client takes nothing, so that only the connection can
//! see to it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::body::{Body, BodyError};

/// How long a connection may be idle; upstream's `IdleTimeout`.
const IDLE: Duration = Duration::from_secs(90);

/// How long what must end is waited for: a client that reads takes what is left of it meanwhile.
const GRACE: Duration = Duration::from_secs(10);

/// How often it is looked whether a connection is done that is to end.
const SOON: Duration = Duration::from_secs(1);

/// How many requests may come after the farewell: those that were on their way.
const LATE: u64 = 100;

/// Bodies up to this leave the server's hands at once.
const SMALL: u64 = 64 << 10;

/// Why a connection is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing was asked for a time; nobody loses anything.
    Idle,
    /// An answer was not taken in time.
    Stalled,
    /// Another takes its place.
    Unwanted,
    /// Requests that have come are still answered.
    Farewell,
}

/// The lifetime of a connection, by what its requests tell.
#[derive(Debug)]
pub(crate) struct Lifetime {
    begun: Instant,
    requests: AtomicU64,
    /// Requests that are handled and answers that are sent.
    busy: AtomicUsize,
    due: Mutex<HashMap<u64, Instant>>,
    ids: AtomicU64,
    /// How often it was to end once what is asked for is answered.
    farewells: AtomicU64,
    /// The farewell was said.
    parting: AtomicBool,
    cut: AtomicBool,
    changed: Notify,
}

impl Default for Lifetime {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            requests: AtomicU64::default(),
            busy: AtomicUsize::default(),
            due: Mutex::default(),
            ids: AtomicU64::default(),
            farewells: AtomicU64::default(),
            parting: AtomicBool::default(),
            cut: AtomicBool::default(),
            changed: Notify::new(),
        }
    }
}

/// Something keeps the connection busy.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Lifetime>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connection ends unless this is dropped in time.
#[derive(Debug)]
pub(crate) struct Due {
    lifetime: Arc<Lifetime>,
    id: u64,
}

impl Drop for Due {
    fn drop(&mut self) {
        self.lifetime.due.lock().remove(&self.id);
    }
}

impl Lifetime {
    /// A request has come.
    pub(crate) fn request(self: &Arc<Self>) -> Busy {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.busy()
    }

    fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Something that must have ended some time after `at`.
    pub(crate) fn due(self: &Arc<Self>, at: Instant) -> Due {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        self.due.lock().insert(id, at + GRACE);
        self.changed.notify_one();
        Due { lifetime: Arc::clone(self), id }
    }

    /// Since when the connection is there, if nobody waits for an answer on it.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        (self.busy.load(Ordering::Relaxed) == 0).then_some(self.begun)
    }

    /// The connection is to end at once.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// The connection is to end once what was asked for is answered.
    pub(crate) fn farewell(&self) {
        match self.farewells.fetch_add(1, Ordering::Relaxed) {
            0 => self.changed.notify_one(),
            // It does not want to hear it.
            LATE.. => self.cut(),
            _ => {}
        }
    }

    /// Returns when the connection is to end, after a farewell once more when it is done.
    pub(crate) async fn end(&self) -> End {
        let mut seen = 0;
        let parting = self.parting.load(Ordering::Relaxed);
        let pause = if parting { SOON } else { IDLE };
        let mut idle = Instant::now() + pause;
        loop {
            if self.cut.load(Ordering::Relaxed) {
                return End::Unwanted;
            }
            if !parting && self.farewells.load(Ordering::Relaxed) > 0 {
                self.parting.store(true, Ordering::Relaxed);
                return End::Farewell;
            }
            let stalled = self.due.lock().values().min().copied();
            let next = stalled.map_or(idle, |at| at.min(idle));
            tokio::select! {
                () = self.changed.notified() => continue,
                () = sleep_until(next) => {}
            }
            let now = Instant::now();
            // An entry that was dropped meanwhile is no longer due.
            if self.due.lock().values().any(|at| *at <= now) {
                return End::Stalled;
            }
            if now >= idle {
                let requests = self.requests.load(Ordering::Relaxed);
                if (requests == seen || parting) && self.busy.load(Ordering::Relaxed) == 0 {
                    return End::Idle;
                }
                seen = requests;
                idle = now + pause;
            }
        }
    }

    /// An answer whose sending keeps the connection busy. With a deadline, the rest is not sent once it has
    /// passed.
    pub(crate) fn answer(self: &Arc<Self>, body: Body, deadline: Option<Instant>) -> Body {
        if http_body::Body::size_hint(&body).upper().is_some_and(|size| size <= SMALL) {
            return body;
        }
        let due = deadline.map(|at| self.due(at));
        Body::stream(Answer { body, deadline, _due: due, _busy: self.busy() })
    }
}

struct Answer {
    body: Body,
    deadline: Option<Instant>,
    _due: Option<Due>,
    _busy: Busy,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_some() && self.deadline.is_some_and(|at| Instant::now() > at) {
            return Poll::Ready(Some(Err("the answer was not taken in time".into())));
        }
        Poll::Ready(frame)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_connections_end() {
        let lifetime = Arc::new(Lifetime::default());
        let start = Instant::now();
        let busy = lifetime.request();
        let ended = tokio::spawn({
            let lifetime = Arc::clone(&lifetime);
            async move { (lifetime.end().await, Instant::now()) }
        });
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert!(!ended.is_finished(), "a request is under way");
        drop(busy);
        let (end, at) = ended.await.unwrap();
        assert_eq!((end, at - start), (End::Idle, Duration::from_mins(6)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_ends_the_connection_unless_it_ends() {
        let lifetime = Arc::new(Lifetime::default());
        let start = Instant::now();
        let _busy = lifetime.request();
        let ended = tokio::spawn({
            let lifetime = Arc::clone(&lifetime);
            async move { (lifetime.end().await, Instant::now()) }
        });
        let taken = lifetime.due(start + Duration::from_secs(5));
        tokio::time::sleep(Duration::from_secs(10)).await;
        drop(taken);
        let _left = lifetime.due(start + Duration::from_mins(1));
        let (end, at) = ended.await.unwrap();
        assert_eq!((end, at - start), (End::Stalled, Duration::from_mins(1) + GRACE));
    }

    #[tokio::test(start_paused = true)]
    async fn farewells() {
        let lifetime = Arc::new(Lifetime::default());
        let busy = lifetime.request();
        lifetime.farewell();
        assert_eq!(lifetime.end().await, End::Farewell);
        let start = Instant::now();
        let rest = tokio::time::timeout(Duration::from_secs(10), lifetime.end());
        assert!(rest.await.is_err(), "a request is under way");
        drop(busy);
        assert_eq!((lifetime.end().await, start.elapsed()), (End::Idle, Duration::from_secs(11)));
        for _ in 0..=LATE {
            lifetime.farewell();
        }
        assert_eq!(lifetime.end().await, End::Unwanted);
    }

    #[tokio::test(start_paused = true)]
    async fn late_answers_are_cut_off() {
        let lifetime = Arc::new(Lifetime::default());
        let pieces = (0..3).map(|_| Bytes::from_static(b"x"));
        let body = Body::stream(super::super::PieceBody::new(Box::new(pieces)));
        let mut body = lifetime.answer(body, Some(Instant::now() + Duration::from_mins(1)));
        assert!(body.frame().await.unwrap().is_ok());
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(body.frame().await.unwrap().is_err());
        drop(body);
        assert!(lifetime.due.lock().is_empty() && lifetime.busy.load(Ordering::Relaxed) == 0);
    }
}
