//! The interface to the code that knows kinds: the store itself decodes nothing.

use api::{NewObject, Text};
use bytes::Bytes;
use futures::future::BoxFuture;

/// The place of the objects of a resource in etcd, below the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Group, "" for the core group.
    pub group: Text,
    /// Plural name.
    pub plural: Text,
    /// The start of its keys, without slashes around it: `services/specs`.
    pub path: String,
}

/// A value that cannot be read or written; one sentence.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub struct CodecError {
    /// The sentence.
    pub why: String,
    /// Whether the fault is in the value's encryption, not in its content.
    pub sealed: bool,
}

impl CodecError {
    /// An error in the content of a value.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), sealed: false }
    }
}

/// Translates between the store's objects and the values that upstream keeps in etcd.
pub trait Codec: Send + Sync + 'static {
    /// Every built-in resource, served or not. A key of a resource that is not in the list is a custom resource's if it
    /// begins with a group's name, and is left alone otherwise.
    fn placements(&self) -> Vec<Placement>;

    /// The value of an object at a key.
    fn encode(&self, group: &str, plural: &str, key: &[u8], object: &NewObject) -> Result<Bytes, CodecError>;

    /// Fetches data that must be waited for before a value can be decoded, such as a key that another process has;
    /// `None` if nothing is needed. An error says that it cannot be fetched now; if it never can be, decoding fails.
    fn prepare<'a>(
        &'a self,
        group: &str,
        plural: &str,
        value: &'a [u8],
    ) -> Option<BoxFuture<'a, Result<(), CodecError>>> {
        let _ = (group, plural, value);
        None
    }

    /// Fetches data that must be waited for before a value can be encoded; `None` if nothing is needed.
    fn prepare_write(&self, group: &str, plural: &str) -> Option<BoxFuture<'_, Result<(), CodecError>>> {
        let _ = (group, plural);
        None
    }

    /// The object of a value at a key. Its stamp differs from that of new objects exactly if encoding it gives
    /// another value: then also an update that changes nothing is written.
    fn decode(&self, group: &str, plural: &str, key: &[u8], value: &[u8]) -> Result<NewObject, CodecError>;
}
