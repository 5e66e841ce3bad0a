//! OpenAPI v2 as gnostic's protobuf (`openapi.v2.Document`), which old clients prefer over JSON.

pub(super) mod v3;

use crate::tree::Node;

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push((n as u8) | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }
    fn bytes(&mut self, number: u32, value: &[u8]) {
        self.varint(u64::from(number << 3 | 2));
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }
    fn message(&mut self, number: u32, value: &Message) {
        self.bytes(number, &value.0);
    }
    /// A string field of `node`, if it is there.
    fn str(&mut self, number: u32, node: &Node, key: &str) {
        if let Some(Node::Str(s)) = get(node, key) {
            self.bytes(number, s.as_bytes());
        }
    }
    /// The strings of a list field of `node`.
    fn strs(&mut self, number: u32, node: &Node, key: &str) {
        for s in get(node, key).map_or(&[][..], Node::as_list) {
            self.bytes(number, s.as_str().as_bytes());
        }
    }
    /// A boolean field of `node`, if it is true.
    fn bool(&mut self, number: u32, node: &Node, key: &str) {
        if get(node, key).and_then(Node::as_bool) == Some(true) {
            self.varint(u64::from(number << 3));
            self.varint(1);
        }
    }
    /// A boolean, also if it is false.
    fn flag(&mut self, number: u32, value: bool) {
        self.varint(u64::from(number << 3));
        self.varint(u64::from(value));
    }
    fn double(&mut self, number: u32, value: f64) {
        self.varint(u64::from(number << 3 | 1));
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    /// An integer field of `node`, if it is there and not 0.
    fn int(&mut self, number: u32, node: &Node, key: &str) {
        if let Some(i) = get(node, key).and_then(Node::as_int).filter(|i| *i != 0) {
            self.varint(u64::from(number << 3));
            self.varint(i as u64);
        }
    }
    /// A message field made of `node`'s value at `key`, if it is there.
    fn sub(&mut self, number: u32, node: &Node, key: &str, make: fn(&Node) -> Message) {
        if let Some(n) = get(node, key) {
            self.message(number, &make(n));
        }
    }
    /// A `Named…` message for each entry of a map.
    fn named(&mut self, number: u32, node: &Node, make: fn(&Node) -> Message) {
        for (key, value) in node.as_map().into_iter().flat_map(|m| m.iter()) {
            let mut entry = Message::default();
            entry.bytes(1, key.as_bytes());
            entry.message(2, &make(value));
            self.message(number, &entry);
        }
    }
    /// A `NamedAny` for each extension of `node`.
    fn extensions(&mut self, number: u32, node: &Node) {
        for (key, value) in node.as_map().into_iter().flat_map(|m| m.iter()) {
            if key.starts_with("x-") {
                let mut entry = Message::default();
                entry.bytes(1, key.as_bytes());
                entry.message(2, &any(value));
                self.message(number, &entry);
            }
        }
    }
}

fn get<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    node.as_map()?.get(key)
}

fn wrapped(number: u32, inner: &Message) -> Message {
    let mut out = Message::default();
    out.message(number, inner);
    out
}

/// An `Any` holds YAML.
fn any(node: &Node) -> Message {
    let mut out = Message::default();
    out.bytes(2, crate::yaml::emit(node).as_bytes());
    out
}

/// The whole document.
pub(super) fn document(node: &Node) -> Vec<u8> {
    let mut out = Message::default();
    out.str(1, node, "swagger");
    out.sub(2, node, "info", |n| {
        let mut m = Message::default();
        m.str(1, n, "title");
        m.str(2, n, "version");
        m
    });
    out.sub(8, node, "paths", |n| {
        let mut m = Message::default();
        m.named(2, n, path_item);
        m
    });
    out.sub(9, node, "definitions", properties);
    out.sub(10, node, "parameters", |n| {
        let mut m = Message::default();
        m.named(1, n, parameter);
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
        out.message(12, &m);
    }
    out.sub(13, node, "securityDefinitions", |n| {
        let mut m = Message::default();
        m.named(1, n, |n| {
            let mut key = Message::default();
            key.str(1, n, "type");
            key.str(2, n, "name");
            key.str(3, n, "in");
            key.str(4, n, "description");
            wrapped(2, &key)
        });
        m
    });
    out.0
}

fn path_item(node: &Node) -> Message {
    let mut out = Message::default();
    for (number, method) in
        [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")]
    {
        out.sub(number, node, method, operation);
    }
    for p in get(node, "parameters").map_or(&[][..], Node::as_list) {
        out.message(9, &parameters_item(p));
    }
    out
}

fn operation(node: &Node) -> Message {
    let mut out = Message::default();
    out.strs(1, node, "tags");
    out.str(3, node, "description");
    out.str(5, node, "operationId");
    out.strs(6, node, "produces");
    out.strs(7, node, "consumes");
    for p in get(node, "parameters").map_or(&[][..], Node::as_list) {
        out.message(8, &parameters_item(p));
    }
    out.sub(9, node, "responses", |n| {
        let mut m = Message::default();
        m.named(1, n, |n| {
            let mut response = Message::default();
            response.str(1, n, "description");
            response.sub(2, n, "schema", |n| wrapped(1, &schema(n)));
            wrapped(1, &response)
        });
        m
    });
    out.strs(10, node, "schemes");
    out.extensions(13, node);
    out
}

fn parameters_item(node: &Node) -> Message {
    if get(node, "$ref").is_some() {
        let mut reference = Message::default();
        reference.str(1, node, "$ref");
        return wrapped(2, &reference);
    }
    wrapped(1, &parameter(node))
}

fn parameter(node: &Node) -> Message {
    let location = get(node, "in").map_or("", Node::as_str);
    let mut p = Message::default();
    match location {
        "body" => {
            p.str(1, node, "description");
            p.str(2, node, "name");
            p.str(3, node, "in");
            p.bool(4, node, "required");
            p.sub(5, node, "schema", schema);
            wrapped(1, &p)
        }
        "path" => {
            p.bool(1, node, "required");
            p.str(2, node, "in");
            p.str(3, node, "description");
            p.str(4, node, "name");
            p.str(5, node, "type");
            p.bool(19, node, "uniqueItems");
            wrapped(2, &wrapped(4, &p))
        }
        _ => {
            p.bool(1, node, "required");
            p.str(2, node, "in");
            p.str(3, node, "description");
            p.str(4, node, "name");
            p.str(6, node, "type");
            p.bool(20, node, "uniqueItems");
            wrapped(2, &wrapped(3, &p))
        }
    }
}

fn properties(node: &Node) -> Message {
    let mut out = Message::default();
    out.named(1, node, schema);
    out
}

fn schema(node: &Node) -> Message {
    let mut out = Message::default();
    out.str(1, node, "$ref");
    out.str(2, node, "format");
    out.str(4, node, "description");
    out.strs(19, node, "required");
    for value in get(node, "enum").map_or(&[][..], Node::as_list) {
        out.message(20, &any(value));
    }
    out.sub(21, node, "additionalProperties", |n| wrapped(1, &schema(n)));
    if let Some(Node::Str(ty)) = get(node, "type") {
        let mut item = Message::default();
        item.bytes(1, ty.as_bytes());
        out.message(22, &item);
    }
    out.sub(23, node, "items", |n| wrapped(1, &schema(n)));
    out.sub(25, node, "properties", properties);
    out.extensions(31, node);
    out
}
