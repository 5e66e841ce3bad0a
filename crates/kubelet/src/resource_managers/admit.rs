//! A Pod that the node takes gets its processors, memory and devices.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;

use super::{ResourceManagers, State};
use crate::cpu_manager::wanted::is_pod_level;
use crate::device_manager::{self, DeviceManager};
use crate::pods::admission::Refusal;
use crate::pods::spec;
use crate::topology_manager::{Hint, PolicyKind, Scope, UNKNOWN};

/// Upstream's words about resources that are not near to each other.
const NOT_NEAR: &str = "Resources cannot be allocated with Topology locality";
const NOT_NEAR_CONTAINER: &str =
    "Pod Scope pod with pod-level resources failed admission with a container-level topology manager";
const NOT_NEAR_POD: &str =
    "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager";

fn not_near(message: &str) -> Refusal {
    Refusal { reason: "TopologyAffinityError".into(), message: message.into() }
}

/// A refusal for a reason that upstream foresees, or for one that it does not.
fn refusal(reason: Option<&str>, error: &dyn std::fmt::Display) -> Refusal {
    match reason {
        Some(reason) => Refusal { reason: reason.to_owned(), message: error.to_string() },
        None => Refusal {
            reason: "UnexpectedAdmissionError".into(),
            message: format!("Allocate failed due to {error}, which is unexpected"),
        },
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    spec::init_containers(pod).iter().chain(spec::containers(pod))
}

impl ResourceManagers {
    /// Gives a Pod what it asks for; answers why it is refused after all. A Pod that `goes_on` from before has its
    /// devices, and what it was given.
    ///
    /// DIFFERENCE: upstream gives devices before processors and memory, and one Pod after the other. Here processors and
    /// memory are given in one step with the question where they can come from, and a plugin that does not answer holds
    /// up only those who ask for devices.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        pod: &Arc<Pod>,
        devices: &Arc<DeviceManager>,
        goes_on: bool,
    ) -> Option<Refusal> {
        if goes_on && self.has(spec::uid(pod)) {
            return None;
        }
        let began = Instant::now();
        let given = self.give_all(pod, Some(devices).filter(|_| !goes_on)).await;
        let counted_as_taken = given.is_ok() || self.policy.kind == PolicyKind::None;
        self.counters.admitted(began.elapsed(), counted_as_taken);
        self.save().await;
        given.err()
    }

    async fn give_all(&self, pod: &Arc<Pod>, devices: Option<&Arc<DeviceManager>>) -> Result<(), Refusal> {
        self.free_orphans();
        let near = self.policy.kind != PolicyKind::None;
        let _turn = match devices {
            Some(devices) if near && devices.wants_any(pod) => Some(self.turn.lock().await),
            _ => None,
        };
        if near && self.scope() == Scope::Pod {
            self.give_pod(pod, devices.map(|d| &**d))?;
        }
        for container in containers(pod) {
            let hint = match (near, self.scope()) {
                (false, _) => self.give(&mut self.state.lock(), pod, container, UNKNOWN).map(|()| UNKNOWN)?,
                (true, Scope::Container) => self.give_near(pod, container, devices.map(|d| &**d))?,
                (true, Scope::Pod) => self.hint(pod, container),
            };
            if let Some(devices) = devices {
                let given = devices.allocate(pod, container, hint.affinity).await;
                given.map_err(|error| {
                    let (reason, message) = device_manager::refusal(&error);
                    Refusal { reason: reason.to_owned(), message }
                })?;
            }
            if self.policy.guarantees() && self.scope() == Scope::Container {
                self.counters.aligned("container", "numa_node", true);
            }
        }
        if self.policy.guarantees() && self.scope() == Scope::Pod {
            self.counters.aligned("pod", "numa_node", true);
        }
        Ok(())
    }

    fn hint(&self, pod: &Pod, container: &Container) -> Hint {
        let state = self.state.lock();
        let of_pod = state.hints.get(spec::uid(pod));
        of_pod.and_then(|all| all.get(&container.name)).copied().unwrap_or(UNKNOWN)
    }

    /// Gives a container processors and memory, wherever a hint says.
    fn give(&self, state: &mut State, pod: &Pod, container: &Container, hint: Hint) -> Result<(), Refusal> {
        if let Some(policy) = &mut state.cpu {
            let given = policy.allocate(&mut state.cpus, pod, container, hint.affinity, &self.counters);
            state.stale.cpus |= given.map_err(|error| refusal(error.reason(), &error))?;
        }
        if let Some(policy) = &mut state.memory {
            let given = policy.allocate(&mut state.blocks, pod, container, hint, &self.counters);
            state.stale.blocks |= given.map_err(|error| refusal(error.reason(), &error))?;
        }
        Ok(())
    }

    /// Gives a container processors and memory that are near to each other and to its devices.
    fn give_near(
        &self,
        pod: &Pod,
        container: &Container,
        devices: Option<&DeviceManager>,
    ) -> Result<Hint, Refusal> {
        let of_devices =
            devices.map(|d| d.hints(pod, container, &self.policy.numa.nodes)).unwrap_or_default();
        let mut state = self.state.lock();
        let state = &mut *state;
        let of_cpus = state.cpu.as_ref().map(|policy| policy.hints(&state.cpus, pod, container));
        let of_memory = state.memory.as_ref().map(|policy| policy.hints(&state.blocks, pod, container));
        let hints = [of_devices, of_cpus.unwrap_or_default(), of_memory.unwrap_or_default()];
        let (hint, taken) = self.policy.merge(&hints);
        if !taken {
            if self.policy.guarantees() {
                self.counters.aligned("container", "numa_node", false);
            }
            let whole = self.options.pod_level() && is_pod_level(pod);
            return Err(not_near(if whole { NOT_NEAR_CONTAINER } else { NOT_NEAR }));
        }
        state.note(pod, container, hint);
        self.give(state, pod, container, hint)?;
        Ok(hint)
    }

    /// Gives all containers of a Pod processors and memory that are near to each other and to their devices.
    fn give_pod(&self, pod: &Pod, devices: Option<&DeviceManager>) -> Result<(), Refusal> {
        let of_devices = devices.map(|d| d.pod_hints(pod, &self.policy.numa.nodes)).unwrap_or_default();
        let mut state = self.state.lock();
        let state = &mut *state;
        let of_cpus = state.cpu.as_ref().map(|policy| policy.pod_hints(&state.cpus, pod));
        let of_memory = state.memory.as_ref().map(|policy| policy.pod_hints(&state.blocks, pod));
        let hints = [of_devices, of_cpus.unwrap_or_default(), of_memory.unwrap_or_default()];
        let (hint, taken) = self.policy.merge(&hints);
        let whole = self.options.pod_level() && is_pod_level(pod);
        if !taken {
            if self.policy.guarantees() {
                self.counters.aligned("pod", "numa_node", false);
            }
            return Err(not_near(if whole { NOT_NEAR_POD } else { NOT_NEAR }));
        }
        for container in containers(pod) {
            state.note(pod, container, hint);
        }
        if !whole {
            return containers(pod).try_for_each(|container| self.give(state, pod, container, hint));
        }
        if let Some(policy) = &mut state.cpu {
            let given = policy.allocate_pod(&mut state.cpus, pod, hint.affinity, &self.counters);
            state.stale.cpus |= given.map_err(|error| refusal(error.reason(), &error))?;
        }
        if let Some(policy) = &mut state.memory {
            let given = policy.allocate_pod(&mut state.blocks, pod, hint, &self.counters);
            state.stale.blocks |= given.map_err(|error| refusal(error.reason(), &error))?;
        }
        Ok(())
    }
}
