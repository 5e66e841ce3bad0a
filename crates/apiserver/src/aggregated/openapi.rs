//! An aggregated server's documents of OpenAPI: the part of them that counts, and how it goes into the server's own.

use std::collections::{BTreeMap, BTreeSet};

use api::Text;
use bytes::Bytes;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The part of a document of OpenAPI v2 that is about one group version: its paths, and what they refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Specification {
    json: Bytes,
    /// Tells it from others.
    pub(crate) hash: String,
}

impl Specification {
    /// The same as a document of v3.
    pub(crate) fn converted(&self) -> Option<Vec<u8>> {
        let v2: Value = serde_json::from_slice(&self.json).ok()?;
        Some(super::converted::v3(&v2).to_string().into_bytes())
    }
}

/// The parts of a document that others refer to, and how they do.
const SHARED: [(&str, &str); 2] = [("definitions", "#/definitions/"), ("parameters", "#/parameters/")];

/// Takes the part of a group version out of a document; `None` if there is none.
pub(crate) fn specification(
    document: &[u8],
    group: &str,
    version: &str,
) -> Result<Option<Specification>, String> {
    let document: Value = serde_json::from_slice(document).map_err(|e| e.to_string())?;
    let prefix = format!("/apis/{group}/{version}/");
    let Some(paths) = document.get("paths").and_then(Value::as_object) else { return Ok(None) };
    let own = paths.iter().filter(|(path, _)| path.starts_with(&prefix));
    let paths: Map<String, Value> = own.map(|(path, item)| (path.clone(), item.clone())).collect();
    if paths.is_empty() {
        return Ok(None);
    }
    let paths = Value::Object(paths);
    let mut needed = BTreeSet::new();
    let mut ahead = Vec::new();
    references(&paths, &mut ahead);
    while let Some(reference) = ahead.pop() {
        if needed.contains(&reference) {
            continue;
        }
        if let Some(value) = referred(&document, &reference) {
            references(value, &mut ahead);
        }
        needed.insert(reference);
    }
    let mut out = Map::new();
    out.insert("paths".into(), paths);
    for (part, prefix) in SHARED {
        let names = needed.iter().filter_map(|r| r.strip_prefix(prefix));
        let found = names.filter_map(|n| Some((n.to_owned(), document.get(part)?.get(n)?.clone())));
        out.insert(part.into(), Value::Object(found.collect()));
    }
    let json = Bytes::from(Value::Object(out).to_string());
    let hash = format!("{:X}", Sha256::digest(&json));
    Ok(Some(Specification { json, hash }))
}

fn referred<'v>(document: &'v Value, reference: &str) -> Option<&'v Value> {
    SHARED.iter().find_map(|(part, prefix)| document.get(part)?.get(reference.strip_prefix(prefix)?))
}

/// All that a value refers to.
fn references(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(to) if key == "$ref" => into.push(to.clone()),
                    other => references(other, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, into)),
        _ => {}
    }
}

/// Follows new names in what a value refers to.
fn rename(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(to) if key == "$ref" => {
                        if let Some(new) = names.get(to) {
                            new.clone_into(to);
                        }
                    }
                    other => rename(other, names),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
        _ => {}
    }
}

/// The extension that lists the kinds of a definition.
const KINDS: &str = "x-kubernetes-group-version-kind";

/// Whether two definitions say the same, but for the kinds that they are of.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let but = |m: &'_ Map<String, Value>| m.keys().filter(|k| *k != KINDS).count();
            but(a) == but(b) && a.iter().filter(|(k, _)| *k != KINDS).all(|(k, v)| b.get(k) == Some(v))
        }
        _ => a == b,
    }
}

/// Puts the parts of others into a document, as upstream does: a path that is there already stays; a definition by a
/// name that is taken gets another one.
pub(crate) fn merged<'s>(
    document: &[u8],
    parts: impl Iterator<Item = &'s Specification>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut document: Value = serde_json::from_slice(document)?;
    for part in parts {
        merge(&mut document, serde_json::from_slice(&part.json)?);
    }
    serde_json::to_vec(&document)
}

fn merge(document: &mut Value, mut part: Value) {
    let mut names = BTreeMap::new();
    for (of, prefix) in SHARED {
        let taken = document.get(of).and_then(Value::as_object);
        let own = part.get(of).and_then(Value::as_object);
        for (name, value) in own.into_iter().flatten() {
            let differs = |n: &str| taken.and_then(|t| t.get(n)).is_some_and(|there| !same(there, value));
            if differs(name) {
                let others = (2..).map(|n| format!("{name}_v{n}"));
                let free = others.into_iter().find(|n| !differs(n) && own.is_none_or(|o| !o.contains_key(n)));
                names.insert(format!("{prefix}{name}"), format!("{prefix}{}", free.unwrap_or_default()));
            }
        }
    }
    rename(&mut part, &names);
    for (of, prefix) in SHARED {
        let Some(own) = part.get_mut(of).and_then(Value::as_object_mut).map(std::mem::take) else { continue };
        let Some(into) = object(document, of) else { continue };
        for (name, value) in own {
            let new = names.get(&format!("{prefix}{name}")).and_then(|n| n.strip_prefix(prefix));
            into.entry(new.unwrap_or(&name)).or_insert(value);
        }
    }
    let Some(own) = part.get_mut("paths").and_then(Value::as_object_mut).map(std::mem::take) else { return };
    if let Some(into) = object(document, "paths") {
        for (path, item) in own {
            into.entry(path).or_insert(item);
        }
    }
}

/// A part of a document, which is made if it is not there.
fn object<'v>(document: &'v mut Value, part: &str) -> Option<&'v mut Map<String, Value>> {
    document.as_object_mut()?.entry(part).or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

/// The hash of a group version's document of OpenAPI v3, by the list of all documents; `None` if it is not there.
pub(crate) fn index_entry(index: &[u8], group: &str, version: &str) -> Result<Option<Text>, String> {
    let index: Value = serde_json::from_slice(index).map_err(|e| e.to_string())?;
    let entry = index.get("paths").and_then(|paths| paths.get(format!("apis/{group}/{version}")));
    let Some(url) = entry.and_then(|e| e.get("serverRelativeURL")).and_then(Value::as_str) else {
        return Ok(None);
    };
    let hash = url.split_once("?hash=").map_or("", |(_, hash)| hash);
    // It goes into an address that clients follow.
    if hash.bytes().all(|b| b.is_ascii_alphanumeric()) && hash.len() <= 256 {
        return Ok(Some(hash.into()));
    }
    Ok(Some(format!("{:X}", Sha256::digest(url)).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn part(document: &Value) -> Option<Specification> {
        specification(document.to_string().as_bytes(), "w.example", "v1").unwrap()
    }

    fn fishes() -> Value {
        json!({
            "swagger": "2.0",
            "paths": {
                "/apis/apps/v1/lies": {"get": {"schema": {"$ref": "#/definitions/Lie"}}},
                "/apis/w.example/v1/fishes": {
                    "parameters": [{"$ref": "#/parameters/p"}],
                    "get": {"schema": {"$ref": "#/definitions/Fish"}},
                },
            },
            "definitions": {
                "Fish": {"properties": {"fin": {"$ref": "#/definitions/Fin"}}},
                "Fin": {"properties": {"of": {"$ref": "#/definitions/Fish"}}},
                "Lie": {},
            },
            "parameters": {"p": {"name": "p"}, "q": {}},
        })
    }

    #[test]
    fn a_part_is_whole_and_nothing_else() {
        let found = part(&fishes()).unwrap();
        let json: Value = serde_json::from_slice(&found.json).unwrap();
        let keys = |of: &str| json[of].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys("paths"), ["/apis/w.example/v1/fishes"]);
        assert_eq!(keys("definitions"), ["Fin", "Fish"]);
        assert_eq!(keys("parameters"), ["p"]);
        assert_eq!(part(&json!({"paths": {"/apis/w.example/v10/x": {}}})), None);
        assert_eq!(part(&json!([])), None);
        assert!(specification(b"garbage", "w.example", "v1").is_err());
    }

    #[test]
    fn names_that_are_taken() {
        let part = part(&fishes()).unwrap();
        let check = |own: Value, want: Value| {
            let merged = merged(own.to_string().as_bytes(), [&part].into_iter()).unwrap();
            let merged: Value = serde_json::from_slice(&merged).unwrap();
            let names = merged["definitions"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            let item = &merged["paths"]["/apis/w.example/v1/fishes"];
            assert_eq!(json!([names, item["get"]["schema"]["$ref"]]), want);
        };
        let fin = json!({"properties": {"of": {"$ref": "#/definitions/Fish"}}, KINDS: [{"kind": "Fin"}]});
        check(json!({"paths": {}}), json!([["Fin", "Fish"], "#/definitions/Fish"]));
        check(json!({"definitions": {"Fin": fin}}), json!([["Fin", "Fish"], "#/definitions/Fish"]));
        check(
            json!({"definitions": {"Fish": {"type": "string"}}}),
            json!([["Fin", "Fish", "Fish_v2"], "#/definitions/Fish_v2"]),
        );
        check(
            json!({"definitions": {"Fish": {"type": "string"}, "Fish_v2": {"type": "object"}}}),
            json!([["Fin", "Fish", "Fish_v2", "Fish_v3"], "#/definitions/Fish_v3"]),
        );
        let own = json!({"paths": {"/apis/w.example/v1/fishes": {"get": {"schema": {"$ref": "here"}}}}, "definitions": {}});
        check(own, json!([["Fin", "Fish"], "here"]));
    }

    #[test]
    fn hashes() {
        let check = |url: &str, want: Option<&str>| {
            let index = json!({"paths": {"apis/w.example/v1": {"serverRelativeURL": url}}}).to_string();
            let found = index_entry(index.as_bytes(), "w.example", "v1").unwrap();
            assert_eq!(found.as_deref(), want);
        };
        check("/openapi/v3/apis/w.example/v1?hash=ABC1", Some("ABC1"));
        check("/openapi/v3/apis/w.example/v1", Some(""));
        let long = format!("{:X}", Sha256::digest("x?hash=../../api"));
        check("x?hash=../../api", Some(&long));
        assert_eq!(index_entry(b"{}", "w.example", "v1"), Ok(None));
        assert!(index_entry(b"[", "w.example", "v1").is_err());
    }
}
