//! CSR cleaner: certificate requests that have served, and those that nobody decided about, are removed.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Client, Informer, Key};
use component::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{certificate, conditions};
use crate::host::{Controller, Host, Next, Wiring};

/// Upstream's times.
const PERIOD: Duration = Duration::from_hours(1);
const DECIDED: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);

/// The cleaner.
pub(crate) struct Cleaner {
    client: Client,
    clock: Clock,
    requests: Informer<CertificateSigningRequest>,
}

impl Controller for Cleaner {
    const NAME: &'static str = "certificatesigningrequest-cleaner-controller";
    const ALIASES: &'static [&'static str] = &["csrcleaner"];
    const ACCOUNT: &'static str = "certificate-controller";
    const QUEUE: &'static str = "certificate_cleaner";
    type Key = Key;

    fn new(host: &Host<Key>) -> Self {
        Self { client: host.client(), clock: host.clock(), requests: host.informer() }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        // The one key stands for a look at all requests.
        wiring.queue().add(Key::new("", ""));
    }

    async fn sync(&self, _: Key) -> Result<Next, Status> {
        let now = self.clock.now();
        let api = self.client.api::<CertificateSigningRequest>("");
        for csr in self.requests.list().iter().filter(|csr| is_over(csr, now)) {
            let name = csr.metadata.name.as_deref().unwrap_or_default();
            match api.delete(name, None).await {
                Err(e) if !e.is_not_found() => {
                    tracing::warn!(error = e.message, csr = name, "unable to delete CSR");
                }
                _ => {}
            }
        }
        Ok(Next::After(PERIOD))
    }
}

/// Whether a request has had its time.
fn is_over(csr: &CertificateSigningRequest, now: Timestamp) -> bool {
    let older = |than: SignedDuration, time: Option<Timestamp>| {
        time.is_some_and(|time| now.duration_since(time) > than)
    };
    let issued = certificate(csr);
    let created = csr.metadata.creation_timestamp.as_ref().map(|t| t.0);
    if conditions(csr).is_empty() {
        return older(PENDING, created);
    }
    conditions(csr).iter().any(|condition| {
        let updated = condition.last_update_time.as_ref().map(|t| t.0);
        match (condition.type_.as_str(), issued) {
            ("Approved", Some(certificate)) => older(DECIDED, updated) || has_expired(certificate, now),
            ("Approved", None) => older(PENDING, updated),
            ("Denied" | "Failed", _) => older(DECIDED, updated),
            _ => false,
        }
    })
}

fn has_expired(pem: &[u8], now: Timestamp) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(pem) else { return false };
    X509Certificate::from_der(&der)
        .is_ok_and(|(_, certificate)| now.as_second() > certificate.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rcgen::KeyPair;

    use super::super::request::Request;
    use super::super::testing::Asks;
    use super::super::{authority, with_condition};
    use super::*;

    /// Upstream's 14 cases of `TestCleanerWithApprovedExpiredCSR`: minutes since the request was made, the decisions with the
    /// minutes since they were made, and what is issued.
    #[test]
    fn requests_have_their_time() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let ago = |minutes: i64| Some(Time(now - SignedDuration::from_mins(minutes)));
        let check = |made: i64, decisions: &[(&str, i64)], issued: Option<&[u8]>, over: bool| {
            let mut csr = Asks::node("n").object();
            csr.metadata.creation_timestamp = ago(made);
            for (kind, minutes) in decisions {
                csr = with_condition(&csr, kind, "", "");
                let all = csr.status.as_mut().unwrap().conditions.as_mut().unwrap();
                all.last_mut().unwrap().last_update_time = ago(*minutes);
            }
            csr.status.get_or_insert_default().certificate = issued.map(|c| ByteString(c.to_vec()));
            assert_eq!(is_over(&csr, now), over, "{made} {decisions:?}");
        };
        let (authority, _) = authority::tests::authority(&KeyPair::generate().unwrap());
        let request = Request::parse(Asks::node("n").pem().as_bytes()).unwrap();
        let sign = |at: Timestamp| {
            let usages = ["client auth".to_owned()];
            authority.sign(&request, &usages, SignedDuration::from_mins(30), at).unwrap().into_bytes()
        };
        let (good, expired) = (sign(now), sign(now - SignedDuration::from_mins(50)));
        let (good, expired): (Option<&[u8]>, Option<&[u8]>) = (Some(&good), Some(&expired));
        check(1, &[("Approved", 50)], good, false);
        check(1, &[("Approved", 50)], None, false);
        check(1, &[("Approved", 120)], good, true);
        check(1, &[("Denied", 50)], None, false);
        check(1, &[("Denied", 120)], None, true);
        check(1, &[("Approved", 120), ("Failed", 50)], None, false);
        check(1, &[("Approved", 120), ("Failed", 120)], None, true);
        check(5 * 60, &[], None, false);
        check(25 * 60, &[], None, true);
        check(1, &[("Approved", 25 * 60)], None, true);
        check(1, &[("Approved", 5 * 60)], None, false);
        check(1, &[("Approved", 50)], good, false);
        check(1, &[("Approved", 50)], expired, true);
        check(1, &[("Approved", 120)], Some(b"garbage"), true);
        // Some that upstream does not have.
        check(50, &[("Approved", 50)], Some(b"garbage"), false);
        check(1, &[], None, false);
    }
}
