//! The turn of a group of Pods: all of them are looked at in the same cluster, each as if those before had their nodes; then
//! they are bound, or none is (upstream's `schedule_one_podgroup.go`).
//!
//! DIFFERENCE: room is made by preemption only if the whole group has nodes then; upstream's plugin begins to make it for
//! each Pod alone. The gates TopologyAwareWorkloadScheduling and WorkloadAwarePreemption have no effect.

use std::sync::Arc;

use client::Patch;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use serde_json::json;
use tokio::time::Instant;

use super::Scheduler;
use super::metrics::Result as Turn;
use super::pods::scheduler_of;
use super::way::Failure;
use super::writes::Nominate;
use crate::cycle::{Decision, FitError, Help};
use crate::framework::points::Candidate;
use crate::framework::state::State;
use crate::framework::times::{Times, sampled};
use crate::framework::verdict::{Rejection, Verdicts};
use crate::plugins::gang_scheduling;
use crate::pod::PodInfo;
use crate::queue::{Entry, Mark};

const PREEMPTION: &str = "pod group is waiting for preemption to complete";
const PERMIT: &str = "one or more plugins asked to wait and no plugin rejected pod";

/// A Pod of the group in its turn.
struct Member {
    entry: Entry,
    mark: Mark,
    end: End,
}

/// The end of a Pod's part of the turn.
enum End {
    /// The group's turn ended before.
    Untried,
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
    /// It would be scheduled if others went.
    WaitsForRoom,
    Unschedulable,
    Error(String),
}

impl Outcome {
    /// Upstream's label of the result.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::WaitsForRoom => "waiting_on_preemption",
            Self::Unschedulable => "unschedulable",
            Self::Error(_) => "error",
        }
    }

    /// The end of a group of which these are the ends (upstream's `podGroupSchedulingDefaultAlgorithm`): it can be bound
    /// once the plugins permit one of its Pods.
    fn of<'e>(ends: impl Iterator<Item = &'e End>) -> Self {
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
                End::Refused(..) | End::Untried => {}
            }
        }
        match (permitted, room) {
            (false, _) => Self::Unschedulable,
            (true, true) => Self::WaitsForRoom,
            (true, false) => Self::Scheduled,
        }
    }

    /// Status, reason and message of the group's condition.
    fn condition(&self) -> [&str; 3] {
        match self {
            Self::Scheduled => ["True", "Scheduled", ""],
            Self::WaitsForRoom => ["False", "Unschedulable", PREEMPTION],
            Self::Unschedulable => ["False", "Unschedulable", ""],
            Self::Error(why) => ["False", "SchedulerError", why],
        }
    }
}

/// A Pod that is taken to be on a node for the rest of the turn.
struct Assumed {
    pod: PodInfo,
    node: String,
    carried: State,
    victims: Vec<PodInfo>,
}

impl Scheduler {
    /// The turn of a Pod's group: of the Pod, and of all others of it that may have one.
    pub(super) async fn try_group(&mut self, entry: Entry, mark: Mark) {
        let (pod, start) = (entry.info.clone(), Instant::now());
        let mut group = vec![Member { entry, mark, end: End::Untried }];
        let others: Vec<Arc<str>> =
            self.cache.groups().members(&pod, |all| all.unplaced().cloned().collect());
        for uid in others {
            if &*uid == pod.uid() || self.preempting.contains(&*uid) {
                continue;
            }
            let Some((mut entry, mark)) = self.queue.pop_this(&uid, start) else { continue };
            let refused = std::mem::take(&mut entry.refused_by);
            self.metrics.refused(&refused, scheduler_of(&entry.info), false);
            group.push(Member { entry, mark, end: End::Untried });
        }
        group.sort_by_key(|m| (-i64::from(m.entry.info.priority()), m.entry.since));
        let scheduler = scheduler_of(&pod).to_owned();
        let others = group.iter().map(|m| scheduler_of(&m.entry.info)).find(|name| *name != scheduler);
        let outcome = match others {
            Some(other) => Outcome::Error(format!(
                "all pods in a single pod group should have the same .spec.schedulerName set, got: {scheduler:?} and {other:?}"
            )),
            None => self.attempt(&mut group).await,
        };
        self.metrics.group_decided(start.elapsed());
        for member in group {
            self.settle(member, &outcome).await;
        }
        self.metrics.group_ended(&scheduler, outcome.name(), start.elapsed());
        self.tell_group(&pod, &outcome);
    }

    /// Looks for nodes for all of them.
    async fn attempt(&mut self, group: &mut [Member]) -> Outcome {
        let mut assumed = Vec::new();
        for member in group.iter_mut() {
            let pod = member.entry.info.clone();
            member.end = match self.decide(&pod).await {
                Decision::Node(node) => match self.assume_member(&pod, &node, &[], &mut assumed) {
                    Ok(waits) => End::Node { node, waits },
                    Err(end) => end,
                },
                Decision::Unschedulable(error, Help::Room(candidate)) => {
                    match self.assume_member(&pod, &candidate.node, &candidate.victims, &mut assumed) {
                        Ok(waits) => End::Room { error, candidate, waits },
                        Err(end) => end,
                    }
                }
                Decision::Unschedulable(error, help) => End::Refused(error, help),
                Decision::Error(why) => End::Error(why),
            };
            if let End::Error(_) = member.end {
                break;
            }
        }
        for Assumed { pod, node, mut carried, victims } in assumed.into_iter().rev() {
            if let Some(profile) = self.profiles.get(scheduler_of(&pod)) {
                self.give_back(profile, &pod, &node, &mut carried);
            }
            self.cache.forget(pod.uid());
            for victim in victims {
                self.cache.set_pod(victim, &node);
            }
        }
        Outcome::of(group.iter().map(|m| &m.end))
    }

    /// Takes a Pod to be on a node, and its victims to be gone; says why plugins would let it wait there.
    fn assume_member(
        &mut self,
        pod: &PodInfo,
        node: &str,
        victims: &[PodInfo],
        assumed: &mut Vec<Assumed>,
    ) -> Result<String, End> {
        for victim in victims {
            self.cache.remove_pod(victim.uid());
        }
        self.cache.assume(pod.clone(), node);
        let (mut carried, mut times) = (State::default(), Times::default());
        times.begin(sampled());
        let answer = self.ask(pod, node, &mut carried, &mut times);
        self.metrics.took(scheduler_of(pod), &times);
        let mut this =
            Assumed { pod: pod.clone(), node: node.to_owned(), carried, victims: victims.to_vec() };
        match answer {
            Ok(permits) => {
                assumed.push(this);
                let gang = permits.waits.contains_key(gang_scheduling::NAME);
                let reasons = [gang_scheduling::WAITS, PERMIT];
                let from = usize::from(!gang);
                Ok(if permits.waits.is_empty() { String::new() } else { reasons[from..].join(", ") })
            }
            Err(failure) => {
                if let Some(profile) = self.profiles.get(scheduler_of(pod)) {
                    self.give_back(profile, pod, node, &mut this.carried);
                }
                self.cache.forget(pod.uid());
                for victim in this.victims {
                    self.cache.set_pod(victim, node);
                }
                Err(match failure {
                    Failure::Refused(rejection) if rejection.failed => {
                        End::Error(rejection.reasons.join(", "))
                    }
                    Failure::Refused(rejection) => End::Refused(Box::new(one(rejection)), Help::Clear),
                    Failure::Failed { why, .. } => End::Error(why),
                })
            }
        }
    }

    /// Does with a Pod what the end of its group's turn means.
    async fn settle(&mut self, member: Member, outcome: &Outcome) {
        let Member { entry, mark, end } = member;
        match (outcome, end) {
            (Outcome::Error(why), end) => {
                let own = if let End::Error(own) = end { own } else { why.clone() };
                self.errored(entry, &own);
            }
            (_, End::Refused(error, help)) => self.failed(entry, &mark, *error, help),
            (Outcome::Scheduled, End::Node { node, .. }) => self.placed(entry, mark, node).await,
            (Outcome::WaitsForRoom, End::Room { error, candidate, .. }) => {
                self.failed(entry, &mark, *error, Help::Room(candidate));
            }
            (Outcome::WaitsForRoom, End::Node { node, .. }) => {
                self.nominated.set(entry.info.clone(), &node);
                self.held_back(entry, PREEMPTION, Nominate::Node(node));
            }
            (_, End::Node { waits, .. } | End::Room { waits, .. }) => {
                self.nominated.remove(entry.info.uid());
                self.held_back(entry, &waits, Nominate::Node(String::new()));
            }
            (_, End::Untried | End::Error(_)) => self.errored(entry, "the turn of its group ended"),
        }
    }

    /// The Pod has to wait for others of its group; the group is tried again when it has backed off.
    fn held_back(&mut self, entry: Entry, why: &str, nominate: Nominate) {
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

/// The error of a Pod that the plugins do not want on the node that was chosen.
fn one(rejection: Rejection) -> FitError {
    let mut verdicts = Verdicts::all(1);
    verdicts.set(0, Err(rejection));
    FitError { nodes: 1, verdicts, ..FitError::default() }
}
