//! Values.

mod convert;
mod number;
mod opaque;
mod order;
mod show;
mod time;

pub(crate) use convert::convert;
pub(crate) use number::{fixed, scientific};
pub use opaque::{Cidr, NamedFormat, Opaque, Semver, Url};
pub(crate) use order::{compare, contains, equal};
pub use show::literal;
pub(crate) use show::plain;
pub use time::Time;
pub(crate) use time::{Fields, MAX_UNIX, MIN_UNIX, duration_text, parse_duration};

use std::fmt;
use std::sync::Arc;

use crate::error::EvalError;

/// A text, of somebody else or shared.
#[derive(Clone)]
pub enum Text<'a> {
    /// A text that lives longer than the evaluation.
    Borrowed(&'a str),
    /// A text that was made.
    Shared(Arc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(s) => s,
            Self::Shared(s) => s,
        }
    }
}
impl From<String> for Text<'_> {
    fn from(s: String) -> Self {
        Self::Shared(s.into())
    }
}
impl<'a> From<&'a str> for Text<'a> {
    fn from(s: &'a str) -> Self {
        Self::Borrowed(s)
    }
}
impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A value. It is cheap to clone.
#[derive(Clone)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A float.
    Double(f64),
    /// A text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list that was made.
    List(Arc<Vec<Value<'a>>>),
    /// A map that was made.
    Map(Arc<MapValue<'a>>),
    /// A list, a map or an object that somebody else has.
    Foreign(Arc<dyn Foreign + 'a>),
    /// An object that an expression made.
    Object(Arc<Made<'a>>),
    /// A point in time.
    Timestamp(Time),
    /// A span of time, in nanoseconds.
    Duration(i64),
    /// A type, by its name.
    Type(Arc<str>),
    /// A value that may be absent.
    Optional(Option<Arc<Value<'a>>>),
    /// A value of a library.
    Opaque(Arc<Opaque>),
}

/// The kinds of values that somebody else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Items by their place.
    List,
    /// Values by texts.
    Map,
    /// Fields by their names.
    Object,
}

/// A list, a map or an object that is read where it is, and never copied first: an item is made a value when an
/// expression asks for it.
pub trait Foreign: Send + Sync {
    /// Which of them it is.
    fn shape(&self) -> Shape;
    /// The number of items or entries.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// An item of a list; `None` beyond its end.
    fn item<'v>(&self, index: usize) -> Result<Option<Value<'v>>, EvalError>
    where
        Self: 'v,
    {
        let _ = index;
        Ok(None)
    }
    /// The value of a key or field; `None` if it is absent.
    fn get<'v>(&self, key: &str) -> Result<Option<Value<'v>>, EvalError>
    where
        Self: 'v,
    {
        let _ = key;
        Ok(None)
    }
    /// The keys of a map, or the names of the fields that an object has.
    fn keys<'v>(&self) -> Vec<Text<'v>>
    where
        Self: 'v,
    {
        Vec::new()
    }
    /// Whether a key is `in` a map; `None` if it is wherever [`Foreign::get`] finds it.
    fn holds(&self, key: &str) -> Option<bool> {
        let _ = key;
        None
    }
    /// The value of a key that expressions do not see, but that counts when values are compared.
    fn hidden<'v>(&self, key: &str) -> Option<Value<'v>>
    where
        Self: 'v,
    {
        let _ = key;
        None
    }
    /// Whether it is equal to another value, where the common rule does not say so.
    fn equals(&self, other: &Value<'_>) -> Option<Result<bool, EvalError>> {
        let _ = other;
        None
    }
    /// The sum with another list, where it is not just one behind the other.
    fn add<'v>(&self, other: &Value<'v>) -> Option<Result<Value<'v>, EvalError>>
    where
        Self: 'v,
    {
        let _ = other;
        None
    }
    /// The name of the type; a list is a `list`, anything else a `map`, if nobody says otherwise.
    fn type_name(&self) -> Arc<str> {
        if self.shape() == Shape::List { "list".into() } else { "map".into() }
    }
}

/// An object that an expression made.
#[derive(Clone)]
pub struct Made<'a> {
    /// The name of its type.
    pub type_name: Arc<str>,
    /// The fields that were set.
    pub fields: Vec<(Arc<str>, Value<'a>)>,
}

/// A map that was made: entries in the order in which they came.
#[derive(Clone, Default)]
pub struct MapValue<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    index: std::collections::HashMap<Key, usize>,
}

/// A key by which entries are found: numbers that are equal are one key.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Bool(bool),
    Int(i128),
    String(Arc<str>),
}

fn key(of: &Value<'_>) -> Option<Key> {
    Some(match of {
        Value::Bool(b) => Key::Bool(*b),
        Value::Int(i) => Key::Int(i128::from(*i)),
        Value::Uint(u) => Key::Int(i128::from(*u)),
        Value::Double(d) if d.fract() == 0.0 && d.abs() < 1e19 => Key::Int(*d as i128),
        Value::String(Text::Shared(s)) => Key::String(s.clone()),
        Value::String(Text::Borrowed(s)) => Key::String((*s).into()),
        _ => return None,
    })
}

/// The number of entries from which a map has an index.
const INDEXED: usize = 9;

impl<'a> MapValue<'a> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &(Value<'a>, Value<'a>)> {
        self.entries.iter()
    }
    fn position(&self, of: &Value<'_>) -> Option<usize> {
        if self.index.is_empty() {
            return self.entries.iter().position(|(k, _)| same_key(k, of));
        }
        self.index.get(&key(of)?).copied()
    }
    /// The value of a key.
    pub fn get(&self, of: &Value<'_>) -> Option<&Value<'a>> {
        self.position(of).map(|i| &self.entries[i].1)
    }
    /// Sets an entry; a key that is there keeps its place.
    pub fn insert(&mut self, of: Value<'a>, value: Value<'a>) -> Result<(), EvalError> {
        let Some(indexed) = key(&of) else { return Err(EvalError::new("unsupported key type")) };
        if let Some(i) = self.position(&of) {
            self.entries[i].1 = value;
            return Ok(());
        }
        self.entries.push((of, value));
        if self.entries.len() == INDEXED {
            let all = self.entries.iter().enumerate();
            self.index = all.filter_map(|(i, (k, _))| Some((key(k)?, i))).collect();
        } else if self.entries.len() > INDEXED {
            self.index.insert(indexed, self.entries.len() - 1);
        }
        Ok(())
    }
    /// Takes an entry away.
    pub fn remove(&mut self, of: &Value<'_>) {
        if let Some(i) = self.position(of) {
            self.entries.remove(i);
            self.index.clear();
            if self.entries.len() >= INDEXED {
                let all = self.entries.iter().enumerate();
                self.index = all.filter_map(|(i, (k, _))| Some((key(k)?, i))).collect();
            }
        }
    }
}

fn same_key(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::String(_), _) | (_, Value::String(_)) => false,
        (a, b) => key(a).is_some_and(|a| key(b) == Some(a)),
    }
}

impl<'a> Value<'a> {
    /// A text that is kept.
    pub fn text(s: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(s.into()))
    }
    /// A list.
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(items))
    }
    /// A value of a library.
    pub fn opaque(of: Opaque) -> Self {
        Self::Opaque(Arc::new(of))
    }
    /// A value that is there.
    pub fn some(of: Self) -> Self {
        Self::Optional(Some(Arc::new(of)))
    }
    /// A list, map or object of somebody else.
    pub fn foreign(of: impl Foreign + 'a) -> Self {
        Self::Foreign(Arc::new(of))
    }

    /// The name of the value's type.
    pub fn type_name(&self) -> Arc<str> {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Foreign(f) => return f.type_name(),
            Self::Object(o) => return o.type_name.clone(),
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Opaque(o) => o.type_name(),
        }
        .into()
    }

    /// The text that `string()` makes of a value, of what it takes.
    pub fn to_text(&self) -> Option<String> {
        match convert(self, &crate::types::Type::String) {
            Ok(Self::String(text)) => Some(text.to_string()),
            _ => None,
        }
    }
    /// Whether it is a list.
    pub fn is_list(&self) -> bool {
        match self {
            Self::List(_) => true,
            Self::Foreign(f) => f.shape() == Shape::List,
            _ => false,
        }
    }
    /// Whether it is a map, or an object of somebody else.
    pub fn is_map(&self) -> bool {
        match self {
            Self::Map(_) => true,
            Self::Foreign(f) => f.shape() != Shape::List,
            _ => false,
        }
    }
    /// The size as `size()` gives it, of what has one.
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::String(s) => Some(s.chars().count()),
            Self::Bytes(b) => Some(b.len()),
            Self::List(l) => Some(l.len()),
            Self::Map(m) => Some(m.len()),
            Self::Foreign(f) => Some(f.len()),
            Self::Opaque(o) => o.size(),
            _ => None,
        }
    }
    /// An item of a list; `None` beyond its end, or of anything else.
    pub fn item(&self, index: usize) -> Result<Option<Value<'a>>, EvalError> {
        match self {
            Self::List(l) => Ok(l.get(index).cloned()),
            Self::Foreign(f) if f.shape() == Shape::List => f.item(index),
            _ => Ok(None),
        }
    }
    /// The items of a list.
    pub fn items(&self) -> Result<Vec<Value<'a>>, EvalError> {
        match self {
            Self::List(l) => Ok(l.to_vec()),
            Self::Foreign(f) if f.shape() == Shape::List => {
                (0..f.len()).filter_map(|i| f.item(i).transpose()).collect()
            }
            _ => Err(EvalError::no_overload()),
        }
    }
    /// The keys of a map.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Map(m) => m.iter().map(|(k, _)| k.clone()).collect(),
            Self::Foreign(f) => f.keys().into_iter().map(Value::String).collect(),
            _ => Vec::new(),
        }
    }
    /// The value of a key of a map; `None` if it is absent, or of anything else.
    pub fn entry(&self, of: &Value<'_>) -> Result<Option<Value<'a>>, EvalError> {
        match (self, of) {
            (Self::Map(m), of) => Ok(m.get(of).cloned()),
            (Self::Foreign(f), Value::String(s)) if f.shape() != Shape::List => f.get(s),
            (Self::Object(o), Value::String(s)) => {
                Ok(o.fields.iter().find(|(n, _)| **n == **s).map(|(_, v)| v.clone()))
            }
            _ => Ok(None),
        }
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&literal(self))
    }
}
