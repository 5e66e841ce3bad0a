//! Finalizers of Pods whose Job is over, gone or another one: no look at a Job removes them.

use std::fmt;
use std::sync::Arc;

use client::Key;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::rules::{Rules, is_finished};
use crate::views::PodView;

/// Pods that may be orphans with a finalizer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Orphan {
    /// One Pod.
    Pod(Key),
    /// All Pods of the Job with this uid.
    OfJob(Key, String),
}

impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) | Self::OfJob(key, _) => key.fmt(f),
        }
    }
}

/// Whether no look at a Job removes a Pod's finalizer; `job` finds the Job that a reference means.
pub(super) fn is_orphan(pod: &PodView, job: impl FnOnce(&OwnerReference) -> Option<Arc<Job>>) -> bool {
    let Some(owner) = pod.controller() else { return true };
    if owner.kind != "Job" || owner.api_version != "batch/v1" {
        return false;
    }
    let Some(job) = job(owner) else { return true };
    let other = job.spec.as_ref().is_some_and(|s| Rules(s).managed_by_other().is_some());
    !other && is_finished(&job)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::views::tests::view;

    /// Upstream's 9 cases of `TestSyncOrphanPod`, `TestFinalizerCleanup`, and Jobs of another controller: the owner, the
    /// condition of the Job that is there, and whether the Pod loses its finalizer.
    #[test]
    fn orphans() {
        let check = |owner: Value, job: Option<Value>, want: bool| {
            let owners = if owner.is_null() { json!([]) } else { json!([owner]) };
            let pod = view(&json!({"metadata": {"name": "p", "namespace": "default", "uid": "u",
                "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "test"},
                "finalizers": ["batch.kubernetes.io/job-tracking"], "ownerReferences": owners}}));
            let job = job.map(|more| {
                let mut job = json!({"metadata": {"name": "j", "namespace": "default", "uid": "111"},
                    "spec": {"completions": 2, "parallelism": 2, "template": {}}});
                job["spec"]["managedBy"] = more["managedBy"].clone();
                job["status"] = json!({"conditions": more["conditions"]});
                Arc::new(serde_json::from_value::<Job>(job).unwrap())
            });
            let found =
                |of: &OwnerReference| job.clone().filter(|j| j.metadata.uid.as_ref() == Some(&of.uid));
            assert_eq!(is_orphan(&pod, found), want, "{owner} {job:?}");
        };
        let owner = |version: &str, kind: &str, controller: bool| json!({"apiVersion": version, "kind": kind, "name": "j", "uid": "111", "controller": controller});
        let ours = || owner("batch/v1", "Job", true);
        let running = || Some(json!({"conditions": []}));
        let complete = || json!([{"type": "Complete", "status": "True"}]);
        check(ours(), running(), false);
        check(ours(), Some(json!({ "conditions": complete() })), true);
        check(ours(), None, true);
        check(owner("batch/v1", "CronJob", true), None, false);
        check(Value::Null, None, true);
        check(owner("example/v1", "Job", true), None, false);
        check(owner("batch/v1", "Job", false), running(), true);
        check(owner("example/v1", "Job", false), None, true);
        check(ours(), Some(json!({"managedBy": "example.com/other", "conditions": complete()})), false);
    }
}
