//! Decisions about a Pod: from its specification and the state of the runtime follow the actions, which others take.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::observed::{ContainerStatus, PodStatus, State};
use super::restart_all::{self, Reset};
use super::spec;

/// Why a container is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillReason {
    /// Its specification changed, or the Pod ends.
    None,
    /// Its liveness probe failed.
    LivenessProbe,
    /// Its startup probe failed.
    StartupProbe,
    /// The runtime does not know its state.
    Unknown,
    /// Its postStart hook failed.
    PostStartHook,
    /// All containers of the Pod start anew.
    RestartAllContainers,
}

/// A container to kill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kill {
    /// CRI id.
    pub(crate) id: String,
    /// Name in the Pod.
    pub(crate) name: String,
    /// Text of the event.
    pub(crate) message: String,
    /// Why.
    pub(crate) reason: KillReason,
}

/// The actions for a Pod, in order: kill, make the sandbox, start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PodActions {
    /// Kill every container and the sandbox.
    pub(crate) kill_pod: bool,
    /// Make a new sandbox.
    pub(crate) create_sandbox: bool,
    /// The sandbox to use, or the one before.
    pub(crate) sandbox_id: Option<String>,
    /// Which attempt a new sandbox is.
    pub(crate) attempt: u32,
    /// Init containers to start, by index.
    pub(crate) init_to_start: Vec<usize>,
    /// Containers to start, by index.
    pub(crate) to_start: Vec<usize>,
    /// Ephemeral containers to start, by index.
    pub(crate) ephemeral_to_start: Vec<usize>,
    /// Containers to kill.
    pub(crate) to_kill: Vec<Kill>,
    /// Containers to remove, so that all of them start anew.
    pub(crate) to_reset: Vec<Reset>,
}

/// The results of the probes of a running container; none where the probe has not decided yet.
pub(crate) trait ProbeResults {
    /// The liveness probe.
    fn liveness(&self, id: &str) -> Option<bool>;
    /// The startup probe.
    fn startup(&self, id: &str) -> Option<bool>;
}

/// Whether a new sandbox is needed, the attempt it has, and the present one.
pub(crate) fn sandbox_changed(pod: &Pod, observed: &PodStatus) -> (bool, u32, Option<String>) {
    let Some(newest) = observed.sandboxes.first() else { return (true, 0, None) };
    let id = Some(newest.id.clone());
    if !newest.ready || observed.sandboxes.iter().filter(|s| s.ready).count() > 1 {
        return (true, newest.attempt + 1, id);
    }
    if newest.host_network != spec::host_network(pod) {
        return (true, newest.attempt + 1, None);
    }
    if !newest.host_network && newest.ips.is_empty() {
        return (true, newest.attempt + 1, id);
    }
    (false, newest.attempt, id)
}

/// Whether a container that does not run is to be started.
pub(crate) fn should_start(container: &Container, pod: &Pod, observed: &PodStatus) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    match observed.container(&container.name) {
        None => true,
        Some(s) => match s.state {
            State::Running => false,
            State::Created | State::Unknown => true,
            State::Exited => spec::should_restart(container, pod, s.exit_code),
        },
    }
}

/// Whether an init container failed: also where something that it started had no memory left.
pub(super) fn init_failed(status: &ContainerStatus) -> bool {
    status.reason == "OOMKilled"
        || match status.state {
            State::Exited => status.exit_code != 0,
            State::Unknown => true,
            State::Created | State::Running => false,
        }
}

/// Whether any container beside the init containers was ever made.
pub(crate) fn any_regular_created(pod: &Pod, observed: &PodStatus) -> bool {
    spec::containers(pod).iter().any(|c| observed.container(&c.name).is_some())
}

fn changed(container: &Container, status: &ContainerStatus) -> bool {
    status.hash != 0 && status.hash != spec::container_hash(container)
}

/// Decides; `restarting` says that all containers are to be removed before any is started.
pub(crate) fn compute_actions(
    pod: &Pod,
    observed: &PodStatus,
    probes: &dyn ProbeResults,
    restarting: bool,
) -> PodActions {
    let (create, attempt, sandbox_id) = sandbox_changed(pod, observed);
    let mut actions =
        PodActions { kill_pod: create, create_sandbox: create, sandbox_id, attempt, ..PodActions::default() };
    if restarting {
        actions.to_reset = restart_all::to_reset(pod, observed);
        return actions;
    }
    let never = spec::restart_policy(pod) == "Never";
    if create {
        if never && attempt != 0 && !observed.containers.is_empty() {
            actions.create_sandbox = false;
            return actions;
        }
        let to_start: Vec<usize> = spec::containers(pod)
            .iter()
            .enumerate()
            .filter(|(_, c)| {
                let policy = c.restart_policy.as_deref().unwrap_or(spec::restart_policy(pod));
                let succeeded =
                    observed.container(&c.name).is_some_and(|s| s.state == State::Exited && s.exit_code == 0);
                !(policy == "OnFailure" && succeeded)
            })
            .map(|(i, _)| i)
            .collect();
        if to_start.is_empty() && any_regular_created(pod, observed) {
            actions.create_sandbox = false;
            return actions;
        }
        if spec::init_containers(pod).is_empty() {
            actions.to_start = to_start;
        } else {
            actions.init_to_start = vec![0];
        }
        return actions;
    }

    actions.ephemeral_to_start = spec::spec(pod)
        .ephemeral_containers
        .iter()
        .flatten()
        .enumerate()
        .filter(|(_, c)| observed.container(&c.name).is_none())
        .map(|(i, _)| i)
        .collect();

    let initialized = compute_init(pod, observed, probes, &mut actions);
    if actions.kill_pod || !initialized {
        return actions;
    }

    let mut kept = 0;
    for (i, container) in spec::containers(pod).iter().enumerate() {
        let status = match observed.container(&container.name) {
            Some(status) if status.running() => status,
            other => {
                if should_start(container, pod, observed) {
                    actions.to_start.push(i);
                    if let Some(status) = other.filter(|s| s.state == State::Unknown) {
                        actions.to_kill.push(kill(
                            status,
                            "Container is in \"unknown\" state, try killing it before restart".into(),
                            KillReason::Unknown,
                        ));
                    }
                }
                continue;
            }
        };
        let mut restart = match &container.restart_policy {
            Some(own) => own != "Never",
            None => !never,
        };
        let (mut message, reason) = if changed(container, status) {
            restart = true;
            (format!("Container {} definition changed", container.name), KillReason::None)
        } else if probes.liveness(&status.id) == Some(false) {
            (format!("Container {} failed liveness probe", container.name), KillReason::LivenessProbe)
        } else if probes.startup(&status.id) == Some(false) {
            (format!("Container {} failed startup probe", container.name), KillReason::StartupProbe)
        } else {
            kept += 1;
            continue;
        };
        if restart {
            message.push_str(", will be restarted");
            actions.to_start.push(i);
        }
        actions.to_kill.push(kill(status, message, reason));
    }
    if kept == 0 && actions.to_start.is_empty() {
        actions.kill_pod = true;
        // A sidecar must not keep a finished Pod alive.
        actions.init_to_start.clear();
    }
    actions
}

fn kill(status: &ContainerStatus, message: String, reason: KillReason) -> Kill {
    Kill { id: status.id.clone(), name: status.name.clone(), message, reason }
}

/// Decides about init containers, from the last to the first: an older one may be gone from the
/// runtime long ago. Answers whether the containers may run.
fn compute_init(
    pod: &Pod,
    observed: &PodStatus,
    probes: &dyn ProbeResults,
    actions: &mut PodActions,
) -> bool {
    let inits = spec::init_containers(pod);
    if inits.is_empty() {
        return true;
    }
    let mut initialized = spec::containers(pod)
        .iter()
        .filter_map(|c| observed.container(&c.name))
        .any(|s| matches!(s.state, State::Created | State::Running));
    let mut before = initialized;
    let never = spec::restart_policy(pod) == "Never";
    let last = inits.len() - 1;
    for (i, container) in inits.iter().enumerate().rev() {
        let sidecar = spec::is_sidecar(container);
        let Some(status) = observed.container(&container.name) else {
            if before && sidecar {
                actions.init_to_start.push(i);
            }
            continue;
        };
        if before && !sidecar {
            continue;
        }
        match status.state {
            // Made but not started: the runtime failed to start it.
            State::Created => actions.init_to_start.push(i),
            State::Running if sidecar => {
                let (started, fault) = running_sidecar(container, status, probes);
                if let Some((message, reason)) = fault {
                    actions.to_kill.push(kill(status, message, reason));
                    actions.init_to_start.push(i);
                }
                // Its successor waits for its start, not for its health. The list is reversed later.
                if started && i == last {
                    initialized = true;
                } else if started && !before {
                    let list = &mut actions.init_to_start;
                    let at = list.iter().position(|s| *s == i).unwrap_or(list.len());
                    list.insert(at, i + 1);
                }
            }
            State::Running => {}
            State::Exited if sidecar => actions.init_to_start.push(i),
            State::Exited if init_failed(status) => {
                if !should_start(container, pod, observed) {
                    actions.kill_pod = true;
                    actions.init_to_start.clear();
                    return false;
                }
                actions.init_to_start.push(i);
            }
            State::Exited if i == last => initialized = true,
            State::Exited => actions.init_to_start.push(i + 1),
            State::Unknown => {
                let restart = match &container.restart_policy {
                    Some(own) => own != "Never",
                    None => !never,
                };
                if !restart {
                    actions.kill_pod = true;
                    actions.init_to_start.clear();
                    return false;
                }
                actions.to_kill.push(kill(
                    status,
                    "Init container is in \"unknown\" state, try killing it before restart".into(),
                    KillReason::Unknown,
                ));
                actions.init_to_start.push(i);
            }
        }
        before = true;
    }
    if !before {
        actions.init_to_start.push(0);
    }
    actions.init_to_start.reverse();
    initialized
}

/// Whether a sidecar that runs has started, and why it is to be restarted if it is.
fn running_sidecar(
    container: &Container,
    status: &ContainerStatus,
    probes: &dyn ProbeResults,
) -> (bool, Option<(String, KillReason)>) {
    let name = &container.name;
    if container.startup_probe.is_some() {
        match probes.startup(&status.id) {
            None => return (false, None),
            Some(false) => {
                let text = format!("Init container {name} failed startup probe");
                return (false, Some((text, KillReason::StartupProbe)));
            }
            Some(true) => {}
        }
    }
    let fault = if changed(container, status) {
        Some((format!("Init container {name} definition changed"), KillReason::None))
    } else if container.liveness_probe.is_some() && probes.liveness(&status.id) == Some(false) {
        Some((format!("Init container {name} failed liveness probe"), KillReason::LivenessProbe))
    } else {
        None
    };
    (true, fault)
}
