//! Whether a value is what it was, as far as its schema can tell.

use std::collections::HashMap;

use super::{Additional, ListType, Part, PartId, Structural};
use crate::go::scalar_json;
use crate::tree::{Map, Node, Text};

/// The elements of a list whose elements have keys, by these.
pub struct ByKey<'s, 'n> {
    part: &'s Part,
    by_key: HashMap<String, &'n Node>,
}

impl<'s, 'n> ByKey<'s, 'n> {
    /// The elements of a list with this schema; none if its elements have no keys. Of elements with equal keys, the first
    /// counts.
    pub fn new(part: &'s Part, list: Option<&'n Node>) -> Self {
        let mut by_key = HashMap::new();
        if part.list == ListType::Map
            && let Some(Node::List(list)) = list
        {
            by_key.reserve(list.len());
            for item in list {
                by_key.entry(key_of(part, item)).or_insert(item);
            }
        }
        Self { part, by_key }
    }
    /// The element that has the keys of another.
    pub fn of(&self, item: &Node) -> Option<&'n Node> {
        if self.by_key.is_empty() { None } else { self.by_key.get(&key_of(self.part, item)).copied() }
    }
}

fn key_of(part: &Part, item: &Node) -> String {
    let Node::Map(m) = item else { return String::new() };
    let of = |k: &Text| Some((k.clone(), m.get(k)?.clone()));
    scalar_json(&Node::Map(Map::from_entries(part.keys().iter().filter_map(of).collect())))
}

impl Structural {
    /// Whether a value is what it was, as upstream's `CorrelatedObject.CachedDeepEqual` has it: a field that the schema
    /// does not know is never what it was, and elements with keys may stand in another order.
    pub fn is_unchanged(&self, id: PartId, now: &Node, before: &Node) -> bool {
        let part = self.part(id);
        match (now, before) {
            (Node::List(now), Node::List(former)) => {
                let Some(items) = part.items.filter(|_| now.len() == former.len()) else {
                    return part.items.is_none() && now == former;
                };
                if part.list != ListType::Map {
                    return now == former;
                }
                let former = ByKey::new(part, Some(before));
                now.iter().all(|item| former.of(item).is_some_and(|b| self.is_unchanged(items, item, b)))
            }
            (Node::Map(now), Node::Map(before)) => {
                let mut properties = part.cursor();
                let same = |(name, value): (&Text, &Node)| {
                    let ((Some(below), _) | (None, Additional::Part(below))) =
                        (properties.find(name), part.additional)
                    else {
                        return false;
                    };
                    before.get(name).is_some_and(|before| self.is_unchanged(below, value, before))
                };
                now.len() == before.len() && now.iter().all(same)
            }
            _ => now == before,
        }
    }
}
