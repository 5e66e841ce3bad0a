//! The keys and certificates with which a server works: those that were given, and its own for the rest.

use std::sync::Arc;

use access::auth::RequestHeaders;
use access::pki::{self, Credential, Pki};
use api::Gate;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{Config, Pair};
use crate::hooks::{AuthenticationInfo, FrontProxyIdentity};

/// A key or certificate that was given cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {why}; give a PEM file of the right kind")]
pub struct GivenError {
    /// The flag that names it.
    flag: &'static str,
    /// The reason.
    why: String,
}

/// A certificate with those that signed it, and its key.
type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The keys and certificates of a server.
pub(crate) struct Identities {
    /// The authorities of client certificates.
    pub(crate) client_ca: Vec<CertificateDer<'static>>,
    /// The key that signs tokens, PEM.
    pub(crate) signing_key_pem: String,
    /// The certificate that is shown to aggregated servers.
    pub(crate) front_proxy: FrontProxyIdentity,
    /// The facts that aggregated servers need to know.
    pub(crate) authentication: AuthenticationInfo,
    serving: Identity,
    kubelet_client: Identity,
    kubelet_authorities: Vec<CertificateDer<'static>>,
    /// The authorities of whose certificates clients are asked for one.
    asked_for: Vec<CertificateDer<'static>>,
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

impl Identities {
    /// Those of a configuration. Where it says nothing of front proxies, and the authorities of clients are the
    /// server's own, those are believed that have the front proxy's certificate.
    pub(crate) fn new(config: &mut Config, pki: &Pki) -> Result<Self, GivenError> {
        let security = &mut config.security;
        if security.client_authorities.is_none() && security.request_headers.is_none() {
            security.request_headers = Some(RequestHeaders::of_own(&pki.front_proxy_ca.certificate_pem));
        }
        let client_authorities =
            security.client_authorities.clone().unwrap_or_else(|| pki.ca.certificate_pem.clone());
        let client_ca = certificates("--client-ca-file", &client_authorities)?;
        let mut asked_for = client_ca.clone();
        if let Some(headers) = &security.request_headers {
            asked_for.extend(certificates("--requestheader-client-ca-file", &headers.authorities_pem)?);
        }
        let of = |flag, pair: &Option<Pair>, credential: &Credential| match pair {
            Some(pair) => given(flag, pair),
            None => Ok(own(credential)),
        };
        let files = &config.given;
        let (chain, key) = of("--proxy-client-cert-file", &files.front_proxy, &pki.front_proxy_client)?;
        let kubelet_authorities = match &files.kubelet_authorities {
            Some(text) => certificates("--kubelet-certificate-authority", text)?,
            None => vec![pki.ca.certificate()],
        };
        Ok(Self {
            signing_key_pem: files.signing_key.clone().unwrap_or_else(|| pki.service_account_key_pem.clone()),
            front_proxy: FrontProxyIdentity { chain, key },
            authentication: AuthenticationInfo {
                client_authorities,
                request_headers: security.request_headers.clone(),
                uid: config.gates.enabled(Gate::RemoteRequestHeaderUID),
            },
            serving: of("--tls-cert-file", &files.serving, &pki.apiserver)?,
            kubelet_client: of(
                "--kubelet-client-certificate",
                &files.kubelet_client,
                &pki.apiserver_kubelet_client,
            )?,
            kubelet_authorities,
            client_ca,
            asked_for,
        })
    }
    /// How the server serves.
    pub(crate) fn server_tls(&self) -> Result<rustls::ServerConfig, rustls::Error> {
        let (chain, key) = &self.serving;
        pki::server_tls((chain.clone(), key.clone_key()), &self.asked_for)
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
