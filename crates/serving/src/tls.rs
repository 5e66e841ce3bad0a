//! The TLS of an endpoint.

use std::sync::Arc;

use client::Offer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A certificate chain and its key.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// TLS with a certificate, and the roots of the client certificates that are accepted. A client without a certificate
/// may still send a token.
///
/// # Errors
/// If the certificate does not fit its key.
pub fn config(identity: Identity, clients: RootCertStore) -> Result<ServerConfig, rustls::Error> {
    config_of(identity, clients, &Offer::default())
}

/// The same with a choice of what is offered.
///
/// # Errors
/// If the certificate does not fit its key, or nothing is left to offer.
pub fn config_of(
    (chain, key): Identity,
    clients: RootCertStore,
    offer: &Offer,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(offer.provider());
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(offer.versions())?;
    let builder = if clients.is_empty() {
        builder.with_no_client_auth()
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))?;
        builder.with_client_cert_verifier(verifier)
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// TLS with the certificate that is in its place. Clients are asked for a certificate, and it is left to authentication
/// whose it is: a request with a bad one gets an answer. Without `http2`, only HTTP/1.1 is offered.
///
/// # Errors
/// If nothing is left to offer.
pub fn asking(
    certificate: client::Certificate,
    offer: &Offer,
    http2: bool,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(offer.provider());
    let verifier = Arc::new(client::tls::AnyCertificate::new(provider.clone()));
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(offer.versions())?;
    let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(certificate));
    let protocols: &[&[u8]] = if http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// A certificate that a component signs for itself, as upstream's do that were given none.
///
/// # Errors
/// If a name cannot stand in a certificate.
pub fn self_signed(names: Vec<String>) -> Result<Identity, rcgen::Error> {
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Ok((vec![made.cert.der().clone()], key.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_can_be_served() {
        let one = client::offer::cipher("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256").unwrap();
        for offer in [
            Offer::default(),
            Offer { only_1_3: true, ..Offer::default() },
            Offer { ciphers: vec![one], curves: vec![29, 23], ..Offer::default() },
        ] {
            let identity = self_signed(vec!["localhost".into()]).unwrap();
            assert!(config_of(identity, RootCertStore::empty(), &offer).is_ok(), "{offer:?}");
        }
    }
}
