//! The resources that are served.

use std::collections::HashMap;
use std::sync::Arc;

use api::resources::ResourceInfo;
use api::schema::Gvk;
use api::{Schema, Text};
use compact_str::format_compact;
use kinds::Strategy;
use kinds::defaults::Defaults;
use kinds::strategy::Storage;
use storage::{ResourceId, Store};

use super::custom::CustomResource;
use super::definitions::{Change, Definitions};
use super::resource::{ResourceEntry, Stored, SubresourceEntry, missing, type_meta};

/// The subresource of kinds that have a [`kinds::scale::Scale`].
const SCALE: &str = "scale";

/// The group and name that resources with the same objects have in common.
fn shared(resource: &ResourceEntry) -> (Text, Text) {
    let group = resource.stored.as_ref().map_or(&resource.group, |stored| &stored.group);
    (group.clone(), resource.plural.clone())
}

/// The built-in resources that are served.
struct BuiltIn {
    resources: Vec<Arc<ResourceEntry>>,
    by_path: HashMap<(Text, Text, Text), usize>,
    by_store: HashMap<(Text, Text), usize>,
    by_kind: HashMap<Gvk, usize>,
    /// The resources that have the same objects.
    alike: HashMap<(Text, Text), Vec<usize>>,
    groups: Vec<(Text, Vec<Text>)>,
    consulted: Vec<ResourceId>,
}

/// All resources that are served. A built-in one goes before one of a definition.
pub(crate) struct Resources {
    /// The values of absent fields.
    pub(crate) defaults: Arc<Defaults>,
    built_in: Arc<BuiltIn>,
    definitions: Definitions,
}

impl Resources {
    /// Registers every row with the store. A row whose kind the schema lacks is an error.
    pub(crate) fn new<'a>(
        schema: &Schema,
        store: &Store,
        rows: impl IntoIterator<Item = &'a ResourceInfo>,
        strategy: impl Fn(&str, &str) -> Arc<dyn Strategy>,
    ) -> Result<Self, String> {
        let mut made = BuiltIn {
            resources: Vec::new(),
            by_path: HashMap::new(),
            by_store: HashMap::new(),
            by_kind: HashMap::new(),
            alike: HashMap::new(),
            groups: Vec::new(),
            consulted: Vec::new(),
        };
        // One for all versions of a resource.
        let mut strategies: HashMap<(&str, &str), Arc<dyn Strategy>> = HashMap::new();
        for row in rows {
            let known = strategies.entry((row.group, row.resource));
            let strategy = known.or_insert_with(|| strategy(row.group, row.resource)).clone();
            let resource = Self::entry(schema, store, row, strategy, made.resources.len() as u32)?;
            made.add(Arc::new(resource));
        }
        let defaults = Arc::new(Defaults::new(schema));
        Ok(Self { defaults, built_in: Arc::new(made), definitions: Definitions::default() })
    }

    /// The entry of a row.
    fn entry(
        schema: &Schema,
        store: &Store,
        row: &ResourceInfo,
        strategy: Arc<dyn Strategy>,
        number: u32,
    ) -> Result<ResourceEntry, String> {
        let kind = Gvk::new(row.group, row.version, row.kind);
        let root = schema.kind(&kind).ok_or_else(|| missing(&kind))?;
        let facts = strategy.facts();
        let stored = if row.has_verb("update") {
            let storage = facts.storage.clone().unwrap_or_else(|| Storage::of(&kind, row.resource));
            let root = schema.kind(&storage.kind).ok_or_else(|| missing(&storage.kind))?;
            Some(Stored::new((schema, root), store, storage, row.resource, &strategy)?)
        } else {
            None
        };
        let mut verbs: Vec<Text> = row.verbs.iter().map(|v| Text::from(*v)).collect();
        verbs.sort();
        let mut subresources: Vec<SubresourceEntry> = row
            .subresources
            .iter()
            .map(|s| {
                let kind = Gvk::new(s.group, s.version, s.kind);
                let verbs = s.verbs.iter().map(|v| Text::from(*v)).collect();
                let is_scale = s.name == SCALE && facts.scale.is_some();
                SubresourceEntry { name: s.name.into(), root: schema.kind(&kind), kind, verbs, is_scale }
            })
            .collect();
        subresources.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(ResourceEntry {
            group: row.group.into(),
            version: row.version.into(),
            plural: row.resource.into(),
            singular: row.singular.into(),
            list_kind: format_compact!("{}List", kind.kind),
            type_meta: type_meta(&kind),
            stored_meta: type_meta(&kind),
            custom: None,
            kind,
            namespaced: row.namespaced,
            short_names: row.short_names.iter().map(|v| Text::from(*v)).collect(),
            categories: row.categories.iter().map(|v| Text::from(*v)).collect(),
            verbs,
            subresources,
            root,
            meta_at: schema.st(root).field("metadata"),
            deprecated: facts.deprecated(row.version).cloned(),
            stored,
            strategy,
            number,
        })
    }
    /// The same with other resources of some definitions.
    pub(crate) fn changed(&self, changes: &[Change]) -> Self {
        Self {
            defaults: Arc::clone(&self.defaults),
            built_in: Arc::clone(&self.built_in),
            definitions: self.definitions.changed(changes),
        }
    }
    /// The resources of definitions.
    pub(crate) fn definitions(&self) -> &Definitions {
        &self.definitions
    }
    /// A resource by its path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceEntry>> {
        let key = (Text::from(group), Text::from(version), Text::from(plural));
        let built_in = self.built_in.by_path.get(&key).map(|i| &self.built_in.resources[*i]);
        built_in.or_else(|| self.definitions.find(group, version, plural))
    }
    /// A resource in any version that keeps its objects under this group and name.
    pub(crate) fn stored(&self, group: &str, plural: &str) -> Option<&Arc<ResourceEntry>> {
        let of_definition = || self.definitions.get(group, plural).and_then(shown);
        self.built_in.stored(group, plural).or_else(of_definition)
    }
    /// One resource of each that has objects of its own.
    pub(crate) fn all_stored(&self) -> impl Iterator<Item = &Arc<ResourceEntry>> {
        let built_in = self.built_in.by_store.values().map(|i| &self.built_in.resources[*i]);
        built_in.chain(self.definitions.iter().filter_map(shown))
    }
    /// The version in which the objects of the definition with this uid are stored, served or not.
    pub(crate) fn instances(&self, group: &str, plural: &str, uid: &str) -> Option<&Arc<ResourceEntry>> {
        self.definitions.get(group, plural).filter(|r| r.made_of.0 == uid).map(|r| &r.storage)
    }
    /// Whether a built-in resource keeps its objects under this group and name.
    pub(crate) fn is_built_in(&self, group: &str, plural: &str) -> bool {
        self.built_in.stored(group, plural).is_some()
    }
    /// Whether a built-in resource, or a part of one, is of a kind.
    pub(super) fn is_built_in_kind(&self, kind: &Gvk) -> bool {
        let parts = || self.built_in.resources.iter().flat_map(|r| &r.subresources);
        self.built_in.by_kind.contains_key(kind) || parts().any(|part| part.kind == *kind)
    }
    /// The resource whose objects are of a kind.
    pub(crate) fn of_kind(&self, kind: &Gvk) -> Option<&Arc<ResourceEntry>> {
        let built_in = self.built_in.by_kind.get(kind).map(|i| &self.built_in.resources[*i]);
        built_in.or_else(|| self.definitions.of_kind(kind))
    }
    /// The resources that have the same objects as this one, itself among them.
    pub(crate) fn alike(&self, resource: &ResourceEntry) -> impl Iterator<Item = &Arc<ResourceEntry>> {
        let key = shared(resource);
        let of_definition = self.definitions.get(&key.0, &key.1).filter(|_| resource.custom.is_some());
        let built_in = self.built_in.alike.get(&key).filter(|_| resource.custom.is_none());
        let built_in = built_in.into_iter().flatten().map(|i| &self.built_in.resources[*i]);
        built_in.chain(of_definition.into_iter().flat_map(|r| &r.entries))
    }
    /// The definition of a resource that has one.
    pub(crate) fn definition(&self, resource: &ResourceEntry) -> Option<&kinds::custom::Definition> {
        resource.custom.as_ref()?;
        let found = self.definitions.get(&resource.group, &resource.plural)?;
        Some(&found.definition)
    }
    /// The resources for whose objects writes of other resources may be refused.
    pub(crate) fn consulted(&self) -> &[ResourceId] {
        &self.built_in.consulted
    }
    /// All of them: built-in ones in the table's order, then those of definitions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<ResourceEntry>> {
        self.built_in.resources.iter().chain(self.definitions.iter().flat_map(|r| &r.entries))
    }
    /// Those of a group and version.
    pub(crate) fn of_version(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<ResourceEntry>> {
        let built_in = self.built_in.resources.iter().filter(move |r| r.group == group);
        let all = built_in.chain(self.definitions.of_group(group).flat_map(|r| &r.entries));
        all.filter(move |r| r.version == version)
    }
    /// The versions of a group, in the table's order; none if there is no such group.
    pub(crate) fn versions(&self, group: &str) -> Vec<Text> {
        let built_in = self.built_in.groups.iter().find(|g| g.0 == group);
        let mut all = built_in.map(|g| g.1.clone()).unwrap_or_default();
        for resource in self.definitions.of_group(group).flat_map(|r| &r.entries) {
            if !all.contains(&resource.version) {
                all.push(resource.version.clone());
            }
        }
        all
    }
    /// Groups with their versions: built-in ones in the table's order, then those of definitions.
    pub(crate) fn groups(&self) -> Vec<(Text, Vec<Text>)> {
        let mut all = self.built_in.groups.clone();
        let built_in = all.iter().enumerate().map(|(at, (group, _))| (group.clone(), at));
        let built_in: HashMap<Text, usize> = built_in.collect();
        for entry in self.definitions.iter().flat_map(|r| &r.entries) {
            // Definitions of a group stand together.
            let last = all.len().saturating_sub(1);
            let at = match built_in.get(&entry.group) {
                Some(at) => *at,
                None if all.last().is_some_and(|(group, _)| *group == entry.group) => last,
                None => all.len(),
            };
            if at == all.len() {
                all.push((entry.group.clone(), Vec::new()));
            }
            let versions = &mut all[at].1;
            if !versions.contains(&entry.version) {
                versions.push(entry.version.clone());
            }
        }
        all
    }
}

/// The version of a definition's resource that goes before others: that in which objects are stored, if it is served.
fn shown(resource: &Arc<CustomResource>) -> Option<&Arc<ResourceEntry>> {
    let entries = &resource.entries;
    entries.iter().find(|r| r.same_version()).or(entries.first())
}

impl BuiltIn {
    fn add(&mut self, resource: Arc<ResourceEntry>) {
        // Resources of a group stand together, mostly.
        match self.groups.iter_mut().rev().find(|g| g.0 == resource.group) {
            Some(g) => {
                if !g.1.contains(&resource.version) {
                    g.1.push(resource.version.clone());
                }
            }
            None => self.groups.push((resource.group.clone(), vec![resource.version.clone()])),
        }
        self.by_path.insert(
            (resource.group.clone(), resource.version.clone(), resource.plural.clone()),
            self.resources.len(),
        );
        self.by_kind.entry(resource.kind.clone()).or_insert(self.resources.len());
        self.alike.entry(shared(&resource)).or_default().push(self.resources.len());
        if let Some(stored) = &resource.stored {
            if resource.strategy.facts().is_consulted && !self.consulted.contains(&stored.id) {
                self.consulted.push(stored.id);
            }
            let number = self.resources.len();
            let key = (stored.group.clone(), resource.plural.clone());
            let known = self.by_store.entry(key).or_insert(number);
            // The version that is stored goes before others.
            if resource.same_version() && !self.resources.get(*known).is_some_and(|r| r.same_version()) {
                *known = number;
            }
        }
        self.resources.push(resource);
    }

    fn stored(&self, group: &str, plural: &str) -> Option<&Arc<ResourceEntry>> {
        self.by_store.get(&(Text::from(group), Text::from(plural))).map(|i| &self.resources[*i])
    }
}
