//! The pins of authorities: hashes of their public keys, by which a machine that joins knows them; kubeadm's
//! `--discovery-token-ca-cert-hash`.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The pin of a certificate in DER: `sha256:` and the hash of its `SubjectPublicKeyInfo`. `None` if it cannot be read.
pub fn public_key_hash(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(certificate.public_key().raw) {
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}
