//! Which paths below `/api/` and `/apis/` are there, and which methods each of them takes.
//!
//! The routes are those that upstream's installer makes for a resource: what its verbs do not need is not there.

use api::{Status, Text};
use http::Method;

use crate::pipe::method_not_allowed;
use crate::registry::{Registry, Resource};

/// Whether something answers a method at a path, whose escapes are taken off; else upstream's 404 or 405.
pub(crate) fn check(registry: &Registry, method: &Method, path: &str) -> Result<(), Status> {
    match takes(registry, method, path) {
        Some(true) => Ok(()),
        Some(false) => Err(method_not_allowed()),
        None => Err(Status::no_such_resource()),
    }
}

/// Whether a path takes a method; nothing where nothing is.
fn takes(registry: &Registry, method: &Method, path: &str) -> Option<bool> {
    let mut parts = path.trim_matches('/').split('/').peekable();
    let core = parts.next()? == "api";
    let group = if core { "" } else { parts.next()? };
    let version = parts.next()?;
    let watch = parts.next_if_eq(&"watch").is_some();
    // A namespace, an object in it, and its subresource; of what follows only the first part matters.
    let mut at = [""; 6];
    let mut count = 0;
    for (place, part) in at.iter_mut().zip(parts) {
        *place = part;
        count += 1;
    }
    let mut at = &at[..count];
    let own = |sub: &str| core && matches!(sub, "status" | "finalize");
    let namespaced = at.len() > 2 && at[0] == "namespaces" && !own(at[2]);
    if namespaced {
        at = &at[2..];
    }
    let (plural, at) = at.split_first()?;
    let resource = registry.find(group, version, plural)?;
    if namespaced && !resource.namespaced {
        return None;
    }
    // One in a namespace has a name only there.
    let named = namespaced == resource.namespaced;
    if watch {
        let there = at.is_empty() || named && at.len() == 1;
        return (there && resource.has_verb("watch")).then(|| *method == Method::GET);
    }
    match at {
        [] if named => of(&resource.verbs, &COLLECTION, method),
        [] => of(&resource.verbs, &COLLECTION[..1], method),
        _ if !named => None,
        [_] => of(&resource.verbs, &OBJECT, method),
        [_, sub, rest @ ..] => below(resource, sub, rest, method),
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
fn below(resource: &Resource, sub: &str, rest: &[&str], method: &Method) -> Option<bool> {
    let sub = resource.subresource(sub)?;
    let proxy = sub.name == "proxy";
    if !rest.is_empty() && !proxy {
        return None;
    }
    let (object, create) = (of(&sub.verbs, &OBJECT, method), of(&sub.verbs, &COLLECTION[1..2], method));
    let there = object.or(create)?;
    Some(there || create == Some(true) || proxy && matches!(*method, Method::HEAD | Method::OPTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there() {
        let cluster = crate::pipe_tests::Cluster::new();
        let registry = &cluster.server.0.registry;
        let check = |path: &str, expected: &str| {
            let all = ["GET", "PUT", "PATCH", "DELETE", "POST", "HEAD", "OPTIONS", "TRACE"];
            let taken = |m: &&&str| takes(registry, &m.parse().unwrap(), path) == Some(true);
            let found = all.iter().filter(taken).copied().collect::<Vec<_>>().join(" ");
            assert_eq!(found, expected, "{path}");
        };
        check("/api/v1/pods", "GET");
        check("/api/v1/pods/", "GET");
        check("/api/v1/pods/none", "");
        check("/api/v1/namespaces/a/pods", "GET DELETE POST");
        check("/api/v1/namespaces/a/pods/p", "GET PUT PATCH DELETE");
        check("/api/v1/namespaces/a/pods/p/status", "GET PUT PATCH");
        check("/api/v1/namespaces/a/pods/p/status/x", "");
        check("/api/v1/namespaces/a/pods/p/nothing", "");
        check("/api/v1/namespaces/a/pods/p/log", "GET");
        check("/api/v1/namespaces/a/pods/p/exec", "GET POST");
        check("/api/v1/namespaces/a/pods/p/eviction", "POST");
        check("/api/v1/namespaces/a/pods/p/proxy/x/y", "GET PUT PATCH DELETE POST HEAD OPTIONS");
        check("/api/v1/namespaces", "GET POST");
        check("/api/v1/namespaces/a", "GET PUT PATCH DELETE");
        check("/api/v1/namespaces/a/finalize", "PUT");
        check("/api/v1/namespaces/a/status", "GET PUT PATCH");
        check("/api/v1/namespaces/a/namespaces", "");
        check("/api/v1/namespaces/a/nodes/n", "");
        check("/api/v1/nodes/n", "GET PUT PATCH DELETE");
        check("/api/v1/bindings", "");
        check("/api/v1/namespaces/a/bindings", "POST");
        check("/api/v1/watch/pods", "GET");
        check("/api/v1/watch/pods/p", "");
        check("/api/v1/watch/namespaces/a/pods/p", "GET");
        check("/api/v1/watch/nothing", "");
        check("/api/v1/proxy/nodes/x", "");
        check("/apis/apps/v1/deployments/x", "");
        check("/apis/apps/v1/namespaces/a/deployments/d/scale", "GET PUT PATCH");
        check("/apis/apps/v1/namespaces", "");
        check("/apis/apps/v2/deployments", "");
        check("/apis/authentication.k8s.io/v1/tokenreviews", "POST");
        check("/apis/authentication.k8s.io/v1/tokenreviews/x", "");
        check("/apis/authorization.k8s.io/v1/localsubjectaccessreviews", "");
    }
}
