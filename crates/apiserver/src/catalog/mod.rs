//! The catalog: resources with their schemas and rules, discovery, OpenAPI, and the texts of columns.
//!
//! A catalog never changes. Another may take its place while the server runs, so a request takes the one of its time
//! along ([`crate::request::Request`]) and asks nobody else.

mod columns;
pub(crate) mod conversion;
mod converted;
pub(crate) mod converter;
mod current;
pub(crate) mod custom;
mod custom_version;
pub(crate) mod definitions;
mod discovery;
mod documents;
pub(crate) mod meta;
mod openapi;
pub(crate) mod pieces;
mod resource;
mod resources;
mod restored;
mod shared;
pub(crate) mod unreadable;
pub(crate) mod webhook_converter;

use std::sync::Arc;

use api::resources::ResourceInfo;
use api::{FeatureGates, Object, Schema, Status, Struct};
use kinds::Strategy;
use kinds::gated::Gated;
use storage::Store;
use tokio::time::Instant;

pub(crate) use openapi::{Document, OpenApi};
pub use openapi::{Documents, NoDocuments};
pub(crate) use resource::{ResourceEntry, Stored, SubresourceEntry};

use columns::Descriptions;
use conversion::Conversion;
use converted::Converted;
use definitions::Change;
use discovery::Discovery;
use meta::Meta;
use resources::Resources;

use crate::aggregated::Services;
use crate::lanes::in_time;

/// The resources that are served, and everything that describes them.
pub(crate) struct Catalog {
    /// The schema of all trees: that of the built-in kinds, with those of definitions above it.
    schema: Arc<Schema>,
    /// Where `metadata` has its fields.
    pub(crate) meta: Meta,
    /// The fields of features that are off.
    pub(crate) gated: Arc<Gated>,
    /// Whether objects that cannot be read may be deleted, which changes what is said of them.
    pub(crate) unsafe_deletion: bool,
    /// The resources.
    pub(crate) resources: Arc<Resources>,
    /// The group versions for which others answer.
    pub(crate) services: Arc<Services>,
    /// The documents of discovery.
    pub(crate) discovery: Discovery,
    /// The documents of OpenAPI.
    pub(crate) openapi: OpenApi,
    /// The texts of the columns of Tables.
    columns: Arc<Descriptions>,
    /// Objects of definitions that were converted lately.
    converted: Arc<Converted>,
}

impl Catalog {
    /// Registers every row with the store. A row whose kind the schema lacks is an error.
    pub(crate) fn new(
        store: &Store,
        rows: &[ResourceInfo],
        gates: FeatureGates,
        documents: Arc<dyn Documents>,
        strategy_of: impl Fn(&str, &str) -> Arc<dyn Strategy>,
    ) -> Result<Self, String> {
        let schema = Schema::builtin();
        let resources = Arc::new(Resources::new(schema, store, rows, strategy_of)?);
        let services = Arc::<Services>::default();
        Ok(Self {
            schema: Arc::new(schema.with_custom([])),
            meta: Meta::new(schema).ok_or("the schema lacks ObjectMeta")?,
            gated: Arc::new(Gated::new(schema, gates)),
            unsafe_deletion: gates.enabled(unreadable::GATE),
            discovery: Discovery::new(Arc::clone(&resources), Arc::clone(&services)),
            columns: Arc::new(Descriptions::new(Arc::clone(&documents))),
            openapi: OpenApi::new(documents, rows.to_vec()),
            converted: Arc::default(),
            resources,
            services,
        })
    }
    /// The same catalog with other resources of some definitions. All else is shared.
    pub(crate) fn changed(&self, changes: &[Change]) -> Self {
        let former = changes.iter().filter_map(|c| self.resources.definitions().get(&c.group, &c.plural));
        let new = changes.iter().filter_map(|c| c.resource.as_ref());
        let schema =
            self.schema.replacing(former.flat_map(|r| &r.kinds), new.flat_map(|r| &r.kinds), |kind| {
                self.resources.is_built_in_kind(kind)
            });
        let resources = Arc::new(self.resources.changed(changes));
        Self {
            schema: Arc::new(schema),
            meta: self.meta,
            gated: Arc::clone(&self.gated),
            unsafe_deletion: self.unsafe_deletion,
            discovery: self.discovery.of(Arc::clone(&resources), Arc::clone(&self.services)),
            services: Arc::clone(&self.services),
            openapi: self.openapi.with_definitions(resources.definitions().clone()),
            columns: Arc::clone(&self.columns),
            converted: Arc::clone(&self.converted),
            resources,
        }
    }
    /// The same catalog with other servers that answer for group versions.
    pub(crate) fn with_services(&self, services: Arc<Services>) -> Self {
        Self {
            schema: Arc::clone(&self.schema),
            meta: self.meta,
            gated: Arc::clone(&self.gated),
            unsafe_deletion: self.unsafe_deletion,
            discovery: self.discovery.of(Arc::clone(&self.resources), Arc::clone(&services)),
            openapi: self.openapi.with_services(Arc::clone(&services)),
            columns: Arc::clone(&self.columns),
            converted: Arc::clone(&self.converted),
            resources: Arc::clone(&self.resources),
            services,
        }
    }
    /// The schema of all trees.
    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }
    /// Decodes a stored object into the version of a resource whose objects the strategy converts.
    pub(crate) fn served_tree(&self, resource: &ResourceEntry, object: &Object) -> Result<Struct, Status> {
        let tree = self.revised_tree(resource, object)?;
        self.conversion(resource)?.at_once(tree)
    }
    /// The conversion from the version in which a resource is stored to that which is served.
    fn conversion<'a>(&'a self, resource: &'a ResourceEntry) -> Result<Conversion<'a>, Status> {
        let (from, to) = (&resource.stored()?.kind, &resource.kind);
        Ok(Conversion { schema: &self.schema, resource, from, to, deadline: None })
    }
    /// Decodes a stored object in the version in which it is stored.
    fn revised_tree(&self, resource: &ResourceEntry, object: &Object) -> Result<Struct, Status> {
        let mut tree = self.stored_tree(resource, object)?;
        if let Some(mut meta) = self.meta.of_mut(&mut tree, resource.stored()?.meta_at) {
            meta.set_resource_version(&object.revision.to_string());
        }
        Ok(tree)
    }
    /// Decodes a stored object in the version in which it is stored, without its resourceVersion.
    pub(crate) fn stored_tree(&self, resource: &ResourceEntry, object: &Object) -> Result<Struct, Status> {
        unreadable::decoded(&self.schema, resource, object)?
            .map_err(|bad| unreadable::corrupted(&bad, self.unsafe_deletion))
    }
    /// A tree with the name, namespace and uid of a stored object, which is not decoded, in the version in which it is
    /// stored.
    pub(crate) fn outline(&self, resource: &ResourceEntry, object: &Object) -> Result<Struct, Status> {
        let stored = resource.stored()?;
        let mut tree = Struct::new(stored.root);
        if let Some(mut meta) = self.meta.of_mut(&mut tree, stored.meta_at) {
            meta.set_name(&object.data.name);
            meta.set_namespace(&object.data.namespace);
            meta.set_uid(&object.data.uid);
        }
        Ok(tree)
    }
    /// The definitions of a Table's columns.
    pub(crate) fn column_definitions(&self, columns: &[kinds::columns::Column]) -> serde_json::Value {
        self.columns.definitions(&self.resources, columns)
    }
    /// The object of a bookmark: empty but for its resourceVersion.
    pub(crate) fn bookmark(&self, resource: &ResourceEntry, revision: u64, initial_end: bool) -> Struct {
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

/// How many bytes of objects are decoded or encoded before others have their turn: about a millisecond.
const BREATH: usize = 64 << 10;

/// Lets others have their turn now and then while much is decoded and encoded.
struct Breath {
    done: usize,
    deadline: Option<Instant>,
}

impl Breath {
    fn new(deadline: Option<Instant>) -> Self {
        Self { done: 0, deadline }
    }
    /// After work on so many bytes; fails once nobody waits any more.
    async fn after(&mut self, bytes: usize) -> Result<(), Status> {
        self.done += bytes;
        if self.done >= BREATH {
            self.done = 0;
            in_time(self.deadline)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
