//! Manifests, indexes and image configurations: OCI's and Docker's schema 2. Pure.

use std::collections::BTreeMap;

use oci_spec::image::ImageConfiguration;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::digest::Digest;
use crate::settings::Platform;

/// The largest manifest or index.
pub const MAX_MANIFEST: u64 = 4 << 20;
/// The largest configuration of an image.
pub const MAX_CONFIGURATION: u64 = 8 << 20;
/// The most layers of an image. overlayfs takes 500; more than this is no image that somebody built.
pub const MAX_LAYERS: usize = 128;

const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const SCHEMA_1: &str = "application/vnd.docker.distribution.manifest.v1";
const OCI_CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const DOCKER_CONFIGURATION: &str = "application/vnd.docker.container.image.v1+json";

/// The documents that a registry is asked for.
pub const ACCEPT: &str = "application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, */*";

/// A document that is no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidManifest {
    /// It is not well formed.
    #[error("the manifest is invalid: {0}")]
    Form(String),
    /// Docker's schema 1, which has no layers' digests worth trusting.
    #[error("its manifest is Docker's schema 1, which is not supported: push it again with a newer tool")]
    Schema1,
    /// A bound is exceeded.
    #[error("the image has {0} layers, more than the {MAX_LAYERS} that are allowed")]
    TooManyLayers(usize),
}

fn form(fault: impl Into<String>) -> InvalidManifest {
    InvalidManifest::Form(fault.into())
}

/// A piece of content, as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type; empty if there is none.
    #[serde(default, deserialize_with = "or_default")]
    pub media_type: String,
    /// The digest.
    pub digest: Digest,
    /// The size in bytes.
    pub size: u64,
    /// Annotations.
    #[serde(default, deserialize_with = "or_default")]
    pub annotations: BTreeMap<String, String>,
    /// The platform, in an index.
    #[serde(default)]
    platform: Option<PlatformText>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct PlatformText {
    #[serde(default, deserialize_with = "or_default")]
    os: String,
    #[serde(default, deserialize_with = "or_default")]
    architecture: String,
    #[serde(default, deserialize_with = "or_default")]
    variant: String,
}

impl Descriptor {
    /// A descriptor with nothing but what is needed to fetch it.
    pub fn plain(media_type: &str, digest: Digest, size: u64) -> Self {
        Self { media_type: media_type.to_owned(), digest, size, annotations: BTreeMap::new(), platform: None }
    }

    /// The platform, if the descriptor has one.
    pub fn platform(&self) -> Option<Platform> {
        self.platform.as_ref().map(|p| Platform::new(&p.os, &p.architecture, &p.variant))
    }

    /// Whether it is the configuration of an image, not of an artifact.
    pub fn is_configuration(&self) -> bool {
        matches!(&*self.media_type, OCI_CONFIGURATION | DOCKER_CONFIGURATION)
    }

    /// How a layer's content becomes files. `None`: it is encrypted, or says that it is something else.
    pub fn content(&self) -> Content {
        let base = self.media_type.split('+').next().unwrap_or_default();
        let archive = matches!(
            base,
            "application/vnd.oci.image.layer.v1.tar"
                | "application/vnd.oci.image.layer.nondistributable.v1.tar"
                | "application/vnd.docker.image.rootfs.diff.tar"
                | "application/vnd.docker.image.rootfs.diff.tar.gzip"
                | "application/vnd.docker.image.rootfs.diff.tar.zstd"
                | "application/vnd.docker.image.rootfs.foreign.diff.tar"
                | "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
        );
        if archive && self.media_type.contains("+encrypted") {
            return Content::Encrypted;
        }
        // ORAS marks a directory that it has packed.
        let packed = self.annotations.get("io.deis.oras.content.unpack").is_some_and(|v| v == "true");
        if archive || packed {
            return Content::Archive;
        }
        Content::File(self.annotations.get("org.opencontainers.image.title").cloned().unwrap_or_default())
    }
}

/// How a layer's content becomes files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A tar, compressed or not.
    Archive,
    /// One file of this name; without a name, its digest's.
    File(String),
    /// An archive that is encrypted.
    Encrypted,
}

/// A manifest: of an image, or of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The configuration.
    pub configuration: Descriptor,
    /// The layers, the lowest first.
    pub layers: Vec<Descriptor>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A document that a registry has under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    /// A manifest.
    Manifest(Manifest),
    /// An index of manifests.
    Index(Vec<Descriptor>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    schema_version: Option<u32>,
    #[serde(default, deserialize_with = "or_default")]
    media_type: String,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    fs_layers: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    annotations: BTreeMap<String, String>,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// Reads a document. `media_type` is what the registry or the descriptor says that it is; it may say nothing.
pub fn parse(media_type: &str, bytes: &[u8]) -> Result<Document, InvalidManifest> {
    if bytes.len() as u64 > MAX_MANIFEST {
        return Err(form("it is larger than 4 MiB"));
    }
    let told = media_type.split(';').next().unwrap_or_default().trim();
    if told.starts_with(SCHEMA_1) {
        return Err(InvalidManifest::Schema1);
    }
    let raw: Raw = serde_json::from_slice(bytes).map_err(|e| form(e.to_string()))?;
    if raw.schema_version == Some(1) || raw.fs_layers.is_some() || raw.media_type.starts_with(SCHEMA_1) {
        return Err(InvalidManifest::Schema1);
    }
    let known = |t: &str| matches!(t, OCI_MANIFEST | OCI_INDEX | DOCKER_MANIFEST | DOCKER_LIST);
    if known(told) && known(&raw.media_type) && told != raw.media_type {
        return Err(form(format!("it is sent as {told}, but says that it is {}", raw.media_type)));
    }
    // A document that is both would be read in one way by some and in another by others.
    if raw.manifests.is_some() && (raw.config.is_some() || raw.layers.is_some()) {
        return Err(form("it has manifests, and a configuration or layers too"));
    }
    let kind = [told, &*raw.media_type].into_iter().find(|t| known(t));
    let is_index = match kind {
        Some(kind) => matches!(kind, OCI_INDEX | DOCKER_LIST),
        None => raw.manifests.is_some(),
    };
    if is_index {
        return Ok(Document::Index(raw.manifests.unwrap_or_default()));
    }
    let configuration = raw.config.ok_or_else(|| form("it has no configuration"))?;
    let layers = raw.layers.unwrap_or_default();
    if layers.len() > MAX_LAYERS {
        return Err(InvalidManifest::TooManyLayers(layers.len()));
    }
    Ok(Document::Manifest(Manifest { configuration, layers, annotations: raw.annotations }))
}

/// The manifests of an index that may be this platform's, the best first. If the index names the platform, that one
/// alone; else those that name none, whose configurations tell.
pub fn candidates<'a>(platform: &Platform, index: &'a [Descriptor]) -> Vec<&'a Descriptor> {
    let runs = platform.runs();
    let ranked = index.iter().filter_map(|entry| {
        let place = runs.iter().position(|p| Some(p) == entry.platform().as_ref())?;
        Some((place, entry))
    });
    match ranked.min_by_key(|(place, _)| *place) {
        Some((_, best)) => vec![best],
        None => index.iter().filter(|entry| entry.platform.is_none()).collect(),
    }
}

/// Reads an image's configuration, and checks it against its manifest.
pub fn configuration(bytes: &[u8], layers: usize) -> Result<ImageConfiguration, InvalidManifest> {
    let configuration = read_configuration(bytes)?;
    let names = configuration.rootfs().diff_ids();
    if names.len() != layers {
        return Err(form(format!("the configuration has {} layers, the manifest {layers}", names.len())));
    }
    if let Some(bad) = names.iter().find(|n| n.parse::<Digest>().is_err()) {
        return Err(form(format!("the configuration names a layer {bad:?}")));
    }
    Ok(configuration)
}

/// Reads an image's configuration.
pub fn read_configuration(bytes: &[u8]) -> Result<ImageConfiguration, InvalidManifest> {
    if bytes.len() as u64 > MAX_CONFIGURATION {
        return Err(form("the configuration is larger than 8 MiB"));
    }
    let odd = |e: serde_json::Error| form(format!("the configuration: {e}"));
    let mut value: Value = serde_json::from_slice(bytes).map_err(odd)?;
    // Builders write null for what an image does not have.
    without_null(&mut value);
    let Value::Object(fields) = &mut value else { return Err(form("the configuration is no object")) };
    for (key, default) in [("os", "linux"), ("architecture", "")] {
        fields.entry(key).or_insert_with(|| default.into());
    }
    let root = fields.entry("rootfs").or_insert_with(|| serde_json::json!({}));
    if let Value::Object(root) = root {
        root.entry("type").or_insert_with(|| "layers".into());
        root.entry("diff_ids").or_insert_with(|| Value::Array(Vec::new()));
    }
    serde_json::from_value(value).map_err(odd)
}

fn without_null(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(without_null);
        }
        Value::Array(list) => {
            list.retain(|v| !v.is_null());
            list.iter_mut().for_each(without_null);
        }
        _ => {}
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
