//! Events in the cluster: what may lift a plugin's refusal.

use std::ops::{BitOr, BitOrAssign};

use k8s_openapi::api::core::v1::Node;
use objects::features;

/// A set of kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events(u32);

/// How many kinds there are.
pub const KINDS: usize = 28;

impl Events {
    /// None.
    pub const NONE: Self = Self(0);
    /// All.
    pub const ALL: Self = Self((1 << KINDS) - 1);
    /// A node came.
    pub const NODE_ADDED: Self = Self(1);
    /// A node went.
    pub const NODE_DELETED: Self = Self(1 << 1);
    /// A node's labels changed.
    pub const NODE_LABELS: Self = Self(1 << 2);
    /// A node's taints changed, or whether it is unschedulable.
    pub const NODE_TAINTS: Self = Self(1 << 3);
    /// The resources that a node offers changed.
    pub const NODE_ALLOCATABLE: Self = Self(1 << 4);
    /// A Pod has a node now.
    pub const POD_ADDED: Self = Self(1 << 5);
    /// The labels of a Pod that has a node changed.
    pub const POD_LABELS: Self = Self(1 << 6);
    /// A Pod left its node, or is about to.
    pub const POD_DELETED: Self = Self(1 << 7);
    /// A Pod asks for less than before.
    pub const POD_SCALED_DOWN: Self = Self(1 << 8);
    /// A claim came.
    pub const CLAIM_ADDED: Self = Self(1 << 9);
    /// The features that a node declares changed.
    pub const NODE_FEATURES: Self = Self(1 << 10);
    /// A claim changed.
    pub const CLAIM_CHANGED: Self = Self(1 << 11);
    /// A volume came.
    pub const VOLUME_ADDED: Self = Self(1 << 12);
    /// A volume changed.
    pub const VOLUME_CHANGED: Self = Self(1 << 13);
    /// The zones of a volume changed.
    pub const VOLUME_ZONES: Self = Self(1 << 14);
    /// A class of claims came.
    pub const CLASS_ADDED: Self = Self(1 << 15);
    /// A class came whose claims wait for a Pod.
    pub const CLASS_WAITS: Self = Self(1 << 16);
    /// The topologies changed in which a class has its volumes.
    pub const CLASS_TOPOLOGIES: Self = Self(1 << 17);
    /// A node tells of its drivers.
    pub const CSI_NODE_ADDED: Self = Self(1 << 18);
    /// A driver on a node takes more volumes.
    pub const CSI_NODE_LIMITS: Self = Self(1 << 19);
    /// The plugins changed whose volumes a node's drivers mount.
    pub const CSI_NODE_MIGRATED: Self = Self(1 << 20);
    /// There is more storage for volumes that are to be provisioned.
    pub const CAPACITY: Self = Self(1 << 21);
    /// A volume is no longer attached to a node.
    pub const ATTACHMENT_DELETED: Self = Self(1 << 22);
    /// A Pod with claims or disks left its node.
    pub const VOLUMES_FREED: Self = Self(1 << 23);
    /// A claim on devices came or changed.
    pub const DEVICE_CLAIM: Self = Self(1 << 24);
    /// A claim gave its devices back.
    pub const DEVICES_FREED: Self = Self(1 << 25);
    /// A class of devices came or changed.
    pub const DEVICE_CLASS: Self = Self(1 << 26);
    /// A driver published devices, or their taints changed.
    pub const DEVICE_SLICE: Self = Self(1 << 27);

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Whether the sets have a kind in common.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    /// The numbers of the kinds, from 0.
    pub fn kinds(self) -> impl Iterator<Item = usize> {
        (0..KINDS).filter(move |i| self.0 & (1 << i) != 0)
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

/// The events of a node's new state: none if only its heartbeat has changed.
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
        assert_eq!(Events::ALL.kinds().count(), KINDS);
    }
}
