//! Values as keys of hash maps and sets.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};

use crate::tree::Node;

/// A value, or a reference to one, as a key of a hash map or set: equal values hash alike.
#[derive(Debug, Clone, Copy)]
pub struct ByValue<T>(pub T);

impl<T: Borrow<Node>> PartialEq for ByValue<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.borrow() == other.0.borrow()
    }
}

impl<T: Borrow<Node>> Eq for ByValue<T> {}

impl<T: Borrow<Node>> Hash for ByValue<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash(self.0.borrow(), state);
    }
}

fn hash<H: Hasher>(node: &Node, state: &mut H) {
    std::mem::discriminant(node).hash(state);
    match node {
        Node::Null => {}
        Node::Bool(b) => b.hash(state),
        Node::Int(i) => i.hash(state),
        // Both zeros are equal.
        Node::Float(f) => (f + 0.0).to_bits().hash(state),
        Node::Str(s) | Node::Raw(s) => s.hash(state),
        Node::List(l) => {
            l.len().hash(state);
            for n in l {
                hash(n, state);
            }
        }
        Node::Map(m) => {
            m.len().hash(state);
            for (k, v) in m.by_key() {
                k.hash(state);
                hash(v, state);
            }
        }
        Node::Struct(s) => {
            s.id.hash(state);
            for (no, v) in s.iter() {
                no.hash(state);
                hash(v, state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::codec::json::decode_any;
    use crate::tree::Map;

    #[test]
    fn equal_values_are_one_key() {
        let texts = [
            "null",
            "true",
            "1",
            "1.5",
            r#""1""#,
            "[1]",
            "[1,2]",
            "[2,1]",
            "[[1]]",
            "{}",
            r#"{"a":1}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":{"b":1}}"#,
        ];
        let all: Vec<Node> = texts.iter().map(|t| decode_any(t.as_bytes()).unwrap()).collect();
        let mut set: HashSet<ByValue<&Node>> = all.iter().map(ByValue).collect();
        assert_eq!(set.len(), all.len());
        assert!(all.iter().all(|n| !set.insert(ByValue(n))));
        let other_order = Map::from_entries(vec![("b".into(), 2.into()), ("a".into(), 1.into())]);
        assert!(set.contains(&ByValue(&Node::Map(other_order))));
        set.insert(ByValue(&Node::Float(0.0)));
        assert!(set.contains(&ByValue(&Node::Float(-0.0))));
    }
}
