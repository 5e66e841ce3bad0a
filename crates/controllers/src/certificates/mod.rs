//! Certificates that the API is asked for: the requests (CertificateSigningRequests) are approved, signed, and in the end
//! removed.
//!
//! Two controllers approve. `Approving` is upstream's: it approves the client certificates of kubelets for whom RBAC
//! lets ask for them. `NodeApproving` is ours, and approves what upstream leaves to an administrator: the
//! certificates with which kubelets serve, and those of a node's other parts (`node_rules` has the rules, and tells what
//! somebody can do who stole a node's certificate). `Signing` signs what somebody approved.

mod approving;
mod authority;
mod cleaner;
mod der;
mod node_approving;
mod node_rules;
mod pod_cleaner;
mod request;
mod rules;
mod signers;
mod signing;
#[cfg(test)]
mod testing;
mod trust_bundles;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};

pub(crate) use approving::Approving;
pub use authority::{Authority, AuthorityError};
pub(crate) use cleaner::Cleaner;
pub(crate) use node_approving::NodeApproving;
pub use node_rules::ACCOUNTS as NODE_ACCOUNTS;
pub(crate) use pod_cleaner::PodCleaner;
pub use signers::Signers;
pub(crate) use signing::Signing;
pub(crate) use trust_bundles::TrustBundles;

/// The signers of the control plane.
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

/// Whether a request has a condition, whatever its status is.
fn has(csr: &CertificateSigningRequest, kind: &str) -> bool {
    conditions(csr).iter().any(|c| c.type_ == kind)
}

fn conditions(csr: &CertificateSigningRequest) -> &[CertificateSigningRequestCondition] {
    csr.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default()
}

fn certificate(csr: &CertificateSigningRequest) -> Option<&[u8]> {
    let certificate = csr.status.as_ref().and_then(|s| s.certificate.as_ref());
    certificate.map(|c| c.0.as_slice()).filter(|c| !c.is_empty())
}

/// Whether a request is approved, and nobody has denied it.
fn is_approved(csr: &CertificateSigningRequest) -> bool {
    has(csr, "Approved") && !has(csr, "Denied")
}

/// Whether nobody has decided about a request yet.
fn is_open(csr: &CertificateSigningRequest) -> bool {
    certificate(csr).is_none() && !has(csr, "Approved") && !has(csr, "Denied")
}

/// The request with one more condition, which is true.
fn with_condition(
    csr: &CertificateSigningRequest,
    kind: &str,
    reason: &str,
    message: &str,
) -> CertificateSigningRequest {
    let mut csr = csr.clone();
    let condition = CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..CertificateSigningRequestCondition::default()
    };
    csr.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
    csr
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's 4 cases of `TestIsCertificateRequestApproved`, and whether somebody has decided.
    #[test]
    fn decisions() {
        let check = |kinds: &[&str], approved: bool, open: bool| {
            let mut csr = CertificateSigningRequest::default();
            for kind in kinds {
                csr = with_condition(&csr, kind, "", "");
            }
            assert_eq!((is_approved(&csr), is_open(&csr)), (approved, open), "{kinds:?}");
        };
        check(&[], false, true);
        check(&["Denied"], false, false);
        check(&["Approved"], true, false);
        check(&["Approved", "Denied"], false, false);
    }
}
