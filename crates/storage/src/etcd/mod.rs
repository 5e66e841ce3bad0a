//! The etcd engine: an index that follows an etcd which other API servers write to as well.
//!
//! - `keys`, `codec`: upstream's keys and values.
//! - `load`: the state at a revision. `follow`: what comes after it, through one watch over all keys, so that
//!   the index knows one revision for everything.
//! - `write`: a write is a transaction, and answered once the index has seen its revision.
//! - `fresh`: reads that must see every write that was acknowledged anywhere.
//! - `lease`, `compact`, `servers`: what expires, what is forgotten, and who else serves.
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

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{Object, Text};
use bytes::Bytes;
use component::{Clock, Shutdown};
use etcd::{Client, ConfigError, Error};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

pub use codec::{Codec, CodecError, Placement};
pub use fresh::ReadError;
pub(crate) use migrate::fill;
pub use migrate::{MigrateError, Migrated};
pub use servers::Servers;

use crate::engine::{Backend, View};
use crate::history::Limits;
use crate::index::Index;
use crate::store::{Write, WriteError};
use crate::view::Live;
use keys::Keys;

/// How many writes may be under way; more wait.
const WRITES: usize = 1024;
/// The patience of [`EtcdConfig::new`].
const PATIENCE: Duration = Duration::from_secs(20);
/// How many changes of the past are read at the start, so that watches and continue tokens of other servers go on.
const REPLAY: u64 = 16 << 10;

/// How a store in etcd is opened.
pub struct EtcdConfig {
    /// Where etcd is.
    pub servers: etcd::Config,
    /// What all keys begin with (`--etcd-prefix`).
    pub prefix: String,
    /// Reads and writes the values.
    pub codec: Arc<dyn Codec>,
    /// The wall clock.
    pub clock: Clock,
    /// How often watchers that asked for it learn how far they have come.
    pub progress_interval: Duration,
    /// How long opening waits for an etcd that cannot be reached; it may be starting as well.
    pub patience: Duration,
}

impl EtcdConfig {
    /// The defaults.
    pub fn new(servers: etcd::Config, codec: Arc<dyn Codec>) -> Self {
        Self {
            servers,
            prefix: "/registry".into(),
            codec,
            clock: Clock::system(),
            progress_interval: crate::facade::PROGRESS_INTERVAL,
            patience: PATIENCE,
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

/// Why a store in etcd cannot be opened. Each sentence says what to do.
#[derive(Debug, thiserror::Error)]
pub enum EtcdOpenError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// etcd did not answer, or refused.
    #[error("{error}{}", hint(error))]
    Etcd {
        /// Why.
        error: Error,
    },
    /// A value cannot be read by this configuration.
    #[error("{0}")]
    Value(String),
}

impl From<Error> for EtcdOpenError {
    // Not its source: what it says is said already.
    fn from(error: Error) -> Self {
        Self::Etcd { error }
    }
}

fn hint(error: &Error) -> &'static str {
    match error {
        Error::Unreachable { .. } => ": start it, or correct --etcd-servers",
        Error::Unavailable(why) if !why.contains("--etcd") => ": see that a majority of its members runs",
        _ => "",
    }
}

/// What follows etcd.
pub(crate) struct Engine {
    me: Weak<Self>,
    pub(crate) index: Arc<Index>,
    client: Client,
    keys: Keys,
    codec: Arc<dyn Codec>,
    pub(crate) clock: Clock,
    progress_interval: Duration,
    /// Whether etcd says reliably how far a watch has come. If it does not, the watch is over all keys of
    /// etcd, not only ours: then there is an event for every revision.
    progress: AtomicBool,
    /// What is being written, by key: an event with these bytes needs no decoding.
    writing: Mutex<write::Writing>,
    leases: lease::Leases,
    places: Arc<Semaphore>,
    questions: fresh::Questions,
    /// Who waits for the index to have a revision.
    waiting: fresh::Waiting,
    /// Somebody waits for the watch, or wants to hear of progress.
    nudge: Notify,
    servers: watch::Sender<BTreeSet<Text>>,
    /// Why etcd cannot be followed now.
    broken: Mutex<Option<Error>>,
    /// The values that could not be read.
    unreadable: unreadable::Unreadable,
    /// What is being written; ends first.
    writes: Shutdown,
    /// What runs in the background.
    tasks: Shutdown,
}

impl Engine {
    /// Connects, loads the state and follows it. Returns once the index shows what etcd had when this was called.
    pub(crate) async fn open(config: EtcdConfig) -> Result<Arc<Self>, EtcdOpenError> {
        let client = Client::new(&config.servers)?;
        let engine = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            index: Arc::new(Index::new(Limits::default())),
            client,
            keys: Keys::new(&config.prefix, config.codec.placements()),
            codec: config.codec,
            clock: config.clock,
            progress_interval: config.progress_interval,
            progress: AtomicBool::new(false),
            writing: Mutex::default(),
            leases: lease::Leases::default(),
            places: Arc::new(Semaphore::new(WRITES)),
            questions: fresh::Questions::default(),
            waiting: fresh::Waiting::default(),
            nudge: Notify::new(),
            servers: watch::Sender::default(),
            broken: Mutex::default(),
            unreadable: unreadable::Unreadable::default(),
            writes: Shutdown::new(),
            tasks: Shutdown::new(),
        });
        engine.wait_for_etcd(config.patience).await?;
        let state = engine.load_past().await?;
        engine.install(state);
        let (following, stop) = (engine.clone(), engine.tasks.clone());
        engine.tasks.spawn(async move { following.follow(&stop).await });
        let (asking, stop) = (engine.clone(), engine.tasks.clone());
        engine.tasks.spawn(async move { asking.answer_questions(&stop).await });
        let error = match engine.fresh().await {
            Ok(()) => {
                // Also among what changed while it was loaded.
                let Some(why) = engine.unreadable.encrypted() else { return Ok(engine) };
                engine.tasks.finish().await;
                return Err(EtcdOpenError::Value(why));
            }
            Err(ReadError::Etcd(e)) => e,
            Err(e) => Error::Unavailable(e.to_string().into()),
        };
        engine.tasks.finish().await;
        Err(error.into())
    }

    /// Asks every member what it is, until one answers.
    async fn wait_for_etcd(&self, patience: Duration) -> Result<(), EtcdOpenError> {
        let deadline = Instant::now() + patience;
        let mut told = false;
        loop {
            let outcome = match self.client.versions().await {
                Ok(versions) => {
                    let reliable =
                        !versions.is_empty() && versions.iter().all(|v| follow::progress_is_reliable(v));
                    self.progress.store(reliable, Ordering::Relaxed);
                    // A read tells whether there is a leader, and whether we may read.
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

    /// The state to begin with: a little in the past if etcd still has that.
    async fn load_past(self: &Arc<Self>) -> Result<load::State, EtcdOpenError> {
        let (now, compacted) =
            (self.client.revision(self.keys.health()).await?, compact::last(&self.client).await?);
        if compacted > 0 && compacted <= now && now - compacted <= REPLAY {
            match self.load(Some(compacted)).await {
                Err(EtcdOpenError::Etcd { error: Error::Compacted }) => {}
                other => return other,
            }
        }
        self.load(None).await
    }

    /// Shows a loaded state, whatever was shown before.
    fn install(&self, state: load::State) {
        let load::State { revision, objects, servers, unreadable } = state;
        self.unreadable.replace(unreadable);
        self.servers.send_replace(servers);
        let packed = objects.into_iter().map(|(id, objects)| (id, Live::of(objects))).collect();
        self.index.replace(packed, revision);
        self.waiting.wake(revision);
    }

    /// Compacts etcd at every interval, until shutdown.
    pub(crate) fn compact_every(self: &Arc<Self>, interval: Duration) {
        let (engine, stop) = (self.clone(), self.tasks.clone());
        self.tasks.spawn(async move { compact::run(&engine, interval, &stop).await });
    }

    /// Whether etcd can be followed now.
    pub(crate) fn healthy(&self) -> Result<(), Error> {
        self.broken.lock().clone().map_or(Ok(()), Err)
    }

    /// Why an object of a scope cannot be read, if one cannot: its key, and why.
    pub(crate) fn unreadable(
        &self,
        resource: crate::ResourceId,
        scope: &crate::Scope,
    ) -> Option<(String, String)> {
        self.unreadable.find(resource, scope)
    }

    /// The other API servers.
    pub(crate) fn servers(self: &Arc<Self>) -> Servers {
        Servers::new(self.clone())
    }

    /// The object of a value at a key.
    fn read(&self, key: &[u8], value: &[u8], revision: u64) -> Result<Option<Arc<Object>>, CodecError> {
        let keys::Place::Object { group, plural, namespace, name } = self.keys.place(key) else {
            return Ok(None);
        };
        let mut data = self.codec.decode(group, plural, key, value)?;
        // What an object is called is what its key says, as for everybody who looks it up.
        if data.namespace != namespace {
            data.namespace = namespace.into();
        }
        if data.name != name {
            data.name = name.into();
        }
        Ok(Some(Arc::new(Object { data, revision })))
    }

    fn key_of(
        &self,
        resource: crate::ResourceId,
        namespace: &str,
        name: &str,
    ) -> Option<(Text, Text, Bytes)> {
        let resource = self.index.resource(resource)?;
        let key = self.keys.object(&resource.group, &resource.plural, namespace, name);
        Some((resource.group.clone(), resource.plural.clone(), key))
    }
}

impl Backend for Engine {
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Object>, WriteError>> {
        Box::pin(async move {
            let engine = self.me.upgrade().ok_or(WriteError::Closed)?;
            let place = self.places.clone().acquire_owned().await.map_err(|_| WriteError::Closed)?;
            if self.writes.stopped() {
                return Err(WriteError::Closed);
            }
            // A task of its own: a caller that goes away does not stop the write.
            let task = self.writes.spawn(async move {
                let _place = place;
                engine.write(write).await
            });
            task.await.unwrap_or(Err(WriteError::Closed))
        })
    }

    /// Of everything, with what expires when.
    fn view(&self) -> BoxFuture<'_, Result<View, WriteError>> {
        Box::pin(async {
            let failed = |e: Error| WriteError::Engine(e.to_string().into());
            let expiries = self.expiries().await.map_err(failed)?;
            let resources = self.index.resources();
            let revision = self.index.current();
            Ok(View {
                revision,
                resources: resources.iter().map(|r| (r.group.clone(), r.plural.clone(), r.live())).collect(),
                expiries,
            })
        })
    }

    fn nudge(&self) {
        self.nudge.notify_one();
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
