//! The names that definitions use: no two of a group may have the same.

use std::collections::HashMap;

use api::Text;
use kinds::custom::Names;

use super::state::Known;

/// The accepted names of all definitions, by group.
#[derive(Default)]
pub(super) struct InUse {
    groups: HashMap<Text, Used>,
}

/// The names that a group's definitions use, and how many use each.
#[derive(Default)]
pub(super) struct Used {
    resources: HashMap<Text, usize>,
    kinds: HashMap<Text, usize>,
}

static NOTHING: std::sync::LazyLock<Used> = std::sync::LazyLock::new(Used::default);

fn resources(names: &Names) -> impl Iterator<Item = &Text> {
    [&names.plural, &names.singular].into_iter().chain(&names.short_names)
}

fn kinds(names: &Names) -> impl Iterator<Item = &Text> {
    [&names.kind, &names.list_kind].into_iter()
}

fn count<'n>(all: &mut HashMap<Text, usize>, names: impl Iterator<Item = &'n Text>) {
    for name in names {
        *all.entry(name.clone()).or_default() += 1;
    }
}

fn discount<'n>(all: &mut HashMap<Text, usize>, names: impl Iterator<Item = &'n Text>) {
    for name in names {
        if let Some(n) = all.get_mut(name) {
            *n -= 1;
            if *n == 0 {
                all.remove(name);
            }
        }
    }
}

impl InUse {
    /// Adds the names of a definition.
    pub(super) fn add(&mut self, known: &Known) {
        let used = self.groups.entry(known.group().into()).or_default();
        count(&mut used.resources, resources(&known.accepted));
        count(&mut used.kinds, kinds(&known.accepted));
    }

    /// Takes the names of a definition away that were added.
    pub(super) fn take_away(&mut self, known: &Known) {
        let Some(used) = self.groups.get_mut(known.group()) else { return };
        discount(&mut used.resources, resources(&known.accepted));
        discount(&mut used.kinds, kinds(&known.accepted));
        if used.resources.is_empty() && used.kinds.is_empty() {
            self.groups.remove(known.group());
        }
    }

    /// The names that a group uses.
    pub(super) fn of(&self, group: &str) -> &Used {
        self.groups.get(group).unwrap_or(&NOTHING)
    }
}

impl Used {
    /// Whether a definition has this name of a resource: plural, singular or short.
    pub(super) fn has_resource(&self, name: &str) -> bool {
        self.resources.contains_key(name)
    }
    /// Whether a definition has this kind, or that of a list.
    pub(super) fn has_kind(&self, name: &str) -> bool {
        self.kinds.contains_key(name)
    }
}
