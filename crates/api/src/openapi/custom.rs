//! The kinds of definitions in OpenAPI.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::definitions::reference;
use super::paths::{Below, CUSTOM, CUSTOM_PATCHES, Described};
use super::{Dialect, Docs, object, strings};
use crate::codec::json;
use crate::schema::Gvk;
use crate::tree::{Map, Node, Text};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
/// A definition whose descriptions of the fields of every object all have.
const DESCRIBED: &str = "io.k8s.api.core.v1.ConfigMap";
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const BELOW: [&str; 3] = ["get", "patch", "update"];

/// A version of a definition, as OpenAPI shows it.
#[derive(Debug, Clone)]
pub struct CustomResource {
    /// Group.
    pub group: Text,
    /// Version.
    pub version: Text,
    /// Kind.
    pub kind: Text,
    /// The kind of lists.
    pub list_kind: Text,
    /// Plural name.
    pub plural: Text,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether it has the subresource `status`.
    pub status: bool,
    /// Whether it has the subresource `scale`.
    pub scale: bool,
    /// The definition's schema, as it stands there, as JSON with sorted names.
    pub schema: Bytes,
    /// A hash of what the definition says.
    pub hash: u64,
}

impl CustomResource {
    fn gvk(&self) -> Gvk {
        Gvk { group: self.group.clone(), version: self.version.clone(), kind: self.kind.clone() }
    }
    /// The resource as paths need it.
    pub(super) fn described(&self) -> Described<'_> {
        let scale = self.scale.then(|| Below {
            name: "scale",
            kind: Gvk::new("autoscaling", "v1", "Scale"),
            verbs: &BELOW,
        });
        let status = self.status.then(|| Below { name: "status", kind: self.gvk(), verbs: &BELOW });
        Described {
            group: &self.group,
            version: &self.version,
            resource: &self.plural,
            kind: &self.kind,
            list_kind: self.list_kind.clone(),
            namespaced: self.namespaced,
            verbs: &VERBS,
            subresources: scale.into_iter().chain(status).collect(),
            returns_deleted: false,
            plain: CUSTOM,
            streamed: CUSTOM,
            patches: CUSTOM_PATCHES,
        }
    }
    fn name(&self, kind: &str) -> Text {
        definition_name(&self.group, &self.version, kind)
    }
}

/// The name of a kind's definition: the group's parts from the last to the first, version and kind.
fn definition_name(group: &str, version: &str, kind: &str) -> Text {
    let mut name = Text::default();
    for part in group.rsplit('.').chain([version, kind]) {
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(part);
    }
    name
}

/// The kinds of definitions that are served.
#[derive(Debug, Clone, Default)]
pub struct CustomKinds {
    resources: Vec<CustomResource>,
    /// The places of kinds and of kinds of lists, by the names of definitions.
    names: BTreeMap<Text, (usize, bool)>,
}

impl CustomKinds {
    /// Of these resources.
    pub fn new(resources: Vec<CustomResource>) -> Self {
        let mut names = BTreeMap::new();
        for (i, r) in resources.iter().enumerate() {
            names.insert(r.name(&r.kind), (i, false));
            names.insert(r.name(&r.list_kind), (i, true));
        }
        Self { resources, names }
    }
    /// All of them.
    pub fn resources(&self) -> impl Iterator<Item = &CustomResource> {
        self.resources.iter()
    }
    /// The name of a kind's definition.
    pub(super) fn name(&self, gvk: &Gvk) -> Option<Text> {
        let name = definition_name(&gvk.group, &gvk.version, &gvk.kind);
        let (at, _) = self.names.get(&name)?;
        let r = self.resources.get(*at)?;
        (r.group == gvk.group && r.version == gvk.version).then_some(name)
    }
    /// The versions of which options are kinds.
    pub(super) fn with_versions(&self, versions: &[(Text, Text)]) -> Vec<(Text, Text)> {
        let mut all = versions.to_vec();
        for r in &self.resources {
            let one = (r.group.clone(), r.version.clone());
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all
    }
    /// A definition, with the names of those to which it refers.
    pub(super) fn definition(
        &self,
        name: &str,
        dialect: Dialect,
        docs: &Docs<'_>,
    ) -> Option<(Node, Vec<Text>)> {
        let (at, is_list) = self.names.get(name)?;
        let r = self.resources.get(*at)?;
        let describe =
            |definition: &str, field: &str| docs(definition, Some(field)).unwrap_or_default().to_owned();
        let mut properties = Map::new();
        for field in ["apiVersion", "kind"] {
            let text = describe(DESCRIBED, field);
            properties.insert(field, object([("description", text.into()), ("type", "string".into())]));
        }
        let meta = |kind: &str, text: String| -> Node {
            let name = format!("{META}{kind}");
            let to = reference(dialect, &name);
            match dialect {
                Dialect::V3 => object([
                    ("description", text.into()),
                    ("allOf", Node::List(vec![to])),
                    ("default", Map::new().into()),
                ]),
                Dialect::V2 => {
                    let mut to = to;
                    if let Some(map) = to.as_map_mut() {
                        map.insert("description", text);
                    }
                    to
                }
            }
        };
        let kind = |kind: &str| {
            Node::List(vec![object([
                ("group", r.group.clone().into()),
                ("version", r.version.clone().into()),
                ("kind", kind.into()),
            ])])
        };
        if *is_list {
            let own = r.name(&r.kind);
            properties
                .insert("metadata", meta("ListMeta", describe(&format!("{DESCRIBED}List"), "metadata")));
            properties.insert(
                "items",
                object([
                    (
                        "description",
                        format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", r.plural).into(),
                    ),
                    ("type", "array".into()),
                    ("items", reference(dialect, &own)),
                ]),
            );
            let node = object([
                ("description", format!("{} is a list of {}", r.list_kind, r.kind).into()),
                ("type", "object".into()),
                ("required", strings(["items"])),
                ("properties", properties.into()),
                ("x-kubernetes-group-version-kind", kind(&r.list_kind)),
            ]);
            return Some((node, vec![format!("{META}ListMeta").into(), own]));
        }
        let mut node = match json::decode_any(&r.schema) {
            Ok(Node::Map(m)) => m,
            _ => Map::new(),
        };
        if dialect == Dialect::V2 {
            for_v2(&mut node);
        }
        let keeps_unknown = node.get("x-kubernetes-preserve-unknown-fields") == Some(&Node::Bool(true));
        if keeps_unknown && dialect == Dialect::V2 {
            // Readers of v2 cannot take fields that may be anything beside those that are named.
            let shown =
                object([("type", "object".into()), ("x-kubernetes-group-version-kind", kind(&r.kind))]);
            return Some((shown, Vec::new()));
        }
        properties.insert("metadata", meta("ObjectMeta", describe(DESCRIBED, "metadata")));
        if let Some(own) = node.get_mut("properties").and_then(Node::as_map_mut) {
            own.iter_mut().for_each(|(_, p)| embed(p, &properties));
        }
        with_properties(&mut node, &properties);
        if node.get("type").is_none() {
            node.insert("type", "object");
        }
        node.insert("x-kubernetes-group-version-kind", kind(&r.kind));
        node.sort();
        Some((node.into(), vec![format!("{META}ObjectMeta").into()]))
    }
}

/// Adds properties to a schema.
fn with_properties(schema: &mut Map, properties: &Map) {
    let mut all = match schema.remove("properties") {
        Some(Node::Map(m)) => m.into_tree(),
        _ => BTreeMap::new(),
    };
    all.extend(properties.iter().map(|(name, p)| (name.clone(), p.clone())));
    schema.insert("properties", Map::from_tree(all));
}

/// Adds the properties of every object to the schemas of embedded objects.
fn embed(schema: &mut Node, of_objects: &Map) {
    let Some(schema) = schema.as_map_mut() else { return };
    for name in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(name) {
            embed(below, of_objects);
        }
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Node::as_map_mut) {
        properties.iter_mut().for_each(|(_, p)| embed(p, of_objects));
    }
    if schema.get("x-kubernetes-embedded-resource") == Some(&Node::Bool(true)) {
        with_properties(schema, of_objects);
    }
}

/// Takes out of a schema what OpenAPI v2 and its readers cannot take, as upstream does
/// (`apiextensions-apiserver/pkg/controller/openapi/v2`).
fn for_v2(schema: &mut Map) {
    let is_true = |schema: &Map, name: &str| schema.get(name) == Some(&Node::Bool(true));
    for name in ["allOf", "oneOf", "anyOf", "not"] {
        schema.remove(name);
    }
    if is_true(schema, "nullable") {
        for name in ["type", "nullable", "items", "properties"] {
            schema.remove(name);
        }
    }
    let keeps_unknown = is_true(schema, "x-kubernetes-preserve-unknown-fields");
    if keeps_unknown {
        schema.remove("items");
        schema.remove("properties");
    }
    let is = |schema: &Map, ty: &str| schema.str("type") == ty;
    if schema.get("items").is_none() && is(schema, "array") || keeps_unknown && is(schema, "object") {
        schema.remove("type");
    }
    let is_nullable =
        |node: &Node| node.as_map().is_some_and(|m| m.get("nullable") == Some(&Node::Bool(true)));
    let nullable: Vec<Text> = schema
        .get("properties")
        .and_then(Node::as_map)
        .into_iter()
        .flat_map(Map::iter)
        .filter(|(_, p)| is_nullable(p))
        .map(|(name, _)| name.clone())
        .collect();
    if let Some(required) = schema.get_mut("required").and_then(Node::as_list_mut) {
        required.retain(|name| !nullable.iter().any(|n| n == name.as_str()));
    }
    if schema.get("additionalProperties").is_some_and(is_nullable) {
        schema.remove("required");
    }
    for name in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(name).and_then(Node::as_map_mut) {
            for_v2(below);
        }
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Node::as_map_mut) {
        properties.iter_mut().filter_map(|(_, p)| p.as_map_mut()).for_each(for_v2);
    }
}
