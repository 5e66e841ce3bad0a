//! The revisioned object store: one MVCC index that owns every object, and engines that only load and commit.
//!
//! Depends on `api` and `component`. It must never decode an object: it sees the envelope and bytes.

mod facade;
pub mod store;

pub use facade::{OpenError, Scan, Snapshot, Store, StoreConfig, WatchOptions, Watcher};
pub use store::{
    Batch, Cause, Compacted, Event, ResourceId, ResourceSpec, Scope, WatchEnd, WatchStart, Write, WriteError,
};
