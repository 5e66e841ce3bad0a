//! A resource in one version: what everybody may know of it.
//!
//! An entry joins what the table of resources says with the kind's facts and rules ([`Strategy`]). It knows nothing of
//! what the server itself does for some resources: that stands in `handlers/builtin.rs`.

use std::sync::Arc;

use api::schema::Gvk;
use api::{FieldNo, Schema, Status, StructId, Text};
use bytes::Bytes;
use kinds::Strategy;
use kinds::strategy::{Deprecated, Storage};
use storage::{ResourceId, ResourceSpec, Store};

use super::converter::Converter;
use super::custom_version::CustomVersion;

/// `"kind":"Pod","apiVersion":"v1",`
pub(super) fn type_meta(kind: &Gvk) -> Bytes {
    Bytes::from(format!("\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version()))
}

/// A subresource of a resource.
#[derive(Clone)]
pub(crate) struct SubresourceEntry {
    /// Its name in the path.
    pub name: Text,
    /// The kind that it reads and writes.
    pub kind: Gvk,
    /// The root struct of that kind, if it has one.
    pub root: Option<StructId>,
    /// Its verbs, in alphabetical order.
    pub verbs: Vec<Text>,
    /// It reads and writes the numbers that the strategy names.
    pub is_scale: bool,
}

/// A resource in one version.
#[derive(Clone)]
pub(crate) struct ResourceEntry {
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
    pub subresources: Vec<SubresourceEntry>,
    /// The root struct.
    pub root: StructId,
    /// `metadata` in [`ResourceEntry::root`]; `None` for kinds without it.
    pub meta_at: Option<FieldNo>,
    /// The kind's facts and rules.
    pub strategy: Arc<dyn Strategy>,
    /// The text of the Warning with every answer, if this version goes.
    pub deprecated: Option<Deprecated>,
    /// How it is stored; `None` where nothing is kept.
    pub stored: Option<Stored>,
    /// The kind of lists.
    pub list_kind: Text,
    /// `"kind":"Pod","apiVersion":"v1",`
    pub type_meta: Bytes,
    /// The same, where stored objects lack it; those of definitions have it.
    pub stored_meta: Bytes,
    /// The facts of a definition's version.
    pub custom: Option<Arc<CustomVersion>>,
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
    /// The beginning of its keys in etcd.
    pub path: Text,
}

impl ResourceEntry {
    /// `metadata` is there and objects are kept.
    pub(crate) fn stored(&self) -> Result<&Stored, Status> {
        self.stored.as_ref().ok_or_else(Status::no_such_resource)
    }
    /// The verbs that discovery shows: of a definition that goes, those that take objects away.
    pub(crate) fn shown_verbs(&self) -> impl Iterator<Item = &Text> {
        const TERMINATING: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];
        let goes = self.custom.as_ref().is_some_and(|c| c.terminating);
        self.verbs.iter().filter(move |v| !goes || TERMINATING.contains(&v.as_str()))
    }
    /// Whether the resource itself has a verb.
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
    /// A subresource by its name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&SubresourceEntry> {
        self.subresources.iter().find(|s| s.name == name)
    }
    /// Whether the version that is served is the one that is stored.
    pub(crate) fn same_version(&self) -> bool {
        self.stored.as_ref().is_none_or(|s| s.kind == self.kind)
    }
    /// The one who converts objects; `None` where the strategy does, at once.
    pub(crate) fn converter(&self) -> Option<&dyn Converter> {
        self.custom.as_ref()?.converter.as_deref()
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
    /// Registers a resource with the store, whose objects have this root in the version that is stored.
    pub(crate) fn new(
        (schema, root): (&Schema, StructId),
        store: &Store,
        storage: Storage,
        plural: &str,
        strategy: &Arc<dyn Strategy>,
    ) -> Result<Self, String> {
        let Storage { kind, path, expires, .. } = storage;
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

pub(super) fn missing(kind: &Gvk) -> String {
    format!("the schema lacks {} {}", kind.api_version(), kind.kind)
}
