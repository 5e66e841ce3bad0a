//! The backend of a store: it takes writes and publishes them in the index.
//!
//! A store has one [`Backend`]. That of a store of this process alone is the writer, over a local
//! [`Engine`](crate::engine::Engine); a backend that shares its data with other processes decides and numbers writes
//! elsewhere.

use std::sync::Arc;
use std::time::Duration;

use ::etcd::Error;
use api::{Object, Text};
use futures::future::BoxFuture;

use crate::engine::View;
use crate::etcd::Servers;
use crate::store::{ResourceId, Scope, Unreadable, Write, WriteError};

/// The reason for which a read may not show the newest state.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// etcd did not tell its revision.
    #[error(transparent)]
    Etcd(#[from] Error),
    /// The index did not reach the revision of the resource in time.
    #[error("the watch on etcd is behind: want revision {wanted}, have {current}")]
    Behind {
        /// etcd's revision.
        wanted: u64,
        /// The revision of the resource in the index.
        current: u64,
    },
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}

/// Takes the writes of a store, and publishes their results in the index.
pub(crate) trait Backend: Send + Sync {
    /// Makes a change; resolves when it is durable and shown in the index.
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Object>, WriteError>>;

    /// Returns the whole state at one revision.
    fn view(&self) -> BoxFuture<'_, Result<View, WriteError>>;

    /// Whether the backend takes writes; the reason if not.
    fn healthy(&self) -> Result<(), String>;

    /// Asks whoever has the data whether it answers.
    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(self.healthy()))
    }

    /// Called when the first watcher came that wants to hear of progress.
    fn nudge(&self);

    /// Takes no more writes; resolves when the writes taken before are done and the watchers of the index have ended.
    fn close(self: Arc<Self>) -> BoxFuture<'static, ()>;

    /// The abilities of the backend. The methods below are called only where it has the ability.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Begins to show the writes of other servers to a resource.
    fn follow_resource(self: Arc<Self>, _: ResourceId) {}

    /// Resolves once the index shows every write to these resources that was acknowledged before this call.
    fn fresh<'a>(&'a self, _: &'a [ResourceId]) -> BoxFuture<'a, Result<(), ReadError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Waits until the index shows this revision of a resource; returns whether it does within the time.
    fn wait_for(&self, _: ResourceId, _: u64, _: Duration) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Compacts the history at every interval, in agreement with the other servers.
    fn compact_every(self: Arc<Self>, _: Duration) {}

    /// The API servers that share the store.
    fn servers(self: Arc<Self>) -> Option<Servers> {
        None
    }

    /// Returns a value of a scope that was written after a revision and cannot be read.
    fn unreadable(&self, _: ResourceId, _: &Scope, _: u64) -> Option<Arc<Unreadable>> {
        None
    }

    /// Returns the values of a scope that cannot be read, at most so many.
    fn all_unreadable(&self, _: ResourceId, _: &Scope, _: usize) -> Vec<Arc<Unreadable>> {
        Vec::new()
    }

    /// Deletes a value without reading it, if it is still of a revision. A backend that keeps bytes without decoding
    /// them deletes the value like any other.
    fn delete_unreadable(
        &self,
        resource: ResourceId,
        namespace: Text,
        name: Text,
        expect: u64,
    ) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(
            async move { self.commit(Write::Delete { resource, namespace, name, expect }).await.map(|_| ()) },
        )
    }
}

/// The abilities of a store besides keeping objects; a store that this process alone keeps has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether other servers write to the same data, so that the store may be behind them.
    pub others_write: bool,
    /// Whether the store itself finds the values that cannot be read; otherwise they show when an object is decoded.
    pub finds_unreadable: bool,
    /// Whether errors are those of another program, in its own words.
    pub foreign_errors: bool,
}
