//! Jobs and Pods of the tests, as upstream's build them.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use super::backoff::Backoff;
use super::plan::{Pods, Snapshot};
use super::rules::Rules;
use crate::views::tests::view;
use crate::views::{PodView, TRACKING};

/// The second at which all tests are.
pub(super) const NOW: i64 = 1_000_000;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A Pod while it is built.
#[derive(Debug, Clone)]
pub(super) struct Built(Value);

/// A Pod of this uid and phase.
pub(super) fn pod(uid: &str, phase: &str) -> Built {
    Built(json!({"metadata": {"uid": uid, "name": uid, "annotations": {}}, "status": {"phase": phase}}))
}

impl Built {
    fn annotated(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][format!("batch.kubernetes.io/{key}")] = json!(value);
        self
    }
    pub(super) fn index(self, index: &str) -> Self {
        self.annotated("job-completion-index", index)
    }
    pub(super) fn failures(self, count: &str) -> Self {
        self.annotated("job-index-failure-count", count)
    }
    pub(super) fn tracked(mut self) -> Self {
        self.0["metadata"]["finalizers"] = json!([TRACKING]);
        self
    }
    pub(super) fn deleted(mut self, second: i64) -> Self {
        self.0["metadata"]["deletionTimestamp"] = json!(at(second).to_string());
        self
    }
    pub(super) fn status(mut self, status: &Value) -> Self {
        self.0["status"].as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
        self
    }
    pub(super) fn view(&self) -> Arc<PodView> {
        Arc::new(view(&self.0))
    }
}

/// The state before a look.
pub(super) struct Given {
    pub(super) job: Job,
    pub(super) pods: Pods,
    pub(super) released: HashSet<String>,
}

impl Given {
    /// A Job with this spec and status, and its Pods.
    pub(super) fn new(spec: &Value, status: &Value, pods: &[Built]) -> Self {
        let mut all = json!({"template": {}});
        all.as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap_or_default());
        let job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": all, "status": status});
        Self {
            job: serde_json::from_value(job).unwrap(),
            pods: pods.iter().map(Built::view).collect(),
            released: HashSet::new(),
        }
    }
    pub(super) fn released(mut self, uids: &[&str]) -> Self {
        self.released = uids.iter().map(|uid| (*uid).to_owned()).collect();
        self
    }
    pub(super) fn snapshot(&self, now: i64) -> Snapshot<'_> {
        Snapshot {
            job: &self.job,
            rules: Rules(self.job.spec.as_ref().unwrap()),
            pods: &self.pods,
            released: &self.released,
            settled: true,
            backoff: Backoff::default(),
            suspended_anew: true,
            now: at(now),
        }
    }
}
