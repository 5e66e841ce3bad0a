//! The policies of a Job: which failures count, and which successes are enough.

use k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    SuccessPolicy,
};

use super::indexes::Indexes;
use crate::views::{Exit, PodView, Task};

/// The action that ends the Job.
const FAIL_JOB: &str = "FailJob";
/// The action that ends the Pod's index.
pub(super) const FAIL_INDEX: &str = "FailIndex";

/// The meaning of a Pod's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The message of the Job's failure, if this failure ends the Job.
    pub(super) fails_job: Option<String>,
    /// Whether the failure counts against the limit.
    pub(super) counts: bool,
    /// The action of the rule that says so.
    pub(super) action: Option<&'static str>,
}

impl Verdict {
    const COUNTS: Self = Self { fails_job: None, counts: true, action: None };
}

/// Judges a Pod that has failed: the first rule that fits it decides.
pub(super) fn judge(policy: Option<&PodFailurePolicy>, pod: &PodView) -> Verdict {
    let (Some(policy), Some(task)) = (policy, pod.task()) else { return Verdict::COUNTS };
    for (i, rule) in policy.rules.iter().enumerate() {
        let why = if let Some(codes) = &rule.on_exit_codes {
            exit(task, codes).map(|exit| {
                format!(
                    "Container {} for pod {}/{} failed with exit code {}",
                    exit.container,
                    pod.namespace(),
                    pod.name(),
                    exit.code
                )
            })
        } else {
            condition(task, rule.on_pod_conditions.as_deref().unwrap_or_default())
                .map(|kind| format!("Pod {}/{} has condition {kind}", pod.namespace(), pod.name()))
        };
        let Some(why) = why else { continue };
        let verdict = |counts: bool, action| Verdict { fails_job: None, counts, action: Some(action) };
        match rule.action.as_str() {
            "Ignore" => return verdict(false, "Ignore"),
            "Count" => return verdict(true, "Count"),
            FAIL_INDEX => return verdict(true, FAIL_INDEX),
            FAIL_JOB => {
                let text = format!("{why} matching {FAIL_JOB} rule at index {i}");
                return Verdict { fails_job: Some(text), ..verdict(true, FAIL_JOB) };
            }
            _ => {}
        }
    }
    Verdict::COUNTS
}

fn exit<'t>(task: &'t Task, wanted: &PodFailurePolicyOnExitCodesRequirement) -> Option<&'t Exit> {
    task.exits.iter().find(|exit| {
        let named = wanted.container_name.as_deref().is_none_or(|name| name == exit.container);
        let listed = wanted.values.contains(&exit.code);
        named
            && match wanted.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
    })
}

fn condition<'t>(task: &'t Task, patterns: &[PodFailurePolicyOnPodConditionsPattern]) -> Option<&'t str> {
    let fits = |kind: &str, status: &str| {
        patterns.iter().any(|p| p.type_ == kind && p.status.as_deref().unwrap_or("True") == status)
    };
    task.conditions.iter().find(|(kind, status)| fits(kind, status)).map(|(kind, _)| kind.as_str())
}

/// Whether the successes so far are enough; the message says by which rule.
pub(super) fn enough(
    policy: Option<&SuccessPolicy>,
    completions: i64,
    succeeded: &Indexes,
) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let rules = policy?.rules.iter();
    let met = rules.enumerate().find(|(_, rule)| {
        let count = rule.succeeded_count.map(i64::from);
        match &rule.succeeded_indexes {
            None => count.is_some_and(|count| succeeded.total() >= count),
            Some(text) => {
                let wanted = Indexes::parse(text, completions);
                let common = wanted.overlap(succeeded);
                !wanted.is_empty() && (common == wanted.total() || count.is_some_and(|count| common >= count))
            }
        }
    });
    met.map(|(i, _)| format!("Matched rules at index {i}"))
}

#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
