//! Values as server-side apply sees them: parts of typed trees, with the absent fields that the encoder writes
//! nevertheless, and values without a schema; and the schema of each.

use std::cmp::Ordering;

use super::set::Element;
use crate::codec::json;
use crate::schema::{AnyKind, Field, FieldNo, ListKind, Mark, Schema, StructId, StructType, Type, TypeId};
use crate::structural::{Additional, Cursor, Kind, ListType, PartId, Structural};
use crate::tree::{Node, Struct, Text};

static NULL: Node = Node::Null;
static FALSE: Node = Node::Bool(false);
static ZERO: Node = Node::Int(0);
static ZERO_FLOAT: Node = Node::Float(0.0);
static EMPTY: Node = Node::Str(Text::const_new(""));
static ZERO_QUANTITY: Node = Node::Str(Text::const_new("0"));
static ZERO_DURATION: Node = Node::Str(Text::const_new("0s"));

/// Upstream's order of values: numbers, strings, booleans, lists, maps, null.
pub(super) fn order(a: &Node, b: &Node) -> Ordering {
    fn rank(n: &Node) -> u8 {
        match n {
            Node::Int(_) | Node::Float(_) => 0,
            Node::Str(_) => 1,
            Node::Bool(_) => 2,
            Node::List(_) => 3,
            Node::Map(_) | Node::Struct(_) | Node::Raw(_) => 4,
            Node::Null => 5,
        }
    }
    match (a, b) {
        (Node::Int(a), Node::Int(b)) => a.cmp(b),
        (Node::Float(a), Node::Float(b)) => a.total_cmp(b),
        (Node::Int(a), Node::Float(b)) => (*a as f64).total_cmp(b),
        (Node::Float(a), Node::Int(b)) => a.total_cmp(&(*b as f64)),
        (Node::Str(a), Node::Str(b)) => a.cmp(b),
        (Node::Bool(a), Node::Bool(b)) => a.cmp(b),
        (Node::List(a), Node::List(b)) => a
            .iter()
            .zip(b)
            .map(|(x, y)| order(x, y))
            .find(|o| o.is_ne())
            .unwrap_or_else(|| a.len().cmp(&b.len())),
        (Node::Map(a), Node::Map(b)) => a
            .sorted()
            .zip(b.sorted())
            .map(|(x, y)| x.0.cmp(&y.0).then_with(|| order(&x.1, &y.1)))
            .find(|o| o.is_ne())
            .unwrap_or_else(|| a.len().cmp(&b.len())),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Equality in which an integer equals the same number with a point, and embedded objects are compared by the values of
/// their texts.
pub(super) fn same(a: &Node, b: &Node) -> bool {
    match (a, b) {
        (Node::Raw(a), Node::Raw(b)) => {
            let value = |text: &Text| json::decode_any(text.as_bytes());
            a == b || matches!((value(a), value(b)), (Ok(a), Ok(b)) if same(&a, &b))
        }
        (Node::Int(_), Node::Float(_)) | (Node::Float(_), Node::Int(_)) => order(a, b).is_eq(),
        (Node::List(a), Node::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same(x, y)),
        (Node::Map(a), Node::Map(b)) => a.agrees(b, same),
        _ => a == b,
    }
}

/// The type of a scalar, as far as apply checks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Number,
    Text,
    Bool,
    Any,
}

/// The schema of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape<'s> {
    Scalar(Scalar),
    List {
        of: Item<'s>,
        kind: Merging<'s>,
    },
    Map {
        of: TypeId,
        atomic: bool,
    },
    Struct {
        id: StructId,
        atomic: bool,
    },
    /// An object that a definition describes.
    Object {
        of: &'s Structural,
        id: PartId,
        /// The root struct, if it is the whole object.
        root: Option<StructId>,
    },
    /// No schema: maps merge, any other value is taken as a whole.
    Deduced,
    /// No schema, and the value is taken as a whole.
    Opaque,
}

/// The type of a list's elements.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'s> {
    /// A type of the schema.
    Type(TypeId),
    /// A part of a definition's schema.
    Part(&'s Structural, PartId),
    /// Anything.
    Any,
}

impl<'s> Item<'s> {
    pub(super) fn shape(self, schema: &'s Schema) -> Shape<'s> {
        match self {
            Self::Type(ty) => Shape::new(schema, ty, None),
            Self::Part(of, id) => Shape::part(of, id),
            Self::Any => Shape::Deduced,
        }
    }
}

/// The way in which a list merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merging<'s> {
    /// The list is one value.
    Atomic,
    /// The list is a set of scalars.
    Set,
    /// The list is a map by these fields of its structs.
    Fields(&'s [FieldNo]),
    /// The list is a map by these names.
    Names(&'s [Text]),
}

impl<'s> Merging<'s> {
    fn of(kind: &'s ListKind) -> Self {
        match kind {
            ListKind::Atomic => Self::Atomic,
            ListKind::Set => Self::Set,
            ListKind::Map(keys) => Self::Fields(keys),
        }
    }
}

impl<'s> Shape<'s> {
    /// The shape of a type, at a field that may be marked.
    pub(super) fn new(schema: &'s Schema, ty: TypeId, mark: Option<Mark>) -> Self {
        let atomic = |own: bool| match mark {
            Some(Mark::Atomic) => true,
            Some(Mark::Granular) => false,
            None => own,
        };
        match schema.ty(ty) {
            Type::Bool => Self::Scalar(Scalar::Bool),
            Type::Int32 | Type::Int64 | Type::Float64 => Self::Scalar(Scalar::Number),
            Type::String => Self::Scalar(Scalar::Text),
            Type::Bytes
            | Type::Quantity
            | Type::IntOrString
            | Type::Time
            | Type::MicroTime
            | Type::Duration => Self::Scalar(Scalar::Any),
            Type::Any(AnyKind::RawExtension) => Self::Opaque,
            Type::Any(_) | Type::Or { .. } => Self::Deduced,
            Type::List { of, .. } if mark == Some(Mark::Atomic) => {
                Self::List { of: Item::Type(*of), kind: Merging::Atomic }
            }
            Type::List { of, kind } => Self::List { of: Item::Type(*of), kind: Merging::of(kind) },
            Type::Map { of, atomic: own } => Self::Map { of: *of, atomic: atomic(*own) },
            Type::Struct(id) => Self::Struct { id: *id, atomic: atomic(schema.st(*id).atomic) },
        }
    }
    /// The shape of a field.
    pub(super) fn field(schema: &'s Schema, field: &Field) -> Self {
        Self::new(schema, field.ty, field.mark)
    }
    /// The shape of a whole object.
    pub(super) fn root(schema: &'s Schema, id: StructId) -> Self {
        match &schema.st(id).rest {
            Some(rest) => Self::Object { of: &rest.values, id: rest.values.root(), root: Some(id) },
            None => Self::Struct { id, atomic: false },
        }
    }
    /// The shape of a part of a definition's schema.
    fn part(of: &'s Structural, id: PartId) -> Self {
        let part = of.part(id);
        match part.kind {
            Kind::Object => Self::Object { of, id, root: None },
            Kind::Array => Self::List {
                of: part.items.map_or(Item::Any, |id| Item::Part(of, id)),
                kind: match part.list {
                    ListType::Atomic => Merging::Atomic,
                    ListType::Set => Merging::Set,
                    ListType::Map => Merging::Names(part.keys()),
                },
            },
            Kind::String => Self::Scalar(Scalar::Text),
            Kind::Integer | Kind::Number => Self::Scalar(Scalar::Number),
            Kind::Boolean => Self::Scalar(Scalar::Bool),
            Kind::IntOrString => Self::Scalar(Scalar::Any),
            Kind::Any => Self::Deduced,
        }
    }
    /// Whether a list or map is one value.
    pub(super) fn is_atomic(self) -> bool {
        match self {
            Self::List { kind, .. } => kind == Merging::Atomic,
            Self::Map { atomic, .. } | Self::Struct { atomic, .. } => atomic,
            Self::Object { of, id, .. } => of.part(id).atomic,
            Self::Scalar(_) | Self::Deduced | Self::Opaque => false,
        }
    }
    /// Whether a struct or a definition names a field; entries of maps are not named.
    pub(super) fn names(self, schema: &Schema, name: &str) -> bool {
        match self {
            Self::Struct { id, .. } => schema.st(id).field(name).is_some(),
            Self::Object { of, id, root } => {
                let is_meta = root.is_some_and(|id| !name.is_empty() && schema.st(id).field(name).is_some());
                let part = of.part(id);
                let is_embedded = part.embedded && matches!(name, "kind" | "apiVersion" | "metadata");
                is_meta || is_embedded || part.property(name).is_some()
            }
            _ => false,
        }
    }
    /// The shape of a field that every object has.
    fn embedded(schema: &'s Schema, name: &str) -> Self {
        match name {
            "metadata" => match schema.named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") {
                Some(id) => Self::Struct { id, atomic: false },
                None => Self::Deduced,
            },
            _ => Self::Scalar(Scalar::Text),
        }
    }
    /// The shape of the part to which a step leads.
    pub(super) fn below(self, schema: &'s Schema, element: &Element) -> Self {
        match (self, element) {
            (_, Element::Field(name)) => Below::new(schema, self).field(name).0,
            (Self::List { of, .. }, Element::Key(_) | Element::Value(_)) => of.shape(schema),
            _ => Self::Opaque,
        }
    }
}

/// How a schema knows an entry of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knows {
    /// It names the entry.
    Named,
    /// Entries may have any name.
    Allowed,
    /// There may be no such entry.
    Unknown,
}

/// The shapes of the entries of a map, for which is asked one after the other, best in the order of their names.
pub(super) struct Below<'s> {
    schema: &'s Schema,
    shape: Shape<'s>,
    properties: Option<Cursor<'s>>,
}

impl<'s> Below<'s> {
    pub(super) fn new(schema: &'s Schema, shape: Shape<'s>) -> Self {
        let properties = match shape {
            Shape::Object { of, id, .. } => Some(of.part(id).cursor()),
            _ => None,
        };
        Self { schema, shape, properties }
    }
    /// The shape of an entry, and how it is known.
    pub(super) fn field(&mut self, name: &str) -> (Shape<'s>, Knows) {
        let schema = self.schema;
        match self.shape {
            Shape::Struct { id, .. } => {
                let st = schema.st(id);
                st.field(name).map_or((Shape::Opaque, Knows::Unknown), |no| {
                    (Shape::field(schema, st.at(no)), Knows::Named)
                })
            }
            Shape::Map { of, .. } => (Shape::new(schema, of, None), Knows::Allowed),
            Shape::Object { of, id, root } => {
                if let Some(st) = root.map(|id| schema.st(id))
                    && let Some(no) = st.field(name).filter(|_| !name.is_empty())
                {
                    return (Shape::field(schema, st.at(no)), Knows::Named);
                }
                self.of_part(of, id, name)
            }
            Shape::Deduced => (Shape::Deduced, Knows::Allowed),
            Shape::Scalar(_) | Shape::List { .. } | Shape::Opaque => (Shape::Opaque, Knows::Allowed),
        }
    }
    fn of_part(&mut self, of: &'s Structural, id: PartId, name: &str) -> (Shape<'s>, Knows) {
        if let Some(id) = self.properties.as_mut().and_then(|p| p.find(name)) {
            return (Shape::part(of, id), Knows::Named);
        }
        let part = of.part(id);
        let knows = if part.embedded && matches!(name, "kind" | "apiVersion" | "metadata") {
            Knows::Named
        } else {
            Knows::Allowed
        };
        match part.additional {
            Additional::Part(id) => (Shape::part(of, id), knows),
            Additional::Any => (Shape::Deduced, knows),
            _ if part.keeps_unknown => (Shape::Deduced, knows),
            _ if knows == Knows::Named => (Shape::embedded(self.schema, name), knows),
            _ if part.embedded => (Shape::embedded(self.schema, name), Knows::Unknown),
            _ => (Shape::Opaque, Knows::Unknown),
        }
    }
}

/// The way in which a value is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The value is walked as a whole.
    Leaf,
    List,
    Map,
    /// `null`, where the schema allows anything.
    Any,
}

/// A value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Val<'a> {
    /// A value of a tree, or without a schema.
    Node(&'a Node),
    /// A struct of a tree.
    Struct(&'a Struct),
    /// A struct that is absent, but is written.
    Zero(StructId),
}

impl<'a> Val<'a> {
    pub(super) fn is_null(self) -> bool {
        matches!(self, Self::Node(Node::Null))
    }
    /// The struct of a tree, absent or not.
    fn plain(self) -> Self {
        match self {
            Self::Node(Node::Struct(s)) => Self::Struct(s),
            other => other,
        }
    }
    pub(super) fn is_map(self) -> bool {
        matches!(self.plain(), Self::Struct(_) | Self::Zero(_) | Self::Node(Node::Map(_)))
    }
    /// Whether the value is a map with nothing in it.
    pub(super) fn is_empty_map(self, schema: &Schema) -> bool {
        let bare = |id: StructId| schema.st(id).fields.iter().all(|f| f.omitempty);
        match self.plain() {
            Self::Struct(s) => s.is_empty() && bare(s.id),
            Self::Zero(id) => bare(id),
            Self::Node(Node::Map(m)) => m.is_empty(),
            Self::Node(_) => false,
        }
    }
    /// Whether the value has no entries; a value that is no map has none.
    pub(super) fn lacks_entries(self, schema: &Schema) -> bool {
        !self.is_map() || self.is_empty_map(schema)
    }
    pub(super) fn items(self) -> &'a [Node] {
        match self {
            Self::Node(n) => n.as_list(),
            _ => &[],
        }
    }
    /// The field of a struct.
    pub(super) fn field(self, schema: &Schema, st: &StructType, no: FieldNo) -> Option<Val<'a>> {
        match self.plain() {
            Self::Struct(s) => match s.get(no) {
                Some(n) => Some(Val::Node(n).plain()),
                None => match s.written_empty(no) {
                    Some(n) if !st.at(no).omitempty => Some(Val::Node(n)),
                    _ => absent(schema, st.at(no)),
                },
            },
            Self::Zero(_) => absent(schema, st.at(no)),
            Self::Node(Node::Map(m)) => m.get(&st.at(no).json).map(Val::Node),
            Self::Node(_) => None,
        }
    }
    /// The entries of a map by name, sorted.
    pub(super) fn entries(self, schema: &'a Schema) -> Vec<(&'a Text, Val<'a>)> {
        let of = |id: StructId| -> Vec<(&'a Text, Val<'a>)> {
            let st = schema.st(id);
            st.by_json
                .iter()
                .filter_map(|no| Some((&st.at(*no).json, self.field(schema, st, *no)?)))
                .collect()
        };
        match self.plain() {
            Self::Struct(s) => {
                let mut all = of(s.id);
                if let Some(values) = schema.st(s.id).rest.as_ref().and_then(|rest| s.map(rest.field)) {
                    all.extend(values.iter().map(|(k, v)| (k, Val::Node(v))));
                    all.sort_by(|a, b| a.0.cmp(b.0));
                }
                all
            }
            Self::Zero(id) => of(id),
            Self::Node(Node::Map(m)) => {
                let mut all: Vec<_> = m.iter().map(|(k, v)| (k, Val::Node(v).plain())).collect();
                if !all.windows(2).all(|w| w[0].0 < w[1].0) {
                    all.sort_by(|a, b| a.0.cmp(b.0));
                }
                all
            }
            Self::Node(_) => Vec::new(),
        }
    }
    /// The way in which the value is walked.
    pub(super) fn class(self, shape: Shape<'_>) -> Class {
        match shape {
            Shape::Scalar(_) => Class::Leaf,
            Shape::List { .. } => Class::List,
            Shape::Map { .. } | Shape::Struct { .. } | Shape::Object { .. } => Class::Map,
            Shape::Opaque => Class::Leaf,
            Shape::Deduced if self.is_null() => Class::Any,
            Shape::Deduced if self.is_map() => Class::Map,
            Shape::Deduced => Class::Leaf,
        }
    }
    /// Whether both are equal.
    pub(super) fn equals(self, other: Val<'_>, schema: &Schema) -> bool {
        match (self.plain(), other.plain()) {
            (Val::Node(a), Val::Node(b)) => same(a, b),
            (Val::Struct(a), Val::Struct(b)) => a == b,
            (Val::Struct(s), Val::Zero(id)) | (Val::Zero(id), Val::Struct(s)) => s.id == id && s.is_empty(),
            (Val::Zero(a), Val::Zero(b)) => a == b,
            (a, b) => {
                let any = |v: Val<'_>| match v {
                    Val::Node(n) => n.clone(),
                    Val::Struct(s) => json::to_any(schema, s),
                    Val::Zero(id) => json::to_any(schema, &Struct::new(id)),
                };
                same(&any(a), &any(b))
            }
        }
    }
    fn scalar(self) -> Option<Node> {
        match self {
            Self::Node(n) => Some(n.clone()),
            _ => None,
        }
    }
}

/// The value that the encoder writes for an absent field, if it writes one.
fn absent<'a>(schema: &Schema, field: &Field) -> Option<Val<'a>> {
    if field.omitempty {
        return None;
    }
    if field.pointer {
        return Some(Val::Node(&NULL));
    }
    Some(Val::Node(match schema.ty(field.ty) {
        Type::Struct(id) => return Some(Val::Zero(*id)),
        Type::Bool => &FALSE,
        Type::Int32 | Type::Int64 | Type::IntOrString => &ZERO,
        Type::Float64 => &ZERO_FLOAT,
        Type::String => &EMPTY,
        Type::Quantity => &ZERO_QUANTITY,
        Type::Duration => &ZERO_DURATION,
        _ => &NULL,
    }))
}

/// The step to an element of a list that is a set or a map.
pub(super) fn item_element(
    schema: &Schema,
    of: Item<'_>,
    kind: Merging<'_>,
    item: Val<'_>,
) -> Result<Element, String> {
    match kind {
        Merging::Atomic => Err("invalid indexing of non-associative list".into()),
        Merging::Set => match item {
            Val::Node(Node::List(_)) => Err("not supported: associative list with lists as elements".into()),
            Val::Node(Node::Null) => {
                Err("associative list without keys has an element that's an explicit null".into())
            }
            v if v.is_map() => Err("associative list without keys has an element that's a map type".into()),
            v => Ok(Element::Value(v.scalar().unwrap_or(Node::Null))),
        },
        Merging::Fields(_) | Merging::Names(_) => {
            if item.is_null() {
                return Err("associative list with keys may not have a null element".into());
            }
            if !item.is_map() {
                return Err("associative list with keys may not have non-map elements".into());
            }
            let (mut found, names) = keys_of(schema, of, kind, item)?;
            if found.is_empty() {
                let names: Vec<String> = names.iter().map(|name| crate::go::quote(name)).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    names.join(" ")
                ));
            }
            found.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(Element::Key(found))
        }
    }
}

/// The keys of an element with their values, or defaults; and the names of all keys.
type Keys = (Vec<(Text, Node)>, Vec<Text>);

/// Finds the keys of an element.
fn keys_of(schema: &Schema, of: Item<'_>, kind: Merging<'_>, item: Val<'_>) -> Result<Keys, String> {
    let mut found = Vec::new();
    let not_maps = || "associative list may not have non-map types".to_owned();
    match (kind, of) {
        (Merging::Fields(keys), Item::Type(ty)) => {
            let Type::Struct(id) = schema.ty(ty) else { return Err(not_maps()) };
            let st = schema.st(*id);
            for no in keys {
                let field = st.at(*no);
                let value = match (item.field(schema, st, *no), &field.default) {
                    (Some(v), _) => Some(v.scalar().unwrap_or(Node::Null)),
                    (None, Some(default)) => json::decode_any(default.as_bytes()).ok(),
                    // A plain field that is always written has its zero for a default in OpenAPI.
                    (None, None) => absent(schema, field).and_then(Val::scalar).filter(|n| *n != Node::Null),
                };
                found.extend(value.map(|value| (field.json.clone(), value)));
            }
            Ok((found, keys.iter().map(|no| st.at(*no).json.clone()).collect()))
        }
        (Merging::Names(keys), of) => {
            let Val::Node(Node::Map(entries)) = item else { return Err(not_maps()) };
            for key in keys {
                let default = match of {
                    Item::Part(of, id) => {
                        of.part(id).property(key).and_then(|id| of.part(id).default_value())
                    }
                    _ => None,
                };
                let value = entries.get(key).or(default);
                found.extend(value.map(|value| (key.clone(), value.clone())));
            }
            Ok((found, keys.to_vec()))
        }
        _ => Err(not_maps()),
    }
}
