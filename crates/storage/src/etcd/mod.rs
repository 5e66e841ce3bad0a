//! The etcd engine: an index that follows an etcd to which other API servers write as well.
//!
//! - `keys`, `codec`: upstream's keys and values.
//! - `load`: the state at a revision. `follow`: the changes after it, through one watch a resource: a delay of one
//!   resource, such as a value whose key cannot be fetched, or a state that must be read anew, does not concern the
//!   others. So each resource has a revision of its own.
//! - `write`: a write is a transaction, and answered once the index has seen its revision.
//! - `fresh`: reads that must see every write that any server acknowledged.
//! - `unreadable`: values that cannot be read.
//! - `lease`, `compact`, `servers`: expiry, compaction, and the list of the servers.
//! - `migrate`: another store into an empty etcd.

mod codec;
mod compact;
mod follow;
mod fresh;
mod keys;
mod lease;
mod load;
mod migrate;
mod servers;
mod unreadable;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{Object, Text};
use arc_swap::ArcSwap;
use bytes::Bytes;
use component::{Clock, Shutdown};
use etcd::{Client, ConfigError, Error};
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

pub use codec::{Codec, CodecError, Placement};
pub(crate) use migrate::fill;
pub use migrate::{MigrateError, Migrated};
pub use servers::Servers;

use crate::backend::{Backend, Capabilities, ReadError};
use crate::engine::View;
use crate::history::Limits;
use crate::index::Index;
use crate::store::{ResourceId, Scope, Unreadable, Write, WriteError};
use follow::{Follower, Target};
use keys::Keys;
use load::{LoadError, State};

/// The number of concurrent writes; more wait.
const WRITES: usize = 1024;
/// The patience of [`EtcdConfig::new`].
const PATIENCE: Duration = Duration::from_secs(20);
/// The time for which a start waits for the changes that came while it read everything.
const START: Duration = Duration::from_secs(10);
/// The number of past changes that are read at the start, so that watches and continue tokens of other servers go on.
const REPLAY: u64 = 16 << 10;

/// The configuration of a store in etcd.
pub struct EtcdConfig {
    /// The addresses of etcd.
    pub servers: etcd::Config,
    /// The start of all keys (`--etcd-prefix`).
    pub prefix: String,
    /// The codec that reads and writes the values.
    pub codec: Arc<dyn Codec>,
    /// The wall clock.
    pub clock: Clock,
    /// The interval at which watchers that asked for it learn their progress.
    pub progress_interval: Duration,
    /// The time for which opening waits for an etcd that cannot be reached; it may be starting as well.
    pub patience: Duration,
    /// Whether to open although there are encrypted values that cannot be read, since they may be there to be deleted.
    pub allow_sealed: bool,
}

impl EtcdConfig {
    /// Makes the default configuration.
    pub fn new(servers: etcd::Config, codec: Arc<dyn Codec>) -> Self {
        Self {
            servers,
            prefix: "/registry".into(),
            codec,
            clock: Clock::system(),
            progress_interval: crate::facade::PROGRESS_INTERVAL,
            patience: PATIENCE,
            allow_sealed: false,
        }
    }
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("servers", &self.servers)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// The reason for which a store in etcd cannot be opened. Each sentence tells the remedy.
#[derive(Debug, thiserror::Error)]
pub enum EtcdOpenError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// etcd did not answer, or refused.
    #[error("{error}{}", hint(error))]
    Etcd {
        /// The reason.
        error: Error,
    },
    /// A value cannot be read by this configuration.
    #[error("{0}")]
    Value(String),
}

impl From<Error> for EtcdOpenError {
    // The text is kept, not the source, which would repeat it.
    fn from(error: Error) -> Self {
        Self::Etcd { error }
    }
}

impl From<LoadError> for EtcdOpenError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Etcd(error) => Self::Etcd { error },
            error => Self::Value(error.to_string()),
        }
    }
}

fn hint(error: &Error) -> &'static str {
    match error {
        Error::Unreachable { .. } => ": start it, or correct --etcd-servers",
        Error::Unavailable(why) if !why.contains("--etcd") => ": see that a majority of its members runs",
        _ => "",
    }
}

/// The engine that follows etcd.
pub(crate) struct Engine {
    me: Weak<Self>,
    pub(crate) index: Arc<Index>,
    client: Client,
    keys: Keys,
    codec: Arc<dyn Codec>,
    pub(crate) clock: Clock,
    progress_interval: Duration,
    /// Whether etcd tells the progress of watches reliably.
    progress: AtomicBool,
    /// The followers of all known resources.
    followers: ArcSwap<BTreeMap<ResourceId, Arc<Follower>>>,
    /// Held by the task that adds a follower.
    adding: Mutex<()>,
    /// The follower of the API servers' addresses.
    addresses: Arc<Follower>,
    /// The objects that are being written: an event with the same bytes needs no decoding.
    writing: Mutex<write::Writing>,
    leases: lease::Leases,
    places: Arc<Semaphore>,
    questions: fresh::Questions,
    /// Notified when the first watcher wants to hear of progress.
    bookmarks: Notify,
    servers: watch::Sender<BTreeSet<Text>>,
    /// The values that could not be read.
    unreadable: unreadable::Entries,
    /// The runtime of the engine.
    runtime: Handle,
    /// The writes under way; they end first.
    writes: Shutdown,
    /// The tasks in the background.
    tasks: Shutdown,
}

impl Engine {
    /// Connects, loads the state and follows it. Returns once the index shows the state that etcd had at the call. The
    /// engine stops when it is closed; `shutdown` learns of tasks that are lost.
    pub(crate) async fn open(config: EtcdConfig, shutdown: &Shutdown) -> Result<Arc<Self>, EtcdOpenError> {
        let client = Client::new(&config.servers)?;
        let keys = Keys::new(&config.prefix, config.codec.placements());
        let addresses = Arc::new(Follower::new(Target::Servers, keys.servers()));
        let engine = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            index: Arc::new(Index::new(Limits::default())),
            client,
            keys,
            codec: config.codec,
            clock: config.clock,
            progress_interval: config.progress_interval,
            progress: AtomicBool::new(false),
            followers: ArcSwap::default(),
            adding: Mutex::default(),
            addresses,
            writing: Mutex::default(),
            leases: lease::Leases::default(),
            places: Arc::new(Semaphore::new(WRITES)),
            questions: fresh::Questions::default(),
            bookmarks: Notify::new(),
            servers: watch::Sender::default(),
            unreadable: unreadable::Entries::default(),
            runtime: Handle::current(),
            writes: shutdown.apart(),
            tasks: shutdown.apart(),
        });
        engine.wait_for_etcd(config.patience).await?;
        let state = engine.load_past().await?;
        // A server that starts without the keys would hide the objects.
        if let Some(bad) = state.unreadable(|entry| entry.encrypted && !config.allow_sealed) {
            return Err(EtcdOpenError::Value(load::unreadable(&bad.key, &bad.why)));
        }
        let (asking, stop) = (engine.clone(), engine.tasks.clone());
        engine.tasks.spawn(async move { asking.answer_questions(&stop).await });
        let (telling, stop) = (engine.clone(), engine.tasks.clone());
        engine.tasks.spawn(async move { telling.tell_progress(&stop).await });
        engine.begin(state);
        let error = match engine.caught_up().await {
            Ok(()) => {
                // A value may also have come while the rest was loaded.
                let Some(bad) = engine.unreadable.encrypted().filter(|_| !config.allow_sealed) else {
                    return Ok(engine);
                };
                EtcdOpenError::Value(load::unreadable(&bad.key, &bad.why))
            }
            Err(e) => e.into(),
        };
        engine.tasks.finish().await;
        Err(error)
    }

    /// Shows the loaded state and follows it: every resource that has a place, and all others that were found.
    fn begin(self: &Arc<Self>, mut state: State) {
        let found = state.parts.iter().map(|p| (p.group.clone(), p.plural.clone()));
        let all: BTreeSet<_> = self.keys.placed().cloned().chain(found).collect();
        for (group, plural) in all {
            self.register(self.index.named(&group, &plural), Some(&mut state));
        }
        self.install(&self.addresses, &mut state);
        self.spawn(self.addresses.clone());
    }

    /// Follows a resource from now on, if it is not followed. A resource that is not loaded yet is loaded, and readers
    /// wait for it.
    pub(crate) fn register(self: &Arc<Self>, id: ResourceId, loaded: Option<&mut State>) {
        if self.follower(id).is_some() {
            return;
        }
        let _adding = self.adding.lock();
        let Some(resource) = self.index.resource(id).filter(|_| self.follower(id).is_none()) else { return };
        let prefix = self.keys.resource(&resource.group, &resource.plural);
        let follower = Arc::new(Follower::new(Target::Resource(resource), prefix));
        if let Some(state) = loaded {
            self.install(&follower, state);
        }
        let mut all = BTreeMap::clone(&self.followers.load());
        all.insert(id, follower.clone());
        self.followers.store(Arc::new(all));
        self.spawn(follower);
    }

    fn spawn(self: &Arc<Self>, follower: Arc<Follower>) {
        let (engine, stop) = (self.clone(), self.tasks.clone());
        let _runtime = self.runtime.enter();
        self.tasks.spawn(async move { engine.follow(&follower, &stop).await });
    }

    /// The follower of a resource.
    fn follower(&self, id: ResourceId) -> Option<Arc<Follower>> {
        self.followers.load().get(&id).cloned()
    }

    /// Waits until the index shows etcd's present state, as long as etcd can be followed.
    async fn caught_up(&self) -> Result<(), Error> {
        let unavailable = |e: ReadError| match e {
            ReadError::Etcd(e) => e,
            e => Error::Unavailable(e.to_string().into()),
        };
        let wanted = self.revision().await.map_err(unavailable)?;
        let all = self.followers.load_full();
        let each = all.values().map(|f| self.catch_up(f, wanted, false, START));
        if join_all(each).await.into_iter().all(|caught_up| caught_up) {
            return Ok(());
        }
        self.healthy()?;
        Err(Error::Unavailable("the watches on etcd do not come to where it is".into()))
    }

    /// Tells progress to the watchers that want it, while there are any.
    async fn tell_progress(&self, stop: &Shutdown) {
        while stop.run(self.bookmarks.notified()).await.is_some() {
            while self.index.hub.progress.load(Ordering::Relaxed) > 0 {
                if stop.run(tokio::time::sleep(self.progress_interval)).await.is_none() {
                    return;
                }
                self.index.progress();
                // Without changes no event shows the progress: it is asked for, for the next time.
                for follower in self.followers.load().values() {
                    if let Target::Resource(resource) = &follower.target
                        && resource.routes.lock().wants_progress()
                    {
                        follower.nudge.notify_one();
                    }
                }
            }
        }
    }

    /// Asks every member for its version, until one answers.
    async fn wait_for_etcd(&self, patience: Duration) -> Result<(), EtcdOpenError> {
        let deadline = Instant::now() + patience;
        let mut told = false;
        loop {
            let outcome = match self.client.versions().await {
                Ok(versions) => {
                    let reliable =
                        !versions.is_empty() && versions.iter().all(|v| follow::progress_is_reliable(v));
                    self.progress.store(reliable, Ordering::Relaxed);
                    // A read tells whether there is a leader, and whether reading is allowed.
                    self.client.revision(self.keys.health()).await.map(drop)
                }
                Err(e) => Err(e),
            };
            match outcome {
                Ok(()) => return Ok(()),
                Err(e) if !e.is_transient() || Instant::now() >= deadline => return Err(e.into()),
                Err(error) => {
                    if !told {
                        tracing::warn!(%error, "waiting for etcd");
                        told = true;
                    }
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(200..400))).await;
                }
            }
        }
    }

    /// The first state: a little in the past if etcd still has that.
    async fn load_past(self: &Arc<Self>) -> Result<State, EtcdOpenError> {
        let (now, compacted) =
            (self.client.revision(self.keys.health()).await?, compact::last(&self.client).await?);
        let prefix = Bytes::copy_from_slice(self.keys.prefix().as_bytes());
        if compacted > 0 && compacted <= now && now - compacted <= REPLAY {
            match self.load(&prefix, Some(compacted)).await {
                Err(LoadError::Etcd(Error::Compacted)) => {}
                other => return Ok(other?),
            }
        }
        Ok(self.load(&prefix, None).await?)
    }

    /// Whether etcd can be followed now.
    pub(crate) fn healthy(&self) -> Result<(), Error> {
        let followers = self.followers.load();
        let all = followers.values().chain([&self.addresses]);
        all.into_iter().find_map(|f| f.broken()).map_or(Ok(()), Err)
    }

    /// Runs a write in a task of its own: it goes on if the caller drops the future.
    async fn run<T: Send + 'static, F: Future<Output = Result<T, WriteError>> + Send + 'static>(
        &self,
        write: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, WriteError> {
        let engine = self.me.upgrade().ok_or(WriteError::Closed)?;
        let place = self.places.clone().acquire_owned().await.map_err(|_| WriteError::Closed)?;
        if self.writes.stopped() {
            return Err(WriteError::Closed);
        }
        let write = write(engine);
        let task = self.writes.spawn_one(async move {
            let _place = place;
            write.await
        });
        task.await.unwrap_or(Err(WriteError::Closed))
    }

    /// The object of a value at a key.
    fn read(&self, key: &[u8], value: &[u8], revision: u64) -> Result<Option<Arc<Object>>, CodecError> {
        let keys::Place::Object { group, plural, namespace, name } = self.keys.place(key) else {
            return Ok(None);
        };
        let mut data = self.codec.decode(group, plural, key, value)?;
        // The names of an object are those of its key, by which everybody looks it up.
        if data.namespace != namespace {
            data.namespace = namespace.into();
        }
        if data.name != name {
            data.name = name.into();
        }
        Ok(Some(Arc::new(Object { data, revision })))
    }

    fn key_of(&self, resource: ResourceId, namespace: &str, name: &str) -> Option<(Text, Text, Bytes)> {
        let resource = self.index.resource(resource)?;
        let key = self.keys.object(&resource.group, &resource.plural, namespace, name);
        Some((resource.group.clone(), resource.plural.clone(), key))
    }
}

impl Backend for Engine {
    fn capabilities(&self) -> Capabilities {
        Capabilities { others_write: true, finds_unreadable: true, foreign_errors: true }
    }

    fn follow_resource(self: Arc<Self>, id: ResourceId) {
        self.register(id, None);
    }

    fn fresh<'a>(&'a self, resources: &'a [ResourceId]) -> BoxFuture<'a, Result<(), ReadError>> {
        Box::pin(Self::fresh(self, resources))
    }

    fn wait_for(&self, id: ResourceId, revision: u64, limit: Duration) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            match self.follower(id) {
                Some(follower) => self.catch_up(&follower, revision.max(1), false, limit).await,
                None => false,
            }
        })
    }

    fn compact_every(self: Arc<Self>, interval: Duration) {
        let (engine, stop) = (self.clone(), self.tasks.clone());
        self.tasks.spawn(async move { compact::run(&engine, interval, &stop).await });
    }

    fn servers(self: Arc<Self>) -> Option<Servers> {
        Some(Servers::new(self))
    }

    fn unreadable(&self, resource: ResourceId, scope: &Scope, after: u64) -> Option<Arc<Unreadable>> {
        self.unreadable.find(resource, scope, after)
    }

    fn all_unreadable(&self, resource: ResourceId, scope: &Scope, limit: usize) -> Vec<Arc<Unreadable>> {
        self.unreadable.all(resource, scope, limit)
    }

    fn delete_unreadable(
        &self,
        resource: ResourceId,
        namespace: Text,
        name: Text,
        expect: u64,
    ) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(
            self.run(
                move |engine| async move { engine.delete_value(resource, &namespace, &name, expect).await },
            ),
        )
    }

    fn healthy(&self) -> Result<(), String> {
        Self::healthy(self).map_err(|e| e.to_string())
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let asked = self.client.revision(self.keys.health()).await;
            asked.map(drop).map_err(|e| format!("error getting data from etcd: {e}"))
        })
    }

    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Object>, WriteError>> {
        Box::pin(self.run(|engine| async move { engine.write(write).await }))
    }

    fn view(&self) -> BoxFuture<'_, Result<View, WriteError>> {
        Box::pin(async { self.me.upgrade().ok_or(WriteError::Closed)?.whole().await })
    }

    fn nudge(&self) {
        self.bookmarks.notify_one();
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.places.close();
            self.writes.finish().await;
            self.tasks.finish().await;
            self.index.close();
        })
    }
}
