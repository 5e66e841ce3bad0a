//! Conversions between trees by the schema and values without one, on which patches work.

use std::borrow::Cow;

use super::super::normal;
use super::super::report::{Report, Step, go_struct};
use super::super::{DecodeError, Decoded};
use crate::depth;
use crate::go::json_word;
use crate::schema::{AnyKind, Field, Or, Schema, StructId, Type, TypeId};
use crate::tree::{Map, Node, Struct, Text};

/// The tree of a root object, as [`super::decode`] makes it from text.
pub fn root_from_any(schema: &Schema, root: StructId, node: Node) -> Result<Decoded, DecodeError> {
    convert(schema, root, node, Numbers::Read)
}

/// Like [`root_from_any`], for the results of JSON and merge patches: a number that was written with a point or an
/// exponent is no integer, as it is none in JSON text.
pub fn root_from_patched(schema: &Schema, root: StructId, node: Node) -> Result<Decoded, DecodeError> {
    convert(schema, root, node, Numbers::AsWritten)
}

/// Like [`root_from_any`], but a whole number that an integer field cannot hold wraps around, as it does in Go's
/// conversion of the results of apply and strategic merge patches. Validation then sees it.
pub fn root_from_merged(schema: &Schema, root: StructId, node: Node) -> Result<Decoded, DecodeError> {
    convert(schema, root, node, Numbers::Wrap)
}

/// Refuses a value whose JSON text would be refused for its depth.
fn bounded(node: &Node) -> Result<(), DecodeError> {
    if depth::is_bounded(node) { Ok(()) } else { Err(DecodeError::Syntax(depth::TOO_DEEP.into())) }
}

/// The treatment of numbers in the places of integers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// A whole number is taken.
    Read,
    /// A number with a point or an exponent is refused.
    AsWritten,
    /// A whole number that is too large wraps around.
    Wrap,
}

fn convert(schema: &Schema, root: StructId, node: Node, numbers: Numbers) -> Result<Decoded, DecodeError> {
    bounded(&node)?;
    let mut c = Converter { report: Report::new(schema), numbers };
    let mut tree = Struct::new(root);
    match node {
        Node::Map(m) => c.fields(m, &mut tree),
        Node::Null => {}
        other => c.report.mismatch(json_word(&other), &go_struct(schema, root)),
    }
    let mut strict = c.report.finish()?;
    normal::prune(schema, &mut tree, &mut strict);
    let st = schema.st(root);
    let mut take = |name: &str| match st.field(name).and_then(|no| tree.remove(no)) {
        Some(Node::Str(s)) if st.kind => s,
        _ => Text::default(),
    };
    let (kind, api_version) = (take("kind"), take("apiVersion"));
    Ok(Decoded { api_version, kind, tree, strict })
}

/// The tree of a value of a type, with the complaints of strict validation; `None` for `null`.
pub fn from_any(schema: &Schema, ty: TypeId, node: Node) -> Result<(Option<Node>, Vec<String>), DecodeError> {
    bounded(&node)?;
    let mut c = Converter { report: Report::new(schema), numbers: Numbers::Read };
    let node = c.value(ty, node);
    Ok((node, c.report.finish()?))
}

/// The value without a schema that [`super::encode`]'s text of the struct would decode to.
pub fn to_any(schema: &Schema, tree: &Struct) -> Node {
    let st = schema.st(tree.id);
    // Some fields are always written.
    let mut entries = Vec::with_capacity(tree.iter().size_hint().0 + 2);
    for no in &st.by_json {
        let field = st.at(*no);
        let value = match tree.get(*no) {
            Some(v) => node_to_any(schema, v),
            None if !field.omitempty => absent(schema, field),
            None => continue,
        };
        entries.push((field.json.clone(), value));
    }
    // The values of a custom resource, which stand in the object itself: their field has no name.
    let rest = st.rest.as_ref().and_then(|rest| tree.get(rest.field)).and_then(Node::as_map);
    entries.extend(rest.into_iter().flat_map(Map::iter).map(|(k, v)| (k.clone(), v.clone())));
    let mut map = Map::from_entries(entries);
    map.sort();
    Node::Map(map)
}

fn node_to_any(schema: &Schema, node: &Node) -> Node {
    match node {
        Node::Struct(s) => to_any(schema, s),
        Node::List(l) => Node::List(l.iter().map(|n| node_to_any(schema, n)).collect()),
        Node::Map(m) => {
            let mut map =
                Map::from_entries(m.iter().map(|(k, n)| (k.clone(), node_to_any(schema, n))).collect());
            map.sort();
            Node::Map(map)
        }
        Node::Raw(text) => super::raw_value(text),
        other => other.clone(),
    }
}

fn absent(schema: &Schema, field: &Field) -> Node {
    match schema.ty(field.ty) {
        _ if field.pointer => Node::Null,
        Type::Bytes | Type::List { .. } | Type::Map { .. } => Node::Null,
        Type::Struct(s) => to_any(schema, &Struct::new(*s)),
        _ => normal::zero(schema, field.ty),
    }
}

/// The integer that Go's conversion of a number to an `int64` gives; a fraction has none.
fn whole(node: &Node) -> Option<i64> {
    match node {
        Node::Int(i) => Some(*i),
        Node::Float(f) if f.fract() == 0.0 => {
            // 2^63 and beyond become the smallest integer.
            Some(if f.abs() < i64::MAX as f64 { *f as i64 } else { i64::MIN })
        }
        _ => None,
    }
}

struct Converter<'s> {
    report: Report<'s, 's>,
    numbers: Numbers,
}

impl Converter<'_> {
    fn fields(&mut self, map: Map, into: &mut Struct) {
        let schema = self.report.schema;
        let st = schema.st(into.id);
        let mut rest = Vec::new();
        for (key, node) in map.into_entries() {
            let Some(no) = st.field(&key).filter(|_| !key.is_empty()) else {
                if st.rest.is_some() {
                    rest.push((key, node));
                } else {
                    self.report.unknown(&key);
                }
                continue;
            };
            let field = st.at(no);
            self.report.path.push(Step::Field(into.id, no));
            if let Some(value) = self.value(field.ty, node) {
                normal::put(into, no, field, schema.ty(field.ty), value);
            }
            self.report.path.pop();
        }
        if let Some(part) = &st.rest {
            let mut map = Map::from_entries(rest);
            map.sort();
            into.set(part.field, map);
        }
    }

    fn value(&mut self, ty: TypeId, node: Node) -> Option<Node> {
        let schema = self.report.schema;
        if self.numbers == Numbers::Wrap
            && let Some(i) = whole(&node)
        {
            match schema.ty(ty) {
                Type::Int64 => return Some(Node::Int(i)),
                Type::Int32 => return Some(Node::Int(i64::from(i as i32))),
                _ => {}
            }
        }
        if self.numbers == Numbers::Wrap
            && let Some(why) = self.unconvertible(ty, &node)
        {
            self.report.invalid(why);
            return None;
        }
        match (schema.ty(ty), node) {
            (_, Node::Null) => None,
            (Type::Any(AnyKind::RawExtension), node) => {
                let mut text = Vec::new();
                super::encode_any(&node, &mut text);
                Some(super::raw(&String::from_utf8_lossy(&text)))
            }
            (Type::Any(_), node) => Some(node),
            (Type::Struct(id), Node::Map(m)) => {
                let mut s = Box::new(Struct::new(*id));
                self.fields(m, &mut s);
                Some(Node::Struct(s))
            }
            (Type::List { of, .. }, Node::List(l)) => Some(Node::List(self.list(*of, l))),
            (Type::Map { of, .. }, Node::Map(m)) => {
                let mut out = Vec::with_capacity(m.len());
                for (key, node) in m.into_entries() {
                    self.report.path.push(Step::Key(Cow::Owned(key.to_string())));
                    let value = self.value(*of, node);
                    self.report.path.pop();
                    out.push((key, value.unwrap_or_else(|| normal::zero(schema, *of))));
                }
                let mut map = Map::from_entries(out);
                map.sort();
                Some(Node::Map(map))
            }
            (Type::Or { of, or }, node) => self.or(*of, *or, node),
            (Type::Bytes, Node::Str(s)) if self.numbers == Numbers::Wrap => {
                let first = self.report.is_readable();
                let value = normal::from_str(&mut self.report, ty, &s);
                if first {
                    self.report.preface("error decoding from json: ");
                }
                value
            }
            (_, Node::Str(s)) => normal::from_str(&mut self.report, ty, &s),
            (_, Node::Bool(b)) => normal::from_bool(&mut self.report, ty, b),
            (_, Node::Int(i)) => normal::from_number(&mut self.report, ty, itoa::Buffer::new().format(i)),
            (Type::Int32 | Type::Int64, Node::Float(f)) if self.numbers == Numbers::AsWritten => {
                let text = match f.abs() {
                    size if size >= 1e21 => {
                        let mut text = Vec::new();
                        super::encode_any(&Node::Float(f), &mut text);
                        String::from_utf8_lossy(&text).into_owned()
                    }
                    // An integer that is too large for one.
                    size if size >= i64::MAX as f64 => format!("{f:.0}"),
                    _ => format!("{f:?}"),
                };
                normal::from_number(&mut self.report, ty, &text)
            }
            (_, node @ Node::Float(_)) => {
                let mut text = Vec::new();
                super::encode_any(&node, &mut text);
                normal::from_number(&mut self.report, ty, &String::from_utf8_lossy(&text))
            }
            (_, node) => {
                normal::from_compound(&mut self.report, ty, json_word(&node));
                None
            }
        }
    }

    /// The complaint of Go's conversion about a value that does not fit a type.
    fn unconvertible(&self, ty: TypeId, node: &Node) -> Option<String> {
        let kind = match node {
            Node::Null => return None,
            Node::Bool(_) => "bool",
            Node::Int(_) => "int64",
            Node::Float(_) => "float64",
            Node::Str(_) => "string",
            Node::List(_) => "slice",
            Node::Map(_) | Node::Struct(_) | Node::Raw(_) => "map",
        };
        let unrecognized = |wanted: &str| Some(format!("unrecognized type: {wanted}"));
        match (self.report.schema.ty(ty), node) {
            (Type::String | Type::Bytes, Node::Str(_))
            | (Type::Bool, Node::Bool(_))
            | (Type::Int32 | Type::Int64, Node::Int(_))
            | (Type::Float64, Node::Int(_) | Node::Float(_))
            | (Type::List { .. }, Node::List(_))
            | (Type::Map { .. } | Type::Struct(_), Node::Map(_)) => None,
            (Type::String, Node::Int(_)) => {
                Some(format!("cannot convert int64 to {}", self.report.type_name(ty)))
            }
            (Type::Int32 | Type::Int64, Node::Float(_)) => {
                Some(format!("cannot convert float64 to {}", self.report.type_name(ty)))
            }
            (Type::String, _) => unrecognized("string"),
            (Type::Bool, _) => unrecognized("bool"),
            (Type::Int32, _) => unrecognized("int32"),
            (Type::Int64, _) => unrecognized("int64"),
            (Type::Float64, _) => unrecognized("float64"),
            (Type::List { .. } | Type::Bytes, _) => Some(format!("cannot restore slice from {kind}")),
            (Type::Map { .. }, _) => Some(format!("cannot restore map from {kind}")),
            (Type::Struct(_), _) => Some(format!("cannot restore struct from: {kind}")),
            _ => None,
        }
    }

    fn list(&mut self, of: TypeId, nodes: Vec<Node>) -> Vec<Node> {
        let mut out = Vec::with_capacity(nodes.len());
        for (i, node) in nodes.into_iter().enumerate() {
            self.report.path.push(Step::Index(i));
            let value = self.value(of, node);
            self.report.path.pop();
            out.push(value.unwrap_or_else(|| normal::zero(self.report.schema, of)));
        }
        out
    }

    /// Converts a value of one of the types with decoders of their own, which are lenient; see `Decoder::value`.
    fn or(&mut self, of: StructId, or: Or, node: Node) -> Option<Node> {
        self.report.lenient += 1;
        let out = match (or, node) {
            (_, Node::Map(m)) => {
                let mut s = Box::new(Struct::new(of));
                self.fields(m, &mut s);
                Some(Node::Struct(s))
            }
            (Or::Bool, Node::Bool(b)) => Some(Node::Bool(b)),
            (Or::Bool, _) => {
                self.report.stop_invalid("boolean or JSON schema expected");
                None
            }
            (_, Node::List(l)) if !l.is_empty() => Some(Node::List(
                l.into_iter()
                    .map(|n| match (or, n) {
                        (Or::List, Node::Map(m)) => {
                            let mut s = Box::new(Struct::new(of));
                            self.fields(m, &mut s);
                            Node::Struct(s)
                        }
                        (Or::List, Node::Null) => Node::Struct(Box::new(Struct::new(of))),
                        (Or::Strings, n @ Node::Str(_)) => n,
                        (Or::Strings, Node::Null) => Node::Str(Text::default()),
                        (or, n) => {
                            let wanted = match or {
                                Or::List => go_struct(self.report.schema, of),
                                _ => "string".into(),
                            };
                            self.report.stop_mismatch(json_word(&n), &wanted);
                            Node::Null
                        }
                    })
                    .collect(),
            )),
            _ => None,
        };
        self.report.lenient -= 1;
        out
    }
}
