//! The resources of Pods that run: whether they get what they ask for by now, and how it is given to them.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use cri::runtime as pb;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, ResourceRequirements};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;
use tonic::Code;

use super::actions::KillReason;
use super::allocated::Record;
use super::allocation::{Allocation, Pending, Scope};
use super::kill::Killer;
use super::observed::{ContainerStatus, PodStatus};
use super::resize_plan::{self, Act, Change, Resource};
use super::resources::PodCgroup;
use super::worker::{State, Worker};
use super::workers::Workers;
use super::{allocation, pod_level, resources, spec};
use crate::cgroups::Cgroups;
use crate::metrics;
use crate::node::NodeView;
use crate::recorder::PodRecorder;
use crate::resource_managers::ResourceManagers;
use crate::runtime::{CallError, Runtime};

/// Why a Pod was not given its resources.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResizeError {
    #[error(transparent)]
    Cgroup(#[from] io::Error),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "failed to notify runtime for UpdatePodSandboxResources (resource={resource}); resize rejected: {error}"
    )]
    Sandbox { resource: &'static str, error: CallError },
    /// Memory that is in use cannot be taken.
    #[error("{0}")]
    InUse(String),
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
    /// The record of what Pods were given, for a kubelet that starts anew.
    pub(crate) allocated: Arc<Record>,
    /// The resources that may be resized here.
    pub(crate) scope: Scope,
    /// Held while it is decided whether a Pod gets more of the node.
    pub(crate) turn: Mutex<()>,
}

/// A Pod's cgroup on its way: what it has now, and what it is to have.
struct Way {
    now: PodCgroup,
    wanted: PodCgroup,
    sandbox_id: Option<String>,
}

#[derive(Serialize)]
struct ContainerSummary<'a> {
    name: &'a str,
    resources: Cow<'a, ResourceRequirements>,
}

impl<'a> ContainerSummary<'a> {
    fn of(c: &'a Container) -> Self {
        let resources = c.resources.as_ref().map_or_else(Cow::default, Cow::Borrowed);
        Self { name: &c.name, resources }
    }
}

/// The resources that a Pod asks for by now, in the form of upstream's Events.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<ContainerSummary<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<ContainerSummary<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

/// The text of an Event: its beginning, and what the Pod asked for in a generation of it, with the error if there is one.
fn told(begin: &str, pod: &Pod, generation: Option<i64>, error: &str) -> String {
    let summary = Summary {
        init_containers: spec::init_containers(pod).iter().map(ContainerSummary::of).collect(),
        containers: spec::containers(pod).iter().map(ContainerSummary::of).collect(),
        generation: generation.unwrap_or(0),
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(summary) => format!("{begin}: {summary}"),
        Err(_) => begin.to_owned(),
    }
}

impl Resizer {
    /// Decides whether the node gives the Pod what it asks for; answers the Pod with what it has then.
    pub(crate) fn decide(&self, worker: &Worker) -> Arc<Pod> {
        let _turn = self.turn.lock();
        let pod = {
            let mut state = worker.state.lock();
            if state.allocated.is_none() {
                let kept = self.allocated.get(&worker.uid);
                state.allocated = Some(allocation::before(&state.pod, kept, self.scope));
            }
            state.pod.clone()
        };
        let now = worker.given();
        let pending = if Arc::ptr_eq(&now, &pod) { None } else { self.pending(worker, &pod, &now) };
        let mut state = worker.state.lock();
        let before = std::mem::replace(&mut state.pending, pending.clone());
        let changed = pending.as_ref().is_some_and(|now| is_new(&state, before.as_ref(), now));
        self.count(&state, before.as_ref(), &pod, &now);
        state.decided = pod.metadata.generation;
        let starts = pending.is_none() && !Arc::ptr_eq(&now, &pod);
        if pending.is_none() {
            state.allocated = Some(allocation::wanted(&pod, self.scope));
        }
        if starts {
            state.resizing = pod.metadata.generation;
            state.resize_error = None;
        }
        let allocated = state.allocated.clone();
        drop(state);
        if let Some(allocated) = allocated {
            self.keep(&pod, &allocated);
        }
        if starts {
            let message = told("Pod resize started", &pod, pod.metadata.generation, "");
            self.recorder.pod(&pod, "Normal", "ResizeStarted", message);
        }
        let Some(pending) = pending else { return pod };
        if changed {
            let reason = format!("Resize{}", pending.reason);
            let begin = format!("Pod resize {}", pending.reason);
            let message = told(&begin, &pod, pod.metadata.generation, &pending.message);
            self.recorder.pod(&pod, "Warning", &reason, message);
        }
        now
    }

    /// Why a Pod that has the resources of `now` does not get what it asks for.
    fn pending(&self, worker: &Worker, pod: &Pod, now: &Pod) -> Option<Pending> {
        let others: Vec<_> = self
            .workers
            .all()
            .into_iter()
            .filter(|w| w.uid != worker.uid && w.has_a_place())
            .map(|w| w.given())
            .collect();
        let swaps = |pod: &Pod, c: &Container| resources::may_swap(pod, c, self.cgroups.limits());
        let swapped = allocation::swapped(pod, now, swaps);
        let held = swapped.or_else(|| allocation::held(pod, now, &self.managers.holds()));
        held.or_else(|| allocation::decide(pod, now, &self.node.allocatable(), &others))
    }

    /// Keeps what the Pod was given for a kubelet that starts anew.
    fn keep(&self, pod: &Pod, allocated: &Allocation) {
        if let Err(error) = self.allocated.put(spec::uid(pod), allocated.entry()) {
            tracing::warn!(pod = spec::full_name(pod), %error, "what the Pod was given is not kept");
        }
    }

    /// Forgets what a Pod was given that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        if let Err(error) = self.allocated.keep(|other| other != uid) {
            tracing::debug!(uid, %error, "what the Pod was given is not forgotten yet");
        }
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

    /// Gives the Pod and its running containers the resources that the specification has now; answers whether any changed.
    pub(crate) async fn carry_out(
        &self,
        worker: &Worker,
        pod: &Pod,
        observed: &PodStatus,
    ) -> Result<bool, ResizeError> {
        let changes = changes(worker, pod, observed);
        let whole = self.whole_changes(worker, pod);
        if changes.is_empty() && !whole {
            self.completed(worker, pod);
            return Ok(false);
        }
        let began = Instant::now();
        let done = self.change(worker, pod, observed, changes).await;
        let (took, success) =
            (began.elapsed().as_secs_f64() * 1e3, if done.is_ok() { "true" } else { "false" });
        self.runtime.metrics.observe(&metrics::POD_RESIZE_DURATION_MILLISECONDS, &[success], took);
        let error = done.as_ref().err().map(ToString::to_string);
        let (before, generation) = {
            let mut state = worker.state.lock();
            // Others than resizes of the object find their cause here: containers that an earlier kubelet started.
            state.resizing = state.resizing.or(pod.metadata.generation);
            (std::mem::replace(&mut state.resize_error, error.clone()), state.resizing)
        };
        match error {
            Some(error) if before.as_ref() != Some(&error) => {
                let message = told("Pod resize error", pod, generation, &error);
                self.recorder.pod(pod, "Warning", "ResizeError", message);
            }
            Some(_) => {}
            None => self.completed(worker, pod),
        }
        worker.report.notify_one();
        done.map(|()| true)
    }

    /// Tells of a resize that has come to its end.
    fn completed(&self, worker: &Worker, pod: &Pod) {
        let mut state = worker.state.lock();
        let of = state.resizing.take();
        state.resize_error = None;
        drop(state);
        if of.is_some() {
            let message = told("Pod resize completed", pod, of, "");
            self.recorder.pod(pod, "Normal", "ResizeCompleted", message);
        }
    }

    /// Whether the Pod's cgroup was set by other resources of the Pod than it is to have.
    fn whole_changes(&self, worker: &Worker, pod: &Pod) -> bool {
        let mut state = worker.state.lock();
        // As above: the kernel knows it then.
        let has = state.actuated_whole.get_or_insert_with(|| {
            let figures = self.cgroups.figures(pod);
            pod_level::actual(pod, figures.as_ref())
        });
        self.scope.whole && !allocation::same_or_none(Some(has), spec::spec(pod).resources.as_ref())
    }

    async fn change(
        &self,
        worker: &Worker,
        pod: &Pod,
        observed: &PodStatus,
        changes: Vec<Change>,
    ) -> Result<(), ResizeError> {
        let (restarts, mut changes): (Vec<_>, Vec<_>) = changes.into_iter().partition(Change::needs_restart);
        for change in &restarts {
            let name = &change.container.name;
            let Some(status) = observed.container(name).filter(|s| s.id == change.id) else { continue };
            let message = format!("Container {name} resize requires restart");
            self.killer.container(pod, status, &message, KillReason::None, None, None).await?;
            // It is started anew with what it is to have.
            worker.state.lock().actuated.insert(change.id.clone(), change.wants.clone());
        }
        self.cgroups.balance(&self.workers.active_pods());
        let mut wanted = resources::pod_cgroup(pod, self.cgroups.limits());
        wanted.quota = wanted.quota.filter(|_| !self.managers.is_unlimited(pod));
        let figures = self.cgroups.figures(pod);
        let now = figures.map(|figures| figures.now(&wanted));
        if let Some(now) = &now {
            self.check_memory(worker, pod, (now, &wanted), &changes).await?;
        } else {
            self.cgroups.ensure(pod, self.managers.is_unlimited(pod))?;
        }
        let now = now.unwrap_or_else(|| wanted.clone());
        let sandbox_id = observed.ready_sandbox().map(|s| s.id.clone());
        let mut way = Way { now, wanted, sandbox_id };
        for resource in [Resource::Memory, Resource::Cpu] {
            for act in resize_plan::order(resource, &way.now, &way.wanted, &changes) {
                match act {
                    Act::Limit | Act::Request => self.step(pod, &mut way, resource, act).await?,
                    Act::Container(at) => {
                        if let Some(change) = changes.get_mut(at) {
                            self.update(worker, pod, change, resource, observed).await?;
                        }
                    }
                }
            }
        }
        worker.state.lock().actuated_whole = Some(spec::spec(pod).resources.clone().unwrap_or_default());
        Ok(())
    }

    /// Refuses to take memory that is in use.
    async fn check_memory(
        &self,
        worker: &Worker,
        pod: &Pod,
        (now, wanted): (&PodCgroup, &PodCgroup),
        changes: &[Change],
    ) -> Result<(), ResizeError> {
        let limit = wanted.memory.filter(|then| now.memory.is_none_or(|now| *then < now));
        let shrinking = resize_plan::shrinking(changes);
        let of_pod = limit.map(|limit| (limit, self.cgroups.memory_used(pod)));
        let mut containers = Vec::with_capacity(shrinking.len());
        for (name, id, limit) in shrinking {
            let request = pb::ContainerStatsRequest { container_id: id.to_owned() };
            let answer =
                self.runtime.of(&worker.uid).container_stats(request).await.map_err(CallError::from)?;
            let memory = answer.into_inner().stats.and_then(|s| s.memory);
            containers.push((name, limit, memory.and_then(|m| m.usage_bytes).map(|b| b.value)));
        }
        match resize_plan::in_use(of_pod, &containers) {
            Some(why) => Err(ResizeError::InUse(why)),
            None => Ok(()),
        }
    }

    /// Sets one of the Pod's own figures. The runtime hears of it first, and of the return to those before where the kernel
    /// refuses.
    async fn step(&self, pod: &Pod, way: &mut Way, resource: Resource, act: Act) -> Result<(), ResizeError> {
        let mut next = PodCgroup {
            shares: way.now.shares,
            quota: way.now.quota,
            memory: way.now.memory,
            ..way.wanted.clone()
        };
        match (resource, act) {
            (Resource::Memory, _) => next.memory = way.wanted.memory,
            (Resource::Cpu, Act::Limit) => next.quota = way.wanted.quota,
            (Resource::Cpu, _) => next.shares = way.wanted.shares,
        }
        self.tell(pod, way, &next)
            .await
            .map_err(|error| ResizeError::Sandbox { resource: resource.name(), error })?;
        if let Err(error) = self.cgroups.apply(pod, &next) {
            if let Err(error) = self.tell(pod, way, &way.now).await {
                tracing::debug!(pod = spec::full_name(pod), %error, "the runtime does not hear of the return");
            }
            return Err(error.into());
        }
        way.now = next;
        Ok(())
    }

    /// Tells the runtime what a Pod's cgroup has; one that does not want to know does not mind.
    async fn tell(&self, pod: &Pod, way: &Way, next: &PodCgroup) -> Result<(), CallError> {
        let Some(pod_sandbox_id) = way.sandbox_id.clone() else { return Ok(()) };
        let (overhead, sum) = resources::sandbox_resources(pod, self.cgroups.limits());
        let sum = pb::LinuxContainerResources {
            cpu_quota: next.quota.unwrap_or(0),
            cpu_shares: i64::try_from(next.shares).unwrap_or(i64::MAX),
            memory_limit_in_bytes: next.memory.unwrap_or(0),
            ..sum
        };
        let request = pb::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id,
            overhead: Some(overhead),
            resources: Some(sum),
        };
        match self.runtime.of(spec::uid(pod)).update_pod_sandbox_resources(request).await {
            Err(error) if !is_unknown_call(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Gives a container one of its resources.
    async fn update(
        &self,
        worker: &Worker,
        pod: &Pod,
        change: &mut Change,
        resource: Resource,
        observed: &PodStatus,
    ) -> Result<(), CallError> {
        let name = &change.container.name;
        let Some(status) = observed.container(name).filter(|s| s.id == change.id) else { return Ok(()) };
        let given = change.with(resource);
        let shown = Container { resources: Some(given.clone()), ..change.container.clone() };
        self.call(worker, pod, &shown, status).await?;
        worker.state.lock().actuated.insert(change.id.clone(), given.clone());
        change.has = given;
        Ok(())
    }

    async fn call(
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
        self.runtime.of(&worker.uid).update_container_resources(request).await?;
        Ok(())
    }
}

/// The containers that run with other resources than they are to have.
fn changes(worker: &Worker, pod: &Pod, observed: &PodStatus) -> Vec<Change> {
    let mut state = worker.state.lock();
    resize_plan::changes(pod, |c| {
        let status = observed.container(&c.name).filter(|s| s.running())?;
        // An earlier kubelet may have started the container: then the runtime knows what the container has.
        let has = state.actuated.entry(status.id.clone()).or_insert_with(|| {
            let shown = Container { resources: Some(resources::effective(pod, c)), ..Container::default() };
            resources::actual(pod, &shown, status.resources.as_ref())
        });
        Some((status.id.clone(), has.clone()))
    })
}

/// Whether nobody was told yet that a Pod waits for its resources for this reason: a longer or shorter wait for another amount
/// is no news. A kubelet that starts anew knows by the status what the one before told.
fn is_new(state: &State, before: Option<&Pending>, now: &Pending) -> bool {
    let generation = state.pod.metadata.generation;
    let told = |c: &PodCondition| {
        let same = c.type_ == "PodResizePending" && c.observed_generation == generation;
        same && c.reason.as_deref() == Some(now.reason)
    };
    match (before, state.decided) {
        (Some(before), decided) => before.reason != now.reason || decided != generation,
        (None, None) => !spec::status(&state.pod).conditions.iter().flatten().any(told),
        (None, Some(_)) => true,
    }
}

/// Whether a runtime does not know a call; some say so in words alone.
fn is_unknown_call(error: &tonic::Status) -> bool {
    error.code() == Code::Unimplemented || error.message().contains("not implemented")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Upstream's 3 cases of `TestPodResizeCompletedMsg`, and the 2 each of its siblings for a resize that starts, fails or
    /// waits. A container is `CPU-REQUEST:CPU-LIMIT:MEMORY-REQUEST:MEMORY-LIMIT`, a sidecar with `*`.
    #[test]
    fn events_tell_what_is_asked_for() {
        let check = |begin: &str, containers: &str, generation: i64, error: &str, expected: &str| {
            let mut lists = [Vec::new(), Vec::new()];
            for (at, text) in containers.split_whitespace().enumerate() {
                let mut made = json!({"name": format!("c{at}"), "resources": {}});
                let places =
                    [("requests", "cpu"), ("limits", "cpu"), ("requests", "memory"), ("limits", "memory")];
                for (amount, (list, name)) in text.trim_end_matches('*').split(':').zip(places) {
                    if !amount.is_empty() {
                        made["resources"][list][name] = json!(amount);
                    }
                }
                lists[usize::from(text.ends_with('*'))].push(made);
            }
            let spec = json!({"containers": lists[0], "initContainers": lists[1]});
            let pod =
                serde_json::from_value(json!({"metadata": {"name": "test-pod"}, "spec": spec})).unwrap();
            assert_eq!(told(begin, &pod, Some(generation), error), format!("{begin}: {expected}"));
        };
        let simple = r#"{"containers":[{"name":"c0","resources":{"limits":{"cpu":"100m","memory":"100"},"requests":{"cpu":"100m","memory":"100"}}}],"generation":1"#;
        let several = r#"{"initContainers":[{"name":"c0","resources":{"limits":{"cpu":"200m"},"requests":{"cpu":"100m"}}}],"containers":[{"name":"c1","resources":{"limits":{"memory":"200"},"requests":{"memory":"100"}}},{"name":"c2","resources":{"requests":{"cpu":"200m","memory":"100"}}}],"generation":2"#;
        let lacks = "Node didn't have enough resource: memory";
        let swaps = "In-place resize of containers with swap is not supported";
        for (begin, error, other) in [
            ("Pod resize completed", "", ""),
            ("Pod resize started", "", ""),
            ("Pod resize error", "some error occurred", "some error occurred"),
            ("Pod resize Deferred", lacks, swaps),
        ] {
            let end =
                |error: &str| if error.is_empty() { "}".into() } else { format!(r#","error":"{error}"}}"#) };
            check(begin, "100m:100m:100:100", 1, error, &format!("{simple}{}", end(error)));
            check(begin, "100m:200m* ::100:200 200m::100", 2, other, &format!("{several}{}", end(other)));
        }
        let nothing = r#"{"containers":[{"name":"c0","resources":{}}],"generation":3}"#;
        check("Pod resize completed", ":", 3, "", nothing);
    }

    /// Upstream's `TestPodResizeConditions` and `TestBackfillPodResizeConditions` say so of news: another reason or another
    /// generation, not another message; nor what was told before this kubelet started.
    #[test]
    fn a_wait_is_told_once() {
        let pending = |reason, message: &str| Pending { reason, message: message.into(), detail: "" };
        let check =
            |told: Option<(&str, i64)>, decided: Option<i64>, before: Option<&str>, expected: bool| {
                let conditions: Vec<Value> = told
                    .into_iter()
                    .map(|(reason, generation)| {
                        json!({"type": "PodResizePending", "status": "True", "reason": reason,
                        "observedGeneration": generation})
                    })
                    .collect();
                let pod =
                    json!({"metadata": {"name": "p", "generation": 3}, "status": {"conditions": conditions}});
                let worker = Worker::new(Arc::new(serde_json::from_value(pod).unwrap()));
                let mut state = worker.state.lock();
                state.decided = decided;
                let before = before.map(|message| pending("Deferred", message));
                let got = is_new(&state, before.as_ref(), &pending("Deferred", "now"));
                assert_eq!(got, expected, "{told:?} {decided:?}");
            };
        check(None, None, None, true);
        check(None, Some(2), None, true);
        check(None, Some(2), Some("now"), true);
        check(None, Some(3), Some("now"), false);
        check(None, Some(3), Some("other"), false);
        check(Some(("Deferred", 3)), None, None, false);
        check(Some(("Deferred", 2)), None, None, true);
        check(Some(("Infeasible", 3)), None, None, true);
        check(Some(("Deferred", 3)), Some(3), None, true);
    }
}
