//! Objects of every kind with one list or map of any length, made by the schema.

use std::collections::HashSet;

use api::schema::{AnyKind, Or, Type};
use api::{FieldNo, Schema, StructId, TypeId};
use serde_json::{Map, Value, json};

/// The kind of elements in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Distinct elements, valid as far as the schema tells.
    Distinct,
    /// Equal elements.
    Equal,
    /// Distinct elements, with values that rules refuse.
    Bad,
}

pub(crate) const VARIANTS: [Variant; 3] = [Variant::Distinct, Variant::Equal, Variant::Bad];

/// The way to a list or map: fields from the root, through the first elements of lists and maps.
pub(crate) type Place = Vec<(StructId, FieldNo)>;

/// Every list and map below a struct, but for those that the walk through another kind found.
pub(crate) fn places(schema: &Schema, root: StructId, seen: &mut HashSet<(StructId, FieldNo)>) -> Vec<Place> {
    fn walk(
        schema: &Schema,
        id: StructId,
        way: &mut Place,
        seen: &HashSet<(StructId, FieldNo)>,
        out: &mut Vec<Place>,
    ) {
        for (i, f) in schema.st(id).fields.iter().enumerate() {
            let no = FieldNo(i as u16);
            // Structs that hold themselves are walked once; so are selectors, which are everywhere.
            let selector = schema.st(id).name.ends_with("Selector");
            let known = |w: &(StructId, FieldNo)| *w == (id, no);
            if seen.contains(&(id, no)) || selector && out.iter().flatten().any(known) {
                continue;
            }
            way.push((id, no));
            if matches!(
                schema.ty(f.ty),
                Type::List { .. } | Type::Map { .. } | Type::Or { or: Or::Strings, .. }
            ) || matches!(schema.ty(f.ty), Type::Any(AnyKind::FieldsV1))
            {
                out.push(way.clone());
            }
            if let Some(inner) = inner(schema, f.ty).filter(|i| way.iter().all(|w| w.0 != *i)) {
                walk(schema, inner, way, seen, out);
            }
            way.pop();
        }
    }
    let mut out = Vec::new();
    walk(schema, root, &mut Vec::new(), seen, &mut out);
    seen.extend(out.iter().flatten().copied());
    out
}

fn inner(schema: &Schema, ty: TypeId) -> Option<StructId> {
    match schema.ty(ty) {
        Type::Struct(id) | Type::Or { of: id, .. } => Some(*id),
        Type::List { of, .. } | Type::Map { of, .. } => inner(schema, *of),
        _ => None,
    }
}

/// The names on a way, as text.
pub(crate) fn shown(schema: &Schema, place: &Place) -> String {
    place.iter().map(|(id, no)| schema.st(*id).at(*no).json.as_str()).collect::<Vec<_>>().join(".")
}

/// A value of a type; `values` are those of an enum.
fn value(schema: &Schema, ty: TypeId, values: &[api::Text], i: usize, v: Variant) -> Value {
    let i = if v == Variant::Equal { 0 } else { i };
    let bad = v == Variant::Bad;
    match schema.ty(ty) {
        Type::Bool => json!(!bad),
        Type::Int32 | Type::Int64 => json!(if bad { -1 - i as i64 } else { 1 + i as i64 }),
        Type::Float64 => json!(i as f64 + 0.5),
        Type::String if bad => json!(format!("!{i} _")),
        Type::String => values.first().map_or_else(|| json!(format!("x{i}")), |v| json!(v.as_str())),
        Type::Bytes => json!("eA=="),
        Type::Quantity => json!(if bad { format!("-{i}") } else { i.to_string() }),
        Type::IntOrString if bad => json!(format!("!{i}")),
        Type::IntOrString => json!(1 + i),
        Type::Time => json!("2026-01-01T00:00:00Z"),
        Type::MicroTime => json!("2026-01-01T00:00:00.000000Z"),
        Type::Duration => json!("1s"),
        Type::Any(AnyKind::FieldsV1) => json!({ format!("f:x{i}"): {} }),
        Type::Any(_) => json!({ "x": i }),
        Type::List { of, .. } => json!([value(schema, *of, &[], i, v)]),
        Type::Map { of, .. } => json!({ key(i, v): value(schema, *of, &[], i, v) }),
        Type::Struct(id) | Type::Or { of: id, .. } => scalars(schema, *id, i, v),
    }
}

fn key(i: usize, v: Variant) -> String {
    if v == Variant::Bad { format!("!{i} _") } else { format!("x{i}") }
}

/// A struct with all its scalars.
fn scalars(schema: &Schema, id: StructId, i: usize, v: Variant) -> Value {
    let mut out = Map::new();
    for f in &schema.st(id).fields {
        let nested = matches!(
            schema.ty(f.ty),
            Type::Struct(_) | Type::Or { .. } | Type::List { .. } | Type::Map { .. } | Type::Any(_)
        );
        if !nested {
            out.insert(f.json.to_string(), value(schema, f.ty, &f.values, i, v));
        }
    }
    Value::Object(out)
}

/// The list or map at a place, with `n` entries.
fn many(schema: &Schema, ty: TypeId, n: usize, v: Variant) -> Value {
    match schema.ty(ty) {
        Type::List { of, .. } => (0..n).map(|i| value(schema, *of, &[], i, v)).collect(),
        Type::Map { of, .. } => {
            let v_of = |i| value(schema, *of, &[], i, v);
            Value::Object(
                (0..n)
                    .map(|i| (key(i, if v == Variant::Equal { Variant::Distinct } else { v }), v_of(i)))
                    .collect(),
            )
        }
        Type::Any(_) => Value::Object((0..n).map(|i| (format!("f:x{i}"), json!({}))).collect()),
        _ => (0..n).map(|i| json!(key(i, v))).collect(),
    }
}

/// Puts `n` entries at a place of an object, and makes the parts that are missing on the way.
pub(crate) fn fill(schema: &Schema, object: &mut Value, place: &[(StructId, FieldNo)], n: usize, v: Variant) {
    let Some(((id, no), rest)) = place.split_first() else { return };
    let field = schema.st(*id).at(*no);
    if !object.is_object() {
        *object = json!({});
    }
    let at = &mut object[field.json.as_str()];
    if rest.is_empty() {
        let sample = at.as_array().and_then(|a| a.first()).filter(|e| e.is_object()).cloned();
        *at = many(schema, field.ty, n, v);
        // Elements from a recorded object are more likely to be valid than those that the schema alone gives.
        if let (Some(sample), Variant::Distinct | Variant::Equal) = (sample, v)
            && let Some(list) = at.as_array_mut()
        {
            for (i, e) in list.iter_mut().enumerate() {
                let mut made = sample.clone();
                for (k, x) in made.as_object_mut().unwrap() {
                    let named =
                        matches!(k.as_str(), "name" | "uid" | "key" | "type" | "id" | "mountPath" | "path");
                    if named
                        && v == Variant::Distinct
                        && let Some(text) = x.as_str()
                    {
                        *x = json!(format!("{text}{i}"));
                    }
                }
                *e = made;
            }
        }
        return;
    }
    descend(schema, at, field.ty, rest, n, v);
}

fn descend(schema: &Schema, at: &mut Value, ty: TypeId, rest: &[(StructId, FieldNo)], n: usize, v: Variant) {
    let plain = Variant::Distinct;
    match schema.ty(ty) {
        Type::List { of, .. } => {
            if at.as_array().is_none_or(Vec::is_empty) {
                *at = json!([value(schema, *of, &[], 0, plain)]);
            }
            descend(schema, &mut at[0], *of, rest, n, v);
        }
        Type::Map { of, .. } => {
            if at.as_object().is_none_or(Map::is_empty) {
                *at = json!({ "x0": value(schema, *of, &[], 0, plain) });
            }
            if let Some(first) = at.as_object_mut().and_then(|m| m.values_mut().next()) {
                descend(schema, first, *of, rest, n, v);
            }
        }
        _ => fill(schema, at, rest, n, v),
    }
}
