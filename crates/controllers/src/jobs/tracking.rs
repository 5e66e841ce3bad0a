//! The counting of a Job's ended Pods: pure.
//!
//! A Pod is counted once, whenever the controller is stopped: its uid is written into the status, then its finalizer is
//! removed, then the status has one Pod more and one uid less. A Pod with a finalizer whose uid stands there is known;
//! a uid whose Pod has no finalizer is counted with the next write. The index of a success needs no uid.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use objects::time::whole_seconds;

use super::indexes::Indexes;
use super::plan::{Plan, Pods, Snapshot, Step, Uncounted};
use super::policies::judge;
use super::rules::{condition, ensure, has_succeeded, holds};
use crate::common::deleting;
use crate::views::PodView;

/// The greatest number of Pods that are counted at a time, so that a status stays small.
const MOST: usize = 500;

/// The result of a step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcome {
    /// The Pods whose deletion has begun, and those of them that were ready.
    pub(super) deleted: usize,
    pub(super) deleted_ready: usize,
    /// The Pods that were made.
    pub(super) created: usize,
}

/// A change that Events tell of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Suspended,
    Resumed,
}

/// The writes that count Pods.
#[derive(Debug)]
pub(super) struct Tracking {
    /// The status that is written before finalizers are removed.
    pub(super) status: JobStatus,
    /// Whether it differs from the present one.
    pub(super) changed: bool,
    /// The Pods whose finalizers are removed then.
    pub(super) release: Pods,
    /// The uids of the Pods that have a finalizer so far.
    pub(super) held: HashSet<String>,
    /// The condition by which the Job is finished, once all Pods are counted and gone.
    pub(super) last: Option<JobCondition>,
    terminating: usize,
    /// The failures by the action of the rule that they met.
    pub(super) actions: BTreeMap<&'static str, u64>,
    pub(super) turn: Option<Turn>,
}

/// Returns a number as a status has it.
fn small(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// Decides what is counted after a step.
pub(super) fn track(s: &Snapshot<'_>, mut plan: Plan, outcome: Outcome) -> Tracking {
    let turn = after_step(s, &mut plan, outcome);
    let active = (plan.active + outcome.created).saturating_sub(outcome.deleted);
    let ready = plan.ready.saturating_sub(outcome.deleted_ready);
    let terminating = plan.terminating + outcome.deleted;
    let status = &mut plan.status;
    let figures = (Some(small(active)), Some(small(ready)), Some(small(terminating)));
    let mut changed =
        turn.is_some() || (status.active.or(Some(0)), status.ready, status.terminating) != figures;
    (status.active, status.ready, status.terminating) = figures;

    let tracked = s.pods.iter().filter(|p| s.is_tracked(p));
    let held: HashSet<String> = tracked.map(|p| p.uid().to_owned()).collect();
    changed |= settle(status, &held);
    let mut counting = Counting { release: Vec::new(), actions: BTreeMap::new(), full: false };
    changed |= counting.run(s, &mut plan);
    if s.rules.is_indexed() {
        changed |= write_indexes(&mut plan);
    }
    let last = plan.ending.take().map(|ending| {
        let text = |said: &Option<String>| said.clone().unwrap_or_default();
        let (reason, message) = (text(&ending.reason), text(&ending.message));
        let done = match ending.type_.as_str() {
            "FailureTarget" => "Failed",
            "SuccessCriteriaMet" => "Complete",
            _ => return ending,
        };
        if holds(&plan.status, &ending.type_).is_none() {
            changed |= ensure(&mut plan.status, ending);
        }
        condition(done, reason, message, s.now)
    });
    let Counting { release, actions, full } = counting;
    let last = last.filter(|_| !full);
    Tracking { status: plan.status, changed, release, held, last, terminating, actions, turn }
}

/// Takes the result of a step into account: whether the Job is over now, or was suspended or resumed.
fn after_step(s: &Snapshot<'_>, plan: &mut Plan, outcome: Outcome) -> Option<Turn> {
    if let Step::End(all) = &plan.step {
        // Some Pods may not be deleted, or not be in the cache yet.
        if outcome.deleted != all.len() || !s.settled {
            plan.ending = None;
        }
        return None;
    }
    let active = (plan.active + outcome.created).saturating_sub(outcome.deleted);
    let complete = match s.rules.completions() {
        None => plan.succeeded > 0 && active == 0,
        Some(completions) => plan.succeeded >= completions && active == 0,
    };
    if complete {
        let text = "Reached expected number of succeeded pods";
        plan.ending = Some(condition("SuccessCriteriaMet", "CompletionsReached", text, s.now));
        return None;
    }
    if plan.step == Step::Defer {
        return None;
    }
    let (turn, new) = if s.rules.is_suspended() {
        (Turn::Suspended, condition("Suspended", "JobSuspended", "Job suspended", s.now))
    } else {
        let resumed = condition("Suspended", "JobResumed", "Job resumed", s.now);
        (Turn::Resumed, JobCondition { status: "False".to_owned(), ..resumed })
    };
    if !ensure(&mut plan.status, new) {
        return None;
    }
    // The time for which the Job may be active begins anew.
    if turn == Turn::Resumed || s.suspended_anew {
        plan.status.start_time = (turn == Turn::Resumed).then(|| whole_seconds(s.now));
    }
    Some(turn)
}

struct Counting {
    release: Pods,
    actions: BTreeMap<&'static str, u64>,
    /// Whether there are more Pods than are counted at a time.
    full: bool,
}

impl Counting {
    /// Notes the Pods that are to be counted; whether that changed the status.
    fn run(&mut self, s: &Snapshot<'_>, plan: &mut Plan) -> bool {
        let known = plan.status.clone();
        let known = Uncounted::of(&known);
        let uncounted = plan.status.uncounted_terminated_pods.get_or_insert_default();
        let (mut new, mut changed) = (Vec::new(), false);
        let mut pods: Vec<&Arc<PodView>> = s.pods.iter().filter(|p| s.is_tracked(p)).collect();
        let over = plan.ending.as_ref();
        let failed_job = over.is_some_and(|c| c.type_ != "SuccessCriteriaMet");
        if s.rules.is_indexed() {
            pods.sort_by_key(|p| p.task().and_then(|t| t.index));
        }
        for pod in pods {
            let failed = s.rules.has_failed(pod);
            let freed = deleting(&s.job.metadata) || over.is_some() || has_succeeded(pod);
            if !freed && (!failed || plan.kept.contains(pod.uid())) {
                continue;
            }
            self.release.push(pod.clone());
            let index = s.rules.index(pod);
            let known_failed = known.failed.contains(pod.uid());
            if has_succeeded(pod) && !known_failed {
                if s.rules.is_indexed() {
                    let first = index.filter(|i| !plan.completed.0.contains(*i));
                    changed |= first.is_some();
                    new.extend(first);
                } else if !known.succeeded.contains(pod.uid()) {
                    changed = true;
                    uncounted.succeeded.get_or_insert_default().push(pod.uid().to_owned());
                }
            } else if (failed || failed_job) && !known_failed && (!s.rules.is_indexed() || index.is_some()) {
                let verdict = judge(s.rules.0.pod_failure_policy.as_ref(), pod);
                if let Some(action) = verdict.action {
                    *self.actions.entry(action).or_default() += 1;
                }
                if verdict.counts {
                    changed = true;
                    uncounted.failed.get_or_insert_default().push(pod.uid().to_owned());
                }
            }
            let open = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
            if new.len() + open(&uncounted.succeeded) + open(&uncounted.failed) >= MOST {
                self.full = true;
                break;
            }
        }
        plan.completed.1 = plan.completed.1.merge(&Indexes::of(new));
        changed
    }
}

/// Writes the indexes into the status; whether that changed it.
fn write_indexes(plan: &mut Plan) -> bool {
    let completed = &plan.completed.1;
    let text = Some(completed.to_string()).filter(|t| !t.is_empty());
    let failed = plan.failed_indexes.as_ref().map(ToString::to_string);
    let status = &mut plan.status;
    status.succeeded = Some(i32::try_from(completed.total()).unwrap_or(i32::MAX));
    let changed = text.as_deref().unwrap_or_default()
        != status.completed_indexes.as_deref().unwrap_or_default()
        || failed != status.failed_indexes;
    (status.completed_indexes, status.failed_indexes) = (text, failed);
    changed
}

/// Counts the Pods of a status that have no finalizer any more: `held` are the uids of those that have. Returns whether
/// that changed it.
pub(super) fn settle(status: &mut JobStatus, held: &HashSet<String>) -> bool {
    let Some(uncounted) = &mut status.uncounted_terminated_pods else { return false };
    let counted = |list: &mut Option<Vec<String>>, count: &mut Option<i32>| {
        let Some(uids) = list else { return false };
        let before = uids.len();
        uids.retain(|uid| held.contains(uid));
        let gone = before - uids.len();
        *count = Some(count.unwrap_or(0).saturating_add(small(gone)));
        gone > 0
    };
    let succeeded = counted(&mut uncounted.succeeded, &mut status.succeeded);
    counted(&mut uncounted.failed, &mut status.failed) || succeeded
}

impl Tracking {
    /// Finishes the Job in its status, if all its Pods are counted and gone. Returns whether that is so.
    pub(super) fn finish(&self, status: &mut JobStatus, now: Timestamp) -> bool {
        let open = Uncounted::of(status);
        let waits = !open.succeeded.is_empty() || !open.failed.is_empty() || self.terminating > 0;
        let Some(last) = self.last.clone().filter(|_| !waits) else { return false };
        if last.type_ == "Complete" {
            status.completion_time.clone_from(&last.last_transition_time);
        }
        ensure(status, JobCondition { last_probe_time: Some(whole_seconds(now)), ..last });
        true
    }
}

#[cfg(test)]
#[path = "tracking_tests.rs"]
mod tests;
