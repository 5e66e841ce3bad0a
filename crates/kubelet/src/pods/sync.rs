//! One step towards what a Pod wants: look, decide, act.

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::Patch;
use cri::runtime as pb;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus as ApiStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::actions::{self, KillReason, PodActions};
use super::config::{self, ContainerInputs};
use super::downward::Facts;
use super::observed::{PodStatus, State};
use super::worker::{Phase, Step, Worker, instant_at};
use super::{allocation, hooks, messages, resources, spec};
use crate::Kubelet;
use crate::backoff::go_duration;
use crate::runtime::error_text;
use crate::status::patch;
use crate::volumes::{self, Mounted, VolumeError, Volumes};

/// How often it is tried whether there is room for what a Pod asks for by now.
const RESIZE_AGAIN: Duration = Duration::from_secs(30);

/// How long the Services are waited for, which are read once after the start.
const SERVICES: Duration = Duration::from_secs(10);

/// Resources that running containers were given, by CRI id.
pub(crate) type Actuated = HashMap<String, ResourceRequirements>;

/// What the runtime has of a Pod, with the messages that its containers left.
pub(crate) async fn observe(kubelet: &Kubelet, pod: &Pod) -> Result<PodStatus, String> {
    let mut observed = kubelet
        .runtime
        .pod_status(spec::uid(pod), spec::namespace(pod), spec::name(pod))
        .await
        .map_err(|e| error_text(&e))?;
    for c in observed.containers.iter_mut().filter(|c| c.state == State::Exited) {
        let dir = kubelet.config.pod_dir(spec::uid(pod)).join("containers").join(&c.name);
        messages::complete(c, dir).await;
    }
    Ok(observed)
}

/// Takes one step.
pub(crate) async fn sync(kubelet: &Arc<Kubelet>, worker: &Arc<Worker>) -> Result<Step, String> {
    let observed = worker.look(kubelet).await?;
    let pod = worker.allocate(kubelet);
    if past_deadline(kubelet, worker, &pod) {
        kubelet.recorder.pod(
            &pod,
            "Normal",
            "DeadlineExceeded",
            "Pod was active on the node longer than the specified deadline",
        );
        worker.fail(
            "DeadlineExceeded",
            "Pod was active on the node longer than the specified deadline",
            None,
        );
        return Ok(Step::Next(Phase::Terminating));
    }
    let status = worker.compute(kubelet).unwrap_or_default();
    kubelet.prober.follow(&pod, &observed, false);
    let decided = actions::compute_actions(&pod, &observed, &*kubelet.probes);
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    // With nothing left to run, the sandbox and what still stands beside it end as a whole.
    if over
        || (decided.kill_pod
            && !decided.create_sandbox
            && !observed.containers.is_empty()
            && ended(&pod, &observed))
    {
        return Ok(Step::Next(Phase::Terminating));
    }

    kubelet.objects.register(&pod);
    prepare(kubelet, &pod).await?;
    let ips: Vec<String> = pod_ips(kubelet, &pod, &observed);
    let allocatable = kubelet.allocatable();
    let facts =
        Facts { pod: &pod, pod_ips: &ips, node_ips: &kubelet.config.node_ips, allocatable: &allocatable };
    let not_mounted = |error: VolumeError| {
        let message = format!("MountVolume.SetUp failed for volume {:?} : {}", error.volume, error.message);
        kubelet.recorder.pod(&pod, "Warning", "FailedMount", message.clone());
        message
    };
    let running = observed.running().next().is_some();
    let mounted = kubelet.volumes.mount_all(&facts, running).await;
    let (volumes, stale) = mounted.map_err(not_mounted)?;
    // Containers that have a volume are tended whether or not its content can be had now.
    let refresh = worker.refresh_after(stale.is_empty());
    for error in stale {
        not_mounted(error);
    }

    let mut doer = Doer { kubelet, worker, pod: &pod, volumes: &volumes, observed, next: None };
    let acted = Box::pin(doer.act(&decided)).await;
    let next = doer.next;
    if acted.as_ref().is_ok_and(|acted| *acted) || acted.is_err() {
        // What the actions changed is seen at once; the runtime's own events come a little later.
        let observed = worker.look(kubelet).await?;
        kubelet.prober.follow(&pod, &observed, false);
        tidy(kubelet, &observed).await;
    }
    acted?;
    let now = kubelet.clock.now();
    let token = kubelet.volumes.next_renewal(&worker.uid).map(|at| instant_at(at, now));
    let deadline = deadline(worker, &pod).map(|at| instant_at(at, now));
    // Others may go and leave room.
    let room = worker.state.lock().pending.is_some().then(|| Instant::now() + RESIZE_AGAIN);
    Ok(Step::Wait([next, token, deadline, refresh, room].into_iter().flatten().min()))
}

/// Whether no container of the Pod runs or will run again, as far as the containers tell.
fn ended(pod: &Pod, observed: &PodStatus) -> bool {
    let over = |c: &Container| {
        observed
            .container(&c.name)
            .is_none_or(|s| s.state == State::Exited && !spec::should_restart(c, pod, s.exit_code))
    };
    let init_failed = spec::init_containers(pod).iter().filter(|c| !spec::is_sidecar(c)).any(|c| {
        observed.container(&c.name).is_some_and(|s| s.failed() && !spec::should_restart(c, pod, s.exit_code))
    });
    init_failed || (actions::any_regular_created(pod, observed) && spec::containers(pod).iter().all(over))
}

fn deadline(worker: &Worker, pod: &Pod) -> Option<Timestamp> {
    let seconds = spec::spec(pod).active_deadline_seconds?;
    let start = worker.state.lock().status.start_time.as_ref()?.0;
    start.checked_add(SignedDuration::from_secs(seconds)).ok()
}

fn past_deadline(kubelet: &Kubelet, worker: &Worker, pod: &Pod) -> bool {
    deadline(worker, pod).is_some_and(|at| at <= kubelet.clock.now())
}

/// Addresses of a Pod as its containers see them.
fn pod_ips(kubelet: &Kubelet, pod: &Pod, observed: &PodStatus) -> Vec<String> {
    if spec::host_network(pod) {
        kubelet.config.node_ips.iter().map(ToString::to_string).collect()
    } else {
        observed.ips().to_vec()
    }
}

/// The Pod's cgroup and directories.
async fn prepare(kubelet: &Kubelet, pod: &Pod) -> Result<(), String> {
    if !kubelet.cgroups.exists(pod) {
        kubelet.balance();
        kubelet.cgroups.ensure(pod).map_err(|error| {
            let message = format!("unable to ensure pod container exists: {error}");
            kubelet.recorder.pod(pod, "Warning", "FailedCreatePodContainer", message.clone());
            message
        })?;
    }
    let dir = kubelet.config.pod_dir(spec::uid(pod));
    let logs = kubelet.config.pod_log_dir(spec::namespace(pod), spec::name(pod), spec::uid(pod));
    volumes::blocking(move || {
        // What lies in them belongs to the Pod, not to the node's users.
        let mut private = std::fs::DirBuilder::new();
        private.recursive(true).mode(0o750);
        let made = [dir.clone(), dir.join("volumes"), dir.join("containers")];
        let made = made.iter().try_for_each(|path| private.create(path));
        made.and_then(|()| std::fs::create_dir_all(&logs))
            .map_err(|error| format!("error making pod data directories: {error}"))
    })
    .await
}

/// Removes what newer containers and sandboxes have replaced: of each container the one before the
/// last start is kept, for its logs.
async fn tidy(kubelet: &Kubelet, observed: &PodStatus) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for c in &observed.containers {
        let count = seen.entry(&c.name).or_default();
        *count += 1;
        if *count > 2
            && c.state == State::Exited
            && let Err(error) = kubelet.killer.remove_with_log(&observed.uid, c).await
        {
            tracing::debug!(id = c.id, error, "old container stays");
        }
    }
    for old in observed.sandboxes.iter().skip(1).filter(|s| !s.ready) {
        if observed.containers.iter().all(|c| c.sandbox_id != old.id)
            && let Err(error) = kubelet.killer.remove_sandbox(&observed.uid, &old.id).await
        {
            tracing::debug!(id = old.id, error, "old sandbox stays");
        }
    }
}

/// Carries out what was decided.
struct Doer<'a> {
    kubelet: &'a Arc<Kubelet>,
    worker: &'a Arc<Worker>,
    pod: &'a Pod,
    volumes: &'a Volumes,
    observed: Arc<PodStatus>,
    /// When something must be tried again.
    next: Option<Instant>,
}

impl Doer<'_> {
    fn later(&mut self, at: Timestamp) {
        let at = instant_at(at, self.kubelet.clock.now());
        self.next = Some(self.next.map_or(at, |n| n.min(at)));
    }

    /// Answers whether anything was done.
    async fn act(&mut self, a: &PodActions) -> Result<bool, String> {
        let kubelet = self.kubelet;
        let mut acted = false;
        if a.kill_pod {
            if a.create_sandbox && !self.observed.sandboxes.is_empty() {
                kubelet.recorder.pod(
                    self.pod,
                    "Normal",
                    "SandboxChanged",
                    "Pod sandbox changed, it will be killed and re-created.",
                );
            }
            Box::pin(kubelet.killer.pod(self.pod, &self.observed, None)).await?;
            acted |= !self.observed.sandboxes.is_empty();
            if !a.create_sandbox {
                return Ok(acted);
            }
            // The init containers of the sandbox before must not count for the new one.
            let inits = spec::init_containers(self.pod);
            let old = self.observed.clone();
            for c in old.containers.iter().filter(|c| inits.iter().any(|i| i.name == c.name)) {
                kubelet.killer.remove_container(&self.worker.uid, &c.id).await?;
            }
        }
        for k in &a.to_kill {
            acted = true;
            let Some(status) = self.observed.containers.iter().find(|c| c.id == k.id) else { continue };
            kubelet.killer.container(self.pod, status, &k.message, k.reason, None, None).await?;
        }
        let mut sandbox_id = a.sandbox_id.clone().unwrap_or_default();
        let sandbox = kubelet.requests.sandbox(self.pod, a.attempt).await.map_err(|error| {
            let message =
                format!("Failed to generate sandbox config for pod {:?}: {error}", spec::full_name(self.pod));
            kubelet.recorder.pod(
                self.pod,
                "Warning",
                "FailedCreatePodSandBox",
                format!("Failed to create pod sandbox: {message}"),
            );
            message
        })?;
        if a.create_sandbox {
            acted = true;
            sandbox_id = self.create_sandbox(&sandbox).await?;
            self.observed = self.worker.look(kubelet).await?;
        }
        let ips = pod_ips(kubelet, self.pod, &self.observed);
        let mut failed = false;
        let ephemeral = spec::ephemeral_containers(self.pod);
        for i in &a.ephemeral_to_start {
            let Some((c, target)) = ephemeral.get(*i) else { continue };
            acted = true;
            failed |= !self.start(c, target.as_deref(), &sandbox_id, &sandbox, &ips).await;
        }
        for i in &a.init_to_start {
            let Some(c) = spec::init_containers(self.pod).get(*i) else { continue };
            acted = true;
            if !self.start(c, None, &sandbox_id, &sandbox, &ips).await {
                failed = true;
                if !spec::is_sidecar(c) {
                    return self.outcome(acted, failed);
                }
            }
        }
        for i in &a.to_start {
            let Some(c) = spec::containers(self.pod).get(*i) else { continue };
            acted = true;
            failed |= !self.start(c, None, &sandbox_id, &sandbox, &ips).await;
        }
        acted |= self.resize().await?;
        self.outcome(acted, failed)
    }

    /// A failure with a time to try again is waited for; any other is tried again soon.
    fn outcome(&self, acted: bool, failed: bool) -> Result<bool, String> {
        if failed && self.next.is_none() { Err("a container did not start".into()) } else { Ok(acted) }
    }

    async fn create_sandbox(&self, sandbox: &pb::PodSandboxConfig) -> Result<String, String> {
        let kubelet = self.kubelet;
        if !spec::host_network(self.pod)
            && let Some(why) = network_error(kubelet).await
        {
            let message = format!("network is not ready: {why}");
            kubelet.recorder.pod(self.pod, "Warning", "NetworkNotReady", message.clone());
            return Err(message);
        }
        let handler = self.runtime_handler().await?;
        let request = pb::RunPodSandboxRequest { config: Some(sandbox.clone()), runtime_handler: handler };
        match kubelet.runtime.of(&self.worker.uid).run_pod_sandbox(request).await {
            Ok(answer) => Ok(answer.into_inner().pod_sandbox_id),
            Err(error) => {
                let error = error_text(&error);
                kubelet.recorder.pod(
                    self.pod,
                    "Warning",
                    "FailedCreatePodSandBox",
                    format!("Failed to create pod sandbox: {error}"),
                );
                Err(error)
            }
        }
    }

    /// The runtime handler that the Pod's runtime class names.
    async fn runtime_handler(&self) -> Result<String, String> {
        let Some(name) = spec::spec(self.pod).runtime_class_name.as_deref().filter(|n| !n.is_empty()) else {
            return Ok(String::new());
        };
        let classes = self.kubelet.client.api::<k8s_openapi::api::node::v1::RuntimeClass>("");
        match classes.get(name).await {
            Ok(class) => Ok(class.handler),
            Err(error) => {
                let message = if error.is_not_found() {
                    format!("RuntimeClass {name:?} not found")
                } else {
                    format!("Failed to get RuntimeClass {name}: {error}")
                };
                let full =
                    format!("Failed to create sandbox for pod {:?}: {message}", spec::full_name(self.pod));
                self.kubelet.recorder.pod(
                    self.pod,
                    "Warning",
                    "FailedCreatePodSandBox",
                    format!("Failed to create pod sandbox: {full}"),
                );
                Err(full)
            }
        }
    }

    fn wait_for(&self, container: &str, why: Option<(String, String)>) {
        let mut state = self.worker.state.lock();
        match why {
            Some(why) => state.waiting.insert(container.to_owned(), why),
            None => state.waiting.remove(container),
        };
        drop(state);
        self.worker.report.notify_one();
    }

    /// Starts a container; answers whether it runs.
    async fn start(
        &mut self,
        c: &Container,
        target: Option<&str>,
        sandbox_id: &str,
        sandbox: &pb::PodSandboxConfig,
        ips: &[String],
    ) -> bool {
        if let Some((until, message)) = self.backing_off(c) {
            self.later(until);
            self.wait_for(&c.name, Some(("CrashLoopBackOff".into(), message)));
            return false;
        }
        match Box::pin(self.create_and_start(c, target, sandbox_id, sandbox, ips)).await {
            Ok(()) => {
                self.wait_for(&c.name, None);
                true
            }
            Err(why) => {
                self.wait_for(&c.name, Some((why.reason.to_owned(), why.message)));
                false
            }
        }
    }

    /// Until when, and why, a container that ended is not started again; counts the start if it may be.
    fn backing_off(&self, c: &Container) -> Option<(Timestamp, String)> {
        let kubelet = self.kubelet;
        let last = self.observed.containers.iter().find(|s| s.name == c.name && s.state == State::Exited)?;
        let finished = last.finished_at?;
        let key = format!("{}/{}/{:x}", self.worker.uid, c.name, spec::container_hash(c));
        let now = kubelet.clock.now();
        if let Some(until) = kubelet.crashes.until(&key, finished, now) {
            let pod = spec::full_name(self.pod);
            kubelet.recorder.container(
                self.pod,
                &c.name,
                "Warning",
                "BackOff",
                format!("Back-off restarting failed container {} in pod {pod}", c.name),
            );
            let delay = go_duration(kubelet.crashes.delay(&key));
            return Some((
                until,
                format!("back-off {delay} restarting failed container={} pod={pod}", c.name),
            ));
        }
        kubelet.crashes.next(&key, finished, now);
        None
    }

    async fn create_and_start(
        &mut self,
        c: &Container,
        target: Option<&str>,
        sandbox_id: &str,
        sandbox: &pb::PodSandboxConfig,
        ips: &[String],
    ) -> Result<(), NotStarted> {
        let (kubelet, pod) = (self.kubelet, self.pod);
        let event = |kind: &str, reason: &str, message: String| {
            kubelet.recorder.container(pod, &c.name, kind, reason, message);
        };
        let failed = |reason: &'static str, message: String| {
            event("Warning", "Failed", format!("Error: {message}"));
            NotStarted { reason, message }
        };
        self.worker.report.notify_one();
        let image_ref = match kubelet.images.ensure(self.pod, c, sandbox).await {
            Ok(reference) => reference,
            Err(error) => {
                event("Warning", "Failed", format!("Error: {}", error.reason));
                if let Some(until) = error.until {
                    self.later(until);
                }
                return Err(NotStarted { reason: error.reason, message: error.message });
            }
        };
        let image_volumes = self.image_volumes(c, sandbox).await?;
        let image_user =
            kubelet.images.user(&image_ref).await.map_err(|e| failed("CreateContainerConfigError", e))?;
        let log_dir = kubelet.requests.container_log_dir(self.pod, &c.name);
        let restart_count = match self.observed.container(&c.name) {
            Some(last) => last.restart_count + 1,
            None => volumes::blocking(move || Ok(config::restarts_by_logs(&log_dir))).await.unwrap_or(0),
        };
        let target = match target.filter(|t| !t.is_empty()) {
            None => None,
            Some(name) => {
                if let Some(t) = self.observed.container(name) {
                    Some(t.id.clone())
                } else {
                    let error = format!("unable to find target container {name}");
                    return Err(failed("CreateContainerConfigError", error));
                }
            }
        };
        let allocatable = kubelet.allocatable();
        let facts = Facts {
            pod: self.pod,
            pod_ips: ips,
            node_ips: &kubelet.config.node_ips,
            allocatable: &allocatable,
        };
        let inputs = ContainerInputs {
            facts: &facts,
            container: c,
            image_ref: &image_ref,
            image_user: &image_user,
            restart_count,
            volumes: self.volumes,
            image_volumes: &image_volumes,
            target,
            node_memory: kubelet.memory(),
        };
        // Environment variables name every Service there is.
        if timeout(SERVICES, kubelet.services.synced()).await.is_err() {
            let why = "services have not yet been read at least once, cannot construct envvars";
            return Err(failed("CreateContainerConfigError", why.to_owned()));
        }
        let made =
            kubelet.requests.container(&inputs).await.map_err(|e| failed("CreateContainerConfigError", e))?;
        let request = pb::CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(made),
            sandbox_config: Some(sandbox.clone()),
        };
        let id = match kubelet.runtime.of(&self.worker.uid).create_container(request).await {
            Ok(answer) => answer.into_inner().container_id,
            Err(error) => return Err(failed("CreateContainerError", error.message().to_owned())),
        };
        event("Normal", "Created", "Container created".into());
        let request = pb::StartContainerRequest { container_id: id.clone() };
        if let Err(error) = kubelet.runtime.of(&self.worker.uid).start_container(request).await {
            return Err(failed("RunContainerError", error.message().to_owned()));
        }
        event("Normal", "Started", "Container started".into());
        if let Some(given) = &c.resources {
            self.worker.state.lock().actuated.insert(id.clone(), given.clone());
        }
        let Some(hook) = c.lifecycle.as_ref().and_then(|l| l.post_start.as_ref()) else { return Ok(()) };
        self.observed = self.worker.look(kubelet).await.unwrap_or_else(|_| self.observed.clone());
        if let Err(message) = hooks::run(&kubelet.runtime, &kubelet.addresses, self.pod, c, &id, hook).await {
            event("Warning", "FailedPostStartHook", "PostStartHook failed".into());
            if let Some(status) = self.observed.containers.iter().find(|s| s.id == id).cloned() {
                let killed = kubelet
                    .killer
                    .container(
                        self.pod,
                        &status,
                        "FailedPostStartHook",
                        KillReason::PostStartHook,
                        None,
                        None,
                    )
                    .await;
                if let Err(error) = killed {
                    tracing::debug!(pod = spec::full_name(self.pod), error, "container not killed");
                }
            }
            return Err(NotStarted { reason: "PostStartHookError", message });
        }
        Ok(())
    }

    /// Pulls the images that a container mounts as volumes.
    async fn image_volumes(
        &self,
        c: &Container,
        sandbox: &pb::PodSandboxConfig,
    ) -> Result<HashMap<String, String>, NotStarted> {
        let mut found = HashMap::new();
        for mount in c.volume_mounts.iter().flatten() {
            let Some(Mounted::Image { reference, pull_policy }) = self.volumes.get(&mount.name) else {
                continue;
            };
            let stand_in = Container {
                name: c.name.clone(),
                image: Some(reference.clone()),
                image_pull_policy: pull_policy.clone(),
                ..Container::default()
            };
            let pulled = self
                .kubelet
                .images
                .ensure(self.pod, &stand_in, sandbox)
                .await
                .map_err(|error| NotStarted { reason: error.reason, message: error.message })?;
            found.insert(mount.name.clone(), pulled);
        }
        Ok(found)
    }

    /// Gives running containers the resources that the specification has now.
    async fn resize(&self) -> Result<bool, String> {
        let kubelet = self.kubelet;
        let mut resized = false;
        for c in spec::containers(self.pod).iter().chain(spec::init_containers(self.pod)) {
            let Some(status) = self.observed.container(&c.name).filter(|s| s.running()) else { continue };
            let want = c.resources.clone().unwrap_or_default();
            let noted = self.worker.state.lock().actuated.get(&status.id).cloned();
            // Of a container that an earlier kubelet started, the runtime knows what it has.
            let known = noted.is_some();
            let have = noted.unwrap_or_else(|| resources::actual(self.pod, c, status.resources.as_ref()));
            if allocation::same(&have, &want) {
                if !known {
                    self.worker.state.lock().actuated.insert(status.id.clone(), want);
                }
                continue;
            }
            let restart = c.resize_policy.iter().flatten().any(|p| {
                let of = |r: &ResourceRequirements| {
                    (
                        r.requests.as_ref().and_then(|l| l.get(&p.resource_name)).cloned(),
                        r.limits.as_ref().and_then(|l| l.get(&p.resource_name)).cloned(),
                    )
                };
                p.restart_policy == "RestartContainer" && of(&have) != of(&want)
            });
            kubelet.cgroups.ensure(self.pod).map_err(|e| e.to_string())?;
            kubelet.balance();
            if restart {
                let message = format!("Container {} resize requires restart", c.name);
                kubelet.killer.container(self.pod, status, &message, KillReason::None, None, None).await?;
            } else {
                let mut limits = resources::container_resources(self.pod, c, kubelet.memory());
                // In an update, 0 leaves the old limit.
                if limits.cpu_quota == 0 {
                    limits.cpu_quota = -1;
                }
                if limits.memory_limit_in_bytes == 0 {
                    limits.memory_limit_in_bytes = -1;
                }
                let request = pb::UpdateContainerResourcesRequest {
                    container_id: status.id.clone(),
                    linux: Some(limits),
                    ..pb::UpdateContainerResourcesRequest::default()
                };
                if let Err(error) =
                    kubelet.runtime.of(&self.worker.uid).update_container_resources(request).await
                {
                    let error = error_text(&error);
                    self.worker.state.lock().resize_error = Some(error.clone());
                    return Err(error);
                }
            }
            self.worker.state.lock().actuated.insert(status.id.clone(), want);
            resized = true;
        }
        if resized {
            self.worker.state.lock().resize_error = None;
            self.worker.report.notify_one();
        }
        Ok(resized)
    }
}

/// Why a container does not run: upstream's reason and message.
struct NotStarted {
    reason: &'static str,
    message: String,
}

/// Why the runtime has no network for Pods; none if it has.
async fn network_error(kubelet: &Kubelet) -> Option<String> {
    let answer = kubelet.runtime.service().status(pb::StatusRequest { verbose: false }).await.ok()?;
    let condition = answer
        .into_inner()
        .status?
        .conditions
        .into_iter()
        .find(|c| c.r#type == "NetworkReady" && !c.status)?;
    Some(format!(
        "container runtime network not ready: NetworkReady=false reason:{} message:{}",
        condition.reason, condition.message
    ))
}

/// Brings the API's status to `status`.
pub(crate) async fn write_status(
    kubelet: &Kubelet,
    worker: &Worker,
    status: &ApiStatus,
) -> Result<(), Status> {
    let (pod, sent) = {
        let state = worker.state.lock();
        (state.pod.clone(), state.sent.clone())
    };
    let Some(difference) = patch::difference(&sent, status) else { return Ok(()) };
    let body = json!({"metadata": {"uid": worker.uid}, "status": difference});
    let pods = kubelet.client.api::<Pod>(spec::namespace(&pod));
    let answer = pods.patch_status(spec::name(&pod), &Patch::Strategic(body)).await?;
    let mut state = worker.state.lock();
    state.sent_revision =
        answer.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0);
    state.sent = answer.status.unwrap_or_default();
    Ok(())
}

/// Deletes a Pod's object for good.
pub(crate) async fn delete_object(kubelet: &Kubelet, pod: &Pod) -> Result<(), String> {
    let options = DeleteOptions {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() }),
        ..DeleteOptions::default()
    };
    let pods = kubelet.client.api::<Pod>(spec::namespace(pod));
    match pods.delete(spec::name(pod), Some(&options)).await {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.to_string()),
        _ => Ok(()),
    }
}
