//! Definitions: one for each struct, and one for each type with a form of its own.

use std::collections::BTreeSet;

use super::custom::CustomKinds;
use super::{Dialect, object, strings};
use crate::schema::{AnyKind, Field, ListKind, Mark, Or, Schema, StructId, StructType, Type, TypeId};
use crate::tree::{Map, Node, Text};

/// Looks up a description: of a definition, or of one of its fields.
pub type Docs<'a> = dyn Fn(&str, Option<&str>) -> Option<&'a str> + 'a;

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const DURATION: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Duration";
const FIELDS_V1: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";
const OR_BOOL: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool";
const OR_LIST: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray";
const OR_STRINGS: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray";

/// A reference to a definition.
pub(super) fn reference(dialect: Dialect, name: &str) -> Node {
    let at = match dialect {
        Dialect::V2 => "#/definitions/",
        Dialect::V3 => "#/components/schemas/",
    };
    object([("$ref", format!("{at}{name}").into())])
}

/// The definitions of `needed` names and of the names to which they refer.
pub(super) fn all(
    (schema, custom): (&Schema, &CustomKinds),
    needed: BTreeSet<Text>,
    dialect: Dialect,
    versions: &[(Text, Text)],
    docs: &Docs<'_>,
) -> Node {
    let mut out = Map::new();
    let mut queue: Vec<Text> = needed.into_iter().collect();
    let mut done = BTreeSet::new();
    while let Some(name) = queue.pop() {
        if !done.insert(name.clone()) {
            continue;
        }
        let mut node = match schema.named(&name) {
            Some(id) => structure(schema, id, dialect, versions, docs, &mut queue),
            None => match custom.definition(&name, dialect, docs) {
                Some((node, refers)) => {
                    queue.extend(refers);
                    node
                }
                None => own_form(&name, dialect),
            },
        };
        if let (Some(text), Some(m)) = (docs(&name, None), node.as_map_mut()) {
            m.insert("description", text);
        }
        out.insert(name, node);
    }
    out.into()
}

fn own_form(name: &str, dialect: Dialect) -> Node {
    let one_of = |types: [&str; 2]| Node::List(types.map(|t| object([("type", t.into())])).into());
    match (name, dialect) {
        (QUANTITY, Dialect::V3) => object([("oneOf", one_of(["string", "number"]))]),
        (QUANTITY | DURATION, _) => object([("type", "string".into())]),
        (INT_OR_STRING, Dialect::V3) => {
            object([("format", "int-or-string".into()), ("oneOf", one_of(["integer", "string"]))])
        }
        (INT_OR_STRING, Dialect::V2) => {
            object([("format", "int-or-string".into()), ("type", "string".into())])
        }
        (TIME | MICRO_TIME, _) => object([("format", "date-time".into()), ("type", "string".into())]),
        (FIELDS_V1 | RAW_EXTENSION, _) => object([("type", "object".into())]),
        _ => object([]),
    }
}

fn structure(
    schema: &Schema,
    id: StructId,
    dialect: Dialect,
    versions: &[(Text, Text)],
    docs: &Docs<'_>,
    queue: &mut Vec<Text>,
) -> Node {
    let st = schema.st(id);
    let mut out = Map::new();
    out.insert("type", "object");
    let mut properties = Map::new();
    for field in &st.fields {
        let description = docs(&st.name, Some(&field.json));
        properties.insert(field.json.clone(), property(schema, field, dialect, description, queue));
    }
    if !properties.is_empty() {
        out.insert("properties", properties);
    }
    let required: Vec<&str> = st.fields.iter().filter(|f| f.required).map(|f| f.json.as_str()).collect();
    if !required.is_empty() {
        out.insert("required", strings(required));
    }
    let kinds = kinds(schema, id, versions);
    if !kinds.is_empty() {
        out.insert("x-kubernetes-group-version-kind", kinds);
    }
    if st.atomic {
        out.insert("x-kubernetes-map-type", "atomic");
    }
    if let Some(union) = unions(st) {
        out.insert("x-kubernetes-unions", union);
    }
    out.into()
}

/// The groups, versions and kinds of a struct. Options and watch events are kinds of every group version.
fn kinds(schema: &Schema, id: StructId, versions: &[(Text, Text)]) -> Vec<Node> {
    let entry = |group: &str, version: &str, kind: &str| {
        object([("group", group.into()), ("version", version.into()), ("kind", kind.into())])
    };
    let mut own: Vec<_> =
        schema.kinds().filter(|(g, s)| *s == id && g.group != "meta.k8s.io").map(|(g, _)| g).collect();
    own.sort();
    let everywhere =
        own.iter().find(|g| g.group.is_empty() && (g.kind.ends_with("Options") || g.kind == "WatchEvent"));
    match everywhere {
        Some(g) if schema.st(id).name.starts_with("io.k8s.apimachinery.") => {
            versions.iter().map(|(group, version)| entry(group, version, &g.kind)).collect()
        }
        _ => own.iter().map(|g| entry(&g.group, &g.version, &g.kind)).collect(),
    }
}

fn unions(st: &StructType) -> Option<Node> {
    let union = st.union.as_ref()?;
    let mut members = Map::new();
    for (no, value) in &union.members {
        members.insert(st.at(*no).json.clone(), value.clone());
    }
    let mut out = Map::new();
    if let Some(no) = union.discriminator {
        out.insert("discriminator", st.at(no).json.clone());
    }
    out.insert("fields-to-discriminateBy", members);
    Some(Node::List(vec![out.into()]))
}

/// The name of the definition to which a type refers, if it refers to one.
fn definition(schema: &Schema, ty: TypeId) -> Option<Text> {
    Some(match schema.ty(ty) {
        Type::Struct(id) => schema.st(*id).name.clone(),
        Type::Quantity => QUANTITY.into(),
        Type::IntOrString => INT_OR_STRING.into(),
        Type::Time => TIME.into(),
        Type::MicroTime => MICRO_TIME.into(),
        Type::Duration => DURATION.into(),
        Type::Any(AnyKind::Json) => JSON.into(),
        Type::Any(AnyKind::RawExtension) => RAW_EXTENSION.into(),
        Type::Any(AnyKind::FieldsV1) => FIELDS_V1.into(),
        Type::Or { or: Or::Bool, .. } => OR_BOOL.into(),
        Type::Or { or: Or::List, .. } => OR_LIST.into(),
        Type::Or { or: Or::Strings, .. } => OR_STRINGS.into(),
        _ => return None,
    })
}

/// A type where it stands alone: an element, a map's value, or a property without its extensions.
pub(super) fn plain(schema: &Schema, ty: TypeId, dialect: Dialect, queue: &mut Vec<Text>) -> Node {
    if let Some(name) = definition(schema, ty) {
        queue.push(name.clone());
        return reference(dialect, &name);
    }
    let scalar = |ty: &str, format: &str| object([("type", ty.into()), ("format", format.into())]);
    match schema.ty(ty) {
        Type::Bool => object([("type", "boolean".into())]),
        Type::Int32 => scalar("integer", "int32"),
        Type::Int64 => scalar("integer", "int64"),
        Type::Float64 => scalar("number", "double"),
        Type::Bytes => scalar("string", "byte"),
        Type::List { of, .. } => {
            object([("type", "array".into()), ("items", plain(schema, *of, dialect, queue))])
        }
        Type::Map { of, .. } => {
            object([("type", "object".into()), ("additionalProperties", plain(schema, *of, dialect, queue))])
        }
        Type::Any(_) => object([("type", "object".into())]),
        _ => object([("type", "string".into())]),
    }
}

fn property(
    schema: &Schema,
    field: &Field,
    dialect: Dialect,
    description: Option<&str>,
    queue: &mut Vec<Text>,
) -> Node {
    let base = plain(schema, field.ty, dialect, queue);
    let Node::Map(mut out) = base else { return base };
    let mut more = Map::new();
    if let Some(d) = description {
        more.insert("description", d);
    }
    if dialect == Dialect::V3
        && let Some(d) = default(schema, field)
    {
        more.insert("default", d);
    }
    match schema.ty(field.ty) {
        Type::List { of, kind } => match kind {
            ListKind::Set => {
                more.insert("x-kubernetes-list-type", "set");
            }
            ListKind::Map(keys) => {
                more.insert("x-kubernetes-list-type", "map");
                if let Type::Struct(id) = schema.ty(*of) {
                    let names = keys.iter().map(|k| schema.st(*id).at(*k).json.as_str());
                    more.insert("x-kubernetes-list-map-keys", strings(names));
                }
            }
            ListKind::Atomic => {
                if field.mark == Some(Mark::Atomic) {
                    more.insert("x-kubernetes-list-type", "atomic");
                }
            }
        },
        Type::Bytes => {
            if field.mark == Some(Mark::Atomic) {
                more.insert("x-kubernetes-list-type", "atomic");
            }
        }
        _ => match field.mark {
            Some(Mark::Atomic) => {
                more.insert("x-kubernetes-map-type", "atomic");
            }
            Some(Mark::Granular) => {
                more.insert("x-kubernetes-map-type", "granular");
            }
            None => {}
        },
    }
    patch(schema, field, &mut more);
    if !field.values.is_empty() {
        let values = strings(field.values.iter().map(Text::as_str));
        let inner = ["items", "additionalProperties"].into_iter().find(|i| out.get(i).is_some());
        match inner.and_then(|i| out.get_mut(i)).and_then(Node::as_map_mut) {
            Some(inner) => inner.insert("enum", values),
            None => out.insert("enum", values),
        };
    }
    if out.get("$ref").is_some() && dialect == Dialect::V3 && !more.is_empty() {
        more.insert("allOf", Node::List(vec![out.into()]));
        return more.into();
    }
    for (key, value) in more.into_entries() {
        out.insert(key, value);
    }
    out.into()
}

fn patch(schema: &Schema, field: &Field, out: &mut Map) {
    let p = &field.patch;
    let strategies: Vec<&str> = [(p.merge, "merge"), (p.replace, "replace"), (p.retain_keys, "retainKeys")]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
        .collect();
    if !strategies.is_empty() {
        out.insert("x-kubernetes-patch-strategy", strategies.join(","));
    }
    if let (Some(key), Type::List { of, .. }) = (p.merge_key, schema.ty(field.ty))
        && let Type::Struct(id) = schema.ty(*of)
    {
        out.insert("x-kubernetes-patch-merge-key", schema.st(*id).at(key).json.clone());
    }
}

/// The declared default, or the zero value that a field which is always written has.
fn default(schema: &Schema, field: &Field) -> Option<Node> {
    if let Some(text) = &field.default {
        return crate::codec::json::decode_any(text.as_bytes()).ok();
    }
    if field.pointer || field.omitempty {
        return None;
    }
    match schema.ty(field.ty) {
        Type::Bool => Some(Node::Bool(false)),
        Type::Int32 | Type::Int64 => Some(Node::Int(0)),
        Type::Float64 => Some(Node::Float(0.0)),
        Type::String => Some(Node::Str(Text::default())),
        Type::Struct(_) => Some(Node::Map(Map::new())),
        _ => None,
    }
}
