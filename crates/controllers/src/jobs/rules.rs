//! A Job's spec as the controller reads it, and its conditions.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use objects::time::whole_seconds;

use crate::views::PodView;

/// The controller that looks after a Job whose `managedBy` names no other one.
const OURS: &str = "kubernetes.io/job-controller";

/// A Job's spec.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a>(pub(super) &'a JobSpec);

impl Rules<'_> {
    pub(super) fn parallelism(self) -> i64 {
        self.0.parallelism.unwrap_or(1).into()
    }
    pub(super) fn completions(self) -> Option<i64> {
        self.0.completions.map(i64::from)
    }
    /// The number of indexes of an indexed Job.
    pub(super) fn size(self) -> i64 {
        self.completions().unwrap_or(0)
    }
    pub(super) fn is_indexed(self) -> bool {
        self.0.completion_mode.as_deref() == Some("Indexed")
    }
    pub(super) fn is_suspended(self) -> bool {
        self.0.suspend == Some(true)
    }
    pub(super) fn backoff_limit(self) -> i32 {
        self.0.backoff_limit.unwrap_or(6)
    }
    /// The failures that each index may have, if they count by index.
    pub(super) fn per_index(self) -> Option<i32> {
        self.0.backoff_limit_per_index
    }
    /// Whether a Pod is replaced only once it has failed, not as soon as it is being deleted.
    pub(super) fn replaces_failed_only(self) -> bool {
        self.0.pod_replacement_policy.as_deref() == Some("Failed") || self.0.pod_failure_policy.is_some()
    }
    /// Whether a Pod counts as failed.
    pub(super) fn has_failed(self, pod: &PodView) -> bool {
        match pod.phase.as_str() {
            "Failed" => true,
            "Succeeded" => false,
            // Pods whose node is gone never get that far.
            _ => !self.replaces_failed_only() && pod.is_deleting(),
        }
    }
    /// The completion index of a Pod, if that is one of this Job's.
    pub(super) fn index(self, pod: &PodView) -> Option<i64> {
        pod.task()?.index.filter(|i| *i < self.size())
    }
    /// The mode as metrics name it.
    pub(super) fn mode(self) -> &'static str {
        if self.is_indexed() { "Indexed" } else { "NonIndexed" }
    }
    /// The other controller that looks after the Job.
    pub(super) fn managed_by_other(&self) -> Option<&str> {
        self.0.managed_by.as_deref().filter(|name| *name != OURS)
    }
}

/// Whether a Pod has succeeded.
pub(super) fn has_succeeded(pod: &PodView) -> bool {
    pod.phase == "Succeeded"
}

/// Makes a condition that holds.
pub(super) fn condition(
    kind: &str,
    reason: impl Into<String>,
    message: impl Into<String>,
    now: Timestamp,
) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: Some(whole_seconds(now)),
        last_transition_time: Some(whole_seconds(now)),
    }
}

/// Returns the condition of a type, if it holds.
pub(super) fn holds<'s>(status: &'s JobStatus, kind: &str) -> Option<&'s JobCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == "True")
}

/// Whether a Job is finished.
pub(crate) fn is_finished(job: &Job) -> bool {
    finished(job).is_some()
}

/// Returns the condition by which a Job is finished.
pub(crate) fn finished(job: &Job) -> Option<&JobCondition> {
    let all = job.status.as_ref()?.conditions.iter().flatten();
    all.into_iter().find(|c| (c.type_ == "Complete" || c.type_ == "Failed") && c.status == "True")
}

/// Puts a condition into a status; whether that changed it. A condition that was never true is not noted to be false.
pub(super) fn ensure(status: &mut JobStatus, new: JobCondition) -> bool {
    let all = status.conditions.get_or_insert_default();
    match all.iter_mut().find(|c| c.type_ == new.type_) {
        Some(old) => {
            let same = old.status == new.status && old.reason == new.reason && old.message == new.message;
            if !same {
                *old = new;
            }
            !same
        }
        None if new.status == "False" => false,
        None => {
            all.push(new);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases of `TestEnsureJobConditions`.
    #[test]
    fn conditions() {
        let made = |kind: &str, status: &str, reason: &str| JobCondition {
            status: status.to_owned(),
            ..condition(kind, reason, "", Timestamp::UNIX_EPOCH)
        };
        let check = |old: Vec<&JobCondition>, new: &JobCondition, want: Vec<&JobCondition>, changed: bool| {
            let old = old.into_iter().cloned().collect();
            let mut status = JobStatus { conditions: Some(old), ..JobStatus::default() };
            assert_eq!(ensure(&mut status, new.clone()), changed);
            assert_eq!(status.conditions.iter().flatten().collect::<Vec<_>>(), want);
        };
        let (no, yes) = (made("Suspended", "False", "foo"), made("Suspended", "True", "foo"));
        let (other, failed) = (made("Suspended", "True", "bar"), made("Failed", "True", ""));
        check(vec![], &yes, vec![&yes], true);
        check(vec![], &no, vec![], false);
        check(vec![&no], &yes, vec![&yes], true);
        check(vec![&yes], &no, vec![&no], true);
        check(vec![&yes], &other, vec![&other], true);
        check(vec![&yes], &yes, vec![&yes], false);
        check(vec![&failed], &yes, vec![&failed, &yes], true);
    }

    /// Upstream's cases of `TestFinishedCondition` and `TestIsJobSucceeded`, and the Job of `TestSyncJobComplete`.
    #[test]
    fn ends() {
        let check = |conditions: &[(&str, &str)], want: Option<&str>| {
            let made = |(kind, status): &(&str, &str)| JobCondition {
                status: (*status).to_owned(),
                ..condition(kind, "", "", Timestamp::UNIX_EPOCH)
            };
            let conditions = Some(conditions.iter().map(made).collect());
            let status = Some(JobStatus { conditions, ..JobStatus::default() });
            let job = Job { status, ..Job::default() };
            assert_eq!(finished(&job).map(|c| c.type_.as_str()), want, "{job:?}");
            assert_eq!(is_finished(&job), want.is_some());
        };
        check(&[], None);
        for kind in ["Complete", "Failed"] {
            check(&[(kind, "True")], Some(kind));
            check(&[(kind, "False")], None);
            check(&[(kind, "Unknown")], None);
        }
        let done = [("Suspended", "False"), ("Complete", "True"), ("Failed", "False")];
        check(&done, Some("Complete"));
        check(&done[..2], Some("Complete"));
        check(&[("Suspended", "False"), ("Complete", "False"), ("Failed", "False")], None);
        check(&[("Failed", "True"), ("Complete", "False")], Some("Failed"));
    }
}
