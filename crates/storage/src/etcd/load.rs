//! The state of a range of keys at one revision.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::{Object, Text};
use bytes::{BufMut, Bytes, BytesMut};
use etcd::rpc::{KeyValue, RangeRequest};
use etcd::{Error, prefix_end};
use imbl::OrdMap;

use super::keys::Place;
use super::unreadable::Entry;
use super::{CodecError, Engine};
use crate::engine::View;
use crate::store::{Unreadable, WriteError};
use crate::view::Live;

/// The number of objects that are read at once, as upstream does at most; etcd counts all remaining ones with every
/// page.
const PAGE: i64 = 10_000;

/// The reason for which a state cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(transparent)]
    Etcd(#[from] Error),
    /// Data for reading a value cannot be fetched now.
    #[error("{0}")]
    Value(String),
    #[error("reading the objects of etcd ended: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// etcd's state at a revision.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) revision: u64,
    pub(crate) parts: Vec<Part>,
    pub(crate) servers: BTreeSet<Text>,
    /// Keys that belong to no object, though perhaps in a resource's range.
    pub(crate) strange: BTreeSet<Bytes>,
    /// The revisions with a lease.
    leased: Vec<(u64, i64)>,
}

/// The state of a resource in etcd.
pub(crate) struct Part {
    pub(crate) group: Text,
    pub(crate) plural: Text,
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) unreadable: Vec<(Text, Text, Entry)>,
}

impl Part {
    /// Whether the part is that of a resource.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

impl State {
    /// The part of a resource: the last one, since keys come in their order.
    fn part(&mut self, group: &str, plural: &str) -> Option<&mut Part> {
        if !self.parts.last().is_some_and(|p| p.is(group, plural)) {
            let (objects, unreadable) = (Vec::new(), Vec::new());
            self.parts.push(Part { group: group.into(), plural: plural.into(), objects, unreadable });
        }
        self.parts.last_mut()
    }

    /// The first value that cannot be read and that `is` selects.
    pub(crate) fn unreadable(&self, is: impl Fn(&Entry) -> bool) -> Option<&Arc<Unreadable>> {
        let all = self.parts.iter().flat_map(|p| &p.unreadable);
        all.map(|(_, _, entry)| entry).find(|entry| is(entry)).map(|entry| &entry.what)
    }
}

/// Whether a value is encrypted as upstream does it.
pub(super) fn is_encrypted(value: &[u8]) -> bool {
    value.starts_with(b"k8s:enc:")
}

/// The sentence about a value that cannot be read.
pub(super) fn unreadable(key: &str, why: &dyn std::fmt::Display) -> String {
    format!("{key} in etcd cannot be read: {why}")
}

/// The smallest key after this one.
fn next(key: &[u8]) -> Bytes {
    let mut next = BytesMut::with_capacity(key.len() + 1);
    next.put_slice(key);
    next.put_u8(0);
    next.freeze()
}

impl Engine {
    /// Loads the keys with a prefix, at a revision or now.
    pub(super) async fn load(self: &Arc<Self>, prefix: &Bytes, at: Option<u64>) -> Result<State, LoadError> {
        let mut state = State { revision: at.unwrap_or(0), ..State::default() };
        let mut from = Some(prefix.clone());
        let mut reading: Option<tokio::task::JoinHandle<State>> = None;
        // A page is decoded while the next one is fetched.
        while let Some(key) = from.take() {
            let range_end = prefix_end(prefix);
            let revision = state.revision as i64;
            let request = RangeRequest { key, range_end, limit: PAGE, revision, ..Default::default() };
            let page = self.client.range(request).await?;
            if state.revision == 0 {
                state.revision = page.header.map_or(0, |h| h.revision as u64);
            }
            for kv in &page.kvs {
                let failed = |e| LoadError::Value(unreadable(&String::from_utf8_lossy(&kv.key), &e));
                self.prepare(kv).await.map_err(failed)?;
            }
            let revision = state.revision;
            from = page.kvs.last().filter(|_| page.more).map(|kv| next(&kv.key));
            if let Some(task) = reading.take() {
                state = task.await?;
            }
            let (engine, mut so_far) = (self.clone(), std::mem::take(&mut state));
            state.revision = revision;
            reading = Some(tokio::task::spawn_blocking(move || {
                for kv in &page.kvs {
                    engine.take(kv, &mut so_far);
                }
                so_far
            }));
        }
        match reading {
            Some(task) => Ok(task.await?),
            None => Ok(state),
        }
    }

    /// Fetches the data for reading a value.
    pub(super) async fn prepare(&self, kv: &KeyValue) -> Result<(), CodecError> {
        if is_encrypted(&kv.value)
            && let Place::Object { group, plural, .. } = self.keys.place(&kv.key)
            && let Some(fetched) = self.codec.prepare(group, plural, &kv.value)
        {
            return fetched.await;
        }
        Ok(())
    }

    fn take(&self, kv: &KeyValue, state: &mut State) {
        let revision = kv.mod_revision as u64;
        match self.keys.place(&kv.key) {
            Place::Server(address) => {
                state.servers.insert(address.into());
            }
            Place::Object { group, plural, namespace, name } => {
                if kv.lease != 0 {
                    state.leased.push((revision, kv.lease));
                }
                let Some(part) = state.part(group, plural) else { return };
                match self.read(&kv.key, &kv.value, revision) {
                    Ok(Some(object)) => part.objects.push(object),
                    Ok(None) => {}
                    Err(error) => {
                        let entry = Entry::new(kv, &error);
                        part.unreadable.push((namespace.into(), name.into(), entry));
                    }
                }
            }
            Place::Other => {
                state.strange.insert(kv.key.clone());
            }
        }
    }

    /// Everything below the prefix at one revision, as etcd has it, also of resources that were not made known, with
    /// the times at which objects expire.
    pub(super) async fn whole(self: &Arc<Self>) -> Result<View, WriteError> {
        let failed = |e: &dyn std::fmt::Display| WriteError::Engine(e.to_string().into());
        let prefix = Bytes::copy_from_slice(self.keys.prefix().as_bytes());
        let state = self.load(&prefix, None).await.map_err(|e| failed(&e))?;
        // A value that is left out silently would be lost.
        if let Some(bad) = state.unreadable(|_| true) {
            return Err(failed(&unreadable(&bad.key, &bad.why)));
        }
        let expiries = self.expiries(&state.leased).await.map_err(|e| failed(&e))?;
        let part = |p: Part| (p.group, p.plural, Arc::new(Live::of(p.objects)));
        Ok(View {
            revision: state.revision,
            resources: state.parts.into_iter().map(part).collect(),
            expiries,
        })
    }

    /// The times at which objects expire, in milliseconds since 1970, by the objects' revisions.
    async fn expiries(&self, leased: &[(u64, i64)]) -> Result<OrdMap<u64, u64>, Error> {
        let now = u64::try_from(self.clock.now().as_millisecond()).unwrap_or(0);
        let mut ends = HashMap::new();
        for (_, lease) in leased {
            if !ends.contains_key(lease) {
                let left = self.client.time_to_live(*lease).await?;
                ends.insert(*lease, now + u64::try_from(left.as_millis()).unwrap_or(0).max(1));
            }
        }
        Ok(leased.iter().filter_map(|(revision, lease)| Some((*revision, *ends.get(lease)?))).collect())
    }
}
