//! Groups of Pods that are scheduled together: PodGroups, and which Pods are in each (upstream's `podGroupState`).
//!
//! The scheduler's loop writes what it hears; plugins read.

use std::collections::{BTreeSet, HashMap};
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
}

/// The Pods of a group, by uid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Those that the API shows without a node.
    waiting: BTreeSet<Arc<str>>,
    /// Those that have a node, or are assumed to have one.
    placed: BTreeSet<Arc<str>>,
}

impl Members {
    /// How many there are.
    pub fn all(&self) -> usize {
        self.waiting.union(&self.placed).count()
    }
    /// Those that have a node, or are assumed to have one.
    pub fn placed(&self) -> &BTreeSet<Arc<str>> {
        &self.placed
    }
    /// Those that have none.
    pub fn unplaced(&self) -> impl Iterator<Item = &Arc<str>> {
        self.waiting.difference(&self.placed)
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
    fn change(&self, pod: &PodView, change: impl FnOnce(&mut Members)) {
        let Some(key) = key(pod) else { return };
        let mut known = self.write();
        let members = known.members.entry(key.clone()).or_default();
        change(members);
        if *members == Members::default() {
            known.members.remove(&key);
        }
    }
    /// A Pod waits for a node.
    pub fn waits(&self, pod: &PodView) {
        self.change(pod, |members| {
            members.waiting.insert(pod.shared_uid());
        });
    }
    /// A Pod waits no more: it has a node, or is gone.
    pub fn waits_no_more(&self, pod: &PodView) {
        self.change(pod, |members| {
            members.waiting.remove(pod.uid());
        });
    }
    /// A Pod has a node, or is assumed to have one.
    pub fn placed(&self, pod: &PodView) {
        self.change(pod, |members| {
            members.placed.insert(pod.shared_uid());
        });
    }
    /// A Pod has no node any more.
    pub fn left(&self, pod: &PodView) {
        self.change(pod, |members| {
            members.placed.remove(pod.uid());
        });
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
    /// The PodGroup of a Pod.
    pub fn of(&self, pod: &PodView) -> Option<Arc<PodGroup>> {
        self.read().objects.get(&key(pod)?).cloned()
    }
    /// The Pods of a Pod's group.
    pub fn members(&self, pod: &PodView) -> Members {
        key(pod).and_then(|key| self.read().members.get(&key).cloned()).unwrap_or_default()
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
            let members = groups.members(&a);
            let unplaced: Vec<String> = members.unplaced().map(ToString::to_string).collect();
            (members.all(), members.placed().len(), unplaced.join(","))
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
