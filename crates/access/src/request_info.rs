//! Reads off a method, a path without escapes and a query what a request is about.
//!
//! The rules are those of upstream's `RequestInfoFactory`.

use api::{Status, Text};
use http::Method;

use crate::Query;

/// The target of a request, read off its method, path and query; upstream's `RequestInfo`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestInfo {
    /// Whether the path is one of a resource (`/api/…`, `/apis/…` below the version).
    pub is_resource: bool,
    /// Path as sent, without the query.
    pub path: String,
    /// get, list, watch, create, update, patch, delete, deletecollection; the lower-case method for other paths.
    pub verb: &'static str,
    /// `api` or `apis`.
    pub prefix: Text,
    /// Group.
    pub group: Text,
    /// Version.
    pub version: Text,
    /// Namespace; for `namespaces/x` the x.
    pub namespace: Text,
    /// Resource.
    pub resource: Text,
    /// Subresource.
    pub subresource: Text,
    /// Name; for a list with the field selector `metadata.name=x` the x.
    pub name: Text,
    /// The rest of the path after the subresource (proxy paths).
    pub rest: String,
    /// Whether the path names a namespace before the resource.
    pub in_namespace: bool,
    /// Whether the path itself says `watch` or `proxy`, before the resource.
    pub verb_in_path: bool,
    /// Field selector as sent, for authorization.
    pub field_selector: String,
    /// Label selector as sent, for authorization.
    pub label_selector: String,
}

const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// Parses. A 400 for a path such as `/api/v1/watch` that names no resource.
pub fn parse(method: &Method, path: &str, query: &Query) -> Result<RequestInfo, Status> {
    let mut info = RequestInfo { path: path.to_owned(), verb: lower(method), ..RequestInfo::default() };
    let trimmed = path.trim_matches('/');
    if trimmed.is_empty() {
        return Ok(info);
    }
    let mut parts: Vec<&str> = trimmed.split('/').collect();
    if parts.len() < 3 || !matches!(parts[0], "api" | "apis") {
        return Ok(info);
    }
    if parts[0] == "apis" && parts.len() < 4 {
        return Ok(info);
    }
    info.prefix = parts.remove(0).into();
    if info.prefix == "apis" {
        info.group = parts.remove(0).into();
    }
    info.is_resource = true;
    info.version = parts.remove(0).into();

    if matches!(parts[0], "proxy" | "watch") {
        if parts.len() < 2 {
            return Err(Status::bad_request(format!(
                "unable to determine kind and namespace from url, {path}"
            )));
        }
        info.verb_in_path = true;
        info.verb = if parts.remove(0) == "watch" { "watch" } else { "proxy" };
    } else {
        info.verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
    }
    if parts[0] == "namespaces"
        && let Some(namespace) = parts.get(1)
    {
        info.namespace = (*namespace).into();
        if parts.len() > 2 && !NAMESPACE_SUBRESOURCES.contains(&parts[2]) {
            parts.drain(..2);
            info.in_namespace = true;
        }
    }
    if parts.len() >= 3 && !info.verb_in_path {
        info.subresource = parts[2].into();
        info.rest = parts[3..].join("/");
    } else if parts.len() >= 3 {
        info.rest = parts[2..].join("/");
    }
    if let Some(name) = parts.get(1) {
        info.name = (*name).into();
    }
    info.resource = parts[0].into();

    if info.name.is_empty() && info.verb == "get" {
        info.verb = if query.bool("watch") == Some(true) { "watch" } else { "list" };
        info.name = selected_name(query.str("fieldSelector")).unwrap_or_default();
    }
    if info.name.is_empty() && info.verb == "delete" {
        info.verb = "deletecollection";
    }
    if !info.verb_in_path && matches!(info.verb, "list" | "watch" | "deletecollection") {
        query.str("fieldSelector").clone_into(&mut info.field_selector);
        query.str("labelSelector").clone_into(&mut info.label_selector);
    }
    Ok(info)
}

fn lower(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        Method::CONNECT => "connect",
        Method::TRACE => "trace",
        _ => "",
    }
}

/// The name that a field selector pins by `metadata.name=`, if it is one that a path can hold.
pub fn selected_name(selector: &str) -> Option<Text> {
    let name = selector.split(',').find_map(|term| {
        let (key, value) = term.split_once('=')?;
        (key == "metadata.name").then(|| value.strip_prefix('=').unwrap_or(value))
    })?;
    let usable = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%', '\\']);
    usable.then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::too_many_arguments, reason = "a row of the table")]
    fn check(method: &str, url: &str, verb: &str, group: &str, ns: &str, res: &str, sub: &str, name: &str) {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let info = parse(&method, path, &Query::parse(query)).unwrap();
        let got = (
            info.verb,
            info.group.as_str(),
            info.namespace.as_str(),
            info.resource.as_str(),
            info.subresource.as_str(),
            info.name.as_str(),
        );
        assert_eq!(got, (verb, group, ns, res, sub, name), "{url}");
    }

    #[test]
    fn resource_paths() {
        check("GET", "/api/v1/namespaces", "list", "", "", "namespaces", "", "");
        check("GET", "/api/v1/namespaces/other", "get", "", "other", "namespaces", "", "other");
        check("GET", "/api/v1/namespaces/other/pods", "list", "", "other", "pods", "", "");
        check("GET", "/api/v1/namespaces/other/pods/foo", "get", "", "other", "pods", "", "foo");
        check("HEAD", "/api/v1/namespaces/other/pods/foo", "get", "", "other", "pods", "", "foo");
        check("GET", "/api/v1/pods?watch=true", "watch", "", "", "pods", "", "");
        check("GET", "/api/v1/watch/pods", "watch", "", "", "pods", "", "");
        check("GET", "/api/v1/watch/namespaces/other/pods/foo", "watch", "", "other", "pods", "", "foo");
        check("GET", "/api/v1/namespaces/other/pods/foo/status", "get", "", "other", "pods", "status", "foo");
        check(
            "PUT",
            "/api/v1/namespaces/other/finalize",
            "update",
            "",
            "other",
            "namespaces",
            "finalize",
            "other",
        );
        check(
            "PUT",
            "/api/v1/namespaces/other/status",
            "update",
            "",
            "other",
            "namespaces",
            "status",
            "other",
        );
        check(
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection",
            "apps",
            "a",
            "deployments",
            "",
            "",
        );
        check(
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            "patch",
            "apps",
            "a",
            "deployments",
            "scale",
            "d",
        );
        check("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", "list", "", "", "pods", "", "x");
        check("GET", "/api/v1/namespaces/a/pods/p/proxy/x/y", "get", "", "a", "pods", "proxy", "p");
    }

    #[test]
    fn other_paths() {
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis/apps",
            "/apis/apps/v1",
            "/healthz",
            "/version/",
            "/openapi/v3/api/v1",
        ] {
            let info = parse(&Method::GET, path, &Query::default()).unwrap();
            assert!(!info.is_resource, "{path}");
            assert_eq!(info.verb, "get");
        }
    }
}
