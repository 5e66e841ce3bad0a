//! Service account tokens of Pods, asked for with the node's identity.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Status;
use client::Client;
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use crate::pods::spec;

/// After which time a token that could not be renewed is asked for again.
const RENEW_AGAIN: Duration = Duration::from_secs(10);

/// Why there is no token; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("failed to fetch token: the answer has none")]
    Empty,
    #[error("failed to fetch token: {0}")]
    Refused(Box<Status>),
}

/// Service account tokens of Pods, kept until they must be renewed.
#[derive(Default)]
struct Tokens(Mutex<BTreeMap<TokenKey, Token>>);

/// Pod uid, audience, lifetime asked for, and the account's uid if it matters.
type TokenKey = (String, String, i64, String);

/// A service account token.
#[derive(Clone)]
pub(crate) struct Token {
    /// Itself.
    pub(crate) text: String,
    renew: Timestamp,
    /// When it ends.
    pub(crate) expires: Timestamp,
}

impl Tokens {
    /// Forgets a Pod's tokens.
    fn forget(&self, uid: &str) {
        self.0.lock().retain(|key, _| key.0 != uid);
    }
    /// Puts off the renewal of a token that could not be renewed.
    fn retry(&self, key: &TokenKey, now: Timestamp) {
        if let Some(token) = self.0.lock().get_mut(key) {
            token.renew = now.checked_add(RENEW_AGAIN).unwrap_or(now);
        }
    }
    /// When a Pod's next token is to be renewed.
    fn next_renewal(&self, uid: &str) -> Option<Timestamp> {
        self.0.lock().iter().filter(|(key, _)| key.0 == uid).map(|(_, t)| t.renew).min()
    }
}

/// When a token is renewed: after 80 % of its life or a day, a little earlier for some than for others.
fn renewal(issued: Timestamp, expires: Timestamp) -> Timestamp {
    let life = Duration::try_from(expires.duration_since(issued)).unwrap_or_default();
    let at = life.mul_f64(0.8).min(Duration::from_hours(24));
    let jitter = Duration::from_secs(10).mul_f64(fastrand::f64()).min(at / 10);
    issued.checked_add(at.saturating_sub(jitter)).unwrap_or(expires)
}

/// Asks for tokens.
pub(crate) struct Issuer {
    client: Client,
    /// The time of day.
    pub(crate) clock: Clock,
    tokens: Tokens,
}

impl Issuer {
    /// Asks with the node's identity.
    pub(crate) fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock, tokens: Tokens::default() }
    }

    /// Forgets a Pod's tokens.
    pub(crate) fn forget(&self, uid: &str) {
        self.tokens.forget(uid);
    }

    /// When a Pod's next token is to be renewed.
    pub(crate) fn next_renewal(&self, uid: &str) -> Option<Timestamp> {
        self.tokens.next_renewal(uid)
    }

    /// A token of a Pod's account for an audience, good for so many seconds when it was issued.
    pub(crate) async fn token(&self, pod: &Pod, audience: &str, seconds: i64) -> Result<Token, TokenError> {
        self.token_of_account(pod, "", audience, seconds).await
    }

    /// The same, if the account has this uid, "" for any.
    pub(crate) async fn token_of_account(
        &self,
        pod: &Pod,
        account_uid: &str,
        audience: &str,
        seconds: i64,
    ) -> Result<Token, TokenError> {
        let key = (spec::uid(pod).to_owned(), audience.to_owned(), seconds, account_uid.to_owned());
        let kept = self.tokens.0.lock().get(&key).cloned();
        let now = self.clock.now();
        if let Some(token) = kept.as_ref().filter(|t| t.renew > now) {
            return Ok(token.clone());
        }
        let account =
            spec::spec(pod).service_account_name.as_deref().filter(|n| !n.is_empty()).unwrap_or("default");
        let request = TokenRequest {
            metadata: ObjectMeta {
                uid: Some(account_uid.to_owned()).filter(|uid| !uid.is_empty()),
                ..ObjectMeta::default()
            },
            spec: Some(TokenRequestSpec {
                audiences: Some(audience.to_owned()).filter(|a| !a.is_empty()).map(|a| vec![a]),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: Some(spec::name(pod).to_owned()),
                    uid: Some(spec::uid(pod).to_owned()),
                }),
                expiration_seconds: Some(seconds),
            }),
            status: None,
        };
        let accounts = self.client.api::<ServiceAccount>(spec::namespace(pod));
        match accounts.token(account, &request).await {
            Ok(answer) => {
                let status = answer.status.unwrap_or_default();
                let text = status.token.ok_or(TokenError::Empty)?;
                let expires = status.expiration_timestamp.map_or(now, |t| t.0);
                let token = Token { text, renew: renewal(now, expires), expires };
                self.tokens.0.lock().insert(key, token.clone());
                Ok(token)
            }
            // An old token is better than none while the server is away, as long as it is one.
            Err(error) => {
                if let Some(token) = kept.filter(|t| t.expires > now) {
                    tracing::warn!(%error, pod = spec::full_name(pod), "token not renewed");
                    self.tokens.retry(&key, now);
                    Ok(token)
                } else {
                    self.tokens.0.lock().remove(&key);
                    Err(TokenError::Refused(Box::new(error)))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_cannot_be_renewed_is_asked_for_later() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let tokens = Tokens::default();
        let key = ("u".to_owned(), String::new(), 3600, String::new());
        let token = Token { text: "t".into(), renew: at(100), expires: at(200) };
        tokens.0.lock().insert(key.clone(), token);
        tokens.retry(&key, at(150));
        assert_eq!(tokens.next_renewal("u"), Some(at(160)), "not at once, again and again");
        tokens.forget("u");
        assert_eq!(tokens.next_renewal("u"), None);
    }

    /// 4 of upstream's 5 cases of `TestRequiresRefresh`, in minutes: when the token is looked at, and when it ends. The last one
    /// does not say how long it is good for, which every request here does.
    #[test]
    fn tokens_are_renewed_when_upstreams_are() {
        let at = |minutes: i64| Timestamp::from_second(minutes * 60).unwrap();
        for (now, end, expected) in
            [(10, 60, false), (50, 60, true), (25 * 60, 60 * 60, true), (70, 60, true)]
        {
            assert_eq!(renewal(at(0), at(end)) < at(now), expected, "{now} {end}");
        }
    }

    #[test]
    fn tokens_are_renewed_in_time() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let r = renewal(at(0), at(3600)).as_second();
        assert!((2860..=2880).contains(&r), "{r}");
        let r = renewal(at(0), at(365 * 86400)).as_second();
        assert!((86_380..=86_400).contains(&r), "{r}");
    }
}
