//! Archives of images: docker-archive, OCI layout, or both in one. Reading takes one pass over the archive, whose
//! files may come in any order: each becomes content of the store by its digest, and those that nobody names in the end are
//! garbage.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::digest::{Algorithm, Digest, Hasher};
use crate::error::{ArchiveError, StoreError};
use crate::image::Image;
use crate::layer::action::clean;
use crate::layer::decompress::decompress;
use crate::layer::tar::{Kind, Reader};
use crate::layer::tree::unique;
use crate::layer::{LayerError, Space};
use crate::manifest::{self, Descriptor, Document, Manifest};
use crate::pull::download::State;
use crate::pull::{Plan, record};
use crate::reference::Reference;
use crate::store::Store;
use crate::store::collect::Item;
use crate::store::files;
use crate::store::lease::Lease;
use crate::store::record::Record;
use crate::unpack::{UnpackError, unpack};

/// The most files of an archive.
const MAX_FILES: usize = 100_000;
/// The largest `index.json` or `manifest.json`.
const MAX_INDEX: u64 = manifest::MAX_MANIFEST;
const IMAGE_NAME: &str = "io.containerd.image.name";
const REF_NAME: &str = "org.opencontainers.image.ref.name";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

fn invalid(fault: impl Into<String>) -> ArchiveError {
    ArchiveError::Invalid(fault.into())
}

/// The contents of an archive.
#[derive(Default)]
struct Contents {
    /// Files by name.
    files: HashMap<Vec<u8>, (Digest, u64)>,
    /// Links by name.
    links: HashMap<Vec<u8>, Vec<u8>>,
}

impl Contents {
    fn file(&self, name: &str) -> Option<&(Digest, u64)> {
        let mut name = clean(name.as_bytes());
        for _ in 0..8 {
            if let Some(found) = self.files.get(&name) {
                return Some(found);
            }
            name = self.links.get(&name)?.clone();
        }
        None
    }
}

/// An entry of Docker's `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Option<Vec<String>>,
}

/// An import under way.
struct Import {
    store: Arc<Store>,
    lease: Lease,
    contents: Contents,
    pin: bool,
    /// The images, with the names that the archive has for them.
    done: Vec<(Digest, Vec<String>)>,
}

/// Imports an archive. It runs on a thread that may wait.
pub(crate) fn import(
    store: &Arc<Store>,
    archive: impl Read + Send,
    pin: bool,
) -> Result<Vec<Image>, ArchiveError> {
    let (store, lease) = (Arc::clone(store), Lease::new(store));
    let mut import = Import { store, lease, contents: Contents::default(), pin, done: Vec::new() };
    import.read(archive)?;
    let named = import.index()?;
    import.docker(named)?;
    if import.done.is_empty() {
        return Err(invalid(
            "it has neither an index.json nor a manifest.json that names an image of this platform",
        ));
    }
    import.store.sync()?;
    import.lease.done();
    let images = import.done.into_iter().filter_map(|(id, tags)| {
        let record = import.store.record_of(&id).ok()?;
        Some(Image { tags, ..record.image() })
    });
    Ok(images.collect())
}

impl Import {
    /// Takes all files of the archive into the store.
    fn read(&mut self, archive: impl Read + Send) -> Result<(), ArchiveError> {
        let source = decompress(BufReader::with_capacity(256 << 10, archive)).map_err(ArchiveError::Io)?;
        let mut reader = Reader::new(source);
        let broken = |e: io::Error| match e.kind() {
            io::ErrorKind::InvalidData => invalid(e.to_string()),
            _ => ArchiveError::Io(e),
        };
        while let Some(entry) = reader.next_entry().map_err(broken)? {
            let name = clean(&entry.name);
            match entry.kind {
                Kind::File => {
                    let found = self.take(&name, &mut reader)?;
                    self.contents.files.insert(name, found);
                }
                Kind::Link => {
                    self.contents.links.insert(name, clean(&entry.target));
                }
                Kind::Symlink => {
                    let directory = crate::layer::action::split(&name).0;
                    let target = [&*directory, b"/", &*entry.target].concat();
                    self.contents.links.insert(name, clean(&target));
                }
                _ => {}
            }
            if self.contents.files.len() + self.contents.links.len() > MAX_FILES {
                return Err(ArchiveError::TooLarge(format!("the archive has more than {MAX_FILES} files")));
            }
        }
        Ok(())
    }

    /// Takes one file as content: by the digest that its name has, else by SHA-256.
    fn take(&mut self, name: &[u8], source: &mut impl Read) -> Result<(Digest, u64), ArchiveError> {
        let text = String::from_utf8_lossy(name).into_owned();
        let told =
            text.strip_prefix("blobs/").and_then(|rest| rest.replacen('/', ":", 1).parse::<Digest>().ok());
        let path = self.store.ingest().join(format!("tmp-{}", unique()));
        let result = self.copy(&path, &text, told.as_ref(), source);
        if result.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        result
    }

    fn copy(
        &self,
        path: &std::path::Path,
        name: &str,
        told: Option<&Digest>,
        source: &mut impl Read,
    ) -> Result<(Digest, u64), ArchiveError> {
        let mut file = files::create(path).map_err(|e| self.disk(e))?;
        let mut space = Space::new(self.store.settings.limits.reserve_percent);
        let mut hasher = Hasher::new(told.map_or(Algorithm::Sha256, Digest::algorithm));
        let mut buffer = vec![0; 256 << 10];
        let mut size = 0;
        loop {
            let read = match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(invalid(e.to_string())),
                Err(e) => return Err(ArchiveError::Io(e)),
            };
            hasher.update(&buffer[..read]);
            file.write_all(&buffer[..read]).map_err(|e| self.disk(e))?;
            size += read as u64;
            if !space.take(&file, read as u64, 0).map_err(|e| self.disk(e.into()))? {
                return Err(ArchiveError::NoSpace(self.store.settings.root.clone()));
            }
        }
        let found = hasher.finish();
        if told.is_some_and(|told| *told != found) {
            return Err(invalid(format!("{name} has the digest {found}")));
        }
        self.lease.hold(Item::Blob(found.clone()));
        self.store.commit_blob(path, &found, size)?;
        Ok((found, size))
    }

    fn disk(&self, error: io::Error) -> ArchiveError {
        if crate::pull::fetch::is_full(&error) {
            return ArchiveError::NoSpace(self.store.settings.root.clone());
        }
        StoreError::Io { path: self.store.ingest(), source: error }.into()
    }

    /// Imports what `index.json` names; the names of each image's id.
    fn index(&mut self) -> Result<HashSet<Digest>, ArchiveError> {
        let mut ids = HashSet::new();
        let Some((digest, _)) = self.contents.file("index.json").cloned() else { return Ok(ids) };
        let bytes = self.store.read_blob(&digest, MAX_INDEX)?;
        let list = match manifest::parse(OCI_INDEX, &bytes) {
            Ok(Document::Index(list)) => list,
            Ok(Document::Manifest(_)) => return Err(invalid("its index.json is a manifest")),
            Err(e) => return Err(invalid(format!("its index.json: {e}"))),
        };
        for entry in &list {
            let text = |key: &str| entry.annotations.get(key).map(String::as_str);
            // A reference that is only a tag names nothing by itself.
            let name = text(IMAGE_NAME).or_else(|| text(REF_NAME).filter(|n| n.contains(['/', ':'])));
            let names = name.into_iter().filter_map(full_name).collect::<Vec<_>>();
            if let Some(id) = self.document(entry, &names, &BTreeSet::new(), 0)? {
                ids.insert(id);
            }
        }
        Ok(ids)
    }

    /// Imports a manifest, or the one of this platform in an index. `None`: the archive does not have it.
    fn document(
        &mut self,
        entry: &Descriptor,
        names: &[String],
        above: &BTreeSet<Digest>,
        depth: usize,
    ) -> Result<Option<Digest>, ArchiveError> {
        if self.store.blob(&entry.digest).is_none() || depth > 4 {
            return Ok(None);
        }
        self.lease.hold(Item::Blob(entry.digest.clone()));
        let bytes = self.store.read_blob(&entry.digest, manifest::MAX_MANIFEST)?;
        let read = manifest::parse(&entry.media_type, &bytes);
        match read.map_err(|e| invalid(format!("{}: {e}", entry.digest)))? {
            Document::Index(list) => {
                let mut above = above.clone();
                above.insert(entry.digest.clone());
                let platform = self.store.settings.platform.clone();
                let best: Vec<Descriptor> =
                    manifest::candidates(&platform, &list).into_iter().cloned().collect();
                for entry in &best {
                    if let Some(id) = self.document(entry, names, &above, depth + 1)? {
                        return Ok(Some(id));
                    }
                }
                Ok(None)
            }
            Document::Manifest(found) => {
                let size = bytes.len() as u64;
                self.image(&entry.digest, &found, size, above.clone(), names).map(Some)
            }
        }
    }

    /// Unpacks an image's layers and keeps it.
    fn image(
        &mut self,
        digest: &Digest,
        found: &Manifest,
        size: u64,
        indexes: BTreeSet<Digest>,
        names: &[String],
    ) -> Result<Digest, ArchiveError> {
        for item in found.layers.iter().chain([&found.configuration]) {
            self.lease.hold(Item::Blob(item.digest.clone()));
            if self.store.blob(&item.digest).is_none() {
                return Err(invalid(format!("it lacks {}, which {digest} names", item.digest)));
            }
        }
        let bytes = self.store.read_blob(&found.configuration.digest, manifest::MAX_CONFIGURATION)?;
        let configuration = found
            .configuration
            .is_configuration()
            .then(|| manifest::configuration(&bytes, found.layers.len()))
            .transpose()
            .map_err(|e| invalid(e.to_string()))?;
        let contents = configuration.as_ref().map(|c| &**c.rootfs().diff_ids());
        let plan = Plan::new(found, contents).map_err(invalid)?;
        let mut states = Vec::new();
        let mut guards = Vec::new();
        for number in 0..plan.layers.len() {
            let lock = found.layers[number].digest.to_string();
            // The second of two equal layers is worked at under the same lock.
            if !guards.iter().any(|(name, _)| *name == lock) {
                let guard =
                    tokio::runtime::Handle::current().block_on(self.store.downloads.take(lock.clone()));
                guards.push((lock, guard));
            }
            states.push(self.layer(found, &plan, number)?);
        }
        let layers = plan.commit(states).map_err(|e| self.unpack_error(e))?;
        drop(guards);
        let size = size + found.configuration.size + found.layers.iter().map(|l| l.size).sum::<u64>();
        let mut record = record(digest, found, size, indexes, &layers, configuration);
        record.pinned = self.pin;
        let id = record.id.clone();
        self.store.add(record, names)?;
        self.note(&id, names);
        Ok(id)
    }

    /// Notes that an image is there by these names.
    fn note(&mut self, id: &Digest, names: &[String]) {
        let known = self.done.iter().position(|(known, _)| known == id);
        let place = known.unwrap_or_else(|| {
            self.done.push((id.clone(), Vec::new()));
            self.done.len() - 1
        });
        let tags = &mut self.done[place].1;
        for name in names.iter().filter(|name| !name.contains('@')) {
            if !tags.contains(name) {
                tags.push(name.clone());
            }
        }
    }

    fn layer(&self, found: &Manifest, plan: &Plan, number: usize) -> Result<State, ArchiveError> {
        let (layer, chain) = (&plan.layers[number], plan.chain(number));
        for layer in [layer, &chain] {
            self.lease.hold(Item::Layer(layer.clone()));
            if self.store.has_layer(layer) {
                return Ok(State::Ready(layer.clone()));
            }
        }
        let path = self.store.blob_path(&found.layers[number].digest);
        let file = std::fs::File::open(&path).map_err(|e| self.disk(e))?;
        let file = BufReader::with_capacity(256 << 10, file);
        let unpacked = unpack(&self.store, file, &plan.forms[number]).map_err(|e| self.unpack_error(e))?;
        if !unpacked.is_independent() {
            return Ok(State::Unpacked(Box::new(unpacked)));
        }
        unpacked.commit(layer).map_err(|e| self.unpack_error(e))?;
        Ok(State::Ready(layer.clone()))
    }

    fn unpack_error(&self, error: UnpackError) -> ArchiveError {
        match error {
            UnpackError::Layer(LayerError::NoSpace) => {
                ArchiveError::NoSpace(self.store.settings.root.clone())
            }
            UnpackError::Layer(LayerError::Disk { source, .. }) => self.disk(source),
            UnpackError::Store(error) => error.into(),
            other => invalid(format!("a layer cannot be unpacked: {other}")),
        }
    }

    /// Imports what `manifest.json` names. Images that came with the index get their tags.
    fn docker(&mut self, with_index: HashSet<Digest>) -> Result<(), ArchiveError> {
        let Some((digest, _)) = self.contents.file("manifest.json").cloned() else { return Ok(()) };
        let bytes = self.store.read_blob(&digest, MAX_INDEX)?;
        let list: Vec<DockerImage> =
            serde_json::from_slice(&bytes).map_err(|e| invalid(format!("its manifest.json: {e}")))?;
        for image in &list {
            let lacks = |name: &str| invalid(format!("it lacks {name}, which its manifest.json names"));
            let tags = image.repo_tags.iter().flatten().filter_map(|t| full_name(t)).collect::<Vec<_>>();
            let configuration =
                self.contents.file(&image.config).ok_or_else(|| lacks(&image.config))?.clone();
            if with_index.contains(&configuration.0) {
                let record = self.store.record_of(&configuration.0)?;
                self.store.add(Record::clone(&record), &tags)?;
                self.note(&configuration.0, &tags);
                continue;
            }
            let mut layers = Vec::new();
            for name in image.layers.iter().flatten() {
                let (digest, size) = self.contents.file(name).ok_or_else(|| lacks(name))?;
                layers.push(descriptor("application/vnd.docker.image.rootfs.diff.tar", digest, *size));
            }
            let media_type = "application/vnd.docker.container.image.v1+json";
            let made = json!({
                "schemaVersion": 2,
                "mediaType": DOCKER_MANIFEST,
                "config": descriptor(media_type, &configuration.0, configuration.1),
                "layers": layers,
            });
            let bytes = made.to_string().into_bytes();
            let digest = Digest::of(&bytes);
            self.lease.hold(Item::Blob(digest.clone()));
            self.store.put_blob(&digest, &bytes)?;
            let entry = Descriptor::plain(DOCKER_MANIFEST, digest, bytes.len() as u64);
            self.document(&entry, &tags, &BTreeSet::new(), 0)?;
        }
        Ok(())
    }
}

fn descriptor(media_type: &str, digest: &Digest, size: u64) -> Value {
    json!({"mediaType": media_type, "digest": digest, "size": size})
}

/// A name in full; text that is none names nothing.
fn full_name(text: &str) -> Option<String> {
    Reference::parse(text).ok().map(|r| r.to_string())
}

/// Writes images as a tar that is an OCI layout and a docker-archive at once.
pub(crate) fn export(store: &Arc<Store>, names: &[String], to: impl Write) -> Result<(), ArchiveError> {
    let lease = Lease::new(store);
    // All that it holds is an image's, or was until just now.
    lease.done();
    let mut tar = tar::Builder::new(to);
    let mut written = HashSet::new();
    let (mut index, mut docker) = (Vec::new(), Vec::new());
    for name in names {
        let record = store.record(name).ok_or_else(|| StoreError::NoImage(name.clone()))?;
        for digest in record.content() {
            lease.hold(Item::Blob(digest.clone()));
        }
        let missing = record.layers.iter().any(|l| store.blob(&l.digest).is_none());
        if missing {
            return Err(ArchiveError::Discarded { image: name.clone() });
        }
        // The name that was asked for, or all tags if it was an id.
        let asked = full_name(name).filter(|n| record.names.contains_key(n) && !n.contains('@'));
        let tags: Vec<String> = match asked {
            Some(name) => vec![name],
            None => record.names.keys().filter(|n| !n.contains('@')).cloned().collect(),
        };
        let bytes = store.read_blob(&record.manifest, manifest::MAX_MANIFEST)?;
        let media_type = serde_json::from_slice::<Value>(&bytes).ok();
        let media_type = media_type.as_ref().and_then(|m| m["mediaType"].as_str());
        let media_type = media_type.unwrap_or("application/vnd.oci.image.manifest.v1+json");
        let mut entry = descriptor(media_type, &record.manifest, bytes.len() as u64);
        if tags.is_empty() {
            index.push(entry.clone());
        }
        for tag in &tags {
            let short = tag.rsplit_once(':').map_or("latest", |(_, t)| t);
            entry["annotations"] = json!({IMAGE_NAME: tag, REF_NAME: short});
            index.push(entry.clone());
        }
        if !record.artifact {
            let place = |d: &Digest| format!("blobs/{}/{}", d.algorithm().name(), d.hex());
            let layers: Vec<String> = record.layers.iter().map(|l| place(&l.digest)).collect();
            docker.push(json!({"Config": place(&record.configuration), "RepoTags": tags, "Layers": layers}));
        }
        let layers = record.layers.iter().map(|l| &l.digest);
        for digest in layers.chain([&record.configuration, &record.manifest]) {
            if written.insert(digest.clone()) {
                blob(store, &mut tar, digest)?;
            }
        }
    }
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": index});
    let layout = json!({"imageLayoutVersion": "1.0.0"});
    for (name, value) in
        [("oci-layout", layout), ("index.json", index), ("manifest.json", Value::Array(docker))]
    {
        let bytes = value.to_string().into_bytes();
        let mut header = header(bytes.len() as u64);
        tar.append_data(&mut header, name, &*bytes).map_err(ArchiveError::Io)?;
    }
    let mut to = tar.into_inner().map_err(ArchiveError::Io)?;
    to.flush().map_err(ArchiveError::Io)
}

fn header(size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    header
}

fn blob(store: &Store, tar: &mut tar::Builder<impl Write>, digest: &Digest) -> Result<(), ArchiveError> {
    let path = store.blob_path(digest);
    let file = std::fs::File::open(&path).map_err(files::at(&path))?;
    let size = file.metadata().map_err(files::at(&path))?.len();
    let name = format!("blobs/{}/{}", digest.algorithm().name(), digest.hex());
    tar.append_data(&mut header(size), name, file).map_err(ArchiveError::Io)
}
