//! CSR signer: signs the approved requests for the control plane's signers.

use std::sync::Arc;

use api::Status;
use client::{Client, Informer, Key};
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::request::Request;
use super::signers::Signers;
use super::{certificate, conditions, is_approved, rules, with_condition};
use crate::host::{Controller, Host, Next, Shared, Wiring};

/// The signer.
pub(crate) struct Signing {
    client: Client,
    clock: Clock,
    requests: Informer<CertificateSigningRequest>,
    signers: Signers,
}

impl Controller for Signing {
    const NAME: &'static str = "certificatesigningrequest-signing-controller";
    const ALIASES: &'static [&'static str] = &["csrsigning"];
    const ACCOUNT: &'static str = "certificate-controller";
    const QUEUE: &'static str = "certificate_signing";
    const WORKERS: usize = 5;
    type Key = Key;

    fn new(host: &Host<Key>) -> Self {
        Self {
            client: host.client(),
            clock: host.clock(),
            requests: host.informer(),
            signers: host.config().signers.clone(),
        }
    }

    fn wanted(shared: &Shared) -> bool {
        shared.config.signers.any()
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.requests, false);
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(csr) = self.requests.get_key(&key) else { return Ok(Next::Done) };
        let Some(signed) = plan(&csr, &self.signers, self.clock.now())? else { return Ok(Next::Done) };
        match self.client.api::<CertificateSigningRequest>("").update_status(&signed).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(Next::Done),
        }
    }
}

/// The request with a certificate, or with the reason for which it gets none; `None` if nothing is to be done.
fn plan(
    csr: &CertificateSigningRequest,
    signers: &Signers,
    now: Timestamp,
) -> Result<Option<CertificateSigningRequest>, Status> {
    // Versions before the first had no status of conditions: they were all true.
    let failed = conditions(csr).iter().any(|c| c.type_ == "Failed" && matches!(&*c.status, "True" | ""));
    if certificate(csr).is_some() || !is_approved(csr) || failed {
        return Ok(None);
    }
    let signer = csr.spec.signer_name.as_str();
    let Some(authority) = signers.of(signer) else { return Ok(None) };
    let request = match Request::parse(&csr.spec.request.0) {
        Ok(request) => request,
        Err(error) => {
            tracing::debug!(%error, csr = ?csr.metadata.name, "unable to parse csr");
            return Ok(None);
        }
    };
    let usages = rules::usages(csr);
    match rules::of_signer(signer, &request, usages) {
        None => Ok(None),
        Some(Err(why)) => {
            let mut failed = with_condition(csr, "Failed", "SignerValidationFailure", &why);
            let added = failed.status.as_mut().and_then(|s| s.conditions.as_mut()).and_then(|c| c.last_mut());
            if let Some(condition) = added {
                condition.last_update_time = Some(Time(now));
            }
            Ok(Some(failed))
        }
        Some(Ok(())) => {
            let life = signers.life(csr.spec.expiration_seconds);
            let pem = authority
                .sign(&request, usages, life, now)
                .map_err(|e| Status::internal(format_args!("error auto signing csr: {e}")))?;
            let mut signed = csr.clone();
            signed.status.get_or_insert_default().certificate = Some(ByteString(pem.into_bytes()));
            Ok(Some(signed))
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rcgen::KeyPair;
    use x509_parser::pem::parse_x509_pem;

    use super::super::authority::tests::authority;
    use super::super::testing::{Asks, SERVER};
    use super::super::{API_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN};
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn planned(asks: &Asks, kinds: &[&str]) -> Option<CertificateSigningRequest> {
        let (authority, _) = authority(&KeyPair::generate().unwrap());
        let mut csr = asks.object();
        for kind in kinds {
            csr = with_condition(&csr, kind, "", "");
        }
        plan(&csr, &Signers::all(&authority), NOW.parse().unwrap()).unwrap()
    }

    #[test]
    fn only_approved_requests_are_signed() {
        let check = |asks: Asks, kinds: &[&str], signed: bool| {
            assert_eq!(planned(&asks, kinds).is_some(), signed, "{kinds:?} {asks:?}");
        };
        let good = Asks::node("n");
        check(good, &["Approved"], true);
        check(good, &[], false);
        check(good, &["Denied"], false);
        check(good, &["Approved", "Denied"], false);
        check(good, &["Approved", "Failed"], false);
        check(Asks { signer: "example.com/mine", ..good }, &["Approved"], false);
        let failed = planned(&Asks { usages: SERVER, ..good }, &["Approved"]).unwrap();
        let condition = conditions(&failed).last().unwrap();
        assert_eq!(condition.reason.as_deref(), Some("SignerValidationFailure"));
        assert!(condition.message.as_deref().unwrap().starts_with("usages did not match"));
        assert_eq!((condition.type_.as_str(), certificate(&failed)), ("Failed", None));
    }

    /// Upstream's 13 cases of `TestHandle` of the signers: what is asked for, the conditions, and what becomes of it.
    ///
    /// DIFFERENCE: upstream makes no controller for a signer that it does not know; here one is for all, and does nothing.
    #[test]
    fn upstreams_requests() {
        let check = |asks: Asks, kinds: &[&str], status: &str, want: &str| {
            let (authority, _) = authority(&KeyPair::generate().unwrap());
            let mut csr = asks.object();
            for kind in kinds {
                csr = with_condition(&csr, kind, "", "");
            }
            for condition in csr.status.iter_mut().flat_map(|s| s.conditions.iter_mut().flatten()) {
                status.clone_into(&mut condition.status);
            }
            let got = plan(&csr, &Signers::all(&authority), NOW.parse().unwrap()).unwrap();
            let got = got.map(|csr| {
                let failed = conditions(&csr).iter().any(|c| c.type_ == "Failed" && c.status == "True");
                assert_eq!(failed, certificate(&csr).is_none());
                if failed { "fails" } else { "is signed" }
            });
            assert_eq!(got.unwrap_or_default(), want, "{asks:?} {kinds:?}");
        };
        const CLIENT: &[&str] = &["client auth", "digital signature", "key encipherment"];
        const SERVING: &[&str] = &["server auth", "digital signature", "key encipherment"];
        const BOTH: &[&str] = &["server auth", "client auth", "digital signature", "key encipherment"];
        let approved = &["Approved"][..];
        let anybody = Asks {
            signer: API_CLIENT,
            common_name: "hello-world",
            organization: Some("some-org"),
            usages: CLIENT,
            ..Asks::node("n")
        };
        let kubelet = Asks { common_name: "system:node:hello-world", usages: CLIENT, ..Asks::node("n") };
        let serving = Asks {
            signer: KUBELET_SERVING,
            common_name: "system:node:testnode",
            names: &["example.com"],
            usages: SERVING,
            ..kubelet
        };
        let nothing = Asks { common_name: "", organization: None, usages: &[], ..kubelet };
        // Upstream's conditions have no status here; the API server lets none in.
        for status in ["", "True"] {
            let check = |asks: Asks, kinds: &[&str], want: &str| check(asks, kinds, status, want);
            check(anybody, approved, "is signed");
            check(Asks { usages: &CLIENT[..2], ..anybody }, approved, "is signed");
            check(Asks { usages: BOTH, ..anybody }, approved, "fails");
            check(kubelet, approved, "is signed");
            check(Asks { usages: &CLIENT[..2], ..kubelet }, approved, "is signed");
            check(Asks { signer: LEGACY_UNKNOWN, ..nothing }, approved, "is signed");
            check(serving, approved, "is signed");
            check(Asks { usages: &SERVING[..2], ..serving }, approved, "is signed");
            check(serving, &["Approved", "Failed"], "");
            check(Asks { signer: "kubernetes.io/not-recognised", ..nothing }, approved, "");
            check(Asks { signer: KUBELET_SERVING, ..nothing }, &[], "");
            check(Asks { signer: "example.com/sample-name", ..nothing }, approved, "");
            check(Asks { signer: "kubernetes.io/not-a-real-signer", ..nothing }, approved, "");
        }
    }

    /// Upstream's case of `TestSigner`: an authority with an RSA key, a request of an elliptic curve, and a longer life than
    /// the signer gives.
    #[test]
    fn a_certificate_of_an_rsa_authority() {
        let key = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
        let (authority, ca) = authority(&key);
        let usages = &["signing", "key encipherment", "server auth", "client auth"];
        let asks = Asks {
            common_name: "system:node:k-a-node-s36b",
            signer: LEGACY_UNKNOWN,
            usages,
            seconds: Some(3 * 3600),
            ..Asks::node("n")
        };
        let csr = with_condition(&asks.object(), "Approved", "", "");
        let signers = Signers { duration: SignedDuration::from_hours(1), ..Signers::all(&authority) };
        let now: Timestamp = NOW.parse().unwrap();
        let signed = plan(&csr, &signers, now).unwrap().unwrap();
        let (rest, pem) = parse_x509_pem(certificate(&signed).unwrap()).unwrap();
        assert!(rest.is_empty(), "one certificate");
        let got = pem.parse_x509().unwrap();
        let (_, ca) = x509_parser::parse_x509_certificate(&ca).unwrap();
        got.verify_signature(Some(ca.public_key())).unwrap();
        assert_eq!(got.version(), x509_parser::x509::X509Version::V3);
        assert_eq!(got.subject().to_string(), "O=system:nodes, CN=system:node:k-a-node-s36b");
        let usage = got.key_usage().unwrap().unwrap().value;
        assert_eq!(usage.to_string(), "Digital Signature, Key Encipherment");
        let purposes = got.extended_key_usage().unwrap().unwrap().value;
        assert!(purposes.server_auth && purposes.client_auth && !purposes.any && !purposes.code_signing);
        assert!(got.basic_constraints().unwrap().is_some_and(|c| !c.value.ca));
        let seconds = |t: i64| t - now.as_second();
        let validity = got.validity();
        let life = (validity.not_before.timestamp(), validity.not_after.timestamp());
        assert_eq!((seconds(life.0), seconds(life.1)), (-300, 3600));
        // sha256WithRSAEncryption, and an elliptic curve's key.
        assert_eq!(got.signature_algorithm.algorithm.to_id_string(), "1.2.840.113549.1.1.11");
        assert_eq!(got.public_key().algorithm.algorithm.to_id_string(), "1.2.840.10045.2.1");
    }

    #[test]
    fn a_certificate_lives_as_long_as_was_asked_within_bounds() {
        let check = |seconds: Option<i32>, expected: i64| {
            let signed = planned(&Asks { seconds, ..Asks::node("n") }, &["Approved"]).unwrap();
            let (_, pem) = parse_x509_pem(certificate(&signed).unwrap()).unwrap();
            let validity = pem.parse_x509().unwrap().validity().clone();
            assert_eq!(
                validity.not_after.timestamp() - validity.not_before.timestamp(),
                expected,
                "{seconds:?}"
            );
        };
        const YEAR: i64 = 365 * 24 * 3600;
        check(None, YEAR);
        check(Some(600), 900);
        check(Some(1), 900);
        check(Some(3600), 3900);
        check(Some(i32::MAX), YEAR);
    }

    #[test]
    fn there_may_be_no_authority() {
        let mut csr = Asks::node("n").object();
        csr = with_condition(&csr, "Approved", "", "");
        assert_eq!(plan(&csr, &Signers::default(), NOW.parse().unwrap()).unwrap(), None);
        assert!(!Signers::default().any());
    }
}
