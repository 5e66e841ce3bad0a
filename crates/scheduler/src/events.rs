//! Events in the cluster, and what happened to the objects: what may lift a plugin's refusal (upstream's `ClusterEvent`
//! and queueing hints).

use std::ops::{BitOr, BitOrAssign};
use std::sync::Arc;

use client::Change;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use objects::{features, taints};

use crate::pod::{PodInfo, PodView};
use crate::resources;

/// A set of kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Events(u64);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $label:literal)+) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names are those of the constants")]
        enum Number { $($name),+ }
        impl Events {
            $($(#[$doc])* pub const $name: Self = Self(1 << Number::$name as u64);)+
        }
        /// Upstream's labels of the kinds.
        const LABELS: &[&str] = &[$($label),+];
    };
}

kinds! {
    /// A node came.
    NODE_ADDED "NodeAdd"
    /// A node went.
    NODE_DELETED "NodeDelete"
    /// A node's labels changed.
    NODE_LABELS "NodeUpdateNodeLabel"
    /// A node's taints changed, or whether it is unschedulable.
    NODE_TAINTS "NodeUpdateNodeTaint"
    /// The resources that a node offers changed.
    NODE_ALLOCATABLE "NodeUpdateNodeAllocatable"
    /// The features that a node declares changed.
    NODE_FEATURES "NodeUpdateNodeDeclaredFeature"
    /// A Pod has a node now.
    POD_ADDED "AssignedPodAdd"
    /// A Pod left its node, or is about to.
    POD_DELETED "AssignedPodDelete"
    /// The labels of a Pod that has a node changed.
    POD_LABELS "AssignedPodUpdatePodLabel"
    /// A Pod that has a node asks for less than before.
    POD_SCALED_DOWN "AssignedPodUpdatePodScaleDown"
    /// The labels of the waiting Pod itself changed.
    OWN_LABELS "UnschedulablePodUpdatePodLabel"
    /// The waiting Pod itself asks for less than before.
    OWN_SCALED_DOWN "UnschedulablePodUpdatePodScaleDown"
    /// The waiting Pod itself tolerates more than before.
    OWN_TOLERATIONS "UnschedulablePodUpdatePodToleration"
    /// The waiting Pod itself has no scheduling gates any more.
    OWN_GATES "UnschedulablePodUpdatePodSchedulingGatesEliminated"
    /// Claims were made for the waiting Pod itself.
    OWN_CLAIMS "UnschedulablePodUpdatePodGeneratedResourceClaim"
    /// Something else of the waiting Pod itself changed.
    OWN_OTHER "UnschedulablePodUpdate"
    /// The labels of a namespace changed, or it came.
    ///
    /// DIFFERENCE: upstream has no such event.
    NAMESPACE "NamespaceUpdate"
    /// A Pod came that has no node yet.
    UNPLACED_ADDED "UnschedulablePodAdd"
    /// A PodGroup came.
    GROUP_ADDED "scheduling.k8s.io/PodGroupAdd"
    /// A volume came.
    VOLUME_ADDED "PersistentVolumeAdd"
    /// A volume changed.
    VOLUME_CHANGED "PersistentVolumeUpdate"
    /// A claim came.
    CLAIM_ADDED "PersistentVolumeClaimAdd"
    /// A claim changed.
    CLAIM_CHANGED "PersistentVolumeClaimUpdate"
    /// A class of claims came.
    CLASS_ADDED "storage.k8s.io/StorageClassAdd"
    /// A class of claims changed.
    CLASS_CHANGED "storage.k8s.io/StorageClassUpdate"
    /// A node tells of its drivers.
    CSI_NODE_ADDED "storage.k8s.io/CSINodeAdd"
    /// A node tells of other drivers.
    CSI_NODE_CHANGED "storage.k8s.io/CSINodeUpdate"
    /// A driver changed.
    DRIVER_CHANGED "storage.k8s.io/CSIDriverUpdate"
    /// A driver tells of storage for volumes that are to be provisioned.
    CAPACITY_ADDED "storage.k8s.io/CSIStorageCapacityAdd"
    /// There is another amount of it.
    CAPACITY_CHANGED "storage.k8s.io/CSIStorageCapacityUpdate"
    /// A volume is no longer attached to a node.
    ATTACHMENT_DELETED "storage.k8s.io/VolumeAttachmentDelete"
    /// A claim on devices came.
    DEVICE_CLAIM_ADDED "resource.k8s.io/ResourceClaimAdd"
    /// A claim on devices changed.
    DEVICE_CLAIM_CHANGED "resource.k8s.io/ResourceClaimUpdate"
    /// A claim on devices went.
    DEVICE_CLAIM_DELETED "resource.k8s.io/ResourceClaimDelete"
    /// A class of devices came.
    DEVICE_CLASS_ADDED "resource.k8s.io/DeviceClassAdd"
    /// A class of devices changed.
    DEVICE_CLASS_CHANGED "resource.k8s.io/DeviceClassUpdate"
    /// A driver published devices.
    SLICE_ADDED "resource.k8s.io/ResourceSliceAdd"
    /// Published devices changed, or their taints.
    SLICE_CHANGED "resource.k8s.io/ResourceSliceUpdate"
}

/// How many kinds there are.
pub const KINDS: usize = LABELS.len();

impl Events {
    /// None.
    pub const NONE: Self = Self(0);
    /// All.
    pub const ALL: Self = Self((1 << KINDS) - 1);
    /// The kinds that concern the changed Pod alone.
    pub const OWN: Self = Self(
        Self::OWN_LABELS.0
            | Self::OWN_SCALED_DOWN.0
            | Self::OWN_TOLERATIONS.0
            | Self::OWN_GATES.0
            | Self::OWN_CLAIMS.0
            | Self::OWN_OTHER.0,
    );

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Whether the sets have a kind in common.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    /// Upstream's labels of the kinds.
    pub fn labels(self) -> impl Iterator<Item = &'static str> {
        LABELS.iter().enumerate().filter(move |(i, _)| self.0 & (1 << i) != 0).map(|(_, label)| *label)
    }
    /// Upstream's label of the first kind that this set has in common with another.
    pub fn label(self, other: Self) -> &'static str {
        Self(self.0 & other.0).labels().next().unwrap_or("*")
    }
}

impl BitOr for Events {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Events {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// An object before and after an event. One of the two is there.
#[derive(Debug)]
pub struct Pair<T> {
    /// As it was; `None` if it came.
    pub old: Option<Arc<T>>,
    /// As it is; `None` if it went.
    pub new: Option<Arc<T>>,
}

impl<T> Clone for Pair<T> {
    fn clone(&self) -> Self {
        Self { old: self.old.clone(), new: self.new.clone() }
    }
}

impl<T> From<&Change<T>> for Pair<T> {
    fn from(change: &Change<T>) -> Self {
        match change {
            Change::Added(new) => Self { old: None, new: Some(new.clone()) },
            Change::Updated { old, new } => Self { old: Some(old.clone()), new: Some(new.clone()) },
            Change::Deleted(old) => Self { old: Some(old.clone()), new: None },
        }
    }
}

/// The object of an event.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "each has the name of its kind")]
pub enum About {
    /// None, or many.
    Nothing,
    Node(Pair<Node>),
    /// A Pod that has a node, or for which room was kept on one; with the kinds of [`Events::OWN`] the waiting Pod itself,
    /// with [`Events::UNPLACED_ADDED`] another one.
    Pod(Pair<PodView>),
    Group(Pair<PodGroup>),
    Volume(Pair<PersistentVolume>),
    Claim(Pair<PersistentVolumeClaim>),
    Class(Pair<StorageClass>),
    CsiNode(Pair<CSINode>),
    Driver(Pair<CSIDriver>),
    Capacity(Pair<CSIStorageCapacity>),
    Attachment(Pair<VolumeAttachment>),
    DeviceClaim(Pair<ResourceClaim>),
    DeviceClass(Pair<DeviceClass>),
}

/// Something that happened.
#[derive(Debug, Clone)]
pub struct Happening {
    /// The kinds of event that it is.
    pub kinds: Events,
    /// The object to which it happened.
    pub about: About,
    /// Only Pods of at most this priority have anything of it.
    pub up_to: Option<i32>,
}

impl Happening {
    /// Something that happened to an object.
    pub fn new(kinds: Events, about: About) -> Self {
        Self { kinds, about, up_to: None }
    }
    /// Nothing happened.
    pub fn nothing() -> Self {
        Self::new(Events::NONE, About::Nothing)
    }
    /// A Pod left its node.
    pub fn left(pod: &PodInfo) -> Self {
        Self::new(Events::POD_DELETED, About::Pod(Pair { old: Some(pod.shared()), new: None }))
    }
    /// The room that was kept for a Pod is free, which helps Pods that are not more important (upstream's
    /// `getLEPriorityPreCheck`).
    pub fn room_given_back(pod: &PodInfo) -> Self {
        Self { up_to: Some(pod.priority()), ..Self::left(pod) }
    }
    /// Whether it holds objects of users, whole and as large as these made them.
    pub fn is_of_users(&self) -> bool {
        match &self.about {
            About::Claim(_) | About::DeviceClaim(_) | About::Group(_) => true,
            About::Pod(pair) => [&pair.old, &pair.new].into_iter().flatten().any(|pod| pod.spec().is_some()),
            _ => false,
        }
    }
    /// The uid of the Pod that it concerns alone.
    pub fn own(&self) -> Option<&str> {
        match &self.about {
            About::Pod(Pair { new: Some(pod), .. }) if self.kinds.meets(Events::OWN) => Some(pod.uid()),
            _ => None,
        }
    }
}

/// The events of a node's new state: none if only its heartbeat has changed.
///
/// DIFFERENCE: a node that is cordoned tells of its taints, too; conditions and annotations are no events, since no plugin
/// waits for them.
pub fn of_node(old: &Node, new: &Node) -> Events {
    let (spec, other) = (new.spec.as_ref(), old.spec.as_ref());
    let allocatable = |n: &Node| n.status.as_ref().and_then(|s| s.allocatable.clone());
    let mut events = Events::NONE;
    if new.metadata.labels != old.metadata.labels {
        events |= Events::NODE_LABELS;
    }
    if spec.and_then(|s| s.taints.as_ref()) != other.and_then(|s| s.taints.as_ref())
        || spec.and_then(|s| s.unschedulable) != other.and_then(|s| s.unschedulable)
    {
        events |= Events::NODE_TAINTS;
    }
    if allocatable(new) != allocatable(old) {
        events |= Events::NODE_ALLOCATABLE;
    }
    if features::declared(new) != features::declared(old) {
        events |= Events::NODE_FEATURES;
    }
    events
}

/// The events of a waiting Pod's new state (upstream's `PodSchedulingPropertiesChange`).
pub fn of_own(old: &PodView, new: &PodView) -> Events {
    let mut events = Events::NONE;
    if old.labels != new.labels {
        events |= Events::OWN_LABELS;
    }
    if resources::is_reduced(&old.requests.fit, &new.requests.fit) {
        events |= Events::OWN_SCALED_DOWN;
    }
    let gated = |p: &PodView| p.spec().is_some_and(|s| s.scheduling_gates.iter().flatten().next().is_some());
    if gated(old) && !gated(new) {
        events |= Events::OWN_GATES;
    }
    if taints::tolerations(old.whole()) != taints::tolerations(new.whole()) {
        events |= Events::OWN_TOLERATIONS;
    }
    let claims = |p: &PodView| {
        let status = p.whole().status.as_ref();
        status.map(|s| (s.resource_claim_statuses.clone(), s.extended_resource_claim_status.clone()))
    };
    if claims(old) != claims(new) {
        events |= Events::OWN_CLAIMS;
    }
    if events.is_empty() { Events::OWN_OTHER } else { events }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(old: Value, new: Value, expected: Events) {
        let node = |v: Value| serde_json::from_value::<Node>(v).unwrap();
        assert_eq!(of_node(&node(old), &node(new)), expected);
    }

    #[test]
    fn changes_of_nodes() {
        let node = |labels: Value, spec: Value, allocatable: Value| json!({"metadata": {"labels": labels}, "spec": spec, "status": {"allocatable": allocatable}});
        let plain = node(json!({}), json!({}), json!({}));
        check(plain.clone(), plain.clone(), Events::NONE);
        check(plain.clone(), node(json!({"a": "b"}), json!({}), json!({})), Events::NODE_LABELS);
        let tainted = node(json!({}), json!({"taints": [{"key": "a", "effect": "NoSchedule"}]}), json!({}));
        check(plain.clone(), tainted, Events::NODE_TAINTS);
        let cordoned = node(json!({}), json!({"unschedulable": true}), json!({}));
        check(plain.clone(), cordoned, Events::NODE_TAINTS);
        check(plain.clone(), node(json!({}), json!({}), json!({"cpu": "1"})), Events::NODE_ALLOCATABLE);
        let mut declares = plain.clone();
        declares["status"]["declaredFeatures"] = json!(["A"]);
        check(plain, declares, Events::NODE_FEATURES);
        assert_eq!(Events::ALL.labels().count(), KINDS);
    }

    #[test]
    fn changes_of_a_waiting_pod() {
        let pod = |labels: Value, cpu: &str, rest: Value, status: Value| {
            let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
            rest.as_object().unwrap().iter().for_each(|(k, v)| spec[k] = v.clone());
            let pod = json!({"metadata": {"uid": "u", "labels": labels}, "spec": spec, "status": status});
            PodView::new(serde_json::from_value(pod).unwrap())
        };
        let none = json!({});
        let plain = || pod(none.clone(), "2", none.clone(), none.clone());
        let gated = pod(none.clone(), "2", json!({"schedulingGates": [{"name": "a"}]}), none.clone());
        let tolerant = pod(none.clone(), "2", json!({"tolerations": [{"operator": "Exists"}]}), none.clone());
        let claims = json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}]});
        for (old, new, expected) in [
            (plain(), pod(json!({"a": "b"}), "2", none.clone(), none.clone()), Events::OWN_LABELS),
            (plain(), pod(none.clone(), "1", none.clone(), none.clone()), Events::OWN_SCALED_DOWN),
            (plain(), pod(none.clone(), "3", none.clone(), none.clone()), Events::OWN_OTHER),
            (gated, plain(), Events::OWN_GATES),
            (plain(), tolerant, Events::OWN_TOLERATIONS),
            (plain(), pod(none.clone(), "2", none.clone(), claims), Events::OWN_CLAIMS),
            (plain(), plain(), Events::OWN_OTHER),
        ] {
            assert_eq!(of_own(&old, &new), expected);
        }
        let label = (Events::OWN_LABELS | Events::POD_ADDED).label(Events::OWN);
        assert_eq!(label, "UnschedulablePodUpdatePodLabel");
    }
}
