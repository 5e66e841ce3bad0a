//! Encoding of trees to JSON text, as Go's encoder writes it.

use bytes::Bytes;

use crate::schema::{Field, FieldNo, Gvk, Schema, StructId, Type, TypeId};
use crate::tree::{Map, Node, Struct, Text};

/// Appends a struct: its present fields, and the fields that are always written, in upstream's order.
pub fn encode(schema: &Schema, tree: &Struct, out: &mut Vec<u8>) {
    out.push(b'{');
    fields(schema, tree, None, out);
    out.push(b'}');
}

/// Appends a root object as clients see it, with its kind and API version before its fields.
pub fn encode_kind(schema: &Schema, kind: &Gvk, tree: &Struct, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"kind\":");
    write_string(&kind.kind, out);
    out.extend_from_slice(b",\"apiVersion\":");
    write_string(&kind.api_version(), out);
    let end = out.len();
    out.push(b',');
    fields(schema, tree, None, out);
    if out.len() == end + 1 {
        out.truncate(end);
    }
    out.push(b'}');
}

/// A root object as [`crate::NewObject::body`] holds it: without `kind` and `apiVersion`, with an
/// empty `metadata.resourceVersion`, whose place is the second part of the answer.
///
/// The struct must have `metadata`; without it the place is 0.
pub fn encode_object(schema: &Schema, tree: &Struct) -> (Bytes, u32) {
    let mut out = Vec::with_capacity(2048);
    let mut rv_at = 0;
    out.push(b'{');
    fields(schema, tree, Some(&mut rv_at), &mut out);
    out.push(b'}');
    (Bytes::from(out), rv_at)
}

/// Appends a value without a schema.
pub fn encode_any(node: &Node, out: &mut Vec<u8>) {
    match node {
        Node::Null => out.extend_from_slice(b"null"),
        Node::Bool(b) => out.extend_from_slice(if *b { b"true" } else { b"false" }),
        Node::Int(i) => out.extend_from_slice(itoa::Buffer::new().format(*i).as_bytes()),
        Node::Float(f) => float(*f, out),
        Node::Str(s) => write_string(s, out),
        Node::List(l) => list(l, out, encode_any),
        Node::Map(m) => map(m, out, encode_any),
        Node::Raw(text) => out.extend_from_slice(text.as_bytes()),
        // A struct can't be written without its schema; none stands inside a value without a schema.
        Node::Struct(_) => out.extend_from_slice(b"{}"),
    }
}

/// The text of an embedded object as Go's encoder writes it: without white space, and escaped for HTML.
pub fn compact(raw: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(raw.len());
    let (mut inside, mut escaped) = (false, false);
    for c in raw.chars() {
        match c {
            ' ' | '\t' | '\n' | '\r' if !inside => continue,
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            _ => out.push(c),
        }
        inside ^= c == '"' && !escaped;
        escaped = inside && c == '\\' && !escaped;
    }
    out
}

/// Appends a value of the schema's types. The value itself tells its type.
pub fn encode_node(schema: &Schema, node: &Node, out: &mut Vec<u8>) {
    match node {
        Node::Struct(s) => encode(schema, s, out),
        Node::List(l) => list(l, out, |n, out| encode_node(schema, n, out)),
        Node::Map(m) => map(m, out, |n, out| encode_node(schema, n, out)),
        other => encode_any(other, out),
    }
}

pub(super) fn list(nodes: &[Node], out: &mut Vec<u8>, mut each: impl FnMut(&Node, &mut Vec<u8>)) {
    out.push(b'[');
    for (i, n) in nodes.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        each(n, out);
    }
    out.push(b']');
}

fn map(m: &Map, out: &mut Vec<u8>, each: impl FnMut(&Node, &mut Vec<u8>)) {
    entries(m.iter(), out, each);
}

pub(super) fn entries<'a>(
    entries: impl Iterator<Item = (&'a Text, &'a Node)>,
    out: &mut Vec<u8>,
    mut each: impl FnMut(&Node, &mut Vec<u8>),
) {
    out.push(b'{');
    for (i, (key, n)) in entries.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        each(n, out);
    }
    out.push(b'}');
}

pub(super) fn name(field: &Field, first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::take(first) {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(field.json.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Writes the fields between the braces. With `rv_at` the struct is the root: type metadata is left out, and the place
/// of the resourceVersion in metadata is noted.
fn fields(schema: &Schema, tree: &Struct, mut rv_at: Option<&mut u32>, out: &mut Vec<u8>) {
    let st = schema.st(tree.id);
    let mut present = tree.iter().peekable();
    let mut first = true;
    for (i, field) in st.fields.iter().enumerate() {
        let no = FieldNo(i as u16);
        let value = present.next_if(|(n, _)| *n == no).map(|(_, v)| v);
        if let Some(rv_at) = &mut rv_at {
            if st.kind && matches!(field.json.as_str(), "kind" | "apiVersion") {
                continue;
            }
            if field.json == "metadata"
                && let Type::Struct(id) = *schema.ty(field.ty)
            {
                name(field, &mut first, out);
                metadata(schema, id, value.and_then(Node::as_struct), rv_at, out);
                continue;
            }
        }
        match value {
            // The values of a custom resource stand in the object itself.
            Some(Node::Map(values)) if st.rest.as_ref().is_some_and(|r| r.field == no) => {
                for (key, v) in values.iter() {
                    if !std::mem::take(&mut first) {
                        out.push(b',');
                    }
                    write_string(key, out);
                    out.push(b':');
                    encode_any(v, out);
                }
            }
            Some(v) => {
                name(field, &mut first, out);
                encode_node(schema, v, out);
            }
            None if !field.omitempty => {
                name(field, &mut first, out);
                absent(schema, field, out);
            }
            None => {}
        }
    }
}

fn metadata(schema: &Schema, id: StructId, tree: Option<&Struct>, rv_at: &mut u32, out: &mut Vec<u8>) {
    let empty = Struct::new(id);
    let tree = tree.unwrap_or(&empty);
    out.push(b'{');
    let mut first = true;
    let mut present = tree.iter().peekable();
    for (i, field) in schema.st(id).fields.iter().enumerate() {
        let value = present.next_if(|(n, _)| n.0 as usize == i).map(|(_, v)| v);
        if field.json == "resourceVersion" {
            name(field, &mut first, out);
            out.push(b'"');
            *rv_at = out.len() as u32;
            out.push(b'"');
        } else if let Some(v) = value {
            name(field, &mut first, out);
            encode_node(schema, v, out);
        } else if !field.omitempty {
            name(field, &mut first, out);
            absent(schema, field, out);
        }
    }
    out.push(b'}');
}

/// Appends the zero value that Go writes for a field that is always written.
pub(super) fn absent(schema: &Schema, field: &Field, out: &mut Vec<u8>) {
    if field.pointer {
        out.extend_from_slice(b"null");
    } else {
        zero(schema, field.ty, out);
    }
}

fn zero(schema: &Schema, ty: TypeId, out: &mut Vec<u8>) {
    out.extend_from_slice(match schema.ty(ty) {
        Type::Bool => b"false",
        Type::Int32 | Type::Int64 | Type::Float64 | Type::IntOrString => b"0",
        Type::String => b"\"\"",
        Type::Quantity => b"\"0\"",
        Type::Duration => b"\"0s\"",
        Type::Bytes
        | Type::Time
        | Type::MicroTime
        | Type::Any(_)
        | Type::Or { .. }
        | Type::List { .. }
        | Type::Map { .. } => b"null",
        Type::Struct(id) => return encode(schema, &Struct::new(*id), out),
    });
}

/// A float as Go's encoder writes it: plain between 1e-6 and 1e21, otherwise with an exponent.
fn float(f: f64, out: &mut Vec<u8>) {
    use std::io::Write;
    let size = f.abs();
    // Writing to a vector can't fail.
    let _ = if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{f:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => write!(out, "{digits}e+{exponent}"),
            _ => out.write_all(text.as_bytes()),
        }
    } else {
        write!(out, "{f}")
    };
}

/// Bytes that a string can't hold as they are: control characters, the quote, the backslash, the characters that Go
/// escapes for HTML, and the first byte of U+2028 and U+2029.
const SPECIAL: [bool; 256] = {
    let mut t = [false; 256];
    let mut i = 0;
    while i < 0x20 {
        t[i] = true;
        i += 1;
    }
    t[b'"' as usize] = true;
    t[b'\\' as usize] = true;
    t[b'<' as usize] = true;
    t[b'>' as usize] = true;
    t[b'&' as usize] = true;
    t[0xe2] = true;
    t
};

/// Appends a JSON string with its quotes, escaped as Go does.
pub fn write_string(s: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = s.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut start = 0;
    for (i, b) in bytes.iter().enumerate() {
        if !SPECIAL[*b as usize] {
            continue;
        }
        if *b == 0xe2
            && !(bytes[i..].starts_with("\u{2028}".as_bytes())
                || bytes[i..].starts_with("\u{2029}".as_bytes()))
        {
            continue;
        }
        out.extend_from_slice(&bytes[start..i]);
        start = i + 1;
        match b {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            0xe2 => {
                out.extend_from_slice(b"\\u202");
                out.push(HEX[(bytes[i + 2] & 0xf) as usize]);
                start = i + 3;
            }
            b => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[(b >> 4) as usize]);
                out.push(HEX[(b & 0xf) as usize]);
            }
        }
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}
