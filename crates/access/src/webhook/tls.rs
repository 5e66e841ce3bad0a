//! TLS towards webhooks.

use std::io;
use std::sync::Arc;

use client::Certificate;
use client::tls::{AnyCertificate, system_roots};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::address::{ClientConfig, Target};
use super::defect::{Failure, explained, told};
use super::error::io_text;

/// The settings of connections to a webhook.
pub(super) fn connector(
    config: &ClientConfig,
    target: &Target<'_>,
    shown: Option<Certificate>,
) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(trusting(&config.ca_bundle, &provider)?);
    let mut tls = settings(provider, verifier, shown)?;
    if target.is_loopback() {
        tls.alpn_protocols.insert(0, b"h2".to_vec());
    }
    Ok(TlsConnector::from(Arc::new(tls)))
}

/// The settings of connections to a server that is signed by an authority of `ca_bundle`, or that nobody verifies
/// (`anybody`), to which a certificate is shown.
pub(super) fn to_server(
    ca_bundle: &[u8],
    anybody: bool,
    shown: Option<Certificate>,
) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = if anybody {
        Arc::new(AnyCertificate::new(Arc::clone(&provider)))
    } else {
        Arc::new(trusting(ca_bundle, &provider)?)
    };
    Ok(TlsConnector::from(Arc::new(settings(provider, verifier, shown)?)))
}

/// Verifies by the authorities of a bundle, or by those of the system if it is empty.
fn trusting(ca_bundle: &[u8], provider: &Arc<rustls::crypto::CryptoProvider>) -> Result<Verifier, String> {
    let own: Vec<CertificateDer<'static>>;
    let authorities = if ca_bundle.is_empty() {
        system_roots()
    } else {
        own = CertificateDer::pem_slice_iter(ca_bundle).filter_map(Result::ok).collect();
        if own.is_empty() {
            return Err("unable to load root certificates: unable to parse bytes as PEM block".into());
        }
        &own
    };
    Verifier::new(authorities, provider).map_err(|e| format!("unable to load root certificates: {e}"))
}

fn settings(
    provider: Arc<rustls::crypto::CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
    shown: Option<Certificate>,
) -> Result<rustls::ClientConfig, String> {
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut tls = match shown {
        Some(certificate) => {
            let mut tls = builder.with_client_cert_resolver(Arc::new(certificate));
            // A session that goes on would show the certificate with which it began.
            tls.resumption = Resumption::disabled();
            tls
        }
        None => builder.with_no_client_auth(),
    };
    // As upstream: one HTTP/2 connection would take all calls to one of a Service's backends.
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(tls)
}

/// Verifies as rustls does, but for a certificate that is itself among the authorities: Go takes that, and many a
/// `caBundle` is made so.
#[derive(Debug)]
struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    authorities: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn new(
        authorities: &[CertificateDer<'static>],
        provider: &Arc<rustls::crypto::CryptoProvider>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities.iter().cloned());
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let usual = usual.build().map_err(|e| e.to_string())?;
        Ok(Self { usual, authorities: authorities.to_vec() })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let usual = self.usual.verify_server_cert(certificate, chain, name, ocsp, now);
        if !self.authorities.iter().any(|a| a.as_ref() == certificate.as_ref()) {
            return usual.map_err(|error| explained(error, certificate, chain, &self.authorities, name));
        }
        if usual.is_ok() {
            return usual;
        }
        let invalid = |e: CertificateError| Error::InvalidCertificate(e);
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(|_| invalid(CertificateError::BadEncoding))?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if seconds > parsed.validity().not_after.timestamp() {
            return Err(invalid(CertificateError::Expired));
        }
        if seconds < parsed.validity().not_before.timestamp() {
            return Err(invalid(CertificateError::NotValidYet));
        }
        rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
            .map_err(|error| explained(error, certificate, chain, &self.authorities, name))?;
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, certificate, signature)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, certificate, signature)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// A handshake's failure.
pub(super) fn failure(error: &io::Error, host: &str) -> Failure {
    let tls = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
    if let Some(Error::InvalidCertificate(why)) = tls
        && let Some((defect, text)) = told(why)
    {
        return Failure::of(format!("tls: failed to verify certificate: x509: {text}"), defect);
    }
    error_text(error, host).into()
}

/// A handshake's error, as Go prints it.
fn error_text(error: &io::Error, host: &str) -> String {
    let Some(tls) = error.get_ref().and_then(|e| e.downcast_ref::<Error>()) else {
        return io_text("read tcp", error);
    };
    let x509 = |why: &str| format!("tls: failed to verify certificate: x509: {why}");
    match tls {
        Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer => x509("certificate signed by unknown authority"),
            CertificateError::Expired
            | CertificateError::NotValidYet
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYetContext { .. } => {
                x509("certificate has expired or is not yet valid")
            }
            CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                x509("certificate is not valid for any names, but wanted to match ") + host
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                let name = |n: &String| n.trim_start_matches("DnsName(\"").trim_end_matches("\")").to_owned();
                let names: Vec<String> = presented.iter().map(name).collect();
                x509(&format!("certificate is valid for {}, not {host}", names.join(", ")))
            }
            other => x509(&other.to_string()),
        },
        Error::InvalidMessage(_) => "http: server gave HTTP response to HTTPS client".to_owned(),
        Error::AlertReceived(alert) => format!("remote error: tls: {alert:?}"),
        other => format!("tls: {other}"),
    }
}
