//! The resources of Pods that run: whether they get what they ask for by now, and how it is given to them.

use std::io;
use std::sync::Arc;

use cri::runtime as pb;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::actions::KillReason;
use super::allocation::Pending;
use super::kill::Killer;
use super::observed::{ContainerStatus, PodStatus};
use super::worker::{State, Worker};
use super::workers::Workers;
use super::{allocation, resources, spec};
use crate::cgroups::Cgroups;
use crate::metrics;
use crate::node::NodeView;
use crate::recorder::PodRecorder;
use crate::resource_managers::ResourceManagers;
use crate::runtime::{CallError, Runtime};
use objects::quantity::ResourceList;

/// Why a container was not given its resources.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResizeError {
    #[error(transparent)]
    Cgroup(#[from] io::Error),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Gives Pods the resources that they ask for.
pub(crate) struct Resizer {
    pub(crate) cgroups: Cgroups,
    pub(crate) runtime: Runtime,
    pub(crate) recorder: PodRecorder,
    pub(crate) killer: Killer,
    pub(crate) workers: Arc<Workers>,
    pub(crate) node: NodeView,
    pub(crate) managers: Arc<ResourceManagers>,
    /// Held while it is decided whether a Pod gets more of the node.
    pub(crate) turn: Mutex<()>,
}

impl Resizer {
    /// Decides whether the node gives the Pod what it asks for; answers the Pod with what it has then.
    pub(crate) fn decide(&self, worker: &Worker) -> Arc<Pod> {
        let _turn = self.turn.lock();
        let pod = {
            let mut state = worker.state.lock();
            if state.allocated.is_none() {
                state.allocated = Some(allocation::before(&state.pod));
            }
            state.pod.clone()
        };
        let now = worker.given();
        let pending = if Arc::ptr_eq(&now, &pod) {
            None
        } else {
            let others: Vec<_> = self
                .workers
                .all()
                .into_iter()
                .filter(|w| w.uid != worker.uid && w.has_a_place())
                .map(|w| w.given())
                .collect();
            let swaps = |pod: &Pod, c: &Container| resources::may_swap(pod, c, self.cgroups.limits());
            let swapped = allocation::swapped(&pod, &now, swaps);
            let held = swapped.or_else(|| allocation::held(&pod, &now, &self.managers.holds()));
            held.or_else(|| allocation::decide(&pod, &now, &self.node.allocatable(), &others))
        };
        let mut state = worker.state.lock();
        let before = std::mem::replace(&mut state.pending, pending.clone());
        let changed = before != pending;
        self.count(&state, before.as_ref(), &pod, &now);
        state.decided = pod.metadata.generation;
        if pending.is_none() {
            state.allocated = Some(allocation::wanted(&pod));
        }
        drop(state);
        let Some(pending) = pending else { return pod };
        if changed {
            let reason = format!("Resize{}", pending.reason);
            let message = format!("Pod resize {}: {}", pending.reason, pending.message);
            self.recorder.pod(&pod, "Warning", &reason, message);
        }
        now
    }

    /// Counts what a Pod asks for, once for each generation of it, and what was decided: `before` is what it waited for.
    fn count(&self, state: &State, before: Option<&Pending>, pod: &Arc<Pod>, now: &Arc<Pod>) {
        let metrics = &self.runtime.metrics;
        if state.decided.is_some() && state.decided != pod.metadata.generation {
            for labels in allocation::operations(now, pod) {
                metrics.count(&metrics::CONTAINER_REQUESTED_RESIZES_TOTAL, &labels);
            }
        }
        match (before.map(|p| p.reason), &state.pending) {
            (_, Some(new)) if new.reason == "Infeasible" && before != Some(new) => {
                metrics.count(&metrics::POD_INFEASIBLE_RESIZES_TOTAL, &[new.detail]);
            }
            (Some("Deferred"), None) if !Arc::ptr_eq(now, pod) => {
                metrics.count(&metrics::POD_DEFERRED_ACCEPTED_RESIZES_TOTAL, &["periodic_retry"]);
            }
            _ => {}
        }
    }

    /// Gives running containers the resources that the specification has now; answers whether any changed.
    pub(crate) async fn carry_out(
        &self,
        worker: &Worker,
        pod: &Pod,
        observed: &PodStatus,
    ) -> Result<bool, ResizeError> {
        let mut resized = false;
        for c in spec::containers(pod).iter().chain(spec::init_containers(pod)) {
            let Some(status) = observed.container(&c.name).filter(|s| s.running()) else { continue };
            let began = Instant::now();
            let done = self.resize(worker, pod, c, status).await;
            let success = match &done {
                Ok(false) => None,
                Ok(true) => Some("true"),
                Err(_) => Some("false"),
            };
            if let Some(success) = success {
                let took = began.elapsed().as_secs_f64() * 1e3;
                self.runtime.metrics.observe(&metrics::POD_RESIZE_DURATION_MILLISECONDS, &[success], took);
            }
            resized |= done?;
        }
        if resized {
            worker.state.lock().resize_error = None;
            worker.report.notify_one();
        }
        Ok(resized)
    }

    async fn resize(
        &self,
        worker: &Worker,
        pod: &Pod,
        c: &Container,
        status: &ContainerStatus,
    ) -> Result<bool, ResizeError> {
        let want = c.resources.clone().unwrap_or_default();
        let noted = worker.state.lock().actuated.get(&status.id).cloned();
        // An earlier kubelet may have started the container: then the runtime knows what the container has.
        let known = noted.is_some();
        let have = noted.unwrap_or_else(|| resources::actual(pod, c, status.resources.as_ref()));
        if allocation::same(&have, &want) {
            if !known {
                worker.state.lock().actuated.insert(status.id.clone(), want);
            }
            return Ok(false);
        }
        self.cgroups.ensure(pod, self.managers.is_unlimited(pod))?;
        self.cgroups.balance(&self.workers.active_pods());
        if needs_restart(c, &have, &want) {
            let message = format!("Container {} resize requires restart", c.name);
            self.killer.container(pod, status, &message, KillReason::None, None, None).await?;
        } else {
            self.update(worker, pod, c, status).await?;
        }
        worker.state.lock().actuated.insert(status.id.clone(), want);
        Ok(true)
    }

    async fn update(
        &self,
        worker: &Worker,
        pod: &Pod,
        c: &Container,
        status: &ContainerStatus,
    ) -> Result<(), CallError> {
        let mut limits = resources::container_resources(pod, c, self.cgroups.limits());
        // In an update, 0 leaves the old limit.
        if limits.cpu_quota == 0 || self.managers.is_exclusive(pod, c) {
            limits.cpu_quota = resources::NO_QUOTA;
        }
        if limits.memory_limit_in_bytes == 0 {
            limits.memory_limit_in_bytes = -1;
            if self.cgroups.limits().counts_swap && !self.cgroups.limits().unified {
                limits.memory_swap_limit_in_bytes = -1;
            }
        }
        let request = pb::UpdateContainerResourcesRequest {
            container_id: status.id.clone(),
            linux: Some(limits),
            ..pb::UpdateContainerResourcesRequest::default()
        };
        let updated = self.runtime.of(&worker.uid).update_container_resources(request).await;
        updated.map(drop).map_err(|error| {
            let error = CallError::from(error);
            worker.state.lock().resize_error = Some(error.to_string());
            error
        })
    }
}

/// Whether the container wants a restart when one of the resources that differ changes.
fn needs_restart(c: &Container, have: &ResourceRequirements, want: &ResourceRequirements) -> bool {
    c.resize_policy.iter().flatten().any(|p| {
        // However they are written.
        let amounts = |r: &ResourceRequirements| {
            let of = |list: &Option<ResourceList>| spec::amount(list.as_ref(), &p.resource_name);
            (of(&r.requests), of(&r.limits))
        };
        p.restart_policy == "RestartContainer" && amounts(have) != amounts(want)
    })
}
