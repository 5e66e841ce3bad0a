//! Conversions between the versions of a kind.

pub(crate) mod apps;
pub(crate) mod autoscaling;
mod resource;

use api::schema::Gvk;
use api::{Node, Schema, Struct, StructId};

/// The reason for which a tree cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("converting ({from}) to ({to}): unknown conversion")]
pub struct NoConversion {
    from: String,
    to: String,
}

impl NoConversion {
    pub(crate) fn between(from: &Gvk, to: &Gvk) -> Self {
        let name = |g: &Gvk| format!("{}, Kind={}", g.api_version(), g.kind);
        Self { from: name(from), to: name(to) }
    }
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

/// Converts between versions of a kind that have the same fields, or fewer of them.
pub(crate) fn same_fields(
    schema: &Schema,
    tree: Struct,
    from: &Gvk,
    to: &Gvk,
) -> Result<Struct, NoConversion> {
    if (&from.group, &from.kind) != (&to.group, &to.kind) {
        return Err(NoConversion::between(from, to));
    }
    Ok(renamed(schema, &tree, root(schema, from, to)?, &|name| name.to_owned()))
}

/// Converts an Event between its two groups.
pub(crate) fn event(schema: &Schema, tree: Struct, from: &Gvk, to: &Gvk) -> Result<Struct, NoConversion> {
    let old_names = match (from.group.is_empty(), to.group.is_empty()) {
        (true, false) => true,
        (false, true) => false,
        _ => return same_fields(schema, tree, from, to),
    };
    let rename = |name: &str| {
        let known = EVENT.iter().find(|e| name == if old_names { e.0 } else { e.1 });
        known.map_or(name, |e| if old_names { e.1 } else { e.0 }).to_owned()
    };
    Ok(renamed(schema, &tree, root(schema, from, to)?, &rename))
}

fn root(schema: &Schema, from: &Gvk, to: &Gvk) -> Result<StructId, NoConversion> {
    schema.kind(to).ok_or_else(|| NoConversion::between(from, to))
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
