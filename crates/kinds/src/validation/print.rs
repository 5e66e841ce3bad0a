//! Values as upstream prints them in an error: strings as Go quotes them, structs as the JSON of
//! upstream's internal types, whose fields have Go's names and are all written.

use std::collections::HashMap;
use std::sync::LazyLock;

use api::go::{json_list, json_map, json_string, write_json};
use api::schema::{Or, Type, TypeId};
use api::{FieldNo, Node, Schema, Struct, StructId};

use api::view::View;

/// A field's value in an error: a number, boolean or string bare or quoted, anything else as JSON.
pub fn value(schema: &Schema, ty: TypeId, node: Option<&Node>, pointer: bool) -> String {
    let mut out = String::new();
    write(schema, ty, node, pointer, None, &mut out);
    out
}

/// A field of a struct as [`value`] prints it. A list or map that was written empty is printed empty; one that was not
/// written is null.
pub fn field(v: View<'_>, name: &str) -> String {
    let Some((id, no)) = v.id().and_then(|id| Some((id, v.schema.st(id).field(name)?))) else {
        return "null".into();
    };
    let mut out = String::new();
    let f = v.schema.st(id).at(no);
    match v.raw() {
        Some(st) => field_of(v.schema, st, no, f.pointer, None, &mut out),
        None => write(v.schema, f.ty, None, f.pointer, None, &mut out),
    }
    out
}

fn field_of(
    schema: &Schema,
    st: &Struct,
    no: FieldNo,
    null: bool,
    around: Option<&Struct>,
    out: &mut String,
) {
    let ty = schema.st(st.id).at(no).ty;
    let node = st.get(no).or_else(|| st.written_empty(no));
    write(schema, ty, node, null, around, out);
}

/// A struct as JSON of the internal type.
pub fn internal(schema: &Schema, st: &Struct) -> String {
    let mut out = String::new();
    write_struct(schema, st.id, Some(st), None, &mut out);
    out
}

/// Some fields of a struct as JSON: those of the internal type of this name, which is embedded in its own.
pub fn selected(schema: &Schema, st: &Struct, internal: &str) -> String {
    let mut out = String::from("{");
    let mut first = true;
    let ty = schema.st(st.id);
    for f in INTERNAL.get(internal).map_or(&[][..], Vec::as_slice) {
        if let Some(no) = ty.field(f.json) {
            comma(&mut first, &mut out);
            json_string(f.name, &mut out);
            out.push(':');
            field_of(schema, st, no, f.null, Some(st), &mut out);
        }
    }
    out.push('}');
    out
}

/// The difference between two JSON texts.
pub fn diff_json(a: &str, b: &str) -> String {
    super::diff::unified(&super::diff::pretty(a), &super::diff::pretty(b))
}

/// The difference between two structs of the same type: a unified diff of their JSON, with three lines of context.
pub fn diff_structs(schema: &Schema, a: &Struct, b: &Struct) -> String {
    super::diff::unified(
        &super::diff::pretty(&internal(schema, a)),
        &super::diff::pretty(&internal(schema, b)),
    )
}

fn write(
    schema: &Schema,
    ty: TypeId,
    node: Option<&Node>,
    null: bool,
    around: Option<&Struct>,
    out: &mut String,
) {
    let Some(node) = node else {
        out.push_str(match schema.ty(ty) {
            _ if null => "null",
            Type::Bool => "false",
            Type::Int32 | Type::Int64 | Type::Float64 | Type::IntOrString => "0",
            Type::String => "\"\"",
            Type::Quantity => "\"0\"",
            Type::Struct(id) => return write_struct(schema, *id, None, around, out),
            _ => "null",
        });
        return;
    };
    match (schema.ty(ty), node) {
        (Type::Struct(id), Node::Struct(s)) => write_struct(schema, *id, Some(s), around, out),
        (Type::List { of, .. }, Node::List(l)) => {
            json_list(l, out, |n, out| write(schema, *of, Some(n), false, around, out));
        }
        (Type::Or { of, or }, n) => write_or(schema, *of, *or, n, out),
        (Type::Map { of, .. }, Node::Map(m)) => {
            json_map(m, out, |n, out| write(schema, *of, Some(n), false, around, out));
        }
        (_, n) => write_json(n, out),
    }
}

/// Writes a struct, or the simpler form in its place, as the internal type that has a field for each.
fn write_or(schema: &Schema, of: StructId, or: Or, node: &Node, out: &mut String) {
    let (one, many) = match or {
        Or::Bool => ("Schema", "Allows"),
        Or::List => ("Schema", "JSONSchemas"),
        Or::Strings => ("Schema", "Property"),
    };
    let part = |out: &mut String| match node {
        Node::Struct(s) => write_struct(schema, of, Some(s), None, out),
        _ => out.push_str("null"),
    };
    let rest = |out: &mut String| match (or, node) {
        // Upstream's reader sets `Allows` beside a schema.
        (Or::Bool, n) => out.push_str(if n.as_bool() == Some(false) { "false" } else { "true" }),
        (_, Node::List(l)) => json_list(l, out, |n, out| match n {
            Node::Struct(s) => write_struct(schema, of, Some(s), None, out),
            n => write_json(n, out),
        }),
        _ => out.push_str("null"),
    };
    // Of a boolean and a schema, the boolean goes first.
    let mut parts = [(one, true), (many, false)];
    if or == Or::Bool {
        parts.reverse();
    }
    for (i, (name, is_struct)) in parts.into_iter().enumerate() {
        out.push(if i == 0 { '{' } else { ',' });
        json_string(name, out);
        out.push(':');
        if is_struct { part(out) } else { rest(out) }
    }
    out.push('}');
}

/// A field of an internal type.
struct Internal {
    /// The field's name in the internal type.
    name: &'static str,
    /// The field's JSON name in this schema.
    json: &'static str,
    /// Whether the absent field prints as null.
    null: bool,
    /// Whether this schema has the field in the enclosing struct.
    around: bool,
}

/// The internal types by the last parts of their names in this schema. Read when the first value is printed.
static INTERNAL: LazyLock<HashMap<&'static str, Vec<Internal>>> = LazyLock::new(|| {
    let field = |word: &'static str| {
        let (name, json) = word.split_once('=').unwrap_or((word, ""));
        let null = json.ends_with('*');
        let around = json.starts_with('^');
        Internal { name, json: json.trim_matches(['*', '^']), null, around }
    };
    include_str!("internal.txt")
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.split_once(' '))
        .map(|(ty, fields)| (ty, fields.split(' ').map(field).collect()))
        .collect()
});

fn write_struct(
    schema: &Schema,
    id: StructId,
    st: Option<&Struct>,
    around: Option<&Struct>,
    out: &mut String,
) {
    out.push('{');
    let mut first = true;
    let name = schema.st(id).name.as_str();
    let name = name
        .strip_prefix("io.k8s.api.")
        .or_else(|| name.strip_prefix("io.k8s.apiextensions-apiserver.pkg.apis."));
    match name.and_then(|n| INTERNAL.get(n)) {
        Some(fields) => {
            for f in fields {
                if f.name == "+metadata" {
                    let ty = schema.st(id);
                    let meta = ty.field("metadata").and_then(|no| st?.st(no));
                    if let Some(m) = meta {
                        tagged(schema, m.id, Some(m), &mut first, out);
                    }
                    continue;
                }
                let of = if f.around { around } else { st };
                let ty = schema.st(of.map_or(id, |s| s.id));
                let Some(no) = ty.field(f.json) else { continue };
                comma(&mut first, out);
                json_string(f.name, out);
                out.push(':');
                match of {
                    Some(of) => field_of(schema, of, no, f.null, st, out),
                    None => write(schema, ty.at(no).ty, None, f.null, st, out),
                }
            }
        }
        None => tagged(schema, id, st, &mut first, out),
    }
    out.push('}');
}

fn comma(first: &mut bool, out: &mut String) {
    if !std::mem::take(first) {
        out.push(',');
    }
}

/// Writes the fields of a struct whose internal type has JSON names, too.
fn tagged(schema: &Schema, id: StructId, st: Option<&Struct>, first: &mut bool, out: &mut String) {
    for (i, f) in schema.st(id).fields.iter().enumerate() {
        if st.is_none_or(|s| !s.has(FieldNo(i as u16))) && f.omitempty {
            continue;
        }
        comma(first, out);
        json_string(&f.json, out);
        out.push(':');
        match st {
            Some(st) => field_of(schema, st, FieldNo(i as u16), f.pointer, Some(st), out),
            None => write(schema, f.ty, None, f.pointer, None, out),
        }
    }
}
