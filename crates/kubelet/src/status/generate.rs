//! A Pod's status, computed from what the runtime has, what probes say, and what was reported before.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ContainerUser, HostIP, ImageVolumeStatus, LinuxContainerUser, Pod, PodCondition, PodIP,
    PodSpec, PodStatus, ResourceRequirements, VolumeMount, VolumeMountStatus, VolumeStatus,
};

use crate::pods::actions::{any_regular_created, sandbox_changed, should_start};
use crate::pods::allocation::{self, Pending};
use crate::pods::observed::{self, State};
use crate::pods::{mount_modes, pod_level, resources, restart_all, spec};
use crate::probes::Kind;
use objects::quantity::ResourceList;

/// Condition types that the kubelet writes.
pub(crate) const OWN_CONDITIONS: [&str; 7] = [
    "PodScheduled",
    "Ready",
    "Initialized",
    "ContainersReady",
    "PodReadyToStartContainers",
    "PodResizePending",
    "PodResizeInProgress",
];

/// How long the messages of all containers that ended may be together, in bytes; upstream's.
const MAX_MESSAGES: usize = 12 << 10;
/// How long the reasons of all containers that wait may be together, and each of them in any case.
///
/// DIFFERENCE: upstream has no limit: a runtime's error may be as long as the command it is about, and
/// then nothing of the status is stored.
const MAX_WAITING: usize = 64 << 10;
const MIN_WAITING: usize = 64;

/// Why a container waits: reason and message.
pub(crate) type Waiting = HashMap<String, (String, String)>;

/// Why a Pod fails although its containers may not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Reason of its status.
    pub(crate) reason: String,
    /// Message of its status.
    pub(crate) message: String,
    /// The message of the condition `DisruptionTarget`, if this kubelet ends it for the sake of others.
    pub(crate) disruption: Option<String>,
    /// Whether a Pod that succeeded all the same has succeeded.
    pub(crate) keeps_success: bool,
}

/// The facts that a status is computed from.
pub(crate) struct Inputs<'a> {
    /// The Pod as the API has it.
    pub(crate) pod: &'a Pod,
    /// The sandboxes and containers that the runtime has.
    pub(crate) observed: &'a observed::PodStatus,
    /// Containers that could not be started.
    pub(crate) waiting: &'a Waiting,
    /// The last result of a probe of a container.
    pub(crate) probe: &'a dyn Fn(Kind, &str) -> Option<bool>,
    /// The status reported before.
    pub(crate) old: &'a PodStatus,
    /// Whether no container will run again.
    pub(crate) terminal: bool,
    /// Why the Pod failed although its containers may not have: reason and message.
    pub(crate) failed: Option<&'a Failure>,
    /// Addresses of the node.
    pub(crate) node_ips: &'a [IpAddr],
    /// Name of the runtime, the prefix of container ids.
    pub(crate) runtime: &'a str,
    /// Whether the runtime mounts read-only all the way down.
    pub(crate) recursive_read_only: bool,
    /// Resources that running containers were given, by CRI id.
    pub(crate) actuated: &'a HashMap<String, ResourceRequirements>,
    /// The Pod's own resources by which its cgroup was set, if that is known.
    pub(crate) actuated_whole: Option<&'a ResourceRequirements>,
    /// Whether the resources of the whole Pod are told; upstream's gate `InPlacePodLevelResourcesVerticalScaling`.
    pub(crate) tells_whole: bool,
    /// Why the node does not give what the Pod asks for by now; `pod` has what it was given.
    pub(crate) pending: Option<&'a Pending>,
    /// Why the last attempt to resize failed.
    pub(crate) resize_error: Option<&'a str>,
    /// The generation of the object whose resize is under way, if that is known.
    pub(crate) resizing: Option<i64>,
    /// Whether a container's end may restart all containers; upstream's gate `RestartAllContainersOnContainerExits`.
    pub(crate) restarts_all: bool,
    /// Whether the signals that stop containers are told; upstream's gate `ContainerStopSignals`.
    pub(crate) tells_stop_signals: bool,
    /// Now.
    pub(crate) now: Timestamp,
}

pub(crate) use objects::time::whole_seconds as time;

fn terminated_unknown(message: &str) -> ContainerState {
    killed("ContainerStatusUnknown", message)
}

/// The state of a container that is gone.
fn killed(reason: &str, message: &str) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            reason: Some(reason.into()),
            message: Some(message.into()),
            exit_code: 137,
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let text = |s: &str| Some(s.to_owned()).filter(|s| !s.is_empty());
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: text(reason), message: text(message) }),
        ..ContainerState::default()
    }
}

/// Whether all containers are being restarted.
fn is_restarting(i: &Inputs<'_>) -> bool {
    i.restarts_all && restart_all::is_due(i.pod, i.observed, i.old)
}

/// The state of a container as the runtime has it.
fn state(i: &Inputs<'_>, c: &observed::ContainerStatus, old: Option<&ContainerStatus>) -> ContainerState {
    match c.state {
        State::Running => ContainerState {
            running: Some(ContainerStateRunning { started_at: c.started_at.map(time) }),
            ..ContainerState::default()
        },
        State::Exited => ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: c.exit_code,
                reason: Some(c.reason.clone()).filter(|r| !r.is_empty()),
                message: Some(c.message.clone()).filter(|m| !m.is_empty()),
                // As upstream, one that ended without a start began in 1970.
                started_at: Some(time(c.started_at.unwrap_or(Timestamp::UNIX_EPOCH))),
                finished_at: c.finished_at.map(time),
                container_id: Some(format!("{}://{}", i.runtime, c.id)),
                signal: None,
            }),
            ..ContainerState::default()
        },
        State::Unknown if old.is_some_and(|o| o.state.as_ref().is_some_and(|s| s.running.is_some())) => {
            let reason = if is_restarting(i) { restart_all::REASON } else { "ContainerStatusUnknown" };
            killed(reason, "The container could not be located when the pod was terminated")
        }
        State::Created | State::Unknown => waiting("", ""),
    }
}

fn is_terminated(s: &ContainerStatus) -> bool {
    s.state.as_ref().is_some_and(|s| s.terminated.is_some())
}
fn is_running(s: &ContainerStatus) -> bool {
    s.state.as_ref().is_some_and(|s| s.running.is_some())
}
fn waiting_reason(s: &ContainerStatus) -> Option<&str> {
    s.state.as_ref()?.waiting.as_ref().map(|w| w.reason.as_deref().unwrap_or_default())
}
fn last_terminated(s: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    s.last_state.as_ref()?.terminated.as_ref()
}

/// The image that a mount shows: as the runtime knows it, or as it was reported before.
///
/// DIFFERENCE: upstream looks for it by the name of the volume, which no runtime tells; here a mount is known by its place.
fn image_of_mount(
    mount: &VolumeMount,
    seen: Option<&observed::ContainerStatus>,
    old: Option<&ContainerStatus>,
) -> Option<VolumeStatus> {
    let place = mount.mount_path.trim_start_matches('/');
    let mut images = seen.into_iter().flat_map(|c| &c.image_volumes);
    let id = images.find(|v| v.container_path.trim_start_matches('/') == place).and_then(|v| v.id.clone());
    let known = |image_ref| VolumeStatus { image: Some(ImageVolumeStatus { image_ref }) };
    id.map(known).or_else(|| {
        let mut before = old?.volume_mounts.iter().flatten();
        before.find(|b| b.name == mount.name && b.mount_path == mount.mount_path)?.volume_status.clone()
    })
}

/// The mounts of a container that was `seen` in the runtime, or was reported before.
fn volume_mounts(
    i: &Inputs<'_>,
    container: &Container,
    seen: Option<&observed::ContainerStatus>,
    old: Option<&ContainerStatus>,
) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref().filter(|m| !m.is_empty())?;
    Some(
        mounts
            .iter()
            .map(|m| VolumeMountStatus {
                name: m.name.clone(),
                mount_path: m.mount_path.clone(),
                read_only: m.read_only.filter(|r| *r),
                recursive_read_only: (m.read_only == Some(true)).then(|| {
                    let given = mount_modes::recursive_read_only(m, i.recursive_read_only).unwrap_or(false);
                    if given { "Enabled".to_owned() } else { "Disabled".to_owned() }
                }),
                volume_status: image_of_mount(m, seen, old),
            })
            .collect(),
    )
}

/// The resources that a container has: of one that runs, as the runtime reports them.
fn given_to(i: &Inputs<'_>, container: &Container, c: &observed::ContainerStatus) -> ResourceRequirements {
    let own = container.resources.clone().unwrap_or_default();
    if c.state != State::Running {
        return own;
    }
    let known = i.actuated.get(&c.id).cloned().unwrap_or_else(|| resources::effective(i.pod, container));
    let shown = Container { resources: Some(known), ..Container::default() };
    let mut all = resources::actual(i.pod, &shown, c.resources.as_ref());
    // A limit that is the Pod's is not the container's.
    let keep = |list: &mut Option<ResourceList>, own: Option<&ResourceList>| {
        if let Some(list) = list {
            list.retain(|name, _| own.is_some_and(|own| own.contains_key(name)));
        }
        *list = list.take().filter(|list| !list.is_empty());
    };
    keep(&mut all.requests, own.requests.as_ref());
    keep(&mut all.limits, own.limits.as_ref());
    all.claims = own.claims;
    all
}

fn by_name(list: &[ContainerStatus]) -> HashMap<&str, &ContainerStatus> {
    list.iter().map(|s| (s.name.as_str(), s)).collect()
}

/// Shortens what containers and the runtime say, so that the status of many stays one that can be stored.
fn shorten(lists: [&mut Vec<ContainerStatus>; 3]) {
    let count = lists.iter().map(|l| l.len()).sum::<usize>().max(1);
    let cut = |text: Option<&mut String>, most: usize| {
        if let Some(text) = text.filter(|t| t.len() > most) {
            text.truncate(text.floor_char_boundary(most));
        }
    };
    for status in lists.into_iter().flatten() {
        for state in [&mut status.state, &mut status.last_state].into_iter().flatten() {
            cut(state.terminated.as_mut().and_then(|t| t.message.as_mut()), MAX_MESSAGES / count);
            let most = (MAX_WAITING / count).max(MIN_WAITING);
            cut(state.waiting.as_mut().and_then(|w| w.message.as_mut()), most);
        }
    }
}

/// The user of a container's first process.
fn user(user: &cri::runtime::LinuxContainerUser) -> ContainerUser {
    ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: Some(user.supplemental_groups.clone()).filter(|g| !g.is_empty()),
        }),
    }
}

/// How often a container was restarted: what the runtime has may have been removed in between, so the count never falls.
fn restart_count(c: &observed::ContainerStatus, old: Option<&ContainerStatus>) -> i32 {
    let count = i32::try_from(c.restart_count).unwrap_or(i32::MAX);
    let Some(old) = old else { return count };
    let restarted = match c.state {
        State::Running => is_terminated(old) && old.restart_count >= count,
        State::Unknown => is_running(old),
        State::Created | State::Exited => false,
    };
    if restarted { old.restart_count.saturating_add(1) } else { count.max(old.restart_count) }
}

/// The state of an init container of which nothing is known but that the Pod goes on without it.
fn ended_normally() -> ContainerState {
    let message = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally";
    let ended = ContainerStateTerminated {
        reason: Some("Completed".into()),
        message: Some(message.into()),
        exit_code: 0,
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(ended), ..ContainerState::default() }
}

/// Statuses of one list of containers.
fn containers(
    i: &Inputs<'_>,
    list: &[Container],
    old: Option<&Vec<ContainerStatus>>,
    init: bool,
) -> Vec<ContainerStatus> {
    let has_init = !spec::init_containers(i.pod).is_empty();
    let default_reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
    let restarting = is_restarting(i);
    let mut out = Vec::with_capacity(list.len());
    let old = by_name(old.map_or(&[], Vec::as_slice));
    for container in list {
        let old = old.get(container.name.as_str()).copied();
        let mut seen = i.observed.named(&container.name);
        let newest = seen.next();
        let mut status = ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            state: Some(waiting(default_reason, "")),
            last_state: Some(ContainerState::default()),
            volume_mounts: volume_mounts(i, container, None, None),
            ..ContainerStatus::default()
        };
        if let Some(old) = old {
            if is_terminated(old) {
                status = old.clone();
            } else {
                status.restart_count = old.restart_count;
                status.last_state.clone_from(&old.last_state);
            }
        }
        if let Some(c) = newest {
            status = ContainerStatus {
                name: container.name.clone(),
                image: c.image.clone(),
                image_id: c.image_ref.clone(),
                container_id: Some(format!("{}://{}", i.runtime, c.id)),
                restart_count: restart_count(c, old),
                state: Some(state(i, c, old)),
                last_state: seen
                    .next()
                    .map(|before| state(i, before, old))
                    .or_else(|| {
                        // The one before may be gone from the runtime.
                        old.and_then(|o| {
                            let same = o.container_id.as_deref().is_some_and(|id| id.ends_with(&c.id));
                            if same || !is_terminated(o) { o.last_state.clone() } else { o.state.clone() }
                        })
                    })
                    .or_else(|| Some(ContainerState::default())),
                resources: Some(given_to(i, container, c)),
                allocated_resources: container
                    .resources
                    .as_ref()
                    .and_then(|r| r.requests.clone())
                    .filter(|r| !r.is_empty()),
                user: c.user.as_ref().map(user),
                stop_signal: c.stop_signal.clone().filter(|_| i.tells_stop_signals),
                volume_mounts: volume_mounts(i, container, newest, old),
                ..ContainerStatus::default()
            };
        } else if let Some(old) = old.filter(|o| restarting && waiting_reason(o).is_none()) {
            status.state = Some(waiting(restart_all::REASON, restart_all::REMOVED));
            status.last_state = Some(killed(restart_all::REASON, restart_all::REMOVED));
            status.restart_count = old.restart_count.saturating_add(1);
        } else if let Some(old) = old.filter(|o| is_running(o)) {
            // It ran, and the runtime knows nothing of it any more.
            if waiting_reason(&status) == Some(default_reason) && last_terminated(&status).is_none() {
                status.last_state = Some(terminated_unknown(
                    "The container could not be located when the pod was deleted.  The container used to be Running",
                ));
                if i.pod.metadata.deletion_timestamp.is_none() {
                    status.restart_count = old.restart_count + 1;
                }
            }
        }
        if init {
            if newest.is_some_and(|c| c.state == State::Exited && c.exit_code == 0) {
                out.push(status);
                continue;
            }
            if newest.is_none()
                && !spec::is_sidecar(container)
                && any_regular_created(i.pod, i.observed)
                && waiting_reason(&status).is_some()
            {
                status.state = Some(ended_normally());
                out.push(status);
                continue;
            }
        }
        if should_start(container, i.pod, i.observed)
            && let Some((reason, message)) = i.waiting.get(&container.name)
        {
            if is_terminated(&status) {
                status.last_state = status.state.take();
            }
            status.state = Some(waiting(reason, message));
        }
        out.push(status);
    }
    if init {
        return out;
    }
    out.sort_by(|a, b| a.name.cmp(&b.name));
    out
}

/// Sets `started` and `ready`.
fn readiness(i: &Inputs<'_>, list: &[Container], statuses: &mut [ContainerStatus], init: bool) {
    let containers: HashMap<&str, &Container> = list.iter().map(|c| (c.name.as_str(), c)).collect();
    for status in statuses {
        let Some(container) = containers.get(status.name.as_str()) else { continue };
        let id = status.container_id.as_deref().and_then(|id| id.rsplit('/').next()).unwrap_or_default();
        let started = is_running(status)
            && (container.startup_probe.is_none() || (i.probe)(Kind::Startup, id) == Some(true));
        status.started = Some(started);
        status.ready = if init && !spec::is_sidecar(container) {
            status.state.as_ref().and_then(|s| s.terminated.as_ref()).is_some_and(|t| t.exit_code == 0)
        } else {
            started && (container.readiness_probe.is_none() || (i.probe)(Kind::Readiness, id) == Some(true))
        };
    }
}

/// The phase that containers' states make. A Pod is `initialized` once a container of its present sandbox was made.
pub(super) fn phase(
    pod: &Pod,
    init: &[ContainerStatus],
    regular: &[ContainerStatus],
    terminal: bool,
    initialized: bool,
) -> &'static str {
    let (init, regular) = (by_name(init), by_name(regular));
    let find = |list: &HashMap<&str, &ContainerStatus>, name: &str| list.get(name).copied().cloned();
    let ended = |s: &ContainerStatus| s.state.as_ref().and_then(|s| s.terminated.clone());
    let again = |c: &Container, end: &ContainerStateTerminated| {
        spec::should_restart(c, pod, end.exit_code) || end.reason.as_deref() == Some(restart_all::REASON)
    };
    let (mut pending_init, mut pending_sidecars, mut failed_init) = (0, 0, 0);
    let (mut unknown, mut running, mut waits) = (0, 0, 0);
    for container in spec::init_containers(pod) {
        let status = find(&init, &container.name);
        if spec::is_sidecar(container) {
            match status {
                None => unknown += 1,
                Some(s) if is_running(&s) => {
                    pending_sidecars += i32::from(s.started != Some(true));
                    running += 1;
                }
                Some(s) if is_terminated(&s) => {}
                Some(s) => {
                    if last_terminated(&s).is_none() {
                        pending_sidecars += 1;
                        waits += 1;
                    }
                }
            }
            continue;
        }
        match status {
            Some(s)
                if is_terminated(&s) || (waiting_reason(&s).is_some() && last_terminated(&s).is_some()) =>
            {
                let end = ended(&s).or_else(|| last_terminated(&s).cloned()).unwrap_or_default();
                failed_init += i32::from(end.exit_code != 0 && !again(container, &end));
            }
            _ => pending_init += 1,
        }
    }
    let (mut stopped, mut final_stops, mut succeeded) = (0, 0, 0);
    for container in spec::containers(pod) {
        match find(&regular, &container.name) {
            None => unknown += 1,
            Some(s) if is_running(&s) => running += 1,
            Some(s) => match (ended(&s), last_terminated(&s)) {
                (Some(end), _) => {
                    stopped += 1;
                    final_stops += i32::from(!again(container, &end));
                    succeeded += i32::from(end.exit_code == 0);
                }
                (None, Some(last)) => {
                    stopped += 1;
                    final_stops += i32::from(!again(container, last));
                }
                (None, None) => waits += 1,
            },
        }
    }
    if failed_init > 0 {
        return "Failed";
    }
    if pending_init > 0 || (pending_sidecars > 0 && !initialized) || waits > 0 {
        return "Pending";
    }
    if running > 0 && unknown == 0 {
        return "Running";
    }
    if running == 0 && stopped > 0 && unknown == 0 {
        let ended = if stopped == succeeded { "Succeeded" } else { "Failed" };
        if terminal && !spec::is_static(pod) {
            return ended;
        }
        return if stopped == final_stops { ended } else { "Running" };
    }
    "Pending"
}

fn is_final(phase: Option<&str>) -> bool {
    matches!(phase, Some("Failed" | "Succeeded"))
}

fn condition(pod: &Pod, kind: &str, ok: bool, reason: &str, message: String) -> PodCondition {
    PodCondition {
        type_: kind.into(),
        status: if ok { "True" } else { "False" }.into(),
        reason: Some(reason.to_owned()).filter(|r| !r.is_empty()),
        message: Some(message).filter(|m| !m.is_empty()),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    }
}

fn listed(label: &str, names: &[&str]) -> Option<String> {
    (!names.is_empty()).then(|| format!("{label}: [{}]", names.join(" ")))
}

pub(super) fn containers_ready(pod: &Pod, all: &[&ContainerStatus], phase: &str, kind: &str) -> PodCondition {
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    let sidecars = spec::init_containers(pod).iter().filter(|c| spec::is_sidecar(c));
    let all: HashMap<&str, &ContainerStatus> = all.iter().map(|s| (s.name.as_str(), *s)).collect();
    for container in sidecars.chain(spec::containers(pod)) {
        match all.get(container.name.as_str()) {
            None => unknown.push(container.name.as_str()),
            Some(s) if !s.ready => unready.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    if phase == "Succeeded" && unknown.is_empty() {
        return condition(pod, kind, false, "PodCompleted", String::new());
    }
    if phase == "Failed" {
        return condition(pod, kind, false, "PodFailed", String::new());
    }
    let messages: Vec<String> = [
        listed("containers with unknown status", &unknown),
        listed("containers with unready status", &unready),
    ]
    .into_iter()
    .flatten()
    .collect();
    let ok = messages.is_empty();
    condition(pod, kind, ok, if ok { "" } else { "ContainersNotReady" }, messages.join(", "))
}

pub(super) fn ready(
    pod: &Pod,
    all: &[&ContainerStatus],
    others: &[PodCondition],
    phase: &str,
) -> PodCondition {
    let of_containers = containers_ready(pod, all, phase, "Ready");
    if of_containers.status != "True" {
        return of_containers;
    }
    let mut messages = Vec::new();
    for gate in spec::spec(pod).readiness_gates.iter().flatten() {
        let kind = &gate.condition_type;
        match others.iter().find(|c| c.type_ == *kind) {
            None => messages
                .push(format!("corresponding condition of pod readiness gate {kind:?} does not exist.")),
            Some(c) if c.status != "True" => messages
                .push(format!("the status of pod readiness gate {kind:?} is not \"True\", but {}", c.status)),
            Some(_) => {}
        }
    }
    let ok = messages.is_empty();
    condition(pod, "Ready", ok, if ok { "" } else { "ReadinessGatesNotReady" }, messages.join(", "))
}

pub(super) fn initialized(pod: &Pod, all: &[&ContainerStatus], old: &PodStatus, phase: &str) -> PodCondition {
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    let all: HashMap<&str, &ContainerStatus> = all.iter().map(|s| (s.name.as_str(), *s)).collect();
    for container in spec::init_containers(pod) {
        let name = container.name.as_str();
        match all.get(name) {
            None => unknown.push(name),
            Some(s) => {
                let done = if spec::is_sidecar(container) { s.started == Some(true) } else { s.ready };
                if !done {
                    incomplete.push(name);
                }
            }
        }
    }
    if phase == "Succeeded" && unknown.is_empty() {
        return condition(pod, "Initialized", true, "PodCompleted", String::new());
    }
    let began = spec::containers(pod)
        .iter()
        .any(|c| all.get(c.name.as_str()).is_some_and(|s| is_running(s) || is_terminated(s)));
    // Nothing leads out of it: sidecars may be on their way again.
    let was = old.conditions.iter().flatten().any(|c| c.type_ == "Initialized" && c.status == "True");
    let messages: Vec<String> = [
        listed("containers with unknown status", &unknown),
        listed("containers with incomplete status", &incomplete),
    ]
    .into_iter()
    .flatten()
    .collect();
    let ok = began || was || messages.is_empty();
    let (reason, text) =
        if ok { ("", String::new()) } else { ("ContainersNotInitialized", messages.join(", ")) };
    condition(pod, "Initialized", ok, reason, text)
}

/// The condition that tells of a restart of all containers.
pub(super) fn restarting(
    pod: &Pod,
    observed: &observed::PodStatus,
    old: &PodStatus,
    phase: &str,
) -> PodCondition {
    let (ok, reason, message) = match phase {
        "Succeeded" => (false, "PodCompleted", ""),
        "Failed" => (false, "PodFailed", ""),
        _ if restart_all::is_due(pod, observed, old) && !restart_all::is_cleaned_up(pod, observed) => {
            (true, "RestartAllContainersStarted", "container exited with restart policy rule")
        }
        _ => (false, "", ""),
    };
    let made = condition(pod, restart_all::CONDITION, ok, reason, message.to_owned());
    PodCondition { observed_generation: None, ..made }
}

/// Whether the Pod, or a running container, does not have its resources yet.
fn resizing(i: &Inputs<'_>) -> bool {
    let pod = i.pod;
    let own = spec::spec(pod).resources.as_ref();
    if i.tells_whole && i.actuated_whole.is_some_and(|given| !allocation::same_or_none(Some(given), own)) {
        return true;
    }
    spec::containers(pod).iter().chain(spec::init_containers(pod)).any(|c| {
        let running = i.observed.container(&c.name).filter(|s| s.running());
        let given = running.and_then(|s| i.actuated.get(&s.id));
        given.is_some_and(|given| !allocation::same(given, &resources::effective(pod, c)))
    })
}

/// The resources of the whole Pod, and what of them was given to it.
fn whole(i: &Inputs<'_>) -> (Option<ResourceRequirements>, Option<ResourceList>) {
    if !i.tells_whole {
        return (None, None);
    }
    let runs = spec::status(i.pod).phase.as_deref() == Some("Running");
    let mut pod = Cow::Borrowed(i.pod);
    if let (true, Some(spec), Some(given)) = (runs, &i.pod.spec, i.actuated_whole)
        && !allocation::same_or_none(Some(given), spec.resources.as_ref())
    {
        let spec = PodSpec { resources: Some(given.clone()), ..spec.clone() };
        pod = Cow::Owned(Pod { spec: Some(spec), ..i.pod.clone() });
    }
    let told = pod_level::told(&pod, i.observed.cgroup.as_ref().filter(|_| runs));
    (Some(told), Some(pod_level::requested(i.pod)).filter(|list| !list.is_empty()))
}

/// The addresses of the Pod, the primary one first.
fn pod_ips(i: &Inputs<'_>) -> Vec<String> {
    let mut ips = i.observed.ips().to_vec();
    if spec::host_network(i.pod) {
        // A runtime need not know the addresses of the node; one that does may know one family only.
        let family = |ip: &IpAddr| ip.is_ipv6();
        for (at, of_node) in i.node_ips.iter().enumerate().take(2) {
            let same = |ip: &String| ip.parse().is_ok_and(|ip| family(&ip) == family(of_node));
            if ips.len() == at && !ips.iter().any(same) {
                ips.push(of_node.to_string());
            }
        }
    } else if ips.is_empty() {
        // The address outlives the sandbox in the report until the Pod has another one.
        ips.extend(i.old.pod_ips.iter().flatten().map(|p| p.ip.clone()));
    }
    ips
}

/// The status.
pub(crate) fn generate(i: &Inputs<'_>) -> PodStatus {
    let pod = i.pod;
    let ephemeral: Vec<Container> = spec::ephemeral_containers(pod).into_iter().map(|(c, _)| c).collect();
    let mut regular = containers(i, spec::containers(pod), i.old.container_statuses.as_ref(), false);
    let mut init = containers(i, spec::init_containers(pod), i.old.init_container_statuses.as_ref(), true);
    let mut extra = containers(i, &ephemeral, i.old.ephemeral_container_statuses.as_ref(), false);
    shorten([&mut regular, &mut init, &mut extra]);
    readiness(i, spec::containers(pod), &mut regular, false);
    readiness(i, spec::init_containers(pod), &mut init, true);

    let active = i.observed.ready_sandbox().map(|sandbox| sandbox.id.as_str());
    let began = spec::containers(pod)
        .iter()
        .any(|c| i.observed.named(&c.name).any(|s| active == Some(s.sandbox_id.as_str())));
    let mut phase = phase(pod, &init, &regular, i.terminal, began).to_owned();
    for known in [i.old.phase.as_deref(), spec::status(pod).phase.as_deref()] {
        // Nothing leads out of a final phase.
        if let Some(known) = known.filter(|p| is_final(Some(p))) {
            known.clone_into(&mut phase);
        }
    }
    let (mut reason, mut message) = (None, None);
    if i.old.phase.as_deref() == Some(phase.as_str()) {
        reason = i.old.reason.clone().or_else(|| spec::status(pod).reason.clone());
        message = i.old.message.clone().or_else(|| spec::status(pod).message.clone());
    }
    if let Some(why) = i.failed {
        if !(why.keeps_success && phase == "Succeeded") {
            phase = "Failed".into();
        }
        reason = Some(why.reason.clone());
        message = Some(why.message.clone());
    }

    // A Pod is not over before all of it has ended: who reads that it is takes its place on the node for free, and
    // this kubelet must not count it any more then. Nobody is told why it is over before that, either.
    let held = is_final(Some(&phase)) && !i.terminal && !is_final(i.old.phase.as_deref());
    let reported = if held {
        (reason, message) = (i.old.reason.clone(), i.old.message.clone());
        i.old.phase.clone().filter(|p| !p.is_empty()).unwrap_or_else(|| "Pending".into())
    } else {
        phase.clone()
    };

    let own = |c: &PodCondition| {
        OWN_CONDITIONS.contains(&c.type_.as_str()) || (i.restarts_all && c.type_ == restart_all::CONDITION)
    };
    let mut conditions: Vec<PodCondition> =
        spec::status(pod).conditions.iter().flatten().filter(|c| !own(c)).cloned().collect();
    if let Some(text) = i.failed.and_then(|why| why.disruption.clone()).filter(|_| !held) {
        conditions.retain(|c| c.type_ != "DisruptionTarget");
        conditions.push(condition(pod, "DisruptionTarget", true, "TerminationByKubelet", text));
    }
    if let Some(pending) = i.pending.filter(|_| !i.terminal) {
        let text = pending.message.clone();
        conditions.push(condition(pod, "PodResizePending", true, pending.reason, text));
    }
    if !i.terminal && resizing(i) {
        let (why, text) = i.resize_error.map_or(("", ""), |text| ("Error", text));
        let made = condition(pod, "PodResizeInProgress", true, why, text.to_owned());
        // Newer generations may wait for their turn.
        let observed_generation = i.resizing.or(made.observed_generation);
        conditions.push(PodCondition { observed_generation, ..made });
    }
    let all: Vec<&ContainerStatus> = init.iter().chain(&regular).collect();
    let sandbox = !sandbox_changed(pod, i.observed).0;
    conditions.push(condition(pod, "PodReadyToStartContainers", sandbox, "", String::new()));
    conditions.push(initialized(pod, &all, i.old, &phase));
    let is_ready = ready(pod, &all, &conditions, &phase);
    conditions.push(is_ready);
    conditions.push(containers_ready(pod, &all, &phase, "ContainersReady"));
    conditions.push(condition(pod, "PodScheduled", true, "", String::new()));
    if i.restarts_all && restart_all::may_happen(pod) {
        conditions.push(restarting(pod, i.observed, i.old, &phase));
    }
    for c in &mut conditions {
        let before = i.old.conditions.iter().flatten().find(|o| o.type_ == c.type_);
        c.last_transition_time = match before {
            Some(o) if o.status == c.status => o.last_transition_time.clone().or(Some(time(i.now))),
            _ => c.last_transition_time.clone().filter(|_| !own(c)).or(Some(time(i.now))),
        };
    }

    let node_ips: Vec<String> = i.node_ips.iter().map(ToString::to_string).collect();
    let ips = pod_ips(i);
    let (resources, allocated_resources) = whole(i);
    let some = |list: Vec<ContainerStatus>| Some(list).filter(|l| !l.is_empty());
    PodStatus {
        observed_generation: pod.metadata.generation,
        phase: Some(reported),
        reason,
        message,
        conditions: Some(conditions),
        host_ip: node_ips.first().cloned(),
        host_ips: Some(node_ips.into_iter().map(|ip| HostIP { ip }).collect()),
        pod_ip: ips.first().cloned(),
        pod_ips: Some(ips.into_iter().map(|ip| PodIP { ip }).collect::<Vec<_>>()).filter(|l| !l.is_empty()),
        start_time: i.old.start_time.clone().or_else(|| Some(time(i.now))),
        qos_class: Some(spec::qos(pod).as_str().into()),
        container_statuses: some(regular),
        init_container_statuses: some(init),
        ephemeral_container_statuses: some(extra),
        allocated_resources,
        resources,
        nominated_node_name: spec::status(pod).nominated_node_name.clone(),
        resource_claim_statuses: spec::status(pod).resource_claim_statuses.clone(),
        extended_resource_claim_status: spec::status(pod).extended_resource_claim_status.clone(),
        ..PodStatus::default()
    }
}

/// The status of a Pod that this node refuses: it never ran here.
pub(crate) fn rejected(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> PodStatus {
    PodStatus {
        observed_generation: pod.metadata.generation,
        phase: Some("Failed".into()),
        reason: Some(reason.to_owned()),
        message: Some(format!("Pod was rejected: {message}")),
        start_time: Some(time(now)),
        qos_class: Some(spec::qos(pod).as_str().into()),
        conditions: spec::status(pod).conditions.clone(),
        ..PodStatus::default()
    }
}

/// Whether there is a trace of a container that was started, or that could have been.
fn has_initialized(status: &PodStatus, pod: &Pod) -> bool {
    let inits = spec::init_containers(pod);
    let Some(last) = inits.last() else { return true };
    let mut regular = status.container_statuses.iter().flatten();
    if regular.any(|s| last_terminated(s).is_some() || waiting_reason(s).is_none()) {
        return true;
    }
    let of_last = status.init_container_statuses.iter().flatten().find(|s| s.name == last.name);
    of_last.is_some_and(|s| {
        let ended = [s.last_state.as_ref(), s.state.as_ref()].into_iter().flatten();
        if spec::is_sidecar(last) {
            is_running(s) && s.started == Some(true)
        } else {
            ended.filter_map(|state| state.terminated.as_ref()).any(|t| t.exit_code == 0)
        }
    })
}

/// The last status of a Pod: what is not known to have ended is taken for failed.
pub(crate) fn terminate(mut status: PodStatus, pod: &Pod) -> PodStatus {
    let initialized = has_initialized(&status, pod);
    let has_run = |s: &ContainerStatus| waiting_reason(s).is_none() || last_terminated(s).is_some();
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    // Those behind the last one that ran were never tried; the first one was, or would have been.
    let tried = init.iter().rposition(has_run).map_or(1, |at| at + 1);
    let init = status.init_container_statuses.iter_mut().flatten().take(tried);
    let regular = status.container_statuses.iter_mut().flatten().filter(|_| initialized);
    for s in init.chain(regular).filter(|s| !is_terminated(s)) {
        s.state = Some(terminated_unknown("The container could not be located when the pod was terminated"));
        s.ready = false;
        s.started = Some(false);
    }
    if !is_final(status.phase.as_deref()) && !spec::is_static(pod) {
        status.phase = Some("Failed".into());
    }
    status
}
