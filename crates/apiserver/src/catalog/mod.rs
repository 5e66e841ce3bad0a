//! The catalog: resources with their schemas and rules, discovery, OpenAPI, and the texts of columns.
//!
//! A catalog never changes. Another may take its place while the server runs, so a request takes the one of its time
//! along ([`crate::request::Request`]) and asks nobody else.

mod columns;
mod discovery;
pub(crate) mod meta;
mod openapi;
mod resource;
mod resources;
pub(crate) mod unreadable;

use std::sync::Arc;

use api::resources::ResourceInfo;
use api::{FeatureGates, Object, Schema, Status, Struct};
use kinds::Strategy;
use kinds::gated::Gated;
use storage::Store;

pub(crate) use openapi::{Document, OpenApi};
pub use openapi::{Documents, NoDocuments};
pub(crate) use resource::{Resource, Stored, SubresourceEntry};

use columns::Descriptions;
use discovery::Discovery;
use meta::Meta;
use resources::Resources;

/// The resources that are served, and everything that describes them.
pub(crate) struct Catalog {
    /// The schema of all trees.
    pub(crate) schema: &'static Schema,
    /// Where `metadata` has its fields.
    pub(crate) meta: Meta,
    /// The fields of features that are off.
    pub(crate) gated: Gated,
    /// Whether objects that cannot be read may be deleted, which changes what is said of them.
    pub(crate) unsafe_deletion: bool,
    /// The resources.
    pub(crate) resources: Resources,
    /// The documents of discovery.
    pub(crate) discovery: Discovery,
    /// The documents of OpenAPI.
    pub(crate) openapi: OpenApi,
    /// The texts of the columns of Tables.
    columns: Descriptions,
}

impl Catalog {
    /// Registers every row with the store. A row whose kind the schema lacks is an error.
    pub(crate) fn new(
        store: &Store,
        rows: &[ResourceInfo],
        gates: FeatureGates,
        documents: Arc<dyn Documents>,
        strategy: impl Fn(&str, &str) -> Arc<dyn Strategy>,
    ) -> Result<Self, String> {
        let schema = Schema::builtin();
        let resources = Resources::new(schema, store, rows, strategy)?;
        Ok(Self {
            schema,
            meta: Meta::new(schema).ok_or("the schema lacks ObjectMeta")?,
            gated: Gated::new(schema, gates),
            unsafe_deletion: gates.enabled(unreadable::GATE),
            discovery: Discovery::new(&resources),
            columns: Descriptions::new(Arc::clone(&documents)),
            openapi: OpenApi::new(documents, rows.to_vec()),
            resources,
        })
    }
    /// Decodes a stored object into the version of a resource.
    pub(crate) fn served_tree(&self, resource: &Resource, object: &Object) -> Result<Struct, Status> {
        let stored = resource.stored()?;
        let mut tree = self.stored_tree(resource, object)?;
        if let Some(mut meta) = self.meta.of_mut(&mut tree, stored.meta_at) {
            meta.set_resource_version(&object.revision.to_string());
        }
        self.to_served(resource, tree)
    }
    /// Decodes a stored object in the version in which it is stored, without its resourceVersion.
    pub(crate) fn stored_tree(&self, resource: &Resource, object: &Object) -> Result<Struct, Status> {
        unreadable::decoded(self.schema, resource, object)?
            .map_err(|bad| unreadable::corrupted(&bad, self.unsafe_deletion))
    }
    /// A tree with the name, namespace and uid of a stored object, which is not decoded, in the version in which it is
    /// stored.
    pub(crate) fn outline(&self, resource: &Resource, object: &Object) -> Result<Struct, Status> {
        let stored = resource.stored()?;
        let mut tree = Struct::new(stored.root);
        if let Some(mut meta) = self.meta.of_mut(&mut tree, stored.meta_at) {
            meta.set_name(&object.data.name);
            meta.set_namespace(&object.data.namespace);
            meta.set_uid(&object.data.uid);
        }
        Ok(tree)
    }
    /// Converts a tree from the stored version to the one that is served.
    pub(crate) fn to_served(&self, resource: &Resource, tree: Struct) -> Result<Struct, Status> {
        let stored = resource.stored()?;
        if stored.kind == resource.kind {
            return Ok(tree);
        }
        let (from, to) = (&stored.kind, &resource.kind);
        resource.strategy.convert(self.schema, tree, from, to).map_err(Status::internal)
    }
    /// Converts a tree from the version that is served to the stored one.
    pub(crate) fn to_stored(&self, resource: &Resource, tree: Struct) -> Result<Struct, Status> {
        let stored = resource.stored()?;
        if stored.kind == resource.kind {
            return Ok(tree);
        }
        let (from, to) = (&resource.kind, &stored.kind);
        resource.strategy.convert(self.schema, tree, from, to).map_err(Status::internal)
    }
    /// The definitions of a Table's columns.
    pub(crate) fn column_definitions(&self, columns: &[kinds::columns::Column]) -> serde_json::Value {
        self.columns.definitions(&self.resources, columns)
    }
    /// The object of a bookmark: empty but for its resourceVersion.
    pub(crate) fn bookmark(&self, resource: &Resource, revision: u64, initial_end: bool) -> Struct {
        let mut tree = Struct::new(resource.root);
        if let Some(at) = resource.meta_at
            && let Some(mut meta) = self.meta.of_mut(&mut tree, at)
        {
            meta.set_resource_version(&revision.to_string());
            if initial_end {
                meta.annotate("k8s.io/initial-events-end", "true");
            }
        }
        tree
    }
}
