//! The seam to who knows kinds: the store itself decodes nothing.

use api::{NewObject, Text};
use bytes::Bytes;
use futures::future::BoxFuture;

/// Where the objects of a resource are in etcd, below the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Group, "" for the core group.
    pub group: Text,
    /// Plural name.
    pub plural: Text,
    /// What its keys begin with, without slashes around it: `services/specs`.
    pub path: String,
}

/// A value that cannot be read or written; one sentence.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub struct CodecError {
    /// The sentence.
    pub why: String,
    /// What is wrong is how it is encrypted, not what it says.
    pub sealed: bool,
}

impl CodecError {
    /// What it says is wrong.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), sealed: false }
    }
}

/// Translates between the store's objects and the values that upstream keeps in etcd.
pub trait Codec: Send + Sync + 'static {
    /// Every built-in resource, served or not. What is in no list is a custom resource if its key begins
    /// with a group's name, and left alone otherwise.
    fn placements(&self) -> Vec<Placement>;

    /// The value of an object at a key.
    fn encode(&self, group: &str, plural: &str, key: &[u8], object: &NewObject) -> Result<Bytes, CodecError>;

    /// Fetches what it takes to decode a value and must be waited for, as a key that another process has; `None` if
    /// that is nothing. An error says that it cannot be fetched now; what can never be, decoding tells.
    fn prepare<'a>(
        &'a self,
        group: &str,
        plural: &str,
        value: &'a [u8],
    ) -> Option<BoxFuture<'a, Result<(), CodecError>>> {
        let _ = (group, plural, value);
        None
    }

    /// Fetches what it takes to encode one value and must be waited for; `None` if that is nothing.
    fn prepare_write(&self, group: &str, plural: &str) -> Option<BoxFuture<'_, Result<(), CodecError>>> {
        let _ = (group, plural);
        None
    }

    /// The object of a value at a key. Its stamp differs from that of new objects exactly if encoding it gives
    /// another value: then also an update that changes nothing is written.
    fn decode(&self, group: &str, plural: &str, key: &[u8], value: &[u8]) -> Result<NewObject, CodecError>;
}
