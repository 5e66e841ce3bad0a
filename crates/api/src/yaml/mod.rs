//! YAML bodies: one document into a tree without a schema, with the keys in their order, and back.

mod emit;
mod plain;

pub use emit::emit;

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::tree::{Map, Node, Text};

/// Why a text is no YAML document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error converting YAML to JSON: {0}")]
pub struct YamlError(String);

struct Yaml(Node);

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Yaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Yaml, E> {
        Ok(Yaml(Node::Bool(v)))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Yaml, E> {
        Ok(Yaml(Node::Int(v)))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Yaml, E> {
        Ok(Yaml(i64::try_from(v).map_or(Node::Float(v as f64), Node::Int)))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Yaml, E> {
        Ok(Yaml(Node::Float(v)))
    }
    fn visit_str<E>(self, v: &str) -> Result<Yaml, E> {
        Ok(Yaml(Node::Str(v.into())))
    }
    fn visit_string<E>(self, v: String) -> Result<Yaml, E> {
        Ok(Yaml(Node::Str(v.into())))
    }
    fn visit_unit<E>(self) -> Result<Yaml, E> {
        Ok(Yaml(Node::Null))
    }
    fn visit_none<E>(self) -> Result<Yaml, E> {
        Ok(Yaml(Node::Null))
    }
    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Yaml, D::Error> {
        Yaml::deserialize(d)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Yaml, A::Error> {
        let mut list = Vec::new();
        while let Some(Yaml(v)) = seq.next_element()? {
            list.push(v);
        }
        Ok(Yaml(Node::List(list)))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Yaml, A::Error> {
        let mut entries: Vec<(Text, Node)> = Vec::new();
        while let Some(Yaml(key)) = map.next_key()? {
            let key: Text = match key {
                Node::Str(s) => s,
                Node::Int(i) => compact_str::format_compact!("{i}"),
                Node::Bool(b) => compact_str::format_compact!("{b}"),
                Node::Float(f) => compact_str::format_compact!("{f}"),
                _ => return Err(A::Error::custom("a key must be a scalar")),
            };
            let Yaml(value) = map.next_value()?;
            entries.push((key, value));
        }
        Ok(Yaml(Node::Map(Map::from_entries(entries))))
    }
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(NodeVisitor)
    }
}

/// Reads one document. A key that stands twice in a mapping is an error, as in upstream's strict conversion.
pub fn parse(text: &[u8]) -> Result<Node, YamlError> {
    let text = std::str::from_utf8(text).map_err(|_| YamlError("yaml: invalid UTF-8".into()))?;
    if text.trim().is_empty() {
        return Ok(Node::Null);
    }
    // Nested as deeply as JSON may be, and with as much as a body of JSON can hold; what aliases repeat is less.
    let options = serde_saphyr::options! {
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 250_000,
        },
        budget: serde_saphyr::budget! {
            max_depth: crate::codec::json::MAX_DEPTH as usize,
            flow_nesting_limit: crate::codec::json::MAX_DEPTH as usize,
            max_nodes: 2_000_000,
            max_events: 4_000_000,
        },
    };
    let parsed = serde_saphyr::from_str_with_options::<Yaml>(text, options);
    parsed.map(|y| y.0).map_err(|e| YamlError(format!("yaml: {e}")))
}

#[cfg(test)]
mod tests {
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
    fn refuses_what_is_no_document() {
        for bad in ["a: [", "a: b: c", "a: 1\na: 2\n", "- a\nb: c", "%", "&a [*a]"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).is_err());
    }
}
