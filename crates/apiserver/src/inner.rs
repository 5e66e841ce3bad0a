//! What every request works on.

use std::sync::{Arc, OnceLock};

use access::admission::Admission;
use access::auth::Auth;
use api::{Object, Schema, Status, Struct};
use bytes::Bytes;
use component::Shutdown;
use kinds::gated::Gated;
use storage::Store;

use crate::allocate::Allocators;
use crate::config::Config;
use crate::discovery::Discovery;
use crate::flow::Flow;
use crate::forms::FormCache;
use crate::handlers::unreadable;
use crate::health::Health;
use crate::lanes::Lanes;
use crate::meta::Meta;
use crate::metrics::Metrics;
use crate::openapi::Documents;
use crate::proxy::Connect;
use crate::reader::Reader;
use crate::registry::{Registry, Resource};
use crate::table::Descriptions;

/// What every request works on.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) schema: &'static Schema,
    pub(crate) meta: Meta,
    /// The fields of features that are off.
    pub(crate) gated: Gated,
    pub(crate) store: Store,
    pub(crate) registry: Arc<Registry>,
    pub(crate) auth: Auth,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) connect: OnceLock<Connect>,
    pub(crate) openapi: OnceLock<Box<dyn Documents>>,
    /// The body of `/openapi/v3`, for which every document is made once.
    pub(crate) openapi_index: OnceLock<Bytes>,
    /// What the columns of Tables tell.
    pub(crate) column_descriptions: OnceLock<Descriptions>,
    pub(crate) allocators: Allocators,
    pub(crate) forms: FormCache,
    /// How much of the server callers may use at once.
    pub(crate) flow: Flow,
    /// Where long work is done.
    pub(crate) lanes: Lanes,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) discovery: Discovery,
    pub(crate) reader: Reader,
    pub(crate) shutdown: Shutdown,
}

impl Inner {
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
        unreadable::decoded(self, resource, object)?.map_err(|bad| unreadable::corrupted(self, &bad))
    }
    /// What is known of a stored object without decoding it, in the version in which it is stored.
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
    /// Now, as `metav1.Time` text.
    pub(crate) fn now(&self) -> String {
        time_text(self.config.clock.now())
    }
}

/// A point in time as `metav1.Time` writes it.
pub(crate) fn time_text(t: jiff::Timestamp) -> String {
    let whole = jiff::Timestamp::from_second(t.as_second()).unwrap_or(t);
    whole.to_string()
}
