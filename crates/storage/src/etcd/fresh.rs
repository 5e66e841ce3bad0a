//! Reads that must see every write that was acknowledged, by any server.
//!
//! etcd is asked for its revision, once for all callers of that time, and they wait until the resources that they read
//! are there. A resource to which nothing was written has no event that shows it: then its watch is asked for its
//! progress, or, where etcd does not answer that correctly, etcd is asked whether the resource is unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use component::Shutdown;
use etcd::rpc::RangeRequest;
use etcd::rpc::range_request::{SortOrder, SortTarget};
use etcd::{Error, prefix_end};
use futures::future::try_join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::Engine;
use super::follow::{Follower, Target};
use crate::backend::ReadError;
use crate::index::Index;
use crate::store::ResourceId;

/// The time that a resource may take to reach etcd's revision; upstream's limit for consistent reads.
const CATCH_UP: Duration = Duration::from_secs(3);
/// The interval at which progress is asked for while a caller waits; upstream's period.
const ASK: Duration = Duration::from_millis(100);

/// The callers that wait for etcd's revision.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: Mutex<Vec<oneshot::Sender<Result<u64, Error>>>>,
    asked: Notify,
}

/// etcd's answer about a resource.
pub(super) enum Verdict {
    /// The shown state is the resource's as of this revision.
    Same(u64),
    /// The resource has changed: at this revision, if it is known.
    Changed(Option<u64>),
}

impl Engine {
    /// Returns once the index shows every write to the resources that was acknowledged before this call.
    pub(crate) async fn fresh(&self, resources: &[ResourceId]) -> Result<(), ReadError> {
        let wanted = self.revision().await?;
        let one = |id: &ResourceId| {
            let follower = self.follower(*id);
            async move {
                let follower = follower.ok_or(ReadError::Closed)?;
                if self.catch_up(&follower, wanted, false, CATCH_UP).await {
                    return Ok(());
                }
                Err(ReadError::Behind { wanted, current: follower.known() })
            }
        };
        match resources {
            [id] => one(id).await,
            all => try_join_all(all.iter().map(one)).await.map(drop),
        }
    }

    /// The current revision of etcd: no write that was acknowledged before this call is above it.
    pub(super) async fn revision(&self) -> Result<u64, ReadError> {
        let (answer, revision) = oneshot::channel();
        self.questions.waiting.lock().push(answer);
        self.questions.asked.notify_one();
        Ok(revision.await.map_err(|_| ReadError::Closed)??)
    }

    /// Answers questions until the store closes; questions that come while etcd is asked wait for the next answer.
    pub(super) async fn answer_questions(self: &Arc<Self>, stop: &Shutdown) {
        while stop.run(self.questions.asked.notified()).await.is_some() {
            let waiting = std::mem::take(&mut *self.questions.waiting.lock());
            if waiting.is_empty() {
                continue;
            }
            let Some(revision) = stop.run(self.client.revision(self.keys.health())).await else { break };
            for answer in waiting {
                // A caller that went away does not want the answer.
                let _ = answer.send(revision.clone());
            }
        }
        self.questions.waiting.lock().clear();
    }

    /// Waits until a resource is shown as of a revision; returns whether it is within the time. The event of an own
    /// write comes by itself; a foreign revision may be of other keys.
    pub(super) async fn catch_up(
        &self,
        follower: &Follower,
        revision: u64,
        own: bool,
        limit: Duration,
    ) -> bool {
        if follower.known() >= revision {
            return true;
        }
        let deadline = Instant::now() + limit;
        let mut ask = !own;
        loop {
            let mut shown = follower.waiting.wait(revision);
            // The state is checked after the wait began, so that nothing is missed between.
            if follower.known() >= revision {
                return true;
            }
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            if ask && follower.known() > 0 {
                if self.progress.load(Ordering::Relaxed) {
                    follower.nudge.notify_one();
                } else if let Ok(verdict) =
                    tokio::time::timeout_at(deadline, self.judge(follower, revision)).await
                {
                    match verdict {
                        Ok(Verdict::Same(at)) if at >= revision => return true,
                        Ok(Verdict::Changed(at)) => {
                            // The watch will tell the change; then etcd is asked again.
                            let next = at.unwrap_or(follower.known() + 1).min(revision);
                            shown = follower.waiting.wait(next);
                            if follower.known() >= next {
                                continue;
                            }
                        }
                        Ok(Verdict::Same(_)) => {}
                        Err(error) => tracing::debug!(%error, "etcd was asked in vain"),
                    }
                }
            }
            ask = true;
            // The end of the time is handled above.
            let _ = tokio::time::timeout_at(deadline.min(Instant::now() + ASK), &mut shown.shown).await;
        }
    }

    /// Asks etcd whether a resource is still as it is shown, unless it is shown as of `wanted` by then. If etcd has no
    /// key of it that is newer, and as many keys as are known, these are the same: each of etcd's was there already,
    /// and none has gone.
    pub(super) async fn judge(&self, follower: &Follower, wanted: u64) -> Result<Verdict, Error> {
        let Target::Resource(resource) = &follower.target else { return Ok(Verdict::Changed(None)) };
        // One caller asks at a time: its answer serves those that waited meanwhile.
        let _turn = follower.judging.lock().await;
        let counted = || {
            let (writing, live) = Index::edit(resource);
            let count =
                live.len() + self.unreadable.missing(resource.id, &live) + follower.strange.lock().len();
            (writing, resource.known(), count)
        };
        let (writing, known, count) = counted();
        drop(writing);
        if known >= wanted {
            return Ok(Verdict::Same(known));
        }
        let newer = RangeRequest {
            range_end: prefix_end(&follower.prefix),
            key: follower.prefix.clone(),
            keys_only: true,
            min_mod_revision: known as i64 + 1,
            // Only the newest key is wanted.
            sort_order: SortOrder::Descend as i32,
            sort_target: SortTarget::Mod as i32,
            limit: 1,
            ..Default::default()
        };
        let answer = self.client.range(newer).await?;
        let at = answer.header.map_or(0, |h| h.revision as u64);
        let newest = answer.kvs.first().map(|kv| kv.mod_revision as u64);
        // etcd counts all keys of the range, whatever their age.
        if newest.is_some() || answer.count != count as i64 {
            return Ok(Verdict::Changed(newest));
        }
        let (writing, now, _) = counted();
        if now != known {
            // Events came meanwhile, and the state after them was not asked about.
            return Ok(if now >= wanted { Verdict::Same(now) } else { Verdict::Changed(None) });
        }
        Index::advance_one(resource, at);
        drop(writing);
        follower.waiting.wake(at);
        Ok(Verdict::Same(at))
    }
}

/// The callers that wait until a resource is shown as of a revision: each is woken once, and for it alone.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<BTreeMap<u64, Vec<oneshot::Sender<()>>>>);

impl Waiting {
    fn wait(&self, revision: u64) -> Shown<'_> {
        let (done, shown) = oneshot::channel();
        self.0.lock().entry(revision).or_default().push(done);
        Shown { waiting: self, revision, shown }
    }

    /// Wakes the callers that wait for this revision or an earlier one.
    pub(super) fn wake(&self, revision: u64) {
        let mut waiting = self.0.lock();
        let later = waiting.split_off(&(revision + 1));
        for done in std::mem::replace(&mut *waiting, later).into_values().flatten() {
            // A caller that went away does not want to know.
            let _ = done.send(());
        }
    }
}

/// Resolves when a resource is shown as of a revision.
struct Shown<'w> {
    waiting: &'w Waiting,
    revision: u64,
    shown: oneshot::Receiver<()>,
}

impl Drop for Shown<'_> {
    /// Removes the caller, so that one which waits in vain leaves nothing behind.
    fn drop(&mut self) {
        self.shown.close();
        let mut waiting = self.waiting.0.lock();
        if let Some(of_it) = waiting.get_mut(&self.revision) {
            of_it.retain(|done| !done.is_closed());
            if of_it.is_empty() {
                waiting.remove(&self.revision);
            }
        }
    }
}
