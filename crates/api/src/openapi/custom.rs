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
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
/// The type of an embedded object, in upstream's words.
const EMBEDDED_FIELDS: [(&str, &str); 2] = [
    (
        "apiVersion",
        "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
    ),
    (
        "kind",
        "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
    ),
];

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
    /// The definition's schema, as it stands there, as JSON with sorted names; an empty object if there is none, or none
    /// that is structural.
    pub schema: Bytes,
    /// Whether fields that the schema does not name are kept, whatever it says (`spec.preserveUnknownFields`).
    pub keeps_unknown: bool,
    /// The paths of its selectable fields, without the point at their begin.
    pub selectable: Vec<Text>,
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
    /// Says of a schema whose it is, and which fields can be selected.
    fn extend(&self, schema: &mut Map, kind: &str) {
        let gvk = object([
            ("group", self.group.clone().into()),
            ("version", self.version.clone().into()),
            ("kind", kind.into()),
        ]);
        schema.insert("x-kubernetes-group-version-kind", Node::List(vec![gvk]));
        if !self.selectable.is_empty() {
            let fields = self.selectable.iter().map(|path| object([("fieldPath", path.clone().into())]));
            schema.insert("x-kubernetes-selectable-fields", Node::List(fields.collect()));
        }
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
            let mut to = reference(dialect, &name);
            match dialect {
                // Nothing may stand beside a reference there.
                Dialect::V3 => object([("description", text.into()), ("allOf", Node::List(vec![to]))]),
                Dialect::V2 => {
                    if let Some(map) = to.as_map_mut() {
                        map.insert("description", text);
                    }
                    to
                }
            }
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
            let mut node = Map::new();
            node.insert("description", format!("{} is a list of {}", r.list_kind, r.kind));
            node.insert("type", "object");
            node.insert("required", strings(["items"]));
            node.insert("properties", properties);
            r.extend(&mut node, &r.list_kind);
            return Some((node.into(), vec![format!("{META}ListMeta").into(), own]));
        }
        let mut node = match json::decode_any(&r.schema) {
            Ok(Node::Map(m)) => m,
            _ => Map::new(),
        };
        let keeps_unknown = r.keeps_unknown || is_true(&node, PRESERVE);
        if node.is_empty() || keeps_unknown && dialect == Dialect::V2 {
            // Without a schema nothing is known; and readers of v2 cannot take fields that may be anything beside those
            // that are named.
            let mut shown = Map::new();
            shown.insert("type", "object");
            r.extend(&mut shown, &r.kind);
            return Some((shown.into(), Vec::new()));
        }
        match dialect {
            Dialect::V2 => for_v2(&mut node),
            Dialect::V3 => unfold(&mut node),
        }
        properties.insert("metadata", meta("ObjectMeta", describe(DESCRIBED, "metadata")));
        let mut of_embedded = properties.clone();
        for (field, text) in EMBEDDED_FIELDS {
            of_embedded.insert(field, object([("description", text.into()), ("type", "string".into())]));
        }
        if let Some(own) = node.get_mut("properties").and_then(Node::as_map_mut) {
            own.iter_mut().for_each(|(_, p)| embed(p, &of_embedded, dialect));
        }
        with_properties(&mut node, &properties);
        r.extend(&mut node, &r.kind);
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

/// Adds the properties of every object to the schemas of embedded objects, which need a type.
fn embed(schema: &mut Node, of_objects: &Map, dialect: Dialect) {
    let Some(schema) = schema.as_map_mut() else { return };
    for name in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(name) {
            embed(below, of_objects, dialect);
        }
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Node::as_map_mut) {
        properties.iter_mut().for_each(|(_, p)| embed(p, of_objects, dialect));
    }
    let is_open = dialect == Dialect::V2 && is_true(schema, PRESERVE);
    if is_open || !is_true(schema, "x-kubernetes-embedded-resource") {
        return;
    }
    with_properties(schema, of_objects);
    let mut required = match schema.remove("required") {
        Some(Node::List(required)) => required,
        _ => Vec::new(),
    };
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|r| r.as_str() == name) {
            required.push(name.into());
        }
    }
    schema.insert("required", Node::List(required));
}

fn is_true(schema: &Map, name: &str) -> bool {
    schema.get(name) == Some(&Node::Bool(true))
}

/// The two types of a value that is an integer or a string.
fn int_or_string() -> Node {
    Node::List(["integer", "string"].into_iter().map(|ty| object([("type", ty.into())])).collect())
}

/// Says in the words of OpenAPI what integers or strings are, as upstream's `Structural.Unfold` does.
fn unfold(schema: &mut Map) {
    if is_true(schema, "x-kubernetes-int-or-string") {
        let either = int_or_string();
        let first = schema.get("allOf").and_then(|all| all.as_list().first());
        let says = first.and_then(Node::as_map).and_then(|first| first.get("anyOf")) == Some(&either);
        match schema.get("anyOf") {
            Some(any) if *any == either => {}
            _ if says => {}
            None => {
                schema.insert("anyOf", either);
            }
            Some(_) => {
                let mut all = match schema.remove("allOf") {
                    Some(Node::List(all)) => all,
                    _ => Vec::new(),
                };
                all.insert(0, object([("anyOf", either)]));
                schema.insert("allOf", Node::List(all));
            }
        }
    }
    each_below(schema, unfold);
}

/// Does something to the schemas of elements and entries.
fn each_below(schema: &mut Map, act: fn(&mut Map)) {
    for name in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(name).and_then(Node::as_map_mut) {
            act(below);
        }
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Node::as_map_mut) {
        properties.iter_mut().filter_map(|(_, p)| p.as_map_mut()).for_each(act);
    }
}

/// Takes out of a schema what OpenAPI v2 and its readers cannot take, as upstream does
/// (`apiextensions-apiserver/pkg/controller/openapi/v2`, and kube-openapi's `PruneDefaults`).
fn for_v2(schema: &mut Map) {
    for name in ["allOf", "oneOf", "anyOf", "not", "default"] {
        schema.remove(name);
    }
    if is_true(schema, "nullable") {
        for name in ["type", "nullable", "items", "properties"] {
            schema.remove(name);
        }
    }
    let keeps_unknown = is_true(schema, PRESERVE);
    if keeps_unknown {
        schema.remove("items");
        schema.remove("properties");
    }
    let is = |schema: &Map, ty: &str| schema.str("type") == ty;
    if schema.get("items").is_none() && is(schema, "array") || keeps_unknown && is(schema, "object") {
        schema.remove("type");
    }
    let is_nullable = |node: &Node| node.as_map().is_some_and(|m| is_true(m, "nullable"));
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
        if required.is_empty() {
            schema.remove("required");
        }
    }
    if schema.get("additionalProperties").is_some_and(is_nullable) {
        schema.remove("required");
    }
    each_below(schema, for_v2);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Upstream's `TestNewBuilder`, `TestBuildOpenAPIV2` and `TestBuildOpenAPIV3`, and what its converter to v2 does.
    #[test]
    fn schemas_of_kinds() {
        let check = |dialect: Dialect, schema: Value, changes: fn(&mut CustomResource), expected: Value| {
            let mut resource = CustomResource {
                group: "bar.k8s.io".into(),
                version: "v1".into(),
                kind: "Foo".into(),
                list_kind: "FooList".into(),
                plural: "foos".into(),
                namespaced: true,
                status: false,
                scale: false,
                schema: schema.to_string().into(),
                keeps_unknown: false,
                selectable: Vec::new(),
                hash: 0,
            };
            changes(&mut resource);
            let kinds = CustomKinds::new(vec![resource]);
            let (node, _) = kinds.definition("io.k8s.bar.v1.Foo", dialect, &|_, _| None).unwrap();
            let mut text = Vec::new();
            json::encode_any(&node, &mut text);
            let mut got: Value = serde_json::from_slice(&text).unwrap();
            let got = got.as_object_mut().unwrap();
            let gvk = json!([{"group": "bar.k8s.io", "kind": "Foo", "version": "v1"}]);
            assert_eq!(got.remove("x-kubernetes-group-version-kind"), Some(gvk));
            assert_eq!(*got, *expected.as_object().unwrap(), "{schema}");
        };
        let same = |_: &mut CustomResource| {};
        let object = |dialect: Dialect, own: Value| {
            let meta = format!("{META}ObjectMeta");
            let meta = match dialect {
                Dialect::V2 => json!({"$ref": format!("#/definitions/{meta}"), "description": ""}),
                Dialect::V3 => {
                    json!({"allOf": [{"$ref": format!("#/components/schemas/{meta}")}], "description": ""})
                }
            };
            let text = json!({"description": "", "type": "string"});
            let mut all = json!({"apiVersion": text, "kind": text, "metadata": meta});
            all.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            json!({"type": "object", "properties": all})
        };
        let bare = json!({"type": "object"});
        for dialect in [Dialect::V2, Dialect::V3] {
            check(dialect, json!({}), same, bare.clone());
            check(dialect, bare.clone(), same, object(dialect, json!({})));
            let parts = json!({"spec": {"type": "object"}, "status": {"type": "object"}});
            let schema = json!({"type": "object", "properties": parts});
            check(dialect, schema.clone(), same, object(dialect, parts.clone()));
            let mut selected = object(dialect, parts);
            selected["x-kubernetes-selectable-fields"] = json!([{"fieldPath": "spec.field"}]);
            check(dialect, schema, |r| r.selectable.push("spec.field".into()), selected);
        }
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        check(Dialect::V2, open, same, bare.clone());
        let foo = json!({"type": "object", "properties": {"foo": {"type": "string"}}});
        check(Dialect::V2, foo, |r| r.keeps_unknown = true, bare);
        let of = |own: &Value| json!({"type": "object", "properties": own});
        let either = json!([{"type": "integer"}, {"type": "string"}]);
        let own = json!({
            "one": {"x-kubernetes-int-or-string": true, "anyOf": either},
            "two": {"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": either}, {"anyOf": [{"minimum": 42}]}]},
            "three": {"x-kubernetes-int-or-string": true, "anyOf": [{"minimum": 42}], "allOf": [{"minimum": 42}]},
            "four": {"x-kubernetes-int-or-string": true},
            "open": {"x-kubernetes-preserve-unknown-fields": true},
            "embedded": {
                "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true,
                "type": "object",
            },
            "field": {"type": "string", "default": "foo", "oneOf": [{"pattern": "a"}, {"pattern": "b"}]},
            "maybe": {"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}},
            "list": {"type": "array", "items": {"type": "string", "nullable": true}},
            "some": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "nullable": true}}},
        });
        let shown = json!({
            "one": {"x-kubernetes-int-or-string": true},
            "two": {"x-kubernetes-int-or-string": true},
            "three": {"x-kubernetes-int-or-string": true},
            "four": {"x-kubernetes-int-or-string": true},
            "open": {"x-kubernetes-preserve-unknown-fields": true},
            "embedded": {"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
            "field": {"type": "string"},
            "maybe": {},
            "list": {"type": "array", "items": {}},
            "some": {"type": "object", "properties": {"a": {}}},
        });
        check(Dialect::V2, of(&own), same, object(Dialect::V2, shown));
        let mut shown = own.clone();
        shown["three"]["allOf"] = json!([{"anyOf": either}, {"minimum": 42}]);
        shown["four"]["anyOf"] = either;
        let [version, kind] = EMBEDDED_FIELDS.map(|(_, text)| json!({"description": text, "type": "string"}));
        let meta = object(Dialect::V3, json!({}))["properties"]["metadata"].clone();
        shown["embedded"]["properties"] = json!({"apiVersion": version, "kind": kind, "metadata": meta});
        shown["embedded"]["required"] = json!(["kind", "apiVersion"]);
        check(Dialect::V3, of(&own), same, object(Dialect::V3, shown));
    }
}
