//! Preemptors that wait for the room made for them, with the node it is made on.

use std::collections::HashMap;

use crate::pod::PodInfo;

/// The Pods that wait for a node: what `status.nominatedNodeName` says, known here before the API has it.
#[derive(Debug, Default)]
pub struct Nominated {
    node_of: HashMap<String, String>,
    by_node: HashMap<String, HashMap<String, PodInfo>>,
}

impl Nominated {
    /// The node that a Pod waits for.
    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.node_of.get(uid).map(String::as_str)
    }
    /// The Pods that wait for a node.
    pub fn on(&self, node: &str) -> impl Iterator<Item = &PodInfo> {
        self.by_node.get(node).into_iter().flat_map(HashMap::values)
    }
    /// The nodes that Pods wait for.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.by_node.keys().map(String::as_str)
    }
    /// Takes in that a Pod waits for a node, and for no other.
    pub fn set(&mut self, pod: PodInfo, node: &str) {
        self.remove(pod.uid());
        self.node_of.insert(pod.uid().to_owned(), node.to_owned());
        self.by_node.entry(node.to_owned()).or_default().insert(pod.uid().to_owned(), pod);
    }
    /// A Pod waits no more.
    pub fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else { return };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }
    /// Takes in a new state of a pending Pod; `before` is the one known so far. The API's word counts if it has
    /// changed there; otherwise the node known here may be newer (upstream's `UpdateNominatedPod`).
    pub fn follow(&mut self, pod: &PodInfo, before: Option<&str>) {
        let says = pod.nominated();
        if says == before.unwrap_or_default() {
            if let Some(node) = self.node_of(pod.uid()).map(str::to_owned) {
                self.set(pod.clone(), &node);
            }
        } else if says.is_empty() {
            self.remove(pod.uid());
        } else {
            self.set(pod.clone(), says);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: &str) -> PodInfo {
        let pod = json!({"metadata": {"uid": "u"}, "status": {"nominatedNodeName": node}});
        PodInfo::new(serde_json::from_value(pod).unwrap())
    }

    /// The node known here, that of the API before, that of the API now, and the one that follows.
    fn check(known: &str, before: Option<&str>, now: &str, expected: Option<&str>) {
        let mut all = Nominated::default();
        if !known.is_empty() {
            all.set(pod(""), known);
        }
        all.follow(&pod(now), before);
        assert_eq!(all.node_of("u"), expected);
        assert_eq!(all.on(expected.unwrap_or(known)).count(), usize::from(expected.is_some()));
    }

    #[test]
    fn nominations_follow_the_api() {
        check("", None, "", None);
        check("", None, "a", Some("a"));
        check("a", Some(""), "", Some("a"));
        check("a", Some(""), "a", Some("a"));
        check("a", Some("a"), "b", Some("b"));
        check("a", Some("a"), "", None);
        check("b", Some("a"), "a", Some("b"));
    }
}
