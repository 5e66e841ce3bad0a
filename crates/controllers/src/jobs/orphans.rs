//! Finalizers of Pods whose Job is over, gone or another one: no look at a Job removes them.

use std::fmt;

use api::Status;
use client::Key;

use super::Jobs;
use super::rules::{Rules, is_finished};
use crate::common::owners::resolve;
use crate::host::Next;
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

impl Jobs {
    /// Removes the finalizers of orphans.
    pub(super) async fn sync_orphan(&self, orphan: Orphan) -> Result<Next, Status> {
        let pods = match &orphan {
            Orphan::Pod(key) => self.pods.get_key(key).into_iter().collect(),
            Orphan::OfJob(_, uid) => self.pods.of_owner(uid),
        };
        let mut result = Ok(Next::Done);
        for pod in pods.iter().filter(|p| self.is_orphan(p)) {
            match self.release(pod).await {
                Err(e) if !e.is_not_found() => result = Err(e),
                _ => {}
            }
        }
        result
    }

    /// Whether no look at a Job removes a Pod's finalizer.
    fn is_orphan(&self, pod: &PodView) -> bool {
        let Some(owner) = pod.controller() else { return true };
        if owner.kind != "Job" || owner.api_version != "batch/v1" {
            return false;
        }
        let Some((_, job)) = resolve(&self.jobs, pod.namespace(), Some(owner)) else { return true };
        let other = job.spec.as_ref().is_some_and(|s| Rules(s).managed_by_other().is_some());
        !other && is_finished(&job)
    }
}
