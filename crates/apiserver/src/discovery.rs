//! Discovery: which groups, versions and resources are served; `/version`, `/` and OpenAPI.

use access::Query;
use api::{Status, Text};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::front::{Body, full, header as header_of, status_response};
use crate::inner::Inner;
use crate::negotiate::{self, Allowed, Format};
use crate::pipe::method_not_allowed;
use crate::registry::{Registry, Resource};
use crate::{codec, openapi};

/// A document that is made once.
struct Document {
    json: Bytes,
    etag: HeaderValue,
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
fn storage_hash(resource: &Resource) -> Option<String> {
    use base64::Engine;
    let stored = resource.stored.as_ref()?;
    let name = format!("{}/{}/{}", stored.kind.group, stored.kind.version, stored.kind.kind);
    let digest = Sha256::digest(name.as_bytes());
    Some(base64::engine::general_purpose::STANDARD.encode(&digest[..8]))
}

fn resource_list(registry: &Registry, group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    let mut of_version: Vec<_> =
        registry.iter().filter(|r| r.group == group && r.version == version).collect();
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
        resources.push(entry);
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
            resources.push(entry);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
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

fn aggregated(registry: &Registry, core: bool) -> Value {
    let items: Vec<Value> = registry
        .groups()
        .iter()
        .filter(|g| g.0.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let mut resources: Vec<_> =
                        registry.iter().filter(|r| r.group == *group && r.version == *version).collect();
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

fn aggregated_resource(r: &Resource) -> Value {
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
    pub(crate) fn new(registry: &Registry) -> Self {
        let named: Vec<_> = registry.groups().iter().filter(|g| !g.0.is_empty()).collect();
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
        let versions = registry
            .groups()
            .iter()
            .flat_map(|(g, versions)| versions.iter().map(move |v| (g.clone(), v.clone())))
            .map(|(g, v)| {
                let document = Document::new(&resource_list(registry, &g, &v));
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
            aggregated_core: Document::new(&aggregated(registry, true)),
            aggregated_groups: Document::new(&aggregated(registry, false)),
            group,
            versions,
        }
    }
    /// Whether a path is below a group that is served.
    fn is_group(&self, path: &str) -> bool {
        match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
            ["api", _] => true,
            ["apis", group, _] => self.group.iter().any(|d| d.0 == group),
            _ => false,
        }
    }
    fn find(&self, path: &str, wants_aggregated: bool) -> Option<(&Document, bool)> {
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

/// Whether a path is one of those that upstream's aggregator answers itself, whatever the method.
pub(crate) fn of_aggregator(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    matches!(path, "" | "/apis") || path.strip_prefix("/apis/").is_some_and(|group| !group.contains('/'))
}

/// The version of aggregated discovery that an Accept header asks for before anything else.
fn aggregated_version(accept: &str) -> Option<&'static str> {
    for clause in accept.split(',') {
        let has = |p: &str| clause.split(';').any(|c| c.trim() == p);
        if has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList") {
            if !clause.trim().starts_with("application/json") {
                continue;
            }
            if has("v=v2") {
                return Some("v2");
            }
        } else {
            return None;
        }
    }
    None
}

/// What this was built as, and from.
pub(crate) struct Build {
    pub(crate) major: &'static str,
    pub(crate) minor: &'static str,
    pub(crate) version: &'static str,
    pub(crate) commit: &'static str,
    pub(crate) tree_state: &'static str,
    pub(crate) date: &'static str,
    pub(crate) go_version: &'static str,
    pub(crate) compiler: &'static str,
}

/// The release whose API this is, and who serves it.
pub(crate) const BUILD: Build = Build {
    major: "1",
    minor: "36",
    version: "v1.36.2+ferrokube",
    commit: "",
    tree_state: "clean",
    date: "1970-01-01T00:00:00Z",
    go_version: "",
    compiler: "rustc",
};

/// The operating system and processor, as Go calls them.
pub(crate) fn platform() -> String {
    format!("{}/{}", std::env::consts::OS, arch())
}

/// What `/version` tells.
fn version() -> Value {
    json!({
        "major": BUILD.major,
        "minor": BUILD.minor,
        "emulationMajor": BUILD.major,
        "emulationMinor": BUILD.minor,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": BUILD.version,
        "gitCommit": BUILD.commit,
        "gitTreeState": BUILD.tree_state,
        "buildDate": BUILD.date,
        "goVersion": BUILD.go_version,
        "compiler": BUILD.compiler,
        "platform": platform(),
    })
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn root_paths(inner: &Inner) -> Value {
    let mut paths: Vec<String> = vec![
        "/.well-known/openid-configuration".into(),
        "/api".into(),
        "/api/v1".into(),
        "/apis".into(),
        "/apis/".into(),
        "/healthz".into(),
        "/livez".into(),
        "/metrics".into(),
        "/openapi/v2".into(),
        "/openapi/v3".into(),
        "/openapi/v3/".into(),
        "/openid/v1/jwks".into(),
        "/readyz".into(),
        "/version".into(),
    ];
    for (group, versions) in inner.registry.groups().iter().filter(|g| !g.0.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|v| format!("/apis/{group}/{v}")));
    }
    paths.sort();
    json!({"paths": paths})
}

fn indented(value: &Value) -> Bytes {
    codec::pretty(value.to_string().as_bytes())
}

fn json_response(body: Bytes, media: &'static str) -> Response<Body> {
    let mut response = Response::new(full(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// Answers a path of discovery.
pub(crate) fn serve(
    inner: &Inner,
    parts: &http::request::Parts,
    path: &str,
    query: &Query,
) -> Option<Response<Body>> {
    match path.trim_end_matches('/') {
        "" => return Some(json_response(indented(&root_paths(inner)), "application/json")),
        "/version" => return Some(json_response(indented(&version()), "application/json")),
        _ => {}
    }
    if path.starts_with("/openapi/") {
        return openapi::serve(inner, parts, path, query);
    }
    let accept = header_of(parts, header::ACCEPT);
    let asked = aggregated_version(&accept);
    let (document, is_aggregated) = match inner.discovery.find(path, asked.is_some()) {
        Some(found) => found,
        // Below a group that is served, what is missing is a resource.
        None if inner.discovery.is_group(path) => {
            return Some(status_response(inner, &Status::no_such_resource(), negotiate::Form::JSON));
        }
        None => return None,
    };
    if parts.method == Method::HEAD && !of_aggregator(path) {
        return Some(status_response(inner, &method_not_allowed(), negotiate::Form::JSON));
    }
    let body = if is_aggregated {
        document.json.clone()
    } else {
        let agent = header_of(parts, header::USER_AGENT);
        let form = negotiate::output(&accept, query, &agent, Allowed::Plain, false);
        let form = match form {
            Ok(form) => form,
            Err(status) => return Some(status_response(inner, &status, negotiate::Form::JSON)),
        };
        match form.format {
            Format::Json if form.pretty => codec::pretty(&document.json),
            Format::Json => document.json.clone(),
            Format::Yaml => {
                return Some(json_response(codec::yaml(&document.json).ok()?, "application/yaml"));
            }
            Format::Protobuf => return Some(protobuf(inner, &document.json)),
        }
    };
    let media = if is_aggregated {
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    } else {
        "application/json"
    };
    let mut response = json_response(body, media);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    if is_aggregated {
        let matches = header_of(parts, header::IF_NONE_MATCH)
            .split(',')
            .any(|e| document.etag.to_str().is_ok_and(|d| d == e.trim()));
        if matches {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = full(Bytes::new());
        }
        response.headers_mut().insert(header::ETAG, document.etag.clone());
    }
    Some(response)
}

fn protobuf(inner: &Inner, json: &Bytes) -> Response<Body> {
    let kind = serde_json::from_slice::<Value>(json)
        .ok()
        .and_then(|v| v.get("kind").and_then(Value::as_str).map(str::to_owned))
        .unwrap_or_default();
    let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}");
    match codec::proto_of_json(inner.schema, &name, json) {
        Ok(raw) => json_response(codec::envelope("v1", &kind, &raw), Format::Protobuf.media_type()),
        Err(status) => status_response(inner, &status, negotiate::Form::JSON),
    }
}
