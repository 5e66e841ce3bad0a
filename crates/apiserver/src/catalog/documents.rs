//! The shapes of discovery's documents, with their fields in the order of Go's types: scripts look for them in the text
//! (upstream: `meta/v1` and `apidiscovery/v2`).

use serde::Serialize;

use crate::aggregated::discovery::Served;

/// `APIResourceList`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceList<'r> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) group_version: String,
    pub(super) resources: Vec<Resource<'r>>,
}

/// `APIResource`: a resource, or a subresource as `pods/status`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resource<'r> {
    pub(super) name: String,
    pub(super) singular_name: &'r str,
    pub(super) namespaced: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) group: &'r str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) version: &'r str,
    pub(super) kind: &'r str,
    pub(super) verbs: Vec<&'r str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) short_names: Vec<&'r str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) categories: Vec<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) storage_version_hash: Option<String>,
}

/// `APIGroupList`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupList<'g> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) groups: Vec<Group<'g>>,
}

/// `APIGroup`, which tells its own kind where it stands alone.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Group<'g> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) api_version: Option<&'static str>,
    pub(super) name: &'g str,
    pub(super) versions: Vec<GroupVersion<'g>>,
    pub(super) preferred_version: Option<GroupVersion<'g>>,
}

/// `GroupVersionForDiscovery`.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupVersion<'g> {
    pub(super) group_version: String,
    pub(super) version: &'g str,
}

/// `APIVersions`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Versions<'a> {
    pub(super) kind: &'static str,
    pub(super) versions: [&'static str; 1],
    #[serde(rename = "serverAddressByClientCIDRs")]
    pub(super) server_addresses: [ServerAddress<'a>; 1],
}

/// `ServerAddressByClientCIDR`.
#[derive(Serialize)]
pub(super) struct ServerAddress<'a> {
    #[serde(rename = "clientCIDR")]
    pub(super) client_cidr: &'static str,
    #[serde(rename = "serverAddress")]
    pub(super) server_address: &'a str,
}

/// `APIGroupDiscoveryList`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AggregatedList<'g> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) metadata: Empty,
    pub(super) items: Vec<AggregatedGroup<'g>>,
}

/// Metadata that say nothing.
#[derive(Serialize)]
pub(super) struct Empty {}

/// `APIGroupDiscovery`.
#[derive(Serialize)]
pub(super) struct AggregatedGroup<'g> {
    pub(super) metadata: GroupMeta<'g>,
    pub(super) versions: Vec<AggregatedVersion<'g>>,
}

/// The metadata of a group; the core group has no name.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupMeta<'g> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) name: &'g str,
    pub(super) creation_timestamp: (),
}

/// `APIVersionDiscovery`.
#[derive(Serialize)]
pub(super) struct AggregatedVersion<'g> {
    pub(super) version: &'g str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) resources: Vec<Served>,
    pub(super) freshness: &'static str,
}
