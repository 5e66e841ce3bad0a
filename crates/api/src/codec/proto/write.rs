//! Encoding of trees to messages: every plain scalar is written, also a zero; pointers and lists only if they are
//! present.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::wire::{put_bytes, put_float, put_int, put_nested};
use crate::codec::json;
use crate::schema::{AnyKind, Field, MessageField, MessagePart, Or, Schema, Type, TypeId};
use crate::tree::{Node, Struct};

pub(super) fn message(schema: &Schema, tree: &Struct, out: &mut Vec<u8>) {
    fields(schema, tree, &schema.st(tree.id).message, out);
}

fn fields(schema: &Schema, tree: &Struct, message: &[MessageField], out: &mut Vec<u8>) {
    for part in message {
        match &part.what {
            MessagePart::Embedded(inner) => {
                put_nested(part.number, out, |out| fields(schema, tree, inner, out));
            }
            MessagePart::Field(no) => {
                let field = schema.st(tree.id).at(*no);
                match tree.get(*no) {
                    Some(v) => value(schema, part.number, field.ty, v, out),
                    None if !field.pointer => zero(schema, part.number, field, out),
                    None => {}
                }
            }
        }
    }
}

/// Writes the value that upstream writes for a plain field without one.
fn zero(schema: &Schema, number: u32, field: &Field, out: &mut Vec<u8>) {
    match schema.ty(field.ty) {
        Type::Bool | Type::Int32 | Type::Int64 => put_int(number, 0, out),
        Type::Float64 => put_float(number, 0.0, out),
        Type::String
        | Type::Time
        | Type::MicroTime
        | Type::Any(AnyKind::RawExtension | AnyKind::FieldsV1 | AnyKind::Json) => {
            put_bytes(number, &[], out);
        }
        Type::Quantity => put_nested(number, out, |out| put_bytes(1, b"0", out)),
        Type::IntOrString => put_nested(number, out, |out| int_or_string(&Node::Int(0), out)),
        Type::Duration => put_nested(number, out, |out| put_int(1, 0, out)),
        Type::Struct(id) => put_nested(number, out, |out| message(schema, &Struct::new(*id), out)),
        Type::Or { .. } | Type::Bytes | Type::List { .. } | Type::Map { .. } | Type::Any(AnyKind::Value) => {}
    }
}

fn value(schema: &Schema, number: u32, ty: TypeId, node: &Node, out: &mut Vec<u8>) {
    match (schema.ty(ty), node) {
        (Type::List { of, .. }, Node::List(list)) => {
            if schema.is_wrapped(ty) {
                put_nested(number, out, |out| {
                    for v in list {
                        value(schema, 1, *of, v, out);
                    }
                });
            } else {
                for v in list {
                    value(schema, number, *of, v, out);
                }
            }
        }
        (Type::Map { of, .. }, Node::Map(map)) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            for (k, v) in entries {
                put_nested(number, out, |out| {
                    put_bytes(1, k.as_bytes(), out);
                    value(schema, 2, *of, v, out);
                });
            }
        }
        (Type::Struct(_), Node::Struct(s)) => put_nested(number, out, |out| message(schema, s, out)),
        (Type::Bytes, Node::Str(s)) => put_bytes(number, &BASE64_STANDARD.decode(s).unwrap_or_default(), out),
        (Type::Quantity, Node::Str(s)) => put_nested(number, out, |out| put_bytes(1, s.as_bytes(), out)),
        (Type::IntOrString, v) => put_nested(number, out, |out| int_or_string(v, out)),
        (Type::Time | Type::MicroTime, Node::Str(s)) => put_nested(number, out, |out| {
            if let Some(t) = crate::time::parse(s) {
                let (mut seconds, mut nanos) = (t.as_second(), i64::from(t.subsec_nanosecond()));
                if nanos < 0 {
                    seconds -= 1;
                    nanos += 1_000_000_000;
                }
                put_int(1, seconds, out);
                put_int(2, nanos, out);
            }
        }),
        (Type::Time | Type::MicroTime, _) => put_bytes(number, &[], out),
        (Type::Duration, Node::Str(s)) => put_nested(number, out, |out| {
            let nanos = crate::time::parse_duration(s).map_or(0, |d| d.as_nanos() as i64);
            put_int(1, nanos, out);
        }),
        (Type::Any(AnyKind::Value), _) => {}
        (Type::Any(_), v) => put_nested(number, out, |out| {
            let mut text = Vec::new();
            json::encode_any(v, &mut text);
            put_bytes(1, &text, out);
        }),
        (Type::Or { or, .. }, v) => put_nested(number, out, |out| either(schema, *or, v, out)),
        (Type::Float64, Node::Float(f)) => put_float(number, *f, out),
        (Type::Float64, Node::Int(i)) => put_float(number, *i as f64, out),
        (_, Node::Bool(b)) => put_int(number, i64::from(*b), out),
        (_, Node::Int(i)) => put_int(number, *i, out),
        (_, Node::Str(s)) => put_bytes(number, s.as_bytes(), out),
        // A tree whose parts are not of the schema's types has no message; decoders make none.
        _ => {}
    }
}

fn int_or_string(node: &Node, out: &mut Vec<u8>) {
    let (kind, int, text) = match node {
        Node::Str(s) => (1, 0, s.as_str()),
        other => (0, other.as_int().unwrap_or(0), ""),
    };
    put_int(1, kind, out);
    put_int(2, int, out);
    put_bytes(3, text.as_bytes(), out);
}

/// Writes the message of one of the three `JSONSchemaPropsOr…` types.
fn either(schema: &Schema, or: Or, node: &Node, out: &mut Vec<u8>) {
    match (or, node) {
        (Or::Bool, Node::Bool(b)) => put_int(1, i64::from(*b), out),
        (Or::Bool, Node::Struct(s)) => {
            put_int(1, 1, out);
            put_nested(2, out, |out| message(schema, s, out));
        }
        (_, Node::Struct(s)) => put_nested(1, out, |out| message(schema, s, out)),
        (Or::List, Node::List(list)) => {
            for s in list.iter().filter_map(Node::as_struct) {
                put_nested(2, out, |out| message(schema, s, out));
            }
        }
        (Or::Strings, Node::List(list)) => list.iter().for_each(|s| put_bytes(2, s.as_str().as_bytes(), out)),
        _ => {}
    }
}
