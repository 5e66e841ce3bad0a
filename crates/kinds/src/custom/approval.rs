//! Definitions in groups of the Kubernetes community name who approved them.

use std::fmt;

use api::structural::is_request_uri;

/// The annotation that tells of the approval.
const ANNOTATION: &str = "api-approved.kubernetes.io";

/// The meaning of the annotation `api-approved.kubernetes.io` says. Upstream's `apihelpers.GetAPIApprovalState`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// There is no annotation.
    Missing,
    /// The definition says that nobody approved it.
    Bypassed(String),
    /// The annotation names the page of the approval.
    Approved(String),
    /// The annotation is neither.
    Invalid(String),
}

impl Approval {
    /// The approval of a definition in this group, with the annotation's text; `None` where no approval is asked for.
    pub fn of(group: &str, text: &str) -> Option<Self> {
        let is_of = |domain: &str| {
            group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if !is_of("k8s.io") && !is_of("kubernetes.io") {
            return None;
        }
        let host = text.split_once("://").and_then(|(_, rest)| {
            let authority = rest.split(['/', '?', '#']).next()?;
            authority.rsplit('@').next()
        });
        let is_url = is_request_uri(text) && host.is_some_and(|host| !host.is_empty());
        Some(match text {
            "" => Self::Missing,
            _ if text.starts_with("unapproved") => Self::Bypassed(text.into()),
            _ if is_url => Self::Approved(text.into()),
            _ => Self::Invalid(text.into()),
        })
    }
}

impl fmt::Display for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
        match self {
            Self::Missing => {
                write!(f, "protected groups must have approval annotation \"{ANNOTATION}\", {SEE}")
            }
            Self::Bypassed(text) => write!(f, "not approved: {}", api::go::quote(text)),
            Self::Approved(text) => write!(f, "approved in {text}"),
            Self::Invalid(_) => write!(
                f,
                "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason starting with \"unapproved\", {SEE}"
            ),
        }
    }
}
