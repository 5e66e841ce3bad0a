//! The resources of definitions: entries of the catalog that come and go while the server runs.
//!
//! An object of a definition is stored with its kind and version and a stamp of the schema under which that was done.
//! Where the stamp is an entry's own, its bytes are answered as they are. Otherwise the object is decoded by its own
//! version, gets the defaults of now, and is converted once: many at once, since a webhook may be asked.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use api::schema::{CustomKind, Gvk};
use api::{Node, Object, Schema, Status, Struct, Text};
use bytes::Bytes;
use component::Shutdown;
use kinds::Strategy;
use kinds::custom::{CustomStrategy, Definition, Version};
use serde::Deserialize;
use storage::Store;
use tokio::time::Instant;

use super::conversion::Conversion;
use super::converter::Converter;
use super::resource::{ResourceEntry, Stored, SubresourceEntry, missing};
use super::resources::type_meta;
use super::{Catalog, breathe};
use crate::codec;

/// Numbers of forms of kinds, and of entries: no two in a process are the same.
static NUMBERS: AtomicU32 = AtomicU32::new(0);
/// The numbers of built-in entries are below this.
const ABOVE_BUILTIN: u32 = 1 << 16;

/// A version of a definition's kind, as it is served.
pub(crate) struct CustomVersion {
    /// The stamp of objects that need nothing to be answered in this version.
    stamp: u32,
    /// The version in which objects are stored.
    storage: Gvk,
    /// The rules of that version.
    storage_strategy: Arc<dyn Strategy>,
    storage_stamp: u32,
    /// Whether the definition goes, so that no object may be made.
    pub(crate) terminating: bool,
    /// Ends when the definition changes or goes: its watches end with it.
    pub(crate) ended: Shutdown,
}

/// The resources of one definition.
pub(crate) struct CustomResource {
    /// The definition.
    pub(crate) definition: Arc<Definition>,
    /// Every version, served or not, since objects may be stored in it.
    pub(super) kinds: Vec<CustomKind>,
    /// The versions that are served.
    pub(crate) entries: Vec<Arc<ResourceEntry>>,
    /// The schemas of versions as the definition has them, for OpenAPI.
    pub(crate) schemas: Vec<(Text, Arc<Node>)>,
    /// The uid and the generation of the definition, and whether it goes.
    pub(crate) made_of: (Text, i64, bool),
    ended: Shutdown,
}

impl CustomResource {
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
                schema: Arc::clone(schema),
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
        schemas: Vec<(Text, Arc<Node>)>,
        converter: Option<&Arc<dyn Converter>>,
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
        let mut entries = Vec::new();
        for version in definition.versions.iter().filter(|v| v.served) {
            let strategy: Arc<dyn Strategy> = Arc::new(CustomStrategy::new(&definition, version));
            let custom = CustomVersion {
                stamp: stamp(version),
                storage: storage_gvk.clone(),
                storage_strategy: Arc::clone(&storage_strategy),
                storage_stamp,
                terminating: made_of.2,
                ended: ended.clone(),
            };
            let converter = converter.cloned();
            entries.push(Arc::new(entry(&own, store, &definition, version, strategy, converter, custom)?));
        }
        Ok(Self { definition, kinds, entries, schemas, made_of, ended })
    }
}

fn gvk(definition: &Definition, version: &str) -> Gvk {
    Gvk::new(&definition.group, version, &definition.names.kind)
}

fn entry(
    schema: &Schema,
    store: &Store,
    definition: &Definition,
    version: &Version,
    strategy: Arc<dyn Strategy>,
    converter: Option<Arc<dyn Converter>>,
    custom: CustomVersion,
) -> Result<ResourceEntry, String> {
    let names = &definition.names;
    let kind = gvk(definition, &version.name);
    let root = schema.kind(&kind).ok_or_else(|| missing(&kind))?;
    let facts = strategy.facts();
    let storage = facts.storage.clone().ok_or("the kind is not stored")?;
    let stored = Stored::new(schema, store, storage, &names.plural, &strategy)?;
    let mut subresources = Vec::new();
    if version.scale.is_some() {
        let scale = Gvk::new("autoscaling", "v1", "Scale");
        subresources.push(SubresourceEntry {
            name: "scale".into(),
            root: schema.kind(&scale),
            kind: scale,
            verbs: texts(&STATUS_VERBS),
            is_scale: true,
        });
    }
    if version.status {
        subresources.push(SubresourceEntry {
            name: "status".into(),
            root: Some(root),
            kind: kind.clone(),
            verbs: texts(&STATUS_VERBS),
            is_scale: false,
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
        converter,
        converted: None,
        custom: Some(Arc::new(custom)),
        number: ABOVE_BUILTIN + NUMBERS.fetch_add(1, Ordering::Relaxed),
    })
}

/// The kind and version that a stored object of a definition names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta {
    #[serde(default)]
    api_version: String,
}

/// The version in which an object of a definition is stored.
fn stored_version(object: &Object) -> Result<Text, Status> {
    let meta: TypeMeta = serde_json::from_slice(&object.data.body)
        .map_err(|e| Status::internal(format!("a stored object cannot be read: {e}")))?;
    Ok(meta.api_version.rsplit('/').next().unwrap_or_default().into())
}

impl ResourceEntry {
    /// Whether an object's bytes are those of this version.
    pub(crate) fn is_current(&self, object: &Object) -> bool {
        self.custom.as_ref().is_none_or(|custom| object.data.stamp == custom.stamp)
    }
}

impl Catalog {
    /// The objects as they are in the version of a resource: itself for each that is stored so. `kind` names the
    /// objects in errors.
    pub(crate) async fn current_objects(
        &self,
        resource: &ResourceEntry,
        objects: &[Arc<Object>],
        kind: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<Arc<Object>>, Status> {
        let mut out = objects.to_vec();
        // The others, by the version in which they are.
        let mut stale: BTreeMap<Text, (Vec<usize>, Vec<Struct>)> = BTreeMap::new();
        for (n, object) in objects.iter().enumerate() {
            if !resource.is_current(object) {
                breathe(n, deadline).await?;
                let version = stored_version(object)?;
                let tree = self.custom_tree(resource, &version, object)?;
                let of_version = stale.entry(version).or_default();
                of_version.0.push(n);
                of_version.1.push(tree);
            }
        }
        for (version, (places, trees)) in stale {
            let from = Gvk { version, ..resource.kind.clone() };
            let conversion =
                Conversion { schema: self.schema(), resource, from: &from, to: &resource.kind, deadline };
            let trees = conversion.all(trees, kind).get().await?;
            for (n, (place, tree)) in places.into_iter().zip(trees).enumerate() {
                breathe(n, deadline).await?;
                out[place] = Arc::new(self.custom_object(resource, tree, objects[place].revision)?);
            }
        }
        Ok(out)
    }

    /// An object in the version of a resource.
    pub(crate) async fn current_object(
        &self,
        resource: &ResourceEntry,
        object: &Arc<Object>,
        deadline: Option<Instant>,
    ) -> Result<Arc<Object>, Status> {
        if resource.is_current(object) {
            return Ok(Arc::clone(object));
        }
        let kind = &resource.kind.kind;
        let mut all = self.current_objects(resource, std::slice::from_ref(object), kind, deadline).await?;
        all.pop().ok_or_else(Status::no_such_resource)
    }

    /// The tree of an object of a definition in its own version, with the defaults of now.
    fn custom_tree(
        &self,
        resource: &ResourceEntry,
        version: &str,
        object: &Object,
    ) -> Result<Struct, Status> {
        let from = Gvk { version: version.into(), ..resource.kind.clone() };
        let root = self.schema().kind(&from).ok_or_else(|| {
            Status::internal(format!(
                "request to convert CR from an invalid group/version: {}",
                from.api_version()
            ))
        })?;
        let mut tree = codec::stored(self.schema(), root, object)?;
        if let Some(rest) = &self.schema().st(root).rest
            && let Some(values) = tree.get_mut(rest.field).and_then(Node::as_map_mut)
        {
            rest.values.drop_nulls(values);
            rest.values.apply_defaults(values);
        }
        if let Some(at) = resource.meta_at
            && let Some(mut meta) = self.meta.of_mut(&mut tree, at)
        {
            meta.set_resource_version(&object.revision.to_string());
        }
        Ok(tree)
    }

    /// The object of a tree in the version of a resource.
    fn custom_object(&self, resource: &ResourceEntry, tree: Struct, revision: u64) -> Result<Object, Status> {
        let (custom, stored) = (custom_of(resource)?, resource.stored()?);
        let data =
            self.meta.at_rest(self.schema(), &*resource.strategy, stored.meta_at, tree, custom.stamp)?;
        Ok(Object { data, revision })
    }

    /// The object that the store keeps for a tree in the version of a resource.
    pub(crate) async fn custom_at_rest(
        &self,
        resource: &ResourceEntry,
        tree: Struct,
        deadline: Option<Instant>,
    ) -> Result<api::NewObject, Status> {
        let custom = custom_of(resource)?;
        let conversion = Conversion {
            schema: self.schema(),
            resource,
            from: &resource.kind,
            to: &custom.storage,
            deadline,
        };
        let tree = conversion.one(tree).get().await?;
        let at = resource.stored()?.meta_at;
        self.meta.at_rest(self.schema(), &*custom.storage_strategy, at, tree, custom.storage_stamp)
    }
}

fn custom_of(resource: &ResourceEntry) -> Result<&CustomVersion, Status> {
    resource.custom.as_deref().ok_or_else(Status::no_such_resource)
}
