//! Decides what becomes of a StatefulSet's Pods and claims. Pure.
//!
//! Pods come and go one after the other, each only when those before it are available ([`set::is_parallel`] says
//! otherwise). A set looks at its wanted Pods first, then at those that it no longer wants, and updates Pods only when
//! nothing else is left to do.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use k8s_openapi::api::apps::v1::StatefulSetStatus;
use k8s_openapi::api::core::v1::Pod;

use super::identity::{self, Revision};
use super::snapshot::{Snapshot, is_running_and_ready, references, revision_of};
use super::{set, status};
use crate::common::{deleting, retry};
use crate::views::PodView;

/// The greatest number of Pods that one sync makes.
const BURST: usize = 500;

/// One thing to do.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Make the Pod with this ordinal, and its claims before.
    Create(i64, Box<Pod>),
    /// Delete a Pod.
    Delete(Arc<PodView>),
    /// Make the claims that a Pod lacks, and give all of its claims the right owners.
    MakeClaims(i64, Arc<PodView>),
    /// Give a Pod's claims the right owners.
    OwnClaims(i64, Arc<PodView>),
    /// Give a Pod its identity and its volumes, and its claims the right owners.
    Mend(i64, Arc<PodView>),
    /// Delete a Pod so that it is made anew by the update revision.
    Update(Arc<PodView>),
}

/// Steps that belong together.
#[derive(Debug, Clone, Default)]
pub(super) struct Phase {
    pub(super) steps: Vec<Step>,
    /// Whether the steps are taken at the same time, few at first.
    pub(super) at_once: bool,
}

/// The work of one sync.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The things to do, one after the other until something fails.
    pub(super) phases: Vec<Phase>,
    /// The status of the Pods as they are.
    pub(super) status: StatefulSetStatus,
    /// The time until another Pod is available, or another sync is needed.
    pub(super) again: Option<Duration>,
}

/// Decides.
///
/// # Errors
/// The revision's template is of no use.
pub(super) fn plan(s: &Snapshot<'_>) -> Result<Plan, Status> {
    let mut plan = Plan { phases: Vec::new(), status: status::of(s), again: s.next_check() };
    if deleting(&s.set.metadata) {
        return Ok(plan);
    }
    let at_once = set::is_parallel(s.set);
    let (steps, waits) = s.wanted_pods()?;
    plan.phases.push(Phase { steps, at_once });
    if waits {
        return Ok(plan);
    }
    let condemned: Vec<_> = s.condemned().rev().collect();
    let wrong = condemned.iter().filter(|(ordinal, pod)| !s.claims_are_right(**ordinal, pod));
    let steps = wrong.map(|(ordinal, pod)| Step::OwnClaims(**ordinal, (*pod).clone())).collect();
    plan.phases.push(Phase { steps, at_once });
    let (steps, waits) = s.condemned_pods(&condemned);
    plan.phases.push(Phase { steps, at_once });
    if !waits && !set::is_on_delete(s.set) {
        let steps = s.updates()?.into_iter().map(Step::Update).collect();
        plan.phases.push(Phase { steps, at_once: false });
    }
    plan.phases.retain(|phase| !phase.steps.is_empty());
    Ok(plan)
}

impl Snapshot<'_> {
    /// Returns the revision by which a Pod is made.
    fn revision(&self, ordinal: i64) -> &Revision {
        let kept = match set::partition(self.set) {
            Some(partition) => partition,
            None if set::is_rolling(self.set) => {
                self.set.status.as_ref().and_then(|s| s.current_replicas).unwrap_or(0).into()
            }
            None => 0,
        };
        if ordinal < set::start(self.set) + kept { &self.current } else { &self.update }
    }

    /// Returns the names of the claims of a Pod.
    fn claim_names(&self, ordinal: i64) -> impl Iterator<Item = String> {
        set::claim_templates(self.set).iter().map(move |t| identity::claim_name(self.set, t, ordinal))
    }

    fn claims_are_right(&self, ordinal: i64, pod: &PodView) -> bool {
        let owners = self.owners(ordinal, pod.name(), pod.uid());
        self.claim_names(ordinal).filter_map(|n| (self.claim)(&n)).all(|c| owners.are_right(references(&c)))
    }

    /// Whether a claim of a Pod that is to be made will go with an earlier Pod of its name.
    fn has_stale_claim(&self, ordinal: i64, pod: &str) -> bool {
        let owners = self.owners(ordinal, pod, "");
        let mut all = self.claim_names(ordinal);
        set::retention(self.set).with_pod
            && all.any(|name| (self.claim)(&name).is_some_and(|c| owners.is_pod_stale(references(&c))))
    }

    /// Decides on the Pods that the set wants; also whether all else waits for them.
    fn wanted_pods(&self) -> Result<(Vec<Step>, bool), Status> {
        let (mut steps, mut made, monotonic) = (Vec::new(), 0, !set::is_parallel(self.set));
        for ordinal in set::ordinals(self.set) {
            let Some(pod) = self.pods.get(&ordinal) else {
                let name = identity::pod_name(self.set, ordinal);
                if !self.has_stale_claim(ordinal, &name) {
                    if made == BURST {
                        return Ok((steps, true));
                    }
                    made += 1;
                    let pod = identity::pod(self.set, self.revision(ordinal), ordinal)?;
                    steps.push(Step::Create(ordinal, Box::new(pod)));
                }
                if monotonic {
                    return Ok((steps, true));
                }
                continue;
            };
            let ended = pod.is_terminal();
            if ended && !pod.is_deleting() {
                steps.push(Step::Delete(pod.clone()));
            } else if !ended {
                self.keep(ordinal, pod, monotonic && !self.is_settled(pod), &mut steps);
            }
            if monotonic && (ended || !self.is_settled(pod)) {
                return Ok((steps, true));
            }
        }
        Ok((steps, false))
    }

    /// Decides on a Pod that is to stay.
    fn keep(&self, ordinal: i64, pod: &Arc<PodView>, waits: bool, steps: &mut Vec<Step>) {
        let right = self.claims_are_right(ordinal, pod);
        let pending = pod.phase == "Pending";
        let lacks = |name: String| (self.claim)(&name).is_none_or(|c| deleting(&c.metadata));
        if pending && (!right || self.claim_names(ordinal).any(lacks)) {
            steps.push(Step::MakeClaims(ordinal, pod.clone()));
        }
        let whole = identity::has_identity(pod) && identity::has_storage(self.set, ordinal, pod);
        if !waits && !(whole && (right || pending)) {
            steps.push(Step::Mend(ordinal, pod.clone()));
        }
    }

    /// Decides on the Pods that the set does not want, the last one first; also whether updates wait for them.
    fn condemned_pods(&self, condemned: &[(&i64, &Arc<PodView>)]) -> (Vec<Step>, bool) {
        if set::is_parallel(self.set) {
            let rest = condemned.iter().filter(|(_, pod)| !pod.is_deleting());
            return (rest.map(|(_, pod)| Step::Delete((*pod).clone())).collect(), false);
        }
        let Some((_, last)) = condemned.first() else { return (Vec::new(), false) };
        // The first Pod that is broken is no reason to wait: it would hold up the set for ever.
        let all = self.wanted().chain(self.condemned());
        let broken = all.map(|(_, pod)| pod).find(|pod| self.is_unavailable(pod));
        let is_broken = broken.is_some_and(|broken| broken.uid() == last.uid());
        let goes = !last.is_deleting() && (is_broken || self.is_settled(last));
        (goes.then(|| Step::Delete((*last).clone())).into_iter().collect(), true)
    }

    /// Returns the Pods that are deleted for the update, the last one first.
    fn updates(&self) -> Result<Vec<Arc<PodView>>, Status> {
        let first = set::start(self.set) + set::partition(self.set).unwrap_or(0);
        let is_old = |pod: &PodView| revision_of(pod) != self.update.name && !pod.is_deleting();
        if !self.counts_unavailable {
            let all = set::ordinals(self.set);
            for ordinal in (first.max(all.start)..all.end).rev() {
                match self.pods.get(&ordinal) {
                    Some(pod) if is_old(pod) => return Ok(vec![pod.clone()]),
                    Some(pod) if !self.is_unavailable(pod) => {}
                    _ => break,
                }
            }
            return Ok(Vec::new());
        }
        let may = set::max_unavailable(self.set).map_err(retry)?;
        let room = usize::try_from(may - self.unavailable()).unwrap_or(0);
        let old = self.wanted().rev().filter(|(ordinal, pod)| **ordinal >= first && is_old(pod));
        Ok(old.map(|(_, pod)| pod.clone()).take(room).collect())
    }

    fn next_check(&self) -> Option<Duration> {
        let min_ready = set::min_ready(self.set);
        let waits = self.pods.values().filter(|pod| is_running_and_ready(pod));
        waits.filter_map(|pod| pod.available_in(min_ready, self.now)).min()
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
