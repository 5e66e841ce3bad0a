//! The resources that are served.

use std::collections::HashMap;
use std::sync::Arc;

use api::resources::ResourceInfo;
use api::schema::Gvk;
use api::{Schema, Text};
use bytes::Bytes;
use compact_str::format_compact;
use kinds::Strategy;
use kinds::defaults::Defaults;
use kinds::strategy::Storage;
use storage::{ResourceId, Store};

use super::resource::{ResourceEntry, Stored, SubresourceEntry, missing};

/// `"kind":"Pod","apiVersion":"v1",`
pub(super) fn type_meta(kind: &Gvk) -> Bytes {
    Bytes::from(format!("\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version()))
}

/// The subresource of kinds that have a [`kinds::scale::Scale`].
const SCALE: &str = "scale";

/// The group and name that resources with the same objects have in common.
fn shared(resource: &ResourceEntry) -> (Text, Text) {
    let group = resource.stored.as_ref().map_or(&resource.group, |stored| &stored.group);
    (group.clone(), resource.plural.clone())
}

/// All resources that are served.
pub(crate) struct Resources {
    /// The values of absent fields.
    pub(crate) defaults: Arc<Defaults>,
    resources: Vec<Arc<ResourceEntry>>,
    by_path: HashMap<(Text, Text, Text), usize>,
    by_store: HashMap<(Text, Text), usize>,
    by_kind: HashMap<Gvk, usize>,
    /// The resources that have the same objects.
    alike: HashMap<(Text, Text), Vec<usize>>,
    groups: Vec<(Text, Vec<Text>)>,
    consulted: Vec<ResourceId>,
    /// The objects of definitions, whether a version is served or not: the version in which they are stored, by group and
    /// plural.
    instances: HashMap<(Text, Text), Arc<ResourceEntry>>,
}

impl Resources {
    /// Registers every row with the store. A row whose kind the schema lacks is an error.
    pub(crate) fn new<'a>(
        schema: &Schema,
        store: &Store,
        rows: impl IntoIterator<Item = &'a ResourceInfo>,
        strategy: impl Fn(&str, &str) -> Arc<dyn Strategy>,
    ) -> Result<Self, String> {
        let mut made = Self {
            defaults: Arc::new(Defaults::new(schema)),
            resources: Vec::new(),
            by_path: HashMap::new(),
            by_store: HashMap::new(),
            by_kind: HashMap::new(),
            alike: HashMap::new(),
            groups: Vec::new(),
            consulted: Vec::new(),
            instances: HashMap::new(),
        };
        // One for all versions of a resource.
        let mut strategies: HashMap<(&str, &str), Arc<dyn Strategy>> = HashMap::new();
        for row in rows {
            let known = strategies.entry((row.group, row.resource));
            let strategy = known.or_insert_with(|| strategy(row.group, row.resource)).clone();
            let resource = Self::entry(schema, store, row, strategy, made.resources.len() as u32)?;
            made.add(Arc::new(resource));
        }
        Ok(made)
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
            Some(Stored::new(schema, store, storage, row.resource, &strategy)?)
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
    /// The built-in resources with those of definitions, instead of the ones that there are. A resource that is there
    /// already is not replaced.
    /// `instances` are the versions in which their objects are stored, served or not.
    pub(crate) fn with_custom<'c>(
        &'c self,
        custom: impl Iterator<Item = &'c Arc<ResourceEntry>>,
        instances: impl Iterator<Item = &'c Arc<ResourceEntry>>,
    ) -> Self {
        let built_in = self.resources.iter().filter(|r| r.custom.is_none());
        let mut made = Self {
            defaults: Arc::clone(&self.defaults),
            resources: Vec::with_capacity(self.resources.len()),
            by_path: HashMap::with_capacity(self.by_path.len()),
            by_store: HashMap::with_capacity(self.by_store.len()),
            by_kind: HashMap::with_capacity(self.by_kind.len()),
            alike: HashMap::with_capacity(self.alike.len()),
            groups: Vec::new(),
            consulted: Vec::new(),
            instances: HashMap::new(),
        };
        for resource in built_in.chain(custom) {
            let (group, version) = (&resource.group, &resource.version);
            if made.find(group, version, &resource.plural).is_none() {
                made.add(Arc::clone(resource));
            }
        }
        for resource in instances {
            let key = (resource.group.clone(), resource.plural.clone());
            made.instances.insert(key, Arc::clone(resource));
        }
        made
    }

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
    /// A resource by its path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceEntry>> {
        let key = (Text::from(group), Text::from(version), Text::from(plural));
        self.by_path.get(&key).map(|i| &self.resources[*i])
    }
    /// A resource in any version that keeps its objects under this group and name.
    pub(crate) fn stored(&self, group: &str, plural: &str) -> Option<&Arc<ResourceEntry>> {
        self.by_store.get(&(Text::from(group), Text::from(plural))).map(|i| &self.resources[*i])
    }
    /// The version in which a definition's objects are stored, served or not.
    pub(crate) fn instances(&self, group: &str, plural: &str) -> Option<&Arc<ResourceEntry>> {
        self.instances.get(&(Text::from(group), Text::from(plural)))
    }
    /// Whether a built-in resource keeps its objects under this group and name.
    pub(crate) fn is_built_in(&self, group: &str, plural: &str) -> bool {
        self.stored(group, plural).is_some_and(|r| r.custom.is_none())
    }
    /// The resource whose objects are of a kind.
    pub(crate) fn of_kind(&self, kind: &Gvk) -> Option<&Arc<ResourceEntry>> {
        self.by_kind.get(kind).map(|i| &self.resources[*i])
    }
    /// The resources that have the same objects as this one, itself among them.
    pub(crate) fn alike(&self, resource: &ResourceEntry) -> impl Iterator<Item = &Arc<ResourceEntry>> {
        self.alike.get(&shared(resource)).into_iter().flatten().map(|i| &self.resources[*i])
    }
    /// One resource of each that has objects of its own.
    pub(crate) fn all_stored(&self) -> impl Iterator<Item = &Arc<ResourceEntry>> {
        self.by_store.values().map(|i| &self.resources[*i])
    }
    /// The resources for whose objects writes of other resources may be refused.
    pub(crate) fn consulted(&self) -> &[ResourceId] {
        &self.consulted
    }
    /// All of them, in the table's order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<ResourceEntry>> {
        self.resources.iter()
    }
    /// Groups with their versions, both in the table's order.
    pub(crate) fn groups(&self) -> &[(Text, Vec<Text>)] {
        &self.groups
    }
}
