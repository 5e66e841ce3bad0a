//! Reads over the store for what decides about requests: objects by name and namespace, straight
//! from the index, without a request.

use std::sync::Arc;

use access::reader::ResourceName;
use api::{Object, Schema, Status, Struct};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use storage::{Batch, Scope, Store, WatchOptions, WatchStart, Watcher};

use crate::codec;
use crate::config::Config;
use crate::registry::Registry;
use crate::server::ServerError;

/// The reader, made before the server, which is made with it. Clones share it.
#[derive(Clone)]
pub struct Reader {
    pub(crate) schema: &'static Schema,
    pub(crate) store: Store,
    pub(crate) registry: Arc<Registry>,
}

impl Reader {
    /// Registers every resource that is served with the store.
    pub fn new(store: Store, config: &Config) -> Result<Self, ServerError> {
        let schema = Schema::builtin();
        let rows = config.resources();
        let registry = Registry::new(schema, &store, &rows, kinds::strategy).map_err(ServerError::Schema)?;
        Ok(Self { schema, store, registry: Arc::new(registry) })
    }
    /// An object as it is now. The group and plural are those under which it is stored.
    pub fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let stored = self.registry.stored(group, plural)?.stored.as_ref()?;
        self.store.get(stored.id, namespace, name)
    }
    /// The objects of a namespace, or of all if it is "".
    pub fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Object>> {
        let Some(stored) = self.registry.stored(group, plural).and_then(|r| r.stored.as_ref()) else {
            return Vec::new();
        };
        let scope = Scope { namespace: namespace.into(), ..Scope::default() };
        self.store.snapshot(stored.id).scan(&scope, None).map(Arc::clone).collect()
    }
    /// Decodes an object in the version in which it is stored; without its resourceVersion.
    pub fn tree(&self, group: &str, plural: &str, object: &Object) -> Result<Struct, Status> {
        let resource = self.registry.stored(group, plural).ok_or_else(Status::no_such_resource)?;
        codec::stored(self.schema, resource.stored()?.root, object)
    }
    /// The current objects as Added events, then every change.
    pub fn watch(&self, group: &str, plural: &str) -> Option<Watcher> {
        let stored = self.registry.stored(group, plural)?.stored.as_ref()?;
        self.store.watch(stored.id, Scope::default(), WatchStart::Now, WatchOptions::default()).ok()
    }
    /// The store's number of a resource.
    pub fn resource(&self, group: &str, plural: &str) -> Option<storage::ResourceId> {
        Some(self.registry.stored(group, plural)?.stored.as_ref()?.id)
    }
    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }
    /// The schema of the trees.
    pub fn schema(&self) -> &'static Schema {
        self.schema
    }
}

impl access::reader::Reader for Reader {
    fn get(&self, (group, plural): ResourceName, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.get(group, plural, namespace, name)
    }
    fn list(&self, (group, plural): ResourceName, namespace: &str) -> Vec<Arc<Object>> {
        self.list(group, plural, namespace)
    }
    fn appears(&self, (group, plural): ResourceName, namespace: &str, name: &str) -> BoxFuture<'static, ()> {
        let scope = Scope { namespace: namespace.into(), name: name.into(), field: None };
        let watch = self.resource(group, plural).and_then(|resource| {
            self.store.watch(resource, scope, WatchStart::Now, WatchOptions::default()).ok()
        });
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
