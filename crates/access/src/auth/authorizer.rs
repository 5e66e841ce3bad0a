//! The interface of authorizers, which decide whether a user may do something.

use super::access::Access;
use super::eventual::Eventual;
use super::rbac::Rule;
use crate::UserInfo;

/// The group that may do everything.
pub(super) const SUPERUSERS: &str = "system:masters";

/// The decision of an authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The user may, for this reason.
    Allow(String),
    /// The user may not, for this reason; no other authorizer is asked.
    Deny(String),
    /// The authorizer does not know, for this reason; the user may not if no other authorizer allows it.
    NoOpinion(String),
}

impl Decision {
    /// The reason of a refusal; `None` if the user may.
    pub fn refusal(self) -> Option<String> {
        match self {
            Self::Allow(_) => None,
            Self::Deny(reason) | Self::NoOpinion(reason) => Some(reason),
        }
    }
}

/// Decides whether a user may do something.
pub trait Authorizer: Send + Sync + 'static {
    /// Decides whether a user may have the access.
    fn authorize<'a>(&'a self, user: &'a UserInfo, access: &'a Access<'a>) -> Eventual<'a, Decision>;
    /// Lists the rules of a user in a namespace, as far as this authorizer can, and the reason if the list is not
    /// whole.
    fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let _ = (user, namespace);
        (Vec::new(), None)
    }
}
