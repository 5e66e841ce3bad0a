//! A Pod as the scheduler reads it.
//!
//! A Pod that has a node is never placed again. Of such a Pod only what others are judged by is kept: about a sixth of
//! the decoded object. A cluster has few Pods that wait, and of those everything is kept.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use api::Status;
use client::{Cached, FromJson, Identity};
use compact_str::CompactString as Text;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, ObjectReference};
use objects::labels::CompactLabels;
use objects::ports::{HostPort, host_ports};

use crate::affinity::Terms;
use crate::resources::{PodRequests, pod_requests};
use crate::volumes::{self, Used};

/// The reason for which the scheduler ends Pods to make room.
pub const PREEMPTED: &str = "PreemptionByScheduler";

/// The part of a Pod that the scheduler and its informer keep.
#[derive(Debug, PartialEq)]
pub struct PodView {
    namespace: Text,
    name: Text,
    uid: Arc<str>,
    resource_version: Text,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// Its labels.
    pub labels: CompactLabels,
    node: Text,
    /// The name of its PodGroup.
    group: Option<Box<str>>,
    /// Whether it has ended for good.
    pub ended: bool,
    /// Whether it is being deleted.
    pub leaving: bool,
    /// Whether it is to end since the scheduler wanted its room.
    pub preempted: bool,
    /// When its node took it in.
    pub started: Option<Timestamp>,
    priority: i32,
    /// Its requests.
    pub requests: PodRequests,
    /// Host ports it takes.
    pub ports: Box<[HostPort]>,
    terms: Option<Box<Terms>>,
    /// Its claims and disks.
    used: Option<Box<Used>>,
    /// All of it, as long as it has no node.
    waiting: Option<Box<core::Pod>>,
    /// The text of [`PodView::sort`].
    sort: Option<Box<str>>,
    /// Whether its claims make it one of its own.
    own: bool,
}

impl PodView {
    /// Computes what the scheduler needs of a Pod.
    pub fn new(pod: core::Pod) -> Self {
        let meta = &pod.metadata;
        let text = |t: &Option<String>| Text::from(t.as_deref().unwrap_or_default());
        let node = objects::pod::node_name(&pod);
        let target = objects::pod::condition(&pod, "DisruptionTarget");
        let terms = Terms::of(&pod);
        Self {
            namespace: text(&meta.namespace),
            name: text(&meta.name),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            resource_version: text(&meta.resource_version),
            generation: meta.generation,
            labels: meta.labels.iter().flatten().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
            node: node.into(),
            group: pod
                .spec
                .as_ref()
                .and_then(|s| s.scheduling_group.as_ref()?.pod_group_name.as_deref().map(Box::from)),
            ended: objects::pod::is_terminal(&pod),
            leaving: meta.deletion_timestamp.is_some(),
            preempted: target.is_some_and(|c| c.status == "True" && c.reason.as_deref() == Some(PREEMPTED)),
            started: pod.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0),
            priority: pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0),
            requests: pod_requests(&pod),
            ports: host_ports(&pod).into(),
            terms: (terms != Terms::default()).then(|| Box::new(terms)),
            used: Used::of(&pod),
            sort: if node.is_empty() { sort(&pod) } else { None },
            own: is_own(&pod),
            waiting: node.is_empty().then(|| Box::new(pod)),
        }
    }
    /// All that the rules of scheduling read of a Pod that waits for a node, as a text: its namespace, labels, requests,
    /// ports and images, and the rules in its spec. Pods with the same text are alike. `None`: its claims make it one of
    /// its own.
    pub fn signature(&self) -> Option<&str> {
        self.sort().filter(|_| !self.own)
    }
    /// The same for a Pod with claims or disks, too: all but these is alike. `None`: it waits for no node.
    pub fn sort(&self) -> Option<&str> {
        self.sort.as_deref()
    }
    /// Whether the rules about other Pods, and the sums of a node, see no difference between it and the other one, so that
    /// one may take the other's place.
    pub fn is_to_others_as(&self, other: &Self) -> bool {
        self.leaving == other.leaving
            && self.namespace == other.namespace
            && self.group == other.group
            && self.labels == other.labels
            && self.requests == other.requests
            && self.ports == other.ports
            && self.terms == other.terms
            && self.used == other.used
    }
    /// Its claims and disks, if it has any.
    pub fn used(&self) -> Option<&Used> {
        self.used.as_deref()
    }
    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Its uid, "" if it has none.
    pub fn uid(&self) -> &str {
        &self.uid
    }
    /// Its uid, to be shared.
    pub fn shared_uid(&self) -> Arc<str> {
        self.uid.clone()
    }
    /// The node that it is bound to.
    pub fn node(&self) -> Option<&str> {
        Some(self.node.as_str()).filter(|n| !n.is_empty())
    }
    /// The name of its PodGroup.
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }
    /// Its priority, 0 by default.
    pub fn priority(&self) -> i32 {
        self.priority
    }
    /// Its affinity to other Pods.
    pub fn terms(&self) -> &Terms {
        static NONE: Terms = Terms::NONE;
        self.terms.as_deref().unwrap_or(&NONE)
    }
    /// Whether it has terms of affinity or anti-affinity.
    pub fn has_terms(&self) -> bool {
        self.terms.is_some()
    }
    /// All of a Pod that waits for a node. Of a Pod that has one it is empty: nothing more is decided about it.
    pub fn whole(&self) -> &core::Pod {
        static EMPTY: OnceLock<core::Pod> = OnceLock::new();
        self.waiting.as_deref().unwrap_or_else(|| EMPTY.get_or_init(core::Pod::default))
    }
    /// Its spec, while it waits for a node.
    pub fn spec(&self) -> Option<&core::PodSpec> {
        self.waiting.as_deref()?.spec.as_ref()
    }
    /// The node that the API says it waits for, "" for none.
    pub fn nominated(&self) -> &str {
        let status = self.waiting.as_deref().and_then(|p| p.status.as_ref());
        status.and_then(|s| s.nominated_node_name.as_deref()).unwrap_or_default()
    }
    /// How Events name it.
    pub fn reference(&self) -> ObjectReference {
        let some = |t: &str| Some(t.to_owned());
        ObjectReference {
            api_version: some("v1"),
            kind: some("Pod"),
            namespace: some(&self.namespace),
            name: some(&self.name),
            uid: some(&self.uid),
            resource_version: some(&self.resource_version),
            field_path: None,
        }
    }
}

/// Whether a Pod has claims or disks.
fn is_own(pod: &core::Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| {
        spec.volumes.iter().flatten().any(volumes::matters)
            || spec.resource_claims.iter().flatten().count() > 0
    })
}

/// The text of [`PodView::sort`]. Whether there are claims and disks is in it: plugins keep nothing of these, but that
/// there are none.
fn sort(pod: &core::Pod) -> Option<Box<str>> {
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref()?);
    let claims = (Used::of(pod).is_some(), spec.resource_claims.iter().flatten().count() > 0);
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let said: Vec<_> = containers
        .map(|c| (&c.image, &c.ports, c.resources.as_ref().map(|r| &r.requests), &c.restart_policy))
        .collect();
    let images = spec.volumes.iter().flatten().filter_map(|v| v.image.as_ref()?.reference.as_ref());
    let rules = (&spec.affinity, &spec.tolerations, &spec.topology_spread_constraints, &spec.node_selector);
    let owner = meta.owner_references.iter().flatten().find(|o| o.controller == Some(true));
    let features: Vec<&str> = objects::features::needed(pod).collect();
    let text = serde_json::to_string(&(
        (
            &meta.namespace,
            &meta.labels,
            &spec.scheduling_group,
            owner.map(|o| (&o.kind, &o.name)),
            &spec.scheduler_name,
        ),
        (rules, said, images.collect::<Vec<_>>(), features, claims),
        (
            &spec.overhead,
            spec.resources.as_ref().map(|r| &r.requests),
            &spec.init_containers.as_ref().map(Vec::len),
        ),
        (&spec.host_network, &spec.os, &spec.node_name),
    ));
    text.ok().map(String::into_boxed_str)
}

impl Cached for PodView {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        let mut pod = core::Pod::from_json(json)?;
        // Nobody here reads these, and a Pod that waits is kept whole.
        pod.metadata.managed_fields = None;
        Ok(Self::new(pod))
    }
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }
}

/// A Pod that many know. Clones share it.
#[derive(Debug, Clone, PartialEq)]
pub struct PodInfo(Arc<PodView>);

impl PodInfo {
    /// Computes what the scheduler needs of a Pod.
    pub fn new(pod: core::Pod) -> Self {
        Self(Arc::new(PodView::new(pod)))
    }
}

impl PodInfo {
    /// The view that it shares.
    pub fn shared(&self) -> Arc<PodView> {
        self.0.clone()
    }
}

impl From<Arc<PodView>> for PodInfo {
    fn from(view: Arc<PodView>) -> Self {
        Self(view)
    }
}

impl Deref for PodInfo {
    type Target = PodView;
    fn deref(&self) -> &PodView {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(node: &str) -> PodView {
        let pod = json!({
            "metadata": {"namespace": "d", "name": "p", "uid": "u", "resourceVersion": "7", "generation": 3,
                "labels": {"b": "2", "a": "1"}, "managedFields": [{"manager": "m"}]},
            "spec": {"nodeName": node, "priority": 4, "containers": [{"name": "c",
                "ports": [{"containerPort": 1, "hostPort": 80}], "resources": {"requests": {"cpu": "2"}}}]},
            "status": {"startTime": "2026-01-01T00:00:00Z", "nominatedNodeName": "x", "conditions":
                [{"type": "DisruptionTarget", "status": "True", "reason": PREEMPTED}]},
        });
        PodView::decode(pod.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn what_is_kept() {
        let view = view("n");
        assert_eq!((view.namespace(), view.name(), view.uid()), ("d", "p", "u"));
        assert_eq!(
            (view.labels.get("a"), view.labels.get("b"), view.labels.get("c")),
            (Some("1"), Some("2"), None)
        );
        assert_eq!((view.node(), view.priority, view.generation), (Some("n"), 4, Some(3)));
        assert_eq!((view.requests.fit.milli_cpu, view.ports.len()), (2000, 1));
        assert!(view.preempted && !view.ended && !view.leaving && !view.has_terms());
        assert!(view.started.is_some());
    }

    #[test]
    fn a_pod_is_kept_whole_until_it_has_a_node() {
        assert!(view("n").spec().is_none());
        let waiting = view("");
        assert_eq!((waiting.node(), waiting.nominated()), (None, "x"));
        assert_eq!(waiting.spec().unwrap().containers.len(), 1);
        assert!(waiting.whole().metadata.managed_fields.is_none());
    }
}
