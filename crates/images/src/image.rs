//! The facts of an image.

use std::collections::BTreeMap;

use crate::digest::Digest;

/// The result of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The image's id.
    pub id: Digest,
    /// The digest that the reference named: of an index, or of a manifest.
    pub digest: Digest,
    /// The reference in full, e.g. `docker.io/library/busybox:latest`.
    pub name: String,
}

/// An image of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The digest of its configuration; of an artifact that has none, the digest of its manifest.
    pub id: Digest,
    /// Its names with a tag, e.g. `docker.io/library/busybox:latest`; sorted.
    pub tags: Vec<String>,
    /// Its names with a digest, e.g. `docker.io/library/busybox@sha256:…`; sorted.
    pub digests: Vec<String>,
    /// The bytes of its manifest, configuration and layers as a registry has them (containerd's size of an image).
    pub size: u64,
    /// Whether garbage collection of the caller should leave it alone.
    pub pinned: bool,
    /// The user of its configuration: `user`, `uid`, with `:group` or without; empty if there is none.
    pub user: String,
    /// The annotations of its manifest.
    pub annotations: BTreeMap<String, String>,
    /// Whether it is an artifact, which has no configuration and can only be a volume.
    pub artifact: bool,
}
