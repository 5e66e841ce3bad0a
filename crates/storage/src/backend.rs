//! What takes the writes of a store and publishes them in the index.
//!
//! A store has one [`Backend`]. That of a store of this process alone is the writer, over a local
//! [`Engine`](crate::engine::Engine); one that shares its data with other processes decides and numbers writes elsewhere.

use std::sync::Arc;
use std::time::Duration;

use ::etcd::Error;
use api::{Object, Text};
use futures::future::BoxFuture;

use crate::engine::View;
use crate::etcd::Servers;
use crate::store::{ResourceId, Scope, Unreadable, Write, WriteError};

/// Why a read is not known to be of the newest state.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// etcd did not tell its revision.
    #[error(transparent)]
    Etcd(#[from] Error),
    /// The resource did not get there in time.
    #[error("the watch on etcd is behind: want revision {wanted}, have {current}")]
    Behind {
        /// etcd's revision.
        wanted: u64,
        /// The resource's.
        current: u64,
    },
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}

/// Takes the writes of a store, and publishes in the index what became of them.
pub(crate) trait Backend: Send + Sync {
    /// Makes a change; resolves when it is durable and shown in the index.
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Object>, WriteError>>;

    /// The whole state at one revision.
    fn view(&self) -> BoxFuture<'_, Result<View, WriteError>>;

    /// Whether it goes on; the reason if not.
    fn healthy(&self) -> Result<(), String>;

    /// The first watcher came that wants to hear of progress.
    fn nudge(&self);

    /// Takes no more writes; resolves when those taken are done and the watchers of the index have ended.
    fn close(self: Arc<Self>) -> BoxFuture<'static, ()>;

    /// What it does besides. The methods below are called only where it says so.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Begins to show what others write to a resource.
    fn follow_resource(self: Arc<Self>, _: ResourceId) {}

    /// Resolves once the index shows every write to these resources that was acknowledged before this call.
    fn fresh<'a>(&'a self, _: &'a [ResourceId]) -> BoxFuture<'a, Result<(), ReadError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Waits until the index shows this revision of a resource; whether it does within the time.
    fn wait_for(&self, _: ResourceId, _: u64, _: Duration) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Forgets the past at every interval, in agreement with the other servers.
    fn compact_every(self: Arc<Self>, _: Duration) {}

    /// The API servers that share the store.
    fn servers(self: Arc<Self>) -> Option<Servers> {
        None
    }

    /// A value of a scope that was written after a revision and cannot be read.
    fn unreadable(&self, _: ResourceId, _: &Scope, _: u64) -> Option<Arc<Unreadable>> {
        None
    }

    /// The values of a scope that cannot be read, at most so many.
    fn all_unreadable(&self, _: ResourceId, _: &Scope, _: usize) -> Vec<Arc<Unreadable>> {
        Vec::new()
    }

    /// Deletes a value without reading it, if it is still of a revision. Who keeps bytes needs not understand them.
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

/// What a store does besides keeping objects; nothing of it where this process alone keeps them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Others write to what the store shows, so that it may be behind them.
    pub others_write: bool,
    /// It knows by itself which values cannot be read; without, that shows when somebody decodes an object.
    pub finds_unreadable: bool,
    /// Its errors are another program's, which speaks for itself.
    pub foreign_errors: bool,
}
