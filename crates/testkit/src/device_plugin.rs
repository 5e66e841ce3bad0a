//! A device plugin: it registers with the kubelet, tells of devices that tests make sick and well, and every call can be
//! made to go wrong.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
pub use plugins::device as pb;
use plugins::device::device_plugin_server::{DevicePlugin, DevicePluginServer};
use plugins::device::registration_client::RegistrationClient;
use plugins::registration::registration_server::RegistrationServer;
pub use plugins::resources;
use plugins::resources::pod_resources_lister_client::PodResourcesListerClient;
use plugins::socket;
use tokio::sync::watch;
use tokio_stream::wrappers::ReceiverStream;
pub use tonic::Code;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

use crate::Cluster;
use crate::plugin::{Faults, Introduction, Serving};

/// The way in which a call goes wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It answers with an error.
    Fails(Code, String),
    /// It never answers.
    Hangs,
    /// It answers for no container.
    Empty,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<(&'static str, Vec<String>)>,
    options: pb::DevicePluginOptions,
    preferred: Vec<String>,
}

#[derive(Clone)]
struct Inner {
    resource: String,
    endpoint: PathBuf,
    devices: watch::Sender<Vec<(String, bool)>>,
    faults: Faults<Fault>,
    introduction: Introduction,
    state: Arc<Mutex<State>>,
}

/// A plugin that runs in this process. Its devices are files like `/dev/null`; a container gets their names in the
/// environment variable `DEVICES`.
pub struct Plugin {
    inner: Inner,
    /// The kubelet's directory of plugins' sockets.
    dir: PathBuf,
    /// The socket by which it is found, if it does not register itself.
    registry: Option<PathBuf>,
    serving: Option<Serving>,
}

impl Plugin {
    /// Makes a plugin of a cluster's node for a resource; it does not run yet.
    pub fn new(cluster: &Cluster, resource: &str, devices: &[&str]) -> Self {
        let dir = cluster.data_dir().join("kubelet/device-plugins");
        let devices = devices.iter().map(|id| ((*id).to_owned(), true)).collect();
        let endpoint = dir.join(format!("{}.sock", resource.replace('/', "-")));
        let inner = Inner {
            resource: resource.to_owned(),
            faults: Faults::default(),
            introduction: Introduction::new("DevicePlugin", resource, &endpoint, &["v1beta1"]),
            endpoint,
            devices: watch::Sender::new(devices),
            state: Arc::default(),
        };
        Self { inner, dir, registry: None, serving: None }
    }

    /// Lets it be found by a socket, as plugins of other kinds are. It prefers some devices, and is told of starts.
    pub fn found(mut self, cluster: &Cluster, preferred: &[&str]) -> Self {
        let name = format!("{}-reg.sock", self.inner.resource.replace('/', "-"));
        self.registry = Some(cluster.data_dir().join("kubelet/plugins_registry").join(name));
        let mut state = self.inner.state();
        state.options =
            pb::DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };
        state.preferred = preferred.iter().map(ToString::to_string).collect();
        drop(state);
        self
    }

    /// Starts the plugin, for the first time or again, and registers it.
    pub fn start(&mut self) -> Result<()> {
        let mut sockets = vec![self.inner.endpoint.clone()];
        sockets.extend(self.registry.clone());
        let inner = self.inner.clone();
        let serve = move |listeners: Vec<_>| async move {
            let mut listeners = listeners.into_iter();
            let Some(services) = listeners.next() else { return };
            let services = Server::builder()
                .add_service(DevicePluginServer::new(inner.clone()))
                .serve_with_incoming(services);
            let Some(registry) = listeners.next() else { return drop(services.await) };
            let registration = Server::builder()
                .add_service(RegistrationServer::new(inner.introduction))
                .serve_with_incoming(registry);
            let _ = tokio::join!(registration, services);
        };
        self.serving = Some(Serving::start(sockets, serve)?);
        if self.registry.is_none() {
            let name = self.inner.endpoint.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.register("v1beta1", &self.inner.resource, &name)?;
        }
        Ok(())
    }

    /// Asks the kubelet to register a resource.
    pub fn register(&self, version: &str, resource: &str, endpoint: &str) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let request = pb::RegisterRequest {
            version: version.to_owned(),
            endpoint: endpoint.to_owned(),
            resource_name: resource.to_owned(),
            options: None,
        };
        runtime.block_on(async {
            let channel = socket::connect(&self.dir.join("kubelet.sock")).await?;
            RegistrationClient::new(channel).register(request).await?;
            Ok(())
        })
    }

    /// Ends the plugin.
    pub fn stop(&mut self) {
        drop(self.serving.take());
    }

    /// Makes a device sick or well.
    pub fn health(&self, id: &str, healthy: bool) {
        self.inner.devices.send_modify(|all| {
            for device in all.iter_mut().filter(|device| device.0 == id) {
                device.1 = healthy;
            }
        });
    }

    /// Lets calls of a name go wrong, or go well again.
    pub fn fault(&self, call: &str, fault: Option<Fault>) {
        self.inner.faults.set(call, fault);
    }

    /// The devices of the calls of a name that the plugin got.
    pub fn calls(&self, name: &str) -> Vec<Vec<String>> {
        self.inner.state().calls.iter().filter(|c| c.0 == name).map(|c| c.1.clone()).collect()
    }

    /// The answers that the kubelet gave to registrations by a socket: the errors, empty for none.
    pub fn registrations(&self) -> Vec<String> {
        self.inner.introduction.answers()
    }
}

/// An agent on a node that asks who has which devices.
pub struct PodResources(PathBuf);

impl PodResources {
    /// Of a cluster's node.
    pub fn of(cluster: &Cluster) -> Self {
        Self::at(&cluster.data_dir().join("kubelet"))
    }

    /// Of a kubelet that keeps its files in a directory.
    pub fn at(root_dir: &Path) -> Self {
        Self(root_dir.join("pod-resources/kubelet.sock"))
    }

    /// Asks something.
    fn ask<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        call: impl FnOnce(PodResourcesListerClient<Channel>) -> F,
    ) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = PodResourcesListerClient::new(socket::connect(&self.0).await?);
            Ok(call(client).await?.into_inner())
        })
    }

    /// All Pods.
    pub fn list(&self) -> Result<resources::ListPodResourcesResponse> {
        self.ask(|mut c| async move { c.list(resources::ListPodResourcesRequest {}).await })
    }

    /// One Pod.
    pub fn get(&self, namespace: &str, name: &str) -> Result<resources::PodResources> {
        let (pod_namespace, pod_name) = (namespace.to_owned(), name.to_owned());
        let request = resources::GetPodResourcesRequest { pod_name, pod_namespace };
        let answer = self.ask(|mut c| async move { c.get(request).await })?;
        answer.pod_resources.context("no Pod")
    }

    /// All that the node has.
    pub fn allocatable(&self) -> Result<resources::AllocatableResourcesResponse> {
        let request = resources::AllocatableResourcesRequest {};
        self.ask(|mut c| async move { c.get_allocatable_resources(request).await })
    }

    /// Asks many times at once; answers how many questions were refused, and with which text.
    pub fn flood(&self, times: usize) -> Result<Vec<String>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = PodResourcesListerClient::new(socket::connect(&self.0).await?);
            let mut asked = tokio::task::JoinSet::new();
            for _ in 0..times {
                let mut client = client.clone();
                asked.spawn(async move { client.list(resources::ListPodResourcesRequest {}).await.err() });
            }
            let refused = asked.join_all().await.into_iter().flatten();
            Ok(refused.map(|status| status.message().to_owned()).collect())
        })
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call, and lets it go wrong. Answers whether it is to answer for no container.
    async fn begin(&self, name: &'static str, devices: Vec<String>) -> Result<bool, Status> {
        self.state().calls.push((name, devices));
        match self.faults.of(name) {
            None => Ok(false),
            Some(Fault::Empty) => Ok(true),
            Some(Fault::Fails(code, message)) => Err(Status::new(code, message)),
            Some(Fault::Hangs) => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl DevicePlugin for Inner {
    type ListAndWatchStream = ReceiverStream<Result<pb::ListAndWatchResponse, Status>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<pb::Empty>,
    ) -> Result<Response<pb::DevicePluginOptions>, Status> {
        Ok(Response::new(self.state().options))
    }

    async fn list_and_watch(
        &self,
        _: Request<pb::Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let mut devices = self.devices.subscribe();
        tokio::spawn(async move {
            loop {
                let one = |(id, healthy): &(String, bool)| pb::Device {
                    id: id.clone(),
                    health: if *healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
                    topology: None,
                };
                let devices_now = devices.borrow_and_update().iter().map(one).collect();
                let message = pb::ListAndWatchResponse { devices: devices_now };
                if sender.send(Ok(message)).await.is_err() || devices.changed().await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<pb::PreferredAllocationRequest>,
    ) -> Result<Response<pb::PreferredAllocationResponse>, Status> {
        let asked = request.into_inner().container_requests.into_iter().flat_map(|r| r.available_device_i_ds);
        self.begin("GetPreferredAllocation", asked.collect()).await?;
        let device_i_ds = self.state().preferred.clone();
        let one = pb::ContainerPreferredAllocationResponse { device_i_ds };
        Ok(Response::new(pb::PreferredAllocationResponse { container_responses: vec![one] }))
    }

    async fn allocate(
        &self,
        request: Request<pb::AllocateRequest>,
    ) -> Result<Response<pb::AllocateResponse>, Status> {
        let mut ids: Vec<String> =
            request.into_inner().container_requests.into_iter().flat_map(|r| r.devices_ids).collect();
        ids.sort();
        if self.begin("Allocate", ids.clone()).await? {
            return Ok(Response::new(pb::AllocateResponse::default()));
        }
        let device = |id: &String| pb::DeviceSpec {
            container_path: format!("/dev/{id}"),
            host_path: "/dev/null".to_owned(),
            permissions: "mrw".to_owned(),
        };
        let mount = pb::Mount {
            container_path: "/of-plugin".to_owned(),
            host_path: "/etc".to_owned(),
            read_only: true,
        };
        let one = pb::ContainerAllocateResponse {
            envs: [("DEVICES".to_owned(), ids.join(",")), ("OWN".to_owned(), "plugin".to_owned())].into(),
            mounts: vec![mount],
            devices: ids.iter().map(device).collect(),
            annotations: [("example.com/devices".to_owned(), ids.join(","))].into(),
            cdi_devices: Vec::new(),
        };
        Ok(Response::new(pb::AllocateResponse { container_responses: vec![one] }))
    }

    async fn pre_start_container(
        &self,
        request: Request<pb::PreStartContainerRequest>,
    ) -> Result<Response<pb::PreStartContainerResponse>, Status> {
        self.begin("PreStartContainer", request.into_inner().devices_ids).await?;
        Ok(Response::new(pb::PreStartContainerResponse {}))
    }
}
