//! The store as its users see it.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{Object, Text};
use component::{Clock, Shutdown};
use tokio::time::{Instant, timeout_at};

use crate::backend::{Backend, Capabilities, ReadError};
use crate::durability::Durability;
use crate::engine::{Change, Engine, Forget, Record, View};
use crate::etcd::{self, EtcdConfig, EtcdOpenError, MigrateError, Migrated, Servers};
use crate::history::Limits;
use crate::index::Index;
use crate::inline::InlineWriter;
use crate::log::{self, Backup, OpenError};
use crate::quota::{DEFAULT_QUOTA, Quota, Usage, weight};
use crate::store::{
    Cause, Compacted, Event, ResourceId, ResourceSpec, Scope, Unreadable, WatchStart, Write, WriteError,
};
use crate::view::{Live, Snapshot};
use crate::watch::{TICK, WatchOptions, Watcher};
use crate::writer::{Expiries, Now, Start, Writer};

/// The interval at which watchers that asked for it learn their progress, as upstream's bookmarks do.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_mins(1);

/// The configuration of a store.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The directory of the log and its snapshots; it is made if it does not exist.
    pub dir: PathBuf,
    /// The guarantee for acknowledged writes.
    pub durability: Durability,
    /// The wall clock, by which objects expire.
    pub clock: Clock,
    /// The interval at which watchers that asked for it learn their progress.
    pub progress_interval: Duration,
    /// The limit of stored data, in bytes; `None` for no limit.
    pub quota: Option<u64>,
}

impl StoreConfig {
    /// The defaults, for a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            durability: Durability::default(),
            clock: Clock::system(),
            progress_interval: PROGRESS_INTERVAL,
            quota: Some(DEFAULT_QUOTA),
        }
    }
}

/// The store. Clones share it; with the last of them its backend ends.
#[derive(Clone)]
pub struct Store {
    index: Arc<Index>,
    backend: Arc<dyn Backend>,
    capabilities: Capabilities,
    clock: Clock,
    quota: Option<u64>,
    /// The size of the live objects, in bytes.
    live: Arc<AtomicU64>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("newest", &self.newest()).finish_non_exhaustive()
    }
}

/// Builds the index from the records that an engine loads.
pub(crate) struct Loader {
    index: Arc<Index>,
    now: Now,
    expiries: Expiries,
    /// The objects of the first state, until the first change.
    first: HashMap<ResourceId, Vec<Arc<Object>>>,
    resources: HashMap<ResourceId, Live>,
    /// The resource of the last record; many records in a row are of the same resource.
    recent: Option<(Text, Text, ResourceId)>,
}

impl Loader {
    pub(crate) fn new(limits: Limits, now: Now) -> Self {
        Self {
            index: Arc::new(Index::new(limits)),
            now,
            expiries: Expiries::default(),
            first: HashMap::new(),
            resources: HashMap::new(),
            recent: None,
        }
    }

    fn resource(&mut self, group: &str, plural: &str) -> ResourceId {
        match &self.recent {
            Some((g, p, id)) if g == group && p == plural => *id,
            _ => {
                let id = self.index.named(group, plural);
                self.recent = Some((group.into(), plural.into(), id));
                id
            }
        }
    }

    /// Takes an object of the first state.
    pub(crate) fn state(&mut self, record: Record) {
        let id = self.resource(&record.group, &record.plural);
        if let Change::Put { object, expires } = record.change {
            self.expiries.add(id, &object, expires);
            self.first.entry(id).or_default().push(object);
        }
    }

    /// Completes the first state.
    fn settle(&mut self) {
        self.resources.extend(self.first.drain().map(|(id, objects)| (id, Live::of(objects))));
    }

    /// Takes a change after the first state.
    pub(crate) fn change(&mut self, record: Record) {
        self.settle();
        let id = self.resource(&record.group, &record.plural);
        let live = self.resources.entry(id).or_default();
        let event = match record.change {
            Change::Put { object, expires } => {
                let previous = live.get(&object.data.namespace, &object.data.name).cloned();
                live.put(object.clone());
                self.expiries.add(id, &object, expires);
                let cause = if previous.is_some() { Cause::Modified } else { Cause::Added };
                Event::new(cause, object, previous)
            }
            Change::Delete { namespace, name } => {
                let Some(previous) = live.remove(&namespace, &name, record.revision) else { return };
                let object = Object { data: previous.data.clone(), revision: record.revision };
                Event::new(Cause::Deleted, Arc::new(object), Some(previous))
            }
        };
        if let Some(previous) = &event.previous {
            self.expiries.remove(previous.revision);
        }
        if let Some(resource) = self.index.resource(id) {
            Index::remember(&resource, Arc::new(event), (self.now)());
        }
    }

    /// The state after the records taken so far, at a revision.
    pub(crate) fn view(&mut self, revision: u64) -> View {
        self.settle();
        let named = |(id, live): (&ResourceId, &Live)| {
            let resource = self.index.resource(*id)?;
            Some((resource.group.clone(), resource.plural.clone(), Arc::new(live.clone())))
        };
        View {
            revision,
            resources: self.resources.iter().filter_map(named).collect(),
            expiries: self.expiries.by_revision().clone(),
        }
    }

    /// Starts the store. `floor` is the revision of the first state, `last` is the last one that was given out.
    pub(crate) fn start(
        mut self,
        engine: Box<dyn Engine>,
        (floor, last): (u64, u64),
        progress_interval: Duration,
        quota: Option<u64>,
        shutdown: &Shutdown,
    ) -> io::Result<Store> {
        self.settle();
        let Self { index, now, expiries, resources, .. } = self;
        let mut bytes = 0;
        for (id, live) in resources {
            bytes += live.after(None).map(|(_, object)| weight(&object.data)).sum::<u64>();
            if let Some(resource) = index.resource(id) {
                Index::show(&resource, live, std::iter::empty(), 0);
            }
        }
        index.loaded(floor, last);
        let room = Quota::new(quota, bytes);
        let live = room.shown();
        let start =
            Start { index: index.clone(), engine, expiries, last, now, progress_interval, quota: room };
        let backend = Arc::new(Writer::start(start, shutdown)?);
        Ok(Store { quota, live, ..Store::of(index, backend) })
    }
}

impl Store {
    /// Opens the store of a directory, or makes it. Reads all of it: blocks.
    ///
    /// Once `shutdown` stops, the store closes; `shutdown.finish()` waits until it is closed. That needs a tokio
    /// runtime around this call; without one, call [`Store::close`].
    pub fn open(config: StoreConfig, shutdown: &Shutdown) -> Result<Self, OpenError> {
        let clock = config.clock;
        let now: Now = Arc::new(move || u64::try_from(clock.now().as_millisecond()).unwrap_or(0));
        let loader = std::cell::RefCell::new(Loader::new(Limits::default(), now));
        let (mut engine, loaded) = log::open(
            &config.dir,
            log::Settings::new(config.durability, clock),
            &mut |record| loader.borrow_mut().state(record),
            &mut |record| loader.borrow_mut().change(record),
        )?;
        let mut loader = loader.into_inner();
        engine.begun(&loaded, || loader.view(loaded.last)).map_err(|e| OpenError::of(&config.dir, e))?;
        let mut store = loader
            .start(
                Box::new(engine),
                (loaded.floor, loaded.last),
                config.progress_interval,
                config.quota,
                shutdown,
            )
            .map_err(|e| OpenError::of(&config.dir, e))?;
        store.clock = clock;
        if tokio::runtime::Handle::try_current().is_ok() {
            store.close_on(shutdown);
        }
        Ok(store)
    }

    /// A store over an index in which this backend publishes.
    pub(crate) fn of(index: Arc<Index>, backend: Arc<dyn Backend>) -> Self {
        let (quota, live) = (None, Arc::default());
        let capabilities = backend.capabilities();
        Self { index, backend, capabilities, clock: Clock::system(), quota, live }
    }

    /// Opens a store in etcd, in upstream's layout; other API servers may use it at the same time. Returns once
    /// everything is loaded. The store closes once `shutdown` stops, and `shutdown.finish()` waits until it is closed.
    pub async fn open_etcd(config: EtcdConfig, shutdown: &Shutdown) -> Result<Self, EtcdOpenError> {
        let engine = etcd::Engine::open(config, shutdown).await?;
        let (index, clock) = (engine.index.clone(), engine.clock);
        let store = Self { clock, ..Self::of(index, engine) };
        store.close_on(shutdown);
        Ok(store)
    }

    /// Closes the store with the shutdown, unless nobody has the store any more by then.
    pub(crate) fn close_on(&self, shutdown: &Shutdown) {
        let (closing, signal) = (Arc::downgrade(&self.backend), shutdown.clone());
        shutdown.spawn(async move {
            signal.wait().await;
            if let Some(backend) = closing.upgrade() {
                backend.close().await;
            }
        });
    }

    /// A store that forgets everything, for tests.
    #[allow(clippy::expect_used, reason = "for tests; only a machine without threads can fail here")]
    pub fn in_memory() -> Self {
        let now = || u64::try_from(Clock::system().now().as_millisecond()).unwrap_or(0);
        Loader::new(Limits::default(), Arc::new(now))
            .start(Box::new(Forget), (0, 0), PROGRESS_INTERVAL, None, &Shutdown::new())
            .expect("a thread")
    }

    /// A store in memory whose writes are made by their callers, for simulations on a paused clock. Nothing tells watchers
    /// of progress, and what expires by `clock` is removed with the next write.
    pub fn inline(clock: Clock) -> Self {
        let now = move || u64::try_from(clock.now().as_millisecond()).unwrap_or(0);
        let Loader { index, now, expiries, .. } = Loader::new(Limits::default(), Arc::new(now));
        index.loaded(0, 0);
        let quota = Quota::new(None, 0);
        let live = quota.shown();
        let start = Start {
            index: index.clone(),
            engine: Box::new(Forget),
            expiries,
            last: 0,
            now,
            progress_interval: PROGRESS_INTERVAL,
            quota,
        };
        Self { clock, live, ..Self::of(index, Arc::new(InlineWriter::new(start))) }
    }

    /// Makes a resource known. The call is idempotent by group and plural; another choice of indexed fields rebuilds
    /// the index.
    pub fn register(&self, spec: ResourceSpec) -> ResourceId {
        let id = self.index.register(&spec);
        if self.capabilities.others_write {
            self.backend.clone().follow_resource(id);
        }
        id
    }

    /// The newest revision that readers of a resource see; 0 before the first write. If other servers write to the
    /// store as well, each resource has its own revision, which is 0 before the resource was loaded.
    pub fn current(&self, resource: ResourceId) -> u64 {
        self.index.current_of(resource)
    }

    /// The newest revision that readers of any resource see.
    pub fn newest(&self) -> u64 {
        self.index.newest()
    }

    /// The object of a name.
    pub fn get(&self, resource: ResourceId, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.index.get(resource, namespace, name)
    }

    /// The objects of a resource now, at a revision that is not below its [`Store::current`].
    pub fn snapshot(&self, resource: ResourceId) -> Snapshot {
        self.index.snapshot(resource)
    }

    /// The objects of a resource as they were at a revision; `None` if it was compacted away or is yet to come.
    pub fn snapshot_at(&self, resource: ResourceId, revision: u64) -> Option<Snapshot> {
        self.index.snapshot_at(resource, revision)
    }

    /// Makes a change; resolves when it is durable and visible to readers. Returns the object after the change; for a
    /// deletion its last state with the deletion's revision. An update with the stored bytes writes nothing and returns
    /// the stored object. The write goes on if the caller drops the future.
    pub async fn commit(&self, write: Write) -> Result<Arc<Object>, WriteError> {
        self.backend.commit(write).await
    }

    /// Watches the objects of a scope. With a revision of the future it yields only changes after that revision.
    pub fn watch(
        &self,
        resource: ResourceId,
        scope: Scope,
        start: WatchStart,
        options: WatchOptions,
    ) -> Result<Watcher, Compacted> {
        let watcher = self.index.watch(resource, scope, start, options)?;
        if watcher.first {
            self.backend.nudge();
        }
        Ok(watcher)
    }

    /// The size of the store and its limit; `None` where etcd has them.
    pub fn usage(&self) -> Option<Usage> {
        let history = self.index.history_bytes() as u64;
        let live = self.live.load(Ordering::Relaxed);
        (!self.capabilities.others_write).then_some(Usage { live, history, quota: self.quota })
    }

    /// The abilities of the store besides keeping objects.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Returns once readers of these resources see every write to them that was acknowledged before this call, by any
    /// server. In a store to which no other server writes they always do.
    pub async fn fresh(&self, resources: &[ResourceId]) -> Result<(), ReadError> {
        if self.capabilities.others_write { self.backend.fresh(resources).await } else { Ok(()) }
    }

    /// Whether writes are taken, and the index is kept up to date; the reason if not.
    pub fn healthy(&self) -> Result<(), String> {
        self.backend.healthy()
    }

    /// Asks etcd whether it answers; a store of this process is asked nothing more than by [`Store::healthy`].
    ///
    /// # Errors
    /// With the reason if it does not.
    pub async fn probe(&self) -> Result<(), String> {
        self.backend.probe().await
    }

    /// The value of an object of a scope that was written after a revision and cannot be read. Until it can be read,
    /// readers see the object's state before, or no object.
    pub fn unreadable(&self, resource: ResourceId, scope: &Scope, after: u64) -> Option<Arc<Unreadable>> {
        self.backend.unreadable(resource, scope, after)
    }

    /// The values that cannot be read of objects of a scope, in the order of their keys; at most `limit`.
    pub fn all_unreadable(&self, resource: ResourceId, scope: &Scope, limit: usize) -> Vec<Arc<Unreadable>> {
        self.backend.all_unreadable(resource, scope, limit)
    }

    /// Deletes the value of an object that cannot be read, without reading it, if it is still of revision `expect`;
    /// resolves when that is durable and visible to readers. Watchers that saw the object when it could be read learn
    /// that it is gone. The deletion goes on if the caller drops the future.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] if the value is gone, [`WriteError::Changed`] if the key has a value that can be read
    /// by now and [`WriteError::Unreadable`] if it has another value that cannot.
    pub async fn delete_unreadable(
        &self,
        resource: ResourceId,
        namespace: Text,
        name: Text,
        expect: u64,
    ) -> Result<(), WriteError> {
        self.backend.delete_unreadable(resource, namespace, name, expect).await
    }

    /// The API servers that share the store, if it can be shared.
    pub fn servers(&self) -> Option<Servers> {
        self.backend.clone().servers()
    }

    /// Waits until readers of a resource see this revision, and until the resource is loaded; returns whether they do
    /// within the time.
    pub async fn wait_for(&self, resource: ResourceId, revision: u64, timeout: Duration) -> bool {
        if self.capabilities.others_write {
            return self.backend.wait_for(resource, revision, timeout).await;
        }
        if self.index.current() >= revision {
            return true;
        }
        let mut seen = self.index.seen();
        let reached = seen.wait_for(|current| *current >= revision);
        matches!(tokio::time::timeout(timeout, reached).await, Ok(Ok(_)))
    }

    /// Drops the history up to and with this revision, but for the state at it.
    pub fn compact(&self, revision: u64) {
        self.index.compact(revision);
    }

    /// Drops, at every interval until shutdown, the history before the last interval, like upstream's compactor.
    pub fn compact_every(&self, interval: Duration, shutdown: &Shutdown) {
        if self.capabilities.others_write {
            self.backend.clone().compact_every(interval);
            return;
        }
        let (store, stop) = (self.clone(), shutdown.clone());
        shutdown.spawn(async move {
            let mut before = store.newest();
            while stop.run(tokio::time::sleep(interval)).await.is_some() {
                store.compact(before);
                before = store.newest();
            }
        });
    }

    /// Ends, until shutdown, watchers that do not take their events for long: the events would stay in memory.
    pub fn end_stuck_watchers(&self, shutdown: &Shutdown) {
        let (index, stop) = (Arc::clone(&self.index), shutdown.clone());
        shutdown.spawn(async move {
            let mut next = Instant::now() + TICK;
            while let Some(waited) = stop.run(timeout_at(next, index.hub.much_passed.notified())).await {
                if waited.is_err() {
                    index.hub.tick();
                    next = Instant::now() + TICK;
                }
                index.end_stuck();
            }
        });
    }

    /// The whole store at a durable revision of now, as a backup to be written to a file. Writes go on meanwhile.
    pub async fn backup(&self) -> Result<Backup, WriteError> {
        Ok(Backup::new(self.backend.view().await?, self.clock))
    }

    /// Writes all objects into an etcd that holds nothing below its prefix, at revisions above those of this store, and
    /// compacts etcd there: watchers of this store must list anew.
    pub async fn migrate_to_etcd(&self, config: EtcdConfig) -> Result<Migrated, MigrateError> {
        etcd::fill(self.backend.view().await?, config).await
    }

    /// Closes the store after the writes that were taken; later ones are refused. Watchers end, reads go on.
    pub async fn close(&self) {
        self.backend.clone().close().await;
    }

    /// Lets the backend look at the clock.
    #[cfg(test)]
    pub(crate) fn nudge(&self) {
        self.backend.nudge();
    }
}
