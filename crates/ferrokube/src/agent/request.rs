//! Asks the API for a certificate, and waits until it is signed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use api::Status;
use client::{Client, Event, WatchParams};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use rustls_pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::say::say;

/// The time for which a request waits for its certificate; upstream's.
const LIMIT: Duration = Duration::from_mins(15);
/// The time after which it is told that a request waits. Controllers decide sooner.
const SILENCE: Duration = Duration::from_secs(5);
/// How often an administrator tries to approve a request that others write, too.
const TRIES: usize = 5;
/// The text of an administrator's approval.
const APPROVED: &str = "Auto approving kubelet serving certificate of the control plane's own node.";

/// The certificate that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) common_name: String,
    pub(super) organization: Option<&'static str>,
    pub(super) names: BTreeSet<String>,
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) signer: &'static str,
    pub(super) purpose: &'static str,
    pub(super) seconds: Option<i32>,
}

impl Wanted {
    /// The client certificate of a node.
    pub(super) fn node_client(node: &str) -> Self {
        Self {
            common_name: format!("system:node:{node}"),
            organization: Some("system:nodes"),
            names: BTreeSet::new(),
            addresses: BTreeSet::new(),
            signer: "kubernetes.io/kube-apiserver-client-kubelet",
            purpose: "client auth",
            seconds: None,
        }
    }

    /// The certificate with which a node's kubelet serves.
    pub(super) fn node_serving(node: &str, addresses: &[IpAddr]) -> Self {
        Self {
            names: BTreeSet::from([node.to_owned()]),
            addresses: addresses.iter().copied().collect(),
            signer: "kubernetes.io/kubelet-serving",
            purpose: "server auth",
            ..Self::node_client(node)
        }
    }

    /// The client certificate of another part of a node.
    pub(super) fn account(user: &str) -> Self {
        Self {
            common_name: user.to_owned(),
            organization: None,
            signer: "kubernetes.io/kube-apiserver-client",
            // The longest that the control plane approves.
            seconds: Some(24 * 60 * 60),
            ..Self::node_client("")
        }
    }

    /// Whether a certificate is what is wanted: more names are no harm.
    pub(super) fn is_satisfied(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((_, read)) = X509Certificate::from_der(certificate) else { return false };
        let Ok(subject) = client::subject::subject(read.subject().as_raw()) else { return false };
        let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        let san = read.subject_alternative_name().ok().flatten();
        for name in san.iter().flat_map(|san| &san.value.general_names) {
            match name {
                GeneralName::DNSName(name) => drop(names.insert((*name).to_owned())),
                GeneralName::IPAddress(bytes) => {
                    let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                    addresses.extend(v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)));
                }
                _ => {}
            }
        }
        subject.common_name == self.common_name
            && subject.organizations.iter().map(String::as_str).eq(self.organization)
            && self.names.is_subset(&names)
            && self.addresses.is_subset(&addresses)
    }

    fn pem(&self, key: &KeyPair) -> Result<String, rcgen::Error> {
        let mut params = CertificateParams::default();
        let mut subject = DistinguishedName::new();
        if let Some(organization) = self.organization {
            subject.push(DnType::OrganizationName, organization);
        }
        subject.push(DnType::CommonName, self.common_name.as_str());
        params.distinguished_name = subject;
        for name in &self.names {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        params.subject_alt_names.extend(self.addresses.iter().map(|a| SanType::IpAddress(*a)));
        params.serialize_request(key)?.pem()
    }
}

/// The validity of a certificate: its begin and its end.
pub(super) fn validity(certificate: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp)> {
    let (_, read) = X509Certificate::from_der(certificate).ok()?;
    let time = |at: i64| Timestamp::from_second(at).ok();
    Some((time(read.validity().not_before.timestamp())?, time(read.validity().not_after.timestamp())?))
}

/// A new certificate with its key, in PEM, and the name of its request.
pub(super) struct Issued {
    pub(super) chain: String,
    pub(super) key: String,
    pub(super) request: String,
}

/// Asks for a certificate with a new key, and waits until it is signed. The `approver`, if there is one, approves it.
pub(super) async fn obtain(client: &Client, wanted: &Wanted, approver: Option<&Client>) -> Result<Issued> {
    let key = KeyPair::generate().context("cannot make a key")?;
    let pem = wanted.pem(&key).context("cannot make a certificate request")?;
    let request = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: wanted.signer.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), wanted.purpose.to_owned()]),
            expiration_seconds: wanted.seconds,
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    let api = client.api::<CertificateSigningRequest>("");
    let made = api
        .create(&request)
        .await
        .map_err(|status| anyhow!(status).context("no certificate can be asked for"))?;
    let name = made.metadata.name.clone().unwrap_or_default();
    if let Some(admin) = approver {
        let approved = approve(admin, made.clone()).await;
        approved.map_err(|status| anyhow!(status).context("the certificate request is not approved"))?;
    }
    let mut waiting = pin!(tokio::time::timeout(LIMIT, signed(client, made)));
    let waited = tokio::select! {
        soon = &mut waiting => soon,
        () = tokio::time::sleep(SILENCE) => {
            say(&format!(
                "the certificate of {} waits for an administrator: `kubectl certificate approve {name}`",
                wanted.common_name
            ));
            waiting.await
        }
    };
    let chain = waited.map_err(|_| {
        anyhow!("nobody signed the certificate request {name}; `kubectl describe csr {name}` on the control plane may tell why")
    })??;
    Ok(Issued { chain, key: key.serialize_pem(), request: name })
}

/// Approves a request as the administrator, unless somebody has decided about it.
async fn approve(admin: &Client, made: CertificateSigningRequest) -> Result<(), Status> {
    let api = admin.api::<CertificateSigningRequest>("");
    let name = made.metadata.name.clone().unwrap_or_default();
    let mut current = made;
    for tries_left in (0..TRIES).rev() {
        let decided = current.status.as_ref().and_then(|s| s.conditions.as_ref());
        if decided.is_some_and(|conditions| !conditions.is_empty()) {
            break;
        }
        let mut approved = current;
        let condition = CertificateSigningRequestCondition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("AutoApproved".to_owned()),
            message: Some(APPROVED.to_owned()),
            ..CertificateSigningRequestCondition::default()
        };
        approved.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
        match api.update_subresource("approval", &approved).await {
            Err(status) if status.is_conflict() && tries_left > 0 => current = api.get(&name).await?,
            answer => return answer.map(drop),
        }
    }
    Ok(())
}

/// Waits for the certificate of a request.
async fn signed(client: &Client, made: CertificateSigningRequest) -> Result<String> {
    let api = client.api::<CertificateSigningRequest>("");
    let name = made.metadata.name.clone().unwrap_or_default();
    let mut current = made;
    loop {
        if let Some(chain) = decided(&current)? {
            return Ok(chain);
        }
        let params = WatchParams {
            field_selector: format!("metadata.name={name}"),
            resource_version: current.metadata.resource_version.clone().unwrap_or_default(),
            ..WatchParams::default()
        };
        let mut events = api.watch(&params).await.map_err(anyhow::Error::from)?;
        while let Some(Ok(event)) = events.next().await {
            match event {
                Event::Added(csr) | Event::Modified(csr) => {
                    if let Some(chain) = decided(&csr)? {
                        return Ok(chain);
                    }
                }
                Event::Deleted(_) => bail!("the certificate request {name} was deleted"),
                Event::Bookmark { .. } => {}
            }
        }
        // The watch ended: the state may have changed meanwhile.
        current = api.get(&name).await.map_err(anyhow::Error::from)?;
    }
}

/// The certificate of a request; `None` while it is open.
fn decided(csr: &CertificateSigningRequest) -> Result<Option<String>> {
    let status = csr.status.as_ref();
    let name = csr.metadata.name.as_deref().unwrap_or_default();
    for condition in status.and_then(|s| s.conditions.as_ref()).into_iter().flatten() {
        let message = condition.message.as_deref().unwrap_or_default();
        match condition.type_.as_str() {
            "Denied" => bail!("the certificate request {name} was denied: {message}"),
            "Failed" => bail!("the certificate request {name} failed: {message}"),
            _ => {}
        }
    }
    let certificate = status.and_then(|s| s.certificate.as_ref()).map(|c| c.0.clone());
    Ok(certificate.filter(|c| !c.is_empty()).map(String::from_utf8).transpose()?)
}

#[cfg(test)]
mod tests {
    use access::pki::{Authority, Profile};

    use super::*;

    #[test]
    fn a_certificate_satisfies_what_is_wanted() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let ca = Authority::generate("kubernetes", now).unwrap();
        let node =
            ca.issue(&Profile::client("system:node:n", Some("system:nodes")), now).unwrap().certificate();
        let addresses: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        let profile =
            Profile::serving("system:node:n", Some("system:nodes"), vec!["n".into()], addresses.clone());
        let serving = ca.issue(&profile, now).unwrap().certificate();
        let check = |wanted: &Wanted, certificate: &CertificateDer<'_>, expected: bool| {
            assert_eq!(wanted.is_satisfied(certificate), expected, "{wanted:?}");
        };
        check(&Wanted::node_client("n"), &node, true);
        check(&Wanted::node_client("m"), &node, false);
        check(&Wanted::account("system:node:n"), &node, false);
        check(&Wanted::node_serving("n", &addresses), &serving, true);
        check(&Wanted::node_serving("n", &addresses[..1]), &serving, true);
        check(&Wanted::node_serving("n", &addresses), &node, false);
        check(&Wanted::node_serving("n", &["192.0.2.2".parse().unwrap()]), &serving, false);
        let (begin, end) = validity(&node).unwrap();
        assert_eq!(
            (begin.to_string().as_str(), end.to_string().as_str()),
            ("2025-12-31T23:55:00Z", "2027-01-01T00:00:00Z")
        );
    }

    #[test]
    fn requests_ask_for_it() {
        let key = KeyPair::generate().unwrap();
        let pem = Wanted::node_serving("n", &["192.0.2.1".parse().unwrap()]).pem(&key).unwrap();
        assert!(pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
        assert!(Wanted::node_serving("bad\u{e9}", &[]).pem(&key).is_err());
    }
}
