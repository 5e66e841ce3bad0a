//! The runtime service: each call hands over to those who do it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cri::runtime as pb;
use futures::stream;
use tokio::sync::broadcast::error::RecvError;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::core::{Core, to_its_end};
use super::error::CallError;
use super::lists::chunks;
use super::stats::Kept;
use super::{containers, create, exec, metrics, sandboxes, stats, status};
use crate::streaming::{Server, Task};

/// The version of the interface, in the kubelet's own counting.
const KUBE_API: &str = "0.1.0";

/// The runtime service of CRI.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) core: Arc<Core>,
    pub(crate) kept: Arc<Kept>,
    pub(crate) streaming: Server,
}

type Answer<T> = Result<Response<T>, Status>;

fn ok<T>(value: T) -> Answer<T> {
    Ok(Response::new(value))
}

fn pieces<T, R: Send + 'static>(all: Vec<T>, made: impl Fn(Vec<T>) -> R) -> Answer<BoxStream<R>> {
    ok(Box::pin(stream::iter(chunks(all, made))))
}

impl Service {
    fn url(&self, task: Task) -> Result<String, Status> {
        let made = self.streaming.url(task);
        Ok(made.map_err(|error| CallError::Many(error.to_string()))?)
    }
}

#[tonic::async_trait]
impl pb::runtime_service_server::RuntimeService for Service {
    async fn version(&self, _: Request<pb::VersionRequest>) -> Answer<pb::VersionResponse> {
        ok(pb::VersionResponse {
            version: KUBE_API.to_owned(),
            runtime_name: "ferrokube".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        })
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<pb::RunPodSandboxRequest>,
    ) -> Answer<pb::RunPodSandboxResponse> {
        let pb::RunPodSandboxRequest { config, runtime_handler } = request.into_inner();
        let config = config.unwrap_or_default();
        let made = to_its_end(sandboxes::run(self.core.clone(), config, runtime_handler));
        ok(pb::RunPodSandboxResponse { pod_sandbox_id: made.await? })
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<pb::StopPodSandboxRequest>,
    ) -> Answer<pb::StopPodSandboxResponse> {
        let (core, id) = (self.core.clone(), request.into_inner().pod_sandbox_id);
        to_its_end(async move { sandboxes::stop(core, &id).await }).await?;
        ok(pb::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<pb::RemovePodSandboxRequest>,
    ) -> Answer<pb::RemovePodSandboxResponse> {
        let (core, id) = (self.core.clone(), request.into_inner().pod_sandbox_id);
        to_its_end(async move { sandboxes::remove(core, &id).await }).await?;
        ok(pb::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<pb::PodSandboxStatusRequest>,
    ) -> Answer<pb::PodSandboxStatusResponse> {
        let pb::PodSandboxStatusRequest { pod_sandbox_id, verbose } = request.into_inner();
        let sandbox = self.core.sandboxes.find(&pod_sandbox_id).map_err(CallError::from)?;
        let all = self.core.containers_of(&sandbox.id);
        ok(pb::PodSandboxStatusResponse {
            status: Some(status::sandbox_status(&sandbox)),
            info: if verbose { status::sandbox_info(&sandbox) } else { HashMap::default() },
            containers_statuses: all.iter().map(|one| status::container_status(&self.core, one)).collect(),
            timestamp: self.core.now(),
        })
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<pb::ListPodSandboxRequest>,
    ) -> Answer<pb::ListPodSandboxResponse> {
        let filter = request.into_inner().filter;
        ok(pb::ListPodSandboxResponse { items: status::list_sandboxes(&self.core, filter.as_ref()) })
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<pb::StreamPodSandboxesRequest>,
    ) -> Answer<BoxStream<pb::StreamPodSandboxesResponse>> {
        let filter = request.into_inner().filter;
        let all = status::list_sandboxes(&self.core, filter.as_ref());
        pieces(all, |pod_sandboxes| pb::StreamPodSandboxesResponse { pod_sandboxes })
    }

    async fn create_container(
        &self,
        request: Request<pb::CreateContainerRequest>,
    ) -> Answer<pb::CreateContainerResponse> {
        let pb::CreateContainerRequest { pod_sandbox_id, config, sandbox_config } = request.into_inner();
        let (core, config) = (self.core.clone(), config.unwrap_or_default());
        let pod = sandbox_config.unwrap_or_default();
        let made = to_its_end(Box::pin(async move {
            Box::pin(create::create(core, &pod_sandbox_id, config, pod)).await
        }));
        ok(pb::CreateContainerResponse { container_id: made.await? })
    }

    async fn start_container(
        &self,
        request: Request<pb::StartContainerRequest>,
    ) -> Answer<pb::StartContainerResponse> {
        let (core, id) = (self.core.clone(), request.into_inner().container_id);
        to_its_end(async move { containers::start(core, &id).await }).await?;
        ok(pb::StartContainerResponse {})
    }

    async fn stop_container(
        &self,
        request: Request<pb::StopContainerRequest>,
    ) -> Answer<pb::StopContainerResponse> {
        let pb::StopContainerRequest { container_id, timeout } = request.into_inner();
        let (core, grace) = (self.core.clone(), Duration::from_secs(u64::try_from(timeout).unwrap_or(0)));
        to_its_end(async move { containers::stop(core, &container_id, grace).await }).await?;
        ok(pb::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: Request<pb::RemoveContainerRequest>,
    ) -> Answer<pb::RemoveContainerResponse> {
        let (core, id) = (self.core.clone(), request.into_inner().container_id);
        to_its_end(async move { containers::remove(core, &id).await }).await?;
        ok(pb::RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: Request<pb::ListContainersRequest>,
    ) -> Answer<pb::ListContainersResponse> {
        let filter = request.into_inner().filter;
        ok(pb::ListContainersResponse { containers: status::list_containers(&self.core, filter.as_ref()) })
    }

    async fn stream_containers(
        &self,
        request: Request<pb::StreamContainersRequest>,
    ) -> Answer<BoxStream<pb::StreamContainersResponse>> {
        let filter = request.into_inner().filter;
        let all = status::list_containers(&self.core, filter.as_ref());
        pieces(all, |containers| pb::StreamContainersResponse { containers })
    }

    async fn container_status(
        &self,
        request: Request<pb::ContainerStatusRequest>,
    ) -> Answer<pb::ContainerStatusResponse> {
        let pb::ContainerStatusRequest { container_id, verbose } = request.into_inner();
        let container = self.core.containers.find(&container_id).map_err(CallError::from)?;
        ok(pb::ContainerStatusResponse {
            status: Some(status::container_status(&self.core, &container)),
            info: if verbose { status::container_info(&container) } else { HashMap::default() },
        })
    }

    async fn update_container_resources(
        &self,
        request: Request<pb::UpdateContainerResourcesRequest>,
    ) -> Answer<pb::UpdateContainerResourcesResponse> {
        let pb::UpdateContainerResourcesRequest { container_id, linux, .. } = request.into_inner();
        let (core, change) = (self.core.clone(), linux.unwrap_or_default());
        to_its_end(async move { containers::update(core, &container_id, change).await }).await?;
        ok(pb::UpdateContainerResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: Request<pb::ReopenContainerLogRequest>,
    ) -> Answer<pb::ReopenContainerLogResponse> {
        containers::reopen_log(&self.core, &request.into_inner().container_id).await?;
        ok(pb::ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: Request<pb::ExecSyncRequest>) -> Answer<pb::ExecSyncResponse> {
        ok(exec::exec_sync(&self.core, request.into_inner()).await?)
    }

    async fn exec(&self, request: Request<pb::ExecRequest>) -> Answer<pb::ExecResponse> {
        let task = exec::exec_task(&self.core, request.into_inner())?;
        ok(pb::ExecResponse { url: self.url(task)? })
    }

    async fn attach(&self, request: Request<pb::AttachRequest>) -> Answer<pb::AttachResponse> {
        let task = exec::attach_task(&self.core, request.get_ref())?;
        ok(pb::AttachResponse { url: self.url(task)? })
    }

    async fn port_forward(
        &self,
        request: Request<pb::PortForwardRequest>,
    ) -> Answer<pb::PortForwardResponse> {
        let task = exec::port_forward_task(&self.core, request.get_ref())?;
        ok(pb::PortForwardResponse { url: self.url(task)? })
    }

    async fn container_stats(
        &self,
        request: Request<pb::ContainerStatsRequest>,
    ) -> Answer<pb::ContainerStatsResponse> {
        let found = self.core.containers.find(&request.into_inner().container_id);
        let container = found.map_err(CallError::from)?;
        let stats = stats::of_container(&self.core, &self.kept, &container).await;
        ok(pb::ContainerStatsResponse { stats: Some(stats) })
    }

    async fn list_container_stats(
        &self,
        request: Request<pb::ListContainerStatsRequest>,
    ) -> Answer<pb::ListContainerStatsResponse> {
        let filter = request.into_inner().filter;
        let stats = stats::of_containers(&self.core, &self.kept, filter.as_ref()).await;
        ok(pb::ListContainerStatsResponse { stats })
    }

    async fn stream_container_stats(
        &self,
        request: Request<pb::StreamContainerStatsRequest>,
    ) -> Answer<BoxStream<pb::StreamContainerStatsResponse>> {
        let filter = request.into_inner().filter;
        let all = stats::of_containers(&self.core, &self.kept, filter.as_ref()).await;
        pieces(all, |container_stats| pb::StreamContainerStatsResponse { container_stats })
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<pb::PodSandboxStatsRequest>,
    ) -> Answer<pb::PodSandboxStatsResponse> {
        let found = self.core.sandboxes.find(&request.into_inner().pod_sandbox_id);
        let sandbox = found.map_err(CallError::from)?;
        let stats = stats::of_sandbox(&self.core, &self.kept, &sandbox).await;
        ok(pb::PodSandboxStatsResponse { stats: Some(stats) })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<pb::ListPodSandboxStatsRequest>,
    ) -> Answer<pb::ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter;
        let stats = stats::of_sandboxes(&self.core, &self.kept, filter.as_ref()).await;
        ok(pb::ListPodSandboxStatsResponse { stats })
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<pb::StreamPodSandboxStatsRequest>,
    ) -> Answer<BoxStream<pb::StreamPodSandboxStatsResponse>> {
        let filter = request.into_inner().filter;
        let all = stats::of_sandboxes(&self.core, &self.kept, filter.as_ref()).await;
        pieces(all, |pod_sandbox_stats| pb::StreamPodSandboxStatsResponse { pod_sandbox_stats })
    }

    // Nothing here depends on the range of Pods' addresses: the Pod network knows it by itself.
    async fn update_runtime_config(
        &self,
        _: Request<pb::UpdateRuntimeConfigRequest>,
    ) -> Answer<pb::UpdateRuntimeConfigResponse> {
        ok(pb::UpdateRuntimeConfigResponse {})
    }

    async fn status(&self, request: Request<pb::StatusRequest>) -> Answer<pb::StatusResponse> {
        ok(status::runtime(&self.core, request.into_inner().verbose).await?)
    }

    async fn checkpoint_container(
        &self,
        _: Request<pb::CheckpointContainerRequest>,
    ) -> Answer<pb::CheckpointContainerResponse> {
        Err(CallError::Unsupported("the built-in container runtime makes no checkpoints of containers")
            .into())
    }

    async fn get_container_events(
        &self,
        _: Request<pb::GetEventsRequest>,
    ) -> Answer<BoxStream<pb::ContainerEventResponse>> {
        let listening = (self.core.clone(), self.core.events.subscribe());
        let events = stream::unfold(Some(listening), |listening| async move {
            let (core, mut events) = listening?;
            match events.recv().await {
                Ok(happened) => {
                    let event = status::event(&core, &happened);
                    Some((Ok(event), Some((core, events))))
                }
                // A client that is too slow has lost events: it must look at everything anew.
                Err(RecvError::Lagged(lost)) => {
                    Some((Err(Status::data_loss(format!("{lost} events were lost"))), None))
                }
                Err(RecvError::Closed) => None,
            }
        });
        ok(Box::pin(events))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<pb::ListMetricDescriptorsRequest>,
    ) -> Answer<pb::ListMetricDescriptorsResponse> {
        ok(pb::ListMetricDescriptorsResponse { descriptors: metrics::descriptors() })
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<pb::ListPodSandboxMetricsRequest>,
    ) -> Answer<pb::ListPodSandboxMetricsResponse> {
        ok(pb::ListPodSandboxMetricsResponse { pod_metrics: metrics::all(&self.core) })
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<pb::StreamPodSandboxMetricsRequest>,
    ) -> Answer<BoxStream<pb::StreamPodSandboxMetricsResponse>> {
        let all = metrics::all(&self.core);
        pieces(all, |pod_sandbox_metrics| pb::StreamPodSandboxMetricsResponse { pod_sandbox_metrics })
    }

    async fn runtime_config(
        &self,
        _: Request<pb::RuntimeConfigRequest>,
    ) -> Answer<pb::RuntimeConfigResponse> {
        let systemd = self.core.machine.systemd;
        let cgroup_driver = if systemd { pb::CgroupDriver::Systemd } else { pb::CgroupDriver::Cgroupfs };
        let linux = pb::LinuxRuntimeConfiguration { cgroup_driver: cgroup_driver.into() };
        ok(pb::RuntimeConfigResponse { linux: Some(linux) })
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<pb::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<pb::UpdatePodSandboxResourcesResponse> {
        let pb::UpdatePodSandboxResourcesRequest { pod_sandbox_id, overhead, resources } =
            request.into_inner();
        let sandbox = self.core.sandboxes.find(&pod_sandbox_id).map_err(CallError::from)?;
        let core = self.core.clone();
        // The Pod's cgroup is the kubelet's, which has changed it.
        let changed = async move {
            let _turn = sandbox.turn.lock().await;
            let change = core.change_sandbox(&sandbox, move |record| {
                let config = record.config.get_or_insert_default();
                let linux = config.linux.get_or_insert_default();
                linux.overhead = overhead;
                linux.resources = resources;
            });
            change.await
        };
        to_its_end(changed).await?;
        ok(pb::UpdatePodSandboxResourcesResponse {})
    }
}
