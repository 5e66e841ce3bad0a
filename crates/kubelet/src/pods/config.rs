//! Sandboxes and containers as the runtime is asked for them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Gate;
use component::Clock;
use cri::runtime as pb;
use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, VolumeDevice};

use super::devices::GivenError;
use super::dns::{self, HostnameError};
use super::downward::Facts;
use super::env::{self, EnvError};
use super::labels::ROOT_ANNOTATION;
use super::mount_modes::{MountModeError, propagation, recursive_read_only};
use super::security::{self, NonRootError, ProfileError, Profiles};
use super::{labels, resources, spec, stop_signal};
use crate::Config;
use crate::cgroups::Cgroups;
use crate::given::Given;
use crate::health::Health;
use crate::recorder::PodRecorder;
use crate::resource_managers::ResourceManagers;
use crate::user_namespaces::{self, MappingError, UserNamespaces};
use crate::volumes::subpath::{self, SubPathError};
use crate::volumes::{Mounted, Volumes};
use crate::work::{Interrupted, try_blocking};

const ETC_HOSTS: &str = "/etc/hosts";

fn pod_labels(pod: &Pod) -> HashMap<String, String> {
    let mut all: HashMap<String, String> =
        pod.metadata.labels.clone().unwrap_or_default().into_iter().collect();
    all.insert(labels::POD_NAME.into(), spec::name(pod).into());
    all.insert(labels::POD_NAMESPACE.into(), spec::namespace(pod).into());
    all.insert(labels::POD_UID.into(), spec::uid(pod).into());
    all
}

/// Why the runtime cannot be asked for a sandbox; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxConfigError {
    #[error("can't set `spec.hostUsers: false`, runtime does not support user namespaces")]
    UserNamespaces,
    #[error("can't set `spec.hostUsers: false`, RuntimeClass handler {0:?} does not support user namespaces")]
    UserNamespacesOf(String),
    #[error(
        "can't set `spec.hostUsers: false`, RuntimeClass handler {0:?} does not support user namespaces: the handler {0:?} is not known"
    )]
    UnknownHandler(String),
    #[error("create user namespace: {0}")]
    Users(#[from] MappingError),
    #[error(transparent)]
    Hostname(#[from] HostnameError),
}

/// Why the runtime cannot be asked for a container; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerConfigError {
    #[error(transparent)]
    Environment(#[from] EnvError),
    #[error(transparent)]
    NonRoot(#[from] NonRootError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error("create container log directory for container {container} failed: {error}")]
    LogDir { container: String, error: io::Error },
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    NoVolume { volume: String, container: String },
    #[error("missing value for {0}")]
    SubPathExpr(String),
    #[error(transparent)]
    MountMode(#[from] MountModeError),
    #[error(transparent)]
    SubPath(SubPathError),
    #[error("error on creating termination-log file: {0}")]
    TerminationLog(io::Error),
    #[error("user namespace: {0}")]
    Users(#[from] MappingError),
    #[error(transparent)]
    Devices(#[from] GivenError),
    #[error(transparent)]
    Hosts(#[from] io::Error),
    #[error(transparent)]
    Hostname(#[from] HostnameError),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Says how sandboxes and containers are to be.
pub(crate) struct Requests {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    pub(crate) recorder: PodRecorder,
    pub(crate) cgroups: Cgroups,
    /// Knows what the runtime can do.
    pub(crate) health: Arc<Health>,
    /// Know which processors and which memory a container has.
    pub(crate) managers: Arc<ResourceManagers>,
    /// Know which ids a Pod with users of its own has.
    pub(crate) users: UserNamespaces,
    /// Whether SELinux is on, so that the runtime labels what containers mount.
    pub(crate) selinux: bool,
    pub(crate) env: env::Sources,
}

impl Requests {
    /// The users of a Pod's sandbox; `handler` is the runtime's one that is to make it.
    async fn users_of_sandbox(
        &self,
        pod: &Pod,
        handler: &str,
    ) -> Result<pb::UserNamespace, SandboxConfigError> {
        if spec::spec(pod).host_users != Some(false) {
            return Ok(user_namespaces::of_machine());
        }
        match self.health.user_namespaces(handler) {
            Some(true) => Ok(self.users.of_pod(spec::uid(pod)).await?),
            Some(false) if handler.is_empty() => Err(SandboxConfigError::UserNamespaces),
            Some(false) => Err(SandboxConfigError::UserNamespacesOf(handler.to_owned())),
            None => Err(SandboxConfigError::UnknownHandler(handler.to_owned())),
        }
    }

    /// The users of a Pod's container, as its sandbox has them.
    async fn users_of_container(&self, pod: &Pod) -> Result<pb::UserNamespace, MappingError> {
        if spec::spec(pod).host_users == Some(false) {
            self.users.of_pod(spec::uid(pod)).await
        } else {
            Ok(user_namespaces::of_machine())
        }
    }

    /// The sandbox of a Pod; `handler` is the runtime's one that is to make it, and `groups_of_volumes` are the groups that
    /// own the Pod's volumes.
    ///
    /// # Errors
    /// Upstream's text, where a name or the resolver configuration cannot be made, or the Pod cannot have its users.
    pub(crate) async fn sandbox(
        &self,
        pod: &Pod,
        attempt: u32,
        handler: &str,
        groups_of_volumes: &BTreeSet<i64>,
    ) -> Result<pb::PodSandboxConfig, SandboxConfigError> {
        let users = self.users_of_sandbox(pod, handler).await?;
        let config = &self.config;
        let text = tokio::fs::read_to_string(&config.resolv_conf).await.unwrap_or_default();
        let (dns_config, notes) = dns::pod_dns(pod, config, dns::parse_resolv_conf(&text));
        for (reason, message) in notes {
            self.recorder.pod(pod, "Warning", reason, message);
        }
        let hostname = if spec::host_network(pod) {
            String::new()
        } else {
            dns::kernel_hostname(pod, &config.cluster_domain)?
        };
        let port_mappings = spec::containers(pod)
            .iter()
            .chain(spec::init_containers(pod).iter().filter(|c| spec::is_sidecar(c)))
            .flat_map(port_mappings)
            .collect();
        let context = spec::spec(pod).security_context.as_ref();
        let (supplemental_groups, policy) = security::groups(context, groups_of_volumes);
        let int = |value| pb::Int64Value { value };
        let privileged = has_privileged(pod);
        let (overhead, mut whole) = resources::sandbox_resources(pod, self.cgroups.limits());
        if whole.cpu_quota > 0 && self.managers.is_unlimited(pod) {
            whole.cpu_quota = resources::NO_QUOTA;
        }
        let mut annotations: HashMap<String, String> =
            pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect();
        annotations.insert(ROOT_ANNOTATION.into(), config.root_dir.to_string_lossy().into_owned());
        annotations.entry(labels::CONFIG_SOURCE.into()).or_insert_with(|| "api".into());
        annotations.entry(labels::CONFIG_SEEN.into()).or_insert_with(|| self.clock.now().to_string());
        Ok(pb::PodSandboxConfig {
            metadata: Some(pb::PodSandboxMetadata {
                name: spec::name(pod).into(),
                uid: spec::uid(pod).into(),
                namespace: spec::namespace(pod).into(),
                attempt,
            }),
            hostname,
            log_directory: self
                .config
                .pod_log_dir(spec::namespace(pod), spec::name(pod), spec::uid(pod))
                .to_string_lossy()
                .into_owned(),
            dns_config: Some(dns_config),
            port_mappings,
            labels: pod_labels(pod),
            annotations,
            linux: Some(pb::LinuxPodSandboxConfig {
                cgroup_parent: self.cgroups.parent(pod),
                security_context: Some(pb::LinuxSandboxSecurityContext {
                    namespace_options: Some(security::namespaces(pod, users)),
                    selinux_options: security::selinux(context.and_then(|c| c.se_linux_options.as_ref())),
                    run_as_user: context.and_then(|c| c.run_as_user).map(int),
                    run_as_group: context.and_then(|c| c.run_as_group).map(int),
                    supplemental_groups,
                    supplemental_groups_policy: policy.into(),
                    privileged,
                    seccomp: Some(pb::SecurityProfile {
                        profile_type: pb::security_profile::ProfileType::RuntimeDefault.into(),
                        localhost_ref: String::new(),
                    }),
                    ..pb::LinuxSandboxSecurityContext::default()
                }),
                sysctls: context
                    .and_then(|c| c.sysctls.as_ref())
                    .into_iter()
                    .flatten()
                    .map(|s| (s.name.clone(), s.value.clone()))
                    .collect(),
                overhead: Some(overhead),
                resources: Some(whole),
            }),
            windows: None,
        })
    }

    /// The directory of a container's logs, below the Pod's.
    pub(crate) fn container_log_dir(&self, pod: &Pod, container: &str) -> PathBuf {
        self.config.pod_log_dir(spec::namespace(pod), spec::name(pod), spec::uid(pod)).join(container)
    }

    /// A container.
    ///
    /// # Errors
    /// Upstream's text for the Event and the status.
    pub(crate) async fn container(
        &self,
        i: &ContainerInputs<'_>,
    ) -> Result<pb::ContainerConfig, ContainerConfigError> {
        let (pod, c) = (i.facts.pod, i.container);
        let vars = self.env.environment(i.facts, c).await?;
        security::verify_non_root(pod, c, i.image_user)?;
        let (command, args) = env::command(c, &vars);
        let log_dir = self.container_log_dir(pod, &c.name);
        try_blocking(move || std::fs::create_dir_all(&log_dir))
            .await
            .map_err(|error| ContainerConfigError::LogDir { container: c.name.clone(), error })?;
        let profiles = self.config.root_dir.join("seccomp");
        let users = self.users_of_container(pod).await?;
        let mut mounts: Vec<pb::Mount> =
            i.given.mounts.iter().cloned().chain(self.mounts(i, &vars).await?).collect();
        // Files belong to the Pod's users as they would to the machine's.
        for mount in &mut mounts {
            mount.uid_mappings.clone_from(&users.uids);
            mount.gid_mappings.clone_from(&users.gids);
        }
        Ok(pb::ContainerConfig {
            metadata: Some(pb::ContainerMetadata { name: c.name.clone(), attempt: i.restart_count }),
            image: Some(pb::ImageSpec {
                image: i.image_ref.to_owned(),
                user_specified_image: c.image.clone().unwrap_or_default(),
                ..pb::ImageSpec::default()
            }),
            command,
            args,
            working_dir: c.working_dir.clone().unwrap_or_default(),
            envs: envs(i.given, &vars),
            mounts,
            devices: i.given.devices.iter().cloned().chain(devices(i)?).collect(),
            cdi_devices: i
                .given
                .cdi_devices
                .iter()
                .map(|name| pb::CdiDevice { name: name.clone() })
                .collect(),
            labels: HashMap::from([
                (labels::POD_NAME.into(), spec::name(pod).into()),
                (labels::POD_NAMESPACE.into(), spec::namespace(pod).into()),
                (labels::POD_UID.into(), spec::uid(pod).into()),
                (labels::CONTAINER_NAME.into(), c.name.clone()),
            ]),
            annotations: annotations(&self.config, i),
            log_path: format!("{}/{}.log", c.name, i.restart_count),
            stdin: c.stdin == Some(true),
            stdin_once: c.stdin_once == Some(true),
            tty: c.tty == Some(true),
            stop_signal: self.stop_signal(c).into(),
            linux: Some(pb::LinuxContainerConfig {
                resources: Some(self.resources(i)),
                security_context: Some(security::container_context(
                    (pod, users, &i.volumes.groups),
                    c,
                    i.image_user,
                    i.target.clone(),
                    Profiles { dir: &profiles, by_default: self.config.seccomp_default },
                )?),
            }),
            ..pb::ContainerConfig::default()
        })
    }

    /// The signal that stops a container: its own where it names one, or its image's.
    fn stop_signal(&self, c: &Container) -> pb::Signal {
        let named = c.lifecycle.as_ref().and_then(|l| l.stop_signal.as_deref());
        let named = named.filter(|_| self.config.gates.enabled(Gate::ContainerStopSignals));
        named.and_then(stop_signal::to_cri).unwrap_or(pb::Signal::RuntimeDefault)
    }

    /// The container's resources, with the processors and the memory that it has alone.
    fn resources(&self, i: &ContainerInputs<'_>) -> pb::LinuxContainerResources {
        let (pod, c) = (i.facts.pod, i.container);
        let mut all = resources::container_resources(pod, c, self.cgroups.limits());
        if all.cpu_quota > 0 && self.managers.is_exclusive(pod, c) {
            all.cpu_quota = resources::NO_QUOTA;
        }
        (all.cpuset_cpus, all.cpuset_mems) = self.managers.sets(spec::uid(pod), &c.name);
        all
    }

    async fn mounts(
        &self,
        i: &ContainerInputs<'_>,
        vars: &env::Env,
    ) -> Result<Vec<pb::Mount>, ContainerConfigError> {
        let (pod, c) = (i.facts.pod, i.container);
        let pod_dir = self.config.pod_dir(spec::uid(pod));
        let mut out = Vec::new();
        let mut hosts = spec::host_network(pod) || !i.facts.pod_ips.is_empty();
        for (index, mount) in c.volume_mounts.iter().flatten().enumerate() {
            hosts &= mount.mount_path != ETC_HOSTS;
            let volume = i.volumes.get(&mount.name).ok_or_else(|| {
                let (volume, container) = (mount.name.clone(), c.name.clone());
                ContainerConfigError::NoVolume { volume, container }
            })?;
            let mut sub = mount.sub_path.clone().unwrap_or_default();
            if let Some(expr) = mount.sub_path_expr.as_deref().filter(|e| !e.is_empty()) {
                sub = expand_strict(expr, vars)?;
            }
            let container_path = if mount.mount_path.starts_with('/') {
                mount.mount_path.clone()
            } else {
                format!("/{}", mount.mount_path)
            };
            let mut made = pb::Mount {
                container_path,
                readonly: mount.read_only == Some(true),
                propagation: propagation(mount)?.into(),
                recursive_read_only: recursive_read_only(mount, self.health.recursive_read_only())?,
                ..pb::Mount::default()
            };
            match volume {
                Mounted::Image { .. } => {
                    made.image = Some(i.image_volumes.get(&mount.name).cloned().unwrap_or_default());
                    made.image_sub_path = sub;
                    made.readonly = true;
                }
                Mounted::Device { .. } => {
                    let (volume, container) = (mount.name.clone(), c.name.clone());
                    return Err(ContainerConfigError::NoVolume { volume, container });
                }
                Mounted::Path { path, read_only, relabel } => {
                    made.selinux_relabel = self.selinux && *relabel;
                    made.readonly |= read_only;
                    let mut host_path = path.clone();
                    if !sub.is_empty() {
                        let (dir, at) = (pod_dir.clone(), path.clone());
                        let (volume, container) = (mount.name.clone(), c.name.clone());
                        host_path = try_blocking(move || {
                            let part = subpath::SubPath {
                                volume_path: &at,
                                path: &sub,
                                volume: &volume,
                                container: &container,
                                index,
                            };
                            subpath::prepare(&dir, &part).map_err(|error| {
                                tracing::debug!(?error, "subPath");
                                ContainerConfigError::SubPath(error)
                            })
                        })
                        .await?;
                    }
                    made.host_path = host_path.to_string_lossy().into_owned();
                }
            }
            out.push(made);
        }
        if hosts {
            out.push(self.hosts_mount(i, &pod_dir).await?);
        }
        if let Some(path) = c.termination_message_path.as_deref().filter(|p| !p.is_empty()) {
            let dir = pod_dir.join("containers").join(&c.name);
            let file = dir.join(format!("{:08x}", fastrand::u32(..)));
            let host_path = file.to_string_lossy().into_owned();
            try_blocking(move || {
                std::fs::create_dir_all(&dir)
                    .and_then(|()| std::fs::write(&file, ""))
                    .and_then(|()| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)))
            })
            .await
            .map_err(ContainerConfigError::TerminationLog)?;
            let container_path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
            out.push(self.own_mount(host_path, container_path));
        }
        Ok(out)
    }

    /// Writes the Pod's hosts file anew, and mounts it.
    async fn hosts_mount(
        &self,
        i: &ContainerInputs<'_>,
        pod_dir: &Path,
    ) -> Result<pb::Mount, ContainerConfigError> {
        let pod = i.facts.pod;
        let aliases = spec::spec(pod).host_aliases.clone().unwrap_or_default();
        let text = if spec::host_network(pod) {
            let of_node = tokio::fs::read_to_string(ETC_HOSTS).await.unwrap_or_default();
            dns::node_hosts_file(&of_node, &aliases)
        } else {
            let (name, domain) = dns::hostname(pod, &self.config.cluster_domain)?;
            dns::hosts_file(i.facts.pod_ips, &name, &domain, &aliases)
        };
        let file = pod_dir.join("etc-hosts");
        let host_path = file.to_string_lossy().into_owned();
        try_blocking(move || {
            std::fs::write(&file, text)
                .and_then(|()| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)))
        })
        .await?;
        Ok(self.own_mount(host_path, ETC_HOSTS.into()))
    }

    /// The mount of a file of the kubelet's own.
    fn own_mount(&self, host_path: String, container_path: String) -> pb::Mount {
        pb::Mount { host_path, container_path, selinux_relabel: self.selinux, ..pb::Mount::default() }
    }
}

/// The restart count that follows the newest log of a container; 0 where there is none.
pub(crate) fn restarts_by_logs(dir: &Path) -> u32 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|e| e.file_name().to_str()?.split_once(".log")?.0.parse::<u32>().ok())
        .max()
        .map_or(0, |n| n.saturating_add(1))
}

/// The parts that a container is made from.
pub(crate) struct ContainerInputs<'a> {
    /// Facts of its Pod.
    pub(crate) facts: &'a Facts<'a>,
    /// The container.
    pub(crate) container: &'a Container,
    /// Its image's reference in the runtime.
    pub(crate) image_ref: &'a str,
    /// Its image's user.
    pub(crate) image_user: &'a security::ImageUser,
    /// Which start it is.
    pub(crate) restart_count: u32,
    /// The parts that come with its devices.
    pub(crate) given: &'a Given,
    /// The Pod's volumes.
    pub(crate) volumes: &'a Volumes,
    /// How the runtime is asked for the images of image volumes, by volume.
    pub(crate) image_volumes: &'a HashMap<String, pb::ImageSpec>,
    /// CRI id of the container whose processes it shall see.
    pub(crate) target: Option<String>,
}

/// The devices that a container has of the Pod's volumes.
fn devices(i: &ContainerInputs<'_>) -> Result<Vec<pb::Device>, ContainerConfigError> {
    let one = |device: &VolumeDevice| match i.volumes.get(&device.name) {
        Some(Mounted::Device { path, read_only }) => Ok(pb::Device {
            container_path: device.device_path.clone(),
            host_path: path.to_string_lossy().into_owned(),
            permissions: if *read_only { "r" } else { "mrw" }.into(),
        }),
        _ => Err(ContainerConfigError::NoVolume {
            volume: device.name.clone(),
            container: i.container.name.clone(),
        }),
    };
    i.container.volume_devices.iter().flatten().map(one).collect()
}

/// The container's own environment variables, and those that come with its devices beside them.
fn envs(given: &Given, vars: &env::Env) -> Vec<pb::KeyValue> {
    let of_devices = given.envs.iter().filter(|(key, _)| vars.get(key).is_none());
    let of_devices =
        of_devices.map(|(key, value)| pb::KeyValue { key: key.clone(), value: value.clone().into() });
    let own = vars.iter().map(|(key, value)| pb::KeyValue { key: key.clone(), value: value.clone().into() });
    of_devices.chain(own).collect()
}

/// Whether a container of any kind may do everything.
fn has_privileged(pod: &Pod) -> bool {
    let ephemeral = spec::ephemeral_containers(pod);
    let all = spec::containers(pod).iter().chain(spec::init_containers(pod));
    all.chain(ephemeral.iter().map(|(c, _)| c))
        .any(|c| c.security_context.as_ref().is_some_and(|s| s.privileged == Some(true)))
}

fn annotations(config: &Config, i: &ContainerInputs<'_>) -> HashMap<String, String> {
    let (pod, c, restart_count) = (i.facts.pod, i.container, i.restart_count);
    let of_devices = i.given.annotations.iter().map(|(key, value)| (key.as_str(), value.clone()));
    let mut all: BTreeMap<&str, String> = of_devices.collect();
    all.insert(ROOT_ANNOTATION, config.root_dir.to_string_lossy().into_owned());
    all.insert(labels::CONTAINER_HASH, format!("{:x}", spec::container_hash(c)));
    all.insert(labels::CONTAINER_RESTART_COUNT, restart_count.to_string());
    all.insert(labels::TERMINATION_MESSAGE_PATH, c.termination_message_path.clone().unwrap_or_default());
    all.insert(labels::TERMINATION_MESSAGE_POLICY, c.termination_message_policy.clone().unwrap_or_default());
    if let Some(grace) = pod.metadata.deletion_grace_period_seconds {
        all.insert(labels::POD_DELETION_GRACE_PERIOD, grace.to_string());
    }
    if let Some(grace) = spec::spec(pod).termination_grace_period_seconds {
        all.insert(labels::POD_TERMINATION_GRACE_PERIOD, grace.to_string());
    }
    if let Some(Ok(hook)) = c.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref()).map(serde_json::to_string)
    {
        all.insert(labels::PRE_STOP_HANDLER, hook);
    }
    if let Some(Ok(ports)) = c.ports.as_ref().filter(|p| !p.is_empty()).map(serde_json::to_string) {
        all.insert(labels::CONTAINER_PORTS, ports);
    }
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Replaces references of a subPathExpr; each must be known, and not empty.
fn expand_strict(expr: &str, vars: &env::Env) -> Result<String, ContainerConfigError> {
    let missing = std::cell::RefCell::new(BTreeSet::new());
    let text = env::expand(expr, |name| {
        let value = vars.get(name).filter(|value| !value.is_empty());
        if value.is_none() {
            missing.borrow_mut().insert(name.to_owned());
        }
        value
    });
    let missing: Vec<String> = missing.into_inner().into_iter().collect();
    if missing.is_empty() { Ok(text) } else { Err(ContainerConfigError::SubPathExpr(missing.join(", "))) }
}

/// The ports of a container that are open on its Pod or on the node. A name stands for one port; a port without a name counts
/// once for each address and port of the node.
fn port_mappings(container: &Container) -> Vec<pb::PortMapping> {
    let mut names = HashSet::new();
    let is_new = |port: &&ContainerPort| match port.name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => names.insert(name.to_owned()),
        None => names.insert(format!(
            "{}-{}:{}:{}",
            port.protocol.as_deref().unwrap_or("TCP"),
            port.host_ip.as_deref().unwrap_or_default(),
            port.container_port,
            port.host_port.unwrap_or(0)
        )),
    };
    let one = |port: &ContainerPort| pb::PortMapping {
        protocol: match port.protocol.as_deref() {
            Some("UDP") => pb::Protocol::Udp,
            Some("SCTP") => pb::Protocol::Sctp,
            _ => pb::Protocol::Tcp,
        }
        .into(),
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or(0),
        host_ip: port.host_ip.clone().unwrap_or_default(),
    };
    container.ports.iter().flatten().filter(is_new).map(one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Upstream's 15 cases of `TestRestartCountByLogDir`.
    #[test]
    fn restarts_are_known_by_logs() {
        for (names, expected) in [
            (&["0.log.rotated-log"][..], 1),
            (&["0.log"], 1),
            (&["0.log", "1.log", "2.log"], 3),
            (&["0.log.rotated", "1.log", "2.log"], 3),
            (&["5.log.rotated", "6.log.rotated"], 7),
            (&["5.log.rotated", "6.log", "7.log"], 8),
            (&[], 0),
            (&["a.log.rotated", "b.log.rotated", "12log.rotated"], 0),
            (&["145.log.log.rotated"], 146),
            (&["92233720368547758089223372036854775808.log.rotated"], 0),
            (
                &[
                    "9223372036854775808.log.rotated",
                    "23.log",
                    "23a.log",
                    "1aaa.log.rotated",
                    "2.log",
                    "3.log.rotated",
                ],
                24,
            ),
            (&["rotated.23.log"], 0),
            (&["mylog42.log"], 0),
            (&["-42.log"], 0),
            (&["6.log", "6.log.rotated", "6.log.rotated.rotated"], 7),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for name in names {
                std::fs::write(dir.path().join(name), "a log line").unwrap();
            }
            assert_eq!(restarts_by_logs(dir.path()), expected, "{names:?}");
        }
    }

    /// Upstream's 8 cases of `TestHasPrivilegedContainer`, and those of an ephemeral container.
    #[test]
    fn pods_that_may_do_everything() {
        for kind in ["containers", "initContainers", "ephemeralContainers"] {
            for (context, expected) in [
                (json!(null), false),
                (json!({}), false),
                (json!({"privileged": false}), false),
                (json!({"privileged": true}), true),
            ] {
                let mut spec = json!({"containers": []});
                spec[kind] = json!([{"name": "c", "securityContext": context}]);
                let pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
                assert_eq!(has_privileged(&pod), expected, "{kind} {context}");
            }
        }
    }

    /// Upstream's `TestContainerAnnotations` and `TestPodLabels` read the same back; its 4 protocols of `TestToRuntimeProtocol`.
    #[test]
    fn containers_tell_of_themselves() {
        let hook = json!({"exec": {"command": ["action1", "action2"]},
            "httpGet": {"path": "path", "host": "host", "port": 8080, "scheme": "scheme"},
            "tcpSocket": {"port": "80"}});
        let ports = json!([
            {"name": "http", "hostPort": 80, "containerPort": 8080, "protocol": "TCP"},
            {"name": "https", "hostPort": 443, "containerPort": 6443, "protocol": "TCP"}]);
        let pod = |hook: &serde_json::Value, grace: Option<i64>| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "test_pod", "namespace": "test_pod_namespace", "uid": "test_pod_uid",
                    "deletionGracePeriodSeconds": grace, "labels": {"foo": "bar"}},
                "spec": {"terminationGracePeriodSeconds": grace, "containers": [{"name": "test_container",
                    "ports": ports, "terminationMessagePath": "/somepath", "lifecycle": hook}]}}))
            .unwrap()
        };
        let read = |pod: &Pod| {
            let c = &spec::containers(pod)[0];
            let given =
                Given { annotations: BTreeMap::from([("Foo".into(), "bar".into())]), ..Given::default() };
            let facts = Facts { pod, pod_ips: &[], node_ips: &[], allocatable: &BTreeMap::default() };
            let i = ContainerInputs {
                facts: &facts,
                container: c,
                image_ref: "",
                image_user: &security::ImageUser::default(),
                restart_count: 5,
                given: &given,
                volumes: &Volumes::default(),
                image_volumes: &HashMap::new(),
                target: None,
            };
            let all = annotations(&Config::new("n"), &i);
            assert_eq!(all["Foo"], "bar");
            assert_eq!(all[labels::CONTAINER_HASH], format!("{:x}", spec::container_hash(c)));
            assert_eq!(all[labels::CONTAINER_RESTART_COUNT], "5");
            assert_eq!(all[labels::TERMINATION_MESSAGE_PATH], "/somepath");
            let told: serde_json::Value = serde_json::from_str(&all[labels::CONTAINER_PORTS]).unwrap();
            assert_eq!(told, ports);
            all
        };
        let full = pod(&json!({ "preStop": hook }), Some(10));
        let all = read(&full);
        assert_eq!(all[labels::POD_DELETION_GRACE_PERIOD], "10");
        assert_eq!(all[labels::POD_TERMINATION_GRACE_PERIOD], "10");
        let told: serde_json::Value = serde_json::from_str(&all[labels::PRE_STOP_HANDLER]).unwrap();
        assert_eq!(told, hook);
        let all = read(&pod(&json!(null), None));
        for key in [
            labels::POD_DELETION_GRACE_PERIOD,
            labels::POD_TERMINATION_GRACE_PERIOD,
            labels::PRE_STOP_HANDLER,
        ] {
            assert_eq!(all.get(key), None, "{key}");
        }
        let of_pod = pod_labels(&full);
        let expected = [
            ("foo", "bar"),
            (labels::POD_NAME, "test_pod"),
            (labels::POD_NAMESPACE, "test_pod_namespace"),
            (labels::POD_UID, "test_pod_uid"),
        ];
        assert_eq!(of_pod, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        for (name, expected) in [
            ("TCP", pb::Protocol::Tcp),
            ("UDP", pb::Protocol::Udp),
            ("SCTP", pb::Protocol::Sctp),
            ("unknown", pb::Protocol::Tcp),
        ] {
            let container = json!({"name": "c", "ports": [{"containerPort": 1, "protocol": name}]});
            assert_eq!(port_mappings(&serde_json::from_value(container).unwrap())[0].protocol(), expected);
        }
    }

    /// Upstream's 11 cases of `TestExpandVolumeMountsWithSubpath`.
    #[test]
    fn paths_below_volumes_have_all_their_values() {
        let check = |expr: &str, env: &[(&str, &str)], expected: Result<&str, &str>| {
            let mut vars = env::Env::default();
            for (name, value) in env {
                vars.set(*name, *value);
            }
            let got = expand_strict(expr, &vars).map_err(|e| e.to_string());
            assert_eq!(
                got.as_deref(),
                expected.map_err(|names| format!("missing value for {names}")).as_deref(),
                "{expr}"
            );
        };
        let foo = [("POD_NAME", "foo")];
        check("foo", &[], Ok("foo"));
        check("foo/$(POD_NAME)", &[("POD_NAME", "bar")], Ok("foo/bar"));
        check("", &[("POD_NAME", "bar")], Ok(""));
        check("/foo/$(POD_NAME)", &[], Err("POD_NAME"));
        check("$(POD_NAME)/bar", &foo, Ok("foo/bar"));
        check("$(POD_NAME)/bar", &foo, Ok("foo/bar"));
        check("", &foo, Ok(""));
        check("foo/$(POD_NAME)/$(ANNOTATION)", &[("ANNOTATION", "")], Err("ANNOTATION, POD_NAME"));
        check("foo/$(ODD_NAME)/$(POD_NAME)", &[("ODD_NAME", "bar")], Err("POD_NAME"));
        check("$()", &[], Err(""));
        check(
            "$(POD_NAME$(ANNOTATION))",
            &[("POD_NAME", "foo"), ("ANNOTATION", "bar")],
            Err("POD_NAME$(ANNOTATION"),
        );
    }

    /// Upstream's 4 cases of `TestMakePortMappings`. A port is `NAME PROTOCOL CONTAINER-PORT HOST-PORT ADDRESS`.
    #[test]
    fn ports_are_mapped_once() {
        let check = |ports: &[&str], expected: &[usize]| {
            let one = |text: &&str| {
                let parts: Vec<&str> = text.split(' ').collect();
                let number = |of: usize| parts[of].parse::<i32>().unwrap();
                json!({"name": parts[0], "protocol": parts[1], "containerPort": number(2), "hostPort": number(3),
                    "hostIP": parts[4]})
            };
            let of = |ports: Vec<serde_json::Value>| -> Container {
                serde_json::from_value(json!({"name": "fooContainer", "ports": ports})).unwrap()
            };
            let all: Vec<_> = ports.iter().map(one).collect();
            let kept: Vec<_> =
                expected.iter().flat_map(|at| port_mappings(&of(vec![all[*at].clone()]))).collect();
            assert_eq!(port_mappings(&of(all)), kept, "{ports:?}");
        };
        check(
            &[
                " TCP 80 8080 127.0.0.1",
                " TCP 443 4343 192.168.0.1",
                "foo UDP 555 5555 ",
                "foo UDP 888 8888 ",
                " TCP 80 8080 ::",
                " TCP 1234 5678 ",
            ],
            &[0, 1, 2, 4, 5],
        );
        check(&[" TCP 443 4343 192.168.0.1", " TCP 4343 4343 192.168.0.1"], &[0, 1]);
        check(&[" TCP 443 4343 ", " TCP 443 4343 "], &[0]);
        check(&[" TCP 443 4343 192.168.0.1", " TCP 443 4343 172.16.0.1"], &[0, 1]);
    }
}
