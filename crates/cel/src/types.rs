//! Types.

use std::fmt;
use std::sync::Arc;

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// `true` and `false`.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// An unsigned integer of 64 bits.
    Uint,
    /// A float of 64 bits.
    Double,
    /// A text.
    String,
    /// Bytes.
    Bytes,
    /// The type of `null`.
    Null,
    /// A point in time.
    Timestamp,
    /// A span of time.
    Duration,
    /// A type that is known only when the expression is evaluated.
    Dyn,
    /// Like [`Type::Dyn`], but not iterable.
    Any,
    /// The type of what has no type because of an error that was reported.
    Error,
    /// A list of one type.
    List(Arc<Type>),
    /// A map of a key's type to a value's.
    Map(Arc<(Type, Type)>),
    /// The type of a type, if it is known.
    Type(Option<Arc<Type>>),
    /// A type of a library with parameters, such as `optional_type`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// An object whose fields somebody else knows.
    Object(Arc<str>),
    /// A parameter in the declaration of a function.
    Param(char),
    /// A parameter that the checker has to find out.
    Var(u32),
}

/// The name of the type of optional values.
pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    /// A list of a type.
    pub fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }
    /// A map.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }
    /// An optional value.
    pub fn optional(of: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), Arc::new([of]))
    }
    /// An object by the name of its type.
    pub fn object(name: &str) -> Self {
        Self::Object(name.into())
    }
    /// The type of a type.
    pub fn type_of(of: Self) -> Self {
        Self::Type(Some(Arc::new(of)))
    }
    /// The types that this one is made of.
    pub fn parameters(&self) -> Vec<&Self> {
        match self {
            Self::List(of) | Self::Type(Some(of)) => vec![of],
            Self::Map(of) => vec![&of.0, &of.1],
            Self::Opaque(_, of) => of.iter().collect(),
            _ => Vec::new(),
        }
    }
    /// The type inside an optional one.
    pub fn unwrap_optional(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, of) if &**name == OPTIONAL => of.first(),
            _ => None,
        }
    }
    /// Whether values of any type may stand here.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }
    /// Whether the size of a value is always one.
    pub fn is_scalar(&self) -> bool {
        matches!(self, Self::Bool | Self::Double | Self::Duration | Self::Int | Self::Timestamp | Self::Uint)
            || self.unwrap_optional().is_some_and(Self::is_scalar)
    }
    /// The name of the type without its parameters, as values tell it.
    pub fn runtime_name(&self) -> String {
        match self {
            Self::Bool => "bool".into(),
            Self::Int => "int".into(),
            Self::Uint => "uint".into(),
            Self::Double => "double".into(),
            Self::String => "string".into(),
            Self::Bytes => "bytes".into(),
            Self::Null => "null_type".into(),
            Self::Timestamp => "google.protobuf.Timestamp".into(),
            Self::Duration => "google.protobuf.Duration".into(),
            Self::Dyn => "dyn".into(),
            Self::Any => "google.protobuf.Any".into(),
            Self::Error => "error".into(),
            Self::List(_) => "list".into(),
            Self::Map(_) => "map".into(),
            Self::Type(_) => "type".into(),
            Self::Opaque(name, _) | Self::Object(name) => name.to_string(),
            Self::Param(p) => p.to_string(),
            Self::Var(n) => format!("_var{n}"),
        }
    }
    /// The type as upstream prints the result of an expression: by the names that values tell.
    pub fn long_name(&self) -> String {
        let name = match self {
            Self::Param(_) | Self::Var(_) => format!("<{}>", self.runtime_name()),
            other => other.runtime_name(),
        };
        let inner: Vec<String> = self.parameters().iter().map(|t| t.long_name()).collect();
        if inner.is_empty() { name } else { format!("{name}({})", inner.join(", ")) }
    }
}

/// The type as complaints print it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            other => {
                f.write_str(&other.runtime_name())?;
                let inner = self.parameters();
                for (i, t) in inner.iter().enumerate() {
                    write!(f, "{}{t}", if i == 0 { "(" } else { ", " })?;
                }
                f.write_str(if inner.is_empty() { "" } else { ")" })
            }
        }
    }
}

/// Knows the objects that an environment has, by the names of their types. A look at a field is made when an expression
/// names it, so nothing has to be there before.
pub trait Objects: fmt::Debug + Send + Sync {
    /// Whether there is a type of this name.
    fn has(&self, name: &str) -> bool;
    /// The type of a field.
    fn field(&self, name: &str, field: &str) -> Option<Type>;
    /// The greatest size of the value at a path from a variable, whose name comes first; `@items`, `@keys` and
    /// `@values` are the parts of lists and maps. `None` says nothing.
    fn size(&self, path: &[&str]) -> Option<u64> {
        let _ = path;
        None
    }
    /// Whether an expression may make an object of this type.
    fn makes(&self, name: &str) -> bool {
        let _ = name;
        false
    }
}
