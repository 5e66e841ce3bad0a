//! Removal of everything that a kubelet made on this machine.

use std::path::PathBuf;
use std::time::Duration;

use cri::runtime::{self as pb, CgroupDriver};

use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::enforcement::Limits;
use crate::log_dirs::LogDirs;
use crate::log_links::LogLinks;
use crate::pods::labels::ROOT_ANNOTATION;
use crate::runtime::{CallError, Runtime, RuntimeError, unless_gone};
use crate::volumes::mounts;

/// How often the removal of Pods is tried.
const ATTEMPTS: u32 = 5;
/// How long to wait before it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Why something could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum TearDownError {
    /// The container runtime cannot be reached.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A Pod's containers cannot be removed.
    #[error("cannot remove the sandbox {id}: {error}")]
    Sandbox {
        /// CRI id of the sandbox.
        id: String,
        /// The runtime's error.
        error: CallError,
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
/// Pods of other kubelets in the same runtime stay.
pub async fn tear_down(config: &Config) -> Result<(), TearDownError> {
    let runtime = Runtime::connect(&config.container_runtime_endpoint).await?;
    let mut attempts = 1;
    while let Err(error) = remove_pods(&runtime, config).await {
        // A runtime may still be at work on what the kubelet began.
        if attempts == ATTEMPTS {
            return Err(error);
        }
        attempts += 1;
        tracing::debug!(%error, "not everything could be removed, will retry");
        tokio::time::sleep(PAUSE).await;
    }
    remove_logs(config).await?;
    remove_cgroups(&Cgroups::new(&config.cgroup_root, runtime.cgroup_driver, Limits::default())).await;
    remove_dir(config.root_dir.clone()).await
}

/// Removes the logs of a kubelet that marks its own, and the links to them; nothing of one that does not.
pub async fn remove_logs(config: &Config) -> Result<(), TearDownError> {
    if config.logs_owner.is_none() {
        return Ok(());
    }
    let unless_absent = |path: &PathBuf, error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(TearDownError::Files { path: path.clone(), source: error }),
    };
    // The links first: they tell whose they are by the directories.
    let links = LogLinks::new(config);
    links.remove_all().or_else(|error| unless_absent(&config.container_logs_dir, error))?;
    match LogDirs::new(config).own() {
        Ok(own) => {
            for dir in own {
                remove_dir(dir).await?;
            }
            Ok(())
        }
        Err(error) => unless_absent(&config.pod_logs_dir, error),
    }
}

/// Removes the cgroups of a kubelet whose Pods' processes were killed without their runtime; `cgroup_root` is that of
/// its settings, `driver` the runtime's.
pub async fn remove_root_cgroup(cgroup_root: &str, driver: CgroupDriver) {
    remove_cgroups(&Cgroups::new(cgroup_root, driver, Limits::default())).await;
}

/// The cgroups below which the Pods of a kubelet with this `cgroup_root` are, by the one cgroup driver and by the other.
pub fn root_cgroups(cgroup_root: &str) -> [String; 2] {
    [CgroupDriver::Cgroupfs, CgroupDriver::Systemd]
        .map(|driver| Cgroups::new(cgroup_root, driver, Limits::default()).root())
}

async fn remove_cgroups(cgroups: &Cgroups) {
    let mut attempts = 1;
    while let Err(error) = cgroups.remove_all() {
        // The last processes of a sandbox leave their cgroups a moment after they end.
        if attempts == ATTEMPTS {
            tracing::warn!(%error, "cgroups stay");
            break;
        }
        attempts += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Removes every Pod that can be; tells of the first that cannot.
async fn remove_pods(runtime: &Runtime, config: &Config) -> Result<(), TearDownError> {
    let root = config.root_dir.to_string_lossy();
    let service = runtime.service();
    let listed = service.list_pod_sandbox(pb::ListPodSandboxRequest::default()).await;
    let listed = listed.map_err(|e| RuntimeError::from(Box::new(e)))?;
    let own = |s: &pb::PodSandbox| s.annotations.get(ROOT_ANNOTATION).is_some_and(|r| *r == root);
    let mut result = Ok(());
    for sandbox in listed.into_inner().items.into_iter().filter(own) {
        if let Err(error) = remove_sandbox(&service, &sandbox.id).await {
            result = result.and(Err(TearDownError::Sandbox { id: sandbox.id, error }));
            continue;
        }
        if let Some(m) = sandbox.metadata {
            let path = config.pod_log_dir(&m.namespace, &m.name, &m.uid);
            result = result.and(remove_dir(path).await);
        }
    }
    result
}

/// Stops a sandbox's containers and network, and removes it with them.
async fn remove_sandbox(service: &cri::Runtime, id: &str) -> Result<(), CallError> {
    let filter = pb::ContainerFilter { pod_sandbox_id: id.to_owned(), ..pb::ContainerFilter::default() };
    let containers = service.list_containers(pb::ListContainersRequest { filter: Some(filter) }).await?;
    let containers = containers.into_inner().containers;
    // One by one: a sandbox whose container could not be stopped is half removed by some runtimes.
    for c in containers.into_iter().filter(|c| c.state() != pb::ContainerState::ContainerExited) {
        let request = pb::StopContainerRequest { container_id: c.id, timeout: 0 };
        unless_gone(service.stop_container(request).await)?;
    }
    unless_gone(service.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() }).await)?;
    unless_gone(
        service.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() }).await,
    )
}

/// Unmounts what is mounted in a directory tree, and removes it. It need not be there.
pub async fn remove_dir(path: PathBuf) -> Result<(), TearDownError> {
    let dir = path.clone();
    let removed = tokio::task::spawn_blocking(move || mounts::remove_unmounted(&dir))
        .await
        .unwrap_or_else(|e| Err(std::io::Error::other(e)));
    removed.map_err(|source| TearDownError::Files { path, source })
}
