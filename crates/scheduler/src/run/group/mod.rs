//! The turn of a group of Pods (upstream's `schedule_one_podgroup.go`): all of them are looked at in the same cluster, each as
//! if those before had their nodes ([`turn`]), with a topology constraint once for each placement ([`placements`]). All of
//! that is taken back; then they are bound, or none is. If none is, less important Pods and groups may have to go
//! ([`preempt`]).
//!
//! DIFFERENCE: room is made by preemption for single Pods of a group only if the whole group has nodes then; upstream's
//! plugin begins to make it for each Pod alone. With the gate WorkloadAwarePreemption none is made for single ones.

mod placements;
mod preempt;
#[cfg(test)]
mod tests;
mod turn;

use std::sync::Arc;

use client::Patch;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use serde_json::json;
use tokio::time::Instant;

use super::Scheduler;
use super::metrics::Result as Turn;
use super::pods::scheduler_of;
use super::writes::Nominate;
use crate::cache::Cache;
use crate::cycle::{FitError, Help};
use crate::framework::points::Candidate;
use crate::framework::verdict::Rejection;
use crate::groups::Groups;
use crate::inventory::Devices;
use crate::plugins::pod_group_preemption::Fit;
use crate::pod::PodInfo;
use crate::queue::{Entry, Mark};

/// Upstream's `errPodGroupUnschedulable`.
const UNSCHEDULABLE: &str = "pod group is unschedulable";
const PREEMPTION: &str = "pod group is waiting for preemption to complete";

/// A Pod of the group in its turn.
struct Member {
    entry: Entry,
    mark: Mark,
}

/// The end of a Pod's part of the turn.
#[derive(Debug)]
enum End {
    /// It has a node; `waits`: why plugins would not let it be bound yet, "" if they would.
    Node { node: String, waits: String },
    /// It would have one if others went.
    Room { error: Box<FitError>, candidate: Candidate, waits: String },
    /// It has none.
    Refused(Box<FitError>, Help),
    /// There is no decision.
    Error(String),
}

/// The end of the group's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Scheduled,
    /// It is not.
    Refused {
        /// In upstream's words.
        why: String,
        /// It is once others are gone that are going to.
        waits: bool,
        /// Others' going could not change it.
        lasting: bool,
    },
    Error(String),
}

/// A try of a group: the ends of its Pods, in their order; fewer, if the turn ended before.
#[derive(Debug)]
struct Tried {
    ends: Vec<End>,
    outcome: Outcome,
}

impl Tried {
    /// The turn ended before any Pod was looked at.
    fn nobody(outcome: Outcome) -> Self {
        Self { ends: Vec::new(), outcome }
    }
}

impl Outcome {
    /// Upstream's label of the result.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Refused { waits: true, .. } => "waiting_on_preemption",
            Self::Refused { .. } => "unschedulable",
            Self::Error(_) => "error",
        }
    }

    /// Nothing helps but a change of the cluster.
    fn refused(why: impl Into<String>) -> Self {
        Self::Refused { why: why.into(), waits: false, lasting: false }
    }

    /// The answer of a plugin about the whole group.
    fn rejected(rejection: &Rejection) -> Self {
        let why = rejection.reasons.join(", ");
        match rejection {
            Rejection { failed: true, .. } => Self::Error(why),
            Rejection { unresolvable: lasting, .. } => Self::Refused { why, waits: false, lasting: *lasting },
        }
    }

    /// The end of a group of which these are the ends (upstream's `podGroupSchedulingDefaultAlgorithm`): it can be bound
    /// once the plugins permit one of its Pods.
    fn of<'e>(ends: impl IntoIterator<Item = &'e End>) -> Self {
        let (mut permitted, mut room) = (false, false);
        for end in ends {
            match end {
                End::Error(why) => {
                    return Self::Error(format!("failed to schedule other pod from a pod group: {why}"));
                }
                End::Node { waits, .. } => permitted |= waits.is_empty(),
                End::Room { waits, .. } => {
                    room = true;
                    permitted |= waits.is_empty();
                }
                End::Refused(..) => {}
            }
        }
        match (permitted, room) {
            (false, _) => Self::refused(UNSCHEDULABLE),
            (true, true) => {
                let why = format!("{UNSCHEDULABLE}, {PREEMPTION}");
                Self::Refused { why, waits: true, lasting: false }
            }
            (true, false) => Self::Scheduled,
        }
    }

    /// The same after the answer of preemption for the whole group.
    fn after(self, room: Result<(), Fit>) -> Self {
        match (self, room) {
            (Self::Refused { why, lasting, .. }, Ok(())) => Self::Refused { why, waits: true, lasting },
            (Self::Refused { why, waits, lasting }, Err(Fit::No(more))) => {
                Self::Refused { why: format!("{why}, {more}"), waits, lasting }
            }
            (_, Err(Fit::Error(why))) => Self::Error(why),
            (same, _) => same,
        }
    }

    /// Status, reason and message of the group's condition.
    fn condition(&self) -> [&str; 3] {
        match self {
            Self::Scheduled => ["True", "Scheduled", ""],
            Self::Refused { why, .. } => ["False", "Unschedulable", why],
            Self::Error(why) => ["False", "SchedulerError", why],
        }
    }
}

/// The meaning of the turn's end for one of the group's Pods (upstream's `submitPodGroupAlgorithmResult`).
#[derive(Debug)]
enum Fate {
    /// It is bound to this node.
    Bound(String),
    /// It has no node, for its own reasons.
    Failed(Box<FitError>, Help),
    /// It waits with the group, for this reason.
    HeldBack(String, Nominate),
    /// It is tried again after an error.
    Errored(String),
}

impl Fate {
    fn of(outcome: &Outcome, end: Option<End>) -> Self {
        let held = |waits: &str| {
            let all = [UNSCHEDULABLE, waits];
            let why = all.into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(", ");
            Self::HeldBack(why, Nominate::Node(String::new()))
        };
        match (outcome, end) {
            (Outcome::Error(_), Some(End::Error(own))) => Self::Errored(own),
            (Outcome::Error(why), _) => Self::Errored(why.clone()),
            (_, Some(End::Refused(error, help))) => Self::Failed(error, help),
            (Outcome::Scheduled, Some(End::Node { node, .. })) => Self::Bound(node),
            (Outcome::Refused { waits: true, .. }, Some(End::Room { error, candidate, .. })) => {
                Self::Failed(error, Help::Room(candidate))
            }
            (Outcome::Refused { why, waits: true, .. }, Some(End::Node { node, .. })) => {
                Self::HeldBack(why.clone(), Nominate::Node(node))
            }
            (_, Some(End::Node { waits, .. } | End::Room { waits, .. })) => held(&waits),
            (Outcome::Refused { why, .. }, None) => Self::HeldBack(why.clone(), Nominate::Keep),
            (_, None | Some(End::Error(_))) => Self::Errored("the turn of its group ended".to_owned()),
        }
    }
}

/// A group's turn is going on as long as this is there.
struct Going {
    devices: Devices,
    groups: Groups,
}

impl Going {
    fn on(cache: &Cache, pod: &PodInfo) -> Self {
        let (devices, groups) = (cache.devices().clone(), cache.groups().clone());
        devices.write().begin_turn();
        groups.begin_turn(pod);
        Self { devices, groups }
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.devices.write().end_turn();
        self.groups.end_turn();
    }
}

impl Scheduler {
    /// The turn of a Pod's group: of the Pod, and of all others of it that may have one.
    pub(super) async fn try_group(&mut self, entry: Entry, mark: Mark) {
        let (pod, start) = (entry.info.clone(), Instant::now());
        let mut group = vec![Member { entry, mark }];
        let others: Vec<Arc<str>> =
            self.cache.groups().members(&pod, |all| all.unplaced().cloned().collect());
        for uid in others {
            if &*uid == pod.uid() || self.preempting.contains(&*uid) {
                continue;
            }
            let Some((mut entry, mark)) = self.queue.pop_this(&uid, start) else { continue };
            let refused = std::mem::take(&mut entry.refused_by);
            self.metrics.refused(&refused, scheduler_of(&entry.info), false);
            group.push(Member { entry, mark });
        }
        group.sort_by_key(|m| (-i64::from(m.entry.info.priority()), m.entry.since));
        let scheduler = scheduler_of(&pod).to_owned();
        let others = group.iter().map(|m| scheduler_of(&m.entry.info)).find(|name| *name != scheduler);
        if let Some(other) = others {
            let why = format!(
                "all pods in a single pod group should have the same .spec.schedulerName set, got: {scheduler:?} and {other:?}"
            );
            for member in group {
                self.errored(member.entry, &why);
            }
            return;
        }
        let _going_on = Going::on(&self.cache, &pod);
        let pods: Vec<PodInfo> = group.iter().map(|m| m.entry.info.clone()).collect();
        let Tried { ends, outcome } = self.attempt(&pods, start).await;
        let mut ends = ends.into_iter();
        for Member { entry, mark } in group {
            match Fate::of(&outcome, ends.next()) {
                Fate::Bound(node) => self.placed(entry, mark, node).await,
                Fate::Failed(error, help) => self.failed(entry, &mark, *error, help),
                Fate::HeldBack(why, nominate) => self.held_back(entry, &why, nominate),
                Fate::Errored(why) => self.errored(entry, &why),
            }
        }
        self.metrics.group_ended(&scheduler, outcome.name(), start.elapsed());
        self.tell_group(&pod, &outcome);
    }

    /// Looks for nodes for all of them; if there are none, for others that may go.
    async fn attempt(&mut self, pods: &[PodInfo], start: Instant) -> Tried {
        let mut tried = self.try_all(pods, false).await;
        self.metrics.group_decided(start.elapsed());
        if self.by_group && matches!(tried.outcome, Outcome::Refused { lasting: false, .. }) {
            let room = self.make_room(pods).await;
            tried.outcome = tried.outcome.after(room);
        }
        tried
    }

    /// The Pod has to wait for others of its group; the group is tried again when it has backed off.
    fn held_back(&mut self, entry: Entry, why: &str, nominate: Nominate) {
        match &nominate {
            Nominate::Node(node) if node.is_empty() => self.nominated.remove(entry.info.uid()),
            Nominate::Node(node) => self.nominated.set(entry.info.clone(), node),
            Nominate::Keep => {}
        }
        self.metrics.ended(scheduler_of(&entry.info), Turn::Unschedulable, entry.tried.elapsed());
        self.report(&entry.info, "Unschedulable", why, nominate);
        self.queue.errored(entry, Instant::now());
    }

    /// Says in the group's status how its turn ended. It was scheduled once it was, whatever happens to further Pods.
    fn tell_group(&self, pod: &PodInfo, outcome: &Outcome) {
        let Some(group) = self.cache.groups().of(pod) else { return };
        let [status, reason, message] = outcome.condition();
        let said = group.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        let before = said.iter().find(|c| c.type_ == "PodGroupScheduled");
        let same = |c: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
            c.status == status
                && c.reason == reason
                && c.message == message
                && c.observed_generation == group.metadata.generation
        };
        if before.is_some_and(|c| same(c) || c.status == "True" && status != "True") {
            return;
        }
        let now = self.clock.now();
        let since = before.filter(|c| c.status == status).map_or(now, |c| c.last_transition_time.0);
        let patch = json!({"metadata": {"uid": group.metadata.uid}, "status": {"conditions": [{
            "type": "PodGroupScheduled", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": api::time::format(since).as_str(),
            "observedGeneration": group.metadata.generation,
        }]}});
        let (client, namespace) = (self.client.clone(), pod.namespace().to_owned());
        let name = pod.group().unwrap_or_default().to_owned();
        self.aside(async move {
            let groups = client.api::<PodGroup>(&namespace);
            match groups.patch_status(&name, &Patch::Strategic(patch)).await {
                Err(e) if !e.is_not_found() && !e.is_conflict() => {
                    tracing::warn!(podgroup = name, namespace, error = %e, "the condition PodGroupScheduled was not written");
                }
                _ => {}
            }
        });
    }
}
