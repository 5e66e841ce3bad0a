//! One worker a Pod: it runs the Pod, stops it, and cleans up after it; nobody else does.

use std::sync::Arc;
use std::time::Duration;

use client::Backoff;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiStatus};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::allocation::{self, Allocation, Pending};
use super::observed::PodStatus;
use super::{spec, sync};
use crate::Kubelet;
use crate::status::generate::{self, Inputs, Waiting};
use crate::work::Work;

/// The first and the last delay after which volumes are tried again; upstream's.
const REMOUNT_FIRST: Duration = Duration::from_millis(500);
const REMOUNT_LAST: Duration = Duration::from_secs(122);

/// What a worker is at. It only ever goes forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The Pod is to run.
    Running,
    /// Its containers are being stopped.
    Terminating,
    /// Its containers are gone for good.
    Terminated,
}

/// What a worker and those who look at it share.
pub(crate) struct State {
    pub(crate) pod: Arc<Pod>,
    pub(crate) phase: Phase,
    pub(crate) observed: Arc<PodStatus>,
    /// Whether the runtime was asked at least once.
    pub(crate) looked: bool,
    /// Containers that could not be started, and why.
    pub(crate) waiting: Waiting,
    /// Why the Pod failed, if not by its containers.
    pub(crate) failed: Option<(String, String)>,
    /// The status of a Pod that this node refused.
    pub(crate) rejected: Option<ApiStatus>,
    /// What was computed last.
    pub(crate) status: ApiStatus,
    /// What the API is known to have, and at which revision.
    pub(crate) sent: ApiStatus,
    pub(crate) sent_revision: u64,
    /// Whether everything on this node is gone but what logs are read from.
    pub(crate) cleaned: bool,
    /// Whether the object is gone from the API.
    pub(crate) gone: bool,
    /// How often in a row volumes could not be brought up to date.
    pub(crate) stale: u32,
    /// Why the last attempt to resize failed.
    pub(crate) resize_error: Option<String>,
    /// What the containers are given of the node; none before they were looked at.
    pub(crate) allocated: Option<Allocation>,
    /// The generation of the object when that was decided last; none before.
    pub(crate) decided: Option<i64>,
    /// Why the node does not give what the Pod asks for by now.
    pub(crate) pending: Option<Pending>,
    /// Resources that running containers were given, by CRI id.
    pub(crate) actuated: sync::Actuated,
}

/// A Pod's worker as others see it.
pub(crate) struct Worker {
    pub(crate) uid: String,
    pub(crate) state: Mutex<State>,
    /// Something happened that the worker must look at.
    pub(crate) wake: Notify,
    /// Something happened that the reported status depends on.
    pub(crate) report: Notify,
    /// Set once the containers are to be stopped.
    terminate: CancellationToken,
    /// The grace in seconds with which they are; it only shrinks.
    grace: watch::Sender<Option<i64>>,
    /// The last status was written, or nobody wants it any more.
    written: watch::Sender<bool>,
    /// File work under way.
    work: Work,
}

fn revision(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Whether there is more between two states of a Pod than its status, which this kubelet writes itself.
fn wants_else(old: &Pod, new: &Pod) -> bool {
    let (o, n) = (&old.metadata, &new.metadata);
    o.deletion_timestamp != n.deletion_timestamp
        || o.deletion_grace_period_seconds != n.deletion_grace_period_seconds
        || o.labels != n.labels
        || o.annotations != n.annotations
        || old.spec != new.spec
}

impl Worker {
    /// A worker for a Pod that the API has.
    pub(crate) fn new(pod: Arc<Pod>) -> Arc<Self> {
        let status = spec::status(&pod).clone();
        let worker = Arc::new(Self {
            uid: spec::uid(&pod).to_owned(),
            state: Mutex::new(State {
                phase: Phase::Running,
                observed: Arc::default(),
                looked: false,
                waiting: Waiting::new(),
                failed: None,
                rejected: None,
                sent: status.clone(),
                sent_revision: revision(&pod),
                status,
                cleaned: false,
                gone: false,
                stale: 0,
                resize_error: None,
                allocated: None,
                decided: None,
                pending: None,
                actuated: sync::Actuated::default(),
                pod: pod.clone(),
            }),
            wake: Notify::new(),
            report: Notify::new(),
            terminate: CancellationToken::new(),
            grace: watch::Sender::new(None),
            written: watch::Sender::new(false),
            work: Work::default(),
        });
        worker.update(pod);
        worker
    }

    /// Takes a new state of the object.
    pub(crate) fn update(&self, pod: Arc<Pod>) {
        let wanted = {
            let mut state = self.state.lock();
            let wanted = wants_else(&state.pod, &pod);
            if revision(&pod) >= state.sent_revision {
                state.sent = spec::status(&pod).clone();
                state.sent_revision = revision(&pod);
            }
            state.pod = pod.clone();
            wanted
        };
        if pod.metadata.deletion_timestamp.is_some() {
            self.stop(
                pod.metadata
                    .deletion_grace_period_seconds
                    .or(spec::spec(&pod).termination_grace_period_seconds),
            );
        } else if matches!(spec::status(&pod).phase.as_deref(), Some("Failed" | "Succeeded")) {
            self.stop(None);
        }
        if wanted {
            self.wake.notify_one();
        }
        self.report.notify_one();
    }

    /// The object is gone: the containers must go, too.
    pub(crate) fn deleted(&self) {
        let grace = {
            let mut state = self.state.lock();
            state.gone = true;
            spec::grace_period(&state.pod)
        };
        self.written.send_replace(true);
        self.stop(Some(grace));
        self.changed();
    }

    /// Asks for the containers' end within so many seconds; a shorter grace than before counts.
    pub(crate) fn stop(&self, grace: Option<i64>) {
        self.grace.send_if_modified(|now| match (*now, grace) {
            (_, None) => false,
            (Some(old), Some(new)) if old <= new => false,
            (_, new) => {
                *now = new;
                true
            }
        });
        self.terminate.cancel();
    }

    /// Ends the Pod as failed.
    pub(crate) fn fail(&self, reason: &str, message: &str, grace: Option<i64>) {
        self.state.lock().failed.get_or_insert_with(|| (reason.to_owned(), message.to_owned()));
        self.stop(grace);
        self.changed();
    }

    /// Wakes the worker and the reporter.
    pub(crate) fn changed(&self) {
        self.wake.notify_one();
        self.report.notify_one();
    }

    /// When volumes that could not be brought up to date are tried again; none if all of them were.
    pub(crate) fn refresh_after(&self, fresh: bool) -> Option<Instant> {
        let mut state = self.state.lock();
        state.stale = if fresh { 0 } else { state.stale.saturating_add(1) };
        let delay =
            REMOUNT_FIRST.saturating_mul(1 << state.stale.saturating_sub(1).min(16)).min(REMOUNT_LAST);
        (!fresh).then(|| Instant::now() + delay)
    }

    /// The Pod as the API has it.
    pub(crate) fn pod(&self) -> Arc<Pod> {
        self.state.lock().pod.clone()
    }

    /// The Pod with what it was given of the node in the place of what it asks for.
    pub(crate) fn given(&self) -> Arc<Pod> {
        let state = self.state.lock();
        match &state.allocated {
            Some(allocated) => allocation::given(&state.pod, allocated).into_owned(),
            None => state.pod.clone(),
        }
    }

    /// Gives the Pod what it asks for, if the node can; answers the Pod with what it has then.
    pub(crate) fn allocate(&self, kubelet: &Kubelet) -> Arc<Pod> {
        let _one = kubelet.pods.resizes.lock();
        let pod = {
            let mut state = self.state.lock();
            if state.allocated.is_none() {
                state.allocated = Some(allocation::before(&state.pod));
            }
            state.pod.clone()
        };
        let now = self.given();
        let pending = if Arc::ptr_eq(&now, &pod) {
            None
        } else {
            let others: Vec<_> = kubelet
                .workers
                .all()
                .into_iter()
                .filter(|w| w.uid != self.uid && w.has_a_place())
                .map(|w| w.given())
                .collect();
            allocation::decide(&pod, &now, &kubelet.allocatable(), &others)
        };
        let mut state = self.state.lock();
        let changed = state.pending != pending;
        state.pending.clone_from(&pending);
        state.decided = pod.metadata.generation;
        if pending.is_none() {
            state.allocated = Some(allocation::wanted(&pod));
        }
        drop(state);
        match pending {
            None => pod,
            Some(pending) => {
                if changed {
                    let reason = format!("Resize{}", pending.reason);
                    let message = format!("Pod resize {}: {}", pending.reason, pending.message);
                    kubelet.recorder.pod(&pod, "Warning", &reason, message);
                }
                now
            }
        }
    }

    /// Whether the Pod still uses the node's resources.
    pub(crate) fn active(&self) -> bool {
        let state = self.state.lock();
        state.phase != Phase::Terminated && state.rejected.is_none()
    }

    /// Whether the Pod counts against what the node has for Pods. One whose object is gone does not, though it may
    /// still end here: the scheduler has given its place to another one.
    pub(crate) fn has_a_place(&self) -> bool {
        self.active() && !self.state.lock().gone
    }

    /// Whether the Pod is to run, as far as is known.
    pub(crate) fn to_run(&self) -> bool {
        !self.terminate.is_cancelled() && self.phase() == Phase::Running
    }

    /// Notes what the runtime has.
    pub(crate) fn observe(&self, kubelet: &Kubelet, observed: Arc<PodStatus>) {
        {
            let mut state = self.state.lock();
            state.actuated.retain(|id, _| observed.containers.iter().any(|c| c.id == *id));
            state.observed = observed.clone();
            state.looked = true;
        }
        kubelet.pods.observe(&self.uid, observed);
        self.report.notify_one();
    }

    /// Computes the status anew; none before the runtime was asked.
    pub(crate) fn compute(&self, kubelet: &Kubelet) -> Option<ApiStatus> {
        let mut state = self.state.lock();
        let status = if let Some(rejected) = &state.rejected {
            rejected.clone()
        } else if state.looked {
            let probe = |kind, id: &str| kubelet.probes.get(id, kind);
            let terminal = state.phase == Phase::Terminated;
            // What was reported last is what the API has, or what it will have.
            // What ends is not decided about any more.
            let decided = state.decided.filter(|_| state.phase == Phase::Running);
            let given = state.allocated.as_ref().map(|a| allocation::shown(&state.pod, a, decided));
            let generated = generate::generate(&Inputs {
                pod: given.as_deref().unwrap_or(&state.pod),
                pending: state.pending.as_ref(),
                observed: &state.observed,
                waiting: &state.waiting,
                probe: &probe,
                old: &state.status,
                terminal,
                failed: state.failed.as_ref(),
                node_ips: &kubelet.config.node_ips,
                runtime: &kubelet.runtime.version().runtime_name,
                actuated: &state.actuated,
                resize_error: state.resize_error.as_deref(),
                now: kubelet.clock.now(),
            });
            if terminal { generate::terminate(generated, &state.pod) } else { generated }
        } else {
            return None;
        };
        state.status = status.clone();
        let mut shown = (*state.pod).clone();
        shown.status = Some(status.clone());
        drop(state);
        kubelet.pods.put(&self.uid, Arc::new(shown));
        Some(status)
    }

    fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    fn advance(&self, phase: Phase) {
        let mut state = self.state.lock();
        state.phase = state.phase.max(phase);
        drop(state);
        self.report.notify_one();
    }

    /// Asks the runtime, and notes the answer. What a step began that was given up comes to its end
    /// first, so that the answer has all there is.
    pub(crate) async fn look(&self, kubelet: &Kubelet) -> Result<Arc<PodStatus>, String> {
        kubelet.runtime.idle(&self.uid).await;
        let pod = self.pod();
        let observed = sync::observe(kubelet, &pod).await?;
        let observed = Arc::new(observed);
        self.observe(kubelet, observed.clone());
        Ok(observed)
    }

    /// Works until the Pod is gone from the API and from this node.
    pub(crate) async fn run(self: Arc<Self>, kubelet: Arc<Kubelet>) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
        loop {
            self.work.idle().await;
            let step = match self.phase() {
                // Boxed: each of these steps is large, and most of a Pod's time none of them runs.
                Phase::Running => self.work.scope(Box::pin(self.sync(&kubelet))).await,
                Phase::Terminating => Box::pin(self.end(&kubelet)).await,
                Phase::Terminated => match Box::pin(self.finish(&kubelet)).await {
                    Ok(Finish::Done) => return,
                    Ok(Finish::Wait) => Ok(Step::Wait(None)),
                    Err(error) => Err(error),
                },
            };
            let wait = match step {
                Ok(Step::Next(phase)) => {
                    self.advance(phase);
                    self.report.notify_one();
                    backoff.reset();
                    continue;
                }
                Ok(Step::Wait(until)) => {
                    backoff.reset();
                    until
                }
                Err(error) => {
                    let pod = self.pod();
                    tracing::debug!(pod = spec::full_name(&pod), error, "Pod not in its wanted state yet");
                    Some(Instant::now() + backoff.delay())
                }
            };
            let running = self.phase() == Phase::Running;
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(wait.unwrap_or_else(Instant::now)), if wait.is_some() => {}
                () = self.terminate.cancelled(), if running => {}
            }
        }
    }

    async fn sync(self: &Arc<Self>, kubelet: &Arc<Kubelet>) -> Result<Step, String> {
        if self.terminate.is_cancelled() {
            return Ok(Step::Next(Phase::Terminating));
        }
        // What runs must end at once when the Pod is to end: a pull or a hook may take minutes. What the
        // step has begun in the runtime and on files goes on, and is waited for before anything else.
        self.terminate
            .run_until_cancelled(async {
                if let Some(refusal) = kubelet
                    .admission
                    .admit(self, &kubelet.workers, || kubelet.node())
                    .await
                    .map_err(|e| e.to_string())?
                {
                    let pod = self.pod();
                    kubelet.recorder.pod(&pod, "Warning", &refusal.reason, refusal.message.clone());
                    let now = kubelet.clock.now();
                    let status = generate::rejected(&pod, &refusal.reason, &refusal.message, now);
                    self.state.lock().rejected = Some(status);
                    return Ok(Step::Next(Phase::Terminating));
                }
                Box::pin(sync::sync(kubelet, self)).await
            })
            .await
            .unwrap_or(Ok(Step::Next(Phase::Terminating)))
    }

    /// Stops the containers.
    async fn end(self: &Arc<Self>, kubelet: &Arc<Kubelet>) -> Result<Step, String> {
        let observed = self.look(kubelet).await?;
        let pod = self.pod();
        kubelet.prober.follow(&pod, &observed, true);
        let mut grace = self.grace.subscribe();
        let seconds = *grace.borrow_and_update();
        if observed.running().next().is_some() || observed.sandboxes.iter().any(|s| s.ready) {
            tokio::select! {
                stopped = kubelet.killer.pod(&pod, &observed, seconds) => stopped.map_err(|error| {
                    kubelet.recorder.pod(&pod, "Warning", "FailedKillPod", format!("error killing pod: {error}"));
                    error
                })?,
                // A shorter grace: begin again with it.
                _ = grace.changed() => return Ok(Step::Next(Phase::Terminating)),
            }
        }
        let observed = self.look(kubelet).await?;
        if observed.running().next().is_some() {
            return Err("containers still run".into());
        }
        kubelet.probes.forget(&self.uid);
        Ok(Step::Next(Phase::Terminated))
    }

    /// Takes away what the Pod had on this node, then the object if it is being deleted.
    async fn finish(self: &Arc<Self>, kubelet: &Arc<Kubelet>) -> Result<Finish, String> {
        let cleaned = self.state.lock().cleaned;
        if !cleaned {
            kubelet.objects.unregister(&self.uid);
            kubelet.volumes.forget(&self.uid);
            kubelet.images.forget(&self.uid);
            kubelet.crashes.forget(&self.uid);
            kubelet.volumes.remove_volumes(&self.uid).await?;
            if let Err(error) = kubelet.cgroups.remove(&self.uid) {
                // The runtime may still hold it; it is looked for again with what else is left.
                tracing::debug!(uid = self.uid, %error, "cgroup stays");
            }
            kubelet.balance();
            self.state.lock().cleaned = true;
            self.report.notify_one();
        }
        let (pod, gone) = {
            let state = self.state.lock();
            (state.pod.clone(), state.gone)
        };
        if !gone {
            if pod.metadata.deletion_timestamp.is_none() {
                return Ok(Finish::Wait);
            }
            // The last status first: who watches must see how it ended.
            let mut written = self.written.subscribe();
            let _ = written.wait_for(|w| *w).await;
            sync::delete_object(kubelet, &pod).await?;
        }
        let observed = self.look(kubelet).await?;
        kubelet.killer.remove(&observed).await?;
        kubelet.volumes.remove_pod(&self.uid).await?;
        let logs = kubelet.config.pod_log_dir(spec::namespace(&pod), spec::name(&pod), &self.uid);
        crate::volumes::blocking(move || crate::files::remove_tree(&logs).map_err(|e| e.to_string())).await?;
        if kubelet.cgroups.remove(&self.uid).is_err() {
            kubelet.housekeeping.notify_one();
        }
        kubelet.release(self);
        Ok(Finish::Done)
    }

    /// Writes the status whenever it changes, until the Pod is gone.
    pub(crate) async fn report(self: Arc<Self>, kubelet: Arc<Kubelet>) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
        loop {
            self.report.notified().await;
            loop {
                if self.state.lock().gone {
                    self.written.send_replace(true);
                    return;
                }
                // The last status is final only once it was computed after the clean-up.
                let last = {
                    let state = self.state.lock();
                    state.phase == Phase::Terminated && state.cleaned
                };
                let Some(status) = self.compute(&kubelet) else { break };
                match sync::write_status(&kubelet, &self, &status).await {
                    Ok(()) => {
                        backoff.reset();
                        if last {
                            self.written.send_replace(true);
                        }
                        break;
                    }
                    Err(error) if matches!(error.code, 404 | 409 | 422) => {
                        // Gone, or another Pod of that name: the watch will say so. What the server
                        // finds invalid stays so.
                        if error.code == 422 {
                            let pod = self.pod();
                            tracing::warn!(pod = spec::full_name(&pod), %error, "status refused");
                        }
                        if last {
                            self.written.send_replace(true);
                        }
                        break;
                    }
                    Err(error) => {
                        let pod = self.pod();
                        tracing::debug!(pod = spec::full_name(&pod), %error, "status not written");
                        tokio::time::sleep(backoff.delay()).await;
                    }
                }
            }
        }
    }
}

/// What follows a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    /// Go on to a phase.
    Next(Phase),
    /// Wait for something to happen, at most until then.
    Wait(Option<Instant>),
}

enum Finish {
    /// Nothing of the Pod is left.
    Done,
    /// The object is still wanted.
    Wait,
}

/// The instant of a wall-clock time.
pub(crate) fn instant_at(at: Timestamp, now: Timestamp) -> Instant {
    Instant::now() + Duration::try_from(at.duration_since(now)).unwrap_or_default()
}
