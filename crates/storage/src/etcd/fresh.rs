//! Reads that must see every write that was acknowledged, by whichever server.
//!
//! etcd is asked for its revision, once for all who ask at that time, and they wait until the index has it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use component::Shutdown;
use etcd::Error;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::Engine;

/// How long the index may take to get where etcd is; upstream's limit for consistent reads.
const CATCH_UP: Duration = Duration::from_secs(3);
/// How often the watch is asked how far it has come while somebody waits; upstream's period.
const ASK: Duration = Duration::from_millis(100);

/// Why a read is not known to be of the newest state.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// etcd did not tell its revision.
    #[error(transparent)]
    Etcd(#[from] Error),
    /// The index did not get there in time.
    #[error("the watch on etcd is behind: want revision {wanted}, have {current}")]
    Behind {
        /// etcd's revision.
        wanted: u64,
        /// The index's.
        current: u64,
    },
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}

/// Who waits for etcd's revision.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: Mutex<Vec<oneshot::Sender<Result<u64, Error>>>>,
    asked: Notify,
}

impl Engine {
    /// Returns once the index shows every write that was acknowledged before this call.
    pub(crate) async fn fresh(&self) -> Result<(), ReadError> {
        let (answer, revision) = oneshot::channel();
        self.questions.waiting.lock().push(answer);
        self.questions.asked.notify_one();
        let wanted = revision.await.map_err(|_| ReadError::Closed)??;
        if self.catch_up(wanted, false, CATCH_UP).await {
            Ok(())
        } else {
            Err(ReadError::Behind { wanted, current: self.index.current() })
        }
    }

    /// Answers questions until the store closes; those that come while etcd is asked wait for the next answer.
    pub(super) async fn answer_questions(self: &Arc<Self>, stop: &Shutdown) {
        while stop.run(self.questions.asked.notified()).await.is_some() {
            let waiting = std::mem::take(&mut *self.questions.waiting.lock());
            if waiting.is_empty() {
                continue;
            }
            let Some(revision) = stop.run(self.client.revision(self.keys.health())).await else { break };
            for answer in waiting {
                // A caller that went away does not want it.
                let _ = answer.send(revision.clone());
            }
        }
        self.questions.waiting.lock().clear();
    }

    /// Waits until the index has a revision; whether it has within the time. That of an own write comes by itself,
    /// others may be of keys that are not ours: then the watch is asked how far it has come.
    pub(super) async fn catch_up(&self, revision: u64, own: bool, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut ask = !own;
        loop {
            let shown = self.waiting.wait(revision);
            // Looked at after it is waited for: nothing is missed between.
            if self.index.current() >= revision {
                return true;
            }
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            if ask {
                self.nudge.notify_one();
            }
            ask = true;
            if matches!(tokio::time::timeout_at(deadline.min(now + ASK), shown).await, Ok(Err(_))) {
                return false;
            }
        }
    }
}

/// Who waits until the index has a revision: each is woken once, and for it alone.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<BTreeMap<u64, Vec<oneshot::Sender<()>>>>);

impl Waiting {
    fn wait(&self, revision: u64) -> oneshot::Receiver<()> {
        let (done, shown) = oneshot::channel();
        let mut waiting = self.0.lock();
        let of_it = waiting.entry(revision).or_default();
        // Those that waited for long enough.
        of_it.retain(|done| !done.is_closed());
        of_it.push(done);
        shown
    }

    /// The index has this revision.
    pub(super) fn wake(&self, revision: u64) {
        let mut waiting = self.0.lock();
        let later = waiting.split_off(&(revision + 1));
        for done in std::mem::replace(&mut *waiting, later).into_values().flatten() {
            // Who went away does not want to know.
            let _ = done.send(());
        }
    }
}
