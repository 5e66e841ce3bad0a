//! The levels of requests, some before others: upstream's suggested flow schemas, which know some resources by name.

use access::{RequestInfo, UserInfo};

/// A group of requests that share the places kept for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// The heartbeats of nodes.
    NodeHigh,
    /// All other requests of nodes.
    System,
    /// Locks of the control plane.
    LeaderElection,
    /// The control plane's controllers.
    WorkloadHigh,
    /// All others.
    Others,
}

/// The users whose locks come first: the control plane.
const CONTROL_PLANE: [&str; 2] = ["system:kube-controller-manager", "system:kube-scheduler"];

/// The level of a request by upstream's suggested flow schemas; none for an exempt one.
pub(crate) fn level(user: &UserInfo, info: &RequestInfo) -> Option<Level> {
    let member = |group: &str| user.groups.iter().any(|g| g == group);
    let probe = !info.is_resource && matches!(info.path.as_str(), "/healthz" | "/livez" | "/readyz");
    if probe || member("system:masters") {
        return None;
    }
    let leases = info.group == "coordination.k8s.io" && info.resource == "leases";
    if member("system:nodes") {
        let heartbeat = leases && info.namespace == "kube-node-lease"
            || info.group.is_empty()
                && info.resource == "nodes"
                && matches!(&*info.subresource, "" | "status");
        return Some(if heartbeat { Level::NodeHigh } else { Level::System });
    }
    if CONTROL_PLANE.contains(&user.name.as_str()) || member("system:serviceaccounts:kube-system") {
        let lock = leases && info.namespace == "kube-system";
        return Some(if lock { Level::LeaderElection } else { Level::WorkloadHigh });
    }
    Some(Level::Others)
}

#[cfg(test)]
mod tests {
    use access::Query;
    use http::Method;

    use super::*;

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        let groups = groups.iter().map(|g| (*g).into()).collect();
        UserInfo { name: name.into(), groups, ..UserInfo::default() }
    }

    fn at(path: &str) -> RequestInfo {
        access::request_info::parse(&Method::PUT, path, &Query::default()).unwrap()
    }

    #[test]
    fn levels() {
        let check = |user: &UserInfo, path: &str, expected: Option<Level>| {
            assert_eq!(level(user, &at(path)), expected, "{} {path}", user.name);
        };
        let leases = "/apis/coordination.k8s.io/v1/namespaces";
        let pods = "/api/v1/namespaces/a/pods/b";
        let node = user("system:node:n", &["system:nodes", "system:authenticated"]);
        check(&node, &format!("{leases}/kube-node-lease/leases/n"), Some(Level::NodeHigh));
        check(&node, "/api/v1/nodes/n/status", Some(Level::NodeHigh));
        check(&node, "/api/v1/nodes/n/proxy", Some(Level::System));
        check(&node, pods, Some(Level::System));
        let manager = user("system:kube-controller-manager", &["system:authenticated"]);
        check(&manager, &format!("{leases}/kube-system/leases/l"), Some(Level::LeaderElection));
        check(&manager, &format!("{leases}/a/leases/l"), Some(Level::WorkloadHigh));
        let account = user("system:serviceaccount:kube-system:a", &["system:serviceaccounts:kube-system"]);
        check(&account, pods, Some(Level::WorkloadHigh));
        check(
            &user("system:node:n", &[]),
            &format!("{leases}/kube-node-lease/leases/n"),
            Some(Level::Others),
        );
        check(&user("a", &["system:masters"]), pods, None);
        check(&user("system:anonymous", &["system:unauthenticated"]), "/readyz", None);
        check(&user("system:anonymous", &["system:unauthenticated"]), "/version", Some(Level::Others));
    }
}
