//! The resources that are served, and what the handlers must know of each.

use std::collections::HashMap;
use std::sync::Arc;

use api::resources::ResourceInfo;
use api::schema::Gvk;
use api::{FieldNo, Schema, Status, StructId, Text};
use bytes::Bytes;
use kinds::Strategy;
use kinds::defaults::Defaults;
use storage::{ResourceId, ResourceSpec, Store};

/// A subresource in discovery and dispatch.
#[derive(Debug, Clone)]
pub(crate) struct Subresource {
    /// Its name in the path.
    pub name: Text,
    /// The kind that it reads and writes.
    pub kind: Gvk,
    /// The root struct of that kind, if it has one.
    pub root: Option<StructId>,
    /// Its verbs, in alphabetical order.
    pub verbs: Vec<Text>,
}

/// A resource in one version.
pub(crate) struct Resource {
    /// Group.
    pub group: Text,
    /// Version.
    pub version: Text,
    /// Plural name.
    pub plural: Text,
    /// Singular name.
    pub singular: Text,
    /// Kind.
    pub kind: Gvk,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Short names.
    pub short_names: Vec<Text>,
    /// Categories.
    pub categories: Vec<Text>,
    /// Verbs, in alphabetical order.
    pub verbs: Vec<Text>,
    /// Subresources, by name.
    pub subresources: Vec<Subresource>,
    /// The root struct.
    pub root: StructId,
    /// `metadata` in [`Resource::root`]; `None` for kinds without it.
    pub meta_at: Option<FieldNo>,
    /// How it is stored; `None` for virtual resources.
    pub stored: Option<Stored>,
    /// `"kind":"Pod","apiVersion":"v1",`
    pub type_meta: Bytes,
    /// A number for each resource and version, for cached forms.
    pub number: u32,
}

/// How a resource is stored; the same for all its versions.
#[derive(Clone)]
pub(crate) struct Stored {
    /// In the store.
    pub id: ResourceId,
    /// Group of the strategy.
    pub group: Text,
    /// Plural name of the strategy.
    pub plural: Text,
    /// Kind in the version that is stored.
    pub kind: Gvk,
    /// Root struct in the version that is stored.
    pub root: StructId,
    /// `metadata` in that root.
    pub meta_at: FieldNo,
    /// The kind's rules.
    pub strategy: &'static Strategy,
    /// Objects expire, after the time that events are kept.
    pub expires: bool,
}

impl Resource {
    /// `metadata` is there and objects are kept.
    pub(crate) fn stored(&self) -> Result<&Stored, Status> {
        self.stored.as_ref().ok_or_else(Status::no_such_resource)
    }
    /// Whether the resource itself has a verb.
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
    /// A subresource by its name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
    /// Whether the version that is served is the one that is stored.
    pub(crate) fn same_version(&self) -> bool {
        self.stored.as_ref().is_none_or(|s| s.kind == self.kind)
    }
    /// The key of an object below the store's prefix, as upstream's messages name it.
    pub(crate) fn storage_key(&self, namespace: &str, name: &str) -> String {
        let plural = crate::etcd::historical(&self.group, &self.plural).unwrap_or(&self.plural);
        // Servers that upstream's own delegates to keep their objects below their group.
        let mut key = match self.group.as_str() {
            "apiextensions.k8s.io" | "apiregistration.k8s.io" => format!("/{}/{plural}", self.group),
            _ => format!("/{plural}"),
        };
        for part in [namespace, name] {
            if !part.is_empty() {
                key.push('/');
                key.push_str(part);
            }
        }
        key
    }
}

/// All resources that are served.
pub(crate) struct Registry {
    /// What absent fields mean.
    pub(crate) defaults: Defaults,
    resources: Vec<Arc<Resource>>,
    by_path: HashMap<(Text, Text, Text), usize>,
    by_store: HashMap<(Text, Text), usize>,
    groups: Vec<(Text, Vec<Text>)>,
}

/// In which form the objects of a resource are kept: that of the version that is served by default, if
/// there is one.
fn storage_kind(row: &ResourceInfo) -> Gvk {
    match (row.group, row.resource) {
        ("" | "events.k8s.io", "events") => Gvk::new("", "v1", "Event"),
        ("autoscaling", "horizontalpodautoscalers") => {
            Gvk::new("autoscaling", "v2", "HorizontalPodAutoscaler")
        }
        (group, resource) => {
            let usual = api::resources::builtin()
                .iter()
                .find(|r| r.group == group && r.resource == resource && r.served_by_default);
            match usual {
                Some(usual) => Gvk::new(usual.group, usual.version, usual.kind),
                None => Gvk::new(row.storage_group, row.storage_version, row.kind),
            }
        }
    }
}

impl Registry {
    /// Registers every row with the store. A row whose kind the schema lacks is an error.
    pub(crate) fn new<'a>(
        schema: &Schema,
        store: &Store,
        rows: impl IntoIterator<Item = &'a ResourceInfo>,
        strategy: impl Fn(&str, &str) -> &'static Strategy,
    ) -> Result<Self, String> {
        let mut registry = Self {
            defaults: Defaults::new(schema),
            resources: Vec::new(),
            by_path: HashMap::new(),
            by_store: HashMap::new(),
            groups: Vec::new(),
        };
        for row in rows {
            let kind = Gvk::new(row.group, row.version, row.kind);
            let missing = |k: &Gvk| format!("the schema lacks {} {}", k.api_version(), k.kind);
            let root = schema.kind(&kind).ok_or_else(|| missing(&kind))?;
            let meta_at = schema.st(root).field("metadata");
            let virtual_ = !row.verbs.contains(&"update");
            let stored = if virtual_ {
                None
            } else {
                let storage_gvk = storage_kind(row);
                let root = schema.kind(&storage_gvk).ok_or_else(|| missing(&storage_gvk))?;
                let st = schema.st(root);
                let plural = row.resource;
                let group = storage_gvk.group.clone();
                // Events are kept as the core group's, but each group has its own rules.
                let strategy = strategy(row.group, plural);
                let indexed = strategy
                    .fields
                    .iter()
                    .enumerate()
                    .filter(|(_, f)| **f == "spec.nodeName")
                    .map(|(i, _)| i)
                    .collect();
                let id =
                    store.register(ResourceSpec { group: group.clone(), plural: plural.into(), indexed });
                Some(Stored {
                    id,
                    plural: plural.into(),
                    root,
                    meta_at: st.field("metadata").ok_or_else(|| missing(&storage_gvk))?,
                    strategy,
                    expires: group.is_empty() && plural == "events",
                    group,
                    kind: storage_gvk,
                })
            };
            let mut verbs: Vec<Text> = row.verbs.iter().map(|v| Text::from(*v)).collect();
            verbs.sort();
            let mut subresources: Vec<Subresource> = row
                .subresources
                .iter()
                .map(|s| {
                    let kind = Gvk::new(s.group, s.version, s.kind);
                    let verbs = s.verbs.iter().map(|v| Text::from(*v)).collect();
                    Subresource { name: s.name.into(), root: schema.kind(&kind), kind, verbs }
                })
                .collect();
            subresources.sort_by(|a, b| a.name.cmp(&b.name));
            registry.add(Resource {
                group: row.group.into(),
                version: row.version.into(),
                plural: row.resource.into(),
                singular: row.singular.into(),
                type_meta: Bytes::from(format!(
                    "\"kind\":\"{}\",\"apiVersion\":\"{}\",",
                    kind.kind,
                    kind.api_version()
                )),
                kind,
                namespaced: row.namespaced,
                short_names: row.short_names.iter().map(|v| Text::from(*v)).collect(),
                categories: row.categories.iter().map(|v| Text::from(*v)).collect(),
                verbs,
                subresources,
                root,
                meta_at,
                stored,
                number: registry.resources.len() as u32,
            });
        }
        Ok(registry)
    }
    fn add(&mut self, resource: Resource) {
        match self.groups.iter_mut().find(|g| g.0 == resource.group) {
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
        if let Some(stored) = &resource.stored {
            let number = self.resources.len();
            let key = (stored.group.clone(), resource.plural.clone());
            let known = self.by_store.entry(key).or_insert(number);
            // The version that is stored goes before others.
            if resource.same_version() && !self.resources.get(*known).is_some_and(|r| r.same_version()) {
                *known = number;
            }
        }
        self.resources.push(Arc::new(resource));
    }
    /// A resource by its path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let key = (Text::from(group), Text::from(version), Text::from(plural));
        self.by_path.get(&key).map(|i| &self.resources[*i])
    }
    /// A resource in any version that keeps its objects under this group and name.
    pub(crate) fn stored(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_store.get(&(Text::from(group), Text::from(plural))).map(|i| &self.resources[*i])
    }
    /// One resource of each that has objects of its own.
    pub(crate) fn all_stored(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_store.values().map(|i| &self.resources[*i])
    }
    /// All of them, in the table's order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter()
    }
    /// Groups with their versions, both in the table's order, which is upstream's order of preference.
    pub(crate) fn groups(&self) -> &[(Text, Vec<Text>)] {
        &self.groups
    }
}
