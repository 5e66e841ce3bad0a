//! The service on the node's socket `pod-resources/kubelet.sock`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::gate::Gate;
use client::Backoff;
use component::metrics::Page;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use plugins::resources as pb;
use plugins::resources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use plugins::resources_v1alpha1 as v1alpha1;
use plugins::resources_v1alpha1::pod_resources_lister_server::{
    PodResourcesLister as V1alpha1, PodResourcesListerServer as V1alpha1Server,
};
use plugins::socket::{incoming, listen};
use tokio::time::Instant;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::answers;
use super::limit::Limit;
use super::metrics::{Asked, Counts};
use crate::config::Config;
use crate::pods::PodManager;
use crate::pods::devices::Devices;
use crate::pods::workers::Workers;
use crate::resource_managers::ResourceManagers;

/// The socket, below the kubelet's directory.
const SOCKET: &str = "pod-resources/kubelet.sock";
/// The least and the most time between attempts to serve.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
const V1: &str = "v1";
const V1ALPHA1: &str = "v1alpha1";

/// Tells of devices, processors and memory.
pub(crate) struct PodResources {
    socket: PathBuf,
    pods: Arc<PodManager>,
    workers: Arc<Workers>,
    devices: Devices,
    managers: Arc<ResourceManagers>,
    /// Whether Pods that have ended are left out; upstream's gate `KubeletPodResourcesListUseActivePods`.
    only_active: bool,
    limit: Mutex<Limit>,
    counts: Counts,
}

impl PodResources {
    /// Tells of the devices of these Pods.
    pub(crate) fn new(
        config: &Config,
        pods: Arc<PodManager>,
        workers: Arc<Workers>,
        (devices, managers): (Devices, Arc<ResourceManagers>),
    ) -> Arc<Self> {
        Arc::new(Self {
            socket: config.root_dir.join(SOCKET),
            pods,
            workers,
            devices,
            managers,
            only_active: config.gates.enabled(Gate::KubeletPodResourcesListUseActivePods),
            limit: Mutex::new(Limit::new(Instant::now())),
            counts: Counts::default(),
        })
    }

    /// Serves, again and again if the socket is lost.
    pub(crate) async fn serve(self: &Arc<Self>) {
        let mut backoff = Backoff::new(AGAIN[0], AGAIN[1]);
        loop {
            if let Err(error) = self.try_serve().await {
                tracing::error!(%error, "agents cannot ask for the devices of Pods, will retry");
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    async fn try_serve(self: &Arc<Self>) -> io::Result<()> {
        let listener = incoming(listen(&self.socket)?);
        let checked = |me: Arc<Self>| {
            move |request: Request<()>| {
                let allowed = me.limit.lock().allows(Instant::now());
                if allowed { Ok(request) } else { Err(Status::resource_exhausted("rejected by rate limit")) }
            }
        };
        let v1 = PodResourcesListerServer::with_interceptor(Service(self.clone()), checked(self.clone()));
        let v1alpha1 = V1alpha1Server::with_interceptor(Service(self.clone()), checked(self.clone()));
        let served = Server::builder().add_service(v1).add_service(v1alpha1).serve_with_incoming(listener);
        served.await.map_err(io::Error::other)
    }

    /// Writes the metrics.
    pub(crate) fn write_metrics(&self, page: &mut Page) {
        self.counts.write(page);
    }

    fn count(&self, what: Asked, version: &'static str) {
        self.counts.count(Asked::Any, version);
        self.counts.count(what, version);
    }

    fn list(&self) -> Vec<pb::PodResources> {
        self.devices.plugins.free_orphans();
        let all: Vec<Arc<Pod>> = if self.only_active { self.workers.active_pods() } else { self.pods.pods() };
        all.iter().map(|pod| answers::of_pod(pod, &self.devices, &self.managers)).collect()
    }
}

struct Service(Arc<PodResources>);

#[tonic::async_trait]
impl PodResourcesLister for Service {
    async fn list(
        &self,
        _: Request<pb::ListPodResourcesRequest>,
    ) -> Result<Response<pb::ListPodResourcesResponse>, Status> {
        self.0.count(Asked::List, V1);
        Ok(Response::new(pb::ListPodResourcesResponse { pod_resources: self.0.list() }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<pb::AllocatableResourcesRequest>,
    ) -> Result<Response<pb::AllocatableResourcesResponse>, Status> {
        self.0.count(Asked::GetAllocatable, V1);
        let devices = self.0.devices.plugins.allocatable();
        let (cpu_ids, memory) = self.0.managers.allocatable();
        Ok(Response::new(pb::AllocatableResourcesResponse { devices, cpu_ids, memory }))
    }

    async fn get(
        &self,
        request: Request<pb::GetPodResourcesRequest>,
    ) -> Result<Response<pb::GetPodResourcesResponse>, Status> {
        self.0.count(Asked::Get, V1);
        let asked = request.into_inner();
        let Some(pod) = self.0.pods.get(&asked.pod_namespace, &asked.pod_name, None) else {
            self.0.counts.count(Asked::GetFailed, V1);
            let (name, namespace) = (asked.pod_name, asked.pod_namespace);
            return Err(Status::unknown(format!("pod {name} in namespace {namespace} not found")));
        };
        let pod_resources = Some(answers::of_pod(&pod, &self.0.devices, &self.0.managers));
        Ok(Response::new(pb::GetPodResourcesResponse { pod_resources }))
    }
}

#[tonic::async_trait]
impl V1alpha1 for Service {
    async fn list(
        &self,
        _: Request<v1alpha1::ListPodResourcesRequest>,
    ) -> Result<Response<v1alpha1::ListPodResourcesResponse>, Status> {
        self.0.counts.count(Asked::Any, V1ALPHA1);
        let devices = |d: pb::ContainerDevices| v1alpha1::ContainerDevices {
            resource_name: d.resource_name,
            device_ids: d.device_ids,
        };
        let container = |c: pb::ContainerResources| v1alpha1::ContainerResources {
            name: c.name,
            devices: c.devices.into_iter().map(devices).collect(),
        };
        let pod = |p: pb::PodResources| v1alpha1::PodResources {
            name: p.name,
            namespace: p.namespace,
            containers: p.containers.into_iter().map(container).collect(),
        };
        let pod_resources = self.0.list().into_iter().map(pod).collect();
        Ok(Response::new(v1alpha1::ListPodResourcesResponse { pod_resources }))
    }
}
