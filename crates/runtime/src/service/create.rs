//! Makes containers.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use containers::{ContainerSpec, Io, Root};
use cri::runtime as pb;
use images::{IdMap, Image, Prepare};
use oci_spec::image::Config as ImageConfig;
use oci_spec::runtime::Spec;
use pb::ContainerEventType as Event;

use super::containers::forget;
use super::core::{Container, Core, Sandbox, blocking};
use super::error::{CallError, at, io_at, whole};
use super::sandboxes::hostname;
use crate::cdi;
use crate::ids;
use crate::shell::{devices, labels, machine, rooted, volumes};
use crate::store::{ContainerPhase, ContainerRecord, container_name};
use crate::translate::{
    self, Accounts, LONGEST_PROFILE, Mappings, Namespaces, Place, Propagation, Seccomp, Translated, User,
    Volume, clean, mappings, of_cri, of_image, seccomp_of_container,
};

/// The longest `/etc/passwd` and `/etc/group` that are read, in bytes.
const ACCOUNTS: u64 = 16 << 20;

/// Makes a container; its id.
pub(crate) async fn create(
    core: Arc<Core>,
    sandbox: &str,
    config: pb::ContainerConfig,
    pod: pb::PodSandboxConfig,
) -> Result<String, CallError> {
    let sandbox = core.sandboxes.find(sandbox)?;
    let missing = |what: &str| CallError::Invalid(format!("{what} config must include metadata"));
    let metadata = config.metadata.clone().ok_or_else(|| missing("container"))?;
    let of = pod.metadata.clone().ok_or_else(|| missing("pod sandbox"))?;
    if !sandbox.is_ready() {
        return Err(CallError::State(format!("sandbox container {:?} is not running", sandbox.id)));
    }
    let name = config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
    let image = core.images.find(&name).ok_or_else(|| CallError::NoImage(name.clone()))?;
    let known = core.images.configuration(&image.id).await?;
    let Some(known) = known else {
        return Err(CallError::Invalid(format!(
            "image {name:?} is an artifact: no container can be made of it"
        )));
    };
    let of_image_config = known.config().clone().unwrap_or_default();
    let mut record = ContainerRecord {
        id: ids::new(),
        sandbox: sandbox.id.clone(),
        image: image.id.to_string(),
        created_at: core.now(),
        resources: config.linux.as_ref().and_then(|linux| linux.resources.clone()),
        stop_signal: of_cri(config.stop_signal())
            .unwrap_or_else(|| of_image(of_image_config.stop_signal().as_deref())),
        log_path: log_path(&pod, &config),
        ..ContainerRecord::default()
    };
    record.views = images_of(&config).map(|(index, _)| view_key(&record.id, index)).collect();
    record.config = Some(config);
    record.set_phase(ContainerPhase::Creating);
    let id = record.id.clone();
    core.containers.reserve(&container_name(&metadata, &of), &id)?;
    let container = Arc::new(Container::new(record, sandbox.clone(), None));
    if let Err(error) = make(&core, &container, pod, image, of_image_config).await {
        if let Err(error) = forget(&core, &container).await {
            // Its record stays, and the next start removes the rest.
            tracing::warn!(
                container = id,
                error = whole(&error),
                "a container that failed cannot be taken back"
            );
            core.containers.remove(&id);
        }
        return Err(error);
    }
    core.containers.add(&id, container);
    core.tell(Event::ContainerCreatedEvent, &id, &sandbox);
    Ok(id)
}

/// The whole path of a container's log; empty if there is none.
fn log_path(pod: &pb::PodSandboxConfig, config: &pb::ContainerConfig) -> String {
    if pod.log_directory.is_empty() || config.log_path.is_empty() {
        return String::new();
    }
    Path::new(&pod.log_directory).join(&config.log_path).display().to_string()
}

/// The volumes of a configuration that are images, with their places in it.
fn images_of(config: &pb::ContainerConfig) -> impl Iterator<Item = (usize, &pb::Mount)> {
    config.mounts.iter().enumerate().filter(|(_, mount)| mount.image.is_some())
}

fn view_key(id: &str, index: usize) -> String {
    format!("{id}-{index}")
}

async fn make(
    core: &Arc<Core>,
    container: &Arc<Container>,
    pod: pb::PodSandboxConfig,
    image: Image,
    of_image: ImageConfig,
) -> Result<(), CallError> {
    let shim = container.sandbox.shim();
    let shim = shim.ok_or_else(|| CallError::State("the sandbox is gone".to_owned()))?;
    let config = container.record.lock().config.clone().unwrap_or_default();
    let pid_target = pid_target(core, &container.sandbox, &config)?;
    let handler = container.sandbox.record.lock().handler.clone();
    let runtime = core.handler(&handler)?.map(|known| known.handler.runtime.clone());
    core.change_container(container, |_| {}).await?;
    let assembled = {
        let (core, container, config) = (core.clone(), container.clone(), config.clone());
        let namespaces = namespaces(&container.sandbox, &shim, pid_target.is_some());
        let users = shim.open_userns().map_err(at("the Pod's user namespace cannot be opened"))?;
        blocking(move || {
            let users = users.as_ref().map(AsFd::as_fd);
            let of = Parts {
                core: &core,
                container: &container,
                config: &config,
                pod: &pod,
                image: &image,
                of_image: &of_image,
                users,
            };
            assemble(&of, &namespaces)
        })
        .await?
    };
    let log_path = container.record.lock().log_path.clone();
    let spec = ContainerSpec {
        id: container.id.clone(),
        cgroup: None,
        spec: assembled.spec,
        root: Root::Mount(assembled.root),
        mounts: assembled.mounts,
        pid_target,
        io: Io {
            log_path: (!log_path.is_empty()).then(|| PathBuf::from(log_path)),
            terminal: config.tty,
            stdin: config.stdin,
            stdin_once: config.stdin_once,
        },
        runtime,
        labels: BTreeMap::new(),
    };
    let fault = match shim.create(spec).await {
        Ok(live) => {
            *container.live.lock() = Some(live);
            String::new()
        }
        // Other runtimes look at the program and its file systems only when the container is started.
        Err(error) if is_told_at_start(&error) => whole(&error),
        Err(error) => return Err(at("failed to create container")(error)),
    };
    let user = assembled.user;
    core.change_container(container, move |record| {
        record.fault = fault;
        record.user = Some(pb::LinuxContainerUser {
            uid: user.uid.into(),
            gid: user.gid.into(),
            supplemental_groups: user.groups.iter().map(|gid| i64::from(*gid)).collect(),
        });
        record.set_phase(ContainerPhase::Created);
    })
    .await
}

/// Whether a fault is one of the container itself, rather than of its sandbox.
fn is_told_at_start(error: &containers::Error) -> bool {
    use containers::Error::{Exists, Invalid, Io, Lost, NotFound, State, Step};
    match error {
        Step { .. } | Invalid(_) | Io { .. } => true,
        Lost(_) | Exists { .. } | NotFound { .. } | State { .. } => false,
    }
}

/// The container of the same Pod whose processes this one sees.
fn pid_target(
    core: &Core,
    sandbox: &Sandbox,
    config: &pb::ContainerConfig,
) -> Result<Option<String>, CallError> {
    let context = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let options = context.and_then(|context| context.namespace_options.clone()).unwrap_or_default();
    if options.pid() != pb::NamespaceMode::Target {
        return Ok(None);
    }
    let invalid = |why: String| CallError::Invalid(format!("invalid target container: {why}"));
    let target = core.containers.find(&options.target_id).map_err(|error| invalid(error.to_string()))?;
    if target.sandbox.id != sandbox.id {
        return Err(invalid(format!("container {:?} is in another sandbox", target.id)));
    }
    if target.state() != pb::ContainerState::ContainerRunning {
        return Err(invalid(format!("container {:?} is not running", target.id)));
    }
    Ok(Some(target.id.clone()))
}

/// The namespaces of a container. The shim has those of the Pod; their files are for OCI runtimes that are programs.
fn namespaces(sandbox: &Sandbox, shim: &containers::Sandbox, has_target: bool) -> Namespaces {
    let options = sandbox.record.lock().namespaces();
    let of = |own: bool, name: &str| {
        if own { Place::At(format!("/proc/{}/ns/{name}", shim.shim_pid()).into()) } else { Place::Host }
    };
    let network = options.network() == pb::NamespaceMode::Pod;
    let users = options.userns_options.as_ref().is_some_and(|one| one.mode() == pb::NamespaceMode::Pod);
    Namespaces {
        network: if network { Place::At(shim.netns()) } else { Place::Host },
        ipc: of(options.ipc() == pb::NamespaceMode::Pod, "ipc"),
        uts: of(network, "uts"),
        pid: if options.pid() == pb::NamespaceMode::Node && !has_target { Place::Host } else { Place::New },
        user: of(users, "user"),
        cgroup: Place::Host,
    }
}

/// The things of which a container is made.
struct Parts<'a> {
    core: &'a Core,
    container: &'a Container,
    config: &'a pb::ContainerConfig,
    pod: &'a pb::PodSandboxConfig,
    image: &'a Image,
    of_image: &'a ImageConfig,
    /// The Pod's user namespace, if it has one.
    users: Option<BorrowedFd<'a>>,
}

/// A container that is ready to be made.
struct Assembled {
    spec: Spec,
    user: User,
    root: OwnedFd,
    mounts: Vec<(PathBuf, OwnedFd)>,
}

fn assemble(of: &Parts<'_>, namespaces: &Namespaces) -> Result<Assembled, CallError> {
    let context =
        of.config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default();
    let options = context.namespace_options.clone().unwrap_or_default();
    let users = mappings(&options)?;
    let id_map = users.clone().map(|Mappings { uids, gids }| IdMap { uids, gids });
    let id = &of.container.id;
    let how = Prepare { id_map };
    let prepared = of.core.images.prepare(id, &of.image.id, &how)?;
    let root = match of.users {
        Some(users) => prepared.mount_in(users)?,
        None => prepared.mount()?,
    };
    let accounts = Accounts {
        passwd: rooted::text(root.as_fd(), "etc/passwd", ACCOUNTS)
            .map_err(io_at("/etc/passwd of the image"))?
            .unwrap_or_default(),
        group: rooted::text(root.as_fd(), "etc/group", ACCOUNTS)
            .map_err(io_at("/etc/group of the image"))?
            .unwrap_or_default(),
    };
    let volumes = volumes::find(&of.config.mounts)?;
    let mut own = pod_files(of);
    own.extend(image_volumes(of, &root)?);
    let devices = if context.privileged {
        let mut all = devices::all().map_err(io_at("the machine's devices cannot be listed"))?;
        all.extend(devices::find(&of.config.devices)?);
        all
    } else {
        devices::find(&of.config.devices)?
    };
    let log = of.container.record.lock().log_path.clone();
    if let Some(dir) = Path::new(&log).parent().filter(|_| !log.is_empty()) {
        std::fs::create_dir_all(dir).map_err(io_at("the directory of the log cannot be made"))?;
    }
    let profile = seccomp_of_container(&context)?;
    let seccomp_file = match &profile {
        Seccomp::File(path) => profile_file(path)?,
        _ => Vec::new(),
    };
    let mut facts = of.core.machine.clone();
    facts.apparmor = machine::apparmor();
    let mut namespaces = namespaces.clone();
    // A cgroup v1 has no namespace that hides anything; a privileged container sees all, as elsewhere.
    namespaces.cgroup = if facts.unified && !context.privileged { Place::New } else { Place::Host };
    let categories = of.container.sandbox.record.lock().categories.clone();
    let inputs = translate::Container {
        id,
        config: of.config,
        pod: of.pod,
        pod_id: &of.container.sandbox.id,
        hostname: &hostname(of.pod),
        image: of.of_image,
        image_name: of.image.tags.first().or(of.image.digests.first()).map_or("", String::as_str),
        accounts: &accounts,
        own: &own,
        volumes: &volumes,
        devices: &devices,
        seccomp_file: &seccomp_file,
        namespaces: &namespaces,
        categories: &categories,
    };
    let Translated { mut spec, user } = translate::spec(&inputs, &facts)?;
    let label = spec.linux().as_ref().and_then(|linux| linux.mount_label().as_deref());
    label.map_or(Ok(()), |label| relabel(of, (&volumes, &own), label))?;
    cdi::inject(of.config, &mut spec)?;
    Ok(Assembled { spec, user, root, mounts: views(of, how.id_map.as_ref())? })
}

/// Gives the container's label to the files of those volumes of which the configuration wants that, and to the runtime's own
/// files among them.
fn relabel(of: &Parts<'_>, (asked, own): (&[Volume], &[Volume]), label: &str) -> Result<(), CallError> {
    let wanted = of.config.mounts.iter().zip(asked);
    let wanted =
        wanted.filter(|(one, _)| one.selinux_relabel && one.image.is_none()).map(|(_, volume)| volume);
    let dirs = [of.core.sandbox_dir(&of.container.sandbox.id), of.core.container_dir(&of.container.id)];
    let own = own.iter().filter(|volume| dirs.iter().any(|dir| volume.source.starts_with(dir)));
    for volume in wanted.chain(own) {
        labels::relabel(&volume.source, label).map_err(|error| {
            let path = volume.source.display().to_string();
            CallError::Invalid(format!("relabel {path:?} with {label:?} failed: {error}"))
        })?;
    }
    Ok(())
}

fn profile_file(path: &str) -> Result<Vec<u8>, CallError> {
    let failed = |source| crate::translate::TranslateError::Seccomp { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > LONGEST_PROFILE {
        return Err(failed(std::io::ErrorKind::FileTooLarge.into()).into());
    }
    Ok(std::fs::read(path).map_err(failed)?)
}

/// The files of a Pod that all its containers have.
fn pod_files(of: &Parts<'_>) -> Vec<Volume> {
    let dir = of.core.sandbox_dir(&of.container.sandbox.id);
    let linux = of.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let readonly = linux.is_some_and(|context| context.readonly_rootfs);
    let host_ipc = linux
        .and_then(|context| context.namespace_options.as_ref())
        .is_some_and(|options| options.ipc() == pb::NamespaceMode::Node);
    let shm = if host_ipc { PathBuf::from("/dev/shm") } else { dir.join("shm") };
    [
        ("/etc/hostname", dir.join("hostname"), readonly),
        ("/etc/hosts", dir.join("hosts"), readonly),
        ("/etc/resolv.conf", dir.join("resolv.conf"), readonly),
        ("/dev/shm", shm, false),
    ]
    .into_iter()
    .filter(|(_, source, _)| source.exists())
    .map(|(to, source, readonly)| Volume {
        destination: to.to_owned(),
        source,
        readonly,
        ..Volume::default()
    })
    .collect()
}

/// The volumes that the image declares, filled with what the image has there. Those for which the configuration has
/// another volume are left out.
fn image_volumes(of: &Parts<'_>, root: &OwnedFd) -> Result<Vec<Volume>, CallError> {
    let mut declared: Vec<String> = of.of_image.volumes().iter().flatten().map(|path| clean(path)).collect();
    declared.sort();
    declared.dedup();
    declared.retain(|path| of.config.mounts.iter().all(|mount| clean(&mount.container_path) != *path));
    let dir = of.core.container_dir(&of.container.id).join("volumes");
    let mut all = Vec::new();
    for (number, path) in declared.into_iter().enumerate() {
        let source = dir.join(number.to_string());
        // The root shows the owners that the container's users have on this machine.
        volumes::copy_up(root.as_fd(), &path, &source)
            .map_err(io_at("the content of an image's volume cannot be copied"))?;
        all.push(Volume {
            destination: path,
            source,
            propagation: Propagation::Private,
            ..Volume::default()
        });
    }
    Ok(all)
}

/// The volumes that are images, as mounts.
fn views(of: &Parts<'_>, id_map: Option<&IdMap>) -> Result<Vec<(PathBuf, OwnedFd)>, CallError> {
    images_of(of.config)
        .map(|(index, mount)| {
            let name = mount.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
            let image = of.core.images.find(&name).ok_or(CallError::NoImage(name))?;
            let view = of.core.images.view(&view_key(&of.container.id, index), &image.id, id_map)?;
            let part = volumes::part(view.mount()?, &mount.image_sub_path).map_err(|error| {
                CallError::Invalid(format!(
                    "sub path {:?} of image volume {:?} cannot be used: {error}",
                    mount.image_sub_path, mount.container_path
                ))
            })?;
            Ok((PathBuf::from(clean(&mount.container_path)), part))
        })
        .collect()
}
