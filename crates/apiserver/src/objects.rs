//! The objects that are stored, as everybody in the server reads them: by name and namespace, straight from the index,
//! without a request.

use std::sync::Arc;
use std::time::Duration;

use access::auth::Eventual;
use access::reader::{Found, Reader, ResourceName, Which};
use api::resources::ResourceInfo;
use api::{FeatureGates, Gvk, Node, Object, Schema, Status, Struct};
use arc_swap::ArcSwap;
use bytes::BytesMut;
use component::Clock;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use storage::{Batch, ReadError, ResourceId, Scope, Store, WatchOptions, WatchStart, Watcher};

use crate::aggregated::Services;
use crate::catalog::definitions::Change;
use crate::catalog::{Catalog, Documents, ResourceEntry};
use crate::config::Config;

/// How long a read waits for a revision that the store has not reached; upstream's `blockTimeout`.
pub(crate) const FRESH_TIMEOUT: Duration = Duration::from_secs(3);

/// The schema lacks a kind of the table of resources.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CatalogError(String);

impl CatalogError {
    /// The schema lacks a kind.
    pub(crate) fn lacks(kind: &str) -> Self {
        Self(format!("the schema lacks {kind}"))
    }
}

/// The store, what of it is served, and the time by which its objects are written.
pub struct Objects {
    /// Where they are.
    pub(crate) store: Store,
    /// The clock of timestamps.
    pub(crate) clock: Clock,
    /// Which features are on.
    pub(crate) gates: FeatureGates,
    catalog: ArcSwap<Catalog>,
    documents: Arc<dyn Documents>,
}

impl Objects {
    /// Registers every resource that is served with the store.
    pub fn new(store: Store, config: &Config) -> Result<Self, CatalogError> {
        let rows = config.resources();
        let documents = Arc::clone(&config.documents);
        let catalog = Catalog::new(&store, &rows, config.gates, documents, kinds::strategy);
        Ok(Self::with(store, config, catalog.map_err(CatalogError)?))
    }
    /// With a catalog that was made over the same store.
    pub(crate) fn with(store: Store, config: &Config, catalog: Catalog) -> Self {
        Self {
            store,
            clock: config.clock,
            gates: config.gates,
            catalog: ArcSwap::from_pointee(catalog),
            documents: Arc::clone(&config.documents),
        }
    }
    /// The catalog of now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }
    /// Serves these built-in resources from now on. Requests that have begun go on with those that were served then.
    pub fn serve(&self, rows: &[ResourceInfo]) -> Result<(), CatalogError> {
        let documents = Arc::clone(&self.documents);
        let catalog = Catalog::new(&self.store, rows, self.gates, documents, kinds::strategy);
        self.catalog.store(Arc::new(catalog.map_err(CatalogError)?));
        Ok(())
    }
    /// The schema of the built-in kinds.
    #[allow(clippy::unused_self, reason = "the schema is that of these objects")]
    pub(crate) fn schema(&self) -> &'static Schema {
        Schema::builtin()
    }
    /// Serves the resources of these definitions from now on, instead of those that were.
    pub(crate) fn serve_definitions(&self, changes: &[Change]) {
        self.catalog.rcu(|catalog| catalog.changed(changes));
    }
    /// Leads requests for these group versions to other servers from now on, instead of those that were led.
    pub(crate) fn serve_elsewhere(&self, services: &Arc<Services>) {
        self.catalog.rcu(|catalog| catalog.with_services(Arc::clone(services)));
    }
    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }
    /// A resource by the group and plural under which its objects are stored.
    pub(crate) fn resource(&self, group: &str, plural: &str) -> Option<Arc<ResourceEntry>> {
        self.catalog.load().resources.stored(group, plural).cloned()
    }
    /// The store's number of a resource.
    pub fn id(&self, (group, plural): (&str, &str)) -> Option<ResourceId> {
        Some(self.catalog.load().resources.stored(group, plural)?.stored.as_ref()?.id)
    }
    /// Decodes an object in the version in which it is stored; without its resourceVersion.
    pub(crate) fn tree(&self, group: &str, plural: &str, object: &Object) -> Result<Struct, Status> {
        let catalog = self.catalog.load();
        let resource = catalog.resources.stored(group, plural).ok_or_else(Status::no_such_resource)?;
        crate::codec::stored(catalog.schema(), resource.stored()?.root, object)
    }
    /// Decodes some fields of an object in the version in which it is stored.
    pub(crate) fn fields(
        &self,
        (group, plural): ResourceName,
        object: &Object,
        wanted: &[&str],
    ) -> Result<Struct, Status> {
        let catalog = self.catalog.load();
        let resource = catalog.resources.stored(group, plural).ok_or_else(Status::no_such_resource)?;
        crate::codec::stored_fields(catalog.schema(), resource.stored()?.root, object, wanted)
    }
    /// The current objects as Added events, then every change.
    pub(crate) fn watch(&self, resource: ResourceName) -> Option<Watcher> {
        let id = self.id(resource)?;
        self.store.watch(id, Scope::default(), WatchStart::Now, WatchOptions::default()).ok()
    }
    /// Now, as `metav1.Time` text.
    pub(crate) fn now(&self) -> String {
        time_text(self.clock.now())
    }
    /// Returns once the store shows everything of these resources that was acknowledged before this call.
    pub(crate) async fn fresh(&self, resources: &[ResourceId]) -> Result<(), Status> {
        self.store.fresh(resources).await.map_err(|e| match e {
            ReadError::Behind { wanted, current } => too_large(wanted, current),
            // Upstream's answers name no reason for what etcd says.
            ReadError::Etcd(e) => Status::failure(500, "", e.to_string()),
            ReadError::Closed => Status::internal(e),
        })
    }
    /// Returns once a resource is shown as of a revision, and is loaded at all; upstream's error if it is not in time.
    pub(crate) async fn reached(&self, resource: ResourceId, revision: u64) -> Result<(), Status> {
        if self.store.wait_for(resource, revision, FRESH_TIMEOUT).await {
            return Ok(());
        }
        Err(too_large(revision, self.store.current(resource)))
    }
}

impl Reader for Objects {
    fn get(&self, resource: ResourceName, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.store.get(self.id(resource)?, namespace, name)
    }
    fn list(&self, resource: ResourceName, namespace: &str) -> Vec<Arc<Object>> {
        let Some(id) = self.id(resource) else { return Vec::new() };
        let scope = Scope { namespace: namespace.into(), ..Scope::default() };
        self.store.snapshot(id).scan(&scope, None).map(Arc::clone).collect()
    }
    fn changed(&self, resource: ResourceName) -> u64 {
        self.id(resource).map_or(0, |id| self.store.snapshot(id).changed())
    }
    fn is_namespaced(&self, kind: &Gvk) -> Option<bool> {
        let catalog = self.catalog.load();
        Some(catalog.resources.of_kind(kind)?.namespaced)
    }
    fn of_kind<'a>(&'a self, kind: &'a Gvk, namespace: &'a str, which: Which<'a>) -> Found<'a> {
        let catalog = self.catalog();
        let Some(resource) = catalog.resources.of_kind(kind).cloned() else {
            return Eventual::Now(Ok(Vec::new()));
        };
        let Some(stored) = &resource.stored else { return Eventual::Now(Ok(Vec::new())) };
        let objects: Vec<Arc<Object>> = match which {
            Which::Named(name) => self.store.get(stored.id, namespace, name).into_iter().collect(),
            Which::Selected(selector) => {
                let scope = Scope { namespace: namespace.into(), ..Scope::default() };
                let snapshot = self.store.snapshot(stored.id);
                let all = snapshot.scan(&scope, None);
                all.filter(|object| selector.matches(|key| object.label(key))).cloned().collect()
            }
        };
        let now = objects.iter().all(|object| resource.is_current(object));
        if now && (resource.same_version() || resource.custom.is_some()) {
            return Eventual::Now(objects.iter().map(|object| value(&resource, object)).collect());
        }
        Eventual::later(async move {
            if resource.custom.is_some() {
                let objects = catalog.current_objects(&resource, &objects, &kind.kind, None).await?;
                return objects.iter().map(|object| value(&resource, object)).collect();
            }
            let served = objects.iter().map(|object| {
                let tree = catalog.served_tree(&resource, object)?;
                let text = crate::codec::json_with(catalog.schema(), &resource.type_meta, &tree);
                api::codec::json::decode_any(&text).map(Arc::new).map_err(Status::internal)
            });
            served.collect()
        })
    }
    fn appears(&self, resource: ResourceName, namespace: &str, name: &str) -> BoxFuture<'static, ()> {
        let scope = Scope { namespace: namespace.into(), name: name.into(), field: None };
        let watch = self
            .id(resource)
            .and_then(|id| self.store.watch(id, scope, WatchStart::Now, WatchOptions::default()).ok());
        async move {
            let Some(mut watch) = watch else { return };
            while let Some(Ok(batch)) = watch.next().await {
                if matches!(batch, Batch::Events(events) if !events.is_empty()) {
                    return;
                }
            }
        }
        .boxed()
    }
}

/// An object as clients see it, in the version of a resource.
fn value(resource: &ResourceEntry, object: &Object) -> Result<Arc<Node>, Status> {
    let mut text = BytesMut::new();
    object.write_json(&resource.stored_meta, &mut text);
    api::codec::json::decode_any(&text).map(Arc::new).map_err(Status::internal)
}

/// Upstream's error for a revision that is still to come.
pub(crate) fn too_large(wanted: u64, current: u64) -> Status {
    let mut s = Status::failure(
        504,
        "Timeout",
        format!("Timeout: Too large resource version: {wanted}, current: {current}"),
    );
    s.details = Some(Box::new(api::status::Details {
        causes: vec![api::status::Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        }],
        retry_after_seconds: 1,
        ..Default::default()
    }));
    s
}

/// A point in time as `metav1.Time` writes it.
pub(crate) fn time_text(t: jiff::Timestamp) -> String {
    let whole = jiff::Timestamp::from_second(t.as_second()).unwrap_or(t);
    whole.to_string()
}
