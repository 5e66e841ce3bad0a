//! Authorization: superusers, then nodes, then RBAC.

use std::fmt::Write;
use std::sync::Arc;

use api::{Status, Text};

use super::node::NodeAuthorizer;
use super::rbac::{RbacIndex, Rule};
use super::{Authorizer, Decision};
use crate::request::{Attributes, RequestInfo, UserInfo};

/// The group that may do everything.
pub(super) const SUPERUSERS: &str = "system:masters";

/// What somebody wants to do, without who.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access<'a> {
    /// Whether it is about a resource; about `path` otherwise.
    pub is_resource: bool,
    /// Verb.
    pub verb: &'a str,
    /// Group.
    pub group: &'a str,
    /// Resource.
    pub resource: &'a str,
    /// Subresource.
    pub subresource: &'a str,
    /// Namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Path.
    pub path: &'a str,
    /// Field selector.
    pub field_selector: &'a str,
}

impl<'a> From<&'a RequestInfo> for Access<'a> {
    fn from(info: &'a RequestInfo) -> Self {
        Self {
            is_resource: info.is_resource,
            verb: info.verb,
            group: &info.group,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            path: &info.path,
            field_selector: &info.field_selector,
        }
    }
}

/// A decision with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, because.
    Allow(String),
    /// Not known here, because.
    NoOpinion(String),
}

/// The 403 of somebody who may not; upstream's text.
pub fn forbidden(user: &UserInfo, access: &Access<'_>, reason: &str) -> Status {
    let mut text = format!("User {:?} cannot {} ", user.name, access.verb);
    // Writing to a string cannot fail.
    let _ = if access.is_resource {
        let sub = if access.subresource.is_empty() { "" } else { "/" };
        let resource = format!("{}{sub}{}", access.resource, access.subresource);
        let _ = write!(text, "resource {resource:?} in API group {:?}", access.group);
        if access.namespace.is_empty() {
            write!(text, " at the cluster scope")
        } else {
            write!(text, " in the namespace {:?}", access.namespace)
        }
    } else {
        write!(text, "path {:?}", access.path)
    };
    // Upstream's protection of clients that show the text as HTML.
    let mut text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        let _ = write!(text, ": {reason}");
    }
    if access.is_resource {
        Status::forbidden(access.group, access.resource, access.name, text)
    } else {
        let mut status = Status::forbidden("", "", "", &text);
        status.message = format!("forbidden: {text}");
        status
    }
}

/// `--authorization-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// `Node`
    Node,
    /// `RBAC`
    Rbac,
    /// `AlwaysAllow`
    AlwaysAllow,
    /// `AlwaysDeny`
    AlwaysDeny,
}

impl AuthorizationMode {
    /// By its name on the command line.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "Node" => Some(Self::Node),
            "RBAC" => Some(Self::Rbac),
            "AlwaysAllow" => Some(Self::AlwaysAllow),
            "AlwaysDeny" => Some(Self::AlwaysDeny),
            _ => None,
        }
    }
}

/// Asks the authorizers of the modes in their order; members of `system:masters` are asked nothing.
pub struct UnionAuthorizer {
    modes: Vec<AuthorizationMode>,
    node: Arc<NodeAuthorizer>,
    rbac: Arc<RbacIndex>,
}

impl UnionAuthorizer {
    /// From its parts.
    pub fn new(modes: Vec<AuthorizationMode>, node: Arc<NodeAuthorizer>, rbac: Arc<RbacIndex>) -> Self {
        Self { modes, node, rbac }
    }
    /// The roles and bindings.
    pub fn rbac(&self) -> &Arc<RbacIndex> {
        &self.rbac
    }
    /// The graph of what nodes need.
    pub fn node(&self) -> &Arc<NodeAuthorizer> {
        &self.node
    }
    /// The decision with its reason: the first yes, or the reasons of all who said no.
    pub fn decide(&self, user: &UserInfo, access: &Access<'_>) -> Verdict {
        if user.groups.iter().any(|g| g == SUPERUSERS) {
            return Verdict::Allow(String::new());
        }
        let mut reasons: Vec<String> = Vec::new();
        for mode in &self.modes {
            let verdict = match mode {
                AuthorizationMode::Node => self.node.authorize(user, access),
                AuthorizationMode::Rbac => self.rbac.authorize(user, access),
                AuthorizationMode::AlwaysAllow => Verdict::Allow(String::new()),
                AuthorizationMode::AlwaysDeny => Verdict::NoOpinion("Everything is forbidden.".to_owned()),
            };
            match verdict {
                Verdict::Allow(reason) => return Verdict::Allow(reason),
                Verdict::NoOpinion(reason) if reason.is_empty() => {}
                Verdict::NoOpinion(reason) => reasons.push(reason),
            }
        }
        Verdict::NoOpinion(reasons.join("\n"))
    }
    /// Whether it is a yes.
    pub fn allows(&self, user: &UserInfo, access: &Access<'_>) -> bool {
        matches!(self.decide(user, access), Verdict::Allow(_))
    }
    /// A 403 unless it is a yes.
    pub fn require(&self, user: &UserInfo, access: &Access<'_>) -> Result<(), Status> {
        match self.decide(user, access) {
            Verdict::Allow(_) => Ok(()),
            Verdict::NoOpinion(reason) => Err(forbidden(user, access, &reason)),
        }
    }
    /// What a user may do in a namespace, as far as it can be listed, and why it cannot be listed whole.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let mut rules = Vec::new();
        let mut errors: Vec<String> = Vec::new();
        if user.groups.iter().any(|g| g == SUPERUSERS) {
            rules.push(Rule::resources(&["*"], "*", &["*"]));
            let all: Text = "*".into();
            rules.push(Rule { verbs: vec![all.clone()], non_resource_urls: vec![all], ..Rule::default() });
        }
        for mode in &self.modes {
            match mode {
                AuthorizationMode::Rbac => {
                    let (more, error) = self.rbac.rules_for(user, namespace);
                    rules.extend(more);
                    errors.extend(error);
                }
                AuthorizationMode::Node if super::node::node_name(user).is_some() => {
                    errors.push("node authorizer does not support user rule resolution".into());
                }
                AuthorizationMode::AlwaysAllow => rules.push(Rule::resources(&["*"], "*", &["*"])),
                AuthorizationMode::Node | AuthorizationMode::AlwaysDeny => {}
            }
        }
        let error = (!errors.is_empty()).then(|| match errors.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        });
        (rules, error)
    }
}

impl Authorizer for UnionAuthorizer {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        match self.decide(&attributes.user, &Access::from(&*attributes.info)) {
            Verdict::Allow(_) => Decision::Allow,
            Verdict::NoOpinion(reason) => Decision::NoOpinion(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let user = UserInfo { name: "bob".into(), ..UserInfo::default() };
        let pods =
            Access { is_resource: true, verb: "list", resource: "pods", namespace: "a", ..Access::default() };
        let cases = [
            (
                pods,
                "",
                "pods is forbidden: User \"bob\" cannot list resource \"pods\" in API group \"\" in the namespace \"a\"",
            ),
            (
                Access {
                    namespace: "",
                    name: "x",
                    verb: "get",
                    resource: "nodes",
                    subresource: "proxy",
                    ..pods
                },
                "because",
                "nodes \"x\" is forbidden: User \"bob\" cannot get resource \"nodes/proxy\" in API group \"\" at the cluster scope: because",
            ),
            (
                Access { group: "apps", resource: "deployments", verb: "create", ..pods },
                "",
                "deployments.apps is forbidden: User \"bob\" cannot create resource \"deployments\" in API group \"apps\" in the namespace \"a\"",
            ),
            (
                Access { verb: "get", path: "/metrics", ..Access::default() },
                "",
                "forbidden: User \"bob\" cannot get path \"/metrics\"",
            ),
        ];
        for (access, reason, want) in cases {
            let status = forbidden(&user, &access, reason);
            assert_eq!((status.message.as_str(), status.code), (want, 403));
        }
    }
}
