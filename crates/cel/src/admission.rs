//! The environments of admission policies, of match conditions, and of selectors of devices, besides the
//! libraries (`k8s.io/apiserver/pkg/admission/plugin/cel`, `k8s.io/dynamic-resource-allocation/cel`).

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::environment::{CompileError, Environment, Version};
use crate::program::Program;
use crate::types::{Objects, Type};

/// The fields of objects: the object, the field, its type.
type Table = &'static [(&'static str, &'static str, fn() -> Type)];

const fn text() -> Type {
    Type::String
}
fn texts() -> Type {
    Type::list(Type::String)
}
fn labels() -> Type {
    Type::map(Type::String, Type::String)
}

const REQUEST: Table = &[
    ("kubernetes.AdmissionRequest", "kind", || Type::object("kubernetes.GroupVersionKind")),
    ("kubernetes.AdmissionRequest", "resource", || Type::object("kubernetes.GroupVersionResource")),
    ("kubernetes.AdmissionRequest", "subResource", text),
    ("kubernetes.AdmissionRequest", "requestKind", || Type::object("kubernetes.GroupVersionKind")),
    ("kubernetes.AdmissionRequest", "requestResource", || Type::object("kubernetes.GroupVersionResource")),
    ("kubernetes.AdmissionRequest", "requestSubResource", text),
    ("kubernetes.AdmissionRequest", "name", text),
    ("kubernetes.AdmissionRequest", "namespace", text),
    ("kubernetes.AdmissionRequest", "operation", text),
    ("kubernetes.AdmissionRequest", "userInfo", || Type::object("kubernetes.UserInfo")),
    ("kubernetes.AdmissionRequest", "dryRun", || Type::Bool),
    ("kubernetes.AdmissionRequest", "options", || Type::Dyn),
    ("kubernetes.GroupVersionKind", "group", text),
    ("kubernetes.GroupVersionKind", "version", text),
    ("kubernetes.GroupVersionKind", "kind", text),
    ("kubernetes.GroupVersionResource", "group", text),
    ("kubernetes.GroupVersionResource", "version", text),
    ("kubernetes.GroupVersionResource", "resource", text),
    ("kubernetes.UserInfo", "username", text),
    ("kubernetes.UserInfo", "uid", text),
    ("kubernetes.UserInfo", "groups", texts),
    ("kubernetes.UserInfo", "extra", || Type::map(Type::String, texts())),
    ("kubernetes.Namespace", "metadata", || Type::object("kubernetes.NamespaceMetadata")),
    ("kubernetes.Namespace", "spec", || Type::object("kubernetes.NamespaceSpec")),
    ("kubernetes.Namespace", "status", || Type::object("kubernetes.NamespaceStatus")),
    ("kubernetes.NamespaceSpec", "finalizers", texts),
    ("kubernetes.NamespaceStatus", "conditions", || {
        Type::list(Type::object("kubernetes.NamespaceCondition"))
    }),
    ("kubernetes.NamespaceStatus", "phase", text),
    ("kubernetes.NamespaceCondition", "status", text),
    ("kubernetes.NamespaceCondition", "type", text),
    ("kubernetes.NamespaceCondition", "lastTransitionTime", || Type::Timestamp),
    ("kubernetes.NamespaceCondition", "message", text),
    ("kubernetes.NamespaceCondition", "reason", text),
    ("kubernetes.NamespaceMetadata", "name", text),
    ("kubernetes.NamespaceMetadata", "generateName", text),
    ("kubernetes.NamespaceMetadata", "namespace", text),
    ("kubernetes.NamespaceMetadata", "labels", labels),
    ("kubernetes.NamespaceMetadata", "annotations", labels),
    ("kubernetes.NamespaceMetadata", "UID", text),
    ("kubernetes.NamespaceMetadata", "creationTimestamp", || Type::Timestamp),
    ("kubernetes.NamespaceMetadata", "deletionGracePeriodSeconds", || Type::Int),
    ("kubernetes.NamespaceMetadata", "deletionTimestamp", || Type::Timestamp),
    ("kubernetes.NamespaceMetadata", "generation", || Type::Int),
    ("kubernetes.NamespaceMetadata", "resourceVersion", text),
    ("kubernetes.NamespaceMetadata", "finalizers", texts),
];

const DEVICE: Table = &[
    ("kubernetes.DRADevice", "driver", text),
    ("kubernetes.DRADevice", "allowMultipleAllocations", || Type::Bool),
    ("kubernetes.DRADevice", "attributes", || by_domain(Type::Any)),
    ("kubernetes.DRADevice", "capacity", || by_domain(Type::object("kubernetes.Quantity"))),
];

/// Attributes and capacities stand below their domain.
fn by_domain(value: Type) -> Type {
    Type::map(Type::String, Type::map(Type::String, value))
}

/// The greatest length of a driver's name and of a domain.
const LONGEST_DOMAIN: u64 = 63;
/// The greatest length of an attribute's or capacity's name, and the most that a device has of them.
const LONGEST_ID: u64 = 32;
/// The greatest length of an attribute's value.
const LONGEST_VALUE: u64 = 64;

/// A device. Its attributes and capacities are bounded, so the costs of expressions are, too.
#[derive(Debug)]
struct Device;

impl Objects for Device {
    fn has(&self, name: &str) -> bool {
        name == "kubernetes.DRADevice"
    }
    fn field(&self, name: &str, field: &str) -> Option<Type> {
        Fixed(DEVICE).field(name, field)
    }
    fn size(&self, path: &[&str]) -> Option<u64> {
        let ["device", rest @ ..] = path else { return None };
        match rest {
            ["driver"] | ["attributes" | "capacity", "@keys"] => Some(LONGEST_DOMAIN),
            ["allowMultipleAllocations"] => Some(1),
            ["attributes" | "capacity"]
            | ["attributes" | "capacity", "@values" | "@items"]
            | ["attributes" | "capacity", "@values" | "@items", "@keys"] => Some(LONGEST_ID),
            ["attributes", "@values" | "@items", _] => Some(LONGEST_VALUE),
            [] | ["capacity", "@values" | "@items", "@values" | "@items"] => Some(0),
            _ => None,
        }
    }
}

/// Objects whose fields are in a table.
#[derive(Debug)]
struct Fixed(Table);

impl Objects for Fixed {
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(object, ..)| *object == name)
    }
    fn field(&self, name: &str, field: &str) -> Option<Type> {
        self.0.iter().find(|(o, f, _)| *o == name && *f == field).map(|(.., ty)| ty())
    }
}

/// The objects that mutations make: `Object`, its fields as `Object.spec`, and `JSONPatch`.
#[derive(Debug)]
struct Mutations;

impl Objects for Mutations {
    fn has(&self, name: &str) -> bool {
        name == "JSONPatch" || name == "Object" || name.starts_with("Object.")
    }
    fn field(&self, name: &str, field: &str) -> Option<Type> {
        match (name, field) {
            ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
            ("JSONPatch", "value") => Some(Type::Dyn),
            ("JSONPatch", _) => None,
            _ => Some(Type::Dyn),
        }
    }
}

/// The variables that a policy defines, as fields of `variables`. One that is added is there for every expression that
/// is compiled later.
#[derive(Debug, Default)]
pub struct Composed(RwLock<HashMap<String, Type>>);

/// The type of a variable as those that use it see it: upstream knows only plain types, lists and maps there.
fn kept(ty: &Type) -> Type {
    match ty {
        Type::Any
        | Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => ty.clone(),
        Type::List(of) => Type::list(kept(of)),
        Type::Map(of) => Type::map(kept(&of.0), kept(&of.1)),
        _ => Type::Dyn,
    }
}

/// Upstream's complaint about the type of an expression that should have one of these; any is wanted if none is named.
pub fn mismatch(found: &Type, wanted: &[Type]) -> Option<String> {
    if wanted.is_empty() || wanted.contains(found) {
        return None;
    }
    let names: Vec<String> = wanted.iter().map(Type::long_name).collect();
    let got = found.long_name();
    Some(match &names[..] {
        [one] => format!("must evaluate to {one} but got {got}"),
        all => format!("must evaluate to one of [{}] but got {got}", all.join(" ")),
    })
}

/// The type of `variables`.
const VARIABLES: &str = "kubernetes.variables";

impl Composed {
    /// Adds a variable.
    pub fn add(&self, name: &str, ty: Type) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), kept(&ty));
    }
}

impl Objects for Composed {
    fn has(&self, name: &str) -> bool {
        name == VARIABLES
    }
    fn field(&self, _: &str, field: &str) -> Option<Type> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(field).cloned()
    }
}

/// The parts of an environment for admission that not every place has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Parts {
    /// `params`.
    pub params: bool,
    /// `authorizer`.
    pub authorizer: bool,
    /// `Object{}`, `JSONPatch{}` and the functions for patches.
    pub mutations: bool,
}

/// The environment of policies and of match conditions.
pub fn admission(version: Version, parts: Parts) -> Environment {
    let mut env = Environment::new(version)
        .with_variable("object", Type::Dyn)
        .with_variable("oldObject", Type::Dyn)
        .with_variable("namespaceObject", Type::object("kubernetes.Namespace"))
        .with_variable("request", Type::object("kubernetes.AdmissionRequest"))
        .with_objects(Arc::new(Fixed(REQUEST)));
    if parts.params {
        env = env.with_variable("params", Type::Dyn);
    }
    if parts.authorizer {
        env = env
            .with_variable("authorizer", Type::object("kubernetes.authorization.Authorizer"))
            .with_variable(
                "authorizer.requestResource",
                Type::object("kubernetes.authorization.ResourceCheck"),
            );
    }
    if parts.mutations {
        env = env.with_objects(Arc::new(Mutations)).with_json_patch();
    }
    env
}

/// Adds `variables` to an environment.
pub fn with_composed(env: Environment, variables: Arc<Composed>) -> Environment {
    env.with_variable("variables", Type::object(VARIABLES)).with_objects(variables)
}

/// The environment of selectors of devices.
pub fn device(version: Version) -> Environment {
    Environment::new(version)
        .with_variable("device", Type::object("kubernetes.DRADevice"))
        .with_objects(Arc::new(Device))
        .with_bindings()
}

/// Compiles a selector of devices, which is a boolean, or an attribute that may be one.
///
/// # Errors
/// In upstream's words, if it is none.
pub fn selector(env: &Environment, expression: &str) -> Result<Program, String> {
    let program = env.compile(expression).map_err(|e| match e {
        CompileError::Issues(issues) => format!("compilation failed: {issues}"),
        CompileError::Constant(text) => format!("program instantiation failed: {text}"),
    })?;
    match program.result_type() {
        Type::Bool | Type::Any => Ok(program),
        other => Err(format!("must evaluate to bool or the unknown type, not {}", other.long_name())),
    }
}

/// The most that a selector of devices may cost (upstream's `CELSelectorExpressionMaxCost`).
pub const SELECTOR_COST: u64 = 1_000_000;
