//! Writes a whole store into an etcd that has none yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use bytes::Bytes;
use etcd::rpc::{PutRequest, RangeRequest};
use etcd::{Client, ConfigError, Error, prefix_end};
use futures::{StreamExt, TryStreamExt};

use super::keys::Keys;
use super::{CodecError, EtcdConfig};
use crate::engine::View;
use crate::store::WriteError;

/// The number of concurrent writes.
const WRITES: usize = 128;
/// The greatest number of revisions by which a migration raises etcd's: each costs a write.
const MAX_RAISE: u64 = 20_000_000;

/// The reason for which a store was not moved. Each sentence tells the remedy.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// etcd failed.
    #[error(transparent)]
    Etcd(#[from] Error),
    /// The old store cannot be read.
    #[error("the store cannot be read: {0}")]
    Read(#[from] WriteError),
    /// An object has no form in etcd.
    #[error("{key} cannot be written to etcd: {source}")]
    Object {
        /// The object's key.
        key: String,
        /// The reason.
        source: CodecError,
    },
    /// etcd holds keys already.
    #[error(
        "etcd holds {0} keys below {1}: move into an empty one (`etcdctl del --prefix {1}` empties it), or choose another --etcd-prefix"
    )]
    NotEmpty(u64, String),
    /// The revisions are too far apart.
    #[error(
        "the store is at revision {from} and etcd at {to}, and each step between them would cost a write: save a \
         snapshot of that etcd, restore it with `etcdutl snapshot restore --bump-revision {} --mark-compacted`, \
         and run this again", from - to
    )]
    TooFar {
        /// The old store's revision.
        from: u64,
        /// etcd's.
        to: u64,
    },
}

/// The result of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The number of objects.
    pub objects: u64,
    /// The revision of the old store.
    pub from: u64,
    /// The revision of the new store; changes before it can't be watched.
    pub to: u64,
}

/// Writes everything, at revisions above those of the old store.
pub(crate) async fn fill(view: View, config: EtcdConfig) -> Result<Migrated, MigrateError> {
    let client = Client::new(&config.servers)?;
    let keys = Keys::new(&config.prefix, config.codec.placements());
    let prefix = Bytes::copy_from_slice(keys.prefix().as_bytes());
    let all =
        RangeRequest { range_end: prefix_end(&prefix), key: prefix, count_only: true, ..Default::default() };
    let found = client.range(all).await?.count;
    if found > 0 {
        return Err(MigrateError::NotEmpty(found as u64, keys.prefix().to_owned()));
    }
    raise(&client, &keys, view.revision).await?;
    let now = u64::try_from(config.clock.now().as_millisecond()).unwrap_or(0);
    let leases = leases(&client, &view, now).await?;
    let mut objects = 0;
    for (group, plural, live) in &view.resources {
        let writes = live.after(None).map(|(_, object)| {
            let key = keys.object(group, plural, &object.data.namespace, &object.data.name);
            let end = view.expiries.get(&object.revision);
            let lease = end.and_then(|at| leases.get(&at.div_ceil(60_000))).copied().unwrap_or(0);
            let (client, codec) = (&client, &config.codec);
            async move {
                let failed =
                    |source| MigrateError::Object { key: String::from_utf8_lossy(&key).into_owned(), source };
                if let Some(prepared) = codec.prepare_write(group, plural) {
                    prepared.await.map_err(failed)?;
                }
                let value = codec.encode(group, plural, &key, &object.data).map_err(failed)?;
                Ok::<_, MigrateError>(client.put(PutRequest { key, value, lease }).await?)
            }
        });
        let mut writes = futures::stream::iter(writes).buffer_unordered(WRITES);
        while writes.try_next().await?.is_some() {
            objects += 1;
        }
    }
    let to = client.revision(keys.health()).await?;
    client.compact(to).await?;
    Ok(Migrated { objects, from: view.revision, to })
}

/// Raises etcd's revision: with writes, for etcd counts nothing else.
async fn raise(client: &Client, keys: &Keys, revision: u64) -> Result<(), MigrateError> {
    let now = client.revision(keys.health()).await?;
    let missing = revision.saturating_sub(now);
    if missing > MAX_RAISE {
        return Err(MigrateError::TooFar { from: revision, to: now });
    }
    let scratch = keys.server("migration");
    let put = || client.put(PutRequest { key: scratch.clone(), value: Bytes::new(), lease: 0 });
    let mut puts = futures::stream::iter((0..missing).map(|_| put())).buffer_unordered(WRITES);
    while puts.try_next().await?.is_some() {}
    drop(puts);
    if missing > 0 {
        client.delete(etcd::rpc::DeleteRangeRequest { key: scratch, range_end: Bytes::new() }).await?;
    }
    Ok(())
}

/// Makes a lease for every minute in which objects expire.
async fn leases(client: &Client, view: &View, now: u64) -> Result<HashMap<u64, i64>, Error> {
    let mut leases = HashMap::new();
    for (_, at) in &view.expiries {
        let minute = at.div_ceil(60_000);
        if let Entry::Vacant(lease) = leases.entry(minute) {
            let left = Duration::from_millis((minute * 60_000).saturating_sub(now));
            lease.insert(client.grant(left).await?);
        }
    }
    Ok(leases)
}
