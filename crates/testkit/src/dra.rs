//! A driver of devices that Pods claim: it publishes a ResourceSlice and a description of its devices by the Container
//! Device Interface, prepares claims, and every call can be made to go wrong.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
pub use plugins::dra as pb;
use plugins::dra::dra_plugin_server::{DraPlugin, DraPluginServer};
use plugins::dra_health as health_pb;
use plugins::dra_health::dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer};
use plugins::dra_v1beta1 as v1beta1;
use plugins::dra_v1beta1::dra_plugin_server::{DraPlugin as V1beta1, DraPluginServer as V1beta1Server};
use plugins::registration::registration_server::RegistrationServer;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_stream::wrappers::ReceiverStream;
pub use tonic::Code;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::plugin::{Faults, Introduction, Serving};
use crate::{Cluster, tool};

/// The way in which a call goes wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It answers with an error.
    Fails(Code, String),
    /// It never answers.
    Hangs,
    /// It answers with an error for each claim.
    Refuses(String),
    /// It answers for a claim that it was not asked for.
    Wrong,
    /// It answers for no claim.
    Skips,
    /// It answers with more devices than a message may hold.
    Huge,
}

/// A call as the driver got it: its name, the version of the protocol, and the claims' names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `NodePrepareResources` or `NodeUnprepareResources`.
    pub name: &'static str,
    /// `v1` or `v1beta1`.
    pub version: &'static str,
    /// The claims' names.
    pub claims: Vec<String>,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
}

#[derive(Clone)]
struct Inner {
    name: String,
    endpoint: PathBuf,
    /// The process whose network leads to the cluster.
    pid: u32,
    kubeconfig: PathBuf,
    healths: watch::Sender<Vec<health_pb::DeviceHealth>>,
    faults: Faults<Fault>,
    introduction: Introduction,
    state: Arc<Mutex<State>>,
}

/// A driver that runs in this process. The devices of its node are files like `/dev/null`, each with an environment
/// variable `DEVICE_NAME`.
pub struct Driver {
    inner: Inner,
    registration: PathBuf,
    serving: Option<Serving>,
}

impl Driver {
    /// Makes a driver of a cluster's node that speaks these versions, in this order: `v1.DRAPlugin`. It does not run yet.
    pub fn new(cluster: &Cluster, name: &str, versions: &[&str]) -> Result<Self> {
        let root = cluster.data_dir().join("kubelet");
        let dir = root.join("plugins").join(name);
        fs::create_dir_all(&dir)?;
        let endpoint = dir.join("dra.sock");
        let inner = Inner {
            name: name.to_owned(),
            faults: Faults::default(),
            introduction: Introduction::new("DRAPlugin", name, &endpoint, versions),
            endpoint,
            pid: cluster.host().pid(),
            kubeconfig: cluster.kubeconfig(),
            healths: watch::Sender::new(Vec::new()),
            state: Arc::default(),
        };
        let registration = root.join("plugins_registry").join(format!("{name}-reg.sock"));
        Ok(Self { inner, registration, serving: None })
    }

    /// Starts the driver, for the first time or again.
    pub fn start(&mut self) -> Result<()> {
        let inner = self.inner.clone();
        let sockets = vec![self.inner.endpoint.clone(), self.registration.clone()];
        let serve = move |mut listeners: Vec<_>| async move {
            let (Some(registry), Some(services)) = (listeners.pop(), listeners.pop()) else { return };
            let registration = Server::builder()
                .add_service(RegistrationServer::new(inner.introduction.clone()))
                .serve_with_incoming(registry);
            let services = Server::builder()
                .add_service(DraPluginServer::new(inner.clone()))
                .add_service(DraResourceHealthServer::new(inner.clone()))
                .add_service(V1beta1Server::new(inner))
                .serve_with_incoming(services);
            let _ = tokio::join!(registration, services);
        };
        self.serving = Some(Serving::start(sockets, serve)?);
        Ok(())
    }

    /// Ends the driver: its sockets go, and what it prepared stays.
    pub fn stop(&mut self) {
        drop(self.serving.take());
    }

    /// Describes devices to container runtimes, and offers them in a slice of the cluster's node.
    pub fn publish(&self, cluster: &Cluster, devices: &[&str]) -> Result<()> {
        let kind = self.kind();
        let described: Vec<Value> = devices
            .iter()
            .map(|name| {
                let node = json!({"path": format!("/dev/{name}"), "hostPath": "/dev/null"});
                let edits =
                    json!({"env": [format!("DEVICE_{}=here", name.to_uppercase())], "deviceNodes": [node]});
                json!({"name": name, "containerEdits": edits})
            })
            .collect();
        let description = json!({"cdiVersion": "0.6.0", "kind": kind, "devices": described});
        let dir = PathBuf::from(format!("/proc/{}/root/run/cdi", self.inner.pid));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("{}.json", self.inner.name)), description.to_string())?;
        let nodes: Value = serde_json::from_str(&cluster.kubectl(&["get", "nodes", "-o", "json"])?)?;
        let node = nodes["items"][0]["metadata"]["name"].clone();
        let offered: Vec<Value> = devices.iter().map(|name| json!({"name": name})).collect();
        let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": self.inner.name}, "spec": {"driver": self.inner.name, "nodeName": node,
            "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1}, "devices": offered}});
        cluster.apply(&slice.to_string()).map(drop)
    }

    /// The first part of the names of its devices in descriptions.
    pub fn kind(&self) -> String {
        format!("{}/device", self.inner.name)
    }

    /// Says how healthy a device is, and why.
    pub fn health(&self, device: &str, healthy: bool, message: &str) {
        let health =
            if healthy { health_pb::HealthStatus::Healthy } else { health_pb::HealthStatus::Unhealthy };
        let device =
            health_pb::DeviceIdentifier { pool_name: "pool".to_owned(), device_name: device.to_owned() };
        let one = health_pb::DeviceHealth {
            device: Some(device),
            health: health.into(),
            message: message.to_owned(),
            health_check_timeout_seconds: 600,
            ..health_pb::DeviceHealth::default()
        };
        self.inner.healths.send_replace(vec![one]);
    }

    /// Lets calls of a name go wrong, or go well again.
    pub fn fault(&self, call: &str, fault: Option<Fault>) {
        self.inner.faults.set(call, fault);
    }

    /// The calls of a name that the driver got.
    pub fn calls(&self, name: &str) -> Vec<Call> {
        self.inner.state().calls.iter().filter(|c| c.name == name).cloned().collect()
    }

    /// The answers that the kubelet gave to registrations: the errors, empty for none.
    pub fn registrations(&self) -> Vec<String> {
        self.inner.introduction.answers()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call; answers how it goes wrong, unless that is its answer.
    async fn begin(
        &self,
        name: &'static str,
        version: &'static str,
        claims: &[pb::Claim],
    ) -> Result<Option<Fault>, Status> {
        let claims = claims.iter().map(|c| c.name.clone()).collect();
        self.state().calls.push(Call { name, version, claims });
        match self.faults.of(name) {
            Some(Fault::Fails(code, message)) => Err(Status::new(code, message)),
            Some(Fault::Hangs) => std::future::pending().await,
            other => Ok(other),
        }
    }

    /// The devices that the scheduler chose for a claim, as a driver reads them.
    fn allocated(&self, claim: &pb::Claim) -> Result<Vec<pb::Device>> {
        let out = Command::new("nsenter")
            .args(["--all", "--target", &self.pid.to_string(), "--"])
            .arg(tool("kubectl"))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["get", "resourceclaim", &claim.name, "-n", &claim.namespace, "-o", "json"])
            .output()?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr).trim());
        let found: Value = serde_json::from_slice(&out.stdout)?;
        ensure!(found["metadata"]["uid"] == claim.uid, "another claim has the name");
        let results = found["status"]["allocation"]["devices"]["results"].as_array().context("no devices")?;
        let text = |result: &Value, key: &str| result[key].as_str().unwrap_or_default().to_owned();
        let own = results.iter().filter(|r| r["driver"] == self.name.as_str());
        Ok(own
            .map(|r| pb::Device {
                request_names: vec![text(r, "request")],
                pool_name: text(r, "pool"),
                device_name: text(r, "device"),
                cdi_device_ids: vec![format!("{}/device={}", self.name, text(r, "device"))],
                share_id: None,
            })
            .collect())
    }

    async fn prepare(
        &self,
        version: &'static str,
        claims: Vec<pb::Claim>,
    ) -> Result<pb::NodePrepareResourcesResponse, Status> {
        let fault = self.begin("NodePrepareResources", version, &claims).await?;
        let me = self.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let one = |claim: &pb::Claim| {
                let answer = match &fault {
                    Some(Fault::Refuses(why)) => Err(why.clone()),
                    Some(Fault::Huge) => {
                        Ok(vec![
                            pb::Device { device_name: "x".repeat(1 << 16), ..pb::Device::default() };
                            100
                        ])
                    }
                    _ => me.allocated(claim).map_err(|e| e.to_string()),
                };
                let (devices, error) = match answer {
                    Ok(devices) => (devices, String::new()),
                    Err(error) => (Vec::new(), error),
                };
                pb::NodePrepareResourceResponse { devices, error }
            };
            let all = answered(&claims, fault.as_ref());
            all.into_iter().map(|(uid, claim)| (uid, one(claim))).collect()
        });
        let claims = answer.await.map_err(|e| Status::internal(e.to_string()))?;
        Ok(pb::NodePrepareResourcesResponse { claims })
    }

    async fn unprepare(
        &self,
        version: &'static str,
        claims: Vec<pb::Claim>,
    ) -> Result<pb::NodeUnprepareResourcesResponse, Status> {
        let fault = self.begin("NodeUnprepareResources", version, &claims).await?;
        let error = match &fault {
            Some(Fault::Refuses(why)) => why.clone(),
            _ => String::new(),
        };
        let one = |(uid, _)| (uid, pb::NodeUnprepareResourceResponse { error: error.clone() });
        let claims = answered(&claims, fault.as_ref()).into_iter().map(one).collect();
        Ok(pb::NodeUnprepareResourcesResponse { claims })
    }
}

/// The uids under which claims are answered for.
fn answered<'c>(claims: &'c [pb::Claim], fault: Option<&Fault>) -> Vec<(String, &'c pb::Claim)> {
    let one = |claim: &'c pb::Claim| match fault {
        Some(Fault::Wrong) => Some((format!("not-{}", claim.uid), claim)),
        Some(Fault::Skips) => None,
        _ => Some((claim.uid.clone(), claim)),
    };
    claims.iter().filter_map(one).collect()
}

#[tonic::async_trait]
impl DraResourceHealth for Inner {
    type NodeWatchResourcesStream = ReceiverStream<Result<health_pb::NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<health_pb::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let mut healths = self.healths.subscribe();
        tokio::spawn(async move {
            loop {
                let devices = healths.borrow_and_update().clone();
                let message = health_pb::NodeWatchResourcesResponse { devices };
                if sender.send(Ok(message)).await.is_err() || healths.changed().await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

#[tonic::async_trait]
impl DraPlugin for Inner {
    async fn node_prepare_resources(
        &self,
        request: Request<pb::NodePrepareResourcesRequest>,
    ) -> Result<Response<pb::NodePrepareResourcesResponse>, Status> {
        self.prepare("v1", request.into_inner().claims).await.map(Response::new)
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<pb::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<pb::NodeUnprepareResourcesResponse>, Status> {
        self.unprepare("v1", request.into_inner().claims).await.map(Response::new)
    }
}

fn newer(claims: Vec<v1beta1::Claim>) -> Vec<pb::Claim> {
    let one = |c: v1beta1::Claim| pb::Claim { namespace: c.namespace, uid: c.uid, name: c.name };
    claims.into_iter().map(one).collect()
}

#[tonic::async_trait]
impl V1beta1 for Inner {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
        let answer = self.prepare("v1beta1", newer(request.into_inner().claims)).await?;
        let device = |d: pb::Device| v1beta1::Device {
            request_names: d.request_names,
            pool_name: d.pool_name,
            device_name: d.device_name,
            cdi_device_ids: d.cdi_device_ids,
        };
        let one = |(uid, one): (String, pb::NodePrepareResourceResponse)| {
            let devices = one.devices.into_iter().map(device).collect();
            (uid, v1beta1::NodePrepareResourceResponse { devices, error: one.error })
        };
        let claims = answer.claims.into_iter().map(one).collect();
        Ok(Response::new(v1beta1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
        let answer = self.unprepare("v1beta1", newer(request.into_inner().claims)).await?;
        let one = |(uid, one): (String, pb::NodeUnprepareResourceResponse)| {
            (uid, v1beta1::NodeUnprepareResourceResponse { error: one.error })
        };
        let claims = answer.claims.into_iter().map(one).collect();
        Ok(Response::new(v1beta1::NodeUnprepareResourcesResponse { claims }))
    }
}
