//! Metadata as the garbage collector reads them of each object.

use api::Status;
use client::json::or_default;
use client::{Cached, Identity};
use compact_str::CompactString as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The finalizer of an object whose dependents are freed before it goes.
pub const ORPHAN: &str = "orphan";
/// The finalizer of an object that waits for the deletion of its dependents.
pub const FOREGROUND: &str = "foregroundDeletion";

/// The fields of an object's metadata that tell who it is and on whom it depends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Meta {
    /// Namespace, "" for none.
    pub namespace: Text,
    /// Name.
    pub name: Text,
    /// Uid.
    pub uid: Text,
    /// Resource version.
    pub resource_version: Text,
    /// Owners.
    pub owners: Box<[OwnerReference]>,
    /// Whether the object's deletion has begun.
    pub deleting: bool,
    /// Whether the object has the finalizer [`ORPHAN`].
    pub orphan: bool,
    /// Whether the object has the finalizer [`FOREGROUND`].
    pub foreground: bool,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default, deserialize_with = "or_default")]
    metadata: Wire,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Wire {
    #[serde(deserialize_with = "or_default")]
    pub(super) namespace: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) name: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) uid: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) resource_version: Text,
    pub(super) owner_references: Option<Vec<OwnerReference>>,
    pub(super) deletion_timestamp: Option<IgnoredAny>,
    pub(super) finalizers: Option<Vec<Text>>,
}

impl From<Wire> for Meta {
    fn from(wire: Wire) -> Self {
        let has = |name: &str| wire.finalizers.iter().flatten().any(|f| f == name);
        Self {
            orphan: has(ORPHAN),
            foreground: has(FOREGROUND),
            namespace: wire.namespace,
            name: wire.name,
            uid: wire.uid,
            resource_version: wire.resource_version,
            owners: wire.owner_references.unwrap_or_default().into(),
            deleting: wire.deletion_timestamp.is_some(),
        }
    }
}

impl Meta {
    /// Whether the object's deletion waits for its dependents' deletion.
    pub fn waits_for_dependents(&self) -> bool {
        self.deleting && self.foreground
    }
    /// The reference to the object's managing controller.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owners.iter().find(|r| r.controller == Some(true))
    }
}

impl Cached for Meta {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        let document: Document =
            serde_json::from_slice(json).map_err(|e| Status::internal(format_args!("no metadata: {e}")))?;
        Ok(document.metadata.into())
    }
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_of_an_object() {
        let json = br#"{"kind":"Pod","metadata":{"name":"a","uid":"u","resourceVersion":"7",
            "deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x","foregroundDeletion"]},"spec":{"a":[1]}}"#;
        let m = Meta::decode(json).unwrap();
        assert!(m.waits_for_dependents() && !m.orphan && m.namespace.is_empty());
        assert!(Meta::decode(b"{}").is_ok());
        assert!(Meta::decode(b"[").is_err());
    }
}
