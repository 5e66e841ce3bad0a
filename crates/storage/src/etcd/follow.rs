//! What changes in etcd, into the index.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::{Object, Text};
use bytes::Bytes;
use component::Shutdown;
use etcd::rpc::event::EventType;
use etcd::rpc::{self, WatchCreateRequest, WatchResponse};
use etcd::{Error, prefix_end};
use parking_lot::MutexGuard;
use tokio::time::Instant;

use super::keys::Place;
use super::unreadable::Entry;
use super::{Engine, load};
use crate::index::{Index, Resource};
use crate::store::{Cause, Event, ResourceId};
use crate::view::Live;

/// How long to wait after the watch broke, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// How a watch ended.
enum End {
    /// The store closes.
    Stopped,
    /// etcd no longer has what comes next, or was set back: everything must be read anew.
    Lost(&'static str),
    /// It can go on from where it was.
    Broken(Error),
}

/// Whether a version of etcd answers requests for progress truly; before these, it could say that a watch
/// was at a revision of which events were still to come.
pub(crate) fn progress_is_reliable(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(|p| p.parse::<u32>().ok());
    let mut part = || parts.next().flatten().unwrap_or(0);
    match (part(), part(), part()) {
        (3, 4, patch) => patch >= 31,
        (3, 5, patch) => patch >= 13,
        (major, minor, _) => (major, minor) > (3, 5),
    }
}

/// A resource that a batch of events changes.
struct Edit<'r> {
    id: ResourceId,
    resource: &'r Resource,
    live: Live,
    writing: MutexGuard<'r, ()>,
}

impl Engine {
    /// Follows until the store closes.
    pub(super) async fn follow(self: &Arc<Self>, stop: &Shutdown) {
        let mut pause = BACKOFF.0;
        let mut failing = false;
        loop {
            let before = self.index.current();
            let end = match stop.run(self.watch(stop)).await {
                None | Some(End::Stopped) => break,
                Some(end) => end,
            };
            if self.index.current() > before {
                pause = BACKOFF.0;
                failing = false;
            }
            let error = match end {
                End::Stopped => break,
                End::Broken(error) => Some(error),
                End::Lost(why) => {
                    tracing::warn!(why, "reading everything from etcd anew; watchers must list again");
                    match stop.run(self.load(None)).await {
                        None => break,
                        Some(Ok(state)) => {
                            self.install(state);
                            None
                        }
                        Some(Err(error)) => {
                            tracing::error!(%error, "cannot read from etcd");
                            None
                        }
                    }
                }
            };
            if let Some(error) = error {
                if failing {
                    tracing::debug!(%error, "the watch on etcd ended again");
                } else {
                    tracing::warn!(%error, "the watch on etcd ended; going on from where it was");
                }
                failing = true;
                *self.broken.lock() = Some(error);
            }
            let sleep = pause.mul_f64(0.5 + fastrand::f64());
            pause = (pause * 2).min(BACKOFF.1);
            if stop.run(tokio::time::sleep(sleep)).await.is_none() {
                break;
            }
        }
    }

    async fn watch(self: &Arc<Self>, stop: &Shutdown) -> End {
        // Asked of the leader: a member alone may lag behind what we have seen.
        match self.client.revision(self.keys.health()).await {
            Ok(revision) if revision < self.index.current() => {
                return End::Lost("etcd was set back to an older state");
            }
            Ok(_) => {}
            Err(e) => return End::Broken(e),
        }
        let progress = self.progress.load(Ordering::Relaxed);
        let (key, range_end) = if progress {
            let prefix = self.keys.prefix().as_bytes();
            (Bytes::copy_from_slice(prefix), prefix_end(prefix))
        } else {
            (Bytes::from_static(b"\0"), Bytes::from_static(b"\0"))
        };
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: self.index.current() as i64 + 1,
            progress_notify: progress,
            fragment: true,
            ..Default::default()
        };
        let mut watch = match self.client.watch(create).await {
            Ok(watch) => watch,
            Err(e) => return End::Broken(e),
        };
        let mut parts = Vec::new();
        let mut tell_at = None;
        loop {
            let bookmarks = self.index.hub.progress.load(Ordering::Relaxed) > 0;
            if !bookmarks {
                tell_at = None;
            }
            let next = *tell_at.get_or_insert_with(|| Instant::now() + self.progress_interval);
            let tell = tokio::time::sleep_until(next);
            let response = tokio::select! {
                () = stop.wait() => return End::Stopped,
                () = self.nudge.notified() => {
                    if progress {
                        watch.ask_progress();
                    }
                    continue;
                }
                () = tell, if bookmarks => {
                    tell_at = None;
                    self.index.progress();
                    continue;
                }
                response = watch.next() => response,
            };
            // What cannot be fetched now is waited for: an event that is passed over would be missing for good.
            for kv in response.iter().flat_map(|r| &r.events).filter_map(|e| e.kv.as_ref()) {
                if let Err(error) = self.prepare(kv).await {
                    return End::Broken(Error::Unavailable(load::unreadable(&kv.key, &error).into()));
                }
            }
            match self.take_response(response, &mut parts) {
                Ok(()) => {}
                Err(end) => return end,
            }
        }
    }

    fn take_response(
        &self,
        response: Result<WatchResponse, Error>,
        parts: &mut Vec<rpc::Event>,
    ) -> Result<(), End> {
        let response = response.map_err(End::Broken)?;
        if response.created {
            *self.broken.lock() = None;
        }
        if response.canceled {
            if response.compact_revision > 0 {
                return Err(End::Lost("etcd was compacted past what was seen"));
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
            // An answer about progress; the one to the watch's creation says nothing about it.
            if !response.created && self.progress.load(Ordering::Relaxed) {
                self.advance(header);
            }
            return Ok(());
        }
        parts.extend(response.events);
        if !response.fragment {
            self.apply(std::mem::take(parts));
        }
        Ok(())
    }

    /// Everything up to a revision is in the index.
    fn advance(&self, revision: u64) {
        if revision > self.index.current() {
            self.index.advance(revision);
            self.waiting.wake(revision);
            self.index.deliver(&[], revision);
        }
    }

    /// Shows a batch of changes, the last of which is the last of its revision.
    fn apply(&self, changes: Vec<rpc::Event>) {
        let Some(last) = changes.iter().filter_map(|e| e.kv.as_ref()).map(|kv| kv.mod_revision as u64).max()
        else {
            return;
        };
        // Decoded before any lock is taken.
        let changes: Vec<_> = changes.into_iter().filter_map(|e| self.understand(e)).collect();
        let resources = self.index.resources();
        let now = u64::try_from(self.clock.now().as_millisecond()).unwrap_or(0);
        let mut edits: Vec<Edit<'_>> = Vec::new();
        let mut events = Vec::with_capacity(changes.len());
        for (id, change) in changes {
            let known = edits.iter().position(|e| e.id == id);
            if known.is_none() {
                let Some(resource) = resources.get(id.0 as usize) else { continue };
                let (writing, live) = Index::edit(resource);
                edits.push(Edit { id, resource, live, writing });
            }
            let newest = edits.len() - 1;
            let Some(edit) = edits.get_mut(known.unwrap_or(newest)) else { continue };
            if let Some(event) = change.apply(&mut edit.live) {
                events.push((id, Arc::new(event)));
            }
        }
        for Edit { id, resource, live, writing } in edits {
            let of_it = events.iter().filter(|(of, _)| *of == id).map(|(_, event)| event);
            Index::show(resource, live, of_it, now);
            drop(writing);
        }
        self.index.advance(last);
        self.waiting.wake(last);
        self.index.deliver(&events, last);
    }

    /// What an event of etcd is to the index, if anything.
    fn understand(&self, event: rpc::Event) -> Option<(ResourceId, Change)> {
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
            Place::Object { group, plural, namespace, name } => {
                let id = self.index.named(group, plural);
                if gone {
                    self.unreadable.remove(id, namespace, name);
                    return Some((
                        id,
                        Change::Delete { namespace: namespace.into(), name: name.into(), revision },
                    ));
                }
                let own = self.writing.lock().find(&kv.key, &kv.value);
                let object = match own {
                    Some(data) => Arc::new(Object { data, revision }),
                    None => match self.read(&kv.key, &kv.value, revision) {
                        Ok(object) => object?,
                        Err(error) => {
                            tracing::error!("{}", load::unreadable(&kv.key, &error));
                            self.unreadable.insert(id, namespace, name, Entry::new(&kv, &error));
                            return None;
                        }
                    },
                };
                self.unreadable.remove(id, namespace, name);
                Some((id, Change::Put(object)))
            }
            Place::Other => None,
        }
    }
}

/// A change to one object.
enum Change {
    Put(Arc<Object>),
    Delete { namespace: Text, name: Text, revision: u64 },
}

impl Change {
    fn apply(self, live: &mut Live) -> Option<Event> {
        match self {
            Self::Put(object) => {
                let previous = live.get(&object.data.namespace, &object.data.name).cloned();
                live.put(object.clone());
                let cause = if previous.is_some() { Cause::Modified } else { Cause::Added };
                Some(Event::new(cause, object, previous))
            }
            Self::Delete { namespace, name, revision } => {
                let previous = live.remove(&namespace, &name, revision)?;
                let object = Arc::new(Object { data: previous.data.clone(), revision });
                Some(Event::new(Cause::Deleted, object, Some(previous)))
            }
        }
    }
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
