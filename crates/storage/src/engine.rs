//! The engine that keeps the data of a store of this process alone: it loads and commits, and answers no reads.

use std::sync::Arc;
use std::time::Instant;

use api::{Object, Text};
use imbl::OrdMap;

use crate::view::Live;

/// One change, as an engine keeps it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    pub(crate) group: Text,
    pub(crate) plural: Text,
    pub(crate) revision: u64,
    pub(crate) change: Change,
}

/// The change that a record makes.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// Stores an object, which expires at a time in milliseconds since 1970 (0: never).
    Put { object: Arc<Object>, expires: u64 },
    /// Deletes an object.
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
    /// The times at which objects expire, by the objects' revisions.
    pub(crate) expiries: OrdMap<u64, u64>,
}

/// The reason for which a batch is not durable; one sentence.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CommitError(pub(crate) Arc<str>);

/// Makes changes durable on this machine.
pub(crate) trait Engine: Send {
    /// Makes a batch durable before it returns. After an error nothing of the batch counts, and the next batch is tried
    /// anew.
    fn commit(&mut self, batch: &[Record]) -> Result<(), CommitError>;

    /// Called after each batch; `view` gives the state after it, from which an engine may bound the data that it keeps.
    fn maintain(&mut self, view: &mut dyn FnMut() -> View);

    /// The time at which [`Engine::tick`] is to be called.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Does the work that is due by now; [`Engine::maintain`] follows.
    fn tick(&mut self) {}

    /// Ends the work in the background. Nothing is committed after this.
    fn close(&mut self);
}

/// An engine that keeps no data.
#[derive(Debug)]
pub(crate) struct Forget;

impl Engine for Forget {
    fn commit(&mut self, _: &[Record]) -> Result<(), CommitError> {
        Ok(())
    }
    fn maintain(&mut self, _: &mut dyn FnMut() -> View) {}
    fn close(&mut self) {}
}
