//! A Node as the attaching of volumes reads it; pure.

use crate::nodes::taints::OUT_OF_SERVICE;
use crate::views::NodeView;

/// The annotation of nodes whose volumes the controller attaches; their kubelets write it.
pub(super) const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// Whether the controller attaches a node's volumes.
pub(super) fn is_managed(node: &NodeView) -> bool {
    node.metadata.annotations.iter().flatten().any(|(k, v)| k == MANAGED && v == "true")
}

/// Whether a node is ready.
pub(super) fn is_ready(node: &NodeView) -> bool {
    let mut conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Whether somebody says that a node is out of service.
pub(super) fn is_out_of_service(node: &NodeView) -> bool {
    node.taints().iter().any(|t| t.key == OUT_OF_SERVICE)
}

/// The volumes that a node's kubelet uses.
pub(super) fn in_use(node: &NodeView) -> impl Iterator<Item = &str> {
    let all = node.status.iter().flat_map(|s| s.volumes_in_use.iter().flatten());
    all.map(String::as_str)
}

/// The volumes of which a Node is told.
pub(super) fn told(node: &NodeView) -> impl Iterator<Item = &str> {
    let all = node.status.iter().flat_map(|s| s.volumes_attached.iter().flatten());
    all.map(|v| v.name.as_str())
}

/// Whether nothing of a Node changed that concerns its volumes; heartbeats are no such change.
pub(super) fn is_same(a: &NodeView, b: &NodeView) -> bool {
    let flags = |n: &NodeView| (is_managed(n), is_ready(n), is_out_of_service(n));
    flags(a) == flags(b) && in_use(a).eq(in_use(b)) && told(a).eq(told(b))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn changes_of_nodes() {
        let node = |more: Value| -> NodeView { serde_json::from_value(more).unwrap() };
        let base = json!({"metadata": {"annotations": {MANAGED: "true"}}, "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
            "volumesInUse": ["v"], "volumesAttached": [{"name": "v", "devicePath": ""}]}});
        let check = |path: &str, value: Value, expected: bool| {
            let mut other = base.clone();
            *other.pointer_mut(path).unwrap() = value;
            assert_eq!(is_same(&node(base.clone()), &node(other)), expected, "{path}");
        };
        check("/status/conditions/0/lastHeartbeatTime", json!("2026-01-01T00:01:00Z"), true);
        check("/status/conditions/0/status", json!("Unknown"), false);
        check("/metadata/annotations", json!({}), false);
        check("/status/volumesInUse", json!([]), false);
        check("/status/volumesAttached", json!([]), false);
    }
}
