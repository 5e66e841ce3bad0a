//! The container runtime as the kubelet uses it.

use std::collections::HashMap;

use cri::runtime as pb;
use jiff::Timestamp;
use tonic::Code;

use crate::pods::labels;
use crate::pods::observed::{ContainerStatus, PodStatus, SandboxStatus};

/// Clients of the runtime's two services. Cheap to clone; a lost connection is made anew at the next call.
#[derive(Debug, Clone)]
pub struct Runtime {
    runtime: cri::Runtime,
    images: cri::Images,
    /// `Version`'s answer at the time of connecting.
    pub version: pb::VersionResponse,
    /// The cgroup driver that the runtime asks for; cgroupfs where it cannot say.
    pub cgroup_driver: pb::CgroupDriver,
}

impl Runtime {
    /// Connects and asks for version and cgroup driver.
    pub async fn connect(endpoint: &str) -> Result<Self, RuntimeError> {
        let channel = cri::connect(endpoint).await?;
        let mut runtime = cri::runtime_service(channel.clone());
        let images = cri::image_service(channel);
        let version = runtime
            .version(pb::VersionRequest { version: "v1".into() })
            .await
            .map_err(Box::new)?
            .into_inner();
        let cgroup_driver = match runtime.runtime_config(pb::RuntimeConfigRequest {}).await {
            Ok(answer) => answer.into_inner().linux.map_or(pb::CgroupDriver::Cgroupfs, |l| l.cgroup_driver()),
            Err(status) if status.code() == Code::Unimplemented => pb::CgroupDriver::Cgroupfs,
            Err(status) => return Err(Box::new(status).into()),
        };
        Ok(Self { runtime, images, version, cgroup_driver })
    }
    /// The runtime service.
    pub fn service(&self) -> cri::Runtime {
        self.runtime.clone()
    }
    /// The image service.
    pub fn images(&self) -> cri::Images {
        self.images.clone()
    }

    /// Everything the runtime has of a Pod.
    pub async fn pod_status(
        &self,
        uid: &str,
        namespace: &str,
        name: &str,
    ) -> Result<PodStatus, tonic::Status> {
        let selector = HashMap::from([(labels::POD_UID.to_owned(), uid.to_owned())]);
        let (mut a, mut b) = (self.service(), self.service());
        let (sandboxes, containers) = tokio::try_join!(
            a.list_pod_sandbox(pb::ListPodSandboxRequest {
                filter: Some(pb::PodSandboxFilter { label_selector: selector.clone(), ..Default::default() }),
            }),
            b.list_containers(pb::ListContainersRequest {
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
            let request = pb::PodSandboxStatusRequest { pod_sandbox_id: sandbox.id, verbose: false };
            match self.service().pod_sandbox_status(request).await {
                Ok(answer) => status.sandboxes.extend(answer.into_inner().status.map(SandboxStatus::from)),
                Err(gone) if gone.code() == Code::NotFound => {}
                Err(other) => return Err(other),
            }
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

/// A CRI time, nanoseconds since the epoch; none where it is not set.
pub(crate) fn nanos(t: i64) -> Option<Timestamp> {
    (t > 0).then(|| Timestamp::from_nanosecond(i128::from(t)).ok()).flatten()
}

/// A runtime's error as Go's gRPC prints it; clients know that text from Events and messages.
pub(crate) fn error_text(status: &tonic::Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}
