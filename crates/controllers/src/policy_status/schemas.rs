//! The definitions of kinds, from the server's OpenAPI documents.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::{Gvk, Status};
use cel::schema::{Definition, Kind, ListType};
use client::Client;
use serde::Deserialize;
use serde_json::Value;

use super::check::{MOST_KINDS, Spec};

/// How deeply a definition is read; types that hold themselves end before.
const DEEPEST: usize = 64;

client::from_json!(Document, Served);

/// An OpenAPI document of a group version.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Document {
    components: Components,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Components {
    schemas: HashMap<String, Value>,
}

/// The resources of a group version.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Served {
    resources: Vec<Entry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    name: String,
    kind: String,
}

/// The documents that were read for one policy.
pub(super) struct Schemas<'a> {
    client: &'a Client,
    documents: BTreeMap<(String, String), Document>,
    served: BTreeMap<(String, String), Served>,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(client: &'a Client) -> Self {
        Self { client, documents: BTreeMap::new(), served: BTreeMap::new() }
    }

    /// The definitions of the kinds that a policy matches, in the order of their names.
    pub(super) async fn matched(&mut self, spec: &Spec) -> Result<Vec<(Gvk, Definition)>, Status> {
        let mut kinds = BTreeSet::new();
        'rules: for rule in spec.resources() {
            let mut of_rule = 0;
            for (group, version, plural) in rule {
                let found = self.served(&group, &version).await?;
                let Some(found) = found.resources.iter().find(|r| r.name == plural) else { continue };
                kinds.insert(Gvk::new(&group, &version, &found.kind));
                of_rule += 1;
                // As upstream: one such rule ends the search, and those before it may have found as many together.
                if of_rule == MOST_KINDS {
                    break 'rules;
                }
            }
        }
        let mut out = Vec::with_capacity(kinds.len());
        for kind in kinds {
            if let Some(definition) = self.of_kind(&kind).await? {
                out.push((kind, definition));
            }
        }
        Ok(out)
    }

    /// The definition of a kind; `None` if nobody serves it.
    pub(super) async fn of_kind(&mut self, kind: &Gvk) -> Result<Option<Definition>, Status> {
        let key = (kind.group.to_string(), kind.version.to_string());
        if !self.documents.contains_key(&key) {
            let path = format!("/openapi/v3{}", path(&kind.group, &kind.version));
            let document = found(self.client.raw::<Document>(&path).await)?.unwrap_or_default();
            self.documents.insert(key.clone(), document);
        }
        Ok(self.documents.get(&key).and_then(|document| {
            let schemas = &document.components.schemas;
            let schema = schemas.values().find(|schema| is_of_kind(schema, kind))?;
            Some(definition(schemas, schema, &mut Vec::new()))
        }))
    }

    async fn served(&mut self, group: &str, version: &str) -> Result<&Served, Status> {
        let key = (group.to_owned(), version.to_owned());
        if !self.served.contains_key(&key) {
            let served = found(self.client.raw::<Served>(&path(group, version)).await)?.unwrap_or_default();
            self.served.insert(key.clone(), served);
        }
        Ok(&self.served[&key])
    }
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// An absent document is no error.
fn found<T>(answer: Result<T, Status>) -> Result<Option<T>, Status> {
    match answer {
        Err(status) if status.is_not_found() => Ok(None),
        answer => answer.map(Some),
    }
}

fn is_of_kind(schema: &Value, kind: &Gvk) -> bool {
    let kinds = schema["x-kubernetes-group-version-kind"].as_array();
    kinds.is_some_and(|kinds| {
        // Options of all groups name every version.
        kinds.len() == 1
            && kinds.iter().any(|k| {
                k["group"] == kind.group.as_str()
                    && k["version"] == kind.version.as_str()
                    && k["kind"] == kind.kind.as_str()
            })
    })
}

/// Reads a schema; `open` are the names of those in which it stands.
fn definition<'s>(all: &'s HashMap<String, Value>, schema: &'s Value, open: &mut Vec<&'s str>) -> Definition {
    let reference = schema["$ref"].as_str().or_else(|| match schema["allOf"].as_array().map(Vec::as_slice) {
        Some([one]) => one["$ref"].as_str(),
        _ => None,
    });
    if let Some(name) = reference.and_then(|r| r.strip_prefix("#/components/schemas/")) {
        let Some((name, schema)) = all.get_key_value(name) else { return Definition::default() };
        if open.contains(&name.as_str()) || open.len() >= DEEPEST {
            return Definition::default();
        }
        open.push(name);
        let found = definition(all, schema, open);
        open.pop();
        return found;
    }
    let text = |name: &str| schema[name].as_str().unwrap_or_default();
    let flag = |name: &str| schema[name].as_bool().unwrap_or_default();
    let texts = |name: &str| -> Vec<Arc<str>> {
        let items = schema[name].as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(Into::into).collect()
    };
    let properties = schema["properties"].as_object().map(|properties| {
        let read =
            properties.iter().map(|(name, p)| (name.as_str().into(), Arc::new(definition(all, p, open))));
        read.collect()
    });
    let below = |name: &str, open: &mut Vec<&'s str>| {
        let schema = Some(&schema[name]).filter(|s| s.is_object());
        schema.map(|s| Arc::new(definition(all, s, open)))
    };
    let (additional, items) = (below("additionalProperties", open), below("items", open));
    let longest = schema["enum"].as_array().map(|values| {
        values.iter().filter_map(Value::as_str).map(|v| v.len() as i64).max().unwrap_or_default()
    });
    Definition {
        kind: match text("type") {
            "object" => Kind::Object,
            "array" => Kind::Array,
            "string" => Kind::String,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            _ => Kind::None,
        },
        format: text("format").into(),
        nullable: flag("nullable"),
        max_length: schema["maxLength"].as_i64(),
        max_items: schema["maxItems"].as_i64(),
        max_properties: schema["maxProperties"].as_i64(),
        longest_enum: longest,
        has_default: !schema["default"].is_null(),
        properties,
        required: texts("required"),
        additional,
        items,
        list_type: match text("x-kubernetes-list-type") {
            "set" => ListType::Set,
            "map" => ListType::Map,
            _ => ListType::Atomic,
        },
        list_map_keys: texts("x-kubernetes-list-map-keys"),
        // Built-in types have the format, definitions the extension.
        int_or_string: text("format") == "int-or-string" || flag("x-kubernetes-int-or-string"),
        embedded: flag("x-kubernetes-embedded-resource"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definitions_are_read_with_what_they_refer_to() {
        let all: HashMap<String, Value> = serde_json::from_value(json!({
            "Tree": {"type": "object", "properties": {
                "size": {"$ref": "#/components/schemas/Size"},
                "port": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
                "below": {"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/Tree"}], "default": {}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "gone": {"$ref": "#/components/schemas/Gone"},
            }},
            "Size": {"type": "integer", "format": "int32"},
        }))
        .unwrap();
        let tree = definition(&all, &json!({"$ref": "#/components/schemas/Tree"}), &mut Vec::new());
        let find = |name: &str| {
            let all = tree.properties.iter().flatten();
            all.clone().find(|(n, _)| &**n == name).map(|(_, d)| Arc::clone(d)).unwrap()
        };
        assert_eq!(find("size").kind, Kind::Integer);
        assert!(find("port").int_or_string);
        // A type that holds itself ends where it would begin anew.
        assert_eq!(find("below").items.as_ref().unwrap().kind, Kind::None);
        assert_eq!(find("labels").additional.as_ref().unwrap().kind, Kind::String);
        assert_eq!(find("gone").kind, Kind::None);
    }
}
