//! Service account tokens: their claims, their signatures, and their validity.

mod claims;
mod error;
mod uses;
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
use crate::notes::Notes;
use crate::reader::Reader;

use claims::LegacyClaims;
pub use claims::{Bound, Claims, KubernetesClaims, Ref};
pub use error::TokenError;
pub use uses::{Counts, LAST_USED, Used, Uses};

/// The issuer of tokens in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// The greatest length of a token that is looked at, in bytes.
const MAX_TOKEN: usize = 16 * 1024;
/// The number of verified signatures that are remembered.
const CACHED: usize = 4096;

/// Issues tokens and recognises them.
pub struct TokenService {
    /// The issuers whose tokens are taken; the first issues.
    issuers: Vec<String>,
    /// The API server's names in `aud`.
    audiences: Vec<Text>,
    signer: SigningKey,
    verifiers: Vec<VerifyingKey>,
    reader: Arc<dyn Reader>,
    cache: Cache<Digest, Arc<Verified>>,
    uses: Arc<Uses>,
    /// Whether Secrets and accounts of tokens in Secrets are looked up.
    lookup: bool,
}

/// A token whose signature is good; it may still be expired or revoked.
enum Verified {
    Bound(Box<Claims>, Arc<UserInfo>),
    Legacy(LegacyClaims, Arc<UserInfo>),
}

/// The user of a token, and the wanted audiences that it has.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// The user.
    pub user: Arc<UserInfo>,
    /// The wanted audiences that the token has.
    pub audiences: Vec<Text>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

impl TokenService {
    /// Makes the service, which issues with `signer` as the first of the `issuers`, and accepts tokens of all of them
    /// with signatures by it and by `others`.
    pub fn new<T: AsRef<str>>(
        issuers: &[T],
        audiences: Vec<Text>,
        signer: SigningKey,
        others: Vec<VerifyingKey>,
        reader: Arc<dyn Reader>,
    ) -> Self {
        let verifiers = std::iter::once(signer.public().clone()).chain(others).collect();
        let issuers = issuers.iter().map(|issuer| issuer.as_ref().to_owned()).collect();
        let (cache, uses) = (Cache::new(CACHED), Arc::default());
        Self { issuers, audiences, signer, verifiers, reader, cache, uses, lookup: true }
    }

    /// Whether a token of a Secret is taken only while the Secret and its account are there
    /// (`--service-account-lookup`).
    #[must_use]
    pub fn looking_up(self, lookup: bool) -> Self {
        Self { lookup, ..self }
    }

    /// The audiences of the API server.
    pub fn audiences(&self) -> &[Text] {
        &self.audiences
    }

    /// The uses of tokens so far.
    pub fn uses(&self) -> &Arc<Uses> {
        &self.uses
    }

    /// Signs the claims of a token.
    pub fn sign(&self, claims: &Claims) -> Result<String, KeyError> {
        sign_value(&self.signer, &serde_json::to_value(claims).map_err(|_| KeyError::Sign)?)
    }

    /// The issuer of new tokens.
    pub fn issuer(&self) -> &str {
        self.issuers.first().map_or("", String::as_str)
    }

    /// Authenticates a token. `None` if it is not one of this server's, an error if it is one and is not good. With
    /// empty `wanted`, the audience must be the API server. Notes tell of tokens that should be replaced.
    pub fn authenticate(
        &self,
        token: &str,
        wanted: &[Text],
        now: Timestamp,
        notes: &Notes,
    ) -> Result<Option<Authenticated>, TokenError> {
        let Some(verified) = self.verify(token)? else { return Ok(None) };
        let wanted = if wanted.is_empty() { &self.audiences } else { wanted };
        let (has, subject, user) = match &*verified {
            Verified::Bound(claims, user) => (claims.aud.as_slice(), &claims.sub, user),
            Verified::Legacy(claims, user) => (&[][..], &claims.sub, user),
        };
        let has = if has.is_empty() {
            self.uses.without_audience(subject, notes);
            &self.audiences
        } else {
            has
        };
        let audiences: Vec<Text> = has.iter().filter(|a| wanted.contains(a)).cloned().collect();
        if audiences.is_empty() {
            return Err(TokenError(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(has),
                quoted(wanted)
            )));
        }
        match &*verified {
            Verified::Bound(claims, _) => {
                validate::bound(claims, &*self.reader, now)?;
                if let Some(warn_after) = claims.kubernetes.warnafter.filter(|at| *at != 0) {
                    self.uses.renewable(&claims.sub, warn_after, now, notes);
                }
            }
            Verified::Legacy(claims, _) if !self.lookup => validate::legacy_claims(claims)?,
            Verified::Legacy(claims, _) => {
                let (secret, sort) = validate::legacy(claims, token, &*self.reader)?;
                self.uses.of_secret(&secret, sort, now, notes);
                validate::is_valid(claims, sort)?;
            }
        }
        Ok(Some(Authenticated { user: user.clone(), audiences }))
    }

    /// Returns the token's claims, if its signature is good.
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
        if !legacy && !self.issuers.contains(&iss) {
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

    /// Whether others can verify tokens by this server's documents: the issuer must be a URL by which OpenID knows one.
    pub fn has_documents(&self) -> bool {
        let issuer = self.issuer().split_once("://");
        issuer.is_some_and(|(scheme, rest)| {
            scheme.eq_ignore_ascii_case("https") && !rest.contains('#') && !has_query(rest)
        })
    }

    /// Makes the document at `/.well-known/openid-configuration`.
    pub fn openid_configuration(&self, jwks_uri: &str) -> Value {
        let mut algorithms: Vec<&str> = self.verifiers.iter().map(|k| k.algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        json!({
            "issuer": self.issuer(),
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }

    /// Makes the document at `/openid/v1/jwks`.
    pub fn jwks(&self) -> Value {
        json!({ "keys": self.verifiers.iter().map(VerifyingKey::jwk).collect::<Vec<_>>() })
    }
}

/// Makes the token of a Secret of type `kubernetes.io/service-account-token`.
///
/// # Errors
/// Where the key cannot sign.
pub fn legacy(
    key: &SigningKey,
    namespace: &str,
    account: &str,
    uid: &str,
    secret: &str,
) -> Result<String, KeyError> {
    sign_value(
        key,
        &json!({
            "iss": LEGACY_ISSUER,
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": secret,
            "kubernetes.io/serviceaccount/service-account.name": account,
            "kubernetes.io/serviceaccount/service-account.uid": uid,
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
        }),
    )
}

fn sign_value(key: &SigningKey, claims: &Value) -> Result<String, KeyError> {
    let public = key.public();
    let header = format!(r#"{{"alg":"{}","kid":"{}"}}"#, public.algorithm, public.id);
    let mut token = URL_SAFE_NO_PAD.encode(header);
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(claims.to_string(), &mut token);
    let signature = key.sign(token.as_bytes())?;
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    Ok(token)
}

/// Whether a URL has a query; a question mark alone is none.
fn has_query(url: &str) -> bool {
    url.split_once('?').is_some_and(|(_, query)| !query.is_empty())
}

fn quoted(list: &[Text]) -> String {
    format!("[{}]", list.iter().map(|t| format!("{t:?}")).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests;
