//! Sockets that come and go, and the plugins behind them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Backoff;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::plugin::Handlers;
use super::registration::register;
use super::sockets::{self, Found, Stamp};
use crate::metrics::{self, Metrics};
use crate::work::{blocking, try_blocking};

/// The least and the most time between two attempts to register a plugin; upstream's.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(122)];
/// How long after a change the directory is read: a driver makes its sockets in several steps.
const SETTLE: Duration = Duration::from_millis(50);
/// How long a directory that cannot be watched is left alone.
const PAUSE: Duration = Duration::from_secs(10);

/// Attends to the plugins of this node.
pub(crate) struct PluginManager {
    dir: PathBuf,
    handlers: Handlers,
    /// The sockets that are there, and whether their plugins are registered.
    sockets: Mutex<BTreeMap<PathBuf, bool>>,
}

/// A socket that is attended.
struct Attended {
    stamp: Stamp,
    gone: CancellationToken,
}

impl PluginManager {
    /// Attends to those that register below `dir`.
    pub(crate) fn new(dir: PathBuf, handlers: Handlers) -> Self {
        Self { dir, handlers, sockets: Mutex::default() }
    }

    /// Writes how many plugins there are to be, and how many there are.
    pub(crate) fn write_metrics(&self, metrics: &Metrics) {
        metrics.reset(&metrics::PLUGIN_MANAGER_TOTAL_PLUGINS);
        for (socket, registered) in &*self.sockets.lock() {
            let socket = socket.to_string_lossy();
            metrics.set(&metrics::PLUGIN_MANAGER_TOTAL_PLUGINS, &[&socket, "desired_state_of_world"], 1.0);
            if *registered {
                metrics.set(&metrics::PLUGIN_MANAGER_TOTAL_PLUGINS, &[&socket, "actual_state_of_world"], 1.0);
            }
        }
    }

    /// Attends to plugins as they come and go. Those that are registered when this ends stay so: the plugins outlive
    /// the kubelet.
    pub(crate) async fn run(&self) {
        let mut attended: HashMap<PathBuf, Attended> = HashMap::new();
        let mut work: FuturesUnordered<BoxFuture<'_, PathBuf>> = FuturesUnordered::new();
        loop {
            let (watch, found) = match self.look().await {
                Ok(looked) => looked,
                Err(error) => {
                    tracing::warn!(dir = %self.dir.display(), %error, "cannot look for plugins, will retry");
                    tokio::select! {
                        () = tokio::time::sleep(PAUSE) => {}
                        Some(ended) = work.next() => drop(attended.remove(&ended)),
                    }
                    continue;
                }
            };
            for (socket, known) in &attended {
                if found.get(socket) != Some(&known.stamp) {
                    known.gone.cancel();
                }
            }
            for (socket, stamp) in found {
                // One that was replaced is attended again once the end of the one before is.
                if !attended.contains_key(&socket) {
                    let gone = CancellationToken::new();
                    attended.insert(socket.clone(), Attended { stamp, gone: gone.clone() });
                    work.push(Box::pin(self.attend(socket, gone)));
                }
            }
            let changed = async {
                // An error ends the wait, too: then the directory is read.
                let _ = watch.readable().await;
                tokio::time::sleep(SETTLE).await;
            };
            tokio::select! {
                () = changed => {}
                Some(ended) = work.next() => drop(attended.remove(&ended)),
            }
        }
    }

    /// The sockets that are there, and a watch that was begun before they were looked for.
    async fn look(&self) -> io::Result<(sockets::Watch, Found)> {
        let dir = self.dir.clone();
        let watched = try_blocking(move || sockets::watch(&dir)).await?;
        let watch = watched.ready()?;
        let dir = self.dir.clone();
        let found = blocking(move || sockets::find(&dir)).await.map_err(io::Error::from)?;
        Ok((watch, found))
    }

    /// Registers the plugin of a socket, again and again until it succeeds, and deregisters it when the socket is gone.
    async fn attend(&self, socket: PathBuf, gone: CancellationToken) -> PathBuf {
        self.sockets.lock().insert(socket.clone(), false);
        let mut backoff = Backoff::new(AGAIN[0], AGAIN[1]);
        let registered = gone.run_until_cancelled(async {
            loop {
                match register(&socket, &self.handlers).await {
                    Ok(registered) => break registered,
                    Err(error) => {
                        let delay = backoff.delay();
                        tracing::warn!(socket = %socket.display(), %error, "a plugin is not registered, will retry");
                        tokio::time::sleep(delay).await;
                    }
                }
            }
        });
        if let Some((plugin, handler)) = registered.await {
            tracing::info!(plugin = plugin.name, kind = handler.kind(), "registered a plugin");
            self.sockets.lock().insert(socket.clone(), true);
            gone.cancelled().await;
            handler.deregister(&plugin).await;
            tracing::info!(plugin = plugin.name, kind = handler.kind(), "a plugin is gone");
        }
        self.sockets.lock().remove(&socket);
        socket
    }
}

/// Makes the directories in which plugins have their sockets; upstream's names and modes.
///
/// # Errors
/// With the directory that cannot be made.
pub(crate) fn make_dirs(root: &Path) -> Result<(), (PathBuf, io::Error)> {
    use std::os::unix::fs::DirBuilderExt;
    for name in ["plugins", "plugins_registry", "device-plugins", "pod-resources"] {
        let dir = root.join(name);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o750).create(&dir);
        made.map_err(|error| (dir, error))?;
    }
    Ok(())
}
