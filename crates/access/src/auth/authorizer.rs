//! The decision whether a user may do something.

use super::access::Access;
use super::eventual::Eventual;
use super::rbac::Rule;
use crate::UserInfo;

/// The group that may do everything.
pub(super) const SUPERUSERS: &str = "system:masters";

/// The decision of an authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Yes, because.
    Allow(String),
    /// No, because; nobody else is asked.
    Deny(String),
    /// Not known here, because; no if nobody else says yes.
    NoOpinion(String),
}

impl Decision {
    /// Nothing for a yes, else why not.
    pub fn refusal(self) -> Option<String> {
        match self {
            Self::Allow(_) => None,
            Self::Deny(reason) | Self::NoOpinion(reason) => Some(reason),
        }
    }
}

/// Tells whether a user may do something.
pub trait Authorizer: Send + Sync + 'static {
    /// The decision.
    fn authorize<'a>(&'a self, user: &'a UserInfo, access: &'a Access<'a>) -> Eventual<'a, Decision>;
    /// The rules for a user in a namespace, as far as this authorizer can list them, and why it cannot list all.
    fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let _ = (user, namespace);
        (Vec::new(), None)
    }
}
