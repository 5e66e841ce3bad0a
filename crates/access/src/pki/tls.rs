//! TLS of the API server: it asks for a client certificate, and leaves the judgement to authentication, so that a
//! request with a bad certificate gets an answer.

use std::sync::Arc;

use client::Offer;
use client::tls::AnyCertificate;
use rustls::server::ResolvesServerCert;
use rustls::{DistinguishedName, ServerConfig};
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

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
    let verifier = Arc::new(AnyCertificate::asking_for(provider.clone(), hints));
    Ok(ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(offer.versions())?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(serving))
}
