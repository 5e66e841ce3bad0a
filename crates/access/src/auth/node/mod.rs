//! The node authorizer: a kubelet reads and writes the objects that belong to its node.

mod graph;

use api::selector::fields;

use crate::UserInfo;
use crate::auth::rbac::Rule;
use crate::auth::{Access, Authorizer, Decision, Eventual};

pub use graph::{Graph, GraphChange, Kind, PodRefs, PvRefs};

const USER_PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
const LEASES: &str = "kube-node-lease";

/// Returns the name of a user's node: `Some("")` for a member of the group of nodes whose name names no node.
pub fn node_name(user: &UserInfo) -> Option<&str> {
    if !user.name.starts_with(USER_PREFIX) {
        return None;
    }
    if !user.groups.iter().any(|g| g == GROUP) {
        return None;
    }
    user.name.strip_prefix(USER_PREFIX)
}

/// Decides on the requests of nodes.
pub struct NodeAuthorizer {
    graph: Graph,
    rules: Vec<Rule>,
    /// Whether nodes may ask for certificates of their pods (the gate `PodCertificateRequest`).
    pod_certificates: bool,
}

impl Default for NodeAuthorizer {
    fn default() -> Self {
        Self::new(false, false)
    }
}

impl Authorizer for NodeAuthorizer {
    fn authorize<'a>(&'a self, user: &'a UserInfo, access: &'a Access<'a>) -> Eventual<'a, Decision> {
        Eventual::Now(self.decision(user, access))
    }
    fn rules_for(&self, user: &UserInfo, _: &str) -> (Vec<Rule>, Option<String>) {
        let unlisted = "node authorizer does not support user rule resolution";
        (Vec::new(), node_name(user).map(|_| unlisted.into()))
    }
}

impl NodeAuthorizer {
    /// Makes the authorizer, with the features `PodCertificateRequest` and `ClusterTrustBundle` on or off.
    pub fn new(pod_certificates: bool, trust_bundles: bool) -> Self {
        Self { graph: Graph::default(), rules: node_rules(trust_bundles), pod_certificates }
    }
    /// The graph of the objects that belong to each node.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Decides whether a node may have the access; has no opinion on other users.
    pub fn decision(&self, user: &UserInfo, access: &Access<'_>) -> Decision {
        let Some(node) = node_name(user) else { return Decision::NoOpinion(String::new()) };
        if node.is_empty() {
            return Decision::NoOpinion(format!("unknown node for user {:?}", user.name));
        }
        match self.decide(node, access) {
            Ok(()) => Decision::Allow(String::new()),
            Err(reason) => Decision::NoOpinion(reason),
        }
    }

    fn decide(&self, node: &str, access: &Access<'_>) -> Result<(), String> {
        if access.is_resource {
            let by_node = match (access.group, access.resource) {
                ("", "secrets") => Some(self.read_related(node, Kind::Secret, access)),
                ("", "configmaps") => Some(self.read_related(node, Kind::ConfigMap, access)),
                ("", "persistentvolumeclaims") if access.subresource == "status" => Some(match access.verb {
                    "update" | "patch" => self.related(node, Kind::Claim, access),
                    _ => Err("can only get/update/patch this type".into()),
                }),
                ("", "persistentvolumeclaims") => Some(self.get_related(node, Kind::Claim, access)),
                ("", "persistentvolumes") => Some(self.get_related(node, Kind::Volume, access)),
                ("resource.k8s.io", "resourceclaims") => {
                    Some(self.get_related(node, Kind::ResourceClaim, access))
                }
                ("storage.k8s.io", "volumeattachments") => {
                    Some(self.get_related(node, Kind::VolumeAttachment, access))
                }
                ("", "serviceaccounts") => Some(self.service_account(node, access)),
                ("coordination.k8s.io", "leases") => Some(lease(node, access)),
                ("storage.k8s.io", "csinodes") => Some(csi_node(node, access)),
                ("resource.k8s.io", "resourceslices") => Some(self.resource_slice(node, access)),
                ("", "nodes") => Some(own_node(node, access)),
                ("", "pods") => Some(self.pod(node, access)),
                ("certificates.k8s.io", "podcertificaterequests") => Some(self.pod_certificate(node, access)),
                _ => None,
            };
            if let Some(decision) = by_node {
                return decision;
            }
        }
        if self.rules.iter().any(|r| r.allows(access)) { Ok(()) } else { Err(String::new()) }
    }

    fn related(&self, node: &str, kind: Kind, access: &Access<'_>) -> Result<(), String> {
        if access.name.is_empty() {
            return Err("No Object name found".into());
        }
        if self.graph.reaches(node, kind, access.namespace, access.name) {
            Ok(())
        } else {
            Err(format!("no relationship found between node '{node}' and this object"))
        }
    }

    fn get_related(&self, node: &str, kind: Kind, access: &Access<'_>) -> Result<(), String> {
        if access.verb != "get" {
            return Err("can only get individual resources of this type".into());
        }
        if !access.subresource.is_empty() {
            return Err("cannot get subresource".into());
        }
        self.related(node, kind, access)
    }

    fn read_related(&self, node: &str, kind: Kind, access: &Access<'_>) -> Result<(), String> {
        if !matches!(access.verb, "get" | "list" | "watch") {
            return Err("can only read resources of this type".into());
        }
        if !access.subresource.is_empty() {
            return Err("cannot read subresource".into());
        }
        if access.namespace.is_empty() {
            return Err("can only read namespaced object of this type".into());
        }
        self.related(node, kind, access)
    }

    fn service_account(&self, node: &str, access: &Access<'_>) -> Result<(), String> {
        if access.verb == "get" && access.subresource.is_empty() {
            return self.read_related(node, Kind::ServiceAccount, access);
        }
        if access.verb != "create" || access.name.is_empty() {
            return Err("can only create tokens for individual service accounts".into());
        }
        if access.subresource != "token" {
            return Err("can only create token subresource of serviceaccount".into());
        }
        self.related(node, Kind::ServiceAccount, access)
    }

    /// Allows a node's own requests for certificates if the feature is on; NodeRestriction looks at the object.
    fn pod_certificate(&self, node: &str, access: &Access<'_>) -> Result<(), String> {
        if !self.pod_certificates {
            return Err(String::new());
        }
        if !access.subresource.is_empty() {
            return Err("nodes may not access the status subresource of PodCertificateRequests".into());
        }
        match access.verb {
            "create" => Ok(()),
            "get" => self.related(node, Kind::PodCertificateRequest, access),
            "list" | "watch" if requires(access.field_selector, "spec.nodeName", node) => Ok(()),
            "list" | "watch" => {
                Err("can only list/watch podcertificaterequests with nodeName field selector".into())
            }
            verb => Err(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn resource_slice(&self, node: &str, access: &Access<'_>) -> Result<(), String> {
        if !access.subresource.is_empty() {
            return Err("cannot authorize ResourceSlice subresources".into());
        }
        match access.verb {
            // NodeRestriction looks at the object.
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, Kind::ResourceSlice, access),
            "watch" | "list" | "deletecollection" => {
                if requires(access.field_selector, "spec.nodeName", node) {
                    Ok(())
                } else {
                    Err("can only list/watch/deletecollection resourceslices with nodeName field selector".into())
                }
            }
            _ => Err("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection".into()),
        }
    }

    fn pod(&self, node: &str, access: &Access<'_>) -> Result<(), String> {
        match (access.subresource, access.verb) {
            ("", "get") => self.get_related(node, Kind::Pod, access),
            ("", "list" | "watch") => {
                if requires(access.field_selector, "spec.nodeName", node) {
                    Ok(())
                } else if access.name.is_empty() {
                    Err("can only list/watch pods with spec.nodeName field selector".into())
                } else {
                    self.related(node, Kind::Pod, access)
                }
            }
            // NodeRestriction limits these to the node's own pods.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err(String::new()),
        }
    }
}

/// Whether a field selector as sent demands that a field equals a value.
fn requires(selector: &str, field: &str, value: &str) -> bool {
    fields::Selector::parse(selector).is_ok_and(|s| s.exact(field) == Some(value))
}

fn lease(node: &str, access: &Access<'_>) -> Result<(), String> {
    if !matches!(access.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a node lease".into());
    }
    if access.namespace != LEASES {
        return Err(format!("can only access leases in the {LEASES:?} system namespace"));
    }
    // The name of a create is not known yet; NodeRestriction looks at it.
    if access.verb != "create" && access.name != node {
        return Err("can only access node lease with the same name as the requesting node".into());
    }
    Ok(())
}

fn csi_node(node: &str, access: &Access<'_>) -> Result<(), String> {
    if !matches!(access.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a CSINode".into());
    }
    if !access.subresource.is_empty() {
        return Err("cannot authorize CSINode subresources".into());
    }
    if access.verb != "create" && access.name != node {
        return Err("can only access CSINode with the same name as the requesting node".into());
    }
    Ok(())
}

fn own_node(node: &str, access: &Access<'_>) -> Result<(), String> {
    match (access.subresource, access.verb) {
        // NodeRestriction limits these to the node's own object.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match access.name {
            name if name == node => Ok(()),
            "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
            other => Err(format!("node '{node}' cannot read '{other}', only its own Node object")),
        },
        _ => Err(String::new()),
    }
}

/// The rules of every node, besides the decisions of [`NodeAuthorizer`] by the object.
fn node_rules(trust_bundles: bool) -> Vec<Rule> {
    const READ: &[&str] = &["get", "list", "watch"];
    let mut rules: Vec<Rule> = [
        (&["create"][..], "authentication.k8s.io", &["tokenreviews"][..]),
        (&["create"], "authorization.k8s.io", &["subjectaccessreviews", "localsubjectaccessreviews"]),
        (READ, "", &["services"]),
        (&["get"], "", &["endpoints"]),
        (&["create", "get", "list", "watch"], "certificates.k8s.io", &["certificatesigningrequests"]),
        (READ, "storage.k8s.io", &["csidrivers"]),
        (READ, "node.k8s.io", &["runtimeclasses"]),
    ]
    .into_iter()
    .map(|(verbs, group, resources)| Rule::resources(verbs, group, resources))
    .collect();
    for group in ["", "events.k8s.io"] {
        rules.push(Rule::resources(&["create", "update", "patch"], group, &["events"]));
    }
    if trust_bundles {
        rules.push(Rule::resources(READ, "certificates.k8s.io", &["clustertrustbundles"]));
    }
    rules
}

#[cfg(test)]
mod tests;
