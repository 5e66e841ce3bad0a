//! The plugins of drivers that are registered, and whether anybody answers there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Backoff;
use component::Shutdown;
use futures::future::BoxFuture;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use plugins::dra_health::NodeWatchResourcesRequest;
use plugins::dra_health::dra_resource_health_client::DraResourceHealthClient;
use plugins::socket::channel;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::calls::{Plugin, Service};
use super::error::NoDriver;
use super::health::{DeviceId, Healths};
use super::slices::Slices;
use crate::plugin_manager::{Plugin as Told, PluginHandler};

/// How long after a driver's last plugin went its ResourceSlices stay; upstream's.
const WIPING_DELAY: Duration = Duration::from_secs(30);
/// How long after its end a plugin's word about health is asked for again; upstream's.
const HEALTH_AGAIN: Duration = Duration::from_secs(5);
/// The least time between two changes of health that a driver tells: each changes Pods.
const CALM: Duration = Duration::from_millis(100);
/// How many changes of health wait at most.
const UNWELL: usize = 100;
/// The least and the most time between attempts to reach a plugin.
const AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];

struct Known {
    plugin: Arc<Plugin>,
    connected: bool,
    gone: CancellationToken,
}

#[derive(Default)]
struct State {
    /// By driver, in the order of their registration.
    drivers: BTreeMap<String, Vec<Known>>,
    /// Drivers that nobody answers for, whose slices are to be removed.
    wipes: BTreeMap<String, CancellationToken>,
}

impl State {
    /// The newest plugin that answers, or else the newest.
    fn best(&self, driver: &str) -> Option<&Known> {
        let all = self.drivers.get(driver)?;
        all.iter().rev().find(|k| k.connected).or_else(|| all.last())
    }

    fn is_usable(&self, driver: &str) -> bool {
        self.drivers.get(driver).is_some_and(|all| all.iter().any(|k| k.connected))
    }
}

/// A driver, and devices of which it says something else than before.
type Unwell = (String, BTreeSet<DeviceId>);

/// Plugins by driver.
pub(super) struct Plugins {
    state: Mutex<State>,
    /// How healthy devices are.
    pub(super) healths: Mutex<Healths>,
    unwell: (mpsc::Sender<Unwell>, tokio::sync::Mutex<mpsc::Receiver<Unwell>>),
    slices: Option<Slices>,
    shutdown: Shutdown,
}

impl Plugins {
    /// None is there yet. Without `slices` none are removed.
    pub(super) fn new(slices: Option<Slices>, shutdown: Shutdown) -> Arc<Self> {
        let (sender, receiver) = mpsc::channel(UNWELL);
        let unwell = (sender, tokio::sync::Mutex::new(receiver));
        Arc::new(Self { state: Mutex::default(), healths: Mutex::default(), unwell, slices, shutdown })
    }

    /// The plugin that is called for a driver.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn get(&self, driver: &str) -> Result<Arc<Plugin>, NoDriver> {
        if driver.is_empty() {
            return Err(NoDriver::Empty);
        }
        let state = self.state.lock();
        let known = state.best(driver).ok_or_else(|| NoDriver::Unknown(driver.to_owned()))?;
        Ok(known.plugin.clone())
    }

    /// Removes the slices of all drivers: none is registered yet, and some may not come back.
    pub(super) async fn begin(&self) {
        if let Some(slices) = &self.slices {
            slices.wipe(None).await;
        }
    }

    /// Waits for the next driver that says something else of devices.
    pub(super) async fn unwell(&self) -> Unwell {
        match self.unwell.1.lock().await.recv().await {
            Some(unwell) => unwell,
            // The sender lives as long as this.
            None => std::future::pending().await,
        }
    }

    /// Follows what a plugin says of its devices' health, if it does.
    async fn listen(&self, plugin: &Plugin) {
        loop {
            let mut client = DraResourceHealthClient::new(plugin.channel.clone());
            if let Ok(answer) = client.node_watch_resources(NodeWatchResourcesRequest {}).await {
                let mut told = answer.into_inner();
                while let Ok(Some(message)) = told.message().await {
                    let changed = self.healths.lock().told(&plugin.driver, message.devices, Instant::now());
                    if !changed.is_empty() {
                        // The receiver lives as long as this.
                        let _ = self.unwell.0.send((plugin.driver.clone(), changed)).await;
                        tokio::time::sleep(CALM).await;
                    }
                }
                self.healths.lock().forget(&plugin.driver);
            }
            tokio::time::sleep(HEALTH_AGAIN).await;
        }
    }

    fn add(self: &Arc<Self>, plugin: Plugin) -> Result<(), String> {
        let plugin = Arc::new(plugin);
        let gone = CancellationToken::new();
        let mut state = self.state.lock();
        let all = state.drivers.entry(plugin.driver.clone()).or_default();
        if all.iter().any(|k| k.plugin.endpoint == plugin.endpoint) {
            let (driver, endpoint) = (&plugin.driver, plugin.endpoint.display());
            return Err(format!("endpoint {endpoint} already registered for DRA driver plugin {driver}"));
        }
        all.push(Known { plugin: plugin.clone(), connected: false, gone: gone.clone() });
        self.sync(&mut state, &plugin.driver);
        drop(state);
        let (me, stop) = (self.clone(), self.shutdown.clone());
        self.shutdown.spawn(async move {
            let follow = async { tokio::join!(me.follow(&plugin), Box::pin(me.listen(&plugin))) };
            let _ = stop.run(gone.run_until_cancelled(follow)).await;
            me.healths.lock().forget(&plugin.driver);
        });
        Ok(())
    }

    fn remove(self: &Arc<Self>, driver: &str, endpoint: &Path) {
        let mut state = self.state.lock();
        let Some(all) = state.drivers.get_mut(driver) else { return };
        for gone in all.extract_if(.., |k| k.plugin.endpoint == endpoint) {
            gone.gone.cancel();
        }
        if all.is_empty() {
            state.drivers.remove(driver);
        }
        self.sync(&mut state, driver);
    }

    /// Keeps a connection to a plugin, by which it is seen whether it is there.
    async fn follow(self: &Arc<Self>, plugin: &Plugin) {
        let mut backoff = Backoff::new(AGAIN[0], AGAIN[1]);
        loop {
            if let Ok(connection) = connect(&plugin.endpoint).await {
                self.connected(plugin, true);
                backoff.reset();
                connection.await;
                self.connected(plugin, false);
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    fn connected(self: &Arc<Self>, plugin: &Plugin, connected: bool) {
        let mut state = self.state.lock();
        let all = state.drivers.get_mut(&plugin.driver);
        let Some(known) = all.and_then(|all| all.iter_mut().find(|k| k.plugin.endpoint == plugin.endpoint))
        else {
            return;
        };
        known.connected = connected;
        tracing::debug!(driver = plugin.driver, connected, "the connection to a driver of devices changed");
        self.sync(&mut state, &plugin.driver);
    }

    /// Sees that the slices of a driver go if nobody answers for it for a while, and stay otherwise.
    fn sync(self: &Arc<Self>, state: &mut State, driver: &str) {
        let Some(slices) = self.slices.clone() else { return };
        if state.is_usable(driver) {
            if let Some(pending) = state.wipes.remove(driver) {
                pending.cancel();
            }
            return;
        }
        if state.wipes.contains_key(driver) {
            return;
        }
        let back = CancellationToken::new();
        state.wipes.insert(driver.to_owned(), back.clone());
        let (me, stop, driver) = (self.clone(), self.shutdown.clone(), driver.to_owned());
        self.shutdown.spawn(async move {
            let wipe = async {
                tokio::time::sleep(WIPING_DELAY).await;
                tracing::info!(driver, "the ResourceSlices of a driver of devices that is gone are removed");
                slices.wipe(Some(&driver)).await;
            };
            let wiped = stop.run(back.run_until_cancelled(wipe)).await;
            if let Some(Some(())) = wiped {
                let mut state = me.state.lock();
                // Under the lock: otherwise it was exchanged by one that is still to come.
                if !back.is_cancelled() {
                    state.wipes.remove(&driver);
                }
            }
        });
    }
}

/// Connects to a plugin; what is answered ends with the connection.
async fn connect(endpoint: &Path) -> io::Result<impl Future<Output = ()> + use<>> {
    let stream = UnixStream::connect(endpoint).await?;
    let handshake = http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(io::Error::other)?;
    Ok(async move {
        let _ = connection.await;
        drop(sender);
    })
}

/// Takes drivers of devices into use.
pub(crate) struct Registrar(pub(super) Arc<Plugins>);

impl Registrar {
    fn choose(told: &Told) -> Result<Service, String> {
        Service::choose(&told.versions).map_err(|why| {
            let (name, endpoint) = (&told.name, told.endpoint.display());
            format!(
                "invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}: {why}"
            )
        })
    }
}

impl PluginHandler for Registrar {
    fn kind(&self) -> &'static str {
        "DRAPlugin"
    }
    fn validate(&self, plugin: &Told) -> Result<(), String> {
        Self::choose(plugin).map(drop)
    }
    fn register<'a>(&'a self, plugin: &'a Told) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let service = Self::choose(plugin)?;
            let endpoint = plugin.endpoint.clone();
            let channel = channel(&endpoint);
            self.0.add(Plugin { driver: plugin.name.clone(), endpoint, service, channel })
        })
    }
    fn deregister<'a>(&'a self, plugin: &'a Told) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.0.remove(&plugin.name, &plugin.endpoint) })
    }
}
