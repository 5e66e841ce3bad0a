//! Admission policies in the expression language: ValidatingAdmissionPolicy and MutatingAdmissionPolicy (upstream:
//! `apiserver/pkg/admission/plugin/policy`).
//!
//! `source` has the policies with their bindings, compiled; `relevant` finds those of a request with their parameters;
//! `validator` and `patch` evaluate one; `validating` and `mutating` are the plugins.

mod metrics;
mod mutating;
mod params;
mod patch;
mod relevant;
mod source;
mod stored;
#[cfg(test)]
mod tests;
mod validating;
mod validator;
mod versioned;

pub(super) use mutating::MutatingAdmissionPolicy;
pub(super) use validating::ValidatingAdmissionPolicy;

use super::AdmissionRequest;

/// Whether no policy may ever be asked about a request: policies could keep themselves from being mended, and reviews
/// must be answered for policies to be of use.
fn is_exempt(request: &AdmissionRequest<'_>) -> bool {
    const CONFIGURATION: [&str; 4] = [
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ];
    const ACCESS: [&str; 4] = [
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
    ];
    match &*request.info.group {
        "admissionregistration.k8s.io" => CONFIGURATION.contains(&request.resource),
        "authentication.k8s.io" => ["selfsubjectreviews", "tokenreviews"].contains(&request.resource),
        "authorization.k8s.io" => ACCESS.contains(&request.resource),
        _ => false,
    }
}
