//! The objects of a resource at one revision: immutable, shared, ordered.
//!
//! The order is that of upstream's keys, `namespace/name` byte by byte: `a-b/x` comes before `a/x`.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use api::Object;
use api::selector::marks::{Marks, Wanted};
use imbl::OrdMap;
use imbl::ordmap::RangedIter;
use imbl::shared_ptr::DefaultSharedPtr;

use crate::store::{Event, Scope, field};

/// The key `namespace/name` of an object. It does not borrow from the object, because the inner nodes of the tree keep
/// keys of objects that are long replaced.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(Arc<str>);

impl Key {
    fn of(object: &Object) -> Self {
        Self([object.data.namespace.as_str(), "/", object.data.name.as_str()].concat().into())
    }
}

/// A key to search for.
#[derive(Debug, Clone, Copy)]
struct KeyRef<'a> {
    namespace: &'a str,
    slash: u8,
    name: &'a str,
}

impl<'a> KeyRef<'a> {
    fn new(namespace: &'a str, name: &'a str) -> Self {
        Self { namespace, slash: b'/', name }
    }
    /// The place after every key of a namespace and before all others.
    fn end(namespace: &'a str) -> Self {
        Self { namespace, slash: b'/' + 1, name: "" }
    }
    fn of(object: &'a Object) -> Self {
        Self::new(&object.data.namespace, &object.data.name)
    }
    fn bytes(self) -> impl Iterator<Item = u8> {
        self.namespace.bytes().chain([self.slash]).chain(self.name.bytes())
    }
}

impl equivalent::Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        equivalent::Comparable::compare(self, key) == Ordering::Equal
    }
}

impl equivalent::Comparable<Key> for KeyRef<'_> {
    fn compare(&self, key: &Key) -> Ordering {
        let (namespace, key) = (self.namespace.as_bytes(), key.0.as_bytes());
        let common = namespace.len().min(key.len());
        namespace[..common].cmp(&key[..common]).then_with(|| match key.get(namespace.len()) {
            None => Ordering::Greater,
            Some(c) => self.slash.cmp(c).then_with(|| self.name.as_bytes().cmp(&key[namespace.len() + 1..])),
        })
    }
}

/// An object in the tree, with the marks by which a search passes over it unseen.
#[derive(Debug, Clone)]
struct Entry {
    object: Arc<Object>,
    marks: Marks,
}

impl Entry {
    fn new(object: Arc<Object>) -> Self {
        Self { marks: Marks::of(&object.data.labels), object }
    }
}

type Objects = OrdMap<Key, Entry>;

/// The objects of one value of an indexed field; too few to be searched by marks.
type Indexed = OrdMap<Key, Arc<Object>>;

/// A large tree is built in these passes, each of every other entry. To insert them one after the other would leave
/// every leaf half empty, because a full leaf is split in the middle and no later key comes to its first half. The
/// first pass makes such leaves, and the second fills them.
const PASSES: [usize; 2] = [0, 1];

/// An index by the value of one field.
#[derive(Debug, Clone)]
struct FieldIndex {
    at: usize,
    values: OrdMap<Arc<str>, Indexed>,
}

/// The state of a resource. A clone shares everything until one of the two changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live {
    objects: Objects,
    indexes: Vec<FieldIndex>,
    /// The revision of the last change.
    pub(crate) last: u64,
}

impl Live {
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.objects.get(&KeyRef::new(namespace, name)).map(|e| &e.object)
    }

    /// The number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The objects after a key, or all of them, in order.
    pub(crate) fn after(&self, key: Option<Key>) -> impl Iterator<Item = (&Key, &Arc<Object>)> {
        let start = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.objects.range((start, Bound::Unbounded)).map(|(key, entry)| (key, &entry.object))
    }

    /// The positions of the indexed fields.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = usize> {
        self.indexes.iter().map(|i| i.at)
    }

    /// Builds the indexes anew for these fields.
    pub(crate) fn index_by(&mut self, fields: &[usize]) {
        let index = |&at: &usize| {
            let mut values = HashMap::<&str, (usize, Indexed)>::new();
            for pass in PASSES {
                for (key, Entry { object, .. }) in &self.objects {
                    let (count, objects) = values.entry(field(object, at)).or_default();
                    if *count % PASSES.len() == pass {
                        objects.insert(key.clone(), object.clone());
                    }
                    *count += 1;
                }
                for (count, _) in values.values_mut() {
                    *count = 0;
                }
            }
            let named = |(value, (_, objects)): (&str, (usize, Indexed))| (Arc::<str>::from(value), objects);
            FieldIndex { at, values: values.into_iter().map(named).collect() }
        };
        self.indexes = fields.iter().map(index).collect();
    }

    /// A state of these objects, which is not indexed.
    pub(crate) fn of(mut all: Vec<Arc<Object>>) -> Self {
        all.sort_by(|a, b| KeyRef::of(a).bytes().cmp(KeyRef::of(b).bytes()));
        let mut objects = Objects::new();
        for pass in PASSES {
            for object in all.iter().skip(pass).step_by(PASSES.len()) {
                objects.insert(Key::of(object), Entry::new(object.clone()));
            }
        }
        Self { objects, indexes: Vec::new(), last: all.iter().map(|o| o.revision).max().unwrap_or(0) }
    }

    /// Inserts or replaces an object.
    pub(crate) fn put(&mut self, object: Arc<Object>) {
        self.last = self.last.max(object.revision);
        let entry = Entry::new(object);
        let at = KeyRef::of(&entry.object);
        let (key, previous) = if let Some((key, slot)) = self.objects.get_key_value_mut(&at) {
            (key.clone(), Some(std::mem::replace(slot, entry.clone())))
        } else {
            let key = Key::of(&entry.object);
            self.objects.insert(key.clone(), entry.clone());
            (key, None)
        };
        for index in &mut self.indexes {
            let value = field(&entry.object, index.at);
            if let Some(previous) = &previous
                && field(&previous.object, index.at) != value
            {
                index.remove(&previous.object);
            }
            if let Some(objects) = index.values.get_mut(value) {
                objects.insert(key.clone(), entry.object.clone());
            } else {
                let one = OrdMap::unit(key.clone(), entry.object.clone());
                index.values.insert(value.into(), one);
            }
        }
    }

    /// Removes an object, at a revision.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str, revision: u64) -> Option<Arc<Object>> {
        let object = self.objects.remove(&KeyRef::new(namespace, name))?.object;
        self.last = self.last.max(revision);
        for index in &mut self.indexes {
            index.remove(&object);
        }
        Some(object)
    }

    /// Reverts an event.
    pub(crate) fn undo(&mut self, event: &Event) {
        if let Some(previous) = &event.previous {
            self.put(previous.clone());
        } else {
            let data = &event.object.data;
            self.remove(&data.namespace, &data.name, 0);
        }
    }
}

impl FieldIndex {
    fn remove(&mut self, object: &Object) {
        let value = field(object, self.at);
        if let Some(objects) = self.values.get_mut(value) {
            objects.remove(&KeyRef::of(object));
            if objects.is_empty() {
                self.values.remove(value);
            }
        }
    }
}

/// The objects of a resource at a revision; cheap to take and to clone, and never changes.
#[derive(Debug, Clone)]
pub struct Snapshot {
    live: Arc<Live>,
    revision: u64,
}

impl Snapshot {
    pub(crate) fn new(live: Arc<Live>, revision: u64) -> Self {
        Self { live, revision }
    }

    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// The revision of the store that the snapshot shows.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision of the last change of one of the objects, as far as it is known.
    pub fn changed(&self) -> u64 {
        self.live.last
    }

    /// The object of a name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.live.get(namespace, name)
    }

    /// The objects of a scope in the order of their keys, only those after a namespace and name if given.
    pub fn scan<'a>(&'a self, scope: &'a Scope, after: Option<(&str, &str)>) -> Scan<'a> {
        let index = scope.field.as_ref().and_then(|(at, value)| {
            let index = self.live.indexes.iter().find(|i| i.at == *at)?;
            Some(index.values.get(value.as_str()))
        });
        // The objects of a resource are in namespaces or of the cluster; the latter's keys have nothing before the
        // slash.
        let of_cluster = self.live.objects.get_min().is_some_and(|(key, _)| key.0.starts_with('/'));
        let one_namespace = of_cluster || !scope.namespace.is_empty();
        let first = KeyRef::new(&scope.namespace, if one_namespace { &scope.name } else { "" });
        let start = match after.map(|(namespace, name)| KeyRef::new(namespace, name)) {
            Some(after) if after.bytes().ge(first.bytes()) => Bound::Excluded(after),
            _ => Bound::Included(first),
        };
        let end = if !one_namespace {
            Bound::Unbounded
        } else if scope.name.is_empty() {
            Bound::Excluded(KeyRef::end(&scope.namespace))
        } else {
            Bound::Included(first)
        };
        // No object follows the end: a range must not begin there.
        let empty = after.is_some_and(|(namespace, name)| {
            let after = KeyRef::new(namespace, name).bytes();
            match end {
                Bound::Unbounded => false,
                Bound::Included(end) | Bound::Excluded(end) => after.ge(end.bytes()),
            }
        });
        let range = match index {
            _ if empty => Range::Empty,
            None => Range::All(self.live.objects.range((start, end))),
            Some(None) => Range::Empty,
            Some(Some(indexed)) => Range::Indexed(indexed.range((start, end))),
        };
        Scan {
            range,
            scope,
            named: !one_namespace && !scope.name.is_empty(),
            by_field: index.is_none() && scope.field.is_some(),
            wanted: Wanted::default(),
        }
    }

    /// The number of objects that [`Snapshot::scan`] would yield.
    pub fn count(&self, scope: &Scope, after: Option<(&str, &str)>) -> usize {
        if *scope == Scope::default() && after.is_none() {
            return self.live.objects.len();
        }
        self.scan(scope, after).count()
    }
}

/// The objects that a scan goes through.
enum Range<'a> {
    All(RangedIter<'a, Key, Entry, DefaultSharedPtr>),
    Indexed(RangedIter<'a, Key, Arc<Object>, DefaultSharedPtr>),
    Empty,
}

/// Iterates over the objects of a scope.
pub struct Scan<'a> {
    range: Range<'a>,
    scope: &'a Scope,
    /// Whether the name is to be checked.
    named: bool,
    /// Whether the field is to be checked.
    by_field: bool,
    wanted: Wanted,
}

impl Scan<'_> {
    /// Passes over most of the objects that lack these marks, and over none that have them.
    #[must_use]
    pub fn marked(mut self, wanted: Wanted) -> Self {
        self.wanted = wanted;
        self
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = &'a Arc<Object>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let object = match &mut self.range {
                Range::All(range) => {
                    let (_, Entry { object, marks }) = range.next()?;
                    if !self.wanted.admits(*marks) {
                        continue;
                    }
                    object
                }
                Range::Indexed(range) => range.next()?.1,
                Range::Empty => return None,
            };
            let checked = (!self.named || object.data.name == self.scope.name)
                && (!self.by_field || self.scope.matches(object));
            if checked {
                return Some(object);
            }
        }
    }
}
