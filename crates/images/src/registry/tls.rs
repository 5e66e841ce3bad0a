//! TLS towards registries: the machine's certificate authorities, a host's own, and client certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::registry::hosts::Host;

/// Where distributions keep the machine's authorities in one file, as Go's crypto/x509 looks for them.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const DIRECTORIES: &[&str] = &["/etc/ssl/certs", "/etc/pki/tls/certs"];

/// The machine's authorities: `SSL_CERT_FILE` and `SSL_CERT_DIR` where they are set, else the distribution's. A
/// certificate that cannot be read is left out, as Go leaves it out.
fn machine() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let file = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let directories = std::env::var_os("SSL_CERT_DIR");
    let mut add = |path: &Path| {
        let Ok(pem) = fs::read(path) else { return false };
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(&pem).flatten() {
            let _ = roots.add(certificate);
        }
        roots.len() > before
    };
    let found = match &file {
        Some(file) => add(file),
        None => BUNDLES.iter().any(|bundle| add(Path::new(bundle))),
    };
    let directories: Vec<PathBuf> = match &directories {
        Some(list) => std::env::split_paths(list).collect(),
        None if found => Vec::new(),
        None => DIRECTORIES.iter().map(PathBuf::from).collect(),
    };
    for entry in directories.iter().filter_map(|d| fs::read_dir(d).ok()).flatten().flatten() {
        add(&entry.path());
    }
    roots
}

/// The TLS settings of a host. An error is a sentence for people.
pub(crate) fn config(host: &Host) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let builder = if host.skip_verify == Some(true) {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else {
        let mut roots = machine();
        for file in &host.ca {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|e| format!("{}: {e}", file.display()))?;
            }
        }
        if roots.is_empty() {
            return Err(
                "this machine has no certificate authorities: install them (Debian: ca-certificates), name \
                        their file in SSL_CERT_FILE, or give the registry's in its hosts.toml"
                    .to_owned(),
            );
        }
        builder.with_root_certificates(roots)
    };
    // rustls shows one certificate; the first whose key can be read is taken.
    match host.client.first() {
        Some((file, key)) => {
            let chain = certificates(file)?;
            let key_file = key.as_ref().unwrap_or(file);
            let key = PrivateKeyDer::from_pem_file(key_file)
                .map_err(|e| format!("{} has no private key: {e}", key_file.display()))?;
            builder.with_client_auth_cert(chain, key).map_err(|e| format!("{}: {e}", file.display()))
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let list: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|e| format!("{}: {e}", file.display()))?;
    if list.is_empty() { Err(format!("{} has no certificate", file.display())) } else { Ok(list) }
}

/// Takes every certificate, but still wants proof of its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
