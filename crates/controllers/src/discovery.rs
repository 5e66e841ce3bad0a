//! The resources that the API serves, for the controllers that act on all of them.

use std::collections::HashSet;

use api::Status;
use client::{Client, Resource};
use futures::future::join_all;
use serde::Deserialize;

/// A served resource in the version that its group prefers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) resource: Resource,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    verbs: Vec<String>,
}

impl Served {
    #[cfg(test)]
    pub(crate) fn new(resource: Resource, kind: &str, namespaced: bool) -> Self {
        Self { resource, kind: kind.to_owned(), namespaced, verbs: Vec::new() }
    }

    #[cfg(test)]
    pub(crate) fn with_verbs(mut self, verbs: &[&str]) -> Self {
        self.verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        self
    }

    /// The resource's `apiVersion` in objects.
    pub(crate) fn api_version(&self) -> String {
        let Resource { group, version, .. } = &self.resource;
        if group.is_empty() { version.to_string() } else { format!("{group}/{version}") }
    }

    pub(crate) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// All resources that could be discovered, and the errors of the others.
pub(crate) struct Discovered {
    pub(crate) resources: Vec<Served>,
    /// The group versions that could not be discovered, with their errors.
    pub(crate) failed: Vec<(String, Status)>,
}

client::from_json!(Versions, Groups, Resources);

#[derive(Deserialize)]
struct Versions {
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    versions: Vec<Version>,
    #[serde(default)]
    preferred_version: Option<Version>,
}

#[derive(Deserialize, Clone, PartialEq)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

/// Asks the server for its resources. It fails only if the list of groups cannot be read.
pub(crate) async fn discover(client: &Client) -> Result<Discovered, Status> {
    let mut versions: Vec<(String, String, String)> = client
        .raw::<Versions>("/api")
        .await?
        .versions
        .into_iter()
        .map(|v| (String::new(), v.clone(), format!("/api/{v}")))
        .collect();
    for group in client.raw::<Groups>("/apis").await?.groups {
        let (mut first, mut rest): (Vec<_>, Vec<_>) =
            group.versions.into_iter().partition(|v| Some(v) == group.preferred_version.as_ref());
        first.append(&mut rest);
        for Version { version } in first {
            let path = format!("/apis/{}/{version}", group.name);
            versions.push((group.name.clone(), version, path));
        }
    }
    let answers = join_all(versions.iter().map(|(_, _, path)| client.raw::<Resources>(path))).await;
    let mut found = Discovered { resources: Vec::new(), failed: Vec::new() };
    let mut seen = HashSet::new();
    for ((group, version, _), answer) in versions.into_iter().zip(answers) {
        match answer {
            Err(error) if group.is_empty() => found.failed.push((version, error)),
            Err(error) => found.failed.push((format!("{group}/{version}"), error)),
            Ok(list) => {
                for entry in list.resources.into_iter().filter(|e| !e.name.contains('/')) {
                    if seen.insert((group.clone(), entry.name.clone())) {
                        found.resources.push(Served {
                            resource: Resource {
                                group: group.as_str().into(),
                                version: version.as_str().into(),
                                plural: entry.name.into(),
                            },
                            kind: entry.kind,
                            namespaced: entry.namespaced,
                            verbs: entry.verbs,
                        });
                    }
                }
            }
        }
    }
    Ok(found)
}

/// The version of a group that the server prefers, among those that are known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Preferred {
    /// The group is not served.
    Unserved,
    /// No known version of the group is served.
    Unknown,
    /// This one.
    Version(String),
}

/// Finds the version of a group that the server prefers, among those that are known here.
pub(crate) async fn preferred_version(
    client: &Client,
    group: &str,
    known: &[&str],
) -> Result<Preferred, Status> {
    let groups = client.raw::<Groups>("/apis").await?.groups;
    let Some(group) = groups.into_iter().find(|g| g.name == group) else { return Ok(Preferred::Unserved) };
    let versions = group.preferred_version.into_iter().chain(group.versions);
    let version = versions.map(|v| v.version).find(|v| known.contains(&v.as_str()));
    Ok(version.map_or(Preferred::Unknown, Preferred::Version))
}

/// A resource that can be asked for its scale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scaled {
    pub(crate) resource: Resource,
    /// Whether the resource has the scale subresource, in a known form.
    pub(crate) has_scale: bool,
}

/// The forms of a scale, as group and version.
const SCALES: [(&str, &str); 4] =
    [("autoscaling", "v1"), ("extensions", "v1beta1"), ("apps", "v1beta1"), ("apps", "v1beta2")];

/// Finds the resource of a kind, in the version that its object names or else in any served one; `None` for a kind that
/// is not served.
pub(crate) async fn find_scaled(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<Option<Scaled>, Status> {
    if let Some(found) = scaled_in(client, group, version, kind).await? {
        return Ok(Some(found));
    }
    if group.is_empty() {
        return Ok(None);
    }
    let served = client.raw::<Groups>("/apis").await?.groups.into_iter().find(|g| g.name == group);
    for other in served.into_iter().flat_map(|g| g.versions).filter(|v| v.version != version) {
        if let Some(found) = scaled_in(client, group, &other.version, kind).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

async fn scaled_in(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<Option<Scaled>, Status> {
    // An owner's reference may be any text: it must not lead to another path.
    let segment =
        |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    if !(segment(version) && (group.is_empty() || segment(group))) {
        return Ok(None);
    }
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let entries = match client.raw::<Resources>(&path).await {
        Ok(list) => list.resources,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(e),
    };
    let Some(plural) = entries.iter().find(|e| e.kind == kind && !e.name.contains('/')).map(|e| &e.name)
    else {
        return Ok(None);
    };
    let scale = format!("{plural}/scale");
    let has_scale = entries.iter().any(|e| {
        e.name == scale && e.kind == "Scale" && SCALES.contains(&(e.group.as_str(), e.version.as_str()))
    });
    let resource = Resource { group: group.into(), version: version.into(), plural: plural.as_str().into() };
    Ok(Some(Scaled { resource, has_scale }))
}
