//! Values of objects, read where they are: with a definition as its types say, or without one as JSON.

use base64::Engine;

use crate::error::EvalError;
use crate::value::{Foreign, Shape, Text, Time, Value, equal};

use super::escape::{escape, unescape};
use super::listed::Listed;
use super::types::{Definition, Kind, ListType};

/// A value as JSON has it, of a tree that lives as long as `'t`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tree<'t, J> {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a point.
    Float(f64),
    /// A text.
    Text(&'t str),
    /// A list.
    List(&'t [J]),
    /// An object.
    Object(&'t J),
}

/// A part of a tree of JSON values.
pub trait Json: Sized + Send + Sync + PartialEq + 'static {
    /// Its kind and content.
    fn tree(&self) -> Tree<'_, Self>;
    /// A member of an object.
    fn member(&self, name: &str) -> Option<&Self>;
    /// The names of an object's members.
    fn names(&self) -> Vec<&str>;
    /// The number of an object's members.
    fn count(&self) -> usize;
}

impl Json for serde_json::Value {
    fn tree(&self) -> Tree<'_, Self> {
        match self {
            Self::Null => Tree::Null,
            Self::Bool(b) => Tree::Bool(*b),
            Self::Number(n) => {
                n.as_i64().map_or_else(|| Tree::Float(n.as_f64().unwrap_or_default()), Tree::Int)
            }
            Self::String(s) => Tree::Text(s),
            Self::Array(items) => Tree::List(items),
            Self::Object(_) => Tree::Object(self),
        }
    }
    fn member(&self, name: &str) -> Option<&Self> {
        self.get(name)
    }
    fn names(&self) -> Vec<&str> {
        self.as_object().map(|o| o.keys().map(String::as_str).collect()).unwrap_or_default()
    }
    fn count(&self) -> usize {
        self.as_object().map_or(0, serde_json::Map::len)
    }
}

impl Json for api::Node {
    fn tree(&self) -> Tree<'_, Self> {
        match self {
            Self::Bool(b) => Tree::Bool(*b),
            Self::Int(i) => Tree::Int(*i),
            Self::Float(f) => Tree::Float(*f),
            Self::Str(s) | Self::Raw(s) => Tree::Text(s),
            Self::List(items) => Tree::List(items),
            Self::Map(_) => Tree::Object(self),
            // The fields of a struct have numbers; who has its schema reads it by that.
            Self::Null | Self::Struct(_) => Tree::Null,
        }
    }
    fn member(&self, name: &str) -> Option<&Self> {
        self.as_map()?.get(name)
    }
    fn names(&self) -> Vec<&str> {
        self.as_map().map(|m| m.iter().map(|(k, _)| k.as_str()).collect()).unwrap_or_default()
    }
    fn count(&self) -> usize {
        self.as_map().map_or(0, api::Map::len)
    }
}

/// A value without a definition.
pub fn untyped<J: Json>(of: &J) -> Value<'_> {
    match of.tree() {
        Tree::Null => Value::Null,
        Tree::Bool(b) => Value::Bool(b),
        Tree::Int(i) => Value::Int(i),
        Tree::Float(f) => Value::Double(f),
        Tree::Text(s) => Value::String(Text::Borrowed(s)),
        Tree::List(_) | Tree::Object(_) => Value::foreign(Untyped(of)),
    }
}

struct Untyped<'t, J>(&'t J);

impl<J: Json> Foreign for Untyped<'_, J> {
    fn shape(&self) -> Shape {
        if matches!(self.0.tree(), Tree::List(_)) { Shape::List } else { Shape::Map }
    }
    fn len(&self) -> usize {
        if let Tree::List(items) = self.0.tree() { items.len() } else { self.0.count() }
    }
    fn item<'v>(&self, index: usize) -> Result<Option<Value<'v>>, EvalError>
    where
        Self: 'v,
    {
        let Tree::List(items) = self.0.tree() else { return Ok(None) };
        Ok(items.get(index).map(untyped))
    }
    fn get<'v>(&self, key: &str) -> Result<Option<Value<'v>>, EvalError>
    where
        Self: 'v,
    {
        Ok(self.0.member(key).map(untyped))
    }
    fn keys<'v>(&self) -> Vec<Text<'v>>
    where
        Self: 'v,
    {
        self.0.names().into_iter().map(Text::Borrowed).collect()
    }
}

fn invalid<'t>(text: impl Into<std::borrow::Cow<'static, str>>) -> Result<Value<'t>, EvalError> {
    Err(EvalError::new(text))
}

/// A value as its definition says, which has to be [`Definition::completed`].
/// A value that does not fit it is an error, which an expression meets when it looks there.
pub fn typed<'t, J: Json>(of: &'t J, d: &'t Definition) -> Result<Value<'t>, EvalError> {
    let tree = of.tree();
    if tree == Tree::Null {
        return if d.nullable {
            Ok(Value::Null)
        } else {
            invalid("invalid data, got null for schema with nullable=false")
        };
    }
    if d.int_or_string {
        return match tree {
            Tree::Text(s) => Ok(Value::String(Text::Borrowed(s))),
            Tree::Int(i) => Ok(Value::Int(i)),
            _ => invalid("invalid data, expected XIntOrString value to be either a string or integer"),
        };
    }
    match (d.kind, tree) {
        (Kind::Object, Tree::Object(_)) => Ok(Value::foreign(Typed { of, d })),
        (Kind::Object, _) => invalid("invalid data, expected a map for the provided schema with type=object"),
        (Kind::Array, Tree::List(_)) if d.items.is_some() => Ok(Value::foreign(Typed { of, d })),
        (Kind::Array, Tree::List(_)) => invalid("invalid array type, expected Items with a non-empty Schema"),
        (Kind::Array, _) => {
            invalid("invalid data, expected an array for the provided schema with type=array")
        }
        (Kind::String, Tree::Text(s)) => text(s, &d.format),
        (Kind::Number, Tree::Int(i)) => Ok(Value::Double(i as f64)),
        (Kind::Number, Tree::Float(f)) => Ok(Value::Double(f)),
        (Kind::Integer, Tree::Int(i)) => Ok(Value::Int(i)),
        (Kind::Boolean, Tree::Bool(b)) => Ok(Value::Bool(b)),
        (Kind::None, _) if d.preserve_unknown => Ok(untyped(of)),
        (kind, tree) => {
            let wanted = match kind {
                Kind::String => "string",
                Kind::Number => "float",
                Kind::Integer => "int",
                Kind::Boolean => "bool",
                _ => {
                    return invalid(
                        "invalid type, expected object, array, number, integer, boolean or string, or no type with x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got ",
                    );
                }
            };
            let got = match tree {
                Tree::Null => "<nil>",
                Tree::Bool(_) => "bool",
                Tree::Int(_) => "int64",
                Tree::Float(_) => "float64",
                Tree::Text(_) => "string",
                Tree::List(_) => "[]interface {}",
                Tree::Object(_) => "map[string]interface {}",
            };
            invalid(format!("invalid data, expected {wanted}, got {got}"))
        }
    }
}

fn text<'t>(s: &'t str, format: &str) -> Result<Value<'t>, EvalError> {
    match format {
        "duration" => match crate::value::parse_duration(s) {
            Some(d) => Ok(Value::Duration(d)),
            None => invalid(format!("Invalid duration {s}: unable to parse {s} as duration")),
        },
        "date" => match Time::parse(&format!("{s}T00:00:00Z")) {
            Some(Ok(t)) if s.len() == 10 => Ok(Value::Timestamp(t)),
            _ => invalid(format!("Invalid date formatted string {s}: cannot parse")),
        },
        "date-time" => match Time::parse(s).or_else(|| Time::parse(&format!("{s}Z"))) {
            Some(Ok(t)) => Ok(Value::Timestamp(t)),
            _ => invalid(format!("Invalid date-time formatted string {s}: cannot parse")),
        },
        "byte" => match base64::engine::general_purpose::STANDARD.decode(s) {
            Ok(bytes) => Ok(Value::Bytes(bytes.into())),
            Err(_) => invalid(format!("Invalid byte formatted string {s}: illegal base64 data")),
        },
        _ => Ok(Value::String(Text::Borrowed(s))),
    }
}

/// A list, a map or an object with its definition.
struct Typed<'t, J> {
    of: &'t J,
    d: &'t Definition,
}

impl<'t, J: Json> Typed<'t, J> {
    fn items(&self) -> &'t [J] {
        if let Tree::List(items) = self.of.tree() { items } else { &[] }
    }
    /// Whether names are those of fields.
    fn is_object(&self) -> bool {
        self.d.properties.is_some() || self.d.embedded
    }
    fn property(&self, name: &str) -> Option<&'t Definition> {
        match &self.d.properties {
            Some(all) => all.iter().find(|(n, _)| &**n == name).map(|(_, d)| &**d),
            None => self.d.additional.as_deref(),
        }
    }
}

impl<J: Json> Foreign for Typed<'_, J> {
    fn shape(&self) -> Shape {
        match self.d.kind {
            Kind::Array => Shape::List,
            _ if self.is_object() => Shape::Object,
            _ => Shape::Map,
        }
    }
    fn len(&self) -> usize {
        if self.d.kind == Kind::Array { self.items().len() } else { self.of.count() }
    }
    fn item<'v>(&self, index: usize) -> Result<Option<Value<'v>>, EvalError>
    where
        Self: 'v,
    {
        match (self.items().get(index), &self.d.items) {
            (Some(item), Some(d)) => typed(item, d).map(Some),
            _ => Ok(None),
        }
    }
    fn get<'v>(&self, key: &str) -> Result<Option<Value<'v>>, EvalError>
    where
        Self: 'v,
    {
        let name = if self.is_object() { unescape(key) } else { Some(key.to_owned()) };
        let Some(name) = name else { return Ok(None) };
        let Some(member) = self.of.member(&name) else { return Ok(None) };
        // A field that is `null` is not there.
        if self.is_object() && member.tree() == Tree::Null {
            return Ok(None);
        }
        self.property(&name).map(|d| typed(member, d)).transpose()
    }
    fn keys<'v>(&self) -> Vec<Text<'v>>
    where
        Self: 'v,
    {
        let known = self.of.names().into_iter().filter(|n| self.property(n).is_some());
        if self.is_object() {
            known.map(|n| escape(n).map_or(Text::Borrowed(n), Text::from)).collect()
        } else {
            known.map(Text::Borrowed).collect()
        }
    }

    fn hidden<'v>(&self, key: &str) -> Option<Value<'v>>
    where
        Self: 'v,
    {
        self.of.member(key).map(untyped)
    }

    fn equals(&self, other: &Value<'_>) -> Option<Result<bool, EvalError>> {
        if self.d.kind != Kind::Array {
            return Some(self.same_fields(other));
        }
        if !other.is_list() {
            return Some(Err(EvalError::no_overload()));
        }
        if self.d.list_type == ListType::Atomic {
            return None;
        }
        Some(self.listed().and_then(|own| own.same(other)))
    }

    fn add<'v>(&self, other: &Value<'v>) -> Option<Result<Value<'v>, EvalError>>
    where
        Self: 'v,
    {
        if self.d.list_type == ListType::Atomic {
            return None;
        }
        Some(self.listed().and_then(|own| own.merged(other)))
    }
}

impl<J: Json> Typed<'_, J> {
    fn listed<'v>(&self) -> Result<Listed<'v>, EvalError>
    where
        Self: 'v,
    {
        let all = (0..self.items().len()).filter_map(|i| self.item(i).transpose());
        Ok(Listed::new(all.collect::<Result<_, _>>()?, self.d))
    }

    /// Whether another object has the same fields. Those that are not defined are compared as they are.
    fn same_fields(&self, other: &Value<'_>) -> Result<bool, EvalError> {
        if !other.is_map() {
            return Err(EvalError::no_overload());
        }
        if Some(self.len()) != other.size() {
            return Ok(false);
        }
        for name in self.of.names() {
            if self.property(name).is_some() {
                match (self.get(name)?, other.entry(&Value::String(Text::Borrowed(name)))?) {
                    (None, None) => {}
                    (Some(a), Some(b)) if equal(&a, &b)? => {}
                    _ => return Ok(false),
                }
                continue;
            }
            let Value::Foreign(of) = other else { return Err(EvalError::no_overload()) };
            if let (Some(a), Some(b)) = (self.hidden(name), of.hidden(name))
                && !equal(&a, &b)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
