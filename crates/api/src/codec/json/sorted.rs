//! Encoding of trees to JSON text with sorted names, without the value that would sort them.

use super::any::to_any;
use super::decode::raw_value;
use super::encode::{absent, encode_any, entries, list, name};
use crate::schema::{Schema, Type};
use crate::tree::{Node, Struct};

/// Appends a struct with the names in all its objects sorted: the text of [`super::to_any`]'s value.
pub fn encode_sorted(schema: &Schema, tree: &Struct, out: &mut Vec<u8>) {
    let st = schema.st(tree.id);
    if st.rest.is_some() {
        return encode_any(&to_any(schema, tree), out);
    }
    out.push(b'{');
    let mut first = true;
    for no in &st.by_json {
        let field = st.at(*no);
        match tree.get(*no) {
            Some(value) => {
                name(field, &mut first, out);
                sorted_node(schema, value, out);
            }
            None if !field.omitempty => {
                name(field, &mut first, out);
                match *schema.ty(field.ty) {
                    Type::Struct(id) if !field.pointer => encode_sorted(schema, &Struct::new(id), out),
                    _ => absent(schema, field, out),
                }
            }
            None => {}
        }
    }
    out.push(b'}');
}

fn sorted_node(schema: &Schema, node: &Node, out: &mut Vec<u8>) {
    match node {
        Node::Struct(s) => encode_sorted(schema, s, out),
        Node::List(l) => list(l, out, |n, out| sorted_node(schema, n, out)),
        Node::Map(m) => entries(m.sorted().map(|(k, n)| (k, n)), out, |n, out| sorted_node(schema, n, out)),
        Node::Raw(text) => encode_any(&raw_value(text), out),
        other => encode_any(other, out),
    }
}
