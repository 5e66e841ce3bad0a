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
use super::{certificate, conditions, has, rules, with_condition};
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
    let decided = |kind: &str| conditions(csr).iter().any(|c| c.type_ == kind && c.status == "True");
    if certificate(csr).is_some() || !has(csr, "Approved") || has(csr, "Denied") || decided("Failed") {
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
    use rcgen::KeyPair;
    use x509_parser::pem::parse_x509_pem;

    use super::super::authority::tests::authority;
    use super::super::testing::{Asks, SERVER};
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
