//! The revisioned object store: one MVCC index that owns every object, and engines that only load and commit.
//!
//! Depends on `api` and `component`. It must never decode an object: it sees the envelope and bytes.

pub mod store;

pub use store::{Cause, Event, ResourceId, ResourceSpec, Scope, WatchStart, Write, WriteError};
