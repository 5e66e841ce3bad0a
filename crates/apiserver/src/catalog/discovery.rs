//! The documents of discovery: which groups, versions and resources are served.

use std::sync::{Arc, OnceLock};

use api::Text;
use bytes::Bytes;
use http::header::HeaderValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::resource::ResourceEntry;
use super::resources::Resources;

/// A document.
#[derive(Clone)]
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

/// The documents of discovery, for a fixed set of resources. None is made before somebody asks for it; those of all
/// groups are kept.
pub(crate) struct Discovery {
    resources: Arc<Resources>,
    groups: OnceLock<Document>,
    aggregated_core: OnceLock<Document>,
    aggregated_groups: OnceLock<Document>,
}

fn texts<'t>(list: impl IntoIterator<Item = &'t Text>) -> Value {
    list.into_iter().map(|v| Value::from(v.as_str())).collect()
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
            "verbs": texts(r.shown_verbs()),
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
                "verbs": texts(&s.verbs),
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
        "verbs": texts(r.shown_verbs()),
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
                    "verbs": texts(&s.verbs),
                })
            })
            .collect();
    }
    entry
}

impl Discovery {
    /// Of these resources.
    pub(crate) fn new(resources: Arc<Resources>) -> Self {
        let (groups, aggregated_core, aggregated_groups) = Default::default();
        Self { resources, groups, aggregated_core, aggregated_groups }
    }
    /// Whether a path is below a group that is served.
    pub(crate) fn is_group(&self, path: &str) -> bool {
        match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
            ["api", _] => true,
            ["apis", group, _] => self.versions(group).is_some(),
            _ => false,
        }
    }
    fn versions(&self, group: &str) -> Option<&[Text]> {
        self.resources.groups().iter().find(|g| g.0 == group).map(|g| g.1.as_slice())
    }
    /// All groups but the core group.
    fn group_list(&self) -> Document {
        let named = self.resources.groups().iter().filter(|g| !g.0.is_empty());
        Document::new(&json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": named.map(|(g, v)| api_group(g, v)).collect::<Vec<_>>(),
        }))
    }
    fn group(&self, group: &str) -> Option<Document> {
        let mut value = api_group(group, self.versions(group).filter(|_| !group.is_empty())?);
        value["kind"] = "APIGroup".into();
        value["apiVersion"] = "v1".into();
        Some(Document::new(&value))
    }
    fn version(&self, group: &str, version: &str) -> Option<Document> {
        self.versions(group)?.iter().find(|v| *v == version)?;
        Some(Document::new(&resource_list(&self.resources, group, version)))
    }
    /// The document of a path, and whether it is one of all resources.
    pub(crate) fn find(&self, path: &str, wants_aggregated: bool) -> Option<(Document, bool)> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let all = |core| Document::new(&aggregated(&self.resources, core));
        let plain = match parts.as_slice() {
            ["api"] if wants_aggregated => {
                return Some((self.aggregated_core.get_or_init(|| all(true)).clone(), true));
            }
            ["apis"] if wants_aggregated => {
                return Some((self.aggregated_groups.get_or_init(|| all(false)).clone(), true));
            }
            ["api"] => Some(core_versions()),
            ["apis"] => Some(self.groups.get_or_init(|| self.group_list()).clone()),
            ["api", v] => self.version("", v),
            ["apis", g] => self.group(g),
            ["apis", g, v] if !g.is_empty() => self.version(g, v),
            _ => None,
        };
        plain.map(|document| (document, false))
    }
}

/// The versions of the core group.
fn core_versions() -> Document {
    Document::new(&json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    }))
}
