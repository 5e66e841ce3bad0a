//! One step towards what a Pod wants: look, decide, act.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::Duration;

use api::Gate;
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;

use super::actions::{self, KillReason, PodActions};
use super::devices::{self, Devices};
use super::downward::Facts;
use super::kill::{CallErrors, Killer};
use super::observed::{PodStatus, State};
use super::observer::Observer;
use super::reporter::Reporter;
use super::resize::{ResizeError, Resizer};
use super::restart_all::{self, Reset};
use super::sandboxes::{SandboxError, Sandboxes};
use super::spec;
use super::start::{Place, Starter};
use super::worker::{Phase, Worker};
use super::workers::Workers;
use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::dra::DraError;
use crate::log_dirs::LogDirs;
use crate::node::NodeView;
use crate::objects::Objects;
use crate::probes::Prober;
use crate::recorder::PodRecorder;
use crate::resource_managers::ResourceManagers;
use crate::runtime::CallError;
use crate::status::generate::Failure;
use crate::volumes::{VolumeError, VolumeManager, Volumes};
use crate::work::try_blocking;

/// How often it is tried whether there is room for what a Pod asks for by now.
const RESIZE_AGAIN: Duration = Duration::from_secs(30);

/// Reason and message of a Pod that ran longer than it may.
const DEADLINE: (&str, &str) =
    ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");

/// The consequence of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    /// Go on to a phase.
    Next(Phase),
    /// Wait for something to happen, at most until then.
    Wait(Option<Instant>),
}

/// Why a step did not do all that it should; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Kill(#[from] CallErrors),
    #[error("unable to ensure pod container exists: {0}")]
    Cgroup(io::Error),
    #[error("error making pod data directories: {0}")]
    Directories(io::Error),
    #[error(transparent)]
    Devices(#[from] DraError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("a container did not start")]
    NotStarted,
    #[error(transparent)]
    Resize(#[from] ResizeError),
}

/// Brings Pods closer to what they want.
pub(crate) struct Syncer {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    pub(crate) recorder: PodRecorder,
    pub(crate) node: NodeView,
    pub(crate) objects: Arc<Objects>,
    pub(crate) volumes: Arc<VolumeManager>,
    pub(crate) devices: Devices,
    pub(crate) cgroups: Cgroups,
    pub(crate) managers: Arc<ResourceManagers>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) prober: Prober,
    pub(crate) killer: Killer,
    pub(crate) observer: Observer,
    pub(crate) reporter: Reporter,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) starter: Starter,
    pub(crate) resizer: Resizer,
}

impl Syncer {
    /// Takes one step.
    pub(crate) async fn sync(&self, worker: &Worker) -> Result<Step, SyncError> {
        let observed = self.observer.observe(worker).await?;
        let pod = self.resizer.decide(worker);
        if worker.deadline(&pod).is_some_and(|at| at <= self.clock.now()) {
            let (reason, message) = DEADLINE;
            self.recorder.pod(&pod, "Normal", reason, message);
            let (reason, message) = (reason.to_owned(), message.to_owned());
            worker.fail(Failure { reason, message, disruption: None, keeps_success: false }, None);
            return Ok(Step::Next(Phase::Terminating));
        }
        let status = self.reporter.compute(worker).unwrap_or_default();
        self.prober.follow(&pod, &observed, false);
        let restarting = self.config.gates.enabled(Gate::RestartAllContainersOnContainerExits)
            && restart_all::is_under_way(&status);
        let decided = actions::compute_actions(&pod, &observed, &*self.prober.probes, restarting);
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

        self.objects.register(&pod);
        self.prepare(worker, &pod).await?;
        let (volumes, refresh) = self.mount(worker, &pod, &observed).await?;
        let mut attempt = Attempt { by: self, worker, pod: &pod, volumes: &volumes, observed, next: None };
        let acted = Box::pin(attempt.act(&decided)).await;
        let next = attempt.next;
        if acted.as_ref().is_ok_and(|acted| *acted) || acted.is_err() {
            // Changes by the actions are seen at once; the runtime's own events come a little later.
            let observed = self.observer.observe(worker).await?;
            self.prober.follow(&pod, &observed, false);
            self.remove_replaced(&observed).await;
        }
        acted?;
        if restarting {
            // The containers that were removed start anew at once.
            return Ok(Step::Wait(Some(Instant::now())));
        }
        let now = self.clock.now();
        let token = self.volumes.next_renewal(&worker.uid).map(|at| instant_at(at, now));
        let deadline = worker.deadline(&pod).map(|at| instant_at(at, now));
        // Others may go and leave room.
        let room = worker.state.lock().pending.is_some().then(|| Instant::now() + RESIZE_AGAIN);
        Ok(Step::Wait([next, token, deadline, refresh, room].into_iter().flatten().min()))
    }

    /// Makes the Pod's volumes or brings them up to date; answers also when that is to be tried again.
    async fn mount(
        &self,
        worker: &Worker,
        pod: &Pod,
        observed: &PodStatus,
    ) -> Result<(Volumes, Option<Instant>), SyncError> {
        let (ips, allocatable) = (self.pod_ips(pod, observed), self.node.allocatable());
        let facts = Facts { pod, pod_ips: &ips, node_ips: &self.config.node_ips, allocatable: &allocatable };
        let not_mounted = |error: VolumeError| {
            self.recorder.pod(pod, "Warning", error.reason(), error.to_string());
            error
        };
        let running = observed.running().next().is_some();
        let mounted = self.volumes.mount_all(&facts, running).await;
        let (volumes, stale) = mounted.map_err(not_mounted)?;
        // Containers that have a volume are tended whether or not its content can be had now.
        let refresh = worker.refresh_after(stale.is_empty());
        for error in stale {
            not_mounted(error);
        }
        Ok((volumes, refresh))
    }

    /// Addresses of a Pod as its containers see them.
    fn pod_ips(&self, pod: &Pod, observed: &PodStatus) -> Vec<String> {
        if spec::host_network(pod) {
            self.config.node_ips.iter().map(ToString::to_string).collect()
        } else {
            observed.ips().to_vec()
        }
    }

    /// Makes the Pod's cgroup and directories.
    async fn prepare(&self, worker: &Worker, pod: &Pod) -> Result<(), SyncError> {
        if !self.cgroups.exists(pod) {
            self.cgroups.balance(&self.workers.active_pods());
            self.cgroups.ensure(pod, self.managers.is_unlimited(pod)).map_err(|error| {
                let error = SyncError::Cgroup(error);
                self.recorder.pod(pod, "Warning", "FailedCreatePodContainer", error.to_string());
                error
            })?;
            worker.state.lock().actuated_whole = Some(spec::spec(pod).resources.clone().unwrap_or_default());
        }
        let dir = self.config.pod_dir(spec::uid(pod));
        let logs = self.config.pod_log_dir(spec::namespace(pod), spec::name(pod), spec::uid(pod));
        let dirs = LogDirs::new(&self.config);
        let make = move || {
            // Files in them belong to the Pod, not to the node's users.
            let mut private = std::fs::DirBuilder::new();
            private.recursive(true).mode(0o750);
            let made = [dir.clone(), dir.join("volumes"), dir.join("containers")];
            made.iter().try_for_each(|path| private.create(path))?;
            dirs.make(&logs)
        };
        try_blocking(make).await.map_err(SyncError::Directories)
    }

    /// Removes what newer containers and sandboxes have replaced: of each container the one before the
    /// last start is kept, for its logs.
    async fn remove_replaced(&self, observed: &PodStatus) {
        let Some(kept) = self.config.container_gc.kept_at_once() else { return };
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for c in &observed.containers {
            let count = seen.entry(&c.name).or_default();
            *count += 1;
            if *count > kept + 1
                && c.state == State::Exited
                && let Err(error) = self.killer.remove_with_log(&observed.uid, c).await
            {
                tracing::debug!(id = c.id, %error, "old container stays");
            }
        }
        for old in observed.sandboxes.iter().skip(1).filter(|s| !s.ready) {
            if observed.containers.iter().all(|c| c.sandbox_id != old.id)
                && let Err(error) = self.killer.remove_sandbox(&observed.uid, &old.id).await
            {
                tracing::debug!(id = old.id, %error, "old sandbox stays");
            }
        }
    }
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

/// The instant of a wall-clock time.
fn instant_at(at: Timestamp, now: Timestamp) -> Instant {
    Instant::now() + Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

/// Carries out what was decided about a Pod.
struct Attempt<'a> {
    by: &'a Syncer,
    worker: &'a Worker,
    pod: &'a Pod,
    volumes: &'a Volumes,
    observed: Arc<PodStatus>,
    /// When something must be tried again.
    next: Option<Instant>,
}

impl Attempt<'_> {
    /// Answers whether anything was done.
    async fn act(&mut self, a: &PodActions) -> Result<bool, SyncError> {
        let by = self.by;
        let mut acted = false;
        if a.kill_pod {
            acted |= self.kill(a.create_sandbox).await?;
            if !a.create_sandbox {
                return Ok(acted);
            }
        }
        for k in &a.to_kill {
            acted = true;
            let Some(status) = self.observed.containers.iter().find(|c| c.id == k.id) else { continue };
            by.killer.container(self.pod, status, &k.message, k.reason, None, None).await?;
        }
        if !a.kill_pod && !a.to_reset.is_empty() {
            return self.reset(&a.to_reset).await;
        }
        let mut sandbox_id = a.sandbox_id.clone().unwrap_or_default();
        let sandbox = by.sandboxes.config(self.pod, a.attempt, self.volumes).await?;
        if a.create_sandbox {
            by.devices.prepare(self.pod).await.map_err(|error| {
                let message = format!("Failed to prepare dynamic resources: {error}");
                by.recorder.pod(self.pod, "Warning", devices::REASON, message);
                error
            })?;
            acted = true;
            sandbox_id = by.sandboxes.create(self.pod, &sandbox).await?;
            self.observed = by.observer.observe_first(self.worker, &self.observed, &sandbox_id).await?;
        }
        let ips = by.pod_ips(self.pod, &self.observed);
        let (worker, pod, volumes) = (self.worker, self.pod, self.volumes);
        let place = Place { worker, pod, volumes, sandbox: &sandbox, sandbox_id: &sandbox_id, ips: &ips };
        let mut failed = false;
        let ephemeral = spec::ephemeral_containers(self.pod);
        for (c, target) in a.ephemeral_to_start.iter().filter_map(|i| ephemeral.get(*i)) {
            acted = true;
            failed |= !self.start(&place, c, target.as_deref()).await;
        }
        for c in a.init_to_start.iter().filter_map(|i| spec::init_containers(self.pod).get(*i)) {
            acted = true;
            if !self.start(&place, c, None).await {
                failed = true;
                if !spec::is_sidecar(c) {
                    return self.outcome(acted, failed);
                }
            }
        }
        for c in a.to_start.iter().filter_map(|i| spec::containers(self.pod).get(*i)) {
            acted = true;
            failed |= !self.start(&place, c, None).await;
        }
        acted |= by.resizer.carry_out(self.worker, self.pod, &self.observed).await?;
        self.outcome(acted, failed)
    }

    /// Removes containers from the runtime, those that run without any grace; their logs stay.
    async fn reset(&self, resets: &[Reset]) -> Result<bool, SyncError> {
        let by = self.by;
        for reset in resets {
            let status = self.observed.containers.iter().find(|c| c.id == reset.id).filter(|_| reset.kill);
            if let Some(status) = status {
                let reason = KillReason::RestartAllContainers;
                by.killer.container(self.pod, status, "killing", reason, Some(0), None).await?;
            }
            by.killer.remove_container(&self.worker.uid, &reset.id).await?;
        }
        Ok(true)
    }

    /// Stops everything that runs of the Pod; answers whether there was anything.
    async fn kill(&mut self, replaced: bool) -> Result<bool, SyncError> {
        let by = self.by;
        let any = !self.observed.sandboxes.is_empty();
        if replaced && any {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            by.recorder.pod(self.pod, "Normal", "SandboxChanged", message);
        }
        Box::pin(by.killer.pod(self.pod, &self.observed, None)).await?;
        if replaced {
            // The init containers of the sandbox before must not count for the new one.
            let inits = spec::init_containers(self.pod);
            for c in self.observed.containers.iter().filter(|c| inits.iter().any(|i| i.name == c.name)) {
                by.killer.remove_container(&self.worker.uid, &c.id).await?;
            }
        }
        Ok(any)
    }

    /// Starts a container; answers whether it runs.
    async fn start(&mut self, place: &Place<'_>, c: &Container, target: Option<&str>) -> bool {
        let started = self.by.starter.start(place, c, target, &mut self.observed).await;
        if let Some(until) = started.as_ref().err().and_then(|e| e.until()) {
            let at = instant_at(until, self.by.clock.now());
            self.next = Some(self.next.map_or(at, |n| n.min(at)));
        }
        started.is_ok()
    }

    /// A failure with a time to try again is waited for; any other is tried again soon.
    fn outcome(&self, acted: bool, failed: bool) -> Result<bool, SyncError> {
        if failed && self.next.is_none() { Err(SyncError::NotStarted) } else { Ok(acted) }
    }
}
