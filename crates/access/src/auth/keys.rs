//! Keys that sign and verify service account tokens: ECDSA P-256 (ES256) and RSA (RS256).

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// The reason for which a key cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KeyError {
    /// The text holds no key.
    #[error("no key in PEM form found")]
    NoKey,
    /// The key is of another kind.
    #[error("the key is neither an RSA key of at least 2048 bits nor an ECDSA P-256 key")]
    Kind,
    /// The key cannot sign.
    #[error("the key cannot sign")]
    Sign,
}

enum Private {
    Ec(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// A private key that signs tokens.
pub struct SigningKey {
    private: Private,
    public: VerifyingKey,
}

impl SigningKey {
    /// Reads a key from PEM: PKCS#8, PKCS#1 or SEC 1.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        Self::from_der(&PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| KeyError::NoKey)?)
    }
    fn from_der(key: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let private = match key {
            PrivateKeyDer::Pkcs1(k) => {
                Private::Rsa(RsaKeyPair::from_der(k.secret_pkcs1_der()).map_err(|_| KeyError::Kind)?)
            }
            PrivateKeyDer::Sec1(k) => Private::Ec(
                EcdsaKeyPair::from_private_key_der(algorithm, k.secret_sec1_der())
                    .map_err(|_| KeyError::Kind)?,
            ),
            PrivateKeyDer::Pkcs8(k) => {
                let der = k.secret_pkcs8_der();
                match EcdsaKeyPair::from_pkcs8(algorithm, der) {
                    Ok(pair) => Private::Ec(pair),
                    Err(_) => Private::Rsa(RsaKeyPair::from_pkcs8(der).map_err(|_| KeyError::Kind)?),
                }
            }
            _ => return Err(KeyError::Kind),
        };
        let public = VerifyingKey::of(&private)?;
        Ok(Self { private, public })
    }
    /// The key that verifies the signatures of this one.
    pub fn public(&self) -> &VerifyingKey {
        &self.public
    }
    /// Signs a message, in the form of a JWS.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let random = SystemRandom::new();
        match &self.private {
            Private::Ec(pair) => {
                pair.sign(&random, message).map(|s| s.as_ref().to_vec()).map_err(|_| KeyError::Sign)
            }
            Private::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(|_| KeyError::Sign)?;
                Ok(signature)
            }
        }
    }
}

/// A public key that verifies tokens.
#[derive(Clone)]
pub struct VerifyingKey {
    /// Key id: SHA-256 of its X.509 form, in URL-safe base64.
    pub id: String,
    /// `ES256` or `RS256`.
    pub algorithm: &'static str,
    key: ParsedPublicKey,
    jwk: Value,
}

impl VerifyingKey {
    fn of(private: &Private) -> Result<Self, KeyError> {
        let der = match private {
            Private::Ec(pair) => AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()),
            Private::Rsa(pair) => AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()),
        };
        Self::from_der(der.map_err(|_| KeyError::Kind)?.as_ref())
    }
    /// Reads a key from its X.509 form.
    fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyError::Kind)?;
        let bytes: &[u8] = &info.subject_public_key.data;
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (algorithm, key, mut jwk) = match info.parsed().map_err(|_| KeyError::Kind)? {
            PublicKey::EC(_) => {
                // An uncompressed point: 4, x, y.
                let (x, y) = match bytes {
                    [4, xy @ ..] if xy.len() == 64 => xy.split_at(32),
                    _ => return Err(KeyError::Kind),
                };
                let key = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, bytes);
                ("ES256", key, json!({ "kty": "EC", "crv": "P-256", "x": text(x), "y": text(y) }))
            }
            PublicKey::RSA(rsa) => {
                let trimmed = |number: &[u8]| {
                    let zeros = number.iter().take_while(|byte| **byte == 0).count();
                    text(number.get(zeros..).unwrap_or_default())
                };
                let key = ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, bytes);
                let jwk = json!({ "kty": "RSA", "n": trimmed(rsa.modulus), "e": trimmed(rsa.exponent) });
                ("RS256", key, jwk)
            }
            _ => return Err(KeyError::Kind),
        };
        let key = key.map_err(|_| KeyError::Kind)?;
        let id = text(&Sha256::digest(der));
        jwk["use"] = "sig".into();
        jwk["kid"] = id.clone().into();
        jwk["alg"] = algorithm.into();
        Ok(Self { id, algorithm, key, jwk })
    }
    /// Reads all keys of a file (`--service-account-key-file`): public ones, those of certificates and of private keys.
    ///
    /// # Errors
    /// Where there is none, or one is of another kind.
    pub fn all_from_pem(pem: &str) -> Result<Vec<Self>, KeyError> {
        let mut all = Vec::new();
        for public in SubjectPublicKeyInfoDer::pem_slice_iter(pem.as_bytes()) {
            all.push(Self::from_der(&public.map_err(|_| KeyError::NoKey)?)?);
        }
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|_| KeyError::NoKey)?;
            let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|_| KeyError::NoKey)?;
            all.push(Self::from_der(parsed.public_key().raw)?);
        }
        for private in PrivateKeyDer::pem_slice_iter(pem.as_bytes()) {
            let private = private.map_err(|_| KeyError::NoKey)?;
            all.push(SigningKey::from_der(&private)?.public);
        }
        if all.is_empty() { Err(KeyError::NoKey) } else { Ok(all) }
    }
    /// The key's JSON Web Key.
    pub fn jwk(&self) -> &Value {
        &self.jwk
    }
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verify_sig(message, signature).is_ok()
    }
}
