//! The things that the tests share: a store in a directory, and layers that are made on the spot.

mod archives;
mod crashes;
mod layers;
mod pulls;
mod registries;
mod roots;

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use component::Shutdown;
use images::{Images, Settings};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;
use testkit::registry::{Layer, Registry};

/// A store in a directory of its own.
pub(crate) struct Test {
    pub images: Images,
    pub shutdown: Shutdown,
    pub directory: TempDir,
}

impl Test {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A store whose settings are changed first.
    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings(directory.path().join("store"));
        settings.registries = vec![directory.path().join("registries")];
        change(&mut settings);
        let shutdown = Shutdown::new();
        let images = Images::open(settings, &shutdown).await.unwrap();
        Self { images, shutdown, directory }
    }

    /// Closes the store and opens it again.
    pub(crate) async fn reopen(self) -> Self {
        self.reopen_after(|_| {}).await
    }

    /// Closes the store, does something to its directory, and opens it again.
    pub(crate) async fn reopen_after(self, change: impl FnOnce(&Path)) -> Self {
        let Self { images, shutdown, directory } = self;
        shutdown.stop();
        shutdown.finish().await;
        drop(images);
        let root = directory.path().join("store");
        // The threads of a dropped pull, and the upkeep's, may still have it.
        let lock = std::fs::File::open(root.join("lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        change(&root);
        drop(lock);
        let shutdown = Shutdown::new();
        let mut settings = settings(root);
        settings.registries = vec![directory.path().join("registries")];
        let images = Images::open(settings, &shutdown).await.unwrap();
        Self { images, shutdown, directory }
    }

    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.directory.path().join("store").join(inside)
    }

    /// The names in a directory of the store.
    pub(crate) fn names(&self, inside: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(inside)).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The image's root, mounted.
    pub(crate) fn mounted(&self, key: &str, name: &str) -> Mounted {
        let image = self.images.find(name).unwrap();
        let root = self.images.prepare(key, &image.id, &images::Prepare::default()).unwrap();
        Mounted(root.mount().unwrap())
    }
}

/// The settings of a test: what fails is not tried for long.
pub(crate) fn settings(root: PathBuf) -> Settings {
    let mut settings = Settings::new(root);
    settings.limits.attempts = 3;
    settings
}

/// A detached mount.
pub(crate) struct Mounted(pub OwnedFd);

impl Mounted {
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(inside)
    }

    pub(crate) fn text(&self, inside: &str) -> String {
        let mut text = String::new();
        std::fs::File::open(self.path(inside)).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn has(&self, inside: &str) -> bool {
        std::fs::symlink_metadata(self.path(inside)).is_ok()
    }

    /// The names in a directory, sorted.
    pub(crate) fn list(&self, inside: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(inside)).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// A tar in the making. Names are written as they are, whatever they mean.
pub(crate) struct Tar(Builder<Vec<u8>>);

impl Tar {
    pub(crate) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn header(kind: EntryType, mode: u32, size: usize) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size as u64);
        header.set_mtime(1_000_000_000);
        header
    }

    /// Any entry, with a name and a target of any bytes.
    pub(crate) fn entry(mut self, kind: EntryType, name: &str, target: &str, mode: u32, data: &[u8]) -> Self {
        let mut header = Self::header(kind, mode, data.len());
        let gnu = header.as_gnu_mut().unwrap();
        assert!(name.len() <= 100 && target.len() <= 100);
        gnu.name[..name.len()].copy_from_slice(name.as_bytes());
        gnu.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        self.0.append(&header, data).unwrap();
        self
    }

    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        self.entry(EntryType::Regular, name, "", 0o644, text.as_bytes())
    }

    pub(crate) fn dir(self, name: &str, mode: u32) -> Self {
        self.entry(EntryType::Directory, name, "", mode, b"")
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, target, 0o777, b"")
    }

    pub(crate) fn link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Link, name, target, 0o644, b"")
    }

    /// PAX records of the next entry.
    pub(crate) fn records(mut self, records: &[(&str, &[u8])]) -> Self {
        self.0.append_pax_extensions(records.iter().copied()).unwrap();
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }

    pub(crate) fn layer(self) -> Layer {
        Layer::plain(self.bytes())
    }

    pub(crate) fn gzip(self) -> Layer {
        Layer::gzip(&self.bytes()).unwrap()
    }
}

/// Pushes an image as `test/NAME:1`; the reference.
pub(crate) fn push(registry: &Registry, name: &str, layers: &[Layer]) -> String {
    let repository = format!("test/{name}");
    registry.push(&repository, "1", &json!({"Cmd": ["sh"], "User": "7:8"}), layers);
    format!("{}/{repository}:1", registry.host())
}

/// Bytes that do not compress well, `size` of them.
pub(crate) fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state >> 13).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// No configuration.
pub(crate) fn nothing() -> Value {
    json!({})
}
