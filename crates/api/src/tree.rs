//! A decoded object: a tree whose structs are indexed by the schema's field numbers.
//!
//! The tree is in *normal form*: a field is present exactly if upstream's encoder would write it.
//! So a zero value of a plain `omitempty` field is absent (`hostNetwork: false`, `labels: {}`),
//! while a pointer's zero is present (`replicas: 0`), and a plain struct field without `omitempty`
//! (`resources: {}`) may be absent in the tree and is written as `{}` by the encoder.

use std::collections::BTreeMap;

use compact_str::CompactString;

use crate::schema::{FieldNo, StructId};

/// A string of the tree; up to 24 bytes are held inline.
pub type Text = CompactString;

/// One value of a decoded object.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// An explicit `null`: inside values without a schema, in patches, and Go's zero time where a time is optional.
    Null,
    /// A boolean.
    Bool(bool),
    /// A 32 or 64 bit integer, or the number form of an int-or-string.
    Int(i64),
    /// A floating point number.
    Float(f64),
    /// A string; also quantities (canonical), times (RFC 3339, UTC), durations and base64 bytes (canonical).
    Str(Text),
    /// A list; its merge behaviour stands in the schema.
    List(Vec<Node>),
    /// A map from strings; also any JSON object without a schema.
    Map(Map),
    /// A struct of the schema.
    Struct(Box<Struct>),
    /// The JSON text of an embedded object (`runtime.RawExtension`) as it was sent, line breaks aside:
    /// Go keeps its bytes, so white space, the order of keys and the form of numbers count in comparisons.
    Raw(Text),
}

impl Node {
    /// The string, or "" for anything else.
    pub fn as_str(&self) -> &str {
        if let Node::Str(s) = self { s } else { "" }
    }
    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        if let Node::Int(i) = self { Some(*i) } else { None }
    }
    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Node::Bool(b) = self { Some(*b) } else { None }
    }
    /// The elements, or none for anything that is no list.
    pub fn as_list(&self) -> &[Node] {
        if let Node::List(l) = self { l } else { &[] }
    }
    /// The elements to change, if it is a list.
    pub fn as_list_mut(&mut self) -> Option<&mut Vec<Node>> {
        if let Node::List(l) = self { Some(l) } else { None }
    }
    /// The map, if it is one.
    pub fn as_map(&self) -> Option<&Map> {
        if let Node::Map(m) = self { Some(m) } else { None }
    }
    /// The map to change, if it is one.
    pub fn as_map_mut(&mut self) -> Option<&mut Map> {
        if let Node::Map(m) = self { Some(m) } else { None }
    }
    /// The struct, if it is one.
    pub fn as_struct(&self) -> Option<&Struct> {
        if let Node::Struct(s) = self { Some(s) } else { None }
    }
    /// The struct to change, if it is one.
    pub fn as_struct_mut(&mut self) -> Option<&mut Struct> {
        if let Node::Struct(s) = self { Some(s) } else { None }
    }
    /// Whether it is what Go calls the zero value of a plain (not pointer) field.
    pub fn is_zero(&self) -> bool {
        match self {
            Node::Null => true,
            Node::Bool(b) => !b,
            Node::Int(i) => *i == 0,
            Node::Float(f) => *f == 0.0,
            Node::Str(s) => s.is_empty(),
            Node::List(l) => l.is_empty(),
            Node::Map(m) => m.is_empty(),
            Node::Struct(s) => s.is_empty(),
            Node::Raw(_) => false,
        }
    }
    /// [`Struct::same_as_written`] for any value.
    pub fn same_as_written(&self, other: &Self) -> bool {
        match (self, other) {
            (Node::Struct(a), Node::Struct(b)) => a.same_as_written(b),
            (Node::List(a), Node::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same_as_written(b))
            }
            (Node::Map(a), Node::Map(b)) => a.agrees(b, Node::same_as_written),
            (a, b) => a == b,
        }
    }
}

impl From<&str> for Node {
    fn from(s: &str) -> Self {
        Node::Str(s.into())
    }
}
impl From<Text> for Node {
    fn from(s: Text) -> Self {
        Node::Str(s)
    }
}
impl From<String> for Node {
    fn from(s: String) -> Self {
        Node::Str(s.into())
    }
}
impl From<i64> for Node {
    fn from(i: i64) -> Self {
        Node::Int(i)
    }
}
impl From<bool> for Node {
    fn from(b: bool) -> Self {
        Node::Bool(b)
    }
}
impl From<Struct> for Node {
    fn from(s: Struct) -> Self {
        Node::Struct(Box::new(s))
    }
}
impl From<Map> for Node {
    fn from(m: Map) -> Self {
        Node::Map(m)
    }
}
impl From<Vec<Node>> for Node {
    fn from(l: Vec<Node>) -> Self {
        Node::List(l)
    }
}

/// A struct value: the fields that are present, in ascending field number, which is the order in
/// which upstream declares and encodes them.
#[derive(Debug, Clone)]
pub struct Struct {
    /// The struct's type in the schema.
    pub id: StructId,
    fields: Vec<(FieldNo, Node)>,
    /// The empty values that were written for absent fields: an empty list or map, a struct with nothing but such in
    /// it, or Go's zero time.
    emptied: Vec<(FieldNo, Node)>,
}

/// Equality as Go's semantic comparison sees it: an empty list or map equals an absent one.
impl PartialEq for Struct {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.fields == other.fields
    }
}

impl Struct {
    /// An empty struct of a type.
    pub fn new(id: StructId) -> Self {
        Self { id, fields: Vec::new(), emptied: Vec::new() }
    }
    /// The number of fields that are present.
    pub fn len(&self) -> usize {
        self.fields.len()
    }
    /// Whether no field is present.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
    /// The field, if present.
    pub fn get(&self, no: FieldNo) -> Option<&Node> {
        self.fields.binary_search_by_key(&no, |f| f.0).ok().map(|i| &self.fields[i].1)
    }
    /// The field to change, if present.
    pub fn get_mut(&mut self, no: FieldNo) -> Option<&mut Node> {
        match self.fields.binary_search_by_key(&no, |f| f.0) {
            Ok(i) => Some(&mut self.fields[i].1),
            Err(_) => None,
        }
    }
    /// Whether the field is present.
    pub fn has(&self, no: FieldNo) -> bool {
        self.get(no).is_some()
    }
    /// The field's string, "" if absent.
    pub fn str(&self, no: FieldNo) -> &str {
        self.get(no).map_or("", Node::as_str)
    }
    /// The field's integer, if present.
    pub fn int(&self, no: FieldNo) -> Option<i64> {
        self.get(no).and_then(Node::as_int)
    }
    /// The field's boolean, if present.
    pub fn bool(&self, no: FieldNo) -> Option<bool> {
        self.get(no).and_then(Node::as_bool)
    }
    /// The field's elements, none if absent.
    pub fn list(&self, no: FieldNo) -> &[Node] {
        self.get(no).map_or(&[], Node::as_list)
    }
    /// The field's map, if present.
    pub fn map(&self, no: FieldNo) -> Option<&Map> {
        self.get(no).and_then(Node::as_map)
    }
    /// The field's struct, if present.
    pub fn st(&self, no: FieldNo) -> Option<&Struct> {
        self.get(no).and_then(Node::as_struct)
    }
    /// The field's struct to change, if present.
    pub fn st_mut(&mut self, no: FieldNo) -> Option<&mut Struct> {
        self.get_mut(no).and_then(Node::as_struct_mut)
    }
    /// Sets a field; the caller keeps normal form (a zero of a plain field is removed, not set).
    pub fn set(&mut self, no: FieldNo, value: impl Into<Node>) {
        let value = value.into();
        match self.fields.binary_search_by_key(&no, |f| f.0) {
            Ok(i) => self.fields[i].1 = value,
            Err(i) => self.fields.insert(i, (no, value)),
        }
    }
    /// Appends a field whose number is above all present ones; for decoders that go in order.
    pub fn push(&mut self, no: FieldNo, value: Node) {
        if self.fields.last().is_none_or(|l| l.0 < no) {
            self.fields.push((no, value));
        } else {
            self.set(no, value);
        }
    }
    /// Notes an empty list or map that was written for an absent field, a struct with nothing but such
    /// in it, or Go's zero time: Go tells this from nothing where it prints a value, and in a few rules.
    pub fn note_empty(&mut self, no: FieldNo, value: Node) {
        let worth = match &value {
            Node::List(_) | Node::Map(_) => true,
            Node::Struct(s) => !s.emptied.is_empty(),
            Node::Str(s) => crate::time::is_zero(s),
            _ => false,
        };
        if worth {
            self.emptied.push((no, value));
        }
    }
    /// The empty list, map or struct that [`Struct::note_empty`] noted for an absent field.
    pub fn written_empty(&self, no: FieldNo) -> Option<&Node> {
        self.noted().find(|(n, value)| *n == no && !matches!(value, Node::Str(_))).map(|(_, value)| value)
    }
    /// Whether [`Struct::note_empty`] noted Go's zero time for an absent field.
    pub fn written_zero_time(&self, no: FieldNo) -> bool {
        self.noted().any(|(n, value)| n == no && matches!(value, Node::Str(_)))
    }
    /// The values that [`Struct::note_empty`] noted for fields that are still absent.
    pub fn noted(&self) -> impl Iterator<Item = (FieldNo, &Node)> {
        self.emptied.iter().filter(|(no, _)| !self.has(*no)).map(|(no, value)| (*no, value))
    }
    /// The fields that were written, in order, be it with an empty list, a zero time or the like.
    pub fn written(&self) -> Vec<FieldNo> {
        let mut all: Vec<FieldNo> = self.iter().chain(self.noted()).map(|(no, _)| no).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
    /// Whether nothing was written, not even an empty list or map.
    pub fn is_bare(&self) -> bool {
        self.fields.is_empty() && self.emptied.is_empty()
    }
    /// Equality as `reflect.DeepEqual` sees it: an empty list or map that was written and an absent one differ.
    pub fn same_as_written(&self, other: &Self) -> bool {
        let alike = |a: &[(FieldNo, Node)], b: &[(FieldNo, Node)]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && a.1.same_as_written(&b.1))
        };
        let all_in = |a: &Self, b: &Self| a.noted().all(|(no, _)| b.noted().any(|(n, _)| n == no));
        self.id == other.id
            && alike(&self.fields, &other.fields)
            && all_in(self, other)
            && all_in(other, self)
    }
    /// Takes a field out.
    pub fn remove(&mut self, no: FieldNo) -> Option<Node> {
        self.emptied.retain(|(n, _)| *n != no);
        let i = self.fields.binary_search_by_key(&no, |f| f.0).ok()?;
        Some(self.fields.remove(i).1)
    }
    /// The field, put in by `make` if it is absent. A struct that was noted as empty is put in itself, so that the
    /// notes in it are not lost.
    pub fn get_or_insert_with(&mut self, no: FieldNo, make: impl FnOnce() -> Node) -> &mut Node {
        let i = match self.fields.binary_search_by_key(&no, |f| f.0) {
            Ok(i) => i,
            Err(i) => {
                let noted = self.emptied.iter().position(|(n, v)| *n == no && v.as_struct().is_some());
                let value = noted.map_or_else(make, |at| self.emptied.swap_remove(at).1);
                self.fields.insert(i, (no, value));
                i
            }
        };
        &mut self.fields[i].1
    }
    /// The present fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (FieldNo, &Node)> {
        self.fields.iter().map(|(n, v)| (*n, v))
    }
    /// The present fields in order, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (FieldNo, &mut Node)> {
        self.fields.iter_mut().map(|(n, v)| (*n, v))
    }
    /// Keeps the fields for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(FieldNo, &mut Node) -> bool) {
        self.fields.retain_mut(|(n, v)| keep(*n, v));
    }
}

/// A map from strings. Sorted by key once [`Map::sort`] ran (every map that has a schema is, as
/// upstream writes them sorted); otherwise in the order of arrival.
#[derive(Debug, Clone, Default)]
pub struct Map {
    entries: Vec<(Text, Node)>,
    sorted: bool,
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        self.agrees(other, |a, b| a == b)
    }
}

impl Map {
    /// An empty, sorted map.
    pub fn new() -> Self {
        Self { entries: Vec::new(), sorted: true }
    }
    /// A map in the given order; call [`Map::sort`] on it if it has a schema. Keys must be distinct.
    pub fn from_entries(entries: Vec<(Text, Node)>) -> Self {
        let sorted = entries.windows(2).all(|w| w[0].0 < w[1].0);
        Self { entries, sorted }
    }
    /// Sorts by key.
    pub fn sort(&mut self) {
        if !self.sorted {
            self.entries.sort_by(|a, b| a.0.cmp(&b.0));
            self.sorted = true;
        }
    }
    /// The entries, sorted by key.
    pub fn by_key(&self) -> Vec<&(Text, Node)> {
        let mut all: Vec<&(Text, Node)> = self.entries.iter().collect();
        if !self.sorted {
            all.sort_by(|a, b| a.0.cmp(&b.0));
        }
        all
    }
    /// Like [`Map::by_key`], one by one; a map that is sorted already costs no more.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = &(Text, Node)> {
        let (in_place, sorted) =
            if self.sorted { (self.entries.as_slice(), Vec::new()) } else { (&[][..], self.by_key()) };
        in_place.iter().chain(sorted)
    }
    /// Whether both have the same keys, in whatever order, with values that are `alike`.
    pub fn agrees(&self, other: &Self, alike: impl Fn(&Node, &Node) -> bool) -> bool {
        fn pairs<'a>(
            a: impl Iterator<Item = &'a (Text, Node)> + Clone,
            b: impl Iterator<Item = &'a (Text, Node)> + Clone,
            alike: impl Fn(&Node, &Node) -> bool,
        ) -> Option<bool> {
            let same_keys = a.clone().zip(b.clone()).all(|(a, b)| a.0 == b.0);
            same_keys.then(|| a.zip(b).all(|(a, b)| alike(&a.1, &b.1)))
        }
        if self.len() != other.len() {
            return false;
        }
        if let Some(agree) = pairs(self.entries.iter(), other.entries.iter(), &alike) {
            return agree;
        }
        if self.sorted && other.sorted {
            return false;
        }
        pairs(self.by_key().into_iter(), other.by_key().into_iter(), alike).unwrap_or(false)
    }
    /// The entries to change one by one, each at the cost of a search only: taking one out of a map itself, or
    /// putting one in, moves those behind it. [`Map::from_tree`] makes a map of them again.
    pub fn into_tree(self) -> BTreeMap<Text, Node> {
        self.entries.into_iter().collect()
    }
    /// A map of sorted entries.
    pub fn from_tree(entries: BTreeMap<Text, Node>) -> Self {
        Self { entries: entries.into_iter().collect(), sorted: true }
    }
    /// Adds an entry at the end, be its key there already or not; says whether the map is still sorted and its
    /// keys distinct. If not, [`Map::settle`] must follow.
    pub(crate) fn append(&mut self, key: Text, value: Node) -> bool {
        self.sorted &= self.entries.last().is_none_or(|last| last.0 < key);
        self.entries.push((key, value));
        self.sorted
    }
    /// Sorts the appended entries by key, and keeps the last of entries with the same key.
    pub(crate) fn settle(&mut self) {
        if self.sorted {
            return;
        }
        self.sort();
        self.entries.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
    }
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    fn find(&self, key: &str) -> Result<usize, usize> {
        if self.sorted {
            self.entries.binary_search_by(|e| e.0.as_str().cmp(key))
        } else {
            self.entries.iter().position(|e| e.0 == key).ok_or(self.entries.len())
        }
    }
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.find(key).ok().map(|i| &self.entries[i].1)
    }
    /// The value of a key, to change.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.find(key).ok().map(|i| &mut self.entries[i].1)
    }
    /// The string at a key, "" if absent.
    pub fn str(&self, key: &str) -> &str {
        self.get(key).map_or("", Node::as_str)
    }
    /// Puts a value at a key and returns the former one.
    pub fn insert(&mut self, key: impl Into<Text>, value: impl Into<Node>) -> Option<Node> {
        let (key, value) = (key.into(), value.into());
        match self.find(&key) {
            Ok(i) => Some(std::mem::replace(&mut self.entries[i].1, value)),
            Err(i) => {
                self.entries.insert(i, (key, value));
                None
            }
        }
    }
    /// Takes a key out.
    pub fn remove(&mut self, key: &str) -> Option<Node> {
        self.find(key).ok().map(|i| self.entries.remove(i).1)
    }
    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Text, &Node)> {
        self.entries.iter().map(|(k, v)| (k, v))
    }
    /// The entries in order, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Text, &mut Node)> {
        self.entries.iter_mut().map(|(k, v)| (&*k, v))
    }
    /// Keeps the entries for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Node) -> bool) {
        self.entries.retain_mut(|(k, v)| keep(k, v));
    }
    /// The entries, owned.
    pub fn into_entries(self) -> Vec<(Text, Node)> {
        self.entries
    }
}
