//! The work of a Pod's worker, from the Pod's admission to its removal.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Backoff, Client};
use component::Clock;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::admission::{Admission, Refusal, Undecided};
use super::devices::Devices;
use super::kill::{CallErrors, Killer};
use super::manager::PodManager;
use super::mirrors::Mirrors;
use super::observer::Observer;
use super::reporter::Reporter;
use super::spec;
use super::sync::{Step, SyncError, Syncer};
use super::worker::{Phase, Worker};
use super::workers::Workers;
use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::dra::DraError;
use crate::metrics::{self, Metrics};
use crate::node::NodeView;
use crate::objects::Objects;
use crate::probes::Prober;
use crate::recorder::PodRecorder;
use crate::resource_managers::ResourceManagers;
use crate::runtime::CallError;
use crate::status::generate::{self, Failure};
use crate::user_namespaces::UserNamespaces;
use crate::volumes::VolumeManager;
use crate::work::try_blocking;

/// Why a phase is not over yet; it is tried again.
#[derive(Debug, thiserror::Error)]
enum WorkError {
    #[error(transparent)]
    Admission(#[from] Undecided),
    #[error(transparent)]
    Sync(#[from] SyncError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Kill(#[from] CallErrors),
    #[error("containers still run")]
    StillRunning,
    #[error(transparent)]
    Devices(#[from] DraError),
    #[error(transparent)]
    Files(#[from] io::Error),
    #[error(transparent)]
    Delete(Box<Status>),
}

/// How often a static Pod looks whether another one of its name has ended.
const ANOTHER: Duration = Duration::from_secs(1);
/// The message of Pods that make room.
const PREEMPTED: &str = "Preempted in order to admit critical pod";

/// The reason under which a refusal is counted: upstream's list, without the names that others choose.
fn counted(reason: &str) -> &str {
    const KNOWN: [&str; 21] = [
        "AppArmor",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "PodOSNotSupported",
        "InvalidNodeInfo",
        "InitContainerRestartPolicyForbidden",
        "SupplementalGroupsPolicyNotSupported",
        "UnexpectedAdmissionError",
        "UnknownReason",
        "UnexpectedPredicateFailureType",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfephemeral-storage",
        "OutOfpods",
        "PodLevelResourcesNotSupported",
        "PodFeatureUnsupported",
        "node(s) had taints that the pod didn't tolerate",
        "Evicted",
        "SysctlForbidden",
        "TopologyAffinityError",
        "NodeShutdown",
        "VolumeAttachmentLimitExceeded",
    ];
    if KNOWN.contains(&reason) {
        reason
    } else if reason.starts_with("OutOf") {
        "OutOfExtendedResources"
    } else {
        "Other"
    }
}

enum Finish {
    /// Nothing of the Pod is left.
    Done,
    /// The object is still wanted.
    Wait,
}

/// Runs Pods, stops them, and cleans up after them; nobody else does.
pub(crate) struct Lifecycle {
    pub(crate) config: Arc<Config>,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) recorder: PodRecorder,
    pub(crate) node: NodeView,
    pub(crate) pods: Arc<PodManager>,
    pub(crate) workers: Arc<Workers>,
    /// The Pods that this node has taken.
    pub(crate) admission: Arc<Admission>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) volumes: Arc<VolumeManager>,
    pub(crate) devices: Devices,
    pub(crate) managers: Arc<ResourceManagers>,
    /// Know which ids a Pod with users of its own has.
    pub(crate) users: UserNamespaces,
    pub(crate) cgroups: Cgroups,
    pub(crate) prober: Prober,
    pub(crate) killer: Killer,
    pub(crate) observer: Observer,
    pub(crate) reporter: Reporter,
    pub(crate) syncer: Syncer,
    pub(crate) mirrors: Arc<Mirrors>,
    pub(crate) metrics: Metrics,
    /// Told when something may be there that no Pod owns.
    pub(crate) housekeeping: Arc<Notify>,
}

impl Lifecycle {
    /// Works until the Pod is gone from the API and from this node, and reports its status meanwhile.
    pub(crate) async fn run(&self, worker: &Worker) {
        let pod = worker.pod();
        self.metrics.took(
            &metrics::POD_WORKER_START_DURATION_SECONDS,
            &[],
            worker.state.lock().start.seen.elapsed(),
        );
        self.metrics.observe(&metrics::CONTAINERS_PER_POD_COUNT, &[], spec::containers(&pod).len() as f64);
        let mut work = Box::pin(self.work(worker));
        let mut report = Box::pin(self.reporter.run(worker));
        // The worker outlives its reporter by what is left to clean up.
        tokio::select! {
            () = &mut work => {}
            () = &mut report => work.await,
        }
    }

    async fn work(&self, worker: &Worker) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
        loop {
            worker.work.idle().await;
            let (began, phase) = (Instant::now(), worker.phase());
            let step = match phase {
                // Boxed: each of these steps is large, and most of a Pod's time none of them runs.
                Phase::Running => worker.work.scope(Box::pin(self.sync(worker))).await,
                Phase::Terminating => Box::pin(self.end(worker)).await,
                Phase::Terminated => match Box::pin(self.finish(worker)).await {
                    Ok(Finish::Done) => return,
                    Ok(Finish::Wait) => Ok(Step::Wait(None)),
                    Err(error) => Err(error),
                },
            };
            self.stepped(worker, phase, began);
            let wait = match step {
                Ok(Step::Next(phase)) => {
                    worker.advance(phase);
                    backoff.reset();
                    continue;
                }
                Ok(Step::Wait(until)) => {
                    backoff.reset();
                    until
                }
                Err(error) => {
                    let pod = worker.pod();
                    tracing::debug!(pod = spec::full_name(&pod), %error, "Pod not in its wanted state yet");
                    Some(Instant::now() + backoff.delay())
                }
            };
            let running = worker.phase() == Phase::Running;
            tokio::select! {
                () = worker.wake.notified() => {}
                () = tokio::time::sleep_until(wait.unwrap_or_else(Instant::now)), if wait.is_some() => {}
                () = worker.terminate.cancelled(), if running => {}
            }
        }
    }

    /// Counts a step; upstream's words for its kind.
    fn stepped(&self, worker: &Worker, phase: Phase, began: Instant) {
        let first = !std::mem::replace(&mut worker.state.lock().start.synced, true);
        let kind = match phase {
            Phase::Running if first => "create",
            Phase::Running => "sync",
            Phase::Terminating | Phase::Terminated => "kill",
        };
        self.metrics.took(&metrics::POD_WORKER_DURATION_SECONDS, &[kind], began.elapsed());
    }

    /// Admits the Pod if that was not decided yet, and takes a step towards what it wants.
    async fn sync(&self, worker: &Worker) -> Result<Step, WorkError> {
        if worker.terminate.is_cancelled() {
            return Ok(Step::Next(Phase::Terminating));
        }
        if self.waits_for_another(worker) {
            return Ok(Step::Wait(Some(Instant::now() + ANOTHER)));
        }
        let step = async {
            let refusal = self.admission.admit(worker, &self.workers, &self.node).await;
            let refusal = refusal.inspect_err(|why| self.make_room(why))?;
            let refusal = match refusal {
                None => self.give_resources(worker).await,
                refusal => refusal,
            };
            let Some(refusal) = refusal else { return Ok(Box::pin(self.syncer.sync(worker)).await?) };
            let pod = worker.pod();
            self.recorder.pod(&pod, "Warning", &refusal.reason, refusal.message.clone());
            self.metrics.count(&metrics::ADMISSION_REJECTIONS_TOTAL, &[counted(&refusal.reason)]);
            let now = self.clock.now();
            let status = generate::rejected(&pod, &refusal.reason, &refusal.message, now);
            worker.state.lock().rejected = Some(status);
            Ok(Step::Next(Phase::Terminating))
        };
        // A step ends at once when the Pod is to end: a pull or a hook may take minutes. Calls and
        // file work that the step has begun go on, and are waited for before anything else.
        let step = worker.terminate.run_until_cancelled(step).await;
        step.unwrap_or(Ok(Step::Next(Phase::Terminating)))
    }

    /// Gives a Pod its processors, memory and devices when the node has taken it; answers why it is refused after all. One
    /// that goes on from before has them.
    ///
    /// DIFFERENCE: upstream gives resources before it looks at anything else that the node may lack. There, a Pod that is
    /// refused for something else keeps them until the next one comes, and one for which no whole processor is left is
    /// refused with the words of the managers; here it is `OutOfcpu`, and room is made for one that the node depends on.
    async fn give_resources(&self, worker: &Worker) -> Option<Refusal> {
        if worker.state.lock().has_resources {
            return None;
        }
        let goes_on = self.admission.goes_on(&worker.uid);
        if let Some(refusal) = self.managers.admit(&worker.given(), &self.devices.plugins, goes_on).await {
            self.admission.refuse(&worker.uid, refusal.clone());
            return Some(refusal);
        }
        worker.state.lock().has_resources = true;
        None
    }

    /// Whether a static Pod of the same name, whose manifest is gone, still ends here.
    fn waits_for_another(&self, worker: &Worker) -> bool {
        let pod = worker.pod();
        let same = |other: &Pod| {
            spec::name(other) == spec::name(&pod) && spec::namespace(other) == spec::namespace(&pod)
        };
        let ends = |other: &Worker| other.uid != worker.uid && other.state.lock().gone && same(&other.pod());
        spec::is_static(&pod) && self.workers.all().iter().any(|other| ends(other))
    }

    /// Ends the Pods that make room for one that the node depends on.
    fn make_room(&self, why: &Undecided) {
        let Undecided::Preempting { victims, resource } = why else { return };
        for victim in victims {
            let pod = victim.pod();
            self.recorder.pod(&pod, "Warning", "Preempting", PREEMPTED);
            victim.fail(
                Failure {
                    reason: "Preempting".into(),
                    message: PREEMPTED.into(),
                    disruption: Some("Pod was preempted by Kubelet to accommodate a critical pod.".into()),
                    keeps_success: false,
                },
                None,
            );
            self.metrics.count(&metrics::PREEMPTIONS, &[resource]);
        }
    }

    /// Stops the containers.
    async fn end(&self, worker: &Worker) -> Result<Step, WorkError> {
        let observed = self.observer.observe(worker).await?;
        let pod = worker.pod();
        self.prober.follow(&pod, &observed, true);
        let mut grace = worker.grace.subscribe();
        let seconds = *grace.borrow_and_update();
        if observed.running().next().is_some() || observed.sandboxes.iter().any(|s| s.ready) {
            tokio::select! {
                stopped = self.killer.pod(&pod, &observed, seconds) => stopped.inspect_err(|error| {
                    self.recorder.pod(&pod, "Warning", "FailedKillPod", format!("error killing pod: {error}"));
                })?,
                // A shorter grace: begin again with it.
                _ = grace.changed() => return Ok(Step::Next(Phase::Terminating)),
            }
        }
        let observed = self.observer.observe(worker).await?;
        if observed.running().next().is_some() {
            return Err(WorkError::StillRunning);
        }
        // Before the API hears that the Pod has ended: from then on its devices may be others'.
        self.devices.give_back(&pod).await?;
        self.prober.probes.forget(&worker.uid);
        Ok(Step::Next(Phase::Terminated))
    }

    /// Takes away what the Pod had on this node, then the object if it is being deleted.
    async fn finish(&self, worker: &Worker) -> Result<Finish, WorkError> {
        let cleaned = worker.state.lock().cleaned;
        if !cleaned {
            self.clean_up(worker).await?;
        }
        let (pod, gone) = {
            let state = worker.state.lock();
            (state.pod.clone(), state.gone)
        };
        if !gone {
            if pod.metadata.deletion_timestamp.is_none() {
                return Ok(Finish::Wait);
            }
            // The last status first: who watches must see how it ended.
            let mut written = worker.written.subscribe();
            let _ = written.wait_for(|w| *w).await;
            self.delete_object(&pod).await?;
        }
        let observed = self.observer.observe(worker).await?;
        self.killer.remove(&observed).await?;
        self.volumes.remove_pod(&worker.uid).await?;
        let logs = self.config.pod_log_dir(spec::namespace(&pod), spec::name(&pod), &worker.uid);
        try_blocking(move || crate::files::remove_tree(&logs)).await?;
        if self.cgroups.remove(&worker.uid).is_err() {
            self.housekeeping.notify_one();
        }
        self.syncer.resizer.forget(&worker.uid);
        self.workers.remove(&worker.uid);
        self.pods.forget(&worker.uid);
        self.admission.forget(&worker.uid);
        if spec::is_static(&pod) {
            // Its mirror may go now, and it may have come back meanwhile.
            self.mirrors.woken.notify_one();
            self.housekeeping.notify_one();
        }
        Ok(Finish::Done)
    }

    /// Takes away everything but the ended containers and their logs.
    async fn clean_up(&self, worker: &Worker) -> io::Result<()> {
        let uid = &worker.uid;
        self.objects.unregister(uid);
        self.volumes.forget(uid);
        self.syncer.starter.forget(uid);
        self.volumes.remove_volumes(uid).await?;
        if let Err(error) = self.cgroups.remove(uid) {
            // The runtime may still hold it; it is looked for again with what else is left.
            tracing::debug!(uid, %error, "cgroup stays");
        }
        self.users.release(uid).await?;
        self.cgroups.balance(&self.workers.active_pods());
        worker.clean();
        Ok(())
    }

    /// Deletes a Pod's object for good.
    async fn delete_object(&self, pod: &Pod) -> Result<(), WorkError> {
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() }),
            ..DeleteOptions::default()
        };
        let pods = self.client.api::<Pod>(spec::namespace(pod));
        match pods.delete(spec::name(pod), Some(&options)).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => {
                Err(WorkError::Delete(Box::new(error)))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's 22 cases of `TestRecordAdmissionRejection`: but for the last two, a reason is counted as such.
    #[test]
    fn refusals_are_counted_by_their_reason() {
        for reason in [
            "AppArmor",
            "VolumeAttachmentLimitExceeded",
            "PodOSSelectorNodeLabelDoesNotMatch",
            "PodOSNotSupported",
            "InvalidNodeInfo",
            "InitContainerRestartPolicyForbidden",
            "SupplementalGroupsPolicyNotSupported",
            "UnexpectedAdmissionError",
            "UnknownReason",
            "UnexpectedPredicateFailureType",
            "node(s) had taints that the pod didn't tolerate",
            "Evicted",
            "SysctlForbidden",
            "TopologyAffinityError",
            "NodeShutdown",
            "OutOfcpu",
            "OutOfmemory",
            "OutOfephemeral-storage",
            "OutOfpods",
            "PodLevelResourcesNotSupported",
        ] {
            assert_eq!(counted(reason), reason);
        }
        assert_eq!(counted("OutOfgpu"), "OutOfExtendedResources");
        assert_eq!(counted("OtherReason"), "Other");
    }
}
