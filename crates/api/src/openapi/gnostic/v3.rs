//! OpenAPI v3 as gnostic's protobuf (`openapi.v3.Document`).

use super::{Message, get, wrapped};
use crate::tree::Node;

/// The whole document.
pub(in crate::openapi) fn document(node: &Node) -> Vec<u8> {
    let mut out = Message::default();
    out.str(1, node, "openapi");
    out.sub(2, node, "info", |n| {
        let mut m = Message::default();
        m.str(1, n, "title");
        m.str(2, n, "description");
        m.str(6, n, "version");
        m
    });
    out.sub(4, node, "paths", |n| {
        let mut m = Message::default();
        m.named(1, n, path_item);
        m
    });
    out.sub(5, node, "components", |n| {
        let mut m = Message::default();
        m.sub(1, n, "schemas", schemas);
        m.sub(7, n, "securitySchemes", |n| {
            let mut m = Message::default();
            m.named(1, n, |n| {
                let mut scheme = Message::default();
                scheme.str(1, n, "type");
                scheme.str(2, n, "description");
                scheme.str(3, n, "name");
                scheme.str(4, n, "in");
                wrapped(1, &scheme)
            });
            m
        });
        m
    });
    for requirement in get(node, "security").map_or(&[][..], Node::as_list) {
        let mut m = Message::default();
        m.named(1, requirement, |n| {
            let mut m = Message::default();
            for s in n.as_list() {
                m.bytes(1, s.as_str().as_bytes());
            }
            m
        });
        out.message(6, &m);
    }
    out.0
}

fn path_item(node: &Node) -> Message {
    let mut out = Message::default();
    out.str(2, node, "summary");
    out.str(3, node, "description");
    for (number, method) in [
        (4, "get"),
        (5, "put"),
        (6, "post"),
        (7, "delete"),
        (8, "options"),
        (9, "head"),
        (10, "patch"),
        (11, "trace"),
    ] {
        out.sub(number, node, method, operation);
    }
    parameters(&mut out, 13, node);
    out.extensions(14, node);
    out
}

fn parameters(out: &mut Message, number: u32, node: &Node) {
    for p in get(node, "parameters").map_or(&[][..], Node::as_list) {
        let mut m = Message::default();
        m.str(1, p, "name");
        m.str(2, p, "in");
        m.str(3, p, "description");
        m.bool(4, p, "required");
        m.sub(10, p, "schema", schema);
        out.message(number, &wrapped(1, &m));
    }
}

fn operation(node: &Node) -> Message {
    let mut out = Message::default();
    out.strs(1, node, "tags");
    out.str(2, node, "summary");
    out.str(3, node, "description");
    out.str(5, node, "operationId");
    parameters(&mut out, 6, node);
    out.sub(7, node, "requestBody", |n| {
        let mut m = Message::default();
        m.str(1, n, "description");
        m.sub(2, n, "content", media_types);
        m.bool(3, n, "required");
        wrapped(1, &m)
    });
    out.sub(8, node, "responses", |n| {
        let mut m = Message::default();
        m.sub(1, n, "default", response);
        for (code, value) in n.as_map().into_iter().flat_map(|m| m.iter()) {
            if code != "default" {
                let mut entry = Message::default();
                entry.bytes(1, code.as_bytes());
                entry.message(2, &response(value));
                m.message(2, &entry);
            }
        }
        m
    });
    out.bool(10, node, "deprecated");
    out.extensions(13, node);
    out
}

/// A `ResponseOrReference`.
fn response(node: &Node) -> Message {
    let mut m = Message::default();
    m.str(1, node, "description");
    m.sub(3, node, "content", media_types);
    wrapped(1, &m)
}

fn media_types(node: &Node) -> Message {
    let mut out = Message::default();
    out.named(1, node, |n| {
        let mut m = Message::default();
        m.sub(1, n, "schema", schema);
        m
    });
    out
}

fn schemas(node: &Node) -> Message {
    let mut out = Message::default();
    out.named(1, node, schema);
    out
}

/// A `SchemaOrReference`.
fn schema(node: &Node) -> Message {
    if get(node, "$ref").is_some() {
        let mut reference = Message::default();
        reference.str(1, node, "$ref");
        reference.str(2, node, "summary");
        reference.str(3, node, "description");
        return wrapped(2, &reference);
    }
    let mut out = Message::default();
    out.bool(1, node, "nullable");
    out.str(9, node, "title");
    for (number, key) in [(15, "maxLength"), (16, "minLength"), (18, "maxItems"), (19, "minItems")] {
        out.int(number, node, key);
    }
    out.str(17, node, "pattern");
    out.bool(20, node, "uniqueItems");
    out.strs(23, node, "required");
    for value in get(node, "enum").map_or(&[][..], Node::as_list) {
        out.message(24, &super::any(value));
    }
    out.str(25, node, "type");
    for (number, key) in [(26, "allOf"), (27, "oneOf"), (28, "anyOf")] {
        for s in get(node, key).map_or(&[][..], Node::as_list) {
            out.message(number, &schema(s));
        }
    }
    out.sub(30, node, "items", |n| wrapped(1, &schema(n)));
    out.sub(31, node, "properties", schemas);
    out.sub(32, node, "additionalProperties", |n| match n {
        Node::Bool(_) => {
            let mut m = Message::default();
            m.flag(2, n.as_bool().unwrap_or_default());
            m
        }
        _ => wrapped(1, &schema(n)),
    });
    out.sub(33, node, "default", default);
    out.str(34, node, "description");
    out.str(35, node, "format");
    out.extensions(36, node);
    wrapped(1, &out)
}

/// A `DefaultType`, which has no place for lists and objects.
fn default(node: &Node) -> Message {
    let mut out = Message::default();
    match node {
        Node::Bool(b) => out.flag(2, *b),
        Node::Str(s) => out.bytes(3, s.as_bytes()),
        Node::Int(i) => out.double(1, *i as f64),
        Node::Float(f) => out.double(1, *f),
        _ => {}
    }
    out
}
