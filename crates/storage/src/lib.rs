//! The revisioned object store: one MVCC index that owns every object, and engines that only load and commit.
//!
//! - `view`, `history`, `watch`, `index`: the index. Readers take snapshots without a lock; watchers are routed to by
//!   namespace, name and indexed field. Backends publish durable changes there.
//! - `writer`: the one thread that checks, numbers, commits and publishes writes to a local engine.
//! - `engine`: the interface of engines; `log`: the embedded one; `quota`: the limit of its size.
//! - `etcd`: the index over an etcd that several API servers share, in upstream's layout.
//!
//! The crate depends on `api`, `component` and, for its client, `etcd`. It must never decode an object: it sees the
//! envelope and bytes. No reader and no watcher may see a revision before it is durable; the meaning of durable is
//! [`Durability`].

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
/// The addresses of an etcd, and the files for its TLS.
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
