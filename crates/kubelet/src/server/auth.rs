//! Authorization of callers: each path stands for subresources of the Node.

use std::sync::Arc;

use http::{Method, StatusCode};
use serving::{Access, Auth, Failure, User};

/// Refuses a caller that may do none of what a path of this node's stands for.
pub(super) async fn authorize(
    auth: &Auth,
    node: &str,
    user: &Arc<User>,
    method: &Method,
    path: &str,
) -> Result<(), Failure> {
    let (verb, subresources) = (verb(method), subresources(path));
    for subresource in subresources {
        let access = Access::Node { verb, subresource, name: node.to_owned() };
        let allowed = auth.allowed(user, &access).await.map_err(|error| {
            let text = format!(
                "Authorization error (user={}, verb={verb}, resource=nodes, subresource={subresource})",
                user.name
            );
            tracing::warn!(%error, "{text}");
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, text)
        })?;
        if allowed {
            return Ok(());
        }
    }
    Err(Failure::new(
        StatusCode::FORBIDDEN,
        format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            user.name,
            subresources.join(" ")
        ),
    ))
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The subresources of the Node of which a caller needs one, the narrowest first.
fn subresources(path: &str) -> &'static [&'static str] {
    let below = |root: &str| {
        let root = root.trim_end_matches('/');
        path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if below("/pods") || below("/runningpods") {
        &["pods", "proxy"]
    } else if below("/healthz") {
        &["healthz", "proxy"]
    } else if below("/configz") {
        &["configz", "proxy"]
    } else if below("/stats") {
        &["stats"]
    } else if below("/metrics") {
        &["metrics"]
    } else if below("/logs") {
        &["log"]
    } else if below("/checkpoint") {
        &["checkpoint"]
    } else if below("/statusz") {
        &["statusz"]
    } else if below("/flagz") {
        &["configz"]
    } else {
        &["proxy"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's 30 paths of `TestGetRequestAttributes`, each with its 5 verbs, and those of `TestIsSubPath` that are paths
    /// here.
    #[test]
    fn narrow_first() {
        let check = |path: &str, expected: &[&str]| assert_eq!(subresources(path), expected, "{path}");
        for path in [
            "/attach/{podNamespace}/{podID}/{containerName}",
            "/attach/{podNamespace}/{podID}/{uid}/{containerName}",
            "/containerLogs/{podNamespace}/{podID}/{containerName}",
            "/debug/flags/v",
            "/debug/pprof/{subpath:*}",
            "/exec/{podNamespace}/{podID}/{containerName}",
            "/exec/{podNamespace}/{podID}/{uid}/{containerName}",
            "/portForward/{podNamespace}/{podID}",
            "/portForward/{podNamespace}/{podID}/{uid}",
            "/run/{podNamespace}/{podID}/{containerName}",
            "/run/{podNamespace}/{podID}/{uid}/{containerName}",
        ] {
            check(path, &["proxy"]);
        }
        check("/checkpoint/{podNamespace}/{podID}/{containerName}", &["checkpoint"]);
        check("/configz", &["configz", "proxy"]);
        check("/flagz", &["configz"]);
        check("/statusz", &["statusz"]);
        for path in ["/healthz", "/healthz/log", "/healthz/ping", "/healthz/syncloop"] {
            check(path, &["healthz", "proxy"]);
        }
        check("/logs/", &["log"]);
        check("/logs/{logpath:*}", &["log"]);
        for path in ["/metrics", "/metrics/slis", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource"]
        {
            check(path, &["metrics"]);
        }
        check("/pods/", &["pods", "proxy"]);
        check("/runningpods/", &["pods", "proxy"]);
        check("/stats/", &["stats"]);
        check("/stats/summary", &["stats"]);
        check("/pods", &["pods", "proxy"]);
        check("/podsx", &["proxy"]);
        let verbs = ["POST", "GET", "PUT", "PATCH", "DELETE"].map(|method| verb(&method.parse().unwrap()));
        assert_eq!(verbs, ["create", "get", "update", "patch", "delete"]);
    }
}
