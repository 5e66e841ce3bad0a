//! Finalizers of Pods whose Job is over, gone or another one: no look at a Job removes them.

use std::fmt;

use client::{Informer, Key};
use k8s_openapi::api::batch::v1::Job;

use super::rules::{Rules, is_finished};
use crate::common::owners::resolve;
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

/// Whether no look at a Job removes a Pod's finalizer.
pub(super) fn is_orphan(pod: &PodView, jobs: &Informer<Job>) -> bool {
    let Some(owner) = pod.controller() else { return true };
    if owner.kind != "Job" || owner.api_version != "batch/v1" {
        return false;
    }
    let Some((_, job)) = resolve(jobs, pod.namespace(), Some(owner)) else { return true };
    let other = job.spec.as_ref().is_some_and(|s| Rules(s).managed_by_other().is_some());
    !other && is_finished(&job)
}
