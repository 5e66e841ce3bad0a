//! YAML bodies: one document into a tree without a schema, with the keys in their order, and back.

mod emit;
mod plain;

pub use emit::{emit, emit_within};

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::depth::{MAX_DEPTH, TOO_DEEP};
use crate::go::quote;
use crate::tree::{Map, Node, Text};

/// The reason for which a text is no YAML document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error converting YAML to JSON: {0}")]
pub struct YamlError(String);

struct Yaml(Node);

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Within(MAX_DEPTH).deserialize(d).map(Self)
    }
}

/// A value that may nest so deeply. Aliases repeat other parts of the text, so that the text's own depth says nothing.
#[derive(Clone, Copy)]
struct Within(usize);

impl Within {
    /// The limit for the entries of a mapping or a sequence at this level.
    fn inside<E: Error>(self) -> Result<Self, E> {
        self.0.checked_sub(1).map(Self).ok_or_else(|| E::custom(TOO_DEEP))
    }
}

impl<'de> Visitor<'de> for Within {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Node, E> {
        Ok(Node::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Node, E> {
        Ok(Node::Int(v))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Node, E> {
        Ok(i64::try_from(v).map_or(Node::Float(v as f64), Node::Int))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Node, E> {
        Ok(Node::Float(v))
    }
    fn visit_str<E>(self, v: &str) -> Result<Node, E> {
        Ok(Node::Str(v.into()))
    }
    fn visit_string<E>(self, v: String) -> Result<Node, E> {
        Ok(Node::Str(v.into()))
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Node, D::Error> {
        self.deserialize(d)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let inside = self.inside()?;
        let mut list = Vec::new();
        while let Some(v) = seq.next_element_seed(inside)? {
            list.push(v);
        }
        Ok(Node::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let inside = self.inside()?;
        let mut entries: Vec<(Text, Node)> = Vec::new();
        while let Some(key) = map.next_key_seed(inside)? {
            let key: Text = match key {
                Node::Str(s) => s,
                Node::Int(i) => compact_str::format_compact!("{i}"),
                Node::Bool(b) => compact_str::format_compact!("{b}"),
                Node::Float(f) => compact_str::format_compact!("{f}"),
                _ => return Err(A::Error::custom("a key must be a scalar")),
            };
            entries.push((key, map.next_value_seed(inside)?));
        }
        Ok(Node::Map(Map::from_entries(entries)))
    }
}

impl<'de> DeserializeSeed<'de> for Within {
    type Value = Node;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Node, D::Error> {
        d.deserialize_any(self)
    }
}

/// Reads one document. A key that stands twice in a mapping is an error, as in upstream's strict conversion.
pub fn parse(text: &[u8]) -> Result<Node, YamlError> {
    let text = std::str::from_utf8(text).map_err(|_| YamlError("yaml: invalid UTF-8".into()))?;
    if text.trim().is_empty() {
        return Ok(Node::Null);
    }
    // A text may nest as deeply as JSON, and hold as many nodes as a body of JSON can; aliases may repeat less.
    let options = serde_saphyr::options! {
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 250_000,
        },
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: 2_000_000,
            max_events: 4_000_000,
        },
    };
    let parsed = serde_saphyr::from_str_with_options::<Yaml>(text, options);
    parsed.map(|y| y.0).map_err(|e| YamlError(told(&e)))
}

/// An error in upstream's words where these have any: clients look for duplicate keys.
fn told(error: &serde_saphyr::Error) -> String {
    match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), location } => {
            format!(
                "yaml: unmarshal errors:\n  line {}: key {} already set in map",
                location.line(),
                quote(key)
            )
        }
        other => format!("yaml: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn scalars_keep_their_types() {
        let node = parse(b"a: 1\nb: \"1\"\nc: true\nd: null\ne: [1.5, x]\nf: {g: h}\n").unwrap();
        let m = node.as_map().unwrap();
        assert_eq!(m.get("a"), Some(&Node::Int(1)));
        assert_eq!(m.get("b"), Some(&Node::Str("1".into())));
        assert_eq!(m.get("c"), Some(&Node::Bool(true)));
        assert_eq!(m.get("d"), Some(&Node::Null));
        assert_eq!(m.get("e"), Some(&Node::List(vec![Node::Float(1.5), Node::Str("x".into())])));
        assert_eq!(m.get("f").and_then(|f| f.as_map()).map(|f| f.str("g")), Some("h"));
    }

    #[test]
    fn a_key_that_stands_twice_is_told_as_upstream_does() {
        let error = parse(b"a: 1\nb:\n  foo: x\n  foo: y\n").unwrap_err().to_string();
        assert!(error.ends_with("line 4: key \"foo\" already set in map"), "{error}");
    }

    #[test]
    fn refuses_what_is_no_document() {
        for bad in ["a: [", "a: b: c", "a: 1\na: 2\n", "- a\nb: c", "%", "&a [*a]"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn nests_as_deeply_as_json_also_by_aliases() {
        crate::depth::tests::on_a_stack(aliases);
    }

    fn aliases() {
        let flow = |depth: usize, inside: &str| "[".repeat(depth) + inside + &"]".repeat(depth);
        let block = |depth: usize| "- ".repeat(depth) + "x";
        let check = |text: &str, depth: usize| {
            let read = parse(text.as_bytes()).map(|n| crate::depth::measure(&n, depth).map(|m| m.0));
            if depth > MAX_DEPTH {
                assert!(read.is_err(), "{depth}");
            } else {
                assert_eq!(read, Ok(Some(depth)));
            }
        };
        for depth in [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1] {
            check(&flow(depth, ""), depth);
            check(&block(depth), depth);
            // A list of an anchor and what holds its alias.
            let anchor = flow(200, "0");
            check(&format!("- &a {anchor}\n- {}\n", flow(depth - 201, "*a")), depth);
        }
        let mut chain = format!("- &a0 {}\n", flow(MAX_DEPTH - 2, "0"));
        for i in 1..60 {
            let _ = writeln!(chain, "- &a{i} {}", flow(MAX_DEPTH - 2, &format!("*a{}", i - 1)));
        }
        check(&chain, 60 * MAX_DEPTH);
    }
}
