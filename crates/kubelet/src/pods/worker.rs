//! One worker a Pod: the state that the worker and those who look at it share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiStatus, ResourceRequirements};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::allocation::{self, Allocation, Pending};
use super::observed::PodStatus;
use super::spec;
use super::startup::Start;
use crate::status::generate::{Failure, Waiting};
use crate::work::Work;

/// The first and the last delay after which volumes are tried again; upstream's.
const REMOUNT_FIRST: Duration = Duration::from_millis(500);
const REMOUNT_LAST: Duration = Duration::from_secs(122);

/// Resources that running containers were given, by CRI id.
pub(crate) type Actuated = HashMap<String, ResourceRequirements>;

/// The phase of a worker. It only ever goes forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The Pod is to run.
    Running,
    /// Its containers are being stopped.
    Terminating,
    /// Its containers are gone for good.
    Terminated,
}

/// The state that a worker and those who look at it share.
pub(crate) struct State {
    pub(crate) pod: Arc<Pod>,
    pub(crate) phase: Phase,
    pub(crate) observed: Arc<PodStatus>,
    /// Whether the runtime was asked at least once.
    pub(crate) looked: bool,
    /// Containers that could not be started, and why.
    pub(crate) waiting: Waiting,
    /// Why the Pod failed, if not by its containers.
    pub(crate) failed: Option<Failure>,
    /// The status of a Pod that this node refused.
    pub(crate) rejected: Option<ApiStatus>,
    /// The status that was computed last.
    pub(crate) status: ApiStatus,
    /// The status that the API is known to have, and its revision.
    pub(crate) sent: ApiStatus,
    pub(crate) sent_revision: u64,
    /// The mirror that the API has of a static Pod.
    pub(crate) mirror: Option<Arc<Pod>>,
    /// Whether everything on this node is gone but what logs are read from.
    pub(crate) cleaned: bool,
    /// Whether the object is gone from the API.
    pub(crate) gone: bool,
    /// How often in a row volumes could not be brought up to date.
    pub(crate) stale: u32,
    /// Why the last attempt to resize failed.
    pub(crate) resize_error: Option<String>,
    /// The resources that the containers are given; none before they were looked at.
    pub(crate) allocated: Option<Allocation>,
    /// The generation of the object when that was decided last; none before.
    pub(crate) decided: Option<i64>,
    /// Why the node does not give what the Pod asks for by now.
    pub(crate) pending: Option<Pending>,
    /// Resources that running containers were given, by CRI id, with the Pod's own limits where a container has none.
    pub(crate) actuated: Actuated,
    /// The Pod's own resources by which its cgroup was set; none before this kubelet has set or looked at it.
    pub(crate) actuated_whole: Option<ResourceRequirements>,
    /// The generation of the object whose resize is under way.
    pub(crate) resizing: Option<i64>,
    /// Whether the Pod has the processors, memory and devices that it asks for.
    pub(crate) has_resources: bool,
    /// How its start goes, for the counters.
    pub(crate) start: Start,
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
    pub(super) terminate: CancellationToken,
    /// The grace in seconds with which they are; it only shrinks.
    pub(crate) grace: watch::Sender<Option<i64>>,
    /// The last status was written, or nobody wants it any more.
    pub(super) written: watch::Sender<bool>,
    /// Everything on this node is gone but what logs are read from.
    pub(crate) cleaned: watch::Sender<bool>,
    /// File work under way.
    pub(super) work: Work,
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

/// The shorter one of two graces in seconds, each none if nobody has asked for one. There is always one second, in which
/// hooks can run; upstream's `calculateEffectiveGracePeriod`.
fn shorter(now: Option<i64>, asked: Option<i64>) -> Option<i64> {
    now.into_iter().chain(asked.map(|asked| asked.max(1))).min()
}

impl Worker {
    /// A worker for a Pod that the API has.
    pub(crate) fn new(pod: Arc<Pod>) -> Arc<Self> {
        let status = spec::status(&pod).clone();
        // A kubelet that starts anew goes on with what the one before told of.
        let mut all = status.conditions.iter().flatten();
        let resize = all.rfind(|c| c.type_ == "PodResizeInProgress" && c.status == "True");
        let (resizing, failed) = resize
            .map(|c| {
                (c.observed_generation, c.message.clone().filter(|_| c.reason.as_deref() == Some("Error")))
            })
            .unwrap_or_default();
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
                mirror: None,
                cleaned: false,
                gone: false,
                stale: 0,
                resize_error: failed,
                allocated: None,
                decided: None,
                pending: None,
                actuated: Actuated::new(),
                actuated_whole: None,
                resizing,
                has_resources: false,
                start: Start::new(spec::status(&pod)),
                pod: pod.clone(),
            }),
            wake: Notify::new(),
            report: Notify::new(),
            terminate: CancellationToken::new(),
            grace: watch::Sender::new(None),
            written: watch::Sender::new(false),
            cleaned: watch::Sender::new(false),
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

    /// Takes what the API has for a static Pod: its status is told there.
    pub(crate) fn mirrored(&self, mirror: Option<Arc<Pod>>) {
        let mut state = self.state.lock();
        if let Some(new) = &mirror {
            let same = state.mirror.as_ref().is_some_and(|old| spec::uid(old) == spec::uid(new));
            if !same || revision(new) >= state.sent_revision {
                state.sent = spec::status(new).clone();
                state.sent_revision = revision(new);
            }
        }
        state.mirror = mirror;
        drop(state);
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
        self.grace.send_if_modified(|now| {
            let next = shorter(*now, grace);
            std::mem::replace(now, next) != next
        });
        self.terminate.cancel();
    }

    /// Ends the Pod as failed.
    pub(crate) fn fail(&self, why: Failure, grace: Option<i64>) {
        self.state.lock().failed.get_or_insert(why);
        self.stop(grace);
        self.changed();
    }

    /// Wakes the worker and the reporter.
    pub(crate) fn changed(&self) {
        self.wake.notify_one();
        self.report.notify_one();
    }

    /// Notes that everything on this node is gone but what logs are read from.
    pub(crate) fn clean(&self) {
        self.state.lock().cleaned = true;
        self.cleaned.send_replace(true);
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
    pub(crate) fn note(&self, observed: Arc<PodStatus>) {
        let mut state = self.state.lock();
        state.actuated.retain(|id, _| observed.containers.iter().any(|c| c.id == *id));
        state.observed = observed;
        state.looked = true;
        drop(state);
        self.report.notify_one();
    }

    /// Notes why a container does not run: reason and message; none once it does.
    pub(crate) fn waits(&self, container: &str, why: Option<(String, String)>) {
        let mut state = self.state.lock();
        match why {
            Some(why) => state.waiting.insert(container.to_owned(), why),
            None => state.waiting.remove(container),
        };
        drop(state);
        self.report.notify_one();
    }

    /// The phase that the worker is in.
    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Goes on to a phase.
    pub(crate) fn advance(&self, phase: Phase) {
        let mut state = self.state.lock();
        state.phase = state.phase.max(phase);
        drop(state);
        self.report.notify_one();
    }

    /// When the Pod has run as long as it may; none if it may run for ever, or has not started.
    pub(crate) fn deadline(&self, pod: &Pod) -> Option<Timestamp> {
        let seconds = spec::spec(pod).active_deadline_seconds?;
        let start = self.state.lock().status.start_time.as_ref()?.0;
        start.checked_add(SignedDuration::from_secs(seconds)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Upstream's other tests in pod_workers_test.go are about the queue of its workers and the order of their updates; a
    // worker here is one future that looks at the newest state.

    /// Upstream's 5 Pods of `TestActiveDeadlineHandler`: when one started, and how long it may run; it is 100 s.
    #[test]
    fn a_pod_may_run_so_long() {
        let now = Timestamp::from_second(100).unwrap();
        for (started, seconds, over) in [
            (Some("1970-01-01T00:00:40Z"), Some(30), true),
            (Some("1970-01-01T00:00:40Z"), Some(120), false),
            (Some("1970-01-01T00:00:40Z"), None, false),
            (None, Some(120), false),
            (None, None, false),
        ] {
            let pod: Pod = serde_json::from_value(serde_json::json!({"status": {"startTime": started},
                "spec": {"containers": [], "activeDeadlineSeconds": seconds}}))
            .unwrap();
            let pod = Arc::new(pod);
            let worker = Worker::new(pod.clone());
            assert_eq!(worker.deadline(&pod).is_some_and(|at| at <= now), over, "{started:?} {seconds:?}");
        }
    }

    /// Upstream's cases of `Test_calculateEffectiveGracePeriod` but for the first one, in which nobody asks: the Pod's own grace
    /// is the killer's affair then (`kill.rs`). The columns are what is asked for, one after the other.
    #[test]
    fn graces_only_shrink() {
        let check = |asked: &[Option<i64>], expected: Option<i64>| {
            let got = asked.iter().fold(None, |now, asked| shorter(now, *asked));
            assert_eq!(got, expected, "{asked:?}");
        };
        check(&[None], None);
        check(&[Some(5)], Some(5));
        check(&[Some(5), Some(2)], Some(2));
        check(&[Some(0)], Some(1));
        check(&[Some(5), Some(0)], Some(1));
        check(&[Some(2), Some(5), None], Some(2));
        check(&[Some(-1)], Some(1));
    }
}
