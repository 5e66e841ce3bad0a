//! Conversions between the versions of a kind that are served and the one that is stored.

pub(crate) mod apps;
mod autoscaling;
mod resource;

use api::schema::Gvk;
use api::{Node, Schema, Struct, StructId};

/// Why a tree cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("converting ({from}) to ({to}): unknown conversion")]
pub struct NoConversion {
    from: String,
    to: String,
}

/// What upstream does to a decoded object beyond its schema when it reads it into its internal type: it
/// may refuse it, or write it in another way. The error is upstream's text.
pub fn settle(schema: &Schema, kind: &Gvk, object: &mut Struct) -> Result<(), String> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "DaemonSet" | "Deployment") => apps::settle(schema, &kind.kind, object),
        _ => Ok(()),
    }
}

/// The annotation of a resource that upstream's internal type has a field for, so that forms made of that
/// type's metadata lack it.
pub fn field_annotation(group: &str, resource: &str) -> Option<&'static str> {
    if group == "apps" { apps::field_annotation(resource) } else { None }
}

/// Core and `events.k8s.io` names of an Event's fields, where they differ.
const EVENT: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts a tree of one version into another.
pub fn convert(schema: &Schema, tree: Struct, from: &Gvk, to: &Gvk) -> Result<Struct, NoConversion> {
    if from == to {
        return Ok(tree);
    }
    let name = |g: &Gvk| format!("{}, Kind={}", g.api_version(), g.kind);
    let none = || NoConversion { from: name(from), to: name(to) };
    let root = schema.kind(to).ok_or_else(none)?;
    match (from.kind.as_str(), from.group.as_str(), to.group.as_str()) {
        ("Event", "", "events.k8s.io") => Ok(renamed(schema, &tree, root, &|name| {
            EVENT.iter().find(|e| e.0 == name).map_or(name.to_owned(), |e| e.1.to_owned())
        })),
        ("Event", "events.k8s.io", "") => Ok(renamed(schema, &tree, root, &|name| {
            EVENT.iter().find(|e| e.1 == name).map_or(name.to_owned(), |e| e.0.to_owned())
        })),
        ("HorizontalPodAutoscaler", _, _) if to.version == "v2" => {
            Ok(autoscaling::to_v2(schema, &tree, root))
        }
        ("HorizontalPodAutoscaler", _, _) if to.version == "v1" => {
            Ok(autoscaling::to_v1(schema, &tree, root))
        }
        _ if from.group == to.group && from.kind == to.kind => {
            Ok(renamed(schema, &tree, root, &|name| name.to_owned()))
        }
        _ => Err(none()),
    }
}

/// A tree of another struct type with the same fields, but for the names of the outermost.
fn renamed(schema: &Schema, tree: &Struct, to: StructId, name: &dyn Fn(&str) -> String) -> Struct {
    let mut out = Struct::new(to);
    let from = schema.st(tree.id);
    for (no, node) in tree.iter() {
        let target = name(&from.at(no).json);
        let Some(at) = schema.st(to).field(&target) else { continue };
        let ty = schema.st(to).at(at).ty;
        out.set(at, retyped(schema, node, ty));
    }
    for (no, node) in tree.noted() {
        if let Some(at) = schema.st(to).field(&name(&from.at(no).json)) {
            out.note_empty(at, retyped(schema, node, schema.st(to).at(at).ty));
        }
    }
    out
}

fn retyped(schema: &Schema, node: &Node, ty: api::TypeId) -> Node {
    match (node, schema.ty(ty)) {
        (Node::Struct(s), api::Type::Struct(id)) if s.id != *id => {
            let same = |name: &str| name.to_owned();
            Node::from(resource::convert(schema, s, *id).unwrap_or_else(|| renamed(schema, s, *id, &same)))
        }
        (Node::List(l), api::Type::List { of, .. }) => {
            Node::List(l.iter().map(|n| retyped(schema, n, *of)).collect())
        }
        (Node::Map(m), api::Type::Map { of, .. }) => {
            let entries = m.iter().map(|(k, n)| (k.clone(), retyped(schema, n, *of)));
            Node::Map(api::Map::from_entries(entries.collect()))
        }
        (other, _) => other.clone(),
    }
}
