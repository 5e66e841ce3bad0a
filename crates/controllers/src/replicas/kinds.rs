//! The differences between ReplicaSet and ReplicationController.

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::common::pod_owners::PodOwner;
use crate::config::Workers;
use objects::Selector;

/// A condition of a ReplicaSet or ReplicationController.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) since: Option<Time>,
}

/// The status of a ReplicaSet or ReplicationController.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Counts {
    pub(super) replicas: i32,
    pub(super) fully_labeled: i32,
    pub(super) ready: i32,
    pub(super) available: i32,
    /// The number of terminating Pods; only ReplicaSets have it.
    pub(super) terminating: Option<i32>,
    pub(super) observed_generation: i64,
    pub(super) conditions: Vec<Condition>,
}

/// A kind of object that keeps a number of Pods.
pub(crate) trait Replicated: PodOwner {
    /// The name of the kind's controller; `ALIASES` are its older ones.
    const CONTROLLER: &'static str;
    const ALIASES: &'static [&'static str];
    /// The name of the controller's work queue.
    const QUEUE: &'static str;
    /// The source of the kind's Events, and the controller's service account.
    const COMPONENT: &'static str;
    /// Whether the kind's status counts terminating Pods.
    const TERMINATING: bool;
    /// The number of objects of the kind that are looked at at a time.
    fn workers(workers: &Workers) -> usize;
    fn wanted(&self) -> i32;
    fn min_ready(&self) -> i32;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn counts(&self) -> Counts;
    fn set_counts(&mut self, counts: Counts);
}

fn some<T: Default + PartialEq>(value: T) -> Option<T> {
    Some(value).filter(|v| *v != T::default())
}

/// The number of Pods of a set that grows or shrinks.
fn size(wanted: i32, there: i32) -> usize {
    usize::try_from(wanted.max(there)).unwrap_or(0)
}

impl PodOwner for ReplicaSet {
    fn selector(&self) -> Selector {
        self.spec.as_ref().map_or_else(Selector::nothing, |s| Selector::or_nothing(&s.selector))
    }
    fn pods(&self) -> usize {
        size(self.wanted(), self.status.as_ref().map_or(0, |s| s.replicas))
    }
}

impl Replicated for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";
    const ALIASES: &'static [&'static str] = &["replicaset"];
    const QUEUE: &'static str = "replicaset";
    const COMPONENT: &'static str = "replicaset-controller";
    const TERMINATING: bool = true;
    fn workers(workers: &Workers) -> usize {
        workers.replica_sets
    }
    fn wanted(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }
    fn min_ready(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or(0)
    }
    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }
    fn counts(&self) -> Counts {
        let Some(s) = &self.status else { return Counts::default() };
        let condition = |c: &ReplicaSetCondition| Condition {
            kind: c.type_.clone(),
            status: c.status.clone(),
            reason: c.reason.clone(),
            message: c.message.clone(),
            since: c.last_transition_time.clone(),
        };
        Counts {
            replicas: s.replicas,
            fully_labeled: s.fully_labeled_replicas.unwrap_or(0),
            ready: s.ready_replicas.unwrap_or(0),
            available: s.available_replicas.unwrap_or(0),
            terminating: s.terminating_replicas,
            observed_generation: s.observed_generation.unwrap_or(0),
            conditions: s.conditions.iter().flatten().map(condition).collect(),
        }
    }
    fn set_counts(&mut self, c: Counts) {
        let condition = |c: Condition| ReplicaSetCondition {
            type_: c.kind,
            status: c.status,
            reason: c.reason,
            message: c.message,
            last_transition_time: c.since,
        };
        self.status = Some(ReplicaSetStatus {
            replicas: c.replicas,
            fully_labeled_replicas: some(c.fully_labeled),
            ready_replicas: some(c.ready),
            available_replicas: some(c.available),
            terminating_replicas: c.terminating,
            observed_generation: some(c.observed_generation),
            conditions: some(c.conditions.into_iter().map(condition).collect()),
        });
    }
}

impl PodOwner for ReplicationController {
    fn selector(&self) -> Selector {
        Selector::of_map(self.spec.as_ref().and_then(|s| s.selector.as_ref()))
    }
    fn pods(&self) -> usize {
        size(self.wanted(), self.status.as_ref().map_or(0, |s| s.replicas))
    }
}

impl Replicated for ReplicationController {
    const CONTROLLER: &'static str = "replicationcontroller-controller";
    const ALIASES: &'static [&'static str] = &["replicationcontroller"];
    const QUEUE: &'static str = "replicationmanager";
    const COMPONENT: &'static str = "replication-controller";
    const TERMINATING: bool = false;
    fn workers(workers: &Workers) -> usize {
        workers.replication_controllers
    }
    fn wanted(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }
    fn min_ready(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or(0)
    }
    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }
    fn counts(&self) -> Counts {
        let Some(s) = &self.status else { return Counts::default() };
        let condition = |c: &ReplicationControllerCondition| Condition {
            kind: c.type_.clone(),
            status: c.status.clone(),
            reason: c.reason.clone(),
            message: c.message.clone(),
            since: c.last_transition_time.clone(),
        };
        Counts {
            replicas: s.replicas,
            fully_labeled: s.fully_labeled_replicas.unwrap_or(0),
            ready: s.ready_replicas.unwrap_or(0),
            available: s.available_replicas.unwrap_or(0),
            terminating: None,
            observed_generation: s.observed_generation.unwrap_or(0),
            conditions: s.conditions.iter().flatten().map(condition).collect(),
        }
    }
    fn set_counts(&mut self, c: Counts) {
        let condition = |c: Condition| ReplicationControllerCondition {
            type_: c.kind,
            status: c.status,
            reason: c.reason,
            message: c.message,
            last_transition_time: c.since,
        };
        self.status = Some(ReplicationControllerStatus {
            replicas: c.replicas,
            fully_labeled_replicas: some(c.fully_labeled),
            ready_replicas: some(c.ready),
            available_replicas: some(c.available),
            observed_generation: some(c.observed_generation),
            conditions: some(c.conditions.into_iter().map(condition).collect()),
        });
    }
}
