//! The revisioned object store: one MVCC index that owns every object, and engines that only load and commit.
//!
//! - `view`, `history`, `watch`, `index`: the index. Readers take snapshots without a lock; watchers are
//!   routed to by namespace, name and indexed field. Whoever makes changes durable publishes them there.
//! - `writer`: the one thread that checks, numbers, commits and publishes writes to a local engine.
//! - `engine`: what an engine is; `log`: the embedded one; `quota`: how much may be in it.
//! - `etcd`: the index over an etcd that several API servers share, in upstream's layout.
//!
//! Depends on `api`, `component` and, for its client, `etcd`. It must never decode an object: it sees the envelope and bytes. No
//! reader and no watcher may see a revision before it is durable; what durable means is [`Durability`].

mod backend;
mod durability;
mod engine;
mod etcd;
mod facade;
mod history;
mod index;
mod inline;
mod log;
mod quota;
pub mod store;
mod view;
mod watch;
mod writer;

pub use self::etcd::{
    Codec, CodecError, EtcdConfig, EtcdOpenError, MigrateError, Migrated, Placement, Servers,
};
/// Where an etcd is, and with what files to speak to it.
pub use ::etcd::Config as EtcdServers;
pub use backend::{Capabilities, ReadError};
pub use durability::Durability;
pub use facade::{Store, StoreConfig};
pub use log::{Backup, BackupError, BackupInfo, OpenError, inspect, restore};
pub use quota::{DEFAULT_QUOTA, Usage};
pub use store::{
    Batch, Cause, Compacted, Event, ResourceId, ResourceSpec, Scope, Unreadable, WatchEnd, WatchStart, Write,
    WriteError,
};
pub use view::{Scan, Snapshot};
pub use watch::{WatchOptions, Watcher};
