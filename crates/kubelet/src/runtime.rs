//! The container runtime as the kubelet uses it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cri::runtime as pb;
use parking_lot::RwLock;
use tokio::time::timeout;
use tonic::Code;

use crate::metrics::{self, Metrics};
use crate::pods::labels;
use crate::pods::observed::{ContainerStatus, PodStatus, SandboxStatus};

/// How long calls that make or remove something are waited for when the kubelet stops.
const FINISH: Duration = Duration::from_secs(10);

/// Clients of the runtime's two services. Cheap to clone; a lost connection is made anew at the next call.
#[derive(Debug, Clone)]
pub struct Runtime {
    runtime: cri::Runtime,
    images: cri::Images,
    version: Arc<RwLock<Arc<pb::VersionResponse>>>,
    /// The cgroup driver that the runtime asks for; cgroupfs where it cannot say. As upstream's, it is
    /// the one of the kubelet's start: the cgroups of running Pods cannot change theirs.
    pub cgroup_driver: pb::CgroupDriver,
    /// Counts its calls, and what else the kubelet does.
    pub(crate) metrics: Metrics,
}

impl Runtime {
    /// Connects and asks for version and cgroup driver.
    pub async fn connect(endpoint: &str) -> Result<Self, RuntimeError> {
        Self::connect_both(endpoint, None, (cri::LIMIT, false)).await
    }

    /// Connects to a runtime, and to another service of images if there is one; calls may take `limit`, and lists are asked
    /// for `in_pieces`.
    pub(crate) async fn connect_both(
        endpoint: &str,
        images: Option<&str>,
        (limit, in_pieces): (Duration, bool),
    ) -> Result<Self, RuntimeError> {
        let channel = cri::connect(endpoint).await?;
        let of_images = match images {
            Some(other) => cri::connect(other).await?,
            None => channel.clone(),
        };
        let metrics = Metrics::default();
        let hear = || {
            let metrics = metrics.clone();
            move |call, took, failed| heard(&metrics, call, took, failed)
        };
        let runtime = cri::Runtime::new(channel).limited(limit).in_pieces(in_pieces).heard(hear());
        let images = cri::Images::new(of_images).limited(limit).in_pieces(in_pieces).heard(hear());
        let version = ask_version(&runtime).await.map_err(Box::new)?;
        let cgroup_driver = match runtime.runtime_config(pb::RuntimeConfigRequest {}).await {
            Ok(answer) => answer.into_inner().linux.map_or(pb::CgroupDriver::Cgroupfs, |l| l.cgroup_driver()),
            Err(status) if status.code() == Code::Unimplemented => pb::CgroupDriver::Cgroupfs,
            Err(status) => return Err(Box::new(status).into()),
        };
        let version = Arc::new(RwLock::new(Arc::new(version)));
        Ok(Self { runtime, images, version, cgroup_driver, metrics })
    }
    /// The runtime service.
    pub fn service(&self) -> cri::Runtime {
        self.runtime.clone()
    }
    /// The runtime service for calls on behalf of a Pod, which its worker can wait for.
    pub fn of(&self, uid: &str) -> cri::Runtime {
        self.runtime.of(uid)
    }
    /// The image service.
    pub fn images(&self) -> cri::Images {
        self.images.clone()
    }
    /// Name and version of the runtime, as it said last.
    pub fn version(&self) -> Arc<pb::VersionResponse> {
        self.version.read().clone()
    }
    /// Asks for the version anew: a runtime may be upgraded under a running kubelet.
    pub async fn refresh_version(&self) -> Result<(), tonic::Status> {
        let version = ask_version(&self.runtime).await?;
        *self.version.write() = Arc::new(version);
        Ok(())
    }

    /// Resolves once nothing is being made or removed for a Pod: only then is what a look at the runtime
    /// shows all there is.
    pub(crate) async fn idle(&self, uid: &str) {
        self.runtime.idle(uid).await;
    }
    /// Lets no more calls begin, and those end that are under way, for some seconds.
    pub(crate) async fn finish(&self) {
        if timeout(FINISH, self.runtime.close()).await.is_err() {
            tracing::warn!("calls to the container runtime were still under way");
        }
    }

    /// A sandbox; none if it is gone.
    pub(crate) async fn sandbox_status(&self, id: &str) -> Result<Option<SandboxStatus>, tonic::Status> {
        let request = pb::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        match self.service().pod_sandbox_status(request).await {
            Ok(answer) => Ok(answer.into_inner().status.map(SandboxStatus::from)),
            Err(gone) if gone.code() == Code::NotFound => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Everything the runtime has of a Pod.
    pub async fn pod_status(
        &self,
        uid: &str,
        namespace: &str,
        name: &str,
    ) -> Result<PodStatus, tonic::Status> {
        let selector = HashMap::from([(labels::POD_UID.to_owned(), uid.to_owned())]);
        let service = self.service();
        let (sandboxes, containers) = tokio::try_join!(
            service.list_pod_sandbox(pb::ListPodSandboxRequest {
                filter: Some(pb::PodSandboxFilter { label_selector: selector.clone(), ..Default::default() }),
            }),
            service.list_containers(pb::ListContainersRequest {
                filter: Some(pb::ContainerFilter { label_selector: selector, ..Default::default() }),
            }),
        )?;
        let mut status = PodStatus {
            uid: uid.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..PodStatus::default()
        };
        for sandbox in sandboxes.into_inner().items {
            status.sandboxes.extend(self.sandbox_status(&sandbox.id).await?);
        }
        for container in containers.into_inner().containers {
            let sandbox = container.pod_sandbox_id;
            let request = pb::ContainerStatusRequest { container_id: container.id, verbose: false };
            match self.service().container_status(request).await {
                Ok(answer) => status
                    .containers
                    .extend(answer.into_inner().status.map(|s| ContainerStatus::new(s, sandbox.clone()))),
                Err(gone) if gone.code() == Code::NotFound => {}
                Err(other) => return Err(other),
            }
        }
        status.sort();
        Ok(status)
    }
}

/// Counts a call under upstream's name for it.
fn heard(metrics: &Metrics, call: &'static str, took: Duration, failed: bool) {
    let operation = match call {
        "run_pod_sandbox" => "run_podsandbox",
        "stop_pod_sandbox" => "stop_podsandbox",
        "remove_pod_sandbox" => "remove_podsandbox",
        "pod_sandbox_status" => "podsandbox_status",
        "list_pod_sandbox" => "list_podsandbox",
        "list_pod_sandbox_stats" => "list_podsandbox_stats",
        "list_pod_sandbox_metrics" => "list_podsandbox_metrics",
        "update_container_resources" => "update_container",
        "update_pod_sandbox_resources" => "update_podsandbox_resources",
        same => same,
    };
    metrics.count(&metrics::RUNTIME_OPERATIONS_TOTAL, &[operation]);
    metrics.took(&metrics::RUNTIME_OPERATIONS_DURATION_SECONDS, &[operation], took);
    if failed {
        metrics.count(&metrics::RUNTIME_OPERATIONS_ERRORS_TOTAL, &[operation]);
    }
}

/// Why a runtime cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// Its socket does not answer.
    #[error(transparent)]
    Connect(#[from] cri::ConnectError),
    /// It answered with an error.
    #[error("the container runtime does not answer as a CRI v1 runtime")]
    Answer(#[from] Box<tonic::Status>),
}

async fn ask_version(runtime: &cri::Runtime) -> Result<pb::VersionResponse, tonic::Status> {
    Ok(runtime.version(pb::VersionRequest { version: "v1".into() }).await?.into_inner())
}

/// An error that the runtime answered, as Go's gRPC prints it; clients know that text from Events and messages.
#[derive(Debug, Clone, thiserror::Error)]
#[error("rpc error: code = {:?} desc = {}", .0.code(), .0.message())]
pub struct CallError(Box<tonic::Status>);

impl CallError {
    /// The gRPC code.
    pub(crate) fn code(&self) -> Code {
        self.0.code()
    }
    /// The runtime's own text.
    pub(crate) fn message(&self) -> &str {
        self.0.message()
    }
}

impl From<tonic::Status> for CallError {
    fn from(status: tonic::Status) -> Self {
        Self(Box::new(status))
    }
}

/// The answer of a call that ends or removes something, for which nothing is left to do if it is gone already.
pub(crate) fn unless_gone<T>(answer: Result<T, tonic::Status>) -> Result<(), CallError> {
    match answer {
        Err(error) if error.code() != Code::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
