//! The volumes without an object of their attachment: which nodes have them; pure.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::names::PREFIX;
use super::node::is_managed;
use crate::views::NodeView;

/// The volumes that nodes have.
#[derive(Debug, Default)]
pub(super) struct InTree {
    /// By volumes: the nodes, with the paths of devices.
    pub(super) attached: BTreeMap<String, BTreeMap<String, String>>,
    /// The nodes whose state was read.
    pub(super) read: HashSet<String>,
    /// Whether all that were there at the start were.
    pub(super) started: bool,
    /// Volumes and nodes which are told no more of them.
    pub(super) leaving: BTreeSet<(String, String)>,
}

/// The volumes of these kinds that a Node is told of, with the paths of their devices.
fn told(node: &NodeView) -> impl Iterator<Item = (&str, &str)> {
    let all = node.status.iter().flat_map(|s| s.volumes_attached.iter().flatten());
    all.map(|v| (v.name.as_str(), v.device_path.as_str())).filter(|(name, _)| !name.starts_with(PREFIX))
}

impl InTree {
    /// Reads what a Node is told, once. Answers the volumes.
    pub(super) fn read(&mut self, name: &str, node: &NodeView) -> Vec<String> {
        if !is_managed(node) || !self.read.insert(name.to_owned()) {
            return Vec::new();
        }
        let all = told(node).map(|(volume, device)| {
            let nodes = self.attached.entry(volume.to_owned()).or_default();
            nodes.entry(name.to_owned()).or_insert_with(|| device.to_owned());
            volume.to_owned()
        });
        all.collect()
    }

    /// Notes that a node has a volume, at this device.
    pub(super) fn put(&mut self, volume: &str, node: &str, device: String) {
        self.attached.entry(volume.to_owned()).or_default().insert(node.to_owned(), device);
    }

    /// The volumes of a node.
    pub(super) fn of(&self, node: &str) -> Vec<String> {
        let has = self.attached.iter().filter(|(_, nodes)| nodes.contains_key(node));
        has.map(|(volume, _)| volume.clone()).collect()
    }

    /// The volumes that a node is to be told of, with the paths of their devices.
    pub(super) fn to_tell(&self, node: &str) -> BTreeMap<String, String> {
        let of = |(volume, nodes): (&String, &BTreeMap<String, String>)| {
            let device = nodes.get(node)?.clone();
            let leaves = self.leaving.contains(&(volume.clone(), node.to_owned()));
            (!leaves).then(|| (volume.clone(), device))
        };
        self.attached.iter().filter_map(of).collect()
    }

    /// Forgets that a node has a volume.
    pub(super) fn remove(&mut self, volume: &str, node: &str) {
        self.leaving.remove(&(volume.to_owned(), node.to_owned()));
        if let Some(nodes) = self.attached.get_mut(volume) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.attached.remove(volume);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_are_read_once() {
        let node = |managed: bool| -> NodeView {
            let annotations = if managed { json!({super::super::node::MANAGED: "true"}) } else { json!({}) };
            serde_json::from_value(json!({"metadata": {"annotations": annotations}, "status": {"volumesAttached": [
                {"name": "kubernetes.io/csi/d^h", "devicePath": ""}, {"name": "d/v", "devicePath": "/dev/x"}]}}))
            .unwrap()
        };
        let mut all = InTree::default();
        assert!(all.read("a", &node(false)).is_empty());
        assert_eq!(all.read("a", &node(true)), ["d/v"]);
        assert!(all.read("a", &node(true)).is_empty());
        let told = BTreeMap::from([("d/v".to_owned(), "/dev/x".to_owned())]);
        assert_eq!((all.to_tell("a"), all.to_tell("b")), (told, BTreeMap::new()));
        all.leaving.insert(("d/v".into(), "a".into()));
        assert!(all.to_tell("a").is_empty() && all.of("a") == ["d/v"]);
        all.remove("d/v", "a");
        assert!(all.of("a").is_empty() && all.leaving.is_empty());
    }

    /// A step of upstream's tests: a volume and a node, by numbers.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Attach(u8, u8),
        Detach(u8, u8),
        /// The node is told no more of the volume.
        Leave(u8, u8),
        /// It stays.
        Stay(u8, u8),
    }
    use Step::{Attach, Detach, Leave, Stay};

    /// 22 of upstream's 40 cases of `actual_state_of_world_test.go`: the steps, and after them the volumes that nodes 1 and 2
    /// have, and of which they are told. Seven others are about the time since when a volume is to leave a node, and whether
    /// the node uses it: here a plan gets both as they are (`Holder`). Five note a volume of which nobody knows for certain
    /// whether it is attached, which is never noted here. Six are about notes that a node is to be told of something, which
    /// are not needed here: what it is told is compared with what it knows. The wanted state (`desired_state_of_world_test.go`,
    /// 25 cases) is kept nowhere either: the caches of Pods and claims are asked.
    #[test]
    fn upstreams_actual_states() {
        let check = |steps: &[Step], has: [&[&str]; 2], told: [&[&str]; 2]| {
            let mut all = InTree::default();
            let names = |volume: u8, node: u8| (format!("v{volume}"), format!("n{node}"));
            for step in steps {
                match *step {
                    Attach(v, n) => all.put(&names(v, n).0, &names(v, n).1, format!("/dev/{n}")),
                    Detach(v, n) => all.remove(&names(v, n).0, &names(v, n).1),
                    Leave(v, n) => drop(all.leaving.insert(names(v, n))),
                    Stay(v, n) => drop(all.leaving.remove(&names(v, n))),
                }
            }
            for (i, (has, told)) in has.into_iter().zip(told).enumerate() {
                let (node, device) = (format!("n{}", i + 1), format!("/dev/{}", i + 1));
                assert_eq!(all.of(&node), has, "{steps:?} {node}");
                let got = all.to_tell(&node);
                assert_eq!(got.keys().map(String::as_str).collect::<Vec<_>>(), told, "{steps:?} {node}");
                assert!(got.values().all(|at| *at == device), "each node has its own device: {got:?}");
            }
        };
        let (none, one, two): (&[&str], &[&str], &[&str]) = (&[], &["v1"], &["v2"]);
        let same = |steps: &[Step], has: [&[&str]; 2]| check(steps, has, has);
        same(&[], [none, none]);
        same(&[Attach(1, 1)], [one, none]);
        same(&[Attach(1, 1), Attach(1, 2)], [one, one]);
        same(&[Attach(1, 1), Attach(1, 1)], [one, none]);
        same(&[Attach(1, 1), Attach(2, 2)], [one, two]);
        same(&[Attach(1, 1), Attach(2, 1)], [&["v1", "v2"], none]);
        same(&[Attach(1, 1), Detach(1, 1)], [none, none]);
        same(&[Detach(1, 1)], [none, none]);
        same(&[Attach(1, 1), Attach(1, 2), Detach(1, 1)], [none, one]);
        check(&[Attach(1, 1), Leave(1, 1)], [one, none], [none, none]);
        same(&[Attach(1, 1), Leave(1, 1), Stay(1, 1)], [one, none]);
        same(&[Attach(1, 1), Leave(1, 1), Detach(1, 1)], [none, none]);
        same(&[Attach(1, 1), Leave(1, 1), Detach(1, 1), Attach(1, 1)], [one, none]);
        check(&[Attach(1, 1), Attach(1, 2), Leave(1, 1)], [one, one], [none, one]);
    }
}
