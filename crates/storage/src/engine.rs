//! What keeps a store of this process alone: an engine loads and commits; it answers no reads.

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
