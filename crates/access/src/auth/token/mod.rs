//! Service account tokens: their claims, how they are signed, and when they hold.

mod claims;
mod error;
mod validate;

use std::sync::Arc;

use api::Text;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::cache::{Cache, Digest};
use super::keys::{KeyError, SigningKey, VerifyingKey};
use crate::UserInfo;
use crate::reader::Reader;

use claims::LegacyClaims;
pub use claims::{Bound, Claims, KubernetesClaims, Ref};
pub use error::TokenError;

/// The issuer of tokens in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Longest token that is looked at, in bytes.
const MAX_TOKEN: usize = 16 * 1024;
/// Verified signatures that are remembered.
const CACHED: usize = 4096;

/// The service that issues tokens and recognises them.
pub struct TokenService {
    issuer: String,
    /// The names of the API server in `aud`.
    audiences: Vec<Text>,
    signer: SigningKey,
    verifiers: Vec<VerifyingKey>,
    reader: Arc<dyn Reader>,
    cache: Cache<Digest, Arc<Verified>>,
}

/// A token whose signature is good; whether it holds now is another question.
enum Verified {
    Bound(Box<Claims>, Arc<UserInfo>),
    Legacy(LegacyClaims, Arc<UserInfo>),
}

/// Who a token is, and for which of the wanted audiences.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// The user.
    pub user: Arc<UserInfo>,
    /// The audiences that were wanted and that the token has.
    pub audiences: Vec<Text>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

impl TokenService {
    /// Issues with `signer` as `issuer`, and takes what it or one of `others` signed.
    pub fn new(
        issuer: &str,
        audiences: Vec<Text>,
        signer: SigningKey,
        others: Vec<VerifyingKey>,
        reader: Arc<dyn Reader>,
    ) -> Self {
        let verifiers = std::iter::once(signer.public().clone()).chain(others).collect();
        Self { issuer: issuer.into(), audiences, signer, verifiers, reader, cache: Cache::new(CACHED) }
    }

    /// The audiences of the API server.
    pub fn audiences(&self) -> &[Text] {
        &self.audiences
    }

    /// A signed token.
    pub fn sign(&self, claims: &Claims) -> Result<String, KeyError> {
        self.sign_value(&serde_json::to_value(claims).map_err(|_| KeyError::Sign)?)
    }

    /// The token of a Secret of type `kubernetes.io/service-account-token`.
    pub fn legacy(
        &self,
        namespace: &str,
        account: &str,
        uid: &str,
        secret: &str,
    ) -> Result<String, KeyError> {
        self.sign_value(&json!({
            "iss": LEGACY_ISSUER,
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": secret,
            "kubernetes.io/serviceaccount/service-account.name": account,
            "kubernetes.io/serviceaccount/service-account.uid": uid,
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
        }))
    }

    fn sign_value(&self, claims: &Value) -> Result<String, KeyError> {
        let public = self.signer.public();
        let header = format!(r#"{{"alg":"{}","kid":"{}"}}"#, public.algorithm, public.id);
        let mut token = URL_SAFE_NO_PAD.encode(header);
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims.to_string(), &mut token);
        let signature = self.signer.sign(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    /// Claims of a new token of this issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Who a token is. `None` if it is none of ours, an error if it is one of ours and not good.
    /// With empty `wanted`, the audience must be the API server.
    pub fn authenticate(
        &self,
        token: &str,
        wanted: &[Text],
        now: Timestamp,
    ) -> Result<Option<Authenticated>, TokenError> {
        let Some(verified) = self.verify(token)? else { return Ok(None) };
        let wanted = if wanted.is_empty() { &self.audiences } else { wanted };
        let (has, user) = match &*verified {
            Verified::Bound(claims, user) => (&claims.aud, user),
            Verified::Legacy(_, user) => (&self.audiences, user),
        };
        let has = if has.is_empty() { &self.audiences } else { has };
        let audiences: Vec<Text> = has.iter().filter(|a| wanted.contains(a)).cloned().collect();
        if audiences.is_empty() {
            return Err(TokenError(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(has),
                quoted(wanted)
            )));
        }
        match &*verified {
            Verified::Bound(claims, _) => validate::bound(claims, &*self.reader, now)?,
            Verified::Legacy(claims, _) => validate::legacy(claims, token, &*self.reader)?,
        }
        Ok(Some(Authenticated { user: user.clone(), audiences }))
    }

    /// The token's claims, if its signature is good.
    fn verify(&self, token: &str) -> Result<Option<Arc<Verified>>, TokenError> {
        if token.len() > MAX_TOKEN {
            return Ok(None);
        }
        let digest: Digest = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.cache.get(&digest) {
            return Ok(Some(known));
        }
        let Some((signed, signature)) = token.rsplit_once('.') else { return Ok(None) };
        let Some((header, payload)) = signed.split_once('.') else { return Ok(None) };
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let (Some(header), Some(payload), Some(signature)) =
            (decode(header), decode(payload), decode(signature))
        else {
            return Ok(None);
        };
        #[derive(Deserialize)]
        struct Issuer {
            iss: String,
        }
        let Ok(Issuer { iss }) = serde_json::from_slice(&payload) else { return Ok(None) };
        let legacy = iss == LEGACY_ISSUER;
        if !legacy && iss != self.issuer {
            return Ok(None);
        }
        let Ok(header) = serde_json::from_slice::<Header>(&header) else { return Ok(None) };
        let mut keys =
            self.verifiers.iter().filter(|k| header.kid.is_empty() || k.id == header.kid).peekable();
        if keys.peek().is_none() {
            return Err(TokenError::new("invalid signature, no keys found"));
        }
        if !keys.any(|k| k.algorithm == header.alg && k.verifies(signed.as_bytes(), &signature)) {
            return Err(TokenError::new("go-jose/go-jose: error in cryptographic primitive"));
        }
        let unreadable = |e: serde_json::Error| TokenError(format!("the token's claims cannot be read: {e}"));
        let verified = Arc::new(if legacy {
            let claims: LegacyClaims = serde_json::from_slice(&payload).map_err(unreadable)?;
            let user = Arc::new(claims.user());
            Verified::Legacy(claims, user)
        } else {
            let claims: Claims = serde_json::from_slice(&payload).map_err(unreadable)?;
            let user = Arc::new(claims.user());
            Verified::Bound(Box::new(claims), user)
        });
        self.cache.put(digest, verified.clone());
        Ok(Some(verified))
    }

    /// The document at `/.well-known/openid-configuration`.
    pub fn openid_configuration(&self, jwks_uri: &str) -> Value {
        let mut algorithms: Vec<&str> = self.verifiers.iter().map(|k| k.algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        json!({
            "issuer": self.issuer,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }

    /// The document at `/openid/v1/jwks`.
    pub fn jwks(&self) -> Value {
        json!({ "keys": self.verifiers.iter().map(VerifyingKey::jwk).collect::<Vec<_>>() })
    }
}

fn quoted(list: &[Text]) -> String {
    format!("[{}]", list.iter().map(|t| format!("{t:?}")).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests;
