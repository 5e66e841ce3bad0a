//! Live objects, as authentication and admission look at them.

use std::sync::Arc;

use api::selector::labels::Selector;
use api::{Gvk, Node, Object, Status};
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;

use crate::auth::Eventual;

/// A group and a plural name.
pub type ResourceName = (&'static str, &'static str);

/// Objects by their name or by their labels.
#[derive(Debug, Clone, Copy)]
pub enum Which<'a> {
    /// The object of this name.
    Named(&'a str),
    /// The objects whose labels are selected.
    Selected(&'a Selector),
}

/// Objects in a version that may have to be asked for.
pub type Found<'a> = Eventual<'a, Result<Vec<Arc<Node>>, Status>>;

/// Reads stored objects without waiting.
pub trait Reader: Send + Sync + 'static {
    /// Returns an object; `namespace` is "" for objects of the cluster.
    fn get(&self, resource: ResourceName, namespace: &str, name: &str) -> Option<Arc<Object>>;
    /// Returns the objects of a resource, of one namespace or with "" of all, in the order of their names.
    fn list(&self, resource: ResourceName, namespace: &str) -> Vec<Arc<Object>>;
    /// Returns the revision of the last change of a resource; 0 if there was none.
    fn changed(&self, resource: ResourceName) -> u64;
    /// Tells whether the objects of a kind are in namespaces; `None` if nobody serves the kind.
    fn is_namespaced(&self, kind: &Gvk) -> Option<bool>;
    /// Returns the objects of a kind as clients of its version see them.
    fn of_kind<'a>(&'a self, kind: &'a Gvk, namespace: &'a str, which: Which<'a>) -> Found<'a>;
    /// Resolves once the object exists, which may never be.
    fn appears(&self, resource: ResourceName, namespace: &str, name: &str) -> BoxFuture<'static, ()>;
}

/// Reads the fields of a stored object that `T` has.
pub fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    serde_json::from_slice(&object.data.body).ok()
}
