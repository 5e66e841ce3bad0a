//! Walks over values by the schema: which fields are there, how two objects differ, and which values are malformed.

use std::fmt::Write;

use super::set::{Element, Entry, FieldSet};
use super::value::{Below, Class, Item, Knows, Merging, Scalar, Shape, Val, item_element};
use crate::go::{plain, quote};
use crate::schema::{Schema, StructId};
use crate::tree::{Node, Struct};

/// The fields in which two objects differ. No field is in more than one of the sets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    /// The fields of the new object only.
    pub added: FieldSet,
    /// The fields of both, with another value.
    pub modified: FieldSet,
    /// The fields of the old object only.
    pub removed: FieldSet,
}

impl Comparison {
    /// Whether the objects are equal.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }
}

/// The fields of an object: every leaf, every element of lists by key, and every entry of maps.
pub fn of(schema: &Schema, tree: &Struct) -> Result<FieldSet, String> {
    of_value(schema, Shape::root(schema, tree.id), Val::Struct(tree))
}

/// Like [`of`], for an object without a schema's types.
pub(super) fn of_any(schema: &Schema, root: StructId, object: &Node) -> Result<FieldSet, String> {
    of_value(schema, Shape::root(schema, root), Val::Node(object))
}

/// Finds the fields in which `new` differs from `old`; both are of the same root struct.
pub fn compare(schema: &Schema, old: &Struct, new: &Struct) -> Result<Comparison, String> {
    compare_values(schema, new.id, Val::Struct(old), Val::Struct(new))
}

/// Like [`compare`], for objects without a schema's types.
pub(super) fn compare_any(
    schema: &Schema,
    root: StructId,
    old: &Node,
    new: &Node,
) -> Result<Comparison, String> {
    compare_values(schema, root, Val::Node(old), Val::Node(new))
}

fn compare_values(schema: &Schema, root: StructId, old: Val<'_>, new: Val<'_>) -> Result<Comparison, String> {
    let mut out = Comparison::default();
    Walker { schema }.compare(Shape::root(schema, root), Some(old), Some(new), &mut out)?;
    Ok(out)
}

/// The set of a value. The place itself belongs to it if the value holds no entries.
fn of_value(schema: &Schema, shape: Shape<'_>, value: Val<'_>) -> Result<FieldSet, String> {
    let mut set = FieldSet::default();
    fields(schema, shape, value, &mut set)?;
    Ok(set)
}

/// Adds the members below a value; returns whether the value is a leaf.
fn fields(schema: &Schema, shape: Shape<'_>, value: Val<'_>, set: &mut FieldSet) -> Result<bool, String> {
    match (value.class(shape), shape) {
        (Class::Leaf, _) => Ok(true),
        (Class::List | Class::Map, shape) if shape.is_atomic() => Ok(true),
        (Class::List, Shape::List { of, kind }) => {
            let items = indexed(schema, of, kind, Some(value))?;
            let below = of.shape(schema);
            for group in items.chunk_by(|a, b| a.0 == b.0) {
                let mut under = FieldSet::default();
                if let [(_, item)] = group {
                    fields(schema, below, *item, &mut under)?;
                }
                set.push(Entry { element: group[0].0.clone(), member: true, under });
            }
            Ok(false)
        }
        (Class::Map, Shape::Struct { id, .. }) => {
            let st = schema.st(id);
            for no in &st.by_json {
                let field = st.at(*no);
                let Some(v) = value.field(schema, st, *no) else { continue };
                let mut under = FieldSet::default();
                let leaf = fields(schema, Shape::field(schema, field), v, &mut under)?;
                let member = leaf || v.is_null() || v.is_empty_map(schema);
                set.push(Entry { element: Element::Field(field.json.clone()), member, under });
            }
            Ok(false)
        }
        _ => {
            let mut below = Below::new(schema, shape);
            for (name, v) in value.entries(schema) {
                let (of, knows) = below.field(name);
                let mut under = FieldSet::default();
                let leaf = fields(schema, of, v, &mut under)?;
                // A field that a definition names goes with what is below it.
                let member = leaf
                    || !matches!(shape, Shape::Object { .. })
                    || knows != Knows::Named
                    || v.is_null()
                    || v.is_empty_map(schema);
                set.push(Entry { element: Element::Field(name.clone()), member, under });
            }
            Ok(false)
        }
    }
}

/// The elements of a list with their steps, sorted by step; elements of the same step keep their order.
fn indexed<'a>(
    schema: &Schema,
    of: Item<'_>,
    kind: Merging<'_>,
    list: Option<Val<'a>>,
) -> Result<Vec<(Element, Val<'a>)>, String> {
    let items = list.map_or(&[][..], Val::items);
    let mut out = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let item = Val::Node(item);
        let element = item_element(schema, of, kind, item).map_err(|e| format!("element {i}: {e}"))?;
        out.push((element, item));
    }
    if !out.windows(2).all(|w| w[0].0 <= w[1].0) {
        out.sort_by(|a, b| a.0.cmp(&b.0));
    }
    Ok(out)
}

/// The set of which the place itself is a member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    None,
    Added,
    Modified,
    Removed,
}

struct Walker<'s> {
    schema: &'s Schema,
}

impl Walker<'_> {
    fn leaf(&self, l: Option<Val<'_>>, r: Option<Val<'_>>) -> Own {
        match (l, r) {
            (None, None) => Own::None,
            (None, _) => Own::Added,
            (_, None) => Own::Removed,
            (Some(l), Some(r)) if l.equals(r, self.schema) => Own::None,
            _ => Own::Modified,
        }
    }

    /// Compares a part and puts it and the places below it into the sets.
    fn part(
        &self,
        element: &Element,
        shape: Shape<'_>,
        l: Option<Val<'_>>,
        r: Option<Val<'_>>,
        out: &mut Comparison,
    ) -> Result<(), String> {
        if l.is_none() && r.is_none() {
            return Ok(());
        }
        let mut below = Comparison::default();
        let own = self.compare(shape, l, r, &mut below)?;
        Self::put(element, own, below, out);
        Ok(())
    }

    fn put(element: &Element, own: Own, below: Comparison, out: &mut Comparison) {
        let add = |set: &mut FieldSet, under: FieldSet, which: Own| {
            if own == which || !under.is_empty() {
                set.push(Entry { element: element.clone(), member: own == which, under });
            }
        };
        add(&mut out.added, below.added, Own::Added);
        add(&mut out.modified, below.modified, Own::Modified);
        add(&mut out.removed, below.removed, Own::Removed);
    }

    fn compare(
        &self,
        shape: Shape<'_>,
        left: Option<Val<'_>>,
        right: Option<Val<'_>>,
        out: &mut Comparison,
    ) -> Result<Own, String> {
        let schema = self.schema;
        let (lc, rc) = (left.map(|v| v.class(shape)), right.map(|v| v.class(shape)));
        let class = match (lc, rc) {
            (None, Some(class)) | (Some(class), None) => class,
            (Some(one), Some(other)) if one == other => one,
            (Some(Class::Leaf), Some(Class::Leaf)) | (None, None) => Class::Leaf,
            (Some(Class::Any | Class::Map), Some(Class::Any | Class::Map)) => Class::Map,
            // A map in the place of something else, or the reverse: the value differs, and so do the map's entries.
            _ => {
                for (name, v) in left.map(|v| v.entries(schema)).unwrap_or_default() {
                    let element = Element::Field(name.clone());
                    self.part(&element, shape.below(schema, &element), Some(v), None, out)?;
                }
                for (name, v) in right.map(|v| v.entries(schema)).unwrap_or_default() {
                    let element = Element::Field(name.clone());
                    self.part(&element, shape.below(schema, &element), None, Some(v), out)?;
                }
                return Ok(self.leaf(left, right));
            }
        };
        match (class, shape) {
            (Class::Leaf, _) => return Ok(self.leaf(left, right)),
            (_, shape) if shape.is_atomic() => return Ok(self.leaf(left, right)),
            (Class::List, Shape::List { of, kind }) => {
                let empty = |v: Option<Val<'_>>| v.is_none_or(|v| v.items().is_empty());
                if empty(left) && empty(right) {
                    return Ok(self.leaf(left, right));
                }
                self.lists(of, kind, left, right, out)?;
            }
            (_, Shape::Struct { id, .. }) => {
                let empty = |v: Option<Val<'_>>| v.is_none_or(|v| v.lacks_entries(schema));
                if empty(left) && empty(right) {
                    return Ok(self.leaf(left, right));
                }
                let st = schema.st(id);
                for no in &st.by_json {
                    let a = left.and_then(|v| v.field(schema, st, *no));
                    let b = right.and_then(|v| v.field(schema, st, *no));
                    if a.is_none() && b.is_none() {
                        continue;
                    }
                    let field = st.at(*no);
                    let mut below = Comparison::default();
                    let own = self.compare(Shape::field(schema, field), a, b, &mut below)?;
                    if own != Own::None || !below.is_same() {
                        Self::put(&Element::Field(field.json.clone()), own, below, out);
                    }
                }
            }
            _ => {
                let a = left.map(|v| v.entries(schema)).unwrap_or_default();
                let b = right.map(|v| v.entries(schema)).unwrap_or_default();
                if a.is_empty() && b.is_empty() {
                    return Ok(self.leaf(left, right));
                }
                let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
                let mut below = Below::new(schema, shape);
                loop {
                    let (x, y) = match (a.peek(), b.peek()) {
                        (None, None) => break,
                        (Some(_), None) => (a.next(), None),
                        (None, Some(_)) => (None, b.next()),
                        (Some(x), Some(y)) if x.0 < y.0 => (a.next(), None),
                        (Some(x), Some(y)) if x.0 > y.0 => (None, b.next()),
                        _ => (a.next(), b.next()),
                    };
                    let Some(name) = x.as_ref().or(y.as_ref()).map(|e| e.0) else { break };
                    let (of, _) = below.field(name);
                    let element = Element::Field(name.clone());
                    self.part(&element, of, x.map(|e| e.1), y.map(|e| e.1), out)?;
                }
            }
        }
        Ok(match (left, right) {
            (None, _) => Own::Added,
            (_, None) => Own::Removed,
            _ => Own::None,
        })
    }

    fn lists(
        &self,
        of: Item<'_>,
        kind: Merging<'_>,
        l: Option<Val<'_>>,
        r: Option<Val<'_>>,
        out: &mut Comparison,
    ) -> Result<(), String> {
        let schema = self.schema;
        let (l, r) = (indexed(schema, of, kind, l)?, indexed(schema, of, kind, r)?);
        let below = of.shape(schema);
        let (mut l, mut r) = (l.as_slice(), r.as_slice());
        let run = |all: &[(Element, Val<'_>)], element: &Element| {
            all.iter().take_while(|e| e.0 == *element).count()
        };
        while let Some(element) = match (l.first(), r.first()) {
            (Some(a), Some(b)) => Some((&a.0).min(&b.0)),
            (a, b) => a.or(b).map(|e| &e.0),
        } {
            let (a, rest_l) = l.split_at(run(l, element));
            let (b, rest_r) = r.split_at(run(r, element));
            let (first_a, first_b) = (a.first().map(|e| e.1), b.first().map(|e| e.1));
            let own = |own: Own, out: &mut Comparison| Self::put(element, own, Comparison::default(), out);
            match (a.len(), b.len()) {
                (0 | 1, 0 | 1) => self.part(element, below, first_a, first_b, out)?,
                // Elements that stand in a list twice are compared as one value.
                (2.., 2..) => {
                    if a.len() != b.len() || a.iter().zip(b).any(|(x, y)| !x.1.equals(y.1, schema)) {
                        own(Own::Modified, out);
                    }
                }
                (2.., _) => {
                    self.part(element, below, None, first_b, out)?;
                    own(Own::Removed, out);
                }
                _ => {
                    self.part(element, below, first_a, None, out)?;
                    own(Own::Added, out);
                }
            }
            (l, r) = (rest_l, rest_r);
        }
        Ok(())
    }
}

/// Checks a value without a schema's types against the schema; the text is upstream's.
pub(super) fn validate(
    schema: &Schema,
    root: StructId,
    object: &Node,
    duplicates: bool,
) -> Result<(), String> {
    let mut errors = Complaints::default();
    check(schema, Shape::root(schema, root), object, duplicates, &mut String::new(), &mut errors);
    match errors.texts.as_slice() {
        [] => Ok(()),
        [one] if errors.more == 0 => Err(one.clone()),
        many => {
            let mut text = many.iter().fold("errors:".to_owned(), |s, e| s + "\n  " + e);
            if errors.more > 0 {
                let _ = write!(text, "\n  and {} more", errors.more);
            }
            Err(text)
        }
    }
}

/// Whether the values of a custom object are of the types that its definition gives them: validation lets some pass that
/// are not.
pub(super) fn is_typed(schema: &Schema, object: &Struct) -> bool {
    let Some(rest) = &schema.st(object.id).rest else { return true };
    let Some(values) = object.map(rest.field) else { return true };
    let mut below = Below::new(schema, Shape::root(schema, object.id));
    let mut errors = Complaints::default();
    for (name, value) in values.iter() {
        check(schema, below.field(name).0, value, true, &mut String::new(), &mut errors);
    }
    errors.texts.is_empty()
}

/// The complaints about a value. The complaints beyond those that an answer shows are only counted.
///
/// DIFFERENCE: upstream shows all. Each has its whole path, so that many below one long key would make an answer that
/// is many times as large as the request.
#[derive(Default)]
struct Complaints {
    texts: Vec<String>,
    bytes: usize,
    more: usize,
}

impl Complaints {
    fn add(&mut self, path: &str, what: &str) {
        if self.texts.len() >= 1000 || self.bytes >= 1 << 20 {
            self.more += 1;
            return;
        }
        let text = if path.is_empty() { what.to_owned() } else { format!("{path}: {what}") };
        self.bytes += text.len();
        self.texts.push(text);
    }
}

fn go_type(node: &Node) -> &'static str {
    match node {
        Node::Str(_) => "string",
        Node::Bool(_) => "bool",
        Node::Int(_) => "int64",
        Node::Float(_) => "float64",
        Node::List(_) => "[]interface {}",
        Node::Map(_) | Node::Struct(_) | Node::Raw(_) => "map[string]interface {}",
        Node::Null => "<nil>",
    }
}

/// Whether a value is a scalar of the type that a shape gives it, or `null`, which stands for no value.
fn is_fitting_scalar(shape: Shape<'_>, value: &Node) -> bool {
    matches!(
        (shape, value),
        (_, Node::Null)
            | (Shape::Scalar(Scalar::Number), Node::Int(_) | Node::Float(_))
            | (Shape::Scalar(Scalar::Text), Node::Str(_))
            | (Shape::Scalar(Scalar::Bool), Node::Bool(_))
            | (Shape::Scalar(Scalar::Any), Node::Int(_) | Node::Float(_) | Node::Str(_) | Node::Bool(_))
    )
}

fn check(
    schema: &Schema,
    shape: Shape<'_>,
    value: &Node,
    duplicates: bool,
    path: &mut String,
    errors: &mut Complaints,
) {
    if is_fitting_scalar(shape, value) {
        return;
    }
    let into = |path: &mut String, step: &Element, shape: Shape<'_>, v: &Node, errors: &mut Complaints| {
        let length = path.len();
        path.push_str(&step.to_string());
        check(schema, shape, v, duplicates, path, errors);
        path.truncate(length);
    };
    match shape {
        Shape::Scalar(scalar) => {
            let wrong = match (scalar, value) {
                (Scalar::Number, v) => format!("expected numeric (int or float), got {}", go_type(v)),
                (Scalar::Text, v) => {
                    let shown = match v {
                        Node::Int(_) | Node::Float(_) | Node::Bool(_) => plain(v),
                        Node::List(_) | Node::Map(_) => format!("{}{{...}}", go_type(v)),
                        v => quote(&plain(v)),
                    };
                    format!("expected string, got &value.valueUnstructured{{Value:{shown}}}")
                }
                (Scalar::Bool, v) => format!("expected boolean, got &{{{}}}", plain(v)),
                (Scalar::Any, v) => format!("expected any scalar, got &{{{}}}", plain(v)),
            };
            errors.add(path, &wrong);
        }
        Shape::List { of, kind } => {
            let Node::List(items) = value else {
                return errors.add(path, &format!("expected list, got &{{{}}}", plain(value)));
            };
            let below = of.shape(schema);
            let mut seen = std::collections::BTreeSet::new();
            for (i, item) in items.iter().enumerate() {
                let step = match kind {
                    Merging::Atomic => Element::Index(i64::try_from(i).unwrap_or(i64::MAX)),
                    _ => match item_element(schema, of, kind, Val::Node(item)) {
                        Ok(step) => step,
                        Err(e) => return errors.add(path, &format!("element {i}: {e}")),
                    },
                };
                if kind != Merging::Atomic && !seen.insert(step.clone()) && !duplicates {
                    errors.add(path, &format!("duplicate entries for key {step}"));
                }
                into(path, &step, below, item, errors);
            }
        }
        Shape::Map { .. } | Shape::Struct { .. } | Shape::Object { .. } => {
            let Node::Map(map) = value else {
                return errors.add(path, &format!("expected map, got &{{{}}}", plain(value)));
            };
            let mut below = Below::new(schema, shape);
            for (name, v) in map.iter() {
                let (of, knows) = below.field(name);
                if knows == Knows::Unknown {
                    let step = Element::Field(name.clone());
                    return errors.add(&format!("{path}{step}"), "field not declared in schema");
                }
                // Most values are scalars of the right type, whose paths nobody asks for.
                if !is_fitting_scalar(of, v) {
                    into(path, &Element::Field(name.clone()), of, v, errors);
                }
            }
        }
        Shape::Deduced | Shape::Opaque => {}
    }
}
