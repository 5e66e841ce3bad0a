//! The resources that are served, and what the handlers must know of each.
//!
//! An entry joins a kind's facts and rules ([`Strategy`]), what the server itself does when its objects come and go
//! ([`Lifecycle`]) and what answers its subresources ([`Action`]). Generic handlers know no resource by name.

use std::collections::HashMap;
use std::sync::Arc;

use api::resources::ResourceInfo;
use api::schema::Gvk;
use api::{FieldNo, Schema, Status, StructId, Text};
use bytes::Bytes;
use futures::future::BoxFuture;
use kinds::Strategy;
use kinds::defaults::Defaults;
use kinds::strategy::{Deprecated, Storage};
use storage::{ResourceId, ResourceSpec, Store};

use crate::answer::Outcome;
use crate::handlers::lifecycle::Lifecycle;
use crate::handlers::{Scope, builtin};
use crate::inner::Inner;
use crate::request::Request;

/// A subresource in discovery and dispatch.
#[derive(Clone)]
pub(crate) struct Subresource {
    /// Its name in the path.
    pub name: Text,
    /// The kind that it reads and writes.
    pub kind: Gvk,
    /// The root struct of that kind, if it has one.
    pub root: Option<StructId>,
    /// Its verbs, in alphabetical order.
    pub verbs: Vec<Text>,
    /// What answers it.
    pub action: Action,
}

/// What answers a subresource.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    /// Reads and writes of the object itself; writes by the strategy's rules for this subresource.
    Own,
    /// The numbers that the strategy names.
    Scale,
    /// A handler of its own.
    Handler(Handler),
}

/// Answers a request to a subresource.
pub(crate) type Handler =
    for<'a> fn(&'a Scope<'a>, &'a Subresource) -> BoxFuture<'a, Result<Outcome, Status>>;

/// Answers a request to a resource of which nothing is kept.
pub(crate) type VirtualHandler =
    for<'a> fn(&'a Arc<Inner>, &'a Request, &'a Arc<Resource>) -> BoxFuture<'a, Result<Outcome, Status>>;

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
    /// The kind's facts and rules.
    pub strategy: Arc<dyn Strategy>,
    /// What the Warning with every answer says, if this version goes.
    pub deprecated: Option<Deprecated>,
    /// What the server does when objects come and go, if there is something.
    pub lifecycle: Option<&'static dyn Lifecycle>,
    /// How it is stored; `None` for virtual resources.
    pub stored: Option<Stored>,
    /// What answers requests if nothing is stored.
    pub computed: VirtualHandler,
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
    /// Group under which it is stored.
    pub group: Text,
    /// Plural name under which it is stored.
    pub plural: Text,
    /// Kind in the version that is stored.
    pub kind: Gvk,
    /// Root struct in the version that is stored.
    pub root: StructId,
    /// `metadata` in that root.
    pub meta_at: FieldNo,
    /// The kind's facts and rules.
    pub strategy: Arc<dyn Strategy>,
    /// Objects expire, after the time that events are kept.
    pub expires: bool,
    /// What keys in etcd begin with.
    pub path: Text,
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
        let path = self.stored.as_ref().map_or(&self.plural, |s| &s.path);
        let mut key = format!("/{path}");
        for part in [namespace, name] {
            if !part.is_empty() {
                key.push('/');
                key.push_str(part);
            }
        }
        key
    }
}

impl Stored {
    /// Registers a resource with the store.
    pub(crate) fn new(
        schema: &Schema,
        store: &Store,
        storage: Storage,
        plural: &str,
        strategy: &Arc<dyn Strategy>,
    ) -> Result<Self, String> {
        let Storage { kind, path, expires, .. } = storage;
        let root = schema.kind(&kind).ok_or_else(|| missing(&kind))?;
        let fields = strategy.facts().fields.iter().enumerate();
        let indexed = fields.filter(|(_, f)| f.indexed).map(|(i, _)| i).collect();
        let id = store.register(ResourceSpec { group: kind.group.clone(), plural: plural.into(), indexed });
        Ok(Self {
            id,
            group: kind.group.clone(),
            plural: plural.into(),
            root,
            meta_at: schema.st(root).field("metadata").ok_or_else(|| missing(&kind))?,
            kind,
            strategy: Arc::clone(strategy),
            expires,
            path,
        })
    }
}

fn missing(kind: &Gvk) -> String {
    format!("the schema lacks {} {}", kind.api_version(), kind.kind)
}

/// The subresource of kinds that have a [`kinds::scale::Scale`].
const SCALE: &str = "scale";

/// All resources that are served.
pub(crate) struct Registry {
    /// What absent fields mean.
    pub(crate) defaults: Defaults,
    resources: Vec<Arc<Resource>>,
    by_path: HashMap<(Text, Text, Text), usize>,
    by_store: HashMap<(Text, Text), usize>,
    groups: Vec<(Text, Vec<Text>)>,
    consulted: Vec<ResourceId>,
}

impl Registry {
    /// Registers every row with the store. A row whose kind the schema lacks is an error.
    pub(crate) fn new<'a>(
        schema: &Schema,
        store: &Store,
        rows: impl IntoIterator<Item = &'a ResourceInfo>,
        strategy: impl Fn(&str, &str) -> Arc<dyn Strategy>,
    ) -> Result<Self, String> {
        let mut registry = Self {
            defaults: Defaults::new(schema),
            resources: Vec::new(),
            by_path: HashMap::new(),
            by_store: HashMap::new(),
            groups: Vec::new(),
            consulted: Vec::new(),
        };
        // One for all versions of a resource.
        let mut strategies: HashMap<(&str, &str), Arc<dyn Strategy>> = HashMap::new();
        for row in rows {
            let known = strategies.entry((row.group, row.resource));
            let strategy = Arc::clone(known.or_insert_with(|| strategy(row.group, row.resource)));
            let resource = Self::entry(schema, store, row, strategy, registry.resources.len() as u32)?;
            registry.add(resource);
        }
        Ok(registry)
    }

    /// The entry of a row.
    fn entry(
        schema: &Schema,
        store: &Store,
        row: &ResourceInfo,
        strategy: Arc<dyn Strategy>,
        number: u32,
    ) -> Result<Resource, String> {
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
        let mut subresources: Vec<Subresource> = row
            .subresources
            .iter()
            .map(|s| {
                let kind = Gvk::new(s.group, s.version, s.kind);
                let verbs = s.verbs.iter().map(|v| Text::from(*v)).collect();
                let action = match builtin::handler(row.group, row.resource, s.name) {
                    Some(handler) => Action::Handler(handler),
                    None if s.name == SCALE && facts.scale.is_some() => Action::Scale,
                    None => Action::Own,
                };
                Subresource { name: s.name.into(), root: schema.kind(&kind), kind, verbs, action }
            })
            .collect();
        subresources.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Resource {
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
            meta_at: schema.st(root).field("metadata"),
            deprecated: facts.deprecated(row.version).cloned(),
            lifecycle: builtin::lifecycle(row.group, row.resource),
            computed: builtin::computed(row.group, row.resource),
            stored,
            strategy,
            number,
        })
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
    /// What writes of other resources may be refused for.
    pub(crate) fn consulted(&self) -> &[ResourceId] {
        &self.consulted
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
