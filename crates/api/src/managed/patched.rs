//! The merge of a configuration into an object by the rules of server-side apply, without managers: what policies do
//! that mutate (upstream: `ApplyStructuredMergeDiff`).

use std::fmt::Write;

use super::merge::merge;
use super::set::Element;
use super::value::Shape;
use super::walk::validate;
use crate::schema::{Schema, StructId};
use crate::tree::Node;

/// Merges a configuration into an object; both are of the root struct, without kind and API version. The error is
/// upstream's text.
///
/// A configuration that would replace a list, map or struct as a whole is refused, since whoever writes it hardly means
/// to remove the rest.
pub fn merge_configuration(
    schema: &Schema,
    root: StructId,
    object: Node,
    configuration: Node,
) -> Result<Node, String> {
    validate(schema, root, &configuration, false)
        .map_err(|e| format!("failed to convert patch object to typed object: {e}"))?;
    let mut found = Vec::new();
    atomics(schema, Shape::root(schema, root), &configuration, &mut String::new(), &mut found);
    if !found.is_empty() {
        let found = found.join(", ");
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {found}"
        ));
    }
    validate(schema, root, &object, true)
        .map_err(|e| format!("failed to convert original object to typed object: {e}"))?;
    merge(schema, root, object, configuration).map_err(|e| format!("failed to merge patch: {e}"))
}

/// Finds the paths of what a configuration would replace as a whole. As upstream, it looks below named fields and the
/// elements of lists, not below the entries of maps.
fn atomics(schema: &Schema, shape: Shape<'_>, value: &Node, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    match (value, shape) {
        (Node::Map(entries), Shape::Map { .. } | Shape::Struct { .. } | Shape::Object { .. }) => {
            if shape.is_atomic() {
                found.push(path.clone());
            }
            for (name, value) in entries.iter().filter(|(name, _)| shape.names(schema, name)) {
                // Writing to a String does not fail.
                let _ = write!(path, ".{name}");
                let below = shape.below(schema, &Element::Field(name.clone()));
                atomics(schema, below, value, path, found);
                path.truncate(length);
            }
        }
        (Node::List(items), Shape::List { of, .. }) => {
            if shape.is_atomic() {
                found.push(path.clone());
            }
            for (i, item) in items.iter().enumerate() {
                let _ = write!(path, "[{i}]");
                atomics(schema, of.shape(schema), item, path, found);
                path.truncate(length);
            }
        }
        (Node::List(_), Shape::Deduced) => found.push(path.clone()),
        _ => {}
    }
}
