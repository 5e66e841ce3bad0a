//! The v3 document of a group version that only definitions have, in parts: one a definition, and what is around them. A
//! definition that comes or changes then costs its own part, not those of the others of its group.

use std::collections::{BTreeMap, BTreeSet};

use super::custom::{CustomKinds, CustomResource};
use super::definitions::{self, Docs};
use super::{Dialect, bearer_token, describe, info, object, paths, text};
use crate::codec::json::encode_any;
use crate::schema::Schema;
use crate::tree::{Node, Text};

/// A definition's part of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The entries of its paths as JSON, a comma before each.
    pub paths: Vec<u8>,
    /// The entries of its schemas as JSON, a comma before each.
    pub schemas: Vec<u8>,
    /// The names of the built-in schemas to which it refers.
    pub refers: BTreeSet<Text>,
}

/// The part of a definition's resource.
pub fn v3_part(schema: &Schema, resource: &CustomResource, docs: &Docs<'_>) -> Part {
    let custom = CustomKinds::new(vec![resource.clone()]);
    let mut items = BTreeMap::new();
    paths::resource(schema, &custom, &resource.described(), &mut items);
    let mut needed = BTreeSet::new();
    let mut out = Vec::new();
    for (path, item) in &items {
        let mut node = item.node(Dialect::V3, &mut needed);
        describe(&mut node, docs);
        entry(&mut out, path, &node);
    }
    let (mut schemas, mut refers) = (Vec::new(), BTreeSet::new());
    let mut done = BTreeSet::new();
    let mut queue: Vec<Text> = needed.into_iter().collect();
    while let Some(name) = queue.pop() {
        if !done.insert(name.clone()) {
            continue;
        }
        let own = match schema.named(&name) {
            Some(_) => None,
            None => custom.definition(&name, Dialect::V3, docs),
        };
        if let Some((node, more)) = own {
            entry(&mut schemas, &name, &node);
            queue.extend(more);
        } else {
            refers.insert(name);
        }
    }
    Part { paths: out, schemas, refers }
}

/// The text around the parts of a group version's document: before the paths, between them and the schemas, and after
/// those. `refers` has the built-in schemas to which the parts refer.
pub fn v3_frame(
    schema: &Schema,
    (group, version): (&str, &str),
    refers: &BTreeSet<Text>,
    docs: &Docs<'_>,
) -> [Vec<u8>; 3] {
    let mut needed = refers.clone();
    let mut before = Vec::new();
    if let Some((path, item)) = paths::resource_list(group, version) {
        entry(&mut before, &path, &item.node(Dialect::V3, &mut needed));
    }
    let versions = [(Text::default(), "v1".into()), (group.into(), version.into())];
    let none = CustomKinds::default();
    let shared = definitions::all((schema, &none), needed, Dialect::V3, &versions, docs);
    let mut between = Vec::new();
    for (name, node) in shared.as_map().into_iter().flat_map(crate::tree::Map::iter) {
        entry(&mut between, name, node);
    }
    let own = |entries: &[u8]| entries.strip_prefix(b",").unwrap_or_default().to_vec();
    let info = text(&info());
    let security = text(&object([("BearerToken", bearer_token())]));
    [
        [&b"{\"openapi\":\"3.0.0\",\"info\":"[..], &info, b",\"paths\":{", &own(&before)].concat(),
        [&b"},\"components\":{\"schemas\":{"[..], &own(&between)].concat(),
        [&b"},\"securitySchemes\":"[..], &security, b"}}"].concat(),
    ]
}

fn entry(out: &mut Vec<u8>, name: &str, node: &Node) {
    out.push(b',');
    encode_any(&Node::from(name), out);
    out.push(b':');
    encode_any(node, out);
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::openapi::v3;

    fn resource(kind: &str, status: bool, scale: bool, namespaced: bool) -> CustomResource {
        let spec = r#"{"type":"object","properties":{"a":{"type":"string"},"o":{"type":"object","x-kubernetes-embedded-resource":true}}}"#;
        CustomResource {
            group: "example.com".into(),
            version: "v1".into(),
            kind: kind.into(),
            list_kind: format!("{kind}List").into(),
            plural: format!("{}s", kind.to_lowercase()).into(),
            namespaced,
            status,
            scale,
            schema: format!(r#"{{"type":"object","properties":{{"spec":{spec}}}}}"#).into(),
            keeps_unknown: false,
            selectable: vec!["spec.a".into()],
            hash: 0,
        }
    }

    #[test]
    fn parts_make_the_document() {
        let schema = Schema::builtin();
        let docs = |definition: &str, field: Option<&str>| {
            (definition.ends_with("ListMeta") && field.is_none()).then_some("a \"description\"")
        };
        let check = |all: Vec<CustomResource>| {
            let parts: Vec<Part> = all.iter().map(|r| v3_part(schema, r, &docs)).collect();
            let refers = parts.iter().flat_map(|part| part.refers.clone()).collect();
            let [before, between, after] = v3_frame(schema, ("example.com", "v1"), &refers, &docs);
            let paths: Vec<u8> = parts.iter().flat_map(|part| part.paths.clone()).collect();
            let schemas: Vec<u8> = parts.iter().flat_map(|part| part.schemas.clone()).collect();
            let made: Value =
                serde_json::from_slice(&[before, paths, between, schemas, after].concat()).unwrap();
            let whole = v3(schema, &[], &CustomKinds::new(all), "apis/example.com/v1", &docs).unwrap();
            assert_eq!(made, serde_json::from_slice::<Value>(&whole).unwrap());
        };
        check(vec![resource("One", false, false, true)]);
        check(vec![
            resource("Two", true, true, false),
            resource("One", true, false, true),
            resource("Six", false, true, true),
        ]);
    }
}
