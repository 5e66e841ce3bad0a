//! Reading and changing trees by JSON name. A rule is written once for a type and its internal
//! counterpart, and for every version that has the field.

use crate::schema::{FieldNo, Schema, StructId, Type, TypeId};
use crate::tree::{Map, Node, Struct, Text};

/// A struct to read; an absent one reads as Go's zero value.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The schema that the struct follows.
    pub schema: &'a Schema,
    st: Option<&'a Struct>,
    /// The type of the struct; `None` if it has no type of the schema.
    id: Option<StructId>,
}

/// The element type of a list or map, or the struct itself.
fn element(schema: &Schema, ty: TypeId) -> Option<StructId> {
    match schema.ty(ty) {
        Type::Struct(id) => Some(*id),
        Type::Or { of, .. } => Some(*of),
        Type::List { of, .. } | Type::Map { of, .. } => element(schema, *of),
        _ => None,
    }
}

/// The names of so few fields are compared sooner than one is looked up.
const FEW: usize = 2;

fn number(schema: &Schema, id: StructId, name: &str) -> Option<FieldNo> {
    let no = schema.st(id).field(name);
    debug_assert!(no.is_some(), "{} has no field {name}", schema.st(id).name);
    no
}

impl<'a> View<'a> {
    /// A view of a struct.
    pub fn new(schema: &'a Schema, st: &'a Struct) -> Self {
        Self { schema, st: Some(st), id: Some(st.id) }
    }
    /// The view of a struct that is absent.
    pub fn empty(schema: &'a Schema) -> Self {
        Self { schema, st: None, id: None }
    }
    /// The type of the struct, if it is known.
    pub fn id(&self) -> Option<StructId> {
        self.id
    }
    /// The struct, if present.
    pub fn raw(&self) -> Option<&'a Struct> {
        self.st
    }
    /// Whether the type has a field of this name.
    pub fn knows(&self, name: &str) -> bool {
        self.st.is_some_and(|s| self.schema.st(s.id).field(name).is_some())
    }
    /// A field's value, if present.
    pub fn get(&self, name: &str) -> Option<&'a Node> {
        let st = self.st?;
        if st.len() <= FEW {
            let ty = self.schema.st(st.id);
            debug_assert!(ty.field(name).is_some(), "{} has no field {name}", ty.name);
            return st.iter().find(|(no, _)| ty.at(*no).json == name).map(|(_, node)| node);
        }
        st.get(number(self.schema, st.id, name)?)
    }
    /// The fields that are present, by name.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, &'a Node)> + use<'a> {
        let schema = self.schema;
        self.st.into_iter().flat_map(move |st| {
            let ty = schema.st(st.id);
            st.iter().map(move |(no, node)| (ty.at(no).json.as_str(), node))
        })
    }
    /// Whether the field is present.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
    fn noted(&self, name: &str) -> Option<&'a Node> {
        let st = self.st?;
        st.written_empty(number(self.schema, st.id, name)?)
    }
    /// Whether an absent list or map was written as an empty one.
    pub fn written_empty(&self, name: &str) -> bool {
        self.noted(name).is_some()
    }
    /// The value that was written for a field, even an empty list or map.
    pub fn as_written(&self, name: &str) -> Option<&'a Node> {
        self.get(name).or_else(|| self.noted(name))
    }
    /// Whether an absent time was written as Go's zero time.
    pub fn zero_time(&self, name: &str) -> bool {
        self.st.is_some_and(|s| number(self.schema, s.id, name).is_some_and(|no| s.written_zero_time(no)))
    }
    /// A string, "" if absent.
    pub fn str(&self, name: &str) -> &'a str {
        self.get(name).map_or("", Node::as_str)
    }
    /// A string, if present.
    pub fn opt_str(&self, name: &str) -> Option<&'a str> {
        self.get(name).map(Node::as_str)
    }
    /// An integer, 0 if absent.
    pub fn int(&self, name: &str) -> i64 {
        self.opt_int(name).unwrap_or(0)
    }
    /// An integer, if present.
    pub fn opt_int(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(Node::as_int)
    }
    /// A boolean, false if absent.
    pub fn bool(&self, name: &str) -> bool {
        self.opt_bool(name).unwrap_or(false)
    }
    /// A boolean, if present.
    pub fn opt_bool(&self, name: &str) -> Option<bool> {
        self.get(name).and_then(Node::as_bool)
    }
    /// A struct; absent, it reads as its zero value.
    pub fn st(&self, name: &str) -> View<'a> {
        match self.as_written(name).and_then(Node::as_struct) {
            Some(st) => View::new(self.schema, st),
            None => View {
                schema: self.schema,
                st: None,
                id: self.type_of(name).and_then(|ty| element(self.schema, ty)),
            },
        }
    }
    /// A struct, if present.
    pub fn opt(&self, name: &str) -> Option<View<'a>> {
        self.get(name).and_then(Node::as_struct).map(|s| View::new(self.schema, s))
    }
    /// The elements of a list, none if absent.
    pub fn list(&self, name: &str) -> &'a [Node] {
        self.get(name).map_or(&[], Node::as_list)
    }
    /// The structs of a list.
    pub fn items(
        &self,
        name: &str,
    ) -> impl DoubleEndedIterator<Item = View<'a>> + ExactSizeIterator + use<'a> {
        let schema = self.schema;
        self.list(name)
            .iter()
            .map(move |n| n.as_struct().map_or_else(|| View::empty(schema), |s| View::new(schema, s)))
    }
    /// The strings of a list.
    pub fn strs(&self, name: &str) -> impl DoubleEndedIterator<Item = &'a str> + ExactSizeIterator + use<'a> {
        self.list(name).iter().map(Node::as_str)
    }
    /// A map, if present.
    pub fn map(&self, name: &str) -> Option<&'a Map> {
        self.get(name).and_then(Node::as_map)
    }
    /// The entries of a map.
    pub fn entries(&self, name: &str) -> impl Iterator<Item = (&'a str, &'a Node)> + use<'a> {
        self.map(name).into_iter().flat_map(|m| m.iter().map(|(k, v)| (k.as_str(), v)))
    }
    /// The entries of a map of strings.
    pub fn texts(&self, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.entries(name).map(|(k, v)| (k, v.as_str()))
    }
    /// The number of elements of a list or map.
    pub fn len(&self, name: &str) -> usize {
        match self.get(name) {
            Some(Node::List(l)) => l.len(),
            Some(Node::Map(m)) => m.len(),
            _ => 0,
        }
    }
    /// Whether no field is present.
    pub fn is_empty(&self) -> bool {
        self.st.is_none_or(Struct::is_empty)
    }
    /// The struct of an element of a list or map.
    pub fn of(&self, node: &'a Node) -> View<'a> {
        node.as_struct().map_or_else(|| View::empty(self.schema), |s| View::new(self.schema, s))
    }
    /// The type of a field, whether present or not.
    pub fn type_of(&self, name: &str) -> Option<TypeId> {
        let id = self.id?;
        Some(self.schema.st(id).at(number(self.schema, id, name)?).ty)
    }
}

/// Whether two optional values are equal as Go's semantic comparison sees it: absent and empty are one.
pub fn same(a: Option<&Node>, b: Option<&Node>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b,
        (None, None) => true,
        (Some(Node::List(l)), None) | (None, Some(Node::List(l))) => l.is_empty(),
        (Some(Node::Map(m)), None) | (None, Some(Node::Map(m))) => m.is_empty(),
        _ => false,
    }
}

/// Whether two optional values are equal as `reflect.DeepEqual` sees it: absent and empty differ.
pub fn same_as_written(a: Option<&Node>, b: Option<&Node>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.same_as_written(b),
        (None, None) => true,
        _ => false,
    }
}

/// A struct to change.
pub struct Edit<'a> {
    /// The schema that the struct follows.
    pub schema: &'a Schema,
    /// The struct.
    pub st: &'a mut Struct,
}

impl<'a> Edit<'a> {
    /// Makes an editor of a struct.
    pub fn new(schema: &'a Schema, st: &'a mut Struct) -> Self {
        Self { schema, st }
    }
    /// The struct as a view, to read.
    pub fn view(&self) -> View<'_> {
        View::new(self.schema, self.st)
    }
    fn no(&self, name: &str) -> Option<FieldNo> {
        number(self.schema, self.st.id, name)
    }
    /// Sets a field.
    pub fn set(&mut self, name: &str, value: impl Into<Node>) {
        if let Some(no) = self.no(name) {
            self.st.set(no, value);
        }
    }
    /// Sets a field unless it is present.
    pub fn default(&mut self, name: &str, value: impl Into<Node>) {
        if let Some(no) = self.no(name).filter(|no| !self.st.has(*no)) {
            self.st.set(no, value);
        }
    }
    /// Sets a string unless it is present and not empty.
    pub fn default_str(&mut self, name: &str, value: &str) {
        if let Some(no) = self.no(name).filter(|no| self.st.str(*no).is_empty()) {
            self.st.set(no, value);
        }
    }
    /// Takes a field out.
    pub fn remove(&mut self, name: &str) -> Option<Node> {
        let no = self.no(name)?;
        self.st.remove(no)
    }
    /// Sets a field to a value, or takes it out.
    pub fn put(&mut self, name: &str, value: Option<Node>) {
        match value {
            Some(v) => self.set(name, v),
            None => {
                self.remove(name);
            }
        }
    }
    /// Makes a field what it is in another struct of the same type.
    pub fn copy(&mut self, name: &str, from: &Struct) {
        if let Some(no) = self.no(name) {
            match from.get(no) {
                Some(v) => self.st.set(no, v.clone()),
                None => {
                    self.st.remove(no);
                }
            }
        }
    }
    /// A value to change, if present.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        let no = self.no(name)?;
        self.st.get_mut(no)
    }
    /// A struct, if present.
    pub fn at(&mut self, name: &str) -> Option<Edit<'_>> {
        let no = self.no(name)?;
        let schema = self.schema;
        self.st.st_mut(no).map(|st| Edit { schema, st })
    }
    /// A struct, made if absent.
    pub fn make(&mut self, name: &str) -> Option<Edit<'_>> {
        let no = self.no(name)?;
        let schema = self.schema;
        let id = element(schema, schema.st(self.st.id).at(no).ty)?;
        let node = self.st.get_or_insert_with(no, || Struct::new(id).into());
        node.as_struct_mut().map(|st| Edit { schema, st })
    }
    /// A new struct of the type of a field, or of its elements.
    pub fn fresh(&self, name: &str) -> Option<Struct> {
        let no = self.no(name)?;
        element(self.schema, self.schema.st(self.st.id).at(no).ty).map(Struct::new)
    }
    /// The structs of a list.
    pub fn items(&mut self, name: &str) -> impl Iterator<Item = Edit<'_>> {
        let schema = self.schema;
        let list: &mut [Node] = match self.get_mut(name) {
            Some(Node::List(l)) => l,
            _ => &mut [],
        };
        list.iter_mut().filter_map(Node::as_struct_mut).map(move |st| Edit { schema, st })
    }
    /// Makes an absent map print as an empty one.
    pub fn write_empty_map(&mut self, name: &str) {
        if let Some(no) = self.no(name) {
            self.st.note_empty(no, Node::Map(Map::new()));
        }
    }
    /// A map of strings, made if absent.
    pub fn make_map(&mut self, name: &str) -> Option<&mut Map> {
        let no = self.no(name)?;
        self.st.get_or_insert_with(no, || Map::new().into()).as_map_mut()
    }
}

/// A list of strings.
pub fn strings<'a>(of: impl IntoIterator<Item = &'a str>) -> Node {
    Node::List(of.into_iter().map(Node::from).collect())
}

/// A map of strings.
pub fn text_map<'a>(of: impl IntoIterator<Item = (&'a str, &'a str)>) -> Node {
    let mut m = Map::from_entries(of.into_iter().map(|(k, v)| (Text::from(k), Node::from(v))).collect());
    m.sort();
    Node::Map(m)
}
