//! An access that authorization decides on, and the refusal of one.

use std::fmt::Write;

use api::Status;

use crate::{RequestInfo, UserInfo};

/// An access, without the user.
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
