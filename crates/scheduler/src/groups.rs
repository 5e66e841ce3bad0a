//! Groups of Pods that are scheduled together: PodGroups, and which Pods are in each (upstream's `podGroupState`).
//!
//! The scheduler's loop writes what it hears; plugins read.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use client::Change;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;

use crate::events::{About, Events, Happening};
use crate::pod::PodView;

/// The groups of a cluster. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Groups(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// By namespace and name.
    objects: HashMap<(String, String), Arc<PodGroup>>,
    members: HashMap<(String, String), Members>,
    /// The group whose turn is going on, and how many of its Pods had nodes before.
    turn: Option<((String, String), usize)>,
}

/// The Pods of a group, by uid.
#[derive(Debug, Default)]
pub struct Members {
    pods: BTreeMap<Arc<str>, Member>,
    placed: usize,
}

/// A Pod of a group; it is one or both.
#[derive(Debug, Default)]
struct Member {
    /// The API shows it without a node.
    waits: bool,
    /// It has a node, or is assumed to have one.
    placed: bool,
}

impl Members {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.pods.len()
    }
    /// How many have a node, or are assumed to have one.
    pub fn count_placed(&self) -> usize {
        self.placed
    }
    /// Those that have a node, or are assumed to have one.
    pub fn placed(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pods.iter().filter(|(_, pod)| pod.placed).map(|(uid, _)| uid)
    }
    /// Those that have none.
    pub fn unplaced(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pods.iter().filter(|(_, pod)| !pod.placed).map(|(uid, _)| uid)
    }
    fn change(&mut self, uid: Arc<str>, change: impl FnOnce(&mut Member)) {
        let pod = self.pods.entry(uid.clone()).or_default();
        self.placed -= usize::from(pod.placed);
        change(pod);
        self.placed += usize::from(pod.placed);
        if !pod.waits && !pod.placed {
            self.pods.remove(&uid);
        }
    }
}

/// The namespace and the name of a Pod's group.
fn key(pod: &PodView) -> Option<(String, String)> {
    Some((pod.namespace().to_owned(), pod.group()?.to_owned()))
}

impl Groups {
    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
    fn change(&self, pod: &PodView, change: impl FnOnce(&mut Member)) {
        let Some(key) = key(pod) else { return };
        let mut known = self.write();
        let members = known.members.entry(key.clone()).or_default();
        members.change(pod.shared_uid(), change);
        if members.pods.is_empty() {
            known.members.remove(&key);
        }
    }
    /// A Pod waits for a node.
    pub fn waits(&self, pod: &PodView) {
        self.change(pod, |pod| pod.waits = true);
    }
    /// A Pod waits no more: it has a node, or is gone.
    pub fn waits_no_more(&self, pod: &PodView) {
        self.change(pod, |pod| pod.waits = false);
    }
    /// A Pod has a node, or is assumed to have one.
    pub fn placed(&self, pod: &PodView) {
        self.change(pod, |pod| pod.placed = true);
    }
    /// A Pod has no node any more.
    pub fn left(&self, pod: &PodView) {
        self.change(pod, |pod| pod.placed = false);
    }
    /// Takes in a change; says what happened.
    pub fn take(&self, change: &Change<PodGroup>) -> Happening {
        let group = change.object();
        let text = |t: &Option<String>| t.clone().unwrap_or_default();
        let key = (text(&group.metadata.namespace), text(&group.metadata.name));
        let mut known = self.write();
        let kinds = match change {
            Change::Deleted(_) => {
                known.objects.remove(&key);
                Events::NONE
            }
            Change::Added(_) => Events::GROUP_ADDED,
            Change::Updated { old, new } if old.metadata.uid != new.metadata.uid => Events::GROUP_ADDED,
            Change::Updated { .. } => Events::NONE,
        };
        if !matches!(change, Change::Deleted(_)) {
            known.objects.insert(key, group.clone());
        }
        Happening::new(kinds, About::Group(change.into()))
    }
    /// The group of a Pod begins its turn.
    pub fn begin_turn(&self, pod: &PodView) {
        let placed = self.members(pod, Members::count_placed);
        self.write().turn = key(pod).map(|key| (key, placed));
    }
    /// It is over.
    pub fn end_turn(&self) {
        self.write().turn = None;
    }
    /// How many Pods of a Pod's group have nodes, but for those that are only assumed to in the turn that is going on.
    pub fn placed_before(&self, pod: &PodView) -> usize {
        let turn = self.read().turn.clone().filter(|(group, _)| Some(group) == key(pod).as_ref());
        turn.map_or_else(|| self.members(pod, Members::count_placed), |(_, placed)| placed)
    }
    /// The PodGroup of a Pod.
    pub fn of(&self, pod: &PodView) -> Option<Arc<PodGroup>> {
        self.read().objects.get(&key(pod)?).cloned()
    }
    /// Asks about the Pods of a Pod's group.
    pub fn members<T>(&self, pod: &PodView, ask: impl FnOnce(&Members) -> T) -> T {
        let known = self.read();
        let members = key(pod).and_then(|key| known.members.get(&key));
        ask(members.unwrap_or(&Members::default()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::PodInfo;

    #[test]
    fn pods_come_and_go() {
        let pod = |uid: &str, group: &str| {
            let pod = json!({"metadata": {"namespace": "d", "uid": uid}, "spec": {"containers": [], "schedulingGroup": {"podGroupName": group}}});
            PodInfo::new(serde_json::from_value(pod).unwrap())
        };
        let (groups, a, b) = (Groups::default(), pod("a", "g"), pod("b", "g"));
        let state = || {
            groups.members(&a, |members| {
                let unplaced: Vec<String> = members.unplaced().map(ToString::to_string).collect();
                (members.count(), members.count_placed(), unplaced.join(","))
            })
        };
        for pod in [&a, &b, &pod("c", "other")] {
            groups.waits(pod);
        }
        assert_eq!(state(), (2, 0, "a,b".into()));
        groups.placed(&a);
        assert_eq!(state(), (2, 1, "b".into()), "it is assumed");
        groups.left(&a);
        groups.placed(&b);
        groups.waits_no_more(&b);
        assert_eq!(state(), (2, 1, "a".into()), "it is bound");
        groups.waits_no_more(&a);
        groups.left(&b);
        assert_eq!((state(), groups.read().members.len()), ((0, 0, String::new()), 1));
    }
}
