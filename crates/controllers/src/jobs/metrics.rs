//! The metrics of the controller of Jobs, by upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use client::Change;
use component::metrics::{Histogram, Page};
use k8s_openapi::api::batch::v1::JobStatus;
use parking_lot::Mutex;

use super::indexes::Indexes;
use super::rules::Rules;
use crate::views::PodView;

/// Upstream's buckets of seconds: 0.004 and on, each twice the one before.
const SECONDS: &[f64] = &[
    0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384, 32.768,
    65.536,
];

/// The counters: their names without the prefix, their labels, and their help.
const COUNTERS: [(&str, &[&str], &str); 9] = [
    ("job_syncs_total", &["completion_mode", "result", "action"], "[STABLE] The number of job syncs"),
    ("jobs_finished_total", &["completion_mode", "result", "reason"], "[STABLE] The number of finished jobs"),
    (
        "jobs_by_external_controller_total",
        &["controller_name"],
        "[ALPHA] The number of Jobs managed by an external controller",
    ),
    (
        "job_pods_finished_total",
        &["completion_mode", "result"],
        "[STABLE] The number of finished Pods that are fully tracked",
    ),
    (
        "pod_failures_handled_by_failure_policy_total",
        &["action"],
        "[BETA] The number of failed Pods handled by failure policy, by the action of the matched rule",
    ),
    (
        "terminated_pods_tracking_finalizer_total",
        &["event"],
        "[BETA] The number of terminated pods that got and lost the finalizer batch.kubernetes.io/job-tracking",
    ),
    ("job_finished_indexes_total", &["status", "backoffLimit"], "[ALPHA] The number of finished indexes"),
    ("job_pods_creation_total", &["reason", "status"], "[ALPHA] The number of Pods created, by the reason"),
    (
        "stale_sync_skips_total",
        &["group", "resource"],
        "[ALPHA] Total number of Job syncs skipped due to a stale watch cache.",
    ),
];

#[derive(Default)]
struct Inner {
    counts: BTreeMap<(&'static str, Vec<String>), u64>,
    syncs: BTreeMap<[&'static str; 3], Histogram>,
}

/// The numbers of the controller.
#[derive(Default)]
pub(super) struct Metrics(Mutex<Inner>);

impl Metrics {
    /// Counts something, under the values of its labels.
    pub(super) fn count(&self, name: &'static str, labels: &[&str], number: u64) {
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        *self.0.lock().counts.entry((name, labels)).or_default() += number;
    }

    /// Counts a look at a Job.
    pub(super) fn synced(&self, labels: [&'static str; 3], took: Duration) {
        self.count("job_syncs_total", &labels, 1);
        let mut inner = self.0.lock();
        inner.syncs.entry(labels).or_insert_with(|| Histogram::new(SECONDS)).observe(took.as_secs_f64());
    }

    /// Counts the Pods and indexes that a written status has more than the one before.
    pub(super) fn counted(&self, rules: Rules<'_>, old: &JobStatus, new: &JobStatus) {
        let grown = |new: i64, old: i64| u64::try_from(new - old).unwrap_or(0);
        let pods = |of: fn(&JobStatus) -> Option<i32>| {
            grown(of(new).unwrap_or(0).into(), of(old).unwrap_or(0).into())
        };
        let mut succeeded = pods(|s| s.succeeded);
        if rules.is_indexed() {
            let by = if rules.per_index().is_some() { "perIndex" } else { "global" };
            let indexes = |of: fn(&JobStatus) -> &Option<String>| {
                let total = |s| Indexes::parse(of(s).as_deref().unwrap_or_default(), rules.size()).total();
                grown(total(new), total(old))
            };
            succeeded = indexes(|s| &s.completed_indexes);
            self.count("job_finished_indexes_total", &["succeeded", by], succeeded);
            if rules.per_index().is_some() {
                self.count("job_finished_indexes_total", &["failed", by], indexes(|s| &s.failed_indexes));
            }
        }
        self.count("job_pods_finished_total", &[rules.mode(), "succeeded"], succeeded);
        self.count("job_pods_finished_total", &[rules.mode(), "failed"], pods(|s| s.failed));
    }

    /// Writes the page.
    pub(super) fn report(&self, page: &mut Page) {
        let inner = self.0.lock();
        for (name, labels, help) in COUNTERS {
            let full = format!("job_controller_{name}");
            page.metric(&full, "counter", help);
            for ((_, values), count) in inner.counts.iter().filter(|((of, _), _)| *of == name) {
                let labels: Vec<(&str, &str)> =
                    labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                page.value(&full, &labels, *count as f64);
            }
        }
        let name = "job_controller_job_sync_duration_seconds";
        page.metric(name, "histogram", "[STABLE] The time it took to sync a job");
        for ([mode, result, action], histogram) in &inner.syncs {
            let labels = [("completion_mode", *mode), ("result", *result), ("action", *action)];
            page.histogram(name, &labels, histogram);
        }
    }
}

/// The event that a change of a Pod is in the count of Pods that have ended and still have the finalizer.
pub(super) fn terminated(change: &Change<PodView>) -> Option<&'static str> {
    let is = |pod: &PodView| pod.is_terminal() && pod.task().is_some_and(|t| t.tracked);
    let (was, is) = match change {
        Change::Added(new) => (false, is(new)),
        Change::Updated { old, new } => (is(old), is(new)),
        Change::Deleted(old) => (is(old), false),
    };
    (was != is).then_some(if is { "add" } else { "delete" })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::views::TRACKING;
    use crate::views::tests::view;

    /// Upstream's 5 cases of `TestRecordFinishedPodWithTrackingFinalizer`: a Pod before and after by its phase, with a `+`
    /// if it has the finalizer.
    #[test]
    fn ended_pods_with_the_finalizer() {
        let check = |old: Option<&str>, new: Option<&str>, want: Option<&str>| {
            let pod = |text: &str| {
                let finalizers: &[&str] = if text.ends_with('+') { &[TRACKING] } else { &[] };
                let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": true});
                Arc::new(view(
                    &json!({"metadata": {"name": "p", "finalizers": finalizers, "ownerReferences": [owner]},
                    "status": {"phase": text.trim_end_matches('+')}}),
                ))
            };
            let change = match (old.map(pod), new.map(pod)) {
                (Some(old), Some(new)) => Change::Updated { old, new },
                (None, Some(new)) => Change::Added(new),
                (Some(old), None) => Change::Deleted(old),
                (None, None) => return,
            };
            assert_eq!(terminated(&change), want, "{old:?} {new:?}");
        };
        check(None, Some("Pending+"), None);
        check(Some("Running+"), Some("Failed+"), Some("add"));
        check(Some("Running+"), Some("Succeeded+"), Some("add"));
        check(Some("Succeeded+"), Some("Succeeded"), Some("delete"));
        check(Some("Succeeded"), None, None);
        check(Some("Failed+"), None, Some("delete"));
    }

    /// Upstream's cases of `TestRecordJobPodFailurePolicyActions`.
    #[test]
    fn failures_by_action() {
        let check = |actions: &[(&str, u64)]| {
            let metrics = Metrics::default();
            for (action, count) in actions {
                metrics.count("pod_failures_handled_by_failure_policy_total", &[action], *count);
            }
            let mut page = Page::default();
            metrics.report(&mut page);
            let text = page.text();
            let start = "job_controller_pod_failures_handled_by_failure_policy_total{";
            let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(start)).collect();
            let want: Vec<String> = actions.iter().map(|(a, n)| format!("action=\"{a}\"}} {n}")).collect();
            assert_eq!(lines, want);
        };
        check(&[]);
        check(&[("FailJob", 2)]);
        check(&[("Count", 1), ("FailJob", 2), ("Ignore", 3)]);
    }
}
