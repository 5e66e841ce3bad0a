//! TLS of the API server: it asks for a client certificate, and leaves the judgement to authentication, so that a
//! request with a bad certificate gets an answer.

use std::sync::Arc;

use client::Offer;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ResolvesServerCert;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Accepts any client certificate whose key the client holds.
#[derive(Debug)]
struct AnyClient {
    provider: Arc<CryptoProvider>,
    /// The authorities whose certificates the server asks for.
    hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }
    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Makes the API server's TLS configuration: it offers what was chosen, serves with the certificate that is in its place,
/// and asks clients for one from these authorities.
pub fn server_tls(
    serving: Arc<dyn ResolvesServerCert>,
    authorities: &[CertificateDer<'_>],
    offer: &Offer,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(offer.provider());
    let name = |ca: &CertificateDer<'_>| {
        let (_, ca) = X509Certificate::from_der(ca).ok()?;
        Some(DistinguishedName::from(ca.subject().as_raw().to_vec()))
    };
    let hints = authorities.iter().filter_map(name).collect();
    let verifier = Arc::new(AnyClient { provider: provider.clone(), hints });
    Ok(ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(offer.versions())?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(serving))
}
