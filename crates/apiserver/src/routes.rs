//! Which paths below `/api/` and `/apis/` are there, and which methods each of them takes.
//!
//! The routes are those that upstream's installer makes for a resource: what its verbs do not need is not there.

use api::{Status, Text};
use http::Method;

use crate::pipe::method_not_allowed;
use crate::registry::{Registry, Resource};

/// Whether something answers a method at a path, whose escapes are taken off; else upstream's 404 or 405.
pub(crate) fn check(registry: &Registry, method: &Method, path: &str) -> Result<(), Status> {
    let methods = methods(registry, path).filter(|m| !m.is_empty()).ok_or_else(Status::no_such_resource)?;
    if methods.iter().any(|m| m == method) { Ok(()) } else { Err(method_not_allowed()) }
}

/// The methods of a path; nothing, or none, where nothing is.
fn methods(registry: &Registry, path: &str) -> Option<Vec<Method>> {
    let mut parts = path.trim_matches('/').split('/').collect::<Vec<_>>();
    let core = parts[0] == "api";
    let (group, mut parts) =
        if core { ("", parts.split_off(1)) } else { (*parts.get(1)?, parts.split_off(2)) };
    let (version, mut at) = parts.split_first_mut().map(|(v, rest)| (*v, &*rest))?;
    let watch = at.first() == Some(&"watch");
    if watch {
        at = &at[1..];
    }
    let mut namespaced = false;
    let own = |sub: &str| matches!(sub, "status" | "finalize");
    if core && at.len() > 2 && at[0] == "namespaces" && !own(at[2])
        || !core && at.len() > 2 && at[0] == "namespaces"
    {
        namespaced = true;
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
        return (there && resource.has_verb("watch")).then(|| vec![Method::GET]);
    }
    match at {
        [] if named => Some(of(&resource.verbs, &COLLECTION)),
        [] => Some(of(&resource.verbs, &COLLECTION[..1])),
        _ if !named => None,
        [_] => Some(of(&resource.verbs, &OBJECT)),
        [_, sub, rest @ ..] => below(resource, sub, rest),
    }
}

const COLLECTION: [(&str, Method); 3] =
    [("list", Method::GET), ("create", Method::POST), ("deletecollection", Method::DELETE)];

const OBJECT: [(&str, Method); 4] =
    [("get", Method::GET), ("update", Method::PUT), ("patch", Method::PATCH), ("delete", Method::DELETE)];

fn of(verbs: &[Text], methods: &[(&str, Method)]) -> Vec<Method> {
    let has = |verb: &str| verbs.iter().any(|v| v == verb);
    methods.iter().filter(|(verb, _)| has(verb)).map(|(_, method)| method.clone()).collect()
}

/// The methods of a subresource, or of a path that it passes on.
fn below(resource: &Resource, sub: &str, rest: &[&str]) -> Option<Vec<Method>> {
    let sub = resource.subresource(sub)?;
    let proxy = sub.name == "proxy";
    if !rest.is_empty() && !proxy {
        return None;
    }
    let mut methods = of(&sub.verbs, &OBJECT);
    methods.extend(of(&sub.verbs, &COLLECTION[1..2]));
    if proxy {
        methods.extend([Method::HEAD, Method::OPTIONS]);
    }
    Some(methods)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there() {
        let cluster = crate::pipe_tests::Cluster::new();
        let registry = &cluster.server.0.registry;
        let check = |path: &str, expected: &str| {
            let found = methods(registry, path).unwrap_or_default();
            let found = found.iter().map(Method::as_str).collect::<Vec<_>>().join(" ");
            assert_eq!(found, expected, "{path}");
        };
        check("/api/v1/pods", "GET");
        check("/api/v1/pods/", "GET");
        check("/api/v1/pods/none", "");
        check("/api/v1/namespaces/a/pods", "GET POST DELETE");
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
