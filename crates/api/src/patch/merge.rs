//! RFC 7386, as the library that upstream uses does it: an object that replaces a value that is no map, or stands in a
//! list, loses its nulls; one that replaces a map as another type does not.

use std::collections::BTreeMap;

use crate::tree::{Map, Node};

/// Applies a merge patch: maps merge, `null` removes, everything else replaces.
pub fn merge(target: Node, patch: Node) -> Node {
    let Node::Map(patch) = patch else { return patch };
    let mut map = match target {
        Node::Map(m) => m.into_tree(),
        _ => BTreeMap::new(),
    };
    for (key, value) in patch.into_entries() {
        if value == Node::Null {
            map.remove(&key);
            continue;
        }
        let value = match map.remove(&key) {
            Some(old @ Node::Map(_)) => merge(old, value),
            _ => without_nulls(value),
        };
        map.insert(key, value);
    }
    Node::Map(Map::from_tree(map))
}

/// A value without the map entries that are `null`; elements of lists that are `null` stay.
pub(super) fn without_nulls(node: Node) -> Node {
    match node {
        Node::Map(m) => {
            let entries = m.into_entries().into_iter().filter(|(_, v)| *v != Node::Null);
            Node::Map(Map::from_entries(entries.map(|(k, v)| (k, without_nulls(v))).collect()))
        }
        Node::List(l) => Node::List(l.into_iter().map(without_nulls).collect()),
        other => other,
    }
}
