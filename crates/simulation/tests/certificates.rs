//! Requests for certificates, approved by a controller and signed by another.

use anyhow::Result;
use client::Verb;
use ferrokube_simulation::{Cluster, Fault, Rule};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::json;
use tokio::time::sleep;

use crate::common::MINUTE;

/// Upstream's request for a kubelet's client certificate (`signer/testdata/kubelet.csr`).
pub(crate) const KUBELET: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIH1MIGdAgEAMDsxFTATBgNVBAoTDHN5c3RlbTpub2RlczEiMCAGA1UEAxMZc3lz
dGVtOm5vZGU6ay1hLW5vZGUtczM2YjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA
BJbxa5Y8SrUJVHpOoWD5ceqH+5R9mjIhwVP2sqfTcLkjvbitzOiLlxSq/LwJ+qq7
kVpf9f3GopZVhRWbYSCg0YGgADAKBggqhkjOPQQDAgNHADBEAiAabb6XFtPOJUCQ
+84NhxLEvPANhrtwFq3Q0qFZ9TzH5QIgc/697RTTcbri2lVj+10dLFIC3VYJ7br4
QjA7haCYXrA=
-----END CERTIFICATE REQUEST-----
";

/// Upstream's 4 cases of `TestHandle` of the approver: whether it recognizes the request, whether the requester may ask for
/// it, whether anybody is asked about that, and whether the request is approved.
#[tokio::test(start_paused = true)]
async fn kubelets_are_approved() -> Result<()> {
    let check = async |recognized: bool, allowed: bool, asked: bool, approved: bool| -> Result<()> {
        let cluster = Cluster::start().await?;
        let answer = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {}, "status": {"allowed": allowed}});
        let reviews = Rule::new(Fault::Answer(answer)).resource("subjectaccessreviews");
        cluster.faults().add(reviews.verb(Verb::Create));
        cluster.controllers(&["certificatesigningrequest-approving-controller"])?;
        let kubelet = if recognized { "-kubelet" } else { "" };
        let request = json!({"metadata": {"name": "r"}, "spec": {
            "signerName": format!("kubernetes.io/kube-apiserver-client{kubelet}"),
            "usages": ["digital signature", "client auth"],
            "request": ByteString(KUBELET.as_bytes().to_vec())}});
        cluster.faults().record();
        cluster.create::<CertificateSigningRequest>(&request).await?;
        sleep(MINUTE).await;
        let seen = cluster.faults().seen();
        let case = format!("{recognized} {allowed}");
        let reviewed = seen.iter().any(|c| c.resource.plural == "subjectaccessreviews");
        assert_eq!(reviewed, asked, "{case}");
        let written: Vec<_> =
            seen.iter().filter(|c| c.verb == Verb::Update).map(|c| &*c.subresource).collect();
        assert_eq!(written, if approved { vec!["approval"] } else { vec![] }, "{case}");
        let csr = cluster.get::<CertificateSigningRequest>("", "r").await?.unwrap_or_default();
        let all = csr.status.and_then(|s| s.conditions).unwrap_or_default();
        let said: Vec<_> = all.iter().map(|c| (&*c.type_, &*c.status, c.reason.as_deref())).collect();
        let want = [("Approved", "True", Some("AutoApproved"))];
        assert_eq!(said, if approved { &want[..] } else { &[] }, "{case}");
        cluster.stop().await;
        Ok(())
    };
    check(false, false, false, false).await?;
    check(false, true, false, false).await?;
    check(true, false, true, false).await?;
    check(true, true, true, true).await
}
