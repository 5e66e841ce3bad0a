//! OpenAPI v2 and v3 of the built-in kinds, from the schema and the table of resources.
//!
//! Documents are built once and kept by the server; nothing here is on a request's path.

mod custom;
mod definitions;
mod gnostic;
mod parts;
mod paths;

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;

use crate::codec::json::encode_any;
use crate::resources::ResourceInfo;
use crate::schema::Schema;
use crate::tree::{Map, Node, Text};

pub use custom::{CustomKinds, CustomResource};
pub use definitions::Docs;
pub use parts::{Part, v3_frame, v3_part};
use paths::{Described, PathItem};

/// The version of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

/// Media type of [`v2_protobuf`].
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// An object of these entries.
fn object<const N: usize>(entries: [(&str, Node); N]) -> Node {
    Node::Map(entries.into_iter().fold(Map::new(), |mut m, (k, v)| {
        m.insert(k, v);
        m
    }))
}

/// A list of strings.
fn strings<'a>(values: impl IntoIterator<Item = &'a str>) -> Node {
    Node::List(values.into_iter().map(Node::from).collect())
}

fn text(node: &Node) -> Vec<u8> {
    let mut out = Vec::new();
    encode_any(node, &mut out);
    out
}

/// The sources of documents besides resources and descriptions: the schema, and the code that makes them. Where one of
/// these differs, documents may.
pub const SOURCES: [&str; 9] = [
    include_str!("../../schema/v1.36.schema"),
    include_str!("../../schema/resources.tsv"),
    include_str!("custom.rs"),
    include_str!("definitions.rs"),
    include_str!("gnostic/mod.rs"),
    include_str!("gnostic/v3.rs"),
    include_str!("mod.rs"),
    include_str!("parts.rs"),
    include_str!("paths.rs"),
];

/// The paths of the OpenAPI v3 documents, as `/openapi/v3` lists them: `api/v1`, `apis/apps/v1`, …
pub fn v3_paths(resources: &[ResourceInfo], custom: &CustomKinds) -> Vec<String> {
    let mut out: BTreeSet<String> =
        ["api", "apis", "version", "openid/v1/jwks", ".well-known/openid-configuration"]
            .map(String::from)
            .into();
    for r in resources {
        if r.group.is_empty() {
            out.insert(format!("api/{}", r.version));
        } else {
            out.insert(format!("apis/{}", r.group));
            out.insert(format!("apis/{}/{}", r.group, r.version));
        }
    }
    for r in custom.resources() {
        out.insert(format!("apis/{}", r.group));
        out.insert(format!("apis/{}/{}", r.group, r.version));
    }
    out.into_iter().collect()
}

/// The OpenAPI v3 document of one of [`v3_paths`], as JSON; `None` if there is none of that path. `resources` are the
/// served ones.
pub fn v3(
    schema: &Schema,
    resources: &[ResourceInfo],
    custom: &CustomKinds,
    path: &str,
    docs: &Docs<'_>,
) -> Option<Vec<u8>> {
    let mut items = BTreeMap::new();
    let version = match path.split('/').collect::<Vec<_>>()[..] {
        ["api"] => {
            items.extend(paths::api_versions());
            None
        }
        ["apis"] => {
            items.extend(paths::api_groups());
            None
        }
        ["version"] => {
            items.extend(paths::version());
            None
        }
        ["openid", ..] => {
            items.extend(paths::keys());
            None
        }
        [".well-known", ..] => {
            items.extend(paths::issuer());
            None
        }
        ["api", version] => Some(("", version)),
        ["apis", group] => {
            items.extend(paths::api_group(group));
            None
        }
        ["apis", group, version] => Some((group, version)),
        _ => return None,
    };
    if let Some((group, version)) = version {
        items.extend(paths::resource_list(group, version));
        let of: Vec<_> = resources.iter().filter(|r| r.group == group && r.version == version).collect();
        let of_definitions: Vec<_> =
            custom.resources().filter(|r| r.group == group && r.version == version).collect();
        if of.is_empty() && of_definitions.is_empty() {
            return None;
        }
        for r in of {
            paths::resource(schema, custom, &Described::from(r), &mut items);
        }
        for r in of_definitions {
            paths::resource(schema, custom, &r.described(), &mut items);
        }
    } else if let ["apis", group] = path.split('/').collect::<Vec<_>>()[..]
        && !resources.iter().any(|r| r.group == group)
        && !custom.resources().any(|r| r.group == group)
    {
        return None;
    }
    let versions: Vec<(Text, Text)> = match version {
        Some((g, v)) if !g.is_empty() => vec![("".into(), "v1".into()), (g.into(), v.into())],
        _ => vec![("".into(), "v1".into())],
    };
    let (paths, schemas) = render((schema, custom), &items, Dialect::V3, &versions, docs);
    let mut components = Map::new();
    if schemas.as_map().is_some_and(|m| !m.is_empty()) {
        components.insert("schemas", schemas);
    }
    components.insert("securitySchemes", object([("BearerToken", bearer_token())]));
    Some(text(&object([
        ("openapi", "3.0.0".into()),
        ("info", info()),
        ("paths", paths),
        ("components", components.into()),
    ])))
}

/// An OpenAPI v3 document as gnostic's protobuf (`openapi.v3.Document`); `None` if the document is no JSON.
pub fn v3_protobuf(json: &[u8]) -> Option<Vec<u8>> {
    Some(gnostic::v3::document(&crate::codec::json::decode_any(json).ok()?))
}

/// How clients say who they are.
fn bearer_token() -> Node {
    object([
        ("description", "Bearer Token authentication".into()),
        ("in", "header".into()),
        ("name", "authorization".into()),
        ("type", "apiKey".into()),
    ])
}

fn info() -> Node {
    object([("title", "Kubernetes".into()), ("version", "1.36".into())])
}

fn v2_document(schema: &Schema, resources: &[ResourceInfo], custom: &CustomKinds, docs: &Docs<'_>) -> Node {
    let mut items = BTreeMap::new();
    items.extend(paths::api_versions());
    items.extend(paths::api_groups());
    items.extend(paths::version());
    items.extend(paths::keys());
    items.extend(paths::issuer());
    for r in resources {
        if !r.group.is_empty() {
            items.extend(paths::api_group(r.group));
        }
        items.extend(paths::resource_list(r.group, r.version));
        paths::resource(schema, custom, &Described::from(r), &mut items);
    }
    for r in custom.resources() {
        items.extend(paths::api_group(&r.group));
        items.extend(paths::resource_list(&r.group, &r.version));
        paths::resource(schema, custom, &r.described(), &mut items);
    }
    let versions = custom.with_versions(schema.versions());
    let (mut paths, definitions) = render((schema, custom), &items, Dialect::V2, &versions, docs);
    let parameters = share(&mut paths);
    object([
        ("swagger", "2.0".into()),
        ("info", info()),
        ("paths", paths),
        ("definitions", definitions),
        ("parameters", parameters),
        ("securityDefinitions", object([("BearerToken", bearer_token())])),
        ("security", Node::List(vec![object([("BearerToken", Node::List(Vec::new()))])])),
    ])
}

/// The OpenAPI v2 document of the served `resources`, as JSON.
pub fn v2(schema: &Schema, resources: &[ResourceInfo], custom: &CustomKinds, docs: &Docs<'_>) -> Vec<u8> {
    text(&v2_document(schema, resources, custom, docs))
}

/// The OpenAPI v2 document of the served `resources`, as [`V2_PROTOBUF`].
pub fn v2_protobuf(
    schema: &Schema,
    resources: &[ResourceInfo],
    custom: &CustomKinds,
    docs: &Docs<'_>,
) -> Vec<u8> {
    gnostic::document(&v2_document(schema, resources, custom, docs))
}

/// An OpenAPI v2 document as [`V2_PROTOBUF`]; `None` if the document is no JSON.
pub fn v2_protobuf_of(json: &[u8]) -> Option<Vec<u8>> {
    Some(gnostic::document(&crate::codec::json::decode_any(json).ok()?))
}

/// Renders paths, and the definitions that they need, directly or not.
fn render(
    (schema, custom): (&Schema, &CustomKinds),
    items: &BTreeMap<String, PathItem>,
    dialect: Dialect,
    versions: &[(Text, Text)],
    docs: &Docs<'_>,
) -> (Node, Node) {
    let mut needed = BTreeSet::new();
    let mut out = Map::new();
    for (path, item) in items {
        let mut node = item.node(dialect, &mut needed);
        describe(&mut node, docs);
        out.insert(path.as_str(), node);
    }
    (out.into(), definitions::all((schema, custom), needed, dialect, versions, docs))
}

/// Gives the parameters of a path and of its operations their descriptions: those of the fields that they set.
fn describe(item: &mut Node, docs: &Docs<'_>) {
    let Some(item) = item.as_map_mut() else { return };
    let kind = item.iter().find_map(|(_, operation)| {
        let of = operation.as_map()?.get("x-kubernetes-group-version-kind")?;
        Some(of.as_map()?.str("kind").to_owned())
    });
    let kind = kind.unwrap_or_default();
    let meta = |options: &str| format!("io.k8s.apimachinery.pkg.apis.meta.v1.{options}");
    let core = |options: &str| format!("io.k8s.api.core.v1.{options}");
    let find = |writes: &str, name: &str| {
        let options =
            [core(&kind), meta(writes), meta("ListOptions"), meta("DeleteOptions"), core("PodLogOptions")];
        let mut options = options.iter().filter(|o| o.ends_with("Options"));
        options.find_map(|o| docs(o, Some(name))).unwrap_or_default()
    };
    // The operations of a path have mostly the same parameters.
    let mut found: BTreeMap<(&str, String), &str> = BTreeMap::new();
    let mut all = |list: &mut Node, writes: &'static str| {
        for parameter in list.as_list_mut().into_iter().flatten().filter_map(Node::as_map_mut) {
            let text = match (parameter.str("in"), parameter.str("name")) {
                (_, "pretty") => "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget).".to_owned(),
                ("path", "namespace") => "object name and auth scope, such as for teams and projects".to_owned(),
                ("path", "name") => format!("name of the {kind}"),
                ("path", "path") => "path to the resource".to_owned(),
                ("query", name) => {
                    let text = found.entry((writes, name.to_owned())).or_insert_with(|| find(writes, name));
                    (*text).to_owned()
                }
                _ => String::new(),
            };
            if !text.is_empty() {
                parameter.insert("description", text);
            }
        }
    };
    for (name, node) in item.iter_mut() {
        let writes = if name == "patch" { "PatchOptions" } else { "CreateOptions" };
        if name == "parameters" {
            all(node, writes);
        } else if let Some(list) = node.as_map_mut().and_then(|o| o.get_mut("parameters")) {
            all(list, writes);
        }
    }
}

/// Moves the parameters of v2 that are no kind's own out of its paths, as kube-openapi does, and leaves references to
/// them. Clients find some parameters by their names, so those stay.
fn share(paths: &mut Node) -> Node {
    let mut shared = BTreeMap::new();
    let mut all = |list: &mut Node| {
        for node in list.as_list_mut().into_iter().flatten() {
            let Some(parameter) = node.as_map() else { continue };
            let own = match (parameter.str("in"), parameter.str("name")) {
                ("query", "fieldValidation" | "dryRun") | (_, "name") => true,
                ("body", _) => {
                    let schema = parameter.get("schema").and_then(Node::as_map);
                    !schema.is_some_and(|s| s.str("$ref").starts_with("#/definitions/io.k8s.apimachinery"))
                }
                _ => false,
            };
            if own {
                continue;
            }
            let name = format!("{}-{}", parameter.str("name"), shared_hash(parameter));
            let reference = object([("$ref", format!("#/parameters/{name}").into())]);
            shared.insert(name, std::mem::replace(node, reference));
        }
    };
    for (_, item) in paths.as_map_mut().into_iter().flat_map(Map::iter_mut) {
        for (name, node) in item.as_map_mut().into_iter().flat_map(Map::iter_mut) {
            if name == "parameters" {
                all(node);
            } else if let Some(list) = node.as_map_mut().and_then(|o| o.get_mut("parameters")) {
                all(list);
            }
        }
    }
    shared
        .into_iter()
        .fold(Map::new(), |mut out, (name, parameter)| {
            out.insert(name, parameter);
            out
        })
        .into()
}

/// The start of FNV-1 of a parameter in Go's order of fields, as base64 for URLs.
fn shared_hash(parameter: &Map) -> String {
    const ORDER: [&str; 7] = ["uniqueItems", "type", "description", "name", "in", "required", "schema"];
    let fields = ORDER.iter().filter_map(|name| Some(((*name).into(), parameter.get(name)?.clone())));
    let ordered = Map::from_entries(fields.collect());
    let hash = text(&ordered.into())
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte));
    base64::prelude::BASE64_URL_SAFE.encode(&hash.to_be_bytes()[..6])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_is_there() {
        let schema = Schema::builtin();
        let served: Vec<ResourceInfo> =
            crate::resources::builtin().iter().filter(|r| r.served_by_default).cloned().collect();
        let none = CustomKinds::default();
        for path in v3_paths(&served, &none) {
            let doc = v3(schema, &served, &none, &path, &|_, _| None).unwrap();
            crate::codec::json::decode_any(&doc).unwrap();
        }
        assert_eq!(v3(schema, &served, &none, "apis/none/v1", &|_, _| None), None);
        assert_eq!(v3(schema, &served, &none, "apis/none", &|_, _| None), None);
        assert_eq!(v3(schema, &served, &none, "", &|_, _| None), None);
    }

    #[test]
    fn protobuf_has_the_shape_of_gnostic() {
        let schema = Schema::builtin();
        let doc = v2_protobuf(schema, crate::resources::builtin(), &CustomKinds::default(), &|_, _| None);
        // Field 1 of a Document: swagger "2.0".
        assert!(doc.starts_with(b"\x0a\x032.0"));
        assert!(doc.len() > 100_000);
        let served = crate::resources::builtin();
        let json = v3(schema, served, &CustomKinds::default(), "apis/apps/v1", &|_, _| None).unwrap();
        let doc = v3_protobuf(&json).unwrap();
        // Fields 1 and 2: openapi "3.0.0", info.
        assert!(doc.starts_with(b"\x0a\x053.0.0\x12"));
        assert!(doc.len() > 100_000);
        assert_eq!(v3_protobuf(b"{"), None);
    }
}
