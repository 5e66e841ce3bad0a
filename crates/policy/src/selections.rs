//! The selections that policies name, and which Pods each selects.
//!
//! A Pod asks only the selections of its namespace that want no label, or one that it has.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use client::Key;
use compact_str::CompactString as Text;
use objects::labels::CompactLabels;

use crate::spec::{Scope, Selection};

/// The number of a selection while somebody names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(u32);

/// A selection that somebody names.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) selection: Arc<Selection>,
    users: usize,
    /// The policies that hold for the selected Pods.
    pub(crate) policies: BTreeSet<Arc<Key>>,
    /// The selected Pods.
    pub(crate) pods: BTreeSet<Arc<Key>>,
}

type Anchor = Option<(Text, Text)>;

/// The selections.
#[derive(Debug, Default)]
pub(crate) struct Selections {
    slots: Vec<Option<Selected>>,
    free: Vec<u32>,
    by_value: HashMap<Arc<Selection>, Id>,
    /// The selections of each namespace, by the label that they want.
    index: HashMap<Text, HashMap<Anchor, BTreeSet<Id>>>,
    /// Those that choose namespaces by labels.
    wide: BTreeSet<Id>,
    namespaces: BTreeMap<Text, CompactLabels>,
}

impl Selections {
    pub(crate) fn get(&self, id: Id) -> Option<&Selected> {
        self.slots.get(id.0 as usize)?.as_ref()
    }
    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut Selected> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Names a selection; tells the namespaces whose Pods are to be asked if nobody named it before.
    pub(crate) fn acquire(&mut self, selection: &Selection) -> (Id, Vec<Text>) {
        if let Some(id) = self.by_value.get(selection).copied() {
            if let Some(known) = self.get_mut(id) {
                known.users += 1;
            }
            return (id, Vec::new());
        }
        let selection = Arc::new(selection.clone());
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let id = Id(place);
        self.by_value.insert(selection.clone(), id);
        let spaces = match &selection.scope {
            Scope::Namespace(name) => vec![name.clone()],
            Scope::Namespaces(wanted) => {
                self.wide.insert(id);
                let chosen = |labels: &CompactLabels| wanted.selector().matches_by(|key| labels.get(key));
                let all = self.namespaces.iter().filter(|(_, labels)| chosen(labels));
                all.map(|(name, _)| name.clone()).collect()
            }
        };
        for space in &spaces {
            self.file(space, &selection, id);
        }
        let selected = Selected { selection, users: 1, policies: BTreeSet::new(), pods: BTreeSet::new() };
        if let Some(slot) = self.slots.get_mut(place as usize) {
            *slot = Some(selected);
        }
        (id, spaces)
    }

    /// Takes a name back; the Pods that a selection had which nobody names any more are told.
    pub(crate) fn release(&mut self, id: Id) -> BTreeSet<Arc<Key>> {
        let Some(known) = self.get_mut(id) else { return BTreeSet::new() };
        known.users -= 1;
        if known.users > 0 {
            return BTreeSet::new();
        }
        let Some(gone) = self.slots.get_mut(id.0 as usize).and_then(Option::take) else {
            return BTreeSet::new();
        };
        self.by_value.remove(&gone.selection);
        self.free.push(id.0);
        match &gone.selection.scope {
            Scope::Namespace(name) => self.unfile(&name.clone(), &gone.selection, id),
            Scope::Namespaces(_) => {
                self.wide.remove(&id);
                let spaces: Vec<Text> = self.namespaces.keys().cloned().collect();
                for space in spaces {
                    self.unfile(&space, &gone.selection, id);
                }
            }
        }
        gone.pods
    }

    fn file(&mut self, space: &Text, selection: &Selection, id: Id) {
        let by_anchor = self.index.entry(space.clone()).or_default();
        by_anchor.entry(selection.pods.anchor().cloned()).or_default().insert(id);
    }

    fn unfile(&mut self, space: &Text, selection: &Selection, id: Id) {
        let Some(by_anchor) = self.index.get_mut(space) else { return };
        let anchor = selection.pods.anchor().cloned();
        if let Some(ids) = by_anchor.get_mut(&anchor) {
            ids.remove(&id);
            if ids.is_empty() {
                by_anchor.remove(&anchor);
            }
        }
        if by_anchor.is_empty() {
            self.index.remove(space);
        }
    }

    /// Takes a namespace's labels, or that it is gone. Tells whether other selections choose it now.
    pub(crate) fn set_namespace(&mut self, name: &Text, labels: Option<CompactLabels>) -> bool {
        let mut changed = false;
        let before = self.namespaces.get(name).cloned();
        for id in self.wide.clone() {
            let Some(selection) = self.get(id).map(|one| one.selection.clone()) else { continue };
            let Scope::Namespaces(wanted) = &selection.scope else { continue };
            let chosen = |labels: &Option<CompactLabels>| {
                labels.as_ref().is_some_and(|l| wanted.selector().matches_by(|key| l.get(key)))
            };
            match (chosen(&before), chosen(&labels)) {
                (false, true) => self.file(name, &selection, id),
                (true, false) => self.unfile(name, &selection, id),
                _ => continue,
            }
            changed = true;
        }
        match labels {
            Some(labels) => drop(self.namespaces.insert(name.clone(), labels)),
            None => drop(self.namespaces.remove(name)),
        }
        changed
    }

    /// Whether a namespace is known.
    pub(crate) fn knows(&self, namespace: &str) -> bool {
        self.namespaces.contains_key(namespace)
    }

    /// The selections that select a Pod with these labels in a namespace, in order.
    pub(crate) fn of(&self, namespace: &str, labels: &CompactLabels) -> Vec<Id> {
        let Some(by_anchor) = self.index.get(namespace) else { return Vec::new() };
        let anchors = labels.pairs().map(|label| Some(label.clone())).chain([None]);
        let candidates = anchors.filter_map(|anchor| by_anchor.get(&anchor)).flatten();
        let mut found: Vec<Id> = candidates.copied().filter(|id| self.selects(*id, labels)).collect();
        found.sort_unstable();
        found
    }

    /// Whether a selection selects Pods with these labels, in namespaces that it chooses.
    pub(crate) fn selects(&self, id: Id, labels: &CompactLabels) -> bool {
        self.get(id).is_some_and(|one| one.selection.pods.selector().matches_by(|key| labels.get(key)))
    }

    /// Whether nobody names any, as far as those of namespaces and their index tell.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_value.is_empty() && self.index.is_empty() && self.wide.is_empty()
    }
}
