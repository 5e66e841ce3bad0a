//! RBAC: rules, who they are bound to, and what they allow.

mod cover;
mod index;

pub use cover::{missing, refusal};
pub use index::{Change, RbacIndex, Source};

use api::{Object, Text};
use serde::Deserialize;

use crate::UserInfo;
use crate::auth::Access;

/// `rbac.authorization.k8s.io`.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// `PolicyRule`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Verbs; `*` for all.
    pub verbs: Vec<Text>,
    /// Groups; `*` for all.
    pub api_groups: Vec<Text>,
    /// Resources, also `pods/log`, `*/scale`, `*`.
    pub resources: Vec<Text>,
    /// Names; none for all.
    pub resource_names: Vec<Text>,
    /// Paths, also with `*` at the end.
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<Text>,
}

fn any(set: &[Text], wanted: &str) -> bool {
    set.iter().any(|e| e == "*" || e == wanted)
}

/// Whether a path is one of a rule's paths: the same, or below one that ends in `*`.
fn path_matches(rule: &str, path: &str) -> bool {
    rule == "*" || rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

impl Rule {
    /// A rule about resources.
    pub fn resources(verbs: &[&str], group: &str, resources: &[&str]) -> Self {
        let texts = |s: &[&str]| s.iter().map(|t| Text::from(*t)).collect();
        Self {
            verbs: texts(verbs),
            api_groups: vec![group.into()],
            resources: texts(resources),
            ..Self::default()
        }
    }
    /// Whether it allows a request.
    pub fn allows(&self, access: &Access<'_>) -> bool {
        if !any(&self.verbs, access.verb) {
            return false;
        }
        if !access.is_resource {
            return self.non_resource_urls.iter().any(|u| path_matches(u, access.path));
        }
        any(&self.api_groups, access.group)
            && self.resources.iter().any(|r| resource_matches(r, access.resource, access.subresource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == access.name))
    }
}

fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    match rule.split_once('/') {
        Some((left, right)) => right == subresource && (left == "*" || left == resource),
        None => false,
    }
}

/// `Subject`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: Text,
    /// Group of the kind.
    pub api_group: Text,
    /// Name.
    pub name: Text,
    /// Namespace of a service account; of a role binding's, the binding's if empty.
    pub namespace: Text,
}

impl Subject {
    /// Whether it is this user; `namespace` is the binding's, "" for a cluster role binding.
    pub fn is(&self, user: &UserInfo, namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.groups.contains(&self.name),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
                !namespace.is_empty()
                    && user
                        .name
                        .strip_prefix("system:serviceaccount:")
                        .and_then(|rest| rest.strip_prefix(namespace))
                        .and_then(|rest| rest.strip_prefix(':'))
                        == Some(self.name.as_str())
            }
            _ => false,
        }
    }
    fn describe(&self, namespace: &str) -> String {
        if self.kind == "ServiceAccount" {
            let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
            format!("ServiceAccount {:?}", format!("{}/{namespace}", self.name))
        } else {
            format!("{} {:?}", self.kind, self.name)
        }
    }
}

/// `RoleRef`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleRef {
    /// Group of the role.
    pub api_group: Text,
    /// `Role` or `ClusterRole`.
    pub kind: Text,
    /// Name.
    pub name: Text,
}

/// The content of a role.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Role {
    /// Rules; `null` in a stored object means none.
    #[serde(deserialize_with = "nullable")]
    pub rules: Vec<Rule>,
}

/// The content of a binding.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Binding {
    /// Name; not in the JSON's top level, put in by [`Binding::read`].
    #[serde(skip)]
    pub name: Text,
    /// Namespace, "" for a cluster role binding.
    #[serde(skip)]
    pub namespace: Text,
    /// To whom.
    #[serde(deserialize_with = "nullable")]
    pub subjects: Vec<Subject>,
    /// Which role.
    pub role_ref: RoleRef,
}

fn nullable<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(d: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

impl Role {
    /// Reads a stored role. A body that cannot be read grants nothing.
    pub fn read(object: &Object) -> Self {
        serde_json::from_slice(&object.data.body).unwrap_or_else(|e| {
            tracing::error!(name = %object.data.name, namespace = %object.data.namespace, error = %e, "unreadable role");
            Self::default()
        })
    }
}

impl Binding {
    /// Reads a stored binding. A body that cannot be read binds nobody.
    pub fn read(object: &Object) -> Self {
        let mut binding: Self = serde_json::from_slice(&object.data.body).unwrap_or_else(|e| {
            tracing::error!(name = %object.data.name, namespace = %object.data.namespace, error = %e, "unreadable binding");
            Self::default()
        });
        binding.name.clone_from(&object.data.name);
        binding.namespace.clone_from(&object.data.namespace);
        binding
    }
    fn describe(&self, subject: &Subject) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.to_string())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        format!(
            "{kind} {name:?} of {} {:?} to {}",
            self.role_ref.kind,
            self.role_ref.name,
            subject.describe(&self.namespace)
        )
    }
}

#[cfg(test)]
mod tests;
