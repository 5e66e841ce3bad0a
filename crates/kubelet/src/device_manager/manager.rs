//! Plugins come and go, and containers get devices of theirs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use component::Shutdown;
use component::metrics::Page;
use parking_lot::Mutex;
use plugins::device as pb;
use plugins::socket;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::metrics::DeviceMetrics;
use super::record;
use super::state::{Offer, State};
use crate::checkpoint::{self, RecordError};
use crate::config::Config;
use crate::pods::workers::Workers;
use crate::work::try_blocking;

/// The directory of the plugins' sockets, below the kubelet's.
const DIR: &str = "device-plugins";
/// The least time between two lists of a plugin: each changes the Node, Pods and a file.
const CALM: Duration = Duration::from_millis(100);

/// Looks after device plugins and their devices.
pub(crate) struct DeviceManager {
    pub(super) dir: PathBuf,
    pub(super) metrics: DeviceMetrics,
    /// The Node tells of other resources than before.
    pub(crate) changed: Notify,
    pub(super) state: Mutex<State>,
    /// Held while the file is written, so that a later state is not replaced by an earlier one.
    writing: tokio::sync::Mutex<()>,
    pub(super) workers: Arc<Workers>,
    /// Whether it is known which Pods there are.
    ready: AtomicBool,
    /// Whether no earlier process left anything.
    new: bool,
    shutdown: Shutdown,
}

impl std::fmt::Debug for DeviceManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceManager").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl DeviceManager {
    /// Reads what an earlier process left. A file that cannot be read is told of and passed over, as upstream does.
    pub(crate) fn new(config: &Config, workers: Arc<Workers>, shutdown: Shutdown) -> Arc<Self> {
        let dir = config.root_dir.join(DIR);
        let read = checkpoint::read(&dir.join(record::FILE)).map_err(RecordError::from);
        let new = matches!(read, Ok(None));
        let data = read.and_then(|bytes| bytes.map(|b| record::decode(&b)).transpose());
        let data = data.unwrap_or_else(|error| {
            tracing::error!(%error, "it is not known which devices containers have");
            None
        });
        Arc::new(Self {
            dir,
            metrics: DeviceMetrics::default(),
            changed: Notify::new(),
            state: Mutex::new(State::new(data.unwrap_or_default(), Instant::now())),
            writing: tokio::sync::Mutex::default(),
            workers,
            ready: AtomicBool::new(false),
            new,
            shutdown,
        })
    }

    /// Whether this is another machine than the one that had the Node before: nobody left a record of devices.
    pub(crate) fn is_new(&self) -> bool {
        self.new
    }

    /// It is known which Pods there are: devices of others are free.
    pub(crate) fn ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Takes a plugin into use.
    ///
    /// # Errors
    /// It does not answer; upstream's texts.
    pub(super) async fn connect(self: &Arc<Self>, resource: &str, path: &Path) -> Result<(), String> {
        let channel =
            socket::connect(path).await.map_err(|e| format!("failed to dial device plugin: {e}"))?;
        let connection = self.state.lock().next_connection();
        let endpoint = Endpoint::new(connection, path.to_owned(), channel).await;
        let endpoint = endpoint.map_err(|e| format!("failed to get device plugin options: {e}"))?;
        self.state.lock().connected(resource, endpoint.clone())?;
        tracing::info!(resource, "a device plugin registered");
        let (me, resource, stop) = (self.clone(), resource.to_owned(), self.shutdown.clone());
        self.shutdown.spawn(async move {
            let _ = stop.run(me.follow(&resource, &endpoint)).await;
        });
        Ok(())
    }

    /// Follows a plugin's devices until it is gone, or another takes its place.
    async fn follow(&self, resource: &str, endpoint: &Endpoint) {
        let ended = endpoint.gone.run_until_cancelled(self.listen(resource, endpoint)).await;
        if let Some(error) = ended {
            tracing::warn!(resource, error, "a device plugin is gone");
        }
        self.disconnect(resource, endpoint.connection).await;
    }

    /// Answers why the plugin tells of its devices no more.
    async fn listen(&self, resource: &str, endpoint: &Endpoint) -> String {
        let mut told = match endpoint.watch().await {
            Ok(told) => told,
            Err(error) => return error.to_string(),
        };
        loop {
            match told.message().await {
                Ok(Some(message)) => {
                    if self.told(resource, endpoint.connection, message.devices).await {
                        tokio::time::sleep(CALM).await;
                    }
                }
                Ok(None) => return "it ended its list".to_owned(),
                Err(status) => return status.message().to_owned(),
            }
        }
    }

    /// Takes a plugin's list; answers whether it is another than before.
    async fn told(&self, resource: &str, connection: u64, devices: Vec<pb::Device>) -> bool {
        let pods = self.state.lock().told(resource, connection, devices);
        // A plugin that says the same again and again costs nobody anything.
        let Some(pods) = pods else { return false };
        self.changed.notify_one();
        for pod in pods {
            self.workers.changed(&pod);
        }
        if let Err(error) = self.save().await {
            tracing::error!(%error, "the devices of containers are not kept");
        }
        true
    }

    async fn disconnect(&self, resource: &str, connection: u64) {
        if self.state.lock().disconnected(resource, connection, Instant::now()) {
            self.changed.notify_one();
            if let Err(error) = self.save().await {
                tracing::error!(%error, "the devices of containers are not kept");
            }
        }
    }

    /// The socket of a plugin is gone.
    pub(super) async fn disconnect_endpoint(&self, resource: &str, path: &Path) {
        let connection = {
            let state = self.state.lock();
            state.last_endpoint(resource).filter(|e| e.path == path).map(|e| e.connection)
        };
        if let Some(connection) = connection {
            self.disconnect(resource, connection).await;
        }
    }

    /// The resources that the Node tells of now.
    pub(crate) async fn offer(&self) -> Offer {
        let (offer, forgotten) = self.state.lock().offer(Instant::now());
        if forgotten && let Err(error) = self.save().await {
            tracing::error!(%error, "the devices of containers are not kept");
        }
        offer
    }

    /// Whether a resource is a plugin's, now or before.
    pub(crate) fn is_plugins(&self, resource: &str) -> bool {
        self.state.lock().is_plugins(resource)
    }

    /// Frees the devices of Pods that use the node no more.
    pub(crate) fn free_orphans(&self) {
        if !self.ready.load(Ordering::Relaxed) {
            return;
        }
        let mut gone = self.state.lock().allocated.pods();
        // Without the lock: whoever looks at a Pod's state may look at its devices meanwhile.
        gone.retain(|uid| self.workers.get(uid).is_none_or(|w| !w.active()));
        if !gone.is_empty() {
            self.state.lock().allocated.free(&gone);
        }
    }

    /// Writes the metrics.
    pub(crate) fn write_metrics(&self, page: &mut Page) {
        self.metrics.write(page);
    }

    pub(super) async fn save(&self) -> Result<(), RecordError> {
        let _turn = self.writing.lock().await;
        let (data, dir) = (self.state.lock().data(), self.dir.clone());
        try_blocking(move || Ok(checkpoint::write(&dir.join(record::FILE), &record::encode(data)?)?)).await
    }
}
