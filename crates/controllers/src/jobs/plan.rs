//! The decision about a Job's Pods: pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use objects::time::whole_seconds;

use super::backoff::{Backoff, ended};
use super::indexes::Indexes;
use super::policies::{FAIL_INDEX, enough, judge};
use super::rules::{Rules, condition, has_succeeded, holds};
use crate::common::deleting;
use crate::views::PodView;

/// The greatest number of Pods that are made or deleted at a time.
const BURST: usize = 500;

/// A set of Pods.
pub(super) type Pods = Vec<Arc<PodView>>;

/// The state on which the controller decides.
pub(super) struct Snapshot<'a> {
    pub(super) job: &'a Job,
    pub(super) rules: Rules<'a>,
    /// The Job's Pods.
    pub(super) pods: &'a [Arc<PodView>],
    /// The uids of the Pods whose finalizer was removed, which the cache does not show yet.
    pub(super) released: &'a HashSet<String>,
    /// Whether the cache shows all Pods that were made and deleted.
    pub(super) settled: bool,
    /// The failures before.
    pub(super) backoff: Backoff,
    /// Whether a Job that is suspended has not begun: the gate `MutableSchedulingDirectivesForSuspendedJobs`.
    pub(super) suspended_anew: bool,
    pub(super) now: Timestamp,
}

/// The next step for a Job's Pods.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// The Job is over: what is active is deleted, and keeps its finalizer until it is counted.
    End(Pods),
    /// There are too many Pods. These are deleted and not counted.
    Delete(Pods),
    /// There are too few Pods.
    Create(Vec<New>),
    /// There are too few Pods, and it is too early for more.
    ///
    /// DIFFERENCE: upstream's status says meanwhile that no Pod is active, and is refused if one is ready.
    Wait(Duration),
    /// All is well.
    Nothing,
    /// Nothing is decided: the cache is behind, or the Job is being deleted.
    Defer,
}

/// A Pod to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct New {
    /// Its completion index.
    pub(super) index: Option<i64>,
    /// The failures of its index so far, those that count and the others, if they count by index.
    pub(super) failures: Option<(i32, i32)>,
}

/// A decision, with the figures that it is based on.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) status: JobStatus,
    pub(super) step: Step,
    /// The condition by which the Job is over, perhaps not the last one.
    pub(super) ending: Option<JobCondition>,
    pub(super) active: usize,
    pub(super) ready: usize,
    pub(super) terminating: usize,
    pub(super) succeeded: i64,
    pub(super) failed: i64,
    /// The completed indexes of the status, and all of them.
    pub(super) completed: (Indexes, Indexes),
    /// The failed indexes, if failures count by index.
    pub(super) failed_indexes: Option<Indexes>,
    /// The uids of Pods that are kept until a successor has taken over the failures of their index.
    pub(super) kept: HashSet<String>,
    pub(super) backoff: Backoff,
    /// The time after which the Job is looked at again.
    pub(super) again: Option<Duration>,
}

/// The uids of the Pods in a status that are not counted yet.
pub(super) struct Uncounted<'a> {
    pub(super) succeeded: HashSet<&'a str>,
    pub(super) failed: HashSet<&'a str>,
}

impl<'a> Uncounted<'a> {
    pub(super) fn of(status: &'a JobStatus) -> Self {
        let of = |list: &'a Option<Vec<String>>| list.iter().flatten().map(String::as_str).collect();
        match &status.uncounted_terminated_pods {
            None => Self { succeeded: HashSet::new(), failed: HashSet::new() },
            Some(u) => Self { succeeded: of(&u.succeeded), failed: of(&u.failed) },
        }
    }
}

impl Snapshot<'_> {
    /// Whether a Pod has not been counted: it has its finalizer.
    pub(super) fn is_tracked(&self, pod: &PodView) -> bool {
        pod.task().is_some_and(|t| t.tracked) && !self.released.contains(pod.uid())
    }
    /// Whether a Pod can count: it is tracked and, in an indexed Job, has an index.
    fn counts(&self, pod: &PodView) -> bool {
        self.is_tracked(pod) && (!self.rules.is_indexed() || self.rules.index(pod).is_some())
    }
    fn chosen(&self, wanted: impl Fn(&PodView) -> bool) -> Pods {
        self.pods.iter().filter(|p| wanted(p)).cloned().collect()
    }
    fn indexes(&self, wanted: impl Fn(&PodView) -> bool) -> Indexes {
        Indexes::of(self.pods.iter().filter(|p| wanted(p)).filter_map(|p| p.task()?.index))
    }
}

/// Decides on the next step.
pub(super) fn plan(s: &Snapshot<'_>) -> Plan {
    let (rules, now) = (s.rules, s.now);
    let mut status = s.job.status.clone().unwrap_or_default();
    status.uncounted_terminated_pods.get_or_insert_default();
    if status.start_time.is_none() && !rules.is_suspended() {
        status.start_time = Some(whole_seconds(now));
    }
    let uncounted = Uncounted::of(&status);
    let succeeded = s.chosen(|p| s.counts(p) && !uncounted.succeeded.contains(p.uid()) && has_succeeded(p));
    let failed = s.chosen(|p| s.counts(p) && !uncounted.failed.contains(p.uid()) && rules.has_failed(p));
    let policy = rules.0.pod_failure_policy.as_ref();
    let counted = failed.iter().filter(|p| judge(policy, p).counts).count();
    let sum = |before: Option<i32>, new: usize, open: usize| {
        i64::from(before.unwrap_or(0)).saturating_add(i64::try_from(new + open).unwrap_or(i64::MAX))
    };
    let active = s.chosen(PodView::is_active);
    let mut plan = Plan {
        step: Step::Defer,
        ending: None,
        active: active.len(),
        ready: active.iter().filter(|p| p.is_ready()).count(),
        terminating: s.pods.iter().filter(|p| p.is_terminating()).count(),
        succeeded: sum(status.succeeded, succeeded.len(), uncounted.succeeded.len()),
        failed: sum(status.failed, counted, uncounted.failed.len()),
        completed: Default::default(),
        failed_indexes: None,
        kept: HashSet::new(),
        backoff: s.backoff.after(&succeeded, &failed),
        again: None,
        status: status.clone(),
    };
    plan.ending = ending(s, &mut plan);
    let kept = if rules.is_indexed() { by_index(s, &mut plan, &active) } else { BTreeMap::new() };
    plan.kept = kept.values().map(|p| p.uid().to_owned()).collect();
    plan.step = if plan.ending.is_some() {
        Step::End(active)
    } else if s.settled && !deleting(&s.job.metadata) {
        manage(s, &plan, active, &kept)
    } else {
        Step::Defer
    };
    plan
}

/// Decides whether the Job is over, by what its status says already and by its limits.
fn ending(s: &Snapshot<'_>, plan: &mut Plan) -> Option<JobCondition> {
    let (rules, status, now) = (s.rules, &plan.status, s.now);
    if let Some(met) = holds(status, "SuccessCriteriaMet") {
        return Some(met.clone());
    }
    if let Some(target) = holds(status, "FailureTarget") {
        let said = |text: &Option<String>| text.clone().unwrap_or_default();
        return Some(condition("Failed", said(&target.reason), said(&target.message), now));
    }
    let fails = |reason: &str, message: String| Some(condition("FailureTarget", reason, message, now));
    let policy = rules.0.pod_failure_policy.as_ref();
    if policy.is_some() {
        let mut failed = s.pods.iter().filter(|p| rules.has_failed(p));
        if let Some(message) = failed.find_map(|p| judge(policy, p).fails_job) {
            return fails("PodFailurePolicy", message);
        }
    }
    if plan.failed > i64::from(rules.backoff_limit()) || restarted_too_often(s) {
        return fails("BackoffLimitExceeded", "Job has reached the specified backoff limit".to_owned());
    }
    if let (Some(limit), Some(start), false) =
        (rules.0.active_deadline_seconds, &status.start_time, rules.is_suspended())
    {
        let left = SignedDuration::from_secs(limit).saturating_sub(now.duration_since(start.0));
        if left <= SignedDuration::ZERO {
            return fails("DeadlineExceeded", "Job was active longer than specified deadline".to_owned());
        }
        plan.again = Duration::try_from(left).ok();
    }
    None
}

/// Whether containers that are restarted in their Pods have failed too often.
fn restarted_too_often(s: &Snapshot<'_>) -> bool {
    let template = s.rules.0.template.spec.as_ref();
    if template.and_then(|t| t.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let lives = |p: &&Arc<PodView>| matches!(p.phase.as_str(), "Running" | "Pending");
    let restarts = |p: &Arc<PodView>| p.task().map_or(0, |t| i64::from(t.restarts));
    let all: i64 = s.pods.iter().filter(lives).map(restarts).sum();
    all >= i64::from(s.rules.backoff_limit()).max(1)
}

/// Computes the figures of an indexed Job, decides whether it is over by them, and returns the Pods by index that wait
/// for their successors.
fn by_index(s: &Snapshot<'_>, plan: &mut Plan, active: &Pods) -> BTreeMap<i64, Arc<PodView>> {
    let (rules, now, size) = (s.rules, s.now, s.rules.size());
    // A Pod whose finalizer was just removed may not be in the cached status.
    let has_finalizer = |p: &PodView| p.task().is_some_and(|t| t.tracked) && rules.index(p).is_some();
    let before = Indexes::parse(plan.status.completed_indexes.as_deref().unwrap_or_default(), size);
    let completed = before.merge(&s.indexes(|p| has_finalizer(p) && has_succeeded(p)));
    plan.succeeded = completed.total();
    plan.completed = (before, completed);
    let completed = &plan.completed.1;
    let fails = |reason: &str, message: &str| Some(condition("FailureTarget", reason, message, now));
    let mut kept = BTreeMap::new();
    if let Some(limit) = rules.per_index() {
        let old = Indexes::parse(plan.status.failed_indexes.as_deref().unwrap_or_default(), size);
        let failed = old.merge(&s.indexes(|p| has_finalizer(p) && fails_index(rules, limit, p)));
        let most = rules.0.max_failed_indexes.map(i64::from);
        if plan.ending.is_none() {
            if most.is_some_and(|most| failed.total() > most) {
                let text = "Job has exceeded the specified maximal number of failed indexes";
                plan.ending = fails("MaxFailedIndexesExceeded", text);
            } else if !failed.is_empty() && failed.total() + completed.total() >= size {
                plan.ending = fails("FailedIndexes", "Job has failed indexes");
            }
        }
        kept = waiting(s, active, &completed.merge(&failed));
        plan.failed_indexes = Some(failed);
    }
    if plan.ending.is_none()
        && let Some(message) = enough(rules.0.success_policy.as_ref(), size, completed)
    {
        plan.ending = Some(condition("SuccessCriteriaMet", "SuccessPolicy", message, now));
    }
    kept
}

/// Whether a Pod's failure ends its index.
fn fails_index(rules: Rules<'_>, limit: i32, pod: &PodView) -> bool {
    if !rules.has_failed(pod) {
        return false;
    }
    let verdict = judge(rules.0.pod_failure_policy.as_ref(), pod);
    let before = pod.task().map_or(0, |t| t.failures);
    verdict.action == Some(FAIL_INDEX) || verdict.counts && before >= limit
}

/// Finds the last failed Pod of each index that is neither `over` nor active. It keeps its finalizer until its
/// successor is made, to which its failures are handed on.
fn waiting(s: &Snapshot<'_>, active: &Pods, over: &Indexes) -> BTreeMap<i64, Arc<PodView>> {
    let busy = Indexes::of(active.iter().filter_map(|p| p.task()?.index));
    let failures = |p: &PodView| p.task().map_or(0, |t| i64::from(t.failures) + i64::from(t.ignored));
    let mut last: BTreeMap<i64, Arc<PodView>> = BTreeMap::new();
    for pod in s.pods.iter().filter(|p| s.counts(p) && s.rules.has_failed(p)) {
        let Some(index) = s.rules.index(pod).filter(|i| !over.contains(*i) && !busy.contains(*i)) else {
            continue;
        };
        let newer = |old: &Arc<PodView>| failures(old) <= failures(pod) && ended(pod) >= ended(old);
        if last.get(&index).is_none_or(newer) {
            last.insert(index, pod.clone());
        }
    }
    last
}

/// Decides how many Pods there must be.
fn manage(s: &Snapshot<'_>, plan: &Plan, active: Pods, kept: &BTreeMap<i64, Arc<PodView>>) -> Step {
    let rules = s.rules;
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    if rules.is_suspended() {
        return Step::Delete(active);
    }
    let have = count(active.len());
    let wanted = match rules.completions() {
        // The first success means that the work is done: what runs may end, and nothing is begun.
        None if plan.succeeded > 0 => have,
        None => rules.parallelism(),
        Some(completions) => (completions - plan.succeeded).min(rules.parallelism()).max(0),
    };
    let surplus = usize::try_from(have - wanted).unwrap_or(0);
    let mut doomed = surplus_of(rules, active, surplus);
    if !doomed.is_empty() {
        doomed.truncate(BURST);
        return Step::Delete(doomed);
    }
    let going = if rules.replaces_failed_only() { count(plan.terminating) } else { 0 };
    let missing = usize::try_from(wanted - going - have).unwrap_or(0).min(BURST);
    if missing == 0 {
        return Step::Nothing;
    }
    if rules.per_index().is_none() {
        let left = plan.backoff.remaining(s.now);
        if !left.is_zero() {
            return Step::Wait(left);
        }
    }
    if !rules.is_indexed() {
        return Step::Create(vec![New { index: None, failures: None }; missing]);
    }
    let mut taken = plan.completed.1.merge(&s.indexes(PodView::is_active));
    if rules.replaces_failed_only() {
        taken = taken.merge(&s.indexes(PodView::is_terminating));
    }
    if let Some(failed) = &plan.failed_indexes {
        taken = taken.merge(failed);
    }
    let pending = taken.first_free(missing, rules.size());
    create_indexes(s, &pending, kept)
}

/// Decides which of the pending indexes get a Pod now.
fn create_indexes(s: &Snapshot<'_>, pending: &[i64], kept: &BTreeMap<i64, Arc<PodView>>) -> Step {
    let by_index = s.rules.per_index().is_some();
    let mut next: Option<Duration> = None;
    let mut new = Vec::with_capacity(pending.len());
    for &index in pending {
        let before = kept.get(&index).filter(|_| by_index);
        let left = before.map_or(Duration::ZERO, |p| Backoff::remaining_of(p, s.now));
        if left.is_zero() {
            let failures = by_index.then(|| before.map_or((0, 0), |p| handed_on(s.rules, p)));
            new.push(New { index: Some(index), failures });
        } else {
            next = Some(next.map_or(left, |n| n.min(left)));
        }
    }
    match next {
        Some(left) if new.is_empty() => Step::Wait(left),
        _ if new.is_empty() => Step::Nothing,
        _ => Step::Create(new),
    }
}

/// The failures that the successor of a failed Pod begins with.
fn handed_on(rules: Rules<'_>, pod: &PodView) -> (i32, i32) {
    let (failures, ignored) = pod.task().map_or((0, 0), |t| (t.failures, t.ignored));
    if judge(rules.0.pod_failure_policy.as_ref(), pod).counts {
        (failures.saturating_add(1), ignored)
    } else {
        (failures, ignored.saturating_add(1))
    }
}

/// Chooses at least `surplus` Pods that are not wanted: in an indexed Job those without a valid index and all but one
/// of each index, then those whose loss is felt least.
fn surplus_of(rules: Rules<'_>, active: Pods, surplus: usize) -> Pods {
    let (mut doomed, mut rest) = (Vec::new(), active);
    if rules.is_indexed() {
        let mut by_index: BTreeMap<i64, Pods> = BTreeMap::new();
        for pod in rest.drain(..) {
            match rules.index(&pod) {
                Some(index) => by_index.entry(index).or_default().push(pod),
                None => doomed.push(pod),
            }
        }
        for (_, mut same) in by_index {
            same.sort_by_cached_key(rank);
            rest.extend(same.pop());
            doomed.append(&mut same);
        }
    }
    if doomed.len() < surplus {
        rest.sort_by_cached_key(rank);
        let more = surplus - doomed.len();
        doomed.extend(rest.into_iter().take(more));
    }
    doomed
}

/// Makes a key of upstream's order of active Pods (`ActivePods`), smallest first: without a node; pending, unknown,
/// running; not ready; ready for the shortest time; most restarts; youngest.
fn rank(pod: &Arc<PodView>) -> impl Ord + use<> {
    let phase = match pod.phase.as_str() {
        "Pending" => 0,
        "Running" => 2,
        _ => 1,
    };
    let ready_since = if pod.is_ready() { pod.ready_since().map(Reverse) } else { None };
    (
        !pod.node.is_empty(),
        phase,
        pod.is_ready(),
        ready_since,
        Reverse(pod.restarts),
        pod.created.map(Reverse),
        pod.meta.uid.clone(),
    )
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
