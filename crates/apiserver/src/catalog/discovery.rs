//! The documents of discovery: which groups, versions and resources are served.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use api::Text;
use bytes::Bytes;
use http::header::HeaderValue;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::resource::ResourceEntry;
use super::resources::Resources;
use crate::aggregated::{Elsewhere, Priority, Services, compare_versions};

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
    services: Arc<Services>,
    groups: OnceLock<Document>,
    aggregated_core: OnceLock<Document>,
    aggregated_groups: OnceLock<Document>,
    /// How often documents of all resources were made, of all sets of resources.
    made: Counter<u64, AtomicU64>,
}

fn texts<'t>(list: impl IntoIterator<Item = &'t Text>) -> Value {
    list.into_iter().map(|v| Value::from(v.as_str())).collect()
}

/// Upstream's hash of the version in which a resource is stored.
fn storage_hash(resource: &ResourceEntry) -> Option<String> {
    use base64::Engine;
    let own = resource.stored.as_ref().map(|stored| &stored.kind)?;
    // All versions of a definition are stored in one; of one that nobody serves, upstream tells nothing.
    let kind = match &resource.custom {
        Some(custom) => Some(&custom.storage).filter(|_| custom.storage_served)?,
        None => own,
    };
    let name = format!("{}/{}/{}", kind.group, kind.version, kind.kind);
    let digest = Sha256::digest(name.as_bytes());
    Some(base64::engine::general_purpose::STANDARD.encode(&digest[..8]))
}

fn resource_list(resources: &Resources, group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    let mut of_version: Vec<_> = resources.of_version(group, version).collect();
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

/// A version of a group, and the other server that answers for it, if one does.
struct Version {
    group: Text,
    name: Text,
    priority: Priority,
    elsewhere: Option<Arc<Elsewhere>>,
}

/// A group with its versions, the preferred one first.
struct Group {
    name: Text,
    versions: Vec<Version>,
}

/// The order of groups of the same priority.
#[derive(Clone, Copy)]
enum Ties {
    /// By their names, as in aggregated discovery.
    Names,
    /// By the names of their APIServices, as in the older documents.
    Services,
}

/// All groups, by their places: whether they are served here or elsewhere.
fn groups(resources: &Resources, services: &Services, ties: Ties) -> Vec<Group> {
    let mut all: BTreeMap<Text, Vec<Version>> = BTreeMap::new();
    for (group, versions) in &resources.groups() {
        for name in versions.iter().filter(|v| services.find(group, v).is_none()) {
            let priority = services.priority(group, name);
            let (group, name) = (group.clone(), name.clone());
            let version = Version { group: group.clone(), name, priority, elsewhere: None };
            all.entry(group).or_default().push(version);
        }
    }
    for other in services.elsewhere() {
        let (group, name, priority) = (other.group.clone(), other.version.clone(), other.priority);
        let version = Version { group: group.clone(), name, priority, elsewhere: Some(Arc::clone(other)) };
        all.entry(group).or_default().push(version);
    }
    let mut groups: Vec<Group> = all.into_iter().map(|(name, versions)| Group { name, versions }).collect();
    for group in &mut groups {
        group.versions.sort_by(|a, b| {
            let by_priority = b.priority.version.cmp(&a.priority.version);
            by_priority.then_with(|| compare_versions(&b.name, &a.name))
        });
    }
    groups.sort_by_cached_key(|group| {
        let highest = group.versions.iter().map(|v| v.priority.group).max();
        let tie = match ties {
            Ties::Names => group.name.to_string(),
            Ties::Services => {
                let of_highest = group.versions.iter().filter(|v| Some(v.priority.group) == highest);
                of_highest.map(|v| format!("{}.{}", v.name, v.group)).min().unwrap_or_default()
            }
        };
        (Reverse(highest), tie)
    });
    groups
}

fn api_group(group: &Group) -> Value {
    let (group, versions) = (&group.name, &group.versions);
    let of = |v: &Version| json!({"groupVersion": format!("{group}/{}", v.name), "version": v.name.as_str()});
    json!({
        "name": group.as_str(),
        "versions": versions.iter().map(of).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(of),
    })
}

fn aggregated(resources: &Resources, services: &Services, core: bool) -> Value {
    let items: Vec<Value> = groups(resources, services, Ties::Names)
        .into_iter()
        .filter(|g| g.name.is_empty() == core)
        .map(|group| {
            let versions: Vec<Value> =
                group.versions.iter().map(|v| aggregated_version(resources, v)).collect();
            let mut metadata = json!({"creationTimestamp": null});
            if !core {
                metadata["name"] = group.name.as_str().into();
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

fn aggregated_version(resources: &Resources, version: &Version) -> Value {
    if let Some(other) = &version.elsewhere {
        let freshness = if other.discovered.current { "Current" } else { "Stale" };
        let mut shown = json!({"version": version.name.as_str(), "freshness": freshness});
        if !other.discovered.resources.is_empty() {
            shown["resources"] = json!(other.discovered.resources);
        }
        return shown;
    }
    let mut own: Vec<_> = resources.of_version(&version.group, &version.name).collect();
    own.sort_by(|a, b| a.plural.cmp(&b.plural));
    let own: Vec<Value> = own.iter().map(|r| aggregated_resource(r)).collect();
    json!({"version": version.name.as_str(), "resources": own, "freshness": "Current"})
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
    /// Of these resources, and of those that others serve.
    pub(crate) fn new(resources: Arc<Resources>, services: Arc<Services>) -> Self {
        let (groups, aggregated_core, aggregated_groups, made) = Default::default();
        Self { resources, services, groups, aggregated_core, aggregated_groups, made }
    }
    /// The same of other resources, with the same count.
    pub(crate) fn of(&self, resources: Arc<Resources>, services: Arc<Services>) -> Self {
        Self { made: self.made.clone(), ..Self::new(resources, services) }
    }
    /// How often documents of all resources were made.
    pub(crate) fn made(&self) -> &Counter<u64, AtomicU64> {
        &self.made
    }
    /// Whether a path is below a group that is served.
    pub(crate) fn is_group(&self, path: &str) -> bool {
        match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
            ["api", _] => true,
            ["apis", group, _] => !self.resources.versions(group).is_empty(),
            _ => false,
        }
    }
    /// All groups but the core group.
    fn group_list(&self) -> Document {
        let all = groups(&self.resources, &self.services, Ties::Services);
        let named = all.iter().filter(|g| !g.name.is_empty());
        Document::new(&json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": named.map(api_group).collect::<Vec<_>>(),
        }))
    }
    fn group(&self, group: &str) -> Option<Document> {
        let all = groups(&self.resources, &self.services, Ties::Services);
        let found = all.iter().find(|g| g.name == group).filter(|_| !group.is_empty())?;
        let mut value = api_group(found);
        value["kind"] = "APIGroup".into();
        value["apiVersion"] = "v1".into();
        Some(Document::new(&value))
    }
    fn version(&self, group: &str, version: &str) -> Option<Document> {
        self.resources.versions(group).iter().find(|v| *v == version)?;
        Some(Document::new(&resource_list(&self.resources, group, version)))
    }
    /// The paths of all groups and versions.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for group in groups(&self.resources, &self.services, Ties::Names) {
            if group.name.is_empty() {
                continue;
            }
            paths.push(format!("/apis/{}", group.name));
            paths.extend(group.versions.iter().map(|v| format!("/apis/{}/{}", group.name, v.name)));
        }
        paths
    }
    /// The document of a path, and whether it is one of all resources. `server` is the host and port that clients are
    /// told.
    pub(crate) fn find(&self, path: &str, wants_aggregated: bool, server: &str) -> Option<(Document, bool)> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let all = |core| {
            self.made.inc();
            Document::new(&aggregated(&self.resources, &self.services, core))
        };
        let plain = match parts.as_slice() {
            ["api"] if wants_aggregated => {
                return Some((self.aggregated_core.get_or_init(|| all(true)).clone(), true));
            }
            ["apis"] if wants_aggregated => {
                return Some((self.aggregated_groups.get_or_init(|| all(false)).clone(), true));
            }
            ["api"] => Some(core_versions(server)),
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
fn core_versions(server: &str) -> Document {
    Document::new(&json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}],
    }))
}
