//! What stands behind the index. An engine loads and commits; it answers no reads.
//!
//! A store has one [`Backend`]. That of a store of this process alone is the writer, over a local [`Engine`]; one
//! that shares its data with other processes decides and numbers writes elsewhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Object, Text};
use futures::future::BoxFuture;
use imbl::OrdMap;

use crate::etcd::{ReadError, Servers};
use crate::store::{ResourceId, Scope, Unreadable, Write, WriteError};
use crate::view::Live;

/// One change, as an engine keeps it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    pub(crate) group: Text,
    pub(crate) plural: Text,
    pub(crate) revision: u64,
    pub(crate) change: Change,
}

/// What a record does.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// The object is now this, until a time in milliseconds since 1970 (0: for good).
    Put { object: Arc<Object>, expires: u64 },
    /// The object is gone.
    Delete { namespace: Text, name: Text },
}

impl PartialEq for Change {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Put { object: a, expires: x }, Self::Put { object: b, expires: y }) => {
                x == y && a.revision == b.revision && a.data.body == b.data.body
            }
            (Self::Delete { namespace: a, name: x }, Self::Delete { namespace: b, name: y }) => {
                a == b && x == y
            }
            _ => false,
        }
    }
}

/// The whole state at a revision.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) revision: u64,
    pub(crate) resources: Vec<(Text, Text, Arc<Live>)>,
    /// When objects expire, by their revision.
    pub(crate) expiries: OrdMap<u64, u64>,
}

/// Why a batch is not durable; one sentence.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CommitError(pub(crate) Arc<str>);

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

/// Makes changes durable on this machine.
pub(crate) trait Engine: Send {
    /// Returns once the batch is durable. After an error nothing of it counts, and the next batch is
    /// tried anew.
    fn commit(&mut self, batch: &[Record]) -> Result<(), CommitError>;

    /// Called after each batch; `view` gives the state up to it, from which an engine may bound what it keeps.
    fn maintain(&mut self, view: &mut dyn FnMut() -> View);

    /// When [`Engine::tick`] is to be called.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Does what is due by now; [`Engine::maintain`] follows.
    fn tick(&mut self) {}

    /// Ends what goes on in the background. Nothing is committed after it.
    fn close(&mut self);
}

/// An engine that keeps nothing.
#[derive(Debug)]
pub(crate) struct Forget;

impl Engine for Forget {
    fn commit(&mut self, _: &[Record]) -> Result<(), CommitError> {
        Ok(())
    }
    fn maintain(&mut self, _: &mut dyn FnMut() -> View) {}
    fn close(&mut self) {}
}
