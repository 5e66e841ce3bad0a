//! Keys of Pods, and the proofs that somebody has them.

use std::fmt;
use std::sync::Arc;

use api::pem;
use aws_lc_rs::signature::Ed25519KeyPair;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, RsaKeySize};
use rustls_pki_types::PrivatePkcs8KeyDer;

/// A private key in PEM (PKCS #8). It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PrivateKey(Arc<str>);

impl PrivateKey {
    pub(super) fn of_pem(text: &str) -> Self {
        Self(text.into())
    }

    /// The PEM text, for the Pod's file alone.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

/// Why there is no key; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// No key of this type can be made.
    #[error("unknown key type {0:?}")]
    Unknown(String),
    /// The key could not be made.
    #[error("while generating {kind} key: {why}")]
    Failed {
        /// Its type.
        kind: String,
        /// Why.
        why: String,
    },
    /// The key could not sign.
    #[error("while generating stub PKCS#10 request: {0}")]
    Proof(#[from] rcgen::Error),
}

/// Makes a key of a type of the API, and a PKCS #10 request in DER that says nothing but that somebody has it. RSA keys
/// take long: seconds on a slow machine.
///
/// # Errors
/// There are no keys of this type, or no randomness.
pub(super) fn generate(kind: &str) -> Result<(PrivateKey, Vec<u8>), KeyError> {
    let failed = |why: &dyn fmt::Display| KeyError::Failed { kind: kind.to_owned(), why: why.to_string() };
    let made = match kind {
        "RSA3072" => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_3072),
        "RSA4096" => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096),
        "ECDSAP256" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        "ECDSAP384" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        "ECDSAP521" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
        "ED25519" => {
            // Version 1 of PKCS #8, which everybody reads, is not what rcgen makes of its own.
            let own = Ed25519KeyPair::generate().map_err(|why| failed(&why))?;
            let der = own.to_pkcs8v1().map_err(|why| failed(&why))?;
            let der = PrivatePkcs8KeyDer::from(der.as_ref());
            KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ED25519)
        }
        other => return Err(KeyError::Unknown(other.to_owned())),
    };
    let key = made.map_err(|why| failed(&why))?;
    let mut nothing = CertificateParams::default();
    nothing.distinguished_name = DistinguishedName::new();
    let request = nothing.serialize_request(&key)?;
    let text = pem::encode("PRIVATE KEY", key.serialized_der());
    Ok((PrivateKey::of_pem(&text), request.der().to_vec()))
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn each_type_of_key_is_made() {
        // The bytes of the public key's part in a request, about, and the length of its numbers.
        for (kind, least) in [
            ("RSA3072", 384),
            ("RSA4096", 512),
            ("ECDSAP256", 64),
            ("ECDSAP384", 96),
            ("ECDSAP521", 132),
            ("ED25519", 32),
        ] {
            let (key, request) = generate(kind).unwrap();
            let (other, _) = generate("ED25519").unwrap();
            assert_ne!(key, other, "{kind}");
            assert!(request.len() > least, "{kind}: {}", request.len());
            let der = PrivatePkcs8KeyDer::from_pem_slice(key.expose().as_bytes()).unwrap();
            // SEQUENCE { version 0: others read no version 1 of it.
            let inner = der.secret_pkcs8_der();
            let at = if inner[1] < 0x80 { 2 } else { 2 + usize::from(inner[1] & 0x7f) };
            assert_eq!(inner[at..at + 3], [2, 1, 0], "{kind}");
            assert_eq!(format!("{key:?}"), "PrivateKey(..)");
        }
        assert_eq!(generate("DSA").unwrap_err().to_string(), "unknown key type \"DSA\"");
    }
}
