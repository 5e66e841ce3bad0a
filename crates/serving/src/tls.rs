//! The TLS of an endpoint.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::{CipherSuite, RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A certificate chain and its key.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The versions, ciphers and key exchanges that are offered.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Whether TLS 1.3 alone is.
    pub only_1_3: bool,
    /// The ciphers of TLS 1.2 that are, all without known weakness if it is empty.
    pub ciphers: Vec<CipherSuite>,
    /// The key exchanges that are, all without known weakness if it is empty.
    pub curves: Vec<u16>,
}

impl Default for Offer {
    /// Everything without known weakness.
    fn default() -> Self {
        Self { only_1_3: false, ciphers: Vec::new(), curves: Vec::new() }
    }
}

/// The cipher of an IANA name, if it can be offered.
pub fn cipher(name: &str) -> Option<CipherSuite> {
    let name =
        name.strip_suffix("_POLY1305").map_or_else(|| name.to_owned(), |n| format!("{n}_POLY1305_SHA256"));
    let all = rustls::crypto::aws_lc_rs::default_provider().cipher_suites;
    let named = |suite: &CipherSuite| {
        let own = suite.as_str().unwrap_or_default();
        own == name || own.replacen("TLS13_", "TLS_", 1) == name
    };
    all.iter().map(|suite| suite.suite()).find(named)
}

/// Whether a key exchange can be offered, by its number in TLS.
pub fn has_curve(number: u16) -> bool {
    let all = rustls::crypto::aws_lc_rs::default_provider().kx_groups;
    all.iter().any(|group| u16::from(group.name()) == number)
}

static ONLY_1_3: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

impl Offer {
    fn provider(&self) -> CryptoProvider {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        if !self.ciphers.is_empty() {
            // As in Go, those of TLS 1.3 cannot be chosen.
            provider
                .cipher_suites
                .retain(|suite| suite.tls13().is_some() || self.ciphers.contains(&suite.suite()));
        }
        if !self.curves.is_empty() {
            provider.kx_groups.retain(|group| self.curves.contains(&u16::from(group.name())));
        }
        provider
    }

    fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        let no_1_2 = self.provider().cipher_suites.iter().all(|suite| suite.tls13().is_some());
        if self.only_1_3 || no_1_2 { ONLY_1_3 } else { rustls::DEFAULT_VERSIONS }
    }
}

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
    fn the_offer_is_what_was_chosen() {
        let check = |offer: Offer, suites: usize, groups: usize, versions: usize| {
            let provider = offer.provider();
            let (have, exchanges) = (provider.cipher_suites.len(), provider.kx_groups.len());
            assert_eq!((have, exchanges, offer.versions().len()), (suites, groups, versions), "{offer:?}");
            let identity = self_signed(vec!["localhost".into()]).unwrap();
            assert!(config_of(identity, RootCertStore::empty(), &offer).is_ok());
        };
        let all = Offer::default().provider();
        let (suites, groups) = (all.cipher_suites.len(), all.kx_groups.len());
        check(Offer::default(), suites, groups, 2);
        check(Offer { only_1_3: true, ..Offer::default() }, suites, groups, 1);
        let of_1_3 = all.cipher_suites.iter().filter(|s| s.tls13().is_some()).count();
        let one = cipher("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256").unwrap();
        check(Offer { ciphers: vec![one], ..Offer::default() }, of_1_3 + 1, groups, 2);
        let of_new = cipher("TLS_AES_128_GCM_SHA256").unwrap();
        check(Offer { ciphers: vec![of_new], ..Offer::default() }, of_1_3, groups, 1);
        check(Offer { curves: vec![29, 23], ..Offer::default() }, suites, 2, 2);
    }

    #[test]
    fn ciphers_and_curves_by_their_names() {
        for name in [
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_CHACHA20_POLY1305_SHA256",
        ] {
            assert!(cipher(name).is_some(), "{name}");
        }
        assert!(cipher("TLS_RSA_WITH_AES_128_CBC_SHA").is_none() && cipher("").is_none());
        assert!(has_curve(29) && has_curve(23) && !has_curve(0));
    }
}
