//! The documents in which an aggregated server says what it serves. Of any of them its own group version counts.

use serde::{Deserialize, Deserializer, Serialize};

/// The media types of a document of all groups, as aggregated discovery asks for it.
pub(crate) const APIS: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// A kind, as discovery names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

/// A value, or the default for `null`.
fn or_none<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A resource of a group version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Served {
    pub(crate) resource: String,
    #[serde(deserialize_with = "or_none")]
    pub(crate) response_kind: Kind,
    pub(crate) scope: String,
    pub(crate) singular_resource: String,
    #[serde(deserialize_with = "or_none")]
    pub(crate) verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_none")]
    pub(crate) short_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_none")]
    pub(crate) categories: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_none")]
    pub(crate) subresources: Vec<Subresource>,
}

/// A subresource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Subresource {
    pub(crate) subresource: String,
    #[serde(deserialize_with = "or_none")]
    pub(crate) response_kind: Kind,
    #[serde(deserialize_with = "or_none")]
    pub(crate) verbs: Vec<String>,
}

/// The resources of a group version, as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Discovered {
    /// The resources.
    pub(crate) resources: Vec<Served>,
    /// Whether they are those of now; otherwise those of the last answer.
    pub(crate) current: bool,
}

/// Whether a media type is that of a list of all groups.
pub(crate) fn list(content_type: &str) -> bool {
    let has = |part: &str| content_type.split(';').any(|p| p.trim() == part);
    content_type.trim_start().starts_with("application/json")
        && has("g=apidiscovery.k8s.io")
        && has("as=APIGroupDiscoveryList")
        && (has("v=v2") || has("v=v2beta1"))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct All {
    #[serde(deserialize_with = "or_none")]
    items: Vec<Group>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Group {
    metadata: Named,
    #[serde(deserialize_with = "or_none")]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Version {
    version: String,
    #[serde(deserialize_with = "or_none")]
    resources: Vec<Served>,
}

/// The resources of a group version in a list of all groups; none if it is not there.
pub(crate) fn of_list(body: &[u8], group: &str, version: &str) -> Result<Vec<Served>, String> {
    let all: All = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let of_group = all.items.into_iter().filter(|g| g.metadata.name == group);
    let found = of_group.flat_map(|g| g.versions).find(|v| v.version == version);
    Ok(found.map_or_else(Vec::new, |v| v.resources))
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Legacy {
    group_version: String,
    #[serde(deserialize_with = "or_none")]
    resources: Vec<LegacyResource>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct LegacyResource {
    name: String,
    singular_name: String,
    namespaced: bool,
    group: String,
    version: String,
    kind: String,
    #[serde(deserialize_with = "or_none")]
    verbs: Vec<String>,
    short_names: Vec<String>,
    categories: Vec<String>,
}

/// The resources of a group version in its own document, an `APIResourceList`.
pub(crate) fn legacy(body: &[u8], group: &str, version: &str) -> Result<Vec<Served>, String> {
    let list: Legacy = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let own = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    if list.group_version != own {
        return Err(format!("the document is of {:?}, not of {own:?}", list.group_version));
    }
    let mut made: Vec<Served> = Vec::new();
    let (below, whole): (Vec<_>, Vec<_>) = list.resources.into_iter().partition(|r| r.name.contains('/'));
    let kind = |r: &LegacyResource| {
        let or = |own: &str, of_list: &str| if own.is_empty() { of_list.to_owned() } else { own.to_owned() };
        Kind { group: or(&r.group, group), version: or(&r.version, version), kind: r.kind.clone() }
    };
    let scope = |r: &LegacyResource| if r.namespaced { "Namespaced" } else { "Cluster" }.to_owned();
    for r in whole {
        made.push(Served {
            response_kind: kind(&r),
            scope: scope(&r),
            resource: r.name,
            singular_resource: r.singular_name,
            verbs: r.verbs,
            short_names: r.short_names,
            categories: r.categories,
            subresources: Vec::new(),
        });
    }
    for r in below {
        let Some((parent, name)) = r.name.split_once('/') else { continue };
        let sub =
            Subresource { subresource: name.to_owned(), response_kind: kind(&r), verbs: r.verbs.clone() };
        match made.iter_mut().find(|m| m.resource == parent) {
            Some(m) => m.subresources.push(sub),
            // As upstream: a resource that has nothing but subresources.
            None => made.push(Served {
                resource: parent.to_owned(),
                scope: scope(&r),
                subresources: vec![sub],
                ..Served::default()
            }),
        }
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn shown(found: Result<Vec<Served>, String>) -> Value {
        serde_json::to_value(found.unwrap()).unwrap()
    }

    #[test]
    fn media_types() {
        let check = |text: &str, expected: bool| assert_eq!(list(text), expected, "{text}");
        check("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", true);
        check("application/json; g=apidiscovery.k8s.io; v=v2beta1; as=APIGroupDiscoveryList", true);
        check("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList", false);
        check("application/json", false);
        check("text/html", false);
        for accepted in APIS.split(',') {
            check(accepted, true);
        }
    }

    #[test]
    fn own_version_alone() {
        let own = json!({"resource": "fishes", "responseKind": null, "scope": "Namespaced", "verbs": ["get"], "odd": 1});
        let body = json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [{"resource": "lies"}]}]},
            {"metadata": {"name": "w.example"}, "versions": [
                {"version": "v1", "resources": [own]}, {"version": "v2", "resources": [{"resource": "other"}]},
            ]},
        ]});
        let of = |body: &Value, version: &str| of_list(body.to_string().as_bytes(), "w.example", version);
        assert_eq!(of(&body, "v3"), Ok(Vec::new()));
        assert!(of(&json!({"items": 7}), "v1").is_err());
        assert!(of_list(b"<html>", "w.example", "v1").is_err());
        let deep = "[".repeat(100_000);
        assert!(of_list(format!("{{\"items\":{deep}").as_bytes(), "w.example", "v1").is_err());
        let found = shown(of(&body, "v1"));
        let nobody = json!({"group": "", "version": "", "kind": ""});
        let fish = json!({"resource": "fishes", "responseKind": nobody, "scope": "Namespaced", "singularResource": "", "verbs": ["get"]});
        assert_eq!(found, json!([fish]));
    }

    #[test]
    fn the_older_form() {
        let body = json!({"kind": "APIResourceList", "groupVersion": "w.example/v1", "resources": [
            {"name": "fishes/scale", "kind": "Scale", "group": "autoscaling", "version": "v1", "namespaced": true, "verbs": ["get"]},
            {"name": "fishes", "singularName": "fish", "kind": "Fish", "namespaced": true, "verbs": ["list"], "shortNames": ["fi"]},
            {"name": "alone/sub", "kind": "Sub", "namespaced": false, "verbs": ["create"]},
        ]});
        let found = shown(legacy(body.to_string().as_bytes(), "w.example", "v1"));
        let kind = |group: &str, kind: &str| json!({"group": group, "version": "v1", "kind": kind});
        assert_eq!(
            found,
            json!([
                {"resource": "fishes", "responseKind": kind("w.example", "Fish"), "scope": "Namespaced",
                 "singularResource": "fish", "verbs": ["list"], "shortNames": ["fi"],
                 "subresources": [{"subresource": "scale", "responseKind": kind("autoscaling", "Scale"), "verbs": ["get"]}]},
                {"resource": "alone", "responseKind": {"group": "", "version": "", "kind": ""}, "scope": "Cluster",
                 "singularResource": "", "verbs": [],
                 "subresources": [{"subresource": "sub", "responseKind": kind("w.example", "Sub"), "verbs": ["create"]}]},
            ])
        );
        assert!(legacy(body.to_string().as_bytes(), "apps", "v1").is_err(), "it is of another group");
    }
}
