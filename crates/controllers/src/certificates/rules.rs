//! Upstream's rules of requests for its own signers, in its order and with its messages.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::request::Request;
use super::{API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN};

const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

pub(super) fn usages(csr: &CertificateSigningRequest) -> &[String] {
    csr.spec.usages.as_deref().unwrap_or_default()
}

/// Whether the usages are exactly these, and perhaps `key encipherment`, which RSA keys need.
fn exactly(usages: &[String], purpose: &str) -> bool {
    let wanted = ["digital signature", purpose];
    wanted.iter().all(|w| usages.iter().any(|u| u == w))
        && usages.iter().all(|u| u == "key encipherment" || wanted.contains(&u.as_str()))
}

/// Checks a request for the client certificate of a kubelet.
pub(super) fn kubelet_client(request: &Request, usages: &[String]) -> Result<(), String> {
    if request.subject.organizations != [NODES] {
        return Err("subject organization is not system:nodes".into());
    }
    if !request.names.is_empty() {
        return Err("DNS subjectAltNames are not allowed".into());
    }
    if !request.emails.is_empty() {
        return Err("Email subjectAltNames are not allowed".into());
    }
    if !request.addresses.is_empty() {
        return Err("IP subjectAltNames are not allowed".into());
    }
    if !request.uris.is_empty() {
        return Err("URI subjectAltNames are not allowed".into());
    }
    if !request.subject.common_name.starts_with(NODE_PREFIX) {
        return Err("subject common name does not begin with system:node:".into());
    }
    if !exactly(usages, "client auth") {
        return Err("usages did not match [client auth digital signature key encipherment]".into());
    }
    Ok(())
}

/// Checks a request for the certificate with which a kubelet serves.
pub(super) fn kubelet_serving(request: &Request, usages: &[String]) -> Result<(), String> {
    if request.subject.organizations != [NODES] {
        return Err("subject organization is not system:nodes".into());
    }
    if request.names.is_empty() && request.addresses.is_empty() {
        return Err("DNS or IP subjectAltName is required".into());
    }
    if !request.emails.is_empty() {
        return Err("Email subjectAltNames are not allowed".into());
    }
    if !request.uris.is_empty() {
        return Err("URI subjectAltNames are not allowed".into());
    }
    if !exactly(usages, "server auth") {
        return Err("usages did not match [digital signature key encipherment server auth]".into());
    }
    if !request.subject.common_name.starts_with(NODE_PREFIX) {
        return Err("subject common name does not begin with system:node:".into());
    }
    Ok(())
}

/// Checks a request for a client certificate of anybody.
pub(super) fn api_client(usages: &[String]) -> Result<(), String> {
    let known = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|u| !known.contains(&u.as_str())) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if !usages.iter().any(|u| u == "client auth") {
        return Err("missing required usage for client certificate: client auth".into());
    }
    Ok(())
}

/// Checks a request by the rules of the signer that it names; `None` if the signer is not one of the control plane's.
pub(super) fn of_signer(signer: &str, request: &Request, usages: &[String]) -> Option<Result<(), String>> {
    Some(match signer {
        KUBELET_CLIENT => kubelet_client(request, usages),
        KUBELET_SERVING => kubelet_serving(request, usages),
        API_CLIENT => api_client(usages),
        // Upstream restricts nothing here, for the sake of older clients.
        LEGACY_UNKNOWN => Ok(()),
        _ => return None,
    })
}

/// The permissions by which a request is approved: the subresource of `certificatesigningrequests` that the requester may
/// create, and the message of the approval. Upstream's recognizers, in its order.
pub(super) fn permissions(
    csr: &CertificateSigningRequest,
    request: &Request,
) -> Vec<(&'static str, &'static str)> {
    if csr.spec.signer_name != KUBELET_CLIENT || kubelet_client(request, usages(csr)).is_err() {
        return Vec::new();
    }
    let mut all = Vec::new();
    if csr.spec.username.as_deref().unwrap_or_default() == request.subject.common_name {
        let message = "Auto approving self kubelet client certificate after SubjectAccessReview.";
        all.push(("selfnodeclient", message));
    }
    all.push(("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."));
    all
}

#[cfg(test)]
mod tests {
    use super::super::testing::Asks;
    use super::*;

    fn subresources(asks: &Asks) -> Vec<&'static str> {
        let csr = asks.object();
        let request = Request::parse(&csr.spec.request.0).unwrap();
        permissions(&csr, &request).into_iter().map(|p| p.0).collect()
    }

    /// Upstream's 9 cases of `TestRecognizers`, each with and without `key encipherment`, and more.
    #[test]
    fn kubelets_are_recognized() {
        const RSA: &[&str] = &["key encipherment", "digital signature", "client auth"];
        const MORE: &[&str] = &["key encipherment", "digital signature", "client auth", "server auth"];
        const LESS: &[&str] = &["client auth"];
        let check = |asks: Asks, expected: &[&str]| {
            assert_eq!(subresources(&asks), expected, "{asks:?}");
            if asks.usages != MORE && asks.usages != LESS {
                let asks = Asks { usages: RSA, ..asks };
                assert_eq!(subresources(&asks), expected, "{asks:?}");
            }
        };
        let good = Asks::node("n");
        check(good, &["selfnodeclient", "nodeclient"]);
        check(Asks { common_name: "mike", ..good }, &[]);
        check(Asks { organization: None, ..good }, &[]);
        check(Asks { organization: Some("system:master"), ..good }, &[]);
        check(Asks { usages: MORE, ..good }, &[]);
        check(Asks { usages: LESS, ..good }, &[]);
        check(Asks { signer: "example.com/not-correct", ..good }, &[]);
        check(Asks { signer: KUBELET_SERVING, ..good }, &[]);
        check(Asks { names: &["n"], ..good }, &[]);
        check(Asks { addresses: &["192.0.2.1"], ..good }, &[]);
        check(Asks { requester: "joe", ..good }, &["nodeclient"]);
        check(Asks { common_name: "system:node:bar", ..good }, &["nodeclient"]);
    }

    #[test]
    fn signers_tell_what_is_wrong() {
        let check = |asks: Asks, expected: Option<Result<(), &str>>| {
            let request = Request::parse(asks.pem().as_bytes()).unwrap();
            let usages: Vec<String> = asks.usages.iter().map(|u| (*u).to_owned()).collect();
            let got = of_signer(asks.signer, &request, &usages);
            assert_eq!(got, expected.map(|r| r.map_err(str::to_owned)), "{asks:?}");
        };
        let client = Asks::node("n");
        check(client, Some(Ok(())));
        check(Asks { organization: None, ..client }, Some(Err("subject organization is not system:nodes")));
        let emails = Asks { emails: &["a@b"], ..client };
        check(emails, Some(Err("Email subjectAltNames are not allowed")));
        check(Asks { uris: &["a://b"], ..client }, Some(Err("URI subjectAltNames are not allowed")));
        let named = Err("subject common name does not begin with system:node:");
        check(Asks { common_name: "root", ..client }, Some(named));
        let server =
            Asks { signer: KUBELET_SERVING, usages: super::super::testing::SERVER, names: &["n"], ..client };
        check(server, Some(Ok(())));
        check(Asks { names: &[], ..server }, Some(Err("DNS or IP subjectAltName is required")));
        let other = Asks { usages: client.usages, ..server };
        check(other, Some(Err("usages did not match [digital signature key encipherment server auth]")));
        let any = Asks { signer: API_CLIENT, common_name: "ann", ..client };
        check(any, Some(Ok(())));
        let serving = Asks { usages: super::super::testing::SERVER, ..any };
        check(serving, Some(Err("invalid usage for client certificate: server auth")));
        let none = Asks { usages: &["digital signature"], ..any };
        check(none, Some(Err("missing required usage for client certificate: client auth")));
        check(Asks { signer: LEGACY_UNKNOWN, usages: &["any"], ..any }, Some(Ok(())));
        check(Asks { signer: "example.com/other", ..any }, None);
    }
}
