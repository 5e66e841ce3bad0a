//! The documents of discovery: which groups, versions and resources are served.

use api::Text;
use bytes::Bytes;
use http::header::HeaderValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::resource::ResourceEntry;
use super::resources::Resources;

/// A document that is made once.
pub(crate) struct Document {
    pub(crate) json: Bytes,
    pub(crate) etag: HeaderValue,
}

impl Document {
    fn new(value: &Value) -> Self {
        let json = Bytes::from(value.to_string());
        let etag = format!("\"{:X}\"", Sha256::digest(&json));
        Self { json, etag: HeaderValue::from_str(&etag).unwrap_or(HeaderValue::from_static("")) }
    }
}

/// The documents of discovery, for a fixed set of resources.
pub(crate) struct Discovery {
    core_versions: Document,
    groups: Document,
    aggregated_core: Document,
    aggregated_groups: Document,
    group: Vec<(Text, Document)>,
    versions: Vec<((Text, Text), Document)>,
}

fn verbs(list: &[Text]) -> Value {
    list.iter().map(|v| Value::from(v.as_str())).collect()
}

fn texts(list: &[Text]) -> Value {
    list.iter().map(|v| Value::from(v.as_str())).collect()
}

/// Upstream's hash of the version in which a resource is stored.
fn storage_hash(resource: &ResourceEntry) -> Option<String> {
    use base64::Engine;
    let stored = resource.stored.as_ref()?;
    let name = format!("{}/{}/{}", stored.kind.group, stored.kind.version, stored.kind.kind);
    let digest = Sha256::digest(name.as_bytes());
    Some(base64::engine::general_purpose::STANDARD.encode(&digest[..8]))
}

fn resource_list(resources: &Resources, group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    let mut of_version: Vec<_> =
        resources.iter().filter(|r| r.group == group && r.version == version).collect();
    of_version.sort_by(|a, b| a.plural.cmp(&b.plural));
    for r in of_version {
        let mut entry = json!({
            "name": r.plural.as_str(),
            "singularName": r.singular.as_str(),
            "namespaced": r.namespaced,
            "kind": r.kind.kind.as_str(),
            "verbs": verbs(&r.verbs),
        });
        if !r.short_names.is_empty() {
            entry["shortNames"] = texts(&r.short_names);
        }
        if !r.categories.is_empty() {
            entry["categories"] = texts(&r.categories);
        }
        if let Some(hash) = storage_hash(r) {
            entry["storageVersionHash"] = hash.into();
        }
        list.push(entry);
        for s in &r.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", r.plural, s.name),
                "singularName": "",
                "namespaced": r.namespaced,
                "kind": s.kind.kind.as_str(),
                "verbs": verbs(&s.verbs),
            });
            if s.kind.group != r.group || s.kind.version != r.version {
                entry["group"] = s.kind.group.as_str().into();
                entry["version"] = s.kind.version.as_str().into();
            }
            list.push(entry);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": list,
    })
}

fn api_group(group: &str, versions: &[Text]) -> Value {
    let of = |v: &Text| json!({"groupVersion": format!("{group}/{v}"), "version": v.as_str()});
    json!({
        "name": group,
        "versions": versions.iter().map(of).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(of),
    })
}

fn aggregated(resources: &Resources, core: bool) -> Value {
    let items: Vec<Value> = resources
        .groups()
        .iter()
        .filter(|g| g.0.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let mut resources: Vec<_> =
                        resources.iter().filter(|r| r.group == *group && r.version == *version).collect();
                    resources.sort_by(|a, b| a.plural.cmp(&b.plural));
                    let resources: Vec<Value> = resources.iter().map(|r| aggregated_resource(r)).collect();
                    json!({"version": version.as_str(), "resources": resources, "freshness": "Current"})
                })
                .collect();
            let mut metadata = json!({"creationTimestamp": null});
            if !core {
                metadata["name"] = group.as_str().into();
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(r: &ResourceEntry) -> Value {
    let kind = |k: &api::schema::Gvk| json!({"group": k.group.as_str(), "version": k.version.as_str(), "kind": k.kind.as_str()});
    let mut entry = json!({
        "resource": r.plural.as_str(),
        "responseKind": kind(&r.kind),
        "scope": if r.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": r.singular.as_str(),
        "verbs": verbs(&r.verbs),
    });
    if !r.short_names.is_empty() {
        entry["shortNames"] = texts(&r.short_names);
    }
    if !r.categories.is_empty() {
        entry["categories"] = texts(&r.categories);
    }
    if !r.subresources.is_empty() {
        entry["subresources"] = r
            .subresources
            .iter()
            .map(|s| {
                json!({
                    "subresource": s.name.as_str(),
                    "responseKind": kind(&s.kind),
                    "verbs": verbs(&s.verbs),
                })
            })
            .collect();
    }
    entry
}

impl Discovery {
    /// Makes every document.
    pub(crate) fn new(resources: &Resources) -> Self {
        let named: Vec<_> = resources.groups().iter().filter(|g| !g.0.is_empty()).collect();
        let groups = json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": named.iter().map(|(g, v)| api_group(g, v)).collect::<Vec<_>>(),
        });
        let group = named
            .iter()
            .map(|(g, v)| {
                let mut value = api_group(g, v);
                value["kind"] = "APIGroup".into();
                value["apiVersion"] = "v1".into();
                (g.clone(), Document::new(&value))
            })
            .collect();
        let versions = resources
            .groups()
            .iter()
            .flat_map(|(g, versions)| versions.iter().map(move |v| (g.clone(), v.clone())))
            .map(|(g, v)| {
                let document = Document::new(&resource_list(resources, &g, &v));
                ((g, v), document)
            })
            .collect();
        let core_versions = json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
        });
        Self {
            core_versions: Document::new(&core_versions),
            groups: Document::new(&groups),
            aggregated_core: Document::new(&aggregated(resources, true)),
            aggregated_groups: Document::new(&aggregated(resources, false)),
            group,
            versions,
        }
    }
    /// Whether a path is below a group that is served.
    pub(crate) fn is_group(&self, path: &str) -> bool {
        match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
            ["api", _] => true,
            ["apis", group, _] => self.group.iter().any(|d| d.0 == group),
            _ => false,
        }
    }
    pub(crate) fn find(&self, path: &str, wants_aggregated: bool) -> Option<(&Document, bool)> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let version = |group: &str, version: &str| {
            self.versions.iter().find(|v| v.0.0 == group && v.0.1 == version).map(|v| (&v.1, false))
        };
        match parts.as_slice() {
            ["api"] if wants_aggregated => Some((&self.aggregated_core, true)),
            ["api"] => Some((&self.core_versions, false)),
            ["apis"] if wants_aggregated => Some((&self.aggregated_groups, true)),
            ["apis"] => Some((&self.groups, false)),
            ["api", v] => version("", v),
            ["apis", g] => self.group.iter().find(|d| d.0 == *g).map(|d| (&d.1, false)),
            ["apis", g, v] => version(g, v),
            _ => None,
        }
    }
}
