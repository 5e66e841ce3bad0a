//! Claims are prepared before a Pod starts, and given back after it has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Gate;
use client::Client;
use component::metrics::Page;
use component::{Shutdown, Turns};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceHealth, ResourceStatus};
use k8s_openapi::api::resource::v1::ResourceClaim;
use parking_lot::Mutex;
use plugins::dra as pb;
use plugins::resources::{CdiDevice, ClaimResource, DynamicResource};
use tokio::time::Instant;

use super::answers::{self, PREPARE, UNPREPARE};
use super::claims::{Claims, Key, Wanted};
use super::error::{DraError, Why};
use super::metrics::DraMetrics;
use super::plugins::{Plugins, Registrar};
use super::record::{self, ClaimState, Device};
use super::slices::Slices;
use super::wanted;
use crate::checkpoint::{self, RecordError};
use crate::config::Config;
use crate::node::NodeView;
use crate::pods::spec;
use crate::pods::workers::Workers;
use crate::work::{to_end, try_blocking};

/// How often claims of Pods that are gone are looked for; upstream's.
const PERIOD: Duration = Duration::from_mins(1);

/// Looks after the claims of this node's Pods.
pub(crate) struct Dra {
    client: Client,
    plugins: Arc<Plugins>,
    claims: Mutex<Claims>,
    file: PathBuf,
    /// Held while the file is written, so that a later state is not replaced by an earlier one.
    writing: tokio::sync::Mutex<()>,
    turns: Turns<Key>,
    metrics: DraMetrics,
    /// Whether Pods share the claims of their PodGroups; upstream's gate `DRAWorkloadResourceClaims`.
    by_group: bool,
}

impl Dra {
    /// Reads what an earlier process left.
    ///
    /// # Errors
    /// It cannot be read, or is not what was written: then nobody knows what drivers are to be told.
    pub(crate) fn new(
        config: &Config,
        client: Client,
        node: NodeView,
        shutdown: Shutdown,
    ) -> Result<Self, RecordError> {
        let slices = (!config.standalone).then(|| Slices {
            client: client.clone(),
            node_name: config.node_name.clone(),
            registered: Arc::new(move || node.registered().is_some()),
        });
        let by_group = config.gates.enabled(Gate::DRAWorkloadResourceClaims);
        let dra = Self::at(Self::file(config), client, Plugins::new(slices, shutdown))?;
        Ok(Self { by_group, ..dra })
    }

    /// The file in which the claims in use are kept.
    pub(crate) fn file(config: &Config) -> PathBuf {
        config.root_dir.join(record::FILE)
    }

    pub(super) fn at(file: PathBuf, client: Client, plugins: Arc<Plugins>) -> Result<Self, RecordError> {
        Ok(Self {
            client,
            plugins,
            claims: Mutex::new(Claims::new(load(&file)?)),
            file,
            writing: tokio::sync::Mutex::default(),
            turns: Turns::default(),
            metrics: DraMetrics::default(),
            by_group: false,
        })
    }

    /// The part that takes drivers into use.
    pub(crate) fn registrar(&self) -> Registrar {
        Registrar(self.plugins.clone())
    }

    /// Removes what drivers of before offered, since none of them is registered yet.
    pub(crate) async fn begin(&self) {
        self.plugins.begin().await;
    }

    /// Has the claims of a Pod prepared.
    ///
    /// # Errors
    /// The first reason why not.
    pub(crate) async fn prepare(self: &Arc<Self>, pod: &Pod) -> Result<(), DraError> {
        let began = Instant::now();
        let done = self.try_prepare(pod).await;
        self.metrics.operation("PrepareResources", done.is_err(), began.elapsed());
        done.map_err(DraError::Prepare)
    }

    /// Everything is looked at before anything is noted: a Pod that fails here leaves nothing that would have to be
    /// undone.
    async fn try_prepare(self: &Arc<Self>, pod: &Pod) -> Result<(), Why> {
        let mut all = Vec::new();
        let claims = self.client.api::<ResourceClaim>(spec::namespace(pod));
        for name in wanted::names(pod)? {
            let claim = claims.get(&name.0).await.map_err(|e| Why::Fetch(name.0.clone(), Box::new(e)))?;
            let one = wanted::look(pod, self.by_group, &name, &claim)?;
            for driver in &one.drivers {
                self.plugins.get(driver)?;
            }
            all.push(one);
        }
        if all.is_empty() {
            return Ok(());
        }
        let (me, uid) = (self.clone(), spec::uid(pod).to_owned());
        to_end(async move { me.prepare_all(&uid, &all).await }).await?
    }

    async fn prepare_all(&self, pod_uid: &str, wanted: &[Wanted]) -> Result<(), Why> {
        let _turns = self.turns.take_all(wanted.iter().map(|w| w.key.clone()).collect()).await;
        let open = self.claims.lock().enter(pod_uid, wanted)?;
        self.save().await?;
        for (driver, claims) in by_driver(&open) {
            let plugin = self.plugins.get(driver)?;
            let asked: Vec<pb::Claim> = claims.iter().map(|c| asked(c)).collect();
            let answer = plugin.prepare(&asked, &self.metrics).await;
            let devices = answers::prepared(&asked, answer.map_err(|e| Why::Call(PREPARE, e))?)?;
            let mut known = self.claims.lock();
            for (claim, devices) in claims.iter().zip(devices) {
                known.note(&key(claim), driver, devices)?;
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        self.claims.lock().prepared(&keys(&open));
        Ok(self.save().await?)
    }

    /// Gives back the claims of a Pod that has ended, unless others use them. Nothing happens if that was done.
    ///
    /// # Errors
    /// The first reason why not; it is to be tried again.
    pub(crate) async fn unprepare(self: &Arc<Self>, pod_uid: &str) -> Result<(), DraError> {
        let began = Instant::now();
        let done = self.try_unprepare(pod_uid).await;
        self.metrics.operation("UnprepareResources", done.is_err(), began.elapsed());
        done.map_err(DraError::Unprepare)
    }

    async fn try_unprepare(self: &Arc<Self>, pod_uid: &str) -> Result<(), Why> {
        let used = self.claims.lock().of_pod(pod_uid);
        if used.is_empty() {
            return Ok(());
        }
        let (me, uid) = (self.clone(), pod_uid.to_owned());
        to_end(async move { me.unprepare_all(&uid, used).await }).await?
    }

    async fn unprepare_all(&self, pod_uid: &str, used: BTreeSet<Key>) -> Result<(), Why> {
        let _turns = self.turns.take_all(used).await;
        let last = self.claims.lock().leave(pod_uid);
        for (driver, claims) in by_driver(&last) {
            let plugin = self.plugins.get(driver)?;
            let asked: Vec<pb::Claim> = claims.iter().map(|c| asked(c)).collect();
            let answer = plugin.unprepare(&asked, &self.metrics).await;
            answers::unprepared(&asked, &answer.map_err(|e| Why::Call(UNPREPARE, e))?)?;
        }
        self.claims.lock().forget(&keys(&last));
        Ok(self.save().await?)
    }

    /// The CDI devices of a container.
    ///
    /// # Errors
    /// A claim of the container was not prepared.
    pub(crate) fn cdi_devices(&self, pod: &Pod, container: &Container) -> Result<Vec<String>, Why> {
        let mut all = Vec::new();
        let requests = wanted::requests(pod, container)?;
        let claims = self.claims.lock();
        for (name, requests) in requests {
            let key = (spec::namespace(pod).to_owned(), name);
            all.extend(claims.cdi_devices(&key, &requests)?);
        }
        Ok(all)
    }

    /// The devices of a container's claims, as agents are told of them. Nothing is told of a claim that is not prepared.
    ///
    /// DIFFERENCE: a device has its own CDI devices. Upstream adds those of the devices before it.
    pub(crate) fn resources(&self, pod: &Pod, container: &Container) -> Vec<DynamicResource> {
        let claims = self.claims.lock();
        let names = wanted::requests(pod, container).unwrap_or_default();
        let one = |driver: &str, device: &Device| ClaimResource {
            cdi_devices: device.cdi_device_ids.iter().map(|name| CdiDevice { name: name.clone() }).collect(),
            driver_name: driver.to_owned(),
            pool_name: device.pool_name.clone(),
            device_name: device.device_name.clone(),
            share_id: device.share_id.clone(),
        };
        let of_claim = |name: String| {
            let key = (spec::namespace(pod).to_owned(), name);
            let claim_resources = claims.devices(&key, "").map(|(driver, d)| one(driver, d)).collect();
            let (claim_namespace, claim_name) = key;
            DynamicResource { claim_name, claim_namespace, claim_resources }
        };
        names.into_keys().map(of_claim).filter(|r| !r.claim_resources.is_empty()).collect()
    }

    /// How healthy the devices of a container's claims are; upstream's names.
    pub(crate) fn health(&self, pod: &Pod, container: &Container) -> Vec<ResourceStatus> {
        let (claims, healths, now) = (self.claims.lock(), self.plugins.healths.lock(), Instant::now());
        let mut all = Vec::new();
        for asked in container.resources.iter().flat_map(|r| r.claims.iter().flatten()) {
            let place = objects::claims::places(pod).iter().find(|p| p.name == asked.name);
            let Some(Ok(Some((name, _)))) = place.map(|p| objects::claims::name(pod, p)) else { continue };
            let key = (spec::namespace(pod).to_owned(), name.to_owned());
            let request = asked.request.as_deref().unwrap_or_default();
            // A subrequest's devices are told under the name of its request.
            let base = request.split('/').next().unwrap_or_default();
            let mut resources: Vec<ResourceHealth> = Vec::new();
            for (driver, device) in claims.devices(&key, base) {
                let id = (device.pool_name.clone(), device.device_name.clone());
                let other = || format!("{driver}/{}/{}", device.pool_name, device.device_name);
                let resource_id = device.cdi_device_ids.first().cloned().unwrap_or_else(other);
                let (health, message) = healths.of(driver, &id, now);
                if resources.iter().all(|r| r.resource_id != resource_id) {
                    resources.push(ResourceHealth { health: Some(health.to_owned()), message, resource_id });
                }
            }
            let name = match request {
                "" => format!("claim:{}", asked.name),
                request => format!("claim:{}/{request}", asked.name),
            };
            all.push(ResourceStatus { name, resources: Some(resources) });
        }
        all
    }

    /// Wakes the workers of Pods whose devices are not as healthy as they were.
    pub(crate) async fn follow_health(&self, workers: &Workers) {
        loop {
            let (driver, devices) = self.plugins.unwell().await;
            let pods = self.claims.lock().pods_with(&driver, &devices);
            for pod in pods {
                workers.changed(&pod);
            }
        }
    }

    /// Gives back, again and again, what Pods had that are gone: a Pod with a worker sees to it itself. It must be known
    /// which Pods there are.
    pub(crate) async fn reconcile(self: &Arc<Self>, workers: &Workers) {
        loop {
            let pods = self.claims.lock().pods();
            for uid in pods.into_iter().filter(|uid| workers.get(uid).is_none()) {
                if let Err(error) = self.try_unprepare(&uid).await {
                    tracing::info!(uid, %error, "claims of a Pod that is gone are not given back, will retry");
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Writes the metrics.
    pub(crate) fn write_metrics(&self, page: &mut Page) {
        let in_use = self.claims.lock().in_use();
        self.metrics.write(page, &in_use);
    }

    async fn save(&self) -> Result<(), RecordError> {
        let _turn = self.writing.lock().await;
        let (states, file) = (self.claims.lock().states(), self.file.clone());
        try_blocking(move || store(&file, states)).await
    }
}

fn store(file: &Path, states: Vec<ClaimState>) -> Result<(), RecordError> {
    Ok(checkpoint::write(file, &record::encode(states)?)?)
}

/// Reads a file; one that is not there is made.
fn load(file: &Path) -> Result<Vec<ClaimState>, RecordError> {
    match checkpoint::read(file)? {
        Some(bytes) => record::decode(&bytes),
        None => store(file, Vec::new()).map(|()| Vec::new()),
    }
}

fn key(claim: &ClaimState) -> Key {
    (claim.namespace.clone(), claim.claim_name.clone())
}

fn keys(claims: &[ClaimState]) -> Vec<Key> {
    claims.iter().map(key).collect()
}

fn asked(claim: &ClaimState) -> pb::Claim {
    pb::Claim {
        namespace: claim.namespace.clone(),
        uid: claim.claim_uid.clone(),
        name: claim.claim_name.clone(),
    }
}

/// The claims that each driver is asked about, all of them at once.
fn by_driver(claims: &[ClaimState]) -> BTreeMap<&str, Vec<&ClaimState>> {
    let mut all: BTreeMap<&str, Vec<&ClaimState>> = BTreeMap::new();
    for claim in claims {
        for driver in claim.driver_state.keys() {
            all.entry(driver).or_default().push(claim);
        }
    }
    all
}
