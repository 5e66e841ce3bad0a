//! The records that the store writes: one file an image, one a root, one a layer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::image::Image;
use crate::root::IdMap;

/// The name of an unpacked layer, which is its directory's: of its content alone where it is the same whatever is
/// below it, else of its chain of layers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct LayerId(String);

impl LayerId {
    /// A layer of an image, by the digest of what its archive has.
    pub(crate) fn of_content(diff: &Digest) -> Self {
        Self(format!("{}-{}", diff.algorithm().name(), diff.hex()))
    }

    /// A layer of an artifact: an archive by its digest, a file by its name, too.
    pub(crate) fn of_artifact(file: Option<&str>, digest: &Digest) -> Self {
        let text = format!("{}\0{digest}", file.unwrap_or_default());
        Self(format!("artifact-{}", Digest::of(text.as_bytes()).hex()))
    }

    /// A layer that depends on those below it; the lowest first, itself last.
    pub(crate) fn of_chain(chain: &[LayerId]) -> Self {
        let names: Vec<&str> = chain.iter().map(|id| &*id.0).collect();
        Self(format!("chain-{}", Digest::of(names.join(" ").as_bytes()).hex()))
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LayerId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // It becomes a path.
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if plain { Ok(Self(text)) } else { Err(format!("{text:?} is no layer")) }
    }
}

impl From<LayerId> for String {
    fn from(id: LayerId) -> Self {
        id.0
    }
}

impl fmt::Display for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRef {
    /// The archive.
    pub digest: Digest,
    /// Its size.
    pub size: u64,
    /// The unpacked layer.
    pub layer: LayerId,
}

/// An unpacked layer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerInfo {
    /// The disk that it takes.
    pub bytes: u64,
    /// The inodes.
    pub inodes: u64,
    /// The attributes of the root directory, if its archive has them: mode, owner, group.
    pub root: Option<(u32, u32, u32)>,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The id.
    pub id: Digest,
    /// The names, with a tag or a digest, and when each was given: of two images with one name, which a crash may
    /// leave, the later counts.
    pub names: BTreeMap<String, u64>,
    /// The manifest.
    pub manifest: Digest,
    /// The index that named the manifest, and those that named the index.
    pub indexes: BTreeSet<Digest>,
    /// The configuration's content.
    pub configuration: Digest,
    /// The layers, the lowest first.
    pub layers: Vec<LayerRef>,
    /// The size of it all.
    pub size: u64,
    /// The configuration's user.
    pub user: String,
    /// The manifest's annotations.
    pub annotations: BTreeMap<String, String>,
    /// Whether it is an artifact.
    pub artifact: bool,
    /// Whether it is pinned.
    pub pinned: bool,
    /// The boot in which it was written, as long as it may not be on the disk: after another boot it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

impl Record {
    /// The facts for callers.
    pub(crate) fn image(&self) -> Image {
        let (digests, tags): (Vec<_>, Vec<_>) = self.names.keys().cloned().partition(|n| n.contains('@'));
        Image {
            id: self.id.clone(),
            tags,
            digests,
            size: self.size,
            pinned: self.pinned,
            user: self.user.clone(),
            annotations: self.annotations.clone(),
            artifact: self.artifact,
        }
    }

    /// Its manifest, indexes and configuration.
    pub(crate) fn documents(&self) -> Vec<Digest> {
        self.indexes.iter().chain([&self.manifest, &self.configuration]).cloned().collect()
    }

    /// All content that it has.
    pub(crate) fn content(&self) -> impl Iterator<Item = &Digest> {
        let layers = self.layers.iter().map(|l| &l.digest);
        self.indexes.iter().chain([&self.manifest, &self.configuration]).chain(layers)
    }
}

/// A root of a container, or a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RootRecord {
    /// The image.
    pub image: Digest,
    /// The layers, the topmost first.
    pub layers: Vec<LayerId>,
    /// The user namespace's ids.
    pub id_map: Option<IdMap>,
    /// Whether it is a read-only view.
    pub view: bool,
}
