//! The names that an expression may use.

use std::sync::Arc;

use crate::functions::{self, JSON_PATCH, Overload};
use crate::parse::MacroSet;
use crate::types::{Objects, Type};

/// Everything that an expression may use: what a version of Kubernetes brings, and what the place adds.
#[derive(Debug, Clone)]
pub(crate) struct Declarations {
    /// The minor version of Kubernetes.
    pub(crate) minor: u32,
    pub(crate) variables: Vec<(Arc<str>, Type)>,
    pub(crate) objects: Vec<Arc<dyn Objects>>,
    /// Whether `cel.bind` is there.
    pub(crate) bindings: bool,
    /// Whether the functions for JSON patches are there.
    pub(crate) json_patch: bool,
}

/// Types of values that have a name in expressions, and the version that brought them.
const NAMED: &[(&str, u32, fn() -> Type)] = &[
    ("bool", 0, || Type::Bool),
    ("bytes", 0, || Type::Bytes),
    ("double", 0, || Type::Double),
    ("google.protobuf.Duration", 0, || Type::Duration),
    ("int", 0, || Type::Int),
    ("list", 0, || Type::list(Type::Dyn)),
    ("map", 0, || Type::map(Type::Dyn, Type::Dyn)),
    ("null_type", 0, || Type::Null),
    ("string", 0, || Type::String),
    ("google.protobuf.Timestamp", 0, || Type::Timestamp),
    ("type", 0, || Type::Type(None)),
    ("uint", 0, || Type::Uint),
    ("optional_type", 28, || Type::optional(Type::Dyn)),
    ("net.IP", 30, || Type::Opaque("net.IP".into(), [].into())),
    ("net.CIDR", 30, || Type::Opaque("net.CIDR".into(), [].into())),
];

impl Declarations {
    pub(crate) fn macros(&self) -> MacroSet {
        MacroSet {
            optionals: self.minor >= 28,
            two_variables: self.minor >= 32,
            bindings: self.bindings,
            sort: self.minor >= 34,
        }
    }
    /// The type of a variable.
    pub(crate) fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.iter().find(|(n, _)| &**n == name).map(|(_, t)| t)
    }
    /// The type that a name stands for.
    pub(crate) fn named_type(&self, name: &str) -> Option<Type> {
        if self.has_object(name) {
            return Some(Type::object(name));
        }
        NAMED.iter().find(|(n, since, _)| *n == name && *since <= self.minor).map(|(_, _, of)| of())
    }
    pub(crate) fn has_object(&self, name: &str) -> bool {
        self.objects.iter().any(|o| o.has(name))
    }
    /// The type of a field of an object.
    pub(crate) fn field(&self, object: &str, field: &str) -> Option<Type> {
        self.objects.iter().find(|o| o.has(object)).and_then(|o| o.field(object, field))
    }
    /// The greatest size of the value at a path.
    pub(crate) fn size(&self, path: &[&str]) -> Option<u64> {
        self.objects.iter().find_map(|o| o.size(path))
    }
    fn includes(&self, o: &Overload) -> bool {
        o.since <= self.minor || o.since == JSON_PATCH && self.json_patch
    }
    /// The overloads of a function, of which there is one at least.
    pub(crate) fn function(&self, name: &str) -> Option<(&'static str, Vec<&'static Overload>)> {
        let (name, all) = functions::find(name)?;
        let all: Vec<_> = all.iter().filter(|o| self.includes(o)).collect();
        if all.is_empty() { None } else { Some((name, all)) }
    }
}
