//! The sandboxes and containers of a Pod, as the runtime reports them.

use std::collections::HashMap;
use std::sync::OnceLock;

use cri::runtime as pb;
use jiff::Timestamp;

use super::pod_level::Figures;
use super::{labels, stop_signal};

/// A CRI time, nanoseconds since the epoch; none where it is not set.
fn nanos(t: i64) -> Option<Timestamp> {
    (t > 0).then(|| Timestamp::from_nanosecond(i128::from(t)).ok()).flatten()
}

/// A container's state in the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// Made, not started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended.
    Exited,
    /// The runtime does not know.
    #[default]
    Unknown,
}

impl State {
    /// Upstream's word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Unknown => "unknown",
        }
    }
}

/// A container as the runtime reports it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ContainerStatus {
    /// CRI id.
    pub id: String,
    /// Id of its sandbox.
    pub sandbox_id: String,
    /// Name in the Pod.
    pub name: String,
    /// State.
    pub state: State,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// When its process started.
    pub started_at: Option<Timestamp>,
    /// When its process ended.
    pub finished_at: Option<Timestamp>,
    /// Exit code, if it ended.
    pub exit_code: i32,
    /// The image as it was asked for.
    pub image: String,
    /// The image's resolved reference.
    pub image_ref: String,
    /// The image's id.
    pub image_id: String,
    /// Hash of the specification it was made from.
    pub hash: u64,
    /// How often the container was restarted before.
    pub restart_count: u32,
    /// Why it ended, in a word.
    pub reason: String,
    /// Why it ended, or its termination message.
    pub message: String,
    /// Path of its log on the node.
    pub log_path: String,
    /// Where its termination message lies on the node, if that is wanted.
    pub termination_message_host_path: Option<String>,
    /// Whether its log's end is its message when it fails without one.
    pub fallback_to_logs: bool,
    /// Its first process' user.
    pub user: Option<pb::LinuxContainerUser>,
    /// Its limits as the runtime reports them.
    pub resources: Option<pb::LinuxContainerResources>,
    /// The signal that stops it, by the API's name (`SIGRTMIN+1`).
    pub stop_signal: Option<String>,
    /// The images that are mounted into it as volumes.
    pub image_volumes: Vec<ImageVolume>,
}

/// An image that is mounted into a container as a volume.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImageVolume {
    /// The place of the mount in the container.
    pub container_path: String,
    /// The image as the runtime was asked for it.
    pub image: pb::ImageSpec,
    /// The image's id in the runtime, if somebody asked for it and the runtime has it.
    pub id: Option<String>,
}

impl ContainerStatus {
    /// From CRI's message.
    pub fn new(status: pb::ContainerStatus, sandbox_id: String) -> Self {
        let state = match status.state() {
            pb::ContainerState::ContainerCreated => State::Created,
            pb::ContainerState::ContainerRunning => State::Running,
            pb::ContainerState::ContainerExited => State::Exited,
            pb::ContainerState::ContainerUnknown => State::Unknown,
        };
        let stop_signal = stop_signal::of_cri(status.stop_signal());
        let image_volume = |mount: &pb::Mount| {
            let image = mount.image.clone()?;
            Some(ImageVolume { container_path: mount.container_path.clone(), image, id: None })
        };
        let image_volumes = status.mounts.iter().filter_map(image_volume).collect();
        let annotation = |key: &str| status.annotations.get(key);
        let metadata = status.metadata.clone().unwrap_or_default();
        let message_path = annotation(labels::TERMINATION_MESSAGE_PATH).cloned().unwrap_or_default();
        Self {
            sandbox_id,
            name: status.labels.get(labels::CONTAINER_NAME).cloned().unwrap_or(metadata.name),
            state,
            created_at: nanos(status.created_at),
            started_at: nanos(status.started_at),
            finished_at: nanos(status.finished_at),
            exit_code: status.exit_code,
            hash: annotation(labels::CONTAINER_HASH)
                .and_then(|h| u64::from_str_radix(h, 16).ok())
                .unwrap_or_default(),
            restart_count: annotation(labels::CONTAINER_RESTART_COUNT)
                .and_then(|n| n.parse().ok())
                .unwrap_or(metadata.attempt),
            // A volume may be mounted at the same path: the kubelet's own file comes after it.
            termination_message_host_path: status
                .mounts
                .iter()
                .rfind(|m| !message_path.is_empty() && m.container_path == message_path)
                .map(|m| m.host_path.clone()),
            fallback_to_logs: annotation(labels::TERMINATION_MESSAGE_POLICY)
                .is_some_and(|p| p == "FallbackToLogsOnError"),
            user: status.user.and_then(|u| u.linux),
            resources: status.resources.and_then(|r| r.linux),
            stop_signal,
            image_volumes,
            id: status.id,
            image: status
                .image
                .map(|i| if i.user_specified_image.is_empty() { i.image } else { i.user_specified_image })
                .unwrap_or_default(),
            image_ref: status.image_ref,
            image_id: status.image_id,
            reason: status.reason,
            message: status.message,
            log_path: status.log_path,
        }
    }
    /// Whether its process runs.
    pub fn running(&self) -> bool {
        self.state == State::Running
    }
    /// Whether it ended without success.
    pub fn failed(&self) -> bool {
        self.state == State::Exited && self.exit_code != 0
    }
}

/// A sandbox as the runtime reports it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SandboxStatus {
    /// CRI id.
    pub id: String,
    /// Whether it is ready.
    pub ready: bool,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Which attempt of the Pod it is.
    pub attempt: u32,
    /// Its addresses, the primary one first; none on the host's network.
    pub ips: Vec<String>,
    /// Whether it uses the host's network.
    pub host_network: bool,
}

impl From<pb::PodSandboxStatus> for SandboxStatus {
    fn from(status: pb::PodSandboxStatus) -> Self {
        let ready = status.state() == pb::PodSandboxState::SandboxReady;
        let network = status.linux.and_then(|l| l.namespaces).and_then(|n| n.options);
        let mut ips = Vec::new();
        if let Some(net) = status.network {
            ips.push(net.ip);
            ips.extend(net.additional_ips.into_iter().map(|ip| ip.ip));
        }
        ips.retain(|ip| !ip.is_empty());
        Self {
            id: status.id,
            ready,
            created_at: nanos(status.created_at),
            attempt: status.metadata.map_or(0, |m| m.attempt),
            ips,
            host_network: network.is_some_and(|o| o.network() == pb::NamespaceMode::Node),
        }
    }
}

/// Where the containers of each name stand, made when it is first asked for. A copy makes its own.
#[derive(Debug, Default)]
pub(crate) struct Places(OnceLock<HashMap<String, Vec<usize>>>);

impl Clone for Places {
    fn clone(&self) -> Self {
        Self::default()
    }
}
impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Everything the runtime has of a Pod: sandboxes and containers, the newest first. Once it was asked
/// for a container by name, its containers must not change any more.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodStatus {
    /// uid of the Pod.
    pub uid: String,
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub name: String,
    /// Sandboxes.
    pub sandboxes: Vec<SandboxStatus>,
    /// Containers.
    pub containers: Vec<ContainerStatus>,
    /// The figures of its cgroup, where they are wanted and known.
    pub cgroup: Option<Figures>,
    pub(crate) places: Places,
}

impl PodStatus {
    /// Puts the newest first.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by_key(|s| std::cmp::Reverse((s.created_at, s.attempt)));
        self.containers.sort_by_key(|c| std::cmp::Reverse((c.created_at, c.restart_count)));
    }
    /// The containers of a name, the newest first.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &ContainerStatus> {
        let places = self.places.0.get_or_init(|| {
            let mut places: HashMap<String, Vec<usize>> = HashMap::new();
            for (at, c) in self.containers.iter().enumerate() {
                places.entry(c.name.clone()).or_default().push(at);
            }
            places
        });
        places.get(name).into_iter().flatten().filter_map(|at| self.containers.get(*at))
    }
    /// The newest container of a name.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.named(name).next()
    }
    /// The second newest container of a name.
    pub fn previous(&self, name: &str) -> Option<&ContainerStatus> {
        self.named(name).nth(1)
    }
    /// The newest sandbox, if it is ready.
    pub fn ready_sandbox(&self) -> Option<&SandboxStatus> {
        self.sandboxes.first().filter(|s| s.ready)
    }
    /// Addresses of the Pod in the newest ready sandbox.
    pub fn ips(&self) -> &[String] {
        self.ready_sandbox().map_or(&[], |s| &s.ips)
    }
    /// Containers whose process runs.
    pub fn running(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.containers.iter().filter(|c| c.running())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's 4 cases of `TestToKubeContainerStatus`, which have the 4 states of `TestToKubeContainerState`, with the user
    /// of `TestToKubeContainerStatusWithUser`.
    #[test]
    fn containers_are_read() {
        use pb::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning, ContainerUnknown};
        let user = pb::LinuxContainerUser { uid: 0, gid: 0, supplemental_groups: vec![10] };
        for (cri, state, started_at, finished_at) in [
            (ContainerCreated, State::Created, 0, 0),
            (ContainerRunning, State::Running, 999, 0),
            (ContainerExited, State::Exited, 999, 1278),
            (ContainerUnknown, State::Unknown, 999, 0),
        ] {
            let ended = state == State::Exited;
            let text = |text: &str| if ended { text.to_owned() } else { String::new() };
            let status = pb::ContainerStatus {
                id: "dummyid".into(),
                metadata: Some(pb::ContainerMetadata { name: "cname".into(), attempt: 3 }),
                image: Some(pb::ImageSpec { image: "fimage".into(), ..pb::ImageSpec::default() }),
                state: cri.into(),
                created_at: 327,
                started_at,
                finished_at,
                exit_code: if ended { 121 } else { 0 },
                reason: text("GotKilled"),
                message: text("The container was killed"),
                user: Some(pb::ContainerUser { linux: Some(user.clone()) }),
                ..pb::ContainerStatus::default()
            };
            let expected = ContainerStatus {
                id: "dummyid".into(),
                sandbox_id: "s".into(),
                name: "cname".into(),
                state,
                created_at: nanos(327),
                started_at: nanos(started_at),
                finished_at: nanos(finished_at),
                exit_code: status.exit_code,
                image: "fimage".into(),
                restart_count: 3,
                reason: status.reason.clone(),
                message: status.message.clone(),
                user: Some(user.clone()),
                ..ContainerStatus::default()
            };
            assert_eq!(ContainerStatus::new(status, "s".into()), expected);
        }
    }

    #[test]
    fn images_and_signals_of_containers_are_read() {
        let image = pb::ImageSpec { image: "sha256:1".into(), ..pb::ImageSpec::default() };
        let mount =
            |path: &str, image| pb::Mount { container_path: path.into(), image, ..pb::Mount::default() };
        let status = pb::ContainerStatus {
            mounts: vec![mount("/files", None), mount("/image", Some(image.clone()))],
            stop_signal: pb::Signal::Sigrtminplus3.into(),
            ..pb::ContainerStatus::default()
        };
        let got = ContainerStatus::new(status, String::new());
        assert_eq!(got.image_volumes, [ImageVolume { container_path: "/image".into(), image, id: None }]);
        assert_eq!(got.stop_signal.as_deref(), Some("SIGRTMIN+3"));
    }
}
