//! Which paths below `/api/` and `/apis/` are there, and which methods each of them takes.
//!
//! The routes are those that upstream's installer makes for a resource: what its verbs do not need is not there.

use access::RequestInfo;
use api::{Status, Text};
use http::Method;

use crate::catalog::ResourceEntry;

/// Whether something answers a method at a path; else upstream's 404 or 405. `resource` is that of `info`.
pub(crate) fn check(
    method: &Method,
    info: &RequestInfo,
    resource: Option<&ResourceEntry>,
) -> Result<(), Status> {
    match resource.and_then(|resource| takes(resource, method, info)) {
        Some(true) => Ok(()),
        Some(false) => Err(method_not_allowed()),
        None => Err(Status::no_such_resource()),
    }
}

/// Whether a path takes a method; nothing where nothing is.
fn takes(resource: &ResourceEntry, method: &Method, info: &RequestInfo) -> Option<bool> {
    if info.in_namespace && !resource.namespaced {
        return None;
    }
    // One in a namespace has a name only there.
    let named = info.in_namespace == resource.namespaced;
    let below_object = !info.subresource.is_empty() || !info.rest.is_empty();
    // A field selector names an object, too.
    let collection = info.name.is_empty() || !info.verb_in_path && matches!(info.verb, "list" | "watch");
    if info.verb_in_path {
        let there = info.verb == "watch" && !below_object && (collection || named);
        return (there && resource.has_verb("watch")).then(|| *method == Method::GET);
    }
    match (below_object, collection) {
        (true, _) if !named => None,
        (true, _) => below(resource, info, method),
        (false, true) if named => of(&resource.verbs, &COLLECTION, method),
        (false, true) => of(&resource.verbs, &COLLECTION[..1], method),
        (false, false) if !named => None,
        (false, false) => of(&resource.verbs, &OBJECT, method),
    }
}

const COLLECTION: [(&str, Method); 3] =
    [("list", Method::GET), ("create", Method::POST), ("deletecollection", Method::DELETE)];

const OBJECT: [(&str, Method); 4] =
    [("get", Method::GET), ("update", Method::PUT), ("patch", Method::PATCH), ("delete", Method::DELETE)];

/// Whether a method is one of those that the verbs need; nothing where they need none.
fn of(verbs: &[Text], methods: &[(&str, Method)], method: &Method) -> Option<bool> {
    let mut there = None;
    for (_, needed) in methods.iter().filter(|(verb, _)| verbs.iter().any(|v| v == verb)) {
        there = Some(there.unwrap_or_default() || needed == method);
    }
    there
}

/// The same for a subresource, or a path that it passes on.
fn below(resource: &ResourceEntry, info: &RequestInfo, method: &Method) -> Option<bool> {
    let sub = resource.subresource(&info.subresource)?;
    let proxy = sub.name == "proxy";
    if !info.rest.is_empty() && !proxy {
        return None;
    }
    let (object, create) = (of(&sub.verbs, &OBJECT, method), of(&sub.verbs, &COLLECTION[1..2], method));
    let there = object.or(create)?;
    Some(there || create == Some(true) || proxy && matches!(*method, Method::HEAD | Method::OPTIONS))
}

/// The 405 for a method that a path does not take.
pub(crate) fn method_not_allowed() -> Status {
    let mut status = Status::failure(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    status.details = Some(Box::default());
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use access::Query;

    #[test]
    fn what_is_there() {
        let cluster = crate::testing::Cluster::new();
        let catalog = cluster.server.objects().catalog();
        let takes = |path: &str, expected: &str| {
            let all = ["GET", "PUT", "PATCH", "DELETE", "POST", "HEAD", "OPTIONS", "TRACE"];
            let taken = |method: &&&str| {
                let method: Method = method.parse().unwrap();
                let info = access::request_info::parse(&method, path, &Query::default()).unwrap();
                let resource = catalog.resources.find(&info.group, &info.version, &info.resource);
                check(&method, &info, resource.map(|r| &**r)).is_ok()
            };
            let found = all.iter().filter(taken).copied().collect::<Vec<_>>().join(" ");
            assert_eq!(found, expected, "{path}");
        };
        takes("/api/v1/pods", "GET");
        takes("/api/v1/pods/", "GET");
        takes("/api/v1/pods/none", "");
        takes("/api/v1/namespaces/a/pods", "GET DELETE POST");
        takes("/api/v1/namespaces/a/pods/p", "GET PUT PATCH DELETE");
        takes("/api/v1/namespaces/a/pods/p/status", "GET PUT PATCH");
        takes("/api/v1/namespaces/a/pods/p/status/x", "");
        takes("/api/v1/namespaces/a/pods/p/nothing", "");
        takes("/api/v1/namespaces/a/pods/p/log", "GET");
        takes("/api/v1/namespaces/a/pods/p/exec", "GET POST");
        takes("/api/v1/namespaces/a/pods/p/eviction", "POST");
        takes("/api/v1/namespaces/a/pods/p/proxy/x/y", "GET PUT PATCH DELETE POST HEAD OPTIONS");
        takes("/api/v1/namespaces", "GET POST");
        takes("/api/v1/namespaces/a", "GET PUT PATCH DELETE");
        takes("/api/v1/namespaces/a/finalize", "PUT");
        takes("/api/v1/namespaces/a/status", "GET PUT PATCH");
        takes("/api/v1/namespaces/a/namespaces", "");
        takes("/api/v1/namespaces/a/nodes/n", "");
        takes("/api/v1/nodes/n", "GET PUT PATCH DELETE");
        takes("/api/v1/bindings", "");
        takes("/api/v1/namespaces/a/bindings", "POST");
        takes("/api/v1/watch/pods", "GET");
        takes("/api/v1/watch/pods/p", "");
        takes("/api/v1/watch/namespaces/a/pods/p", "GET");
        takes("/api/v1/watch/nothing", "");
        takes("/api/v1/namespaces/b/namespaces/b", "");
        takes("/api/v1/namespaces/a/pods//status", "GET PUT PATCH");
        takes("/api/v1/namespaces/a/pods/p//x", "");
        takes("/api/v1/watch/namespaces/a/pods/p/status", "");
        takes("/apis/apps/v1/namespaces/a/status", "");
        takes("/api/v1/proxy/nodes/x", "");
        takes("/apis/apps/v1/deployments/x", "");
        takes("/apis/apps/v1/namespaces/a/deployments/d/scale", "GET PUT PATCH");
        takes("/apis/apps/v1/namespaces", "");
        takes("/apis/apps/v2/deployments", "");
        takes("/apis/authentication.k8s.io/v1/tokenreviews", "POST");
        takes("/apis/authentication.k8s.io/v1/tokenreviews/x", "");
        takes("/apis/authorization.k8s.io/v1/localsubjectaccessreviews", "");
    }
}
