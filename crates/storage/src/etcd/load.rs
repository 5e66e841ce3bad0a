//! The whole state at one revision.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::{Object, Text};
use bytes::{BufMut, Bytes, BytesMut};
use etcd::rpc::{KeyValue, RangeRequest};
use etcd::{Error, prefix_end};
use imbl::OrdMap;

use super::keys::Place;
use super::unreadable::{Entries, Entry};
use super::{CodecError, Engine, EtcdOpenError};
use crate::store::ResourceId;

/// How many objects are read at once, as upstream does at most; etcd counts all that are left with every page.
const PAGE: i64 = 10_000;

/// What etcd has at a revision.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) revision: u64,
    pub(super) objects: HashMap<ResourceId, Vec<Arc<Object>>>,
    pub(crate) servers: BTreeSet<Text>,
    pub(super) unreadable: Entries,
}

/// Whether a value is encrypted as upstream does it.
pub(super) fn is_encrypted(value: &[u8]) -> bool {
    value.starts_with(b"k8s:enc:")
}

/// What is said of a value that cannot be read.
pub(super) fn unreadable(key: &[u8], error: &CodecError) -> String {
    format!("{} in etcd cannot be read: {error}", String::from_utf8_lossy(key))
}

/// The smallest key after this one.
fn next(key: &[u8]) -> Bytes {
    let mut next = BytesMut::with_capacity(key.len() + 1);
    next.put_slice(key);
    next.put_u8(0);
    next.freeze()
}

impl Engine {
    /// Loads the state of a revision, or of now.
    pub(super) async fn load(self: &Arc<Self>, at: Option<u64>) -> Result<State, EtcdOpenError> {
        let mut state = State { revision: at.unwrap_or(0), ..State::default() };
        let prefix = Bytes::copy_from_slice(self.keys.prefix().as_bytes());
        let mut from = Some(prefix);
        let mut reading: Option<tokio::task::JoinHandle<Result<State, EtcdOpenError>>> = None;
        // A page is decoded while the next one is fetched.
        while let Some(key) = from.take() {
            let page = self.page(key, state.revision, false).await?;
            if state.revision == 0 {
                state.revision = page.header.map_or(0, |h| h.revision as u64);
            }
            for kv in &page.kvs {
                self.prepare(kv).await.map_err(|e| EtcdOpenError::Value(unreadable(&kv.key, &e)))?;
            }
            let revision = state.revision;
            from = page.kvs.last().filter(|_| page.more).map(|kv| next(&kv.key));
            if let Some(task) = reading.take() {
                state = joined(task).await?;
            }
            let (engine, mut so_far) = (self.clone(), std::mem::take(&mut state));
            state.revision = revision;
            reading = Some(tokio::task::spawn_blocking(move || {
                page.kvs.iter().try_for_each(|kv| engine.take(kv, &mut so_far))?;
                Ok(so_far)
            }));
        }
        match reading {
            Some(task) => joined(task).await,
            None => Ok(state),
        }
    }

    /// Fetches what it takes to read a value.
    pub(super) async fn prepare(&self, kv: &KeyValue) -> Result<(), CodecError> {
        if is_encrypted(&kv.value)
            && let Place::Object { group, plural, .. } = self.keys.place(&kv.key)
            && let Some(fetched) = self.codec.prepare(group, plural, &kv.value)
        {
            return fetched.await;
        }
        Ok(())
    }

    async fn page(
        &self,
        key: Bytes,
        revision: u64,
        keys_only: bool,
    ) -> Result<etcd::rpc::RangeResponse, Error> {
        let range_end = prefix_end(self.keys.prefix().as_bytes());
        let revision = revision as i64;
        let request = RangeRequest { key, range_end, limit: PAGE, revision, keys_only, ..Default::default() };
        self.client.range(request).await
    }

    fn take(&self, kv: &KeyValue, state: &mut State) -> Result<(), EtcdOpenError> {
        match self.keys.place(&kv.key) {
            Place::Server(address) => {
                state.servers.insert(address.into());
            }
            Place::Object { group, plural, namespace, name } => {
                let id = self.index.named(group, plural);
                match self.read(&kv.key, &kv.value, kv.mod_revision as u64) {
                    Ok(Some(object)) => state.objects.entry(id).or_default().push(object),
                    Ok(None) => {}
                    // Whoever starts without the keys would hide what is there.
                    Err(e) if is_encrypted(&kv.value) => {
                        return Err(EtcdOpenError::Value(unreadable(&kv.key, &e)));
                    }
                    Err(error) => {
                        let key = String::from_utf8_lossy(&kv.key);
                        tracing::error!(%key, %error, "a value in etcd cannot be read");
                        state.unreadable.insert((id, namespace.into(), name.into()), Entry::new(kv, &error));
                    }
                }
            }
            Place::Other => {}
        }
        Ok(())
    }

    /// When objects expire, in milliseconds since 1970, by their revision.
    pub(super) async fn expiries(&self) -> Result<OrdMap<u64, u64>, Error> {
        let mut leased = Vec::new();
        let mut from = Some(Bytes::copy_from_slice(self.keys.prefix().as_bytes()));
        let mut revision = 0;
        while let Some(key) = from.take() {
            let page = self.page(key, revision, true).await?;
            revision = page.header.map_or(0, |h| h.revision as u64);
            from = page.kvs.last().filter(|_| page.more).map(|kv| next(&kv.key));
            let with_lease = page.kvs.iter().filter(|kv| kv.lease != 0);
            leased.extend(with_lease.map(|kv| (kv.mod_revision as u64, kv.lease)));
        }
        let now = u64::try_from(self.clock.now().as_millisecond()).unwrap_or(0);
        let mut ends = HashMap::new();
        for (_, lease) in &leased {
            if !ends.contains_key(lease) {
                let left = self.client.time_to_live(*lease).await?;
                ends.insert(*lease, now + u64::try_from(left.as_millis()).unwrap_or(0).max(1));
            }
        }
        Ok(leased.into_iter().filter_map(|(revision, lease)| Some((revision, *ends.get(&lease)?))).collect())
    }
}

async fn joined(task: tokio::task::JoinHandle<Result<State, EtcdOpenError>>) -> Result<State, EtcdOpenError> {
    task.await
        .unwrap_or_else(|e| Err(EtcdOpenError::Value(format!("reading the objects of etcd ended: {e}"))))
}
