//! The keys and certificates with which a server works: those that were given, and its own for the rest.

use std::error::Error as _;
use std::sync::Arc;

use access::auth::{Authorities, ClientCaError, RequestHeaders};
use access::pki::{Credential, Named, Pki};
use api::Gate;
use client::Certificate;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{Config, Pair, Serving};
use crate::front::{ServerTls, Serves};
use crate::hooks::AuthenticationInfo;

/// A key or certificate that was given cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {why}; give a PEM file of the right kind")]
pub struct GivenError {
    /// The flag that names it.
    flag: &'static str,
    /// The reason.
    why: String,
}

/// The flag of certificates for certain names.
const SNI: &str = "--tls-sni-cert-key";

/// A certificate with those that signed it, and its key.
type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The keys and certificates of a server.
pub(crate) struct Identities {
    /// The authorities of client certificates.
    pub(crate) client_ca: Authorities,
    /// The authorities of front proxies, if any proxy is believed.
    pub(crate) front_proxy_ca: Option<Authorities>,
    /// The key that signs tokens, PEM.
    pub(crate) signing_key_pem: String,
    /// The certificate that is shown to aggregated servers.
    pub(crate) front_proxy: Certificate,
    /// The facts that aggregated servers need to know.
    pub(crate) authentication: AuthenticationInfo,
    /// The certificate with which to serve.
    serving: Certificate,
    /// Those for clients that ask for certain names.
    named: Vec<Named>,
    kubelet_client: Identity,
    kubelet_authorities: Vec<CertificateDer<'static>>,
}

fn certificates(flag: &'static str, text: &str) -> Result<Vec<CertificateDer<'static>>, GivenError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(GivenError { flag, why: "there is no certificate in it".into() }),
        Err(e) => Err(GivenError { flag, why: e.to_string() }),
    }
}

fn given(flag: &'static str, pair: &Pair) -> Result<Identity, GivenError> {
    let chain = certificates(flag, &pair.certificate_pem)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes());
    Ok((chain, key.map_err(|e| GivenError { flag, why: format!("its key cannot be read: {e}") })?))
}

fn own(credential: &Credential) -> Identity {
    (vec![credential.certificate()], credential.key())
}

/// The place of a certificate that was given, or of the server's own.
fn place(
    flag: &'static str,
    pair: Option<&Pair>,
    credential: &Credential,
) -> Result<Certificate, GivenError> {
    let (chain, key) = match pair {
        Some(pair) => given(flag, pair)?,
        None => own(credential),
    };
    Certificate::new(chain, key).map_err(|e| GivenError { flag, why: e.to_string() })
}

/// The place of authorities.
fn authorities(flag: &'static str, text: &str) -> Result<Authorities, GivenError> {
    Authorities::parse(text).map_err(|e| unusable(flag, &e))
}

/// The certificates and authorities of a running server that may be exchanged, each by the flag that names it.
/// Connections that are there go on with what they began with.
#[derive(Debug, Clone)]
pub struct Exchange {
    serving: Certificate,
    named: Vec<Certificate>,
    front_proxy: Certificate,
    client_ca: Authorities,
    front_proxy_ca: Option<Authorities>,
}

impl Exchange {
    /// The certificate with which to serve (`--tls-cert-file`).
    ///
    /// # Errors
    /// Where the pair cannot be used; the one before stays.
    pub fn serving(&self, pair: &Pair) -> Result<(), GivenError> {
        exchange("--tls-cert-file", &self.serving, pair)
    }
    /// The certificate for certain names at this place of the list (`--tls-sni-cert-key`).
    ///
    /// # Errors
    /// Where the pair cannot be used; the one before stays.
    pub fn named(&self, at: usize, pair: &Pair) -> Result<(), GivenError> {
        self.named.get(at).map_or(Ok(()), |place| exchange(SNI, place, pair))
    }
    /// The certificate that is shown to aggregated servers (`--proxy-client-cert-file`).
    ///
    /// # Errors
    /// Where the pair cannot be used; the one before stays.
    pub fn front_proxy(&self, pair: &Pair) -> Result<(), GivenError> {
        exchange("--proxy-client-cert-file", &self.front_proxy, pair)
    }
    /// The authorities of client certificates, PEM (`--client-ca-file`).
    ///
    /// # Errors
    /// Where they cannot be used; those before stay.
    pub fn client_authorities(&self, text: &str) -> Result<(), GivenError> {
        let exchanged = self.client_ca.exchange(text);
        exchanged.map(drop).map_err(|e| unusable("--client-ca-file", &e))
    }
    /// The authorities of front proxies, PEM (`--requestheader-client-ca-file`).
    ///
    /// # Errors
    /// Where they cannot be used; those before stay.
    pub fn front_proxy_authorities(&self, text: &str) -> Result<(), GivenError> {
        let Some(place) = &self.front_proxy_ca else { return Ok(()) };
        place.exchange(text).map(drop).map_err(|e| unusable("--requestheader-client-ca-file", &e))
    }
}

fn exchange(flag: &'static str, place: &Certificate, pair: &Pair) -> Result<(), GivenError> {
    let (chain, key) = given(flag, pair)?;
    place.exchange(chain, key).map_err(|e| GivenError { flag, why: e.to_string() })
}

fn unusable(flag: &'static str, error: &ClientCaError) -> GivenError {
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    GivenError { flag, why }
}

impl Identities {
    /// Those of a configuration. Where it says nothing of front proxies, and the authorities of clients are the
    /// server's own, those are believed that have the front proxy's certificate.
    pub(crate) fn new(config: &mut Config, pki: &Pki) -> Result<Self, GivenError> {
        let security = &mut config.security;
        if security.client_authorities.is_none() && security.request_headers.is_none() {
            security.request_headers = Some(RequestHeaders::of_own(&pki.front_proxy_ca.certificate_pem));
        }
        let own_ca = &pki.ca.certificate_pem;
        let client_ca =
            authorities("--client-ca-file", security.client_authorities.as_ref().unwrap_or(own_ca))?;
        let front_proxies = match &security.request_headers {
            Some(headers) => {
                let place = authorities("--requestheader-client-ca-file", &headers.authorities_pem)?;
                Some((place, headers.clone()))
            }
            None => None,
        };
        let files = &config.given;
        let kubelet_authorities = match &files.kubelet_authorities {
            Some(text) => certificates("--kubelet-certificate-authority", text)?,
            None => vec![pki.ca.certificate()],
        };
        let kubelet_client = match &files.kubelet_client {
            Some(pair) => given("--kubelet-client-certificate", pair)?,
            None => own(&pki.apiserver_kubelet_client),
        };
        let front_proxy = files.front_proxy.as_ref();
        let named = files.named.iter().map(|named| {
            let (chain, key) = given(SNI, &named.pair)?;
            let place = Certificate::new(chain, key);
            let place = place.map_err(|e| GivenError { flag: SNI, why: e.to_string() })?;
            Ok(Named { place, names: named.names.clone() })
        });
        Ok(Self {
            named: named.collect::<Result<_, GivenError>>()?,
            signing_key_pem: files.signing_key.clone().unwrap_or_else(|| pki.service_account_key_pem.clone()),
            front_proxy: place("--proxy-client-cert-file", front_proxy, &pki.front_proxy_client)?,
            front_proxy_ca: front_proxies.as_ref().map(|(place, _)| place.clone()),
            authentication: AuthenticationInfo {
                client_authorities: Some(client_ca.clone()),
                front_proxies,
                uid: config.gates.enabled(Gate::RemoteRequestHeaderUID),
            },
            serving: place("--tls-cert-file", files.serving.as_ref(), &pki.apiserver)?,
            kubelet_client,
            kubelet_authorities,
            client_ca,
        })
    }
    /// The way to exchange them.
    pub(crate) fn exchange(&self) -> Exchange {
        Exchange {
            serving: self.serving.clone(),
            named: self.named.iter().map(|named| named.place.clone()).collect(),
            front_proxy: self.front_proxy.clone(),
            client_ca: self.client_ca.clone(),
            front_proxy_ca: self.front_proxy_ca.clone(),
        }
    }
    /// How the server serves: with the certificates that are in their places, asking clients for one of the present
    /// authorities.
    pub(crate) fn server_tls(&self, config: &Serving) -> Result<ServerTls, rustls::Error> {
        let authorities: Vec<Authorities> =
            std::iter::once(&self.client_ca).chain(&self.front_proxy_ca).cloned().collect();
        ServerTls::new(Serves {
            usual: self.serving.clone(),
            named: self.named.clone(),
            authorities,
            offer: config.offer.clone(),
            http2: config.http2,
        })
    }
    /// How kubelets are called: with the client certificate, verified by their authorities.
    pub(crate) fn kubelet_tls(&self) -> Result<Arc<rustls::ClientConfig>, rustls::Error> {
        let mut roots = rustls::RootCertStore::empty();
        for authority in &self.kubelet_authorities {
            roots.add(authority.clone())?;
        }
        let (chain, key) = &self.kubelet_client;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain.clone(), key.clone_key())?;
        Ok(Arc::new(config))
    }
}
