//! A container runtime in memory, over a real socket, that fails as it is told.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::runtime as pb;
use parking_lot::Mutex;
use pb::image_service_server::{ImageService, ImageServiceServer};
use pb::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

const UID: &str = "io.kubernetes.pod.uid";

/// The fate of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It begins, and ends when the fault is taken back.
    Late,
    /// It fails so often, then no more.
    Fails(usize),
}

#[derive(Debug, Default)]
struct State {
    sandboxes: HashMap<String, pb::PodSandbox>,
    containers: HashMap<String, pb::Container>,
    images: Vec<String>,
    /// By call, or by call and uid of a Pod: `CreateContainer`, `ListContainers/uid`. `*` is every call.
    faults: HashMap<String, Fault>,
    /// Calls in their order, with what they are about.
    calls: Vec<String>,
    /// Calls that their caller gave up midway.
    given_up: Vec<String>,
    made: u64,
    version: Option<String>,
}

/// The runtime; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
}

/// A call that has begun and has not ended.
struct UnderWay<'a> {
    fake: &'a Fake,
    call: String,
    ended: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.fake.with(|s| s.given_up.push(std::mem::take(&mut self.call)));
        }
    }
}

impl Fake {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changed.send_modify(|n| *n += 1);
        result
    }

    /// Serves on a socket, in the test's own threads: then its clock can be paused.
    pub(crate) fn serve(&self, socket: &Path) {
        tokio::spawn(self.clone().answer(socket));
    }

    /// Serves on a socket in threads of its own, which can die with all connections.
    pub(crate) fn serve_elsewhere(&self, socket: &Path) -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let elsewhere = builder.worker_threads(1).enable_all().build().unwrap();
        elsewhere.spawn(self.clone().answer(socket));
        elsewhere
    }

    fn answer(self, socket: &Path) -> impl Future<Output = ()> + use<> {
        let _ = std::fs::remove_file(socket);
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        async move {
            let incoming = UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
            let _ = tonic::transport::Server::builder()
                .add_service(RuntimeServiceServer::new(self.clone()))
                .add_service(ImageServiceServer::new(self))
                .serve_with_incoming(incoming)
                .await;
        }
    }

    /// Sets a fault.
    pub(crate) fn fault(&self, call: &str, fault: Fault) {
        self.with(|s| s.faults.insert(call.to_owned(), fault));
    }
    /// Takes a fault back.
    pub(crate) fn heal(&self, call: &str) {
        self.with(|s| s.faults.remove(call));
    }
    /// Calls that their caller gave up midway.
    pub(crate) fn given_up(&self) -> Vec<String> {
        self.state.lock().given_up.clone()
    }
    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }
    /// How many sandboxes and containers there are.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.sandboxes.len(), state.containers.len())
    }
    /// Puts something there that no call made.
    pub(crate) fn plant(&self, sandbox: pb::PodSandbox, containers: Vec<pb::Container>) {
        self.with(|s| {
            s.sandboxes.insert(sandbox.id.clone(), sandbox);
            s.containers.extend(containers.into_iter().map(|c| (c.id.clone(), c)));
        });
    }
    /// Makes it another version, as an upgrade does.
    pub(crate) fn upgrade(&self, version: &str) {
        self.with(|s| s.version = Some(version.to_owned()));
    }
    /// Forgets that an image is there.
    pub(crate) fn without_images(&self) {
        self.with(|s| s.images = vec!["none".into()]);
    }
    /// Resolves once a call that begins so was made.
    pub(crate) async fn called(&self, call: &str) {
        let mut changed = self.changed.subscribe();
        while !self.state.lock().calls.iter().any(|c| c.starts_with(call)) {
            changed.changed().await.unwrap();
        }
    }

    /// Lets a call begin; it waits or fails here if it shall.
    async fn enter(&self, call: &str, about: &str) -> Result<UnderWay<'_>, Status> {
        let name = format!("{call}/{about}");
        let under_way = UnderWay { fake: self, call: name.clone(), ended: false };
        let mut changed = self.changed.subscribe();
        self.with(|s| s.calls.push(name.clone()));
        loop {
            let fault = self.with_fault(call, &name);
            match fault {
                None => return Ok(under_way),
                Some(Fault::Fails(_)) => {
                    let mut under_way = under_way;
                    under_way.ended = true;
                    return Err(Status::unknown(format!("{call} fails")));
                }
                Some(Fault::Late) => {
                    changed.changed().await.unwrap();
                }
            }
        }
    }

    fn with_fault(&self, call: &str, name: &str) -> Option<Fault> {
        let mut state = self.state.lock();
        let key = [name, call, "*"].into_iter().find(|key| state.faults.contains_key(*key))?.to_owned();
        let fault = state.faults.get(&key).copied()?;
        match fault {
            Fault::Fails(0) => return None,
            Fault::Fails(n) => drop(state.faults.insert(key, Fault::Fails(n - 1))),
            Fault::Late => {}
        }
        Some(fault)
    }
}

fn uid_of(labels: &HashMap<String, String>) -> &str {
    labels.get(UID).map_or("", String::as_str)
}

/// Ends a call well.
fn done<T>(mut under_way: UnderWay<'_>, answer: T) -> Result<Response<T>, Status> {
    under_way.ended = true;
    Ok(Response::new(answer))
}

fn missing<T>(mut under_way: UnderWay<'_>) -> Result<Response<T>, Status> {
    under_way.ended = true;
    Err(Status::not_found("not found"))
}

fn container_status(c: &pb::Container) -> pb::ContainerStatus {
    pb::ContainerStatus {
        id: c.id.clone(),
        metadata: c.metadata.clone(),
        state: c.state,
        created_at: c.created_at,
        started_at: c.created_at,
        finished_at: if c.state() == pb::ContainerState::ContainerExited { c.created_at } else { 0 },
        image: c.image.clone(),
        image_ref: c.image_ref.clone(),
        labels: c.labels.clone(),
        annotations: c.annotations.clone(),
        ..pb::ContainerStatus::default()
    }
}

#[tonic::async_trait]
impl RuntimeService for Fake {
    async fn version(&self, _: Request<pb::VersionRequest>) -> Result<Response<pb::VersionResponse>, Status> {
        let u = self.enter("Version", "").await?;
        let answer = pb::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "fake".into(),
            runtime_version: self.state.lock().version.clone().unwrap_or_else(|| "v1.2.3".into()),
            runtime_api_version: "v1".into(),
        };
        done(u, answer)
    }
    async fn status(&self, _: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        let u = self.enter("Status", "").await?;
        let condition = |kind: &str| pb::RuntimeCondition {
            r#type: kind.into(),
            status: true,
            ..pb::RuntimeCondition::default()
        };
        let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
        let status = Some(pb::RuntimeStatus { conditions });
        done(u, pb::StatusResponse { status, ..pb::StatusResponse::default() })
    }
    async fn runtime_config(
        &self,
        _: Request<pb::RuntimeConfigRequest>,
    ) -> Result<Response<pb::RuntimeConfigResponse>, Status> {
        let u = self.enter("RuntimeConfig", "").await?;
        let linux = pb::LinuxRuntimeConfiguration { cgroup_driver: pb::CgroupDriver::Cgroupfs.into() };
        done(u, pb::RuntimeConfigResponse { linux: Some(linux) })
    }
    async fn update_runtime_config(
        &self,
        request: Request<pb::UpdateRuntimeConfigRequest>,
    ) -> Result<Response<pb::UpdateRuntimeConfigResponse>, Status> {
        let config = request.into_inner().runtime_config.unwrap_or_default();
        let cidr = config.network_config.unwrap_or_default().pod_cidr;
        let u = self.enter("UpdateRuntimeConfig", &cidr).await?;
        done(u, pb::UpdateRuntimeConfigResponse {})
    }
    async fn run_pod_sandbox(
        &self,
        request: Request<pb::RunPodSandboxRequest>,
    ) -> Result<Response<pb::RunPodSandboxResponse>, Status> {
        let config = request.into_inner().config.unwrap_or_default();
        let u = self.enter("RunPodSandbox", uid_of(&config.labels)).await?;
        let id = self.with(|s| {
            s.made += 1;
            let id = format!("sandbox-{}", s.made);
            let sandbox = pb::PodSandbox {
                id: id.clone(),
                metadata: config.metadata,
                created_at: i64::try_from(s.made).unwrap(),
                labels: config.labels,
                annotations: config.annotations,
                ..pb::PodSandbox::default()
            };
            s.sandboxes.insert(id.clone(), sandbox);
            id
        });
        done(u, pb::RunPodSandboxResponse { pod_sandbox_id: id })
    }
    async fn stop_pod_sandbox(
        &self,
        request: Request<pb::StopPodSandboxRequest>,
    ) -> Result<Response<pb::StopPodSandboxResponse>, Status> {
        let id = request.into_inner().pod_sandbox_id;
        let u = self.enter("StopPodSandbox", &id).await?;
        self.with(|s| {
            if let Some(sandbox) = s.sandboxes.get_mut(&id) {
                sandbox.set_state(pb::PodSandboxState::SandboxNotready);
            }
        });
        done(u, pb::StopPodSandboxResponse {})
    }
    async fn remove_pod_sandbox(
        &self,
        request: Request<pb::RemovePodSandboxRequest>,
    ) -> Result<Response<pb::RemovePodSandboxResponse>, Status> {
        let id = request.into_inner().pod_sandbox_id;
        let u = self.enter("RemovePodSandbox", &id).await?;
        self.with(|s| {
            s.sandboxes.remove(&id);
            s.containers.retain(|_, c| c.pod_sandbox_id != id);
        });
        done(u, pb::RemovePodSandboxResponse {})
    }
    async fn pod_sandbox_status(
        &self,
        request: Request<pb::PodSandboxStatusRequest>,
    ) -> Result<Response<pb::PodSandboxStatusResponse>, Status> {
        let id = request.into_inner().pod_sandbox_id;
        let u = self.enter("PodSandboxStatus", &id).await?;
        let Some(sandbox) = self.state.lock().sandboxes.get(&id).cloned() else { return missing(u) };
        let status = pb::PodSandboxStatus {
            id,
            metadata: sandbox.metadata,
            state: sandbox.state,
            created_at: sandbox.created_at,
            network: Some(pb::PodSandboxNetworkStatus { ip: "10.0.0.9".into(), additional_ips: Vec::new() }),
            labels: sandbox.labels,
            annotations: sandbox.annotations,
            ..pb::PodSandboxStatus::default()
        };
        done(u, pb::PodSandboxStatusResponse { status: Some(status), ..Default::default() })
    }
    async fn list_pod_sandbox(
        &self,
        request: Request<pb::ListPodSandboxRequest>,
    ) -> Result<Response<pb::ListPodSandboxResponse>, Status> {
        let selector = request.into_inner().filter.unwrap_or_default().label_selector;
        let uid = uid_of(&selector);
        let u = self.enter("ListPodSandbox", uid).await?;
        let state = self.state.lock();
        let all = state.sandboxes.values().filter(|s| uid.is_empty() || uid_of(&s.labels) == uid);
        let items = all.cloned().collect();
        drop(state);
        done(u, pb::ListPodSandboxResponse { items })
    }
    async fn create_container(
        &self,
        request: Request<pb::CreateContainerRequest>,
    ) -> Result<Response<pb::CreateContainerResponse>, Status> {
        let request = request.into_inner();
        let config = request.config.unwrap_or_default();
        let u = self.enter("CreateContainer", uid_of(&config.labels)).await?;
        let id = self.with(|s| {
            s.made += 1;
            let id = format!("container-{}", s.made);
            let container = pb::Container {
                id: id.clone(),
                pod_sandbox_id: request.pod_sandbox_id,
                metadata: config.metadata,
                image: config.image,
                created_at: i64::try_from(s.made).unwrap(),
                labels: config.labels,
                annotations: config.annotations,
                ..pb::Container::default()
            };
            s.containers.insert(id.clone(), container);
            id
        });
        done(u, pb::CreateContainerResponse { container_id: id })
    }
    async fn start_container(
        &self,
        request: Request<pb::StartContainerRequest>,
    ) -> Result<Response<pb::StartContainerResponse>, Status> {
        let id = request.into_inner().container_id;
        let u = self.enter("StartContainer", &id).await?;
        let there = self.with(|s| {
            s.containers.get_mut(&id).map(|c| c.set_state(pb::ContainerState::ContainerRunning)).is_some()
        });
        if there { done(u, pb::StartContainerResponse {}) } else { missing(u) }
    }
    async fn stop_container(
        &self,
        request: Request<pb::StopContainerRequest>,
    ) -> Result<Response<pb::StopContainerResponse>, Status> {
        let pb::StopContainerRequest { container_id: id, timeout } = request.into_inner();
        let u = self.enter("StopContainer", &format!("{id}/{timeout}")).await?;
        self.with(|s| s.containers.get_mut(&id).map(|c| c.set_state(pb::ContainerState::ContainerExited)));
        done(u, pb::StopContainerResponse {})
    }
    async fn remove_container(
        &self,
        request: Request<pb::RemoveContainerRequest>,
    ) -> Result<Response<pb::RemoveContainerResponse>, Status> {
        let id = request.into_inner().container_id;
        let u = self.enter("RemoveContainer", &id).await?;
        self.with(|s| s.containers.remove(&id));
        done(u, pb::RemoveContainerResponse {})
    }
    async fn list_containers(
        &self,
        request: Request<pb::ListContainersRequest>,
    ) -> Result<Response<pb::ListContainersResponse>, Status> {
        let selector = request.into_inner().filter.unwrap_or_default().label_selector;
        let uid = uid_of(&selector);
        let u = self.enter("ListContainers", uid).await?;
        let state = self.state.lock();
        let all = state.containers.values().filter(|c| uid.is_empty() || uid_of(&c.labels) == uid);
        let containers = all.cloned().collect();
        drop(state);
        done(u, pb::ListContainersResponse { containers })
    }
    async fn container_status(
        &self,
        request: Request<pb::ContainerStatusRequest>,
    ) -> Result<Response<pb::ContainerStatusResponse>, Status> {
        let id = request.into_inner().container_id;
        let u = self.enter("ContainerStatus", &id).await?;
        let status = self.state.lock().containers.get(&id).map(container_status);
        if status.is_none() {
            return missing(u);
        }
        done(u, pb::ContainerStatusResponse { status, ..Default::default() })
    }
    async fn exec_sync(
        &self,
        request: Request<pb::ExecSyncRequest>,
    ) -> Result<Response<pb::ExecSyncResponse>, Status> {
        let request = request.into_inner();
        let u =
            self.enter("ExecSync", &format!("{}/{}", request.container_id, request.cmd.join(" "))).await?;
        done(u, pb::ExecSyncResponse::default())
    }
}

#[tonic::async_trait]
impl ImageService for Fake {
    async fn list_images(
        &self,
        _: Request<pb::ListImagesRequest>,
    ) -> Result<Response<pb::ListImagesResponse>, Status> {
        let u = self.enter("ListImages", "").await?;
        done(u, pb::ListImagesResponse::default())
    }
    async fn image_status(
        &self,
        request: Request<pb::ImageStatusRequest>,
    ) -> Result<Response<pb::ImageStatusResponse>, Status> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let u = self.enter("ImageStatus", &name).await?;
        let there = {
            let state = self.state.lock();
            state.images.is_empty() || state.images.contains(&name)
        };
        let image = there.then(|| pb::Image { id: name, ..pb::Image::default() });
        done(u, pb::ImageStatusResponse { image, ..Default::default() })
    }
    async fn pull_image(
        &self,
        request: Request<pb::PullImageRequest>,
    ) -> Result<Response<pb::PullImageResponse>, Status> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let u = self.enter("PullImage", &name).await?;
        self.with(|s| s.images.push(name.clone()));
        done(u, pb::PullImageResponse { image_ref: name })
    }
    async fn image_fs_info(
        &self,
        _: Request<pb::ImageFsInfoRequest>,
    ) -> Result<Response<pb::ImageFsInfoResponse>, Status> {
        let u = self.enter("ImageFsInfo", "").await?;
        done(u, pb::ImageFsInfoResponse::default())
    }
}

/// Where a fake runtime listens in a directory.
pub(crate) fn socket(dir: &Path) -> PathBuf {
    dir.join("cri.sock")
}
