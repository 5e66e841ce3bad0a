//! The documents of discovery: which groups, versions and resources are served.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use api::Text;
use bytes::Bytes;
use http::header::HeaderValue;
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::documents::{
    AggregatedGroup, AggregatedList, AggregatedVersion, Empty, Group as ApiGroup, GroupList, GroupMeta,
    GroupVersion, Resource, ResourceList, ServerAddress, Versions,
};
use super::resource::ResourceEntry;
use super::resources::Resources;
use crate::aggregated::discovery::{Kind, Served, Subresource};
use crate::aggregated::{Elsewhere, Priority, Services, compare_versions};

/// A document.
#[derive(Clone)]
pub(crate) struct Document {
    pub(crate) json: Bytes,
    pub(crate) etag: HeaderValue,
}

impl Document {
    fn new(document: &impl Serialize) -> Self {
        // Nothing in the documents can fail to be written: texts, flags and lists of them.
        let json = Bytes::from(serde_json::to_vec(document).unwrap_or_default());
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

fn texts<'t>(list: impl IntoIterator<Item = &'t Text>) -> Vec<&'t str> {
    list.into_iter().map(Text::as_str).collect()
}

fn strings<'t>(list: impl IntoIterator<Item = &'t Text>) -> Vec<String> {
    list.into_iter().map(Text::to_string).collect()
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

fn resource_list<'r>(resources: &'r Resources, group: &str, version: &str) -> ResourceList<'r> {
    let mut list = Vec::new();
    let mut of_version: Vec<_> = resources.of_version(group, version).collect();
    of_version.sort_by(|a, b| a.plural.cmp(&b.plural));
    for r in of_version {
        list.push(Resource {
            name: r.plural.to_string(),
            singular_name: &r.singular,
            namespaced: r.namespaced,
            group: "",
            version: "",
            kind: &r.kind.kind,
            verbs: texts(r.shown_verbs()),
            short_names: texts(&r.short_names),
            categories: texts(&r.categories),
            storage_version_hash: storage_hash(r),
        });
        list.extend(r.subresources.iter().map(|s| {
            let own = s.kind.group == r.group && s.kind.version == r.version;
            Resource {
                name: format!("{}/{}", r.plural, s.name),
                singular_name: "",
                namespaced: r.namespaced,
                group: if own { "" } else { &s.kind.group },
                version: if own { "" } else { &s.kind.version },
                kind: &s.kind.kind,
                verbs: texts(&s.verbs),
                short_names: Vec::new(),
                categories: Vec::new(),
                storage_version_hash: None,
            }
        }));
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ResourceList { kind: "APIResourceList", api_version: "v1", group_version, resources: list }
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
///
/// DIFFERENCE: upstream's older documents also list a version that only definitions without accepted names have, since it
/// has an APIService; who follows it finds nothing.
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

fn api_group(group: &Group) -> ApiGroup<'_> {
    let of_group = group.versions.iter();
    let versions: Vec<GroupVersion> = of_group
        .map(|v| GroupVersion { group_version: format!("{}/{}", group.name, v.name), version: &v.name })
        .collect();
    let preferred_version = versions.first().cloned();
    ApiGroup { kind: None, api_version: None, name: &group.name, versions, preferred_version }
}

fn aggregated(resources: &Resources, services: &Services, core: bool) -> Document {
    let groups = groups(resources, services, Ties::Names);
    let items = groups.iter().filter(|g| g.name.is_empty() == core).map(|group| AggregatedGroup {
        metadata: GroupMeta { name: &group.name, creation_timestamp: () },
        versions: group.versions.iter().map(|v| aggregated_version(resources, v)).collect(),
    });
    Document::new(&AggregatedList {
        kind: "APIGroupDiscoveryList",
        api_version: "apidiscovery.k8s.io/v2",
        metadata: Empty {},
        items: items.collect(),
    })
}

fn aggregated_version<'g>(resources: &Resources, version: &'g Version) -> AggregatedVersion<'g> {
    if let Some(other) = &version.elsewhere {
        return AggregatedVersion {
            version: &version.name,
            resources: other.discovered.resources.clone(),
            freshness: if other.discovered.current { "Current" } else { "Stale" },
        };
    }
    let mut own: Vec<_> = resources.of_version(&version.group, &version.name).collect();
    own.sort_by(|a, b| a.plural.cmp(&b.plural));
    let resources = own.into_iter().map(|r| aggregated_resource(r)).collect();
    AggregatedVersion { version: &version.name, resources, freshness: "Current" }
}

fn aggregated_resource(r: &ResourceEntry) -> Served {
    let kind = |k: &api::schema::Gvk| Kind {
        group: k.group.to_string(),
        version: k.version.to_string(),
        kind: k.kind.to_string(),
    };
    let below = r.subresources.iter().map(|s| Subresource {
        subresource: s.name.to_string(),
        response_kind: kind(&s.kind),
        verbs: strings(&s.verbs),
    });
    Served {
        resource: r.plural.to_string(),
        response_kind: kind(&r.kind),
        scope: if r.namespaced { "Namespaced" } else { "Cluster" }.to_owned(),
        singular_resource: r.singular.to_string(),
        verbs: strings(r.shown_verbs()),
        short_names: strings(&r.short_names),
        categories: strings(&r.categories),
        subresources: below.collect(),
    }
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
        Document::new(&GroupList {
            kind: "APIGroupList",
            api_version: "v1",
            groups: named.map(api_group).collect(),
        })
    }
    fn group(&self, group: &str) -> Option<Document> {
        let all = groups(&self.resources, &self.services, Ties::Services);
        let found = all.iter().find(|g| g.name == group).filter(|_| !group.is_empty())?;
        let named = ApiGroup { kind: Some("APIGroup"), api_version: Some("v1"), ..api_group(found) };
        Some(Document::new(&named))
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
            aggregated(&self.resources, &self.services, core)
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
    Document::new(&Versions {
        kind: "APIVersions",
        versions: ["v1"],
        server_addresses: [ServerAddress { client_cidr: "0.0.0.0/0", server_address: server }],
    })
}
