//! Live objects, as authentication and admission look at them.

use std::sync::Arc;

use api::Object;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;

/// A group and a plural name.
pub type ResourceName = (&'static str, &'static str);

/// Reads stored objects without waiting.
pub trait Reader: Send + Sync + 'static {
    /// Returns an object; `namespace` is "" for objects of the cluster.
    fn get(&self, resource: ResourceName, namespace: &str, name: &str) -> Option<Arc<Object>>;
    /// Returns the objects of a resource, of one namespace or with "" of all, in the order of their names.
    fn list(&self, resource: ResourceName, namespace: &str) -> Vec<Arc<Object>>;
    /// Resolves once the object exists, which may never be.
    fn appears(&self, resource: ResourceName, namespace: &str, name: &str) -> BoxFuture<'static, ()>;
}

/// Reads the fields of a stored object that `T` has.
pub fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    serde_json::from_slice(&object.data.body).ok()
}
