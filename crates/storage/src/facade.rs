//! The store as its users see it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::Object;
use component::{Clock, Shutdown};
use futures::stream::{BoxStream, Stream};

use crate::store::{
    Batch, Compacted, ResourceId, ResourceSpec, Scope, WatchEnd, WatchStart, Write, WriteError,
};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The directory of the log and its snapshots; made if it does not exist.
    pub dir: PathBuf,
    /// The wall clock, by which objects expire.
    pub clock: Clock,
    /// How often watchers that asked for it learn how far they have come.
    pub progress_interval: Duration,
}

impl StoreConfig {
    /// The defaults, for a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), clock: Clock::system(), progress_interval: Duration::from_secs(60) }
    }
}

/// Why a store could not be opened. Every sentence says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A system call failed.
    #[error("cannot open the store in {}: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What a watcher wants besides its events.
#[derive(Debug, Clone, Copy)]
pub struct WatchOptions {
    /// How many events may wait for the watcher before it is ended as too slow.
    pub buffer: usize,
    /// Whether it wants [`Batch::Progress`] from time to time.
    pub progress: bool,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { buffer: 8192, progress: false }
    }
}

/// The store. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {}

/// The objects of a resource at a revision; costs nothing to take and to clone, and never changes.
#[derive(Debug, Clone)]
pub struct Snapshot {}

/// Iterates over a snapshot in the order of namespace and name.
pub type Scan<'a> = Box<dyn Iterator<Item = &'a Arc<Object>> + Send + 'a>;

/// A stream of `Result<Batch, WatchEnd>`; an error is its last item.
pub struct Watcher {
    inner: BoxStream<'static, Result<Batch, WatchEnd>>,
}

impl Store {
    /// Opens the store of a directory, or makes it. Reads all of it: blocks. Closes itself when `shutdown` stops.
    pub fn open(config: StoreConfig, shutdown: &Shutdown) -> Result<Self, OpenError> {
        todo!("{config:?} {shutdown:?}")
    }
    /// A store that forgets everything, for tests.
    pub fn in_memory() -> Self {
        todo!()
    }
    /// Makes a resource known. Idempotent by group and plural; another choice of indexed fields rebuilds the index.
    pub fn register(&self, spec: ResourceSpec) -> ResourceId {
        todo!("{spec:?}")
    }
    /// The newest revision that readers see.
    pub fn current(&self) -> u64 {
        todo!()
    }
    /// An object.
    pub fn get(&self, resource: ResourceId, namespace: &str, name: &str) -> Option<Arc<Object>> {
        todo!("{resource:?} {namespace} {name}")
    }
    /// The objects of a resource now.
    pub fn snapshot(&self, resource: ResourceId) -> Snapshot {
        todo!("{resource:?}")
    }
    /// The objects of a resource as they were at a revision; `None` if it was compacted away or is yet to come.
    pub fn snapshot_at(&self, resource: ResourceId, revision: u64) -> Option<Snapshot> {
        todo!("{resource:?} {revision}")
    }
    /// Makes a change; resolves when it is durable and visible to readers. The object after the change;
    /// for a deletion its last state with the deletion's revision. An update with the stored bytes writes nothing.
    pub async fn commit(&self, write: Write) -> Result<Arc<Object>, WriteError> {
        todo!("{write:?}")
    }
    /// Watches the objects of a scope.
    pub fn watch(
        &self,
        resource: ResourceId,
        scope: Scope,
        start: WatchStart,
        options: WatchOptions,
    ) -> Result<Watcher, Compacted> {
        todo!("{resource:?} {scope:?} {start:?} {options:?}")
    }
    /// Waits until readers see this revision; whether they did within the time.
    pub async fn wait_for(&self, revision: u64, timeout: Duration) -> bool {
        todo!("{revision} {timeout:?}")
    }
    /// Forgets the history up to and with this revision.
    pub fn compact(&self, revision: u64) {
        todo!("{revision}")
    }
    /// Ends the writer after the writes under way; later ones are refused. Reads go on.
    pub async fn close(&self) {
        todo!()
    }
}

impl Snapshot {
    /// The revision of the store that it shows.
    pub fn revision(&self) -> u64 {
        todo!()
    }
    /// An object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        todo!("{namespace} {name}")
    }
    /// The objects of a scope in the order of namespace and name, those after a key only, if given.
    pub fn scan<'a>(&'a self, scope: &'a Scope, after: Option<(&str, &str)>) -> Scan<'a> {
        todo!("{scope:?} {after:?}")
    }
    /// How many objects [`Snapshot::scan`] would yield.
    pub fn count(&self, scope: &Scope, after: Option<(&str, &str)>) -> usize {
        todo!("{scope:?} {after:?}")
    }
}

impl Watcher {
    /// Every event of its scope up to this revision was taken from the watcher.
    pub fn progress(&self) -> u64 {
        todo!()
    }
}

impl Stream for Watcher {
    type Item = Result<Batch, WatchEnd>;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.inner.as_mut().poll_next(cx)
    }
}
