//! Stored objects for tests.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::codec::json;
use api::{Gvk, NewObject, Node, Object, OwnerRef, Schema, Struct, Text};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

use crate::admission::{Equivalent, Versions};
use crate::auth::Eventual;
use crate::reader::{Found, Reader, ResourceName, Which};
use crate::webhook::Network;

type Key = (ResourceName, Text, Text);

/// Stored objects of a test.
#[derive(Default)]
pub(crate) struct Fake {
    objects: Mutex<BTreeMap<Key, Arc<Object>>>,
    changes: Mutex<u64>,
    kinds: Mutex<HashMap<Gvk, (ResourceName, bool)>>,
}

impl Fake {
    /// Puts an object in place, from JSON.
    pub(crate) fn put(&self, resource: ResourceName, json: Value) {
        let mut object = object(json);
        let mut changes = self.changes.lock();
        *changes += 1;
        object.revision = *changes;
        let key = (resource, object.data.namespace.clone(), object.data.name.clone());
        self.objects.lock().insert(key, Arc::new(object));
    }
    /// Removes an object.
    pub(crate) fn remove(&self, resource: ResourceName, namespace: &str, name: &str) {
        *self.changes.lock() += 1;
        self.objects.lock().remove(&(resource, namespace.into(), name.into()));
    }
    /// Serves a kind.
    pub(crate) fn serve(&self, kind: Gvk, resource: ResourceName, namespaced: bool) {
        self.kinds.lock().insert(kind, (resource, namespaced));
    }
}

/// Makes a stored object from JSON.
pub(crate) fn object(mut json: Value) -> Object {
    json["metadata"]["resourceVersion"] = "".into();
    let body = json.to_string();
    let mark = "\"resourceVersion\":\"";
    let rv_at = body.find(mark).map_or(1, |at| at + mark.len());
    let meta = &json["metadata"];
    let text = |v: &Value| Text::from(v.as_str().unwrap_or_default());
    let labels = meta["labels"].as_object();
    let mut labels: Vec<(Text, Text)> =
        labels.into_iter().flatten().map(|(k, v)| (k.as_str().into(), text(v))).collect();
    labels.sort();
    let owners = meta["ownerReferences"].as_array().into_iter().flatten().map(|owner| OwnerRef {
        api_version: text(&owner["apiVersion"]),
        kind: text(&owner["kind"]),
        name: text(&owner["name"]),
        uid: text(&owner["uid"]),
        controller: owner["controller"] == true,
        block_owner_deletion: owner["blockOwnerDeletion"] == true,
    });
    Object {
        data: NewObject {
            name: text(&meta["name"]),
            namespace: text(&meta["namespace"]),
            uid: text(&meta["uid"]),
            labels: labels.into(),
            owners: owners.collect(),
            fields: Box::default(),
            deleting: !meta["deletionTimestamp"].is_null(),
            finalizers: false,
            stamp: 0,
            body: body.into(),
            rv_at: rv_at as u32,
        },
        revision: 1,
    }
}

/// The versions of a resource that has one, of the built-in schema.
pub(crate) struct Alone;

impl Versions for Alone {
    fn schema(&self) -> &Schema {
        Schema::builtin()
    }
    fn equivalents(&self) -> Vec<Equivalent> {
        Vec::new()
    }
    fn convert<'a>(
        &'a self,
        tree: Struct,
        from: &'a Gvk,
        to: &'a Gvk,
    ) -> Eventual<'a, Result<Struct, String>> {
        let unknown = || format!("unable to convert to {}: unknown kind", to.kind);
        Eventual::Now(if from == to { Ok(tree) } else { Err(unknown()) })
    }
    fn tree(&self, kind: &Gvk, value: Node, strict: bool) -> Result<Struct, String> {
        let schema = self.schema();
        let root = schema.kind(kind).ok_or("unknown kind")?;
        let decoded = json::root_from_patched(schema, root, value).map_err(|e| e.to_string())?;
        if strict && !decoded.strict.is_empty() {
            return Err(format!("strict decoding error: {}", decoded.strict.join(", ")));
        }
        Ok(decoded.tree)
    }
}

/// Objects for a chain, and a network in which there is nobody.
pub(crate) fn alone(objects: Fake) -> (Arc<dyn Reader>, Arc<Network>) {
    let objects: Arc<dyn Reader> = Arc::new(objects);
    let network = Arc::new(Network::new(Arc::clone(&objects), |_| false));
    (objects, network)
}

impl Reader for Fake {
    fn get(&self, resource: ResourceName, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.objects.lock().get(&(resource, namespace.into(), name.into())).cloned()
    }
    fn changed(&self, _: ResourceName) -> u64 {
        *self.changes.lock()
    }
    fn is_namespaced(&self, kind: &Gvk) -> Option<bool> {
        self.kinds.lock().get(kind).map(|(_, namespaced)| *namespaced)
    }
    fn of_kind<'a>(&'a self, kind: &'a Gvk, namespace: &'a str, which: Which<'a>) -> Found<'a> {
        let Some((resource, _)) = self.kinds.lock().get(kind).copied() else {
            return Eventual::Now(Ok(Vec::new()));
        };
        let wanted = |object: &Arc<Object>| match which {
            Which::Named(name) => object.data.name == name,
            Which::Selected(selector) => selector.matches(|key| object.label(key)),
        };
        let objects = self.list(resource, namespace).into_iter().filter(wanted);
        let values = objects.map(|object| {
            let mut value = json::decode_any(&object.data.body).unwrap_or(Node::Null);
            if let Some(map) = value.as_map_mut() {
                map.insert("kind", kind.kind.clone());
                map.insert("apiVersion", kind.api_version());
            }
            Arc::new(value)
        });
        Eventual::Now(Ok(values.collect()))
    }
    fn list(&self, resource: ResourceName, namespace: &str) -> Vec<Arc<Object>> {
        self.objects
            .lock()
            .iter()
            .filter(|((r, ns, _), _)| *r == resource && (namespace.is_empty() || ns == namespace))
            .map(|(_, o)| o.clone())
            .collect()
    }
    fn appears(&self, _: ResourceName, _: &str, _: &str) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }
}
