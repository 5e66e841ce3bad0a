//! The objects that an informer knows, each in its newest state, with indexes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use api::Status;
use compact_str::CompactString as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;

use crate::client::KubeObject;
use crate::json::FromJson;
use crate::key::Key;

/// The parts of an object's metadata by which it is known; "" for those that it lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// `metadata.resourceVersion`.
    pub resource_version: &'a str,
}

impl<'a> Identity<'a> {
    /// The identity in metadata.
    pub fn of(metadata: &'a ObjectMeta) -> Self {
        let text = |of: &'a Option<String>| of.as_deref().unwrap_or_default();
        Self {
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            uid: text(&metadata.uid),
            resource_version: text(&metadata.resource_version),
        }
    }
}

/// An object as an informer holds it: the whole, or the part of it that its users read.
pub trait Cached: Sized + Send + Sync + 'static {
    /// Reads it from the object's JSON.
    fn decode(json: &[u8]) -> Result<Self, Status>;
    /// The parts of its metadata by which it is known.
    fn identity(&self) -> Identity<'_>;
    /// `metadata.namespace`, "" for none.
    fn namespace(&self) -> &str {
        self.identity().namespace
    }
    /// `metadata.name`.
    fn name(&self) -> &str {
        self.identity().name
    }
    /// `metadata.uid`.
    fn uid(&self) -> &str {
        self.identity().uid
    }
    /// `metadata.resourceVersion`.
    fn resource_version(&self) -> &str {
        self.identity().resource_version
    }
    /// Its key.
    fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }
}

/// Whole objects, without `managedFields`: nobody who caches reads those, and they are a third of an object.
impl<T: KubeObject> Cached for T {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        let mut object = T::from_json(json)?;
        object.metadata_mut().managed_fields = None;
        Ok(object)
    }
    fn identity(&self) -> Identity<'_> {
        Identity::of(self.metadata())
    }
}

/// `metav1.PartialObjectMetadata`: any object's kind and metadata.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialObject {
    /// API version; "" where the answer left it out.
    pub api_version: String,
    /// Kind; "" where the answer left it out.
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
}

crate::from_json!(PartialObject);

impl Cached for PartialObject {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        let mut object = Self::from_json(json)?;
        object.metadata.managed_fields = None;
        Ok(object)
    }
    fn identity(&self) -> Identity<'_> {
        Identity::of(&self.metadata)
    }
}

/// A change of an object.
#[derive(Debug)]
pub enum Change<T> {
    /// It is new to the cache.
    Added(Arc<T>),
    /// It changed.
    Updated {
        /// Before. Several changes may lie between.
        old: Arc<T>,
        /// Now.
        new: Arc<T>,
    },
    /// It is gone; its last known state.
    Deleted(Arc<T>),
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(o) => Self::Added(o.clone()),
            Self::Updated { old, new } => Self::Updated { old: old.clone(), new: new.clone() },
            Self::Deleted(o) => Self::Deleted(o.clone()),
        }
    }
}

impl<T> Change<T> {
    /// The newest state.
    pub fn object(&self) -> &Arc<T> {
        match self {
            Self::Added(o) | Self::Deleted(o) | Self::Updated { new: o, .. } => o,
        }
    }
    /// The same change of a part of the object.
    pub fn map<U>(&self, part: impl Fn(&Arc<T>) -> Arc<U>) -> Change<U> {
        match self {
            Self::Added(o) => Change::Added(part(o)),
            Self::Updated { old, new } => Change::Updated { old: part(old), new: part(new) },
            Self::Deleted(o) => Change::Deleted(part(o)),
        }
    }
    /// Every state it carries: one, or old and new.
    pub fn states(&self) -> impl Iterator<Item = &Arc<T>> {
        let (first, second) = match self {
            Self::Added(o) | Self::Deleted(o) => (o, None),
            Self::Updated { old, new } => (new, Some(old)),
        };
        std::iter::once(first).chain(second)
    }
}

type IndexFn<T> = Box<dyn Fn(&T) -> Vec<Text> + Send + Sync>;
type Handler<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;

struct Indexed<T> {
    name: &'static str,
    values: IndexFn<T>,
    keys: HashMap<Text, BTreeSet<Key>>,
}

struct Inner<T> {
    objects: BTreeMap<Key, Arc<T>>,
    indexes: Vec<Indexed<T>>,
    handlers: Vec<Arc<Handler<T>>>,
}

/// The cache of an informer. Reads share a lock that writers hold for one object at a time.
pub struct Store<T> {
    inner: RwLock<Inner<T>>,
    /// Held while a change is made and told, so that handlers hear of changes in order; not by readers.
    order: Mutex<()>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            inner: RwLock::new(Inner { objects: BTreeMap::new(), indexes: Vec::new(), handlers: Vec::new() }),
            order: Mutex::new(()),
        }
    }
}

impl<T: Cached> Inner<T> {
    fn unindex(&mut self, key: &Key, object: &T) {
        for index in &mut self.indexes {
            for value in (index.values)(object) {
                if let Some(keys) = index.keys.get_mut(&value) {
                    keys.remove(key);
                    if keys.is_empty() {
                        index.keys.remove(&value);
                    }
                }
            }
        }
    }

    fn put(&mut self, object: T) -> Option<Change<T>> {
        let (key, new) = (object.key(), Arc::new(object));
        let old = self.objects.insert(key.clone(), new.clone());
        if let Some(old) = &old {
            self.unindex(&key, old);
        }
        for index in &mut self.indexes {
            for value in (index.values)(&new) {
                index.keys.entry(value).or_default().insert(key.clone());
            }
        }
        match old {
            None => Some(Change::Added(new)),
            Some(old) if old.resource_version() == new.resource_version() && old.uid() == new.uid() => None,
            Some(old) => Some(Change::Updated { old, new }),
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<T>> {
        let old = self.objects.remove(key)?;
        self.unindex(key, &old);
        Some(old)
    }

    fn tell(&self) -> Vec<Arc<Handler<T>>> {
        self.handlers.clone()
    }
}

impl<T: Cached> Store<T> {
    /// Adds an index, and returns its place among the indexes. One of the same name is kept as it is.
    pub(crate) fn index(
        &self,
        name: &'static str,
        values: impl Fn(&T) -> Vec<Text> + Send + Sync + 'static,
    ) -> usize {
        let mut inner = self.inner.write();
        if let Some(place) = inner.indexes.iter().position(|i| i.name == name) {
            return place;
        }
        let mut keys: HashMap<Text, BTreeSet<Key>> = HashMap::new();
        for (key, object) in &inner.objects {
            for value in values(object) {
                keys.entry(value).or_default().insert(key.clone());
            }
        }
        inner.indexes.push(Indexed { name, values: Box::new(values), keys });
        inner.indexes.len() - 1
    }

    /// Adds a handler; it hears of what is there already, then of each change, in order. It runs
    /// on the informer's task and must not block: it puts keys into a work queue, or a change into
    /// its own state. It may read the store, and must not add handlers to it.
    pub fn handle(&self, handler: impl Fn(&Change<T>) + Send + Sync + 'static) {
        let handler: Arc<Handler<T>> = Arc::new(Box::new(handler));
        let _order = self.order.lock();
        let objects: Vec<_> = {
            let mut inner = self.inner.write();
            inner.handlers.push(handler.clone());
            inner.objects.values().cloned().collect()
        };
        for object in objects {
            tell(std::slice::from_ref(&handler), &Change::Added(object));
        }
    }

    /// The object, if there.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.get_key(&Key::new(namespace, name))
    }

    /// The object with a key, if there.
    pub fn get_key(&self, key: &Key) -> Option<Arc<T>> {
        self.inner.read().objects.get(key).cloned()
    }

    /// Every object, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.inner.read().objects.values().cloned().collect()
    }

    /// The objects of a namespace, ordered by name.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        let from = Key::new(namespace, "");
        self.inner
            .read()
            .objects
            .range((Bound::Included(&from), Bound::Unbounded))
            .take_while(|(k, _)| k.namespace == namespace)
            .map(|(_, o)| o.clone())
            .collect()
    }

    /// The objects that the index at a place finds under a value.
    pub(crate) fn by_index(&self, place: usize, value: &str) -> Vec<Arc<T>> {
        let inner = self.inner.read();
        let keys = inner.indexes.get(place).and_then(|i| i.keys.get(value));
        keys.into_iter().flatten().filter_map(|k| inner.objects.get(k).cloned()).collect()
    }

    /// How many objects the index at a place finds under a value.
    pub(crate) fn count_by_index(&self, place: usize, value: &str) -> usize {
        let inner = self.inner.read();
        inner.indexes.get(place).and_then(|i| i.keys.get(value)).map_or(0, BTreeSet::len)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.inner.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts an object and tells the handlers.
    pub(crate) fn put(&self, object: T) {
        let _order = self.order.lock();
        let (change, handlers) = {
            let mut inner = self.inner.write();
            (inner.put(object), inner.tell())
        };
        if let Some(change) = change {
            tell(&handlers, &change);
        }
    }

    /// Removes an object and tells the handlers its last state.
    pub(crate) fn delete(&self, last: T) {
        let _order = self.order.lock();
        let handlers = {
            let mut inner = self.inner.write();
            if inner.remove(&last.key()).is_none() {
                return;
            }
            inner.tell()
        };
        tell(&handlers, &Change::Deleted(Arc::new(last)));
    }

    /// Removes what has a key, whose last state is not known any more.
    pub(crate) fn delete_key(&self, key: &Key) {
        let _order = self.order.lock();
        let (old, handlers) = {
            let mut inner = self.inner.write();
            (inner.remove(key), inner.tell())
        };
        if let Some(old) = old {
            tell(&handlers, &Change::Deleted(old));
        }
    }

    /// Makes the store hold exactly these objects, and tells the handlers the differences.
    pub(crate) fn replace(&self, objects: BTreeMap<Key, T>) {
        let _order = self.order.lock();
        let (changes, handlers) = {
            let mut inner = self.inner.write();
            let gone: Vec<Key> =
                inner.objects.keys().filter(|k| !objects.contains_key(*k)).cloned().collect();
            let mut changes: Vec<Change<T>> =
                gone.iter().filter_map(|k| inner.remove(k)).map(Change::Deleted).collect();
            for object in objects.into_values() {
                changes.extend(inner.put(object));
            }
            (changes, inner.tell())
        };
        for change in &changes {
            tell(&handlers, change);
        }
    }
}

/// Tells handlers of a change. One that panics misses it; the others, and the informer's task, go on.
fn tell<T>(handlers: &[Arc<Handler<T>>], change: &Change<T>) {
    for handler in handlers {
        if catch_unwind(AssertUnwindSafe(|| handler(change))).is_err() {
            tracing::error!(object = std::any::type_name::<T>(), "a handler of changes panicked");
        }
    }
}
