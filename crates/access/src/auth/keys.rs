//! Keys that sign and verify service account tokens: ECDSA P-256 (ES256) and RSA (RS256).

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::PublicKeyComponents;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The reason for which a key cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KeyError {
    /// The text holds no private key.
    #[error("no private key in PEM form found")]
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
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| KeyError::NoKey)?;
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let private = match &key {
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
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (der, algorithm, key, mut jwk) = match private {
            Private::Ec(pair) => {
                let public = pair.public_key();
                let der: PublicKeyX509Der<'_> = public.as_der().map_err(|_| KeyError::Kind)?;
                // An uncompressed point: 4, x, y.
                let point: &[u8] = public.as_ref();
                let (x, y) = match point {
                    [4, xy @ ..] if xy.len() == 64 => xy.split_at(32),
                    _ => return Err(KeyError::Kind),
                };
                let key =
                    ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).map_err(|_| KeyError::Kind)?;
                let jwk = json!({ "kty": "EC", "crv": "P-256", "x": text(x), "y": text(y) });
                (der.as_ref().to_vec(), "ES256", key, jwk)
            }
            Private::Rsa(pair) => {
                let public = pair.public_key();
                let der: PublicKeyX509Der<'_> = public.as_der().map_err(|_| KeyError::Kind)?;
                let parts = PublicKeyComponents::<Vec<u8>>::from(public);
                let key = ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public.as_ref())
                    .map_err(|_| KeyError::Kind)?;
                let jwk = json!({ "kty": "RSA", "n": text(&parts.n), "e": text(&parts.e) });
                (der.as_ref().to_vec(), "RS256", key, jwk)
            }
        };
        let id = text(&Sha256::digest(&der));
        jwk["use"] = "sig".into();
        jwk["kid"] = id.clone().into();
        jwk["alg"] = algorithm.into();
        Ok(Self { id, algorithm, key, jwk })
    }
    /// The key's JSON Web Key.
    pub fn jwk(&self) -> &Value {
        &self.jwk
    }
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verify_sig(message, signature).is_ok()
    }
}
