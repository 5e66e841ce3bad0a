//! Removal of everything that a kubelet made on this machine.

use std::path::PathBuf;

use cri::runtime as pb;
use tonic::Code;

use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::pods::observed::ROOT_ANNOTATION;
use crate::runtime::{Runtime, RuntimeError, error_text};
use crate::volumes::mounts;

/// Why something could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum TearDownError {
    /// The container runtime cannot be reached.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A Pod's containers cannot be removed.
    #[error("cannot remove the sandbox {id}: {message}")]
    Sandbox {
        /// CRI id of the sandbox.
        id: String,
        /// The runtime's text.
        message: String,
    },
    /// Files cannot be removed.
    #[error("cannot remove {path}")]
    Files {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Removes the Pods, mounts, files and cgroups of the kubelet with these settings, which must not run.
/// What other kubelets have in the same runtime stays.
pub async fn tear_down(config: &Config) -> Result<(), TearDownError> {
    let runtime = Runtime::connect(&config.container_runtime_endpoint).await?;
    let root = config.root_dir.to_string_lossy();
    let failed = |id: &str, error: tonic::Status| TearDownError::Sandbox {
        id: id.to_owned(),
        message: error_text(&error),
    };
    let listed = runtime
        .service()
        .list_pod_sandbox(pb::ListPodSandboxRequest::default())
        .await
        .map_err(|e| RuntimeError::from(Box::new(e)))?;
    for sandbox in listed.into_inner().items {
        if sandbox.annotations.get(ROOT_ANNOTATION).is_none_or(|r| *r != root) {
            continue;
        }
        let id = sandbox.id;
        let stop = pb::StopPodSandboxRequest { pod_sandbox_id: id.clone() };
        let remove = pb::RemovePodSandboxRequest { pod_sandbox_id: id.clone() };
        for done in [
            runtime.service().stop_pod_sandbox(stop).await.map(drop),
            runtime.service().remove_pod_sandbox(remove).await.map(drop),
        ] {
            match done {
                Err(error) if error.code() != Code::NotFound => return Err(failed(&id, error)),
                _ => {}
            }
        }
        if let Some(m) = sandbox.metadata {
            let path = config.pod_log_dir(&m.namespace, &m.name, &m.uid);
            remove_dir(path).await?;
        }
    }
    Cgroups::new(&config.cgroup_root, runtime.cgroup_driver).remove_all();
    remove_dir(config.root_dir.clone()).await
}

async fn remove_dir(path: PathBuf) -> Result<(), TearDownError> {
    let dir = path.clone();
    let removed = tokio::task::spawn_blocking(move || mounts::remove_unmounted(&dir))
        .await
        .unwrap_or_else(|e| Err(std::io::Error::other(e)));
    removed.map_err(|source| TearDownError::Files { path, source })
}
