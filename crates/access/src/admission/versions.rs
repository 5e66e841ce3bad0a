//! The versions of a request's resource: how a plugin gets an object of the request in another version, and back.

use api::{Gvk, Node, Schema, Struct, Text};

use crate::auth::Eventual;

/// A resource in one version, and the kind that a request for it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equivalent {
    /// Group of the resource.
    pub group: Text,
    /// Version of the resource.
    pub version: Text,
    /// Plural name of the resource.
    pub resource: Text,
    /// The kind of the resource's objects, or of the subresource's, which may be of another group.
    pub kind: Gvk,
}

/// The versions of a request's resource, and conversions between them. They are those that were served when the request came.
pub trait Versions: Send + Sync {
    /// The schema of the trees of the request.
    fn schema(&self) -> &Schema;
    /// The resources that have the same objects as the request's, itself among them, if they have its subresource:
    /// upstream's `EquivalentResourceMapper`.
    fn equivalents(&self) -> Vec<Equivalent>;
    /// Converts a tree between two kinds of [`Versions::equivalents`], or between one of them and the kind of the
    /// request's tree. The error is a text.
    fn convert<'a>(
        &'a self,
        tree: Struct,
        from: &'a Gvk,
        to: &'a Gvk,
    ) -> Eventual<'a, Result<Struct, String>>;
    /// The tree of a value of a kind: without fields that its schema lacks, which are an error if it is to be strict,
    /// and with defaults. The error is a text.
    fn tree(&self, kind: &Gvk, value: Node, strict: bool) -> Result<Struct, String>;
    /// The value of a tree as clients see it, with its kind and API version.
    fn value(&self, kind: &Gvk, tree: &Struct) -> Node {
        let mut value = api::codec::json::to_any(self.schema(), tree);
        if let Some(map) = value.as_map_mut() {
            map.insert("kind", kind.kind.clone());
            map.insert("apiVersion", kind.api_version());
        }
        value
    }
}
