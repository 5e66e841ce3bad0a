//! Live objects, as authentication and admission look at them.

use std::collections::HashMap;
use std::sync::Arc;

use api::{Object, Text};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use serde::de::DeserializeOwned;
use storage::{Batch, ResourceId, Scope, Store, WatchOptions, WatchStart};

/// A group and a plural name.
pub type ResourceName = (&'static str, &'static str);

/// Reads stored objects without waiting.
pub trait Reader: Send + Sync + 'static {
    /// An object; `namespace` is "" for objects of the cluster.
    fn get(&self, resource: ResourceName, namespace: &str, name: &str) -> Option<Arc<Object>>;
    /// The objects of a resource, of one namespace or with "" of all, in the order of their names.
    fn list(&self, resource: ResourceName, namespace: &str) -> Vec<Arc<Object>>;
    /// Resolves once the object is there; perhaps never.
    fn appears(&self, resource: ResourceName, namespace: &str, name: &str) -> BoxFuture<'static, ()>;
}

/// Reads a store.
pub struct StoreReader {
    store: Store,
    resources: HashMap<(Text, Text), ResourceId>,
}

impl StoreReader {
    /// Of a store and its resources by group and plural name.
    pub fn new(store: Store, resources: impl IntoIterator<Item = ((Text, Text), ResourceId)>) -> Self {
        Self { store, resources: resources.into_iter().collect() }
    }
    fn find(&self, resource: ResourceName) -> Option<ResourceId> {
        self.resources.get(&(resource.0.into(), resource.1.into())).copied()
    }
}

impl Reader for StoreReader {
    fn get(&self, resource: ResourceName, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.store.get(self.find(resource)?, namespace, name)
    }
    fn list(&self, resource: ResourceName, namespace: &str) -> Vec<Arc<Object>> {
        let Some(resource) = self.find(resource) else { return Vec::new() };
        let scope = Scope { namespace: namespace.into(), ..Scope::default() };
        self.store.snapshot(resource).scan(&scope, None).cloned().collect()
    }
    fn appears(&self, resource: ResourceName, namespace: &str, name: &str) -> BoxFuture<'static, ()> {
        let scope = Scope { namespace: namespace.into(), name: name.into(), field: None };
        let watch = self.find(resource).and_then(|resource| {
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

/// The part of a stored object that `T` names.
pub(crate) fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    serde_json::from_slice(&object.data.body).ok()
}
