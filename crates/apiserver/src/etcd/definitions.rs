//! CustomResourceDefinitions as upstream still keeps them: in v1beta1, where what all versions have in common
//! stands beside them.

use client::FromJson;
use serde_json::{Map, Value, json};
use storage::CodecError;

use super::failed::failed;

/// The version in which they are kept.
pub(super) const API_VERSION: &str = "apiextensions.k8s.io/v1beta1";

/// The fields that a version has in v1, each with its name in v1beta1, where it stands beside the versions.
const SHARED: &[(&str, &str)] = &[
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

type Object = Map<String, Value>;

fn parse(definition: &[u8]) -> Result<Value, CodecError> {
    // A schema nests deeper than serde_json reads by itself.
    Value::from_json(definition).map_err(|e| failed(e.message))
}

fn renamed(columns: &mut Value, from: &str, to: &str) {
    for column in columns.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(path) = column.remove(from) {
            column.insert(to.into(), path);
        }
    }
}

/// The version list, made of the one version that old definitions name.
fn versions(spec: &mut Object) -> Vec<Value> {
    let first = spec.remove("version");
    let mut list = match spec.remove("versions") {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    if let (true, Some(name)) = (list.is_empty(), first) {
        list.push(json!({"name": name, "served": true, "storage": true}));
    }
    list
}

/// From v1beta1 to v1, with v1beta1's defaults.
pub(super) fn to_v1(definition: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut definition = parse(definition)?;
    definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
    if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
        spec.entry("preserveUnknownFields").or_insert(json!(true));
        spec.entry("scope").or_insert(json!("Namespaced"));
        let mut versions = versions(spec);
        for (own, shared) in SHARED {
            let Some(value) = spec.remove(*shared) else { continue };
            for version in versions.iter_mut().filter_map(Value::as_object_mut) {
                version.insert((*own).into(), value.clone());
            }
        }
        for version in &mut versions {
            if let Some(columns) = version.get_mut("additionalPrinterColumns") {
                renamed(columns, "JSONPath", "jsonPath");
            }
        }
        spec.insert("versions".into(), versions.into());
        if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
            let (client, reviews) =
                (conversion.remove("webhookClientConfig"), conversion.remove("conversionReviewVersions"));
            if conversion.get("strategy") == Some(&json!("Webhook")) {
                let mut webhook = Object::new();
                webhook.extend(client.map(|c| ("clientConfig".into(), c)));
                webhook
                    .insert("conversionReviewVersions".into(), reviews.unwrap_or_else(|| json!(["v1beta1"])));
                conversion.insert("webhook".into(), webhook.into());
            }
        }
    }
    serde_json::to_vec(&definition).map_err(failed)
}

/// From v1 to v1beta1.
pub(super) fn from_v1(definition: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut definition = parse(definition)?;
    if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
        let mut beside = Object::new();
        if let Some(list) = spec.get_mut("versions").and_then(Value::as_array_mut) {
            if let Some(name) = list.first().and_then(|v| v.get("name")) {
                beside.insert("version".into(), name.clone());
            }
            for version in list.iter_mut() {
                if let Some(columns) = version.get_mut("additionalPrinterColumns") {
                    renamed(columns, "jsonPath", "JSONPath");
                }
            }
            for (own, shared) in SHARED {
                let first = list.first().and_then(|v| v.get(*own)).cloned();
                let Some(first) = first else { continue };
                if list.iter().all(|v| v.get(*own) == Some(&first)) {
                    list.iter_mut().filter_map(Value::as_object_mut).for_each(|v| drop(v.remove(*own)));
                    beside.insert((*shared).into(), first);
                }
            }
        }
        spec.extend(beside);
        spec.entry("preserveUnknownFields").or_insert(json!(false));
        if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut)
            && let Some(Value::Object(mut webhook)) = conversion.remove("webhook")
        {
            let reviews = webhook.remove("conversionReviewVersions");
            conversion.extend(webhook.remove("clientConfig").map(|c| ("webhookClientConfig".into(), c)));
            conversion.extend(reviews.map(|r| ("conversionReviewVersions".into(), r)));
        }
    }
    let mut object = Object::new();
    object.insert("kind".into(), json!("CustomResourceDefinition"));
    object.insert("apiVersion".into(), json!(API_VERSION));
    if let Value::Object(rest) = definition {
        object.extend(rest.into_iter().filter(|(name, _)| name != "kind" && name != "apiVersion"));
    }
    let mut out = serde_json::to_vec(&Value::Object(object)).map_err(failed)?;
    out.push(b'\n');
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(v1: Value, v1beta1: Value) {
        let as_value = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
        let mut kept = json!({"kind": "CustomResourceDefinition", "apiVersion": API_VERSION});
        kept["spec"] = v1beta1;
        let mut served = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1"});
        served["spec"] = v1;
        assert_eq!(as_value(to_v1(kept.to_string().as_bytes()).unwrap()), served);
        assert_eq!(as_value(from_v1(served.to_string().as_bytes()).unwrap()), kept);
    }

    #[test]
    fn what_versions_share_stands_beside_them() {
        check(
            json!({
                "scope": "Namespaced", "preserveUnknownFields": false, "conversion": {"strategy": "None"},
                "versions": [
                    {"name": "v2", "served": true, "schema": {"openAPIV3Schema": {}},
                     "additionalPrinterColumns": [{"name": "A", "jsonPath": ".a"}]},
                    {"name": "v1", "served": true, "schema": {"openAPIV3Schema": {}}, "subresources": {"status": {}}},
                ],
            }),
            json!({
                "scope": "Namespaced", "preserveUnknownFields": false, "conversion": {"strategy": "None"},
                "version": "v2", "validation": {"openAPIV3Schema": {}},
                "versions": [
                    {"name": "v2", "served": true, "additionalPrinterColumns": [{"name": "A", "JSONPath": ".a"}]},
                    {"name": "v1", "served": true, "subresources": {"status": {}}},
                ],
            }),
        );
    }

    #[test]
    fn webhooks() {
        check(
            json!({
                "scope": "Cluster", "preserveUnknownFields": true, "versions": [{"name": "v1"}],
                "conversion": {"strategy": "Webhook",
                    "webhook": {"clientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]}},
            }),
            json!({
                "scope": "Cluster", "preserveUnknownFields": true, "version": "v1", "versions": [{"name": "v1"}],
                "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "u"},
                    "conversionReviewVersions": ["v1"]},
            }),
        );
    }

    #[test]
    fn definitions_of_one_version() {
        let old = json!({"apiVersion": API_VERSION, "spec": {"version": "v1", "validation": {"openAPIV3Schema": {"type": "object"}}}});
        let v1: Value = serde_json::from_slice(&to_v1(old.to_string().as_bytes()).unwrap()).unwrap();
        assert_eq!(
            v1["spec"],
            json!({"scope": "Namespaced", "preserveUnknownFields": true, "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
            ]})
        );
        assert!(to_v1(b"{").is_err());
    }
}
