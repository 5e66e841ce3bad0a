//! The resources of definitions: entries of the catalog that come and go while the server runs.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use api::schema::{CustomKind, Gvk, StructId};
use api::{Schema, Text};
use bytes::Bytes;
use component::Shutdown;
use kinds::Strategy;
use kinds::custom::{CustomStrategy, Definition, Version};
use parking_lot::Mutex;
use storage::Store;

use super::converter::Converter;
use super::custom_version::CustomVersion;
use super::pieces::DocumentPart;
use super::resource::{ResourceEntry, Stored, SubresourceEntry, missing, type_meta};

/// Numbers of forms of kinds, and of entries: no two in a process are the same.
static NUMBERS: AtomicU32 = AtomicU32::new(0);
/// The numbers of built-in entries are below this.
const ABOVE_BUILTIN: u32 = 1 << 16;

/// The resources of one definition.
pub(crate) struct CustomResource {
    /// The definition.
    pub(crate) definition: Arc<Definition>,
    /// Every version, served or not, since objects may be stored in it.
    pub(super) kinds: Vec<CustomKind>,
    /// The versions that are served.
    pub(crate) entries: Vec<Arc<ResourceEntry>>,
    /// The version in which objects are stored, served or not: the objects go through it when the definition does.
    pub(super) storage: Arc<ResourceEntry>,
    /// The schemas of versions as the definition has them, as JSON with sorted names, for OpenAPI.
    pub(crate) schemas: Vec<(Text, Bytes)>,
    /// The uid and the generation of the definition, and whether it goes.
    pub(crate) made_of: (Text, i64, bool),
    /// The versions' parts of documents of OpenAPI, of those that somebody asked for.
    parts: Mutex<BTreeMap<Text, Arc<DocumentPart>>>,
    ended: Shutdown,
}

impl CustomResource {
    /// A version's part of its document of OpenAPI, made once.
    pub(super) fn part(&self, version: &str, make: impl FnOnce() -> DocumentPart) -> Arc<DocumentPart> {
        let mut parts = self.parts.lock();
        if let Some(part) = parts.get(version) {
            return Arc::clone(part);
        }
        let part = Arc::new(make());
        parts.insert(version.into(), Arc::clone(&part));
        part
    }
    /// The versions as OpenAPI shows them.
    pub(super) fn shown(&self) -> impl Iterator<Item = api::openapi::CustomResource> {
        let names = &self.definition.names;
        self.definition.versions.iter().filter(|v| v.served).filter_map(move |version| {
            let (_, schema) = self.schemas.iter().find(|(name, _)| *name == version.name)?;
            let mut hash = DefaultHasher::new();
            (&self.made_of, &names.kind, &names.plural).hash(&mut hash);
            Some(api::openapi::CustomResource {
                group: self.definition.group.clone(),
                version: version.name.clone(),
                kind: names.kind.clone(),
                list_kind: names.list_kind.clone(),
                plural: names.plural.clone(),
                namespaced: self.definition.namespaced,
                status: version.status,
                scale: version.scale.is_some(),
                schema: if version.told { schema.clone() } else { Bytes::from_static(b"{}") },
                keeps_unknown: self.definition.keeps_unknown,
                selectable: version
                    .selectable
                    .iter()
                    .map(|p| p.strip_prefix('.').unwrap_or(p).into())
                    .collect(),
                hash: hash.finish(),
            })
        })
    }
}

impl Drop for CustomResource {
    fn drop(&mut self) {
        self.ended.stop();
    }
}

fn stamp(version: &Version) -> u32 {
    let mut hash = DefaultHasher::new();
    (&version.name, version.schema.hash()).hash(&mut hash);
    // 0 and 1 mark what others have written to etcd.
    (hash.finish() as u32).max(2)
}

fn texts(all: &[&str]) -> Vec<Text> {
    all.iter().map(|t| Text::from(*t)).collect()
}

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

impl CustomResource {
    /// The resources of a definition under the names that were accepted. `made_of` is its uid and generation, and
    /// whether it goes; `ends` is the server's end.
    pub(crate) fn new(
        store: &Store,
        definition: Arc<Definition>,
        schemas: Vec<(Text, Bytes)>,
        converter: Option<Arc<dyn Converter>>,
        made_of: (Text, i64, bool),
        ends: &Shutdown,
    ) -> Result<Self, String> {
        let schema = Schema::builtin();
        let mut kinds = Vec::with_capacity(definition.versions.len());
        for version in &definition.versions {
            let kind = gvk(&definition, &version.name);
            let name = format!("{}.{}.{}", definition.group, version.name, definition.names.kind);
            let root = schema.custom_root(&name, Arc::clone(&version.schema));
            let root = Arc::new(root.ok_or("the schema lacks ObjectMeta")?);
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed) as usize;
            kinds.push(CustomKind { kind, number, root });
        }
        let own = schema.with_custom(&kinds);
        let storage = definition.storage().ok_or("no version is stored")?;
        let (storage_gvk, storage_stamp) = (gvk(&definition, &storage.name), stamp(storage));
        let storage_strategy: Arc<dyn Strategy> = Arc::new(CustomStrategy::new(&definition, storage));
        let ended = ends.child();
        let make = |version: &Version, strategy: &Arc<dyn Strategy>| {
            let custom = CustomVersion {
                stamp: stamp(version),
                storage: storage_gvk.clone(),
                storage_served: storage.served,
                storage_strategy: Arc::clone(&storage_strategy),
                storage_stamp,
                converter: converter.clone(),
                terminating: made_of.2,
                ended: ended.clone(),
            };
            entry((&own, &kinds), store, &definition, version, Arc::clone(strategy), custom).map(Arc::new)
        };
        let stored = make(storage, &storage_strategy)?;
        let mut entries = Vec::new();
        for version in definition.versions.iter().filter(|v| v.served) {
            entries.push(if version.name == storage.name {
                Arc::clone(&stored)
            } else {
                let strategy: Arc<dyn Strategy> = Arc::new(CustomStrategy::new(&definition, version));
                make(version, &strategy)?
            });
        }
        let parts = Mutex::default();
        Ok(Self { definition, kinds, entries, storage: stored, schemas, made_of, parts, ended })
    }
}

fn gvk(definition: &Definition, version: &str) -> Gvk {
    Gvk::new(&definition.group, version, &definition.names.kind)
}

/// The entry of a version. The definition's kinds have their own roots, whatever else the schema has by their names.
fn entry(
    (schema, kinds): (&Schema, &[CustomKind]),
    store: &Store,
    definition: &Definition,
    version: &Version,
    strategy: Arc<dyn Strategy>,
    custom: CustomVersion,
) -> Result<ResourceEntry, String> {
    let names = &definition.names;
    let kind = gvk(definition, &version.name);
    let root_of = |kind: &Gvk| -> Result<StructId, String> {
        let own = kinds.iter().find(|k| k.kind == *kind).ok_or_else(|| missing(kind))?;
        Ok(schema.custom_id(own))
    };
    let root = root_of(&kind)?;
    let facts = strategy.facts();
    let storage = facts.storage.clone().ok_or("the kind is not stored")?;
    let stored = Stored::new((schema, root_of(&storage.kind)?), store, storage, &names.plural, &strategy)?;
    let mut subresources = Vec::new();
    if version.status {
        subresources.push(SubresourceEntry {
            name: "status".into(),
            root: Some(root),
            kind: kind.clone(),
            verbs: texts(&STATUS_VERBS),
            is_scale: false,
        });
    }
    if version.scale.is_some() {
        let scale = Gvk::new("autoscaling", "v1", "Scale");
        subresources.push(SubresourceEntry {
            name: "scale".into(),
            root: Schema::builtin().kind(&scale),
            kind: scale,
            verbs: texts(&STATUS_VERBS),
            is_scale: true,
        });
    }
    Ok(ResourceEntry {
        group: definition.group.clone(),
        version: version.name.clone(),
        plural: names.plural.clone(),
        singular: names.singular.clone(),
        namespaced: definition.namespaced,
        short_names: names.short_names.clone(),
        categories: names.categories.clone(),
        verbs: texts(&VERBS),
        subresources,
        root,
        meta_at: schema.st(root).field("metadata"),
        deprecated: facts.deprecated(&version.name).cloned(),
        stored: Some(stored),
        list_kind: names.list_kind.clone(),
        type_meta: type_meta(&kind),
        stored_meta: Bytes::new(),
        kind,
        strategy,
        custom: Some(Arc::new(custom)),
        number: ABOVE_BUILTIN + NUMBERS.fetch_add(1, Ordering::Relaxed),
    })
}
