//! Follows the changes in etcd: each resource through a watch of its own, so that none waits for another.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{Object, Text};
use bytes::Bytes;
use component::Shutdown;
use etcd::rpc::event::EventType;
use etcd::rpc::{self, WatchCreateRequest, WatchResponse};
use etcd::{Error, prefix_end};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::fresh::{Verdict, Waiting};
use super::keys::Place;
use super::load::{LoadError, Part, State};
use super::unreadable::Entry;
use super::{Engine, load};
use crate::backend::ReadError;
use crate::index::{Index, Resource};
use crate::store::{Cause, Event, ResourceId};
use crate::view::Live;
use crate::watch::Delivery;

/// The times to wait after a watch broke, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// The end of a watch.
enum End {
    /// The store closes.
    Stopped,
    /// etcd no longer has the next events.
    Compacted,
    /// etcd was set back to an older state.
    SetBack,
    /// The watch broke, and can go on from where it was.
    Broken(Error),
    /// Data for reading a value cannot be fetched now; the watch can go on from where it was.
    Waits(String),
}

/// The target of a follower.
#[derive(Debug)]
pub(crate) enum Target {
    Resource(Arc<Resource>),
    /// The addresses of the API servers.
    Servers,
}

/// The state of following the keys of one resource.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(super) target: Target,
    /// The start of its keys.
    pub(super) prefix: Bytes,
    /// The revision up to which the watch has come; 0 before anything was loaded. The index may already be known to be
    /// current at a later revision.
    seen: AtomicU64,
    /// The callers that wait for a revision.
    pub(super) waiting: Waiting,
    /// Notified when a caller wants to know the watch's progress.
    pub(super) nudge: Notify,
    /// Held by the task that asks etcd for a verdict.
    pub(super) judging: tokio::sync::Mutex<()>,
    /// Its keys that belong to no object.
    pub(super) strange: Mutex<BTreeSet<Bytes>>,
    /// The state after events of which it is known that later ones revert them: the index shows the state after those.
    undone: Mutex<Option<Live>>,
    /// The reason for which the resource cannot be followed now.
    broken: Mutex<Option<Error>>,
}

impl Follower {
    pub(super) fn new(target: Target, prefix: Bytes) -> Self {
        Self {
            target,
            prefix,
            seen: AtomicU64::default(),
            waiting: Waiting::default(),
            nudge: Notify::new(),
            judging: tokio::sync::Mutex::default(),
            strange: Mutex::default(),
            undone: Mutex::default(),
            broken: Mutex::default(),
        }
    }

    /// The revision of the state that is shown.
    pub(super) fn known(&self) -> u64 {
        match &self.target {
            Target::Resource(resource) => resource.known(),
            Target::Servers => self.seen.load(Ordering::Acquire),
        }
    }

    /// The reason for which the resource cannot be followed now.
    pub(super) fn broken(&self) -> Option<Error> {
        self.broken.lock().clone()
    }

    /// The name for the log.
    fn name(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.prefix)
    }
}

/// Whether a version of etcd answers requests for progress correctly; earlier versions could answer with a revision of
/// which events were still to come.
pub(crate) fn progress_is_reliable(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(|p| p.parse::<u32>().ok());
    let mut part = || parts.next().flatten().unwrap_or(0);
    match (part(), part(), part()) {
        (3, 4, patch) => patch >= 31,
        (3, 5, patch) => patch >= 13,
        (major, minor, _) => (major, minor) > (3, 5),
    }
}

impl Engine {
    /// Follows the resource until the store closes.
    pub(super) async fn follow(self: &Arc<Self>, follower: &Follower, stop: &Shutdown) {
        let mut pause = BACKOFF.0;
        let mut failing = false;
        loop {
            let before = follower.seen.load(Ordering::Relaxed);
            let outcome = async {
                if before == 0 {
                    return self.reload(follower).await;
                }
                match self.watch(follower, stop).await {
                    // Often no event was missed.
                    End::Compacted => match self.judge(follower, u64::MAX).await {
                        Ok(Verdict::Same(at)) => {
                            self.advance(follower, at);
                            Ok(())
                        }
                        Ok(Verdict::Changed(_)) => {
                            let key = follower.name();
                            tracing::warn!(%key, "etcd was compacted past what was seen: watchers must list again");
                            self.reload(follower).await
                        }
                        Err(error) => Err(End::Broken(error)),
                    },
                    End::SetBack => {
                        let key = follower.name();
                        tracing::warn!(%key, "etcd was set back to an older state: watchers must list again");
                        self.reload(follower).await
                    }
                    end => Err(end),
                }
            };
            let outcome = stop.run(outcome).await;
            if follower.seen.load(Ordering::Relaxed) > before {
                pause = BACKOFF.0;
                failing = false;
            }
            let error = match outcome {
                None | Some(Err(End::Stopped)) => break,
                Some(Ok(())) => continue,
                Some(Err(End::Broken(error))) => {
                    let well = self.healthy().is_ok();
                    *follower.broken.lock() = Some(error.clone());
                    // A failure that breaks all watches is logged once.
                    failing |= !well;
                    error.to_string()
                }
                Some(Err(End::Waits(error))) => error,
                Some(Err(End::Compacted | End::SetBack)) => String::new(),
            };
            let key = follower.name();
            if failing {
                tracing::debug!(%key, %error, "the watch on etcd ended again");
            } else {
                tracing::warn!(%key, %error, "the watch on etcd ended; going on from where it was");
            }
            failing = true;
            let sleep = pause.mul_f64(0.5 + fastrand::f64());
            pause = (pause * 2).min(BACKOFF.1);
            if stop.run(tokio::time::sleep(sleep)).await.is_none() {
                break;
            }
        }
    }

    /// Reads the whole resource anew.
    async fn reload(self: &Arc<Self>, follower: &Follower) -> Result<(), End> {
        match self.load(&follower.prefix, None).await {
            Ok(mut state) => {
                self.install(follower, &mut state);
                Ok(())
            }
            Err(LoadError::Etcd(error)) => Err(End::Broken(error)),
            Err(LoadError::Value(why)) => Err(End::Waits(why)),
            Err(error @ LoadError::Task(_)) => Err(End::Waits(error.to_string())),
        }
    }

    /// Shows the loaded state of the resource, whatever was shown before.
    pub(super) fn install(&self, follower: &Follower, state: &mut State) {
        let revision = state.revision;
        let mine = |key: &&Bytes| key.starts_with(&follower.prefix);
        *follower.strange.lock() = state.strange.iter().filter(mine).cloned().collect();
        *follower.undone.lock() = None;
        match &follower.target {
            Target::Servers => {
                self.servers.send_replace(std::mem::take(&mut state.servers));
            }
            Target::Resource(resource) => {
                let part = state.parts.iter().position(|p| p.is(&resource.group, &resource.plural));
                let part = part.map(|at| state.parts.swap_remove(at));
                let (objects, unreadable) =
                    part.map(|Part { objects, unreadable, .. }| (objects, unreadable)).unwrap_or_default();
                for (_, _, entry) in &unreadable {
                    tracing::error!("{}", load::unreadable(&entry.what.key, &entry.what.why));
                }
                self.unreadable.replace(resource.id, unreadable);
                self.index.replace_one(resource, Live::of(objects), revision);
            }
        }
        follower.seen.store(revision, Ordering::Release);
        follower.waiting.wake(revision);
    }

    async fn watch(self: &Arc<Self>, follower: &Follower, stop: &Shutdown) -> End {
        let seen = follower.seen.load(Ordering::Relaxed);
        // The leader is asked: a member alone may lag behind the revisions that were seen.
        match self.revision().await {
            Ok(revision) if revision < follower.known() => return End::SetBack,
            Ok(_) => {}
            Err(ReadError::Etcd(e)) => return End::Broken(e),
            Err(_) => return End::Stopped,
        }
        let progress = self.progress.load(Ordering::Relaxed);
        let create = WatchCreateRequest {
            key: follower.prefix.clone(),
            range_end: prefix_end(&follower.prefix),
            start_revision: seen as i64 + 1,
            progress_notify: progress,
            fragment: true,
            ..Default::default()
        };
        let mut watch = match self.client.watch(create).await {
            Ok(watch) => watch,
            Err(e) => return End::Broken(e),
        };
        let mut parts = Vec::new();
        loop {
            let response = tokio::select! {
                () = stop.wait() => return End::Stopped,
                () = follower.nudge.notified(), if progress => {
                    watch.ask_progress();
                    continue;
                }
                response = watch.next() => response,
            };
            // Data that cannot be fetched now is waited for: an event that is passed over would be missing for good.
            for kv in response.iter().flat_map(|r| &r.events).filter_map(|e| e.kv.as_ref()) {
                if let Err(error) = self.prepare(kv).await {
                    return End::Waits(load::unreadable(&String::from_utf8_lossy(&kv.key), &error));
                }
            }
            if let Err(end) = self.take_response(follower, response, &mut parts) {
                return end;
            }
        }
    }

    fn take_response(
        &self,
        follower: &Follower,
        response: Result<WatchResponse, Error>,
        parts: &mut Vec<rpc::Event>,
    ) -> Result<(), End> {
        let response = response.map_err(End::Broken)?;
        if response.created {
            *follower.broken.lock() = None;
        }
        if response.canceled {
            if response.compact_revision > 0 {
                return Err(End::Compacted);
            }
            let status = response.cancel_reason;
            let error = if status.contains("permission denied") {
                Error::Denied(status.into())
            } else {
                Error::Unavailable(format!("etcd canceled the watch: {status}").into())
            };
            return Err(End::Broken(error));
        }
        let header = response.header.map_or(0, |h| h.revision as u64);
        if response.events.is_empty() && parts.is_empty() {
            // This is an answer about progress; the one to the watch's creation says nothing about it.
            if !response.created && self.progress.load(Ordering::Relaxed) {
                self.advance(follower, header);
            }
            return Ok(());
        }
        parts.extend(response.events);
        if !response.fragment {
            self.apply(follower, std::mem::take(parts));
        }
        Ok(())
    }

    /// Notes that everything up to a revision was seen.
    fn advance(&self, follower: &Follower, revision: u64) {
        if revision <= follower.seen.load(Ordering::Relaxed) {
            return;
        }
        if let Target::Resource(resource) = &follower.target {
            Index::advance_one(resource, revision);
            if revision >= resource.known() {
                *follower.undone.lock() = None;
            }
            self.index.deliver_one(resource, &[], revision);
        }
        follower.seen.store(revision, Ordering::Release);
        follower.waiting.wake(revision);
    }

    /// Shows a batch of changes, the last of which is the last of its revision.
    fn apply(&self, follower: &Follower, changes: Vec<rpc::Event>) {
        let Some(last) = changes.iter().filter_map(|e| e.kv.as_ref()).map(|kv| kv.mod_revision as u64).max()
        else {
            return;
        };
        // Changes are decoded before any lock is taken.
        let changes: Vec<_> = changes.into_iter().filter_map(|e| self.understand(follower, e)).collect();
        if let Target::Resource(resource) = &follower.target {
            let deliveries = self.show(follower, resource, changes, last);
            follower.waiting.wake(last);
            self.index.deliver_one(resource, &deliveries, last);
        }
        follower.seen.store(last, Ordering::Release);
        follower.waiting.wake(last);
    }

    /// Shows changes to readers; returns the deliveries to watchers.
    fn show(
        &self,
        follower: &Follower,
        resource: &Resource,
        changes: Vec<Change>,
        last: u64,
    ) -> Vec<Delivery> {
        let now = u64::try_from(self.clock.now().as_millisecond()).unwrap_or(0);
        let mut deliveries = Vec::with_capacity(changes.len());
        let (_writing, mut live) = Index::edit(resource);
        if let Some(mut undone) = follower.undone.lock().take() {
            // Other fields may be indexed by now.
            if !undone.indexed().eq(live.indexed()) {
                undone.index_by(&live.indexed().collect::<Vec<_>>());
            }
            live = undone;
        }
        for change in changes {
            match change {
                Change::Unreadable { namespace, name, entry } => {
                    tracing::error!("{}", load::unreadable(&entry.what.key, &entry.what.why));
                    deliveries.push(Delivery::Unreadable(
                        namespace.clone(),
                        name.clone(),
                        entry.what.clone(),
                    ));
                    self.unreadable.insert(resource.id, &namespace, &name, entry);
                }
                change => deliveries.extend(self.change(resource.id, &mut live, change).map(Delivery::Event)),
            }
        }
        let events = deliveries.iter().filter_map(|d| match d {
            Delivery::Event(event) => Some(event),
            Delivery::Unreadable(..) => None,
        });
        if last >= resource.known() {
            Index::show(resource, live, events, now);
            Index::advance_one(resource, last);
        } else {
            for event in events {
                Index::remember(resource, event.clone(), now);
            }
            *follower.undone.lock() = Some(live);
        }
        deliveries
    }

    /// Changes a state; returns the event of the change.
    fn change(&self, id: ResourceId, live: &mut Live, change: Change) -> Option<Arc<Event>> {
        let event = match change {
            Change::Put(object) => {
                let data = &object.data;
                self.unreadable.remove(id, &data.namespace, &data.name);
                let previous = live.get(&data.namespace, &data.name).cloned();
                live.put(object.clone());
                let cause = if previous.is_some() { Cause::Modified } else { Cause::Added };
                Event::new(cause, object, previous)
            }
            Change::Delete { namespace, name, revision } => {
                self.unreadable.remove(id, &namespace, &name);
                let previous = live.remove(&namespace, &name, revision)?;
                let object = Arc::new(Object { data: previous.data.clone(), revision });
                Event::new(Cause::Deleted, object, Some(previous))
            }
            Change::Unreadable { .. } => return None,
        };
        Some(Arc::new(event))
    }

    /// The change that an event of etcd makes in the index, if any.
    fn understand(&self, follower: &Follower, event: rpc::Event) -> Option<Change> {
        let gone = event.r#type == EventType::Delete as i32;
        let kv = event.kv?;
        let revision = kv.mod_revision as u64;
        match self.keys.place(&kv.key) {
            Place::Server(address) => {
                self.servers.send_if_modified(|all| {
                    if gone { all.remove(address) } else { all.insert(address.into()) }
                });
                None
            }
            Place::Object { namespace, name, .. } => {
                let (at, called) = (namespace.into(), name.into());
                if gone {
                    return Some(Change::Delete { namespace: at, name: called, revision });
                }
                let own = self.writing.lock().find(&kv.key, &kv.value);
                match own {
                    Some(data) => Some(Change::Put(Arc::new(Object { data, revision }))),
                    None => match self.read(&kv.key, &kv.value, revision) {
                        Ok(object) => object.map(Change::Put),
                        Err(error) => {
                            let entry = Entry::new(&kv, &error);
                            Some(Change::Unreadable { namespace: at, name: called, entry })
                        }
                    },
                }
            }
            Place::Other => {
                let mut strange = follower.strange.lock();
                if gone {
                    strange.remove(&kv.key);
                } else {
                    strange.insert(kv.key);
                }
                None
            }
        }
    }
}

/// A change to one object.
enum Change {
    Put(Arc<Object>),
    Delete { namespace: Text, name: Text, revision: u64 },
    Unreadable { namespace: Text, name: Text, entry: Entry },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_reliable_progress() {
        let check =
            |version: &str, expected: bool| assert_eq!(progress_is_reliable(version), expected, "{version}");
        check("3.4.23", false);
        check("3.4.31", true);
        check("3.5.0", false);
        check("3.5.12", false);
        check("3.5.13", true);
        check("3.5.30", true);
        check("3.6.0", true);
        check("3.6.0-rc.1", true);
        check("4.0.0", true);
        check("", false);
        check("3.3.25", false);
    }
}
