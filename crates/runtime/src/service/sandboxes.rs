//! Sandboxes: made, stopped and removed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use containers::{IdMappings, Network as Net, PidMode, Private, SandboxSpec};
use cri::runtime as pb;
use oci_spec::runtime::LinuxIdMapping;
use pb::ContainerEventType as Event;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::containers::remove as remove_container;
use super::core::{Core, Sandbox, blocking};
use super::error::{CallError, at, io_at, whole};
use crate::ids;
use crate::store::{FindError, SandboxPhase, SandboxRecord, sandbox_name};
use crate::translate::{cgroup_path, is_own, mappings, resolv_conf, sysctls};

/// The size of a Pod's shared memory; containerd's.
const SHM: &str = "mode=1777,size=65536k";

/// Makes a sandbox; its id.
pub(crate) async fn run(
    core: Arc<Core>,
    config: pb::PodSandboxConfig,
    handler: String,
) -> Result<String, CallError> {
    let metadata = config
        .metadata
        .clone()
        .ok_or_else(|| CallError::Invalid("sandbox config must include metadata".to_owned()))?;
    let known = core.handler(&handler)?;
    let mut record = SandboxRecord {
        id: ids::new(),
        config: Some(config),
        handler,
        created_at: core.now(),
        categories: categories(),
        ..SandboxRecord::default()
    };
    record.set_phase(SandboxPhase::Starting);
    let spec = spec(&record, core.machine.systemd)?;
    if known.is_some_and(|known| !known.features.user_namespaces) && spec.user.is_some() {
        let text = format!("the runtime handler {:?} does not support user namespaces", record.handler);
        return Err(CallError::Invalid(text));
    }
    let id = record.id.clone();
    core.sandboxes.reserve(&sandbox_name(&metadata), &id)?;
    let sandbox = Arc::new(Sandbox::new(record, None));
    let _joining = core.joining.read().await;
    let made = make(&core, &sandbox, spec).await;
    if let Err(error) = made {
        take_back(&core, &sandbox).await;
        return Err(error);
    }
    core.sandboxes.add(&id, sandbox.clone());
    core.tell(Event::ContainerCreatedEvent, &id, &sandbox);
    core.tell(Event::ContainerStartedEvent, &id, &sandbox);
    Ok(id)
}

async fn make(core: &Arc<Core>, sandbox: &Arc<Sandbox>, spec: SandboxSpec) -> Result<(), CallError> {
    let own_network = spec.network == Net::New;
    // An attachment that must be taken back is recorded before it is made.
    core.change_sandbox(sandbox, move |record| record.attached = own_network).await?;
    let files = {
        let (core, record, hostname) = (core.clone(), sandbox.record.lock().clone(), spec.hostname.clone());
        let first = |all: &[LinuxIdMapping]| all.first().map_or(0, LinuxIdMapping::host_id);
        let root = spec.user.as_ref().map(|all| (first(&all.uids), first(&all.gids)));
        blocking(move || files(&core, &record, &hostname, root))
    };
    let (files, shim) = tokio::join!(files, core.shims.start(spec));
    // Kept first, so that a fault of the other one takes it back.
    let shim = shim.map(|shim| *sandbox.shim.lock() = Some(shim));
    files?;
    shim.map_err(at("failed to start sandbox"))?;
    let mut ips = Vec::new();
    if own_network {
        let pod = sandbox.pod();
        let attached = core.network.attach(&pod).await;
        ips = attached.map_err(|source| CallError::Attach { sandbox: sandbox.id.clone(), source })?;
    }
    core.change_sandbox(sandbox, move |record| {
        record.ips = ips.iter().map(ToString::to_string).collect();
        record.set_phase(SandboxPhase::Ready);
    })
    .await
}

/// Takes back a sandbox that could not be made. If that fails, the sandbox stays as one that is not ready, and whoever
/// asks for its removal tries again.
async fn take_back(core: &Arc<Core>, sandbox: &Arc<Sandbox>) {
    let undone = async {
        stop_now(core, sandbox).await?;
        forget(core, sandbox).await
    };
    if let Err(error) = undone.await {
        tracing::warn!(
            sandbox = sandbox.id,
            error = whole(&error),
            "a sandbox that failed cannot be taken back"
        );
        sandbox.record.lock().set_phase(SandboxPhase::Stopped);
        core.sandboxes.add(&sandbox.id, sandbox.clone());
    }
}

/// Two categories of SELinux that no other Pod is likely to have.
fn categories() -> String {
    let mut bytes = [0; 4];
    ids::fill(&mut bytes);
    let (one, other) =
        (u16::from_le_bytes([bytes[0], bytes[1]]) % 1024, u16::from_le_bytes([bytes[2], bytes[3]]) % 1023);
    let other = if other >= one { other + 1 } else { other };
    format!("c{},c{}", one.min(other), one.max(other))
}

/// The sandbox as its shim makes it; `systemd` makes its cgroup or not.
fn spec(record: &SandboxRecord, systemd: bool) -> Result<SandboxSpec, CallError> {
    let config = record.config.clone().unwrap_or_default();
    let linux = config.linux.clone().unwrap_or_default();
    let options = record.namespaces();
    let network = is_own("network", options.network(), false)?;
    let ipc = is_own("IPC", options.ipc(), false)?;
    let users = mappings(&options)?;
    let private = |own: bool| if own { Private::New } else { Private::Host };
    let cgroup = cgroup_path(&linux.cgroup_parent, &record.id, systemd)?;
    Ok(SandboxSpec {
        id: record.id.clone(),
        hostname: hostname(&config),
        network: if network { Net::New } else { Net::Host },
        pid: match options.pid() {
            pb::NamespaceMode::Pod => PidMode::Shared,
            pb::NamespaceMode::Container => PidMode::PerContainer,
            pb::NamespaceMode::Node => PidMode::Host,
            pb::NamespaceMode::Target => {
                return Err(CallError::Invalid("a sandbox has no target of its PID namespace".to_owned()));
            }
        },
        ipc: private(ipc),
        // Host names belong to networks, as elsewhere.
        uts: private(network),
        sysctls: sysctls(linux.sysctls, network, ipc, users.is_some())?,
        user: users.map(|all| IdMappings { uids: all.uids, gids: all.gids }),
        cgroup: Some(cgroup.to_string_lossy().into_owned()),
        resources: None,
        labels: BTreeMap::default(),
    })
}

/// A Pod's host name.
pub(crate) fn hostname(config: &pb::PodSandboxConfig) -> String {
    if config.hostname.is_empty() {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    } else {
        config.hostname.clone()
    }
}

/// Writes a sandbox's files; `root` is the machine's user and group of the Pod's root.
fn files(
    core: &Core,
    record: &SandboxRecord,
    hostname: &str,
    root: Option<(u32, u32)>,
) -> Result<(), CallError> {
    let dir = core.sandbox_dir(&record.id);
    let made = || -> io::Result<()> {
        fs::create_dir_all(&dir)?;
        let config = record.config.clone().unwrap_or_default();
        let names = resolv_conf(&config.dns_config.unwrap_or_default());
        let of_host = |path: &str| match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other,
        };
        let names = names.map_or_else(|| of_host("/etc/resolv.conf"), |text| Ok(text.into_bytes()))?;
        for (name, text) in [
            ("hostname", format!("{hostname}\n").into_bytes()),
            ("hosts", of_host("/etc/hosts")?),
            ("resolv.conf", names),
        ] {
            let path = dir.join(name);
            fs::write(&path, text)?;
            if let Some((uid, gid)) = root {
                std::os::unix::fs::chown(&path, Some(uid), Some(gid))?;
            }
        }
        if record.namespaces().ipc() != pb::NamespaceMode::Node {
            let shm = dir.join("shm");
            fs::create_dir_all(&shm)?;
            let flags = MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV;
            let options = std::ffi::CString::new(SHM)?;
            mount("shm", &shm, "tmpfs", flags, options.as_c_str())?;
        }
        Ok(())
    };
    made().map_err(io_at("the sandbox's files cannot be made"))
}

/// Removes a sandbox's files.
pub(crate) fn remove_files(dir: &Path) -> io::Result<()> {
    unmount_all(&dir.join("shm"))?;
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Takes away all that is mounted at a path.
fn unmount_all(path: &Path) -> io::Result<()> {
    loop {
        match unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            // Nothing is mounted there, or the path is gone.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Stops a sandbox; one that is not there is no error.
pub(crate) async fn stop(core: Arc<Core>, id: &str) -> Result<(), CallError> {
    let sandbox = match core.sandboxes.find(id) {
        Err(FindError::None(..)) => return Ok(()),
        other => other?,
    };
    let _turn = sandbox.turn.lock().await;
    stop_now(&core, &sandbox).await
}

/// Stops a sandbox: its containers, then its network, then itself.
async fn stop_now(core: &Arc<Core>, sandbox: &Arc<Sandbox>) -> Result<(), CallError> {
    let shim = sandbox.shim();
    let was_ready = sandbox.record.lock().phase() == SandboxPhase::Ready;
    let all = core.containers_of(&sandbox.id);
    let stopping = all.iter().map(|container| super::containers::kill(core, container));
    futures::future::try_join_all(stopping).await?;
    if sandbox.record.lock().attached {
        let left = core.network.detach(&sandbox.pod()).await;
        left.map_err(|source| CallError::Detach { sandbox: sandbox.id.clone(), source })?;
    }
    if let Some(shim) = shim {
        shim.stop().await.map_err(at("failed to stop sandbox"))?;
    }
    let shm = core.sandbox_dir(&sandbox.id).join("shm");
    blocking(move || unmount_all(&shm).map_err(io_at("the sandbox's shared memory cannot be unmounted")))
        .await?;
    let (phase, attached) = {
        let record = sandbox.record.lock();
        (record.phase(), record.attached)
    };
    if phase < SandboxPhase::Stopped || attached {
        core.change_sandbox(sandbox, |record| {
            record.attached = false;
            let phase = record.phase().max(SandboxPhase::Stopped);
            record.set_phase(phase);
        })
        .await?;
    }
    if was_ready {
        core.sandbox_ended(sandbox);
    }
    Ok(())
}

/// Removes a sandbox with its containers; one that is not there is no error.
pub(crate) async fn remove(core: Arc<Core>, id: &str) -> Result<(), CallError> {
    let sandbox = match core.sandboxes.find(id) {
        Err(FindError::None(..)) => return Ok(()),
        other => other?,
    };
    let _turn = sandbox.turn.lock().await;
    // Another call may have removed it meanwhile.
    if core.sandboxes.find(&sandbox.id).is_err() {
        return Ok(());
    }
    stop_now(&core, &sandbox).await?;
    core.change_sandbox(&sandbox, |record| record.set_phase(SandboxPhase::Removing)).await?;
    for container in core.containers_of(&sandbox.id) {
        remove_container(core.clone(), &container.id).await?;
    }
    forget(&core, &sandbox).await?;
    core.tell(Event::ContainerDeletedEvent, &sandbox.id, &sandbox);
    Ok(())
}

/// Removes what is left of a sandbox that has been stopped; its record goes last.
async fn forget(core: &Arc<Core>, sandbox: &Arc<Sandbox>) -> Result<(), CallError> {
    core.shims.remove(&sandbox.id).await.map_err(at("failed to remove sandbox"))?;
    let (all, id) = (core.clone(), sandbox.id.clone());
    blocking(move || {
        remove_files(&all.sandbox_dir(&id)).map_err(io_at("the sandbox's files cannot be removed"))?;
        all.sandbox_records.remove(&id).map_err(io_at("the sandbox's record cannot be removed"))
    })
    .await?;
    core.sandboxes.remove(&sandbox.id);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(linux: pb::LinuxPodSandboxConfig) -> SandboxRecord {
        let config =
            pb::PodSandboxConfig { hostname: "web".into(), linux: Some(linux), ..Default::default() };
        SandboxRecord { id: "s".into(), config: Some(config), ..Default::default() }
    }

    #[test]
    fn descriptions_for_the_shim() {
        let below = |parent: &str| {
            record(pb::LinuxPodSandboxConfig { cgroup_parent: parent.into(), ..Default::default() })
        };
        let made = spec(&below("pods-podu.slice"), true).unwrap();
        assert_eq!(made.cgroup.as_deref(), Some("pods-podu.slice:cri-containerd:s"));
        assert!(spec(&below("/pods/podu"), true).is_err() && spec(&below("pods.slice"), false).is_err());
        let made = spec(&below("/pods/podu/"), false).unwrap();
        assert_eq!((made.network, made.pid, made.uts), (Net::New, PidMode::Shared, Private::New));
        assert_eq!((made.cgroup.as_deref(), &made.hostname[..]), (Some("/pods/podu/s"), "web"));
        assert_eq!(made.sysctls.len(), 2);
        let options = pb::NamespaceOption {
            network: pb::NamespaceMode::Node.into(),
            pid: pb::NamespaceMode::Container.into(),
            ipc: pb::NamespaceMode::Node.into(),
            ..Default::default()
        };
        let host = pb::LinuxPodSandboxConfig {
            security_context: Some(pb::LinuxSandboxSecurityContext {
                namespace_options: Some(options),
                ..Default::default()
            }),
            ..Default::default()
        };
        let made = spec(&record(host.clone()), false).unwrap();
        assert_eq!((made.network, made.pid, made.ipc), (Net::Host, PidMode::PerContainer, Private::Host));
        assert!(made.sysctls.is_empty());
        let mut bad = host;
        bad.sysctls = [("net.a".to_owned(), "1".to_owned())].into();
        assert!(spec(&record(bad), false).is_err());
    }

    #[test]
    fn two_categories() {
        for _ in 0..100 {
            let text = categories();
            let (one, other) = text.split_once(',').unwrap();
            assert!(one != other && one.starts_with('c') && other.starts_with('c'), "{text}");
        }
    }
}
