//! Properties of servers' certificates that were good once: such a certificate is refused, and who put it there is told,
//! by upstream's metrics and annotations (`apiserver/pkg/util/x509metrics`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use api::go::quote;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use rustls::{CertificateError, Error, OtherError};
use rustls_pki_types::{CertificateDer, ServerName};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The property for which a server's certificate is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// It names its server in the subject only.
    MissingSan,
    /// It, or one above it, is signed by way of SHA-1.
    InsecureSha1,
}

impl Defect {
    /// The annotation for the audit of a request that needed the server.
    pub fn annotation(self, host: &str) -> (String, &'static str) {
        let (id, reason) = match self {
            Self::MissingSan => (
                "missing-san",
                "relies on a legacy Common Name field instead of the SAN extension for subject validation",
            ),
            Self::InsecureSha1 => ("insecure-sha1", "uses an insecure SHA-1 signature"),
        };
        (format!("{id}.invalid-cert.kubernetes.io/{host}"), reason)
    }
}

/// The reason for which there is no connection, as Go prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    text: String,
    /// The defect of the server's certificate, if that is the reason.
    pub defect: Option<Defect>,
}

impl Failure {
    /// By a defect of the server's certificate.
    pub(super) fn of(text: String, defect: Defect) -> Self {
        Self { text, defect: Some(defect) }
    }
    /// With more in front of the text.
    pub(super) fn after(self, prefix: &str) -> Self {
        Self { text: format!("{prefix}{}", self.text), ..self }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self { text, defect: None }
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The counts of defects; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Defects {
    missing_san: Counter<u64, AtomicU64>,
    insecure_sha1: Counter<u64, AtomicU64>,
}

impl Defects {
    /// Registers them as those of `of`, in upstream's words, below a name.
    pub(super) fn register(&self, name: &str, of: &str, registry: &mut Registry) {
        registry.register(
            format!("{name}_x509_missing_san"),
            format!(
                "[ALPHA] Counts the number of requests to servers missing SAN extension in their serving certificate OR the number of connection failures due to the lack of x509 certificate SAN extension missing ({of})"
            ),
            self.missing_san.clone(),
        );
        registry.register(
            format!("{name}_x509_insecure_sha1"),
            format!(
                "[ALPHA] Counts the number of requests to servers with insecure SHA1 signatures in their serving certificate OR the number of connection failures due to the insecure SHA1 signatures ({of})"
            ),
            self.insecure_sha1.clone(),
        );
    }
    /// Counts a failure, if a defect is its reason.
    pub(super) fn count(&self, failure: &Failure) {
        match failure.defect {
            Some(Defect::MissingSan) => drop(self.missing_san.inc()),
            Some(Defect::InsecureSha1) => drop(self.insecure_sha1.inc()),
            None => {}
        }
    }
}

/// A refused certificate, with Go's words.
#[derive(Debug)]
struct Refused {
    defect: Defect,
    text: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refused {}

/// The error of TLS, with the defect that is its reason.
pub(super) fn explained(
    error: Error,
    certificate: &CertificateDer<'_>,
    chain: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    name: &ServerName<'_>,
) -> Error {
    let Error::InvalidCertificate(why) = &error else { return error };
    let refused = if is_about_name(why) {
        relies_on_common_name(certificate, name)
    } else if is_about_signature(why) {
        signed_by_sha1(certificate, chain, authorities)
    } else {
        None
    };
    match refused {
        Some(refused) => Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refused)))),
        None => error,
    }
}

/// The defect that an error of TLS tells, with Go's words.
pub(super) fn told(why: &CertificateError) -> Option<(Defect, &str)> {
    let CertificateError::Other(OtherError(other)) = why else { return None };
    other.downcast_ref::<Refused>().map(|refused| (refused.defect, refused.text.as_str()))
}

fn is_about_name(why: &CertificateError) -> bool {
    matches!(why, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })
}

fn is_about_signature(why: &CertificateError) -> bool {
    use CertificateError as E;
    matches!(
        why,
        E::UnknownIssuer
            | E::BadSignature
            | E::UnsupportedSignatureAlgorithmContext { .. }
            | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
    )
}

fn relies_on_common_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Option<Refused> {
    let ServerName::DnsName(name) = name else { return None };
    let (_, read) = X509Certificate::from_der(certificate).ok()?;
    let has_names = !matches!(read.subject_alternative_name(), Ok(None));
    let common = read.subject().iter_common_name().next()?.as_str().ok()?;
    (!has_names && matches(common, name.as_ref())).then(|| Refused {
        defect: Defect::MissingSan,
        text: "certificate relies on legacy Common Name field, use SANs instead".to_owned(),
    })
}

/// Whether a name of a certificate is that of a host; its first label may be any.
fn matches(pattern: &str, host: &str) -> bool {
    let (pattern, host) = (pattern.to_ascii_lowercase(), host.to_ascii_lowercase());
    match pattern.strip_prefix("*.") {
        Some(rest) => host.split_once('.').is_some_and(|(first, other)| !first.is_empty() && other == rest),
        None => pattern == host.trim_end_matches('.'),
    }
}

fn signed_by_sha1(
    certificate: &CertificateDer<'_>,
    chain: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
) -> Option<Refused> {
    let parse = |der| X509Certificate::from_der(der).ok().map(|(_, read)| read);
    let signers: Vec<X509Certificate<'_>> =
        chain.iter().chain(authorities).filter_map(|der| parse(der.as_ref())).collect();
    let ends: Vec<X509Certificate<'_>> =
        std::iter::once(certificate).chain(chain).filter_map(|der| parse(der.as_ref())).collect();
    ends.iter().find_map(|read| {
        let shown = match read.signature_algorithm.algorithm.to_id_string().as_str() {
            "1.2.840.113549.1.1.5" => "SHA1-RSA",
            "1.2.840.10045.4.1" => "ECDSA-SHA1",
            _ => return None,
        };
        let issuer = read.issuer();
        // Nobody verifies what an authority says of itself.
        if issuer.as_raw() == read.subject().as_raw() {
            return None;
        }
        let signer = signers.iter().find(|signer| signer.subject().as_raw() == issuer.as_raw())?;
        let subject = signer.subject();
        let common = subject.iter_common_name().next().and_then(|name| name.as_str().ok());
        let organization = || subject.iter_organization().next().and_then(|name| name.as_str().ok());
        let name = common
            .filter(|name| !name.is_empty())
            .or_else(organization)
            .map_or_else(|| format!("serial:{}", signer.serial), str::to_owned);
        let hint = quote(&format!("x509: cannot verify signature: insecure algorithm {shown}"));
        Some(Refused {
            defect: Defect::InsecureSha1,
            text: format!(
                "certificate signed by unknown authority (possibly because of {hint} while trying to verify candidate authority certificate {})",
                quote(&name)
            ),
        })
    })
}
