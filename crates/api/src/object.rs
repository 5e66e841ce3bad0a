//! Objects at rest: bytes with a small parsed envelope.

use bytes::{BufMut, Bytes, BytesMut};

use crate::tree::Text;

/// A reference to an owner, as the garbage collector and field managers read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRef {
    /// The owner's API version.
    pub api_version: Text,
    /// The owner's kind.
    pub kind: Text,
    /// The owner's name.
    pub name: Text,
    /// The owner's uid.
    pub uid: Text,
    /// Whether the owner is the managing controller.
    pub controller: bool,
    /// Whether foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

/// An object that is not stored yet: everything but its revision.
#[derive(Debug, Clone)]
pub struct NewObject {
    /// Name.
    pub name: Text,
    /// Namespace, "" for objects of the cluster.
    pub namespace: Text,
    /// uid.
    pub uid: Text,
    /// Labels, sorted by key.
    pub labels: Box<[(Text, Text)]>,
    /// Owner references.
    pub owners: Box<[OwnerRef]>,
    /// The values of the fields that selectors may name, in the order in which its resource declares them.
    pub fields: Box<[Text]>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Whether `metadata.finalizers` is not empty.
    pub finalizers: bool,
    /// The schema under which the object was written; under another one it must be read anew.
    pub stamp: u32,
    /// The JSON in normal form: from `{`, without `kind` and `apiVersion`, and with an empty string as
    /// `metadata.resourceVersion` (`"resourceVersion":""`), always present.
    pub body: Bytes,
    /// The offset in `body` at which the digits of the resourceVersion belong (between the quotes).
    pub rv_at: u32,
}

/// A stored object: immutable, shared.
#[derive(Debug, Clone)]
pub struct Object {
    /// The stored data.
    pub data: NewObject,
    /// The revision of the write that made the object: its resourceVersion.
    pub revision: u64,
}

impl Object {
    /// Appends the object's JSON with kind and API version: `{"kind":"Pod","apiVersion":"v1","metadata":…}`.
    ///
    /// `type_meta` is `"kind":"Pod","apiVersion":"v1",`, made once per kind and version, or empty for the items of a
    /// list of a built-in kind.
    pub fn write_json(&self, type_meta: &[u8], out: &mut BytesMut) {
        let at = self.data.rv_at as usize;
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(self.revision).as_bytes();
        out.reserve(self.data.body.len() + type_meta.len() + digits.len());
        out.put_u8(b'{');
        out.put_slice(type_meta);
        out.put_slice(&self.data.body[1..at]);
        out.put_slice(digits);
        out.put_slice(&self.data.body[at..]);
    }
    /// The object's JSON as one buffer; see [`Object::write_json`].
    pub fn json(&self, type_meta: &[u8]) -> Bytes {
        let mut out = BytesMut::new();
        self.write_json(type_meta, &mut out);
        out.freeze()
    }
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.data
            .labels
            .binary_search_by(|l| l.0.as_str().cmp(key))
            .ok()
            .map(|i| self.data.labels[i].1.as_str())
    }
}
