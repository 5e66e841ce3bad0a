//! RFC 7386.

use crate::tree::{Map, Node};

/// Applies a merge patch: maps merge, `null` removes, everything else replaces.
pub fn merge(target: Node, patch: Node) -> Node {
    let Node::Map(patch) = patch else { return patch };
    let mut map = match target {
        Node::Map(m) => m,
        _ => Map::new(),
    };
    for (key, value) in patch.into_entries() {
        match value {
            Node::Null => {
                map.remove(&key);
            }
            Node::Map(_) => {
                let old = map.remove(&key).unwrap_or(Node::Null);
                map.insert(key, merge(old, value));
            }
            other => {
                map.insert(key, other);
            }
        }
    }
    Node::Map(map)
}
