//! Who may use this server: client certificates of the cluster and bearer tokens, decided by the API
//! server (TokenReview, SubjectAccessReview) and remembered for a while.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use client::Client;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use http::{Method, StatusCode};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;

use super::Failure;
use super::tokens::Tokens;

/// Upstream's `authorization.webhook.cacheAuthorizedTTL`.
pub(super) const ALLOWED_TTL: Duration = Duration::from_mins(5);
/// Upstream's `authorization.webhook.cacheUnauthorizedTTL`.
pub(super) const DENIED_TTL: Duration = Duration::from_secs(30);
/// The most answers remembered of each kind.
const CACHED: usize = 1024;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

/// Answers with a time to live, the oldest forgotten first.
pub(super) struct Cache<K, V> {
    entries: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default() }
    }
    pub(super) fn get(&self, key: &K) -> Option<V> {
        let entries = self.entries.lock();
        entries.get(key).filter(|(_, until)| *until > Instant::now()).map(|(value, _)| value.clone())
    }
    pub(super) fn put(&self, key: K, value: V, ttl: Duration) {
        let mut entries = self.entries.lock();
        let now = Instant::now();
        if entries.len() >= CACHED {
            entries.retain(|_, (_, until)| *until > now);
        }
        if entries.len() >= CACHED
            && let Some(oldest) = entries.iter().min_by_key(|(_, (_, until))| *until).map(|(k, _)| k.clone())
        {
            entries.remove(&oldest);
        }
        entries.insert(key, (value, now + ttl));
    }
}

/// The server's gate.
pub(super) struct Auth {
    client: Client,
    node: String,
    tokens: Tokens,
    decisions: Cache<(Arc<User>, &'static str, &'static str), bool>,
}

impl Auth {
    pub(super) fn new(client: Client, node: &str) -> Self {
        let tokens = Tokens::new(client.clone());
        Self { client, node: node.to_owned(), tokens, decisions: Cache::new() }
    }

    /// The caller of a request; `peer` is its client certificate, verified by the handshake. What it
    /// shows is taken out of the headers: nobody behind this server is to see it.
    pub(super) async fn authenticate(
        &self,
        headers: &mut HeaderMap,
        peer: Option<&CertificateDer<'_>>,
    ) -> Result<Arc<User>, Failure> {
        let token = take_token(headers);
        if let Some(user) = peer.and_then(certificate_user) {
            return Ok(Arc::new(user));
        }
        let user = match token {
            Some(token) => self.tokens.user(&token).await,
            None => None,
        };
        user.ok_or_else(|| Failure::new(StatusCode::UNAUTHORIZED, "Unauthorized"))
    }

    /// Refuses a caller that may do none of what the path stands for.
    pub(super) async fn authorize(
        &self,
        user: &Arc<User>,
        method: &Method,
        path: &str,
    ) -> Result<(), Failure> {
        let verb = verb(method);
        let subresources = subresources(path);
        for subresource in subresources {
            if self.allowed(user, verb, subresource).await? {
                return Ok(());
            }
        }
        Err(Failure::new(
            StatusCode::FORBIDDEN,
            format!(
                "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
                user.name,
                subresources.join(" ")
            ),
        ))
    }

    async fn allowed(
        &self,
        user: &Arc<User>,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, Failure> {
        let key = (user.clone(), verb, subresource);
        if let Some(allowed) = self.decisions.get(&key) {
            return Ok(allowed);
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: Some(user.uid.clone()),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    name: Some(self.node.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = self.client.api::<SubjectAccessReview>("").create(&review).await.map_err(|error| {
            let text = format!(
                "Authorization error (user={}, verb={verb}, resource=nodes, subresource={subresource})",
                user.name
            );
            tracing::warn!(%error, "{text}");
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, text)
        })?;
        let allowed = answer.status.is_some_and(|s| s.allowed);
        self.decisions.put(key, allowed, if allowed { ALLOWED_TTL } else { DENIED_TTL });
        Ok(allowed)
    }
}

/// What a WebSocket client that cannot set headers names its token by, among the protocols.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The bearer token of a request, removed from its headers.
fn take_token(headers: &mut HeaderMap) -> Option<String> {
    let shown = headers.remove(AUTHORIZATION);
    let of_header = shown
        .as_ref()
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.trim().split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim().to_owned());
    let (mut of_protocol, mut others) = (None, Vec::new());
    for protocol in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        for name in protocol.to_str().unwrap_or_default().split(',').map(str::trim) {
            match name.strip_prefix(TOKEN_PROTOCOL) {
                Some(encoded) => {
                    let raw = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(encoded).ok();
                    of_protocol = raw.and_then(|raw| String::from_utf8(raw).ok()).or(of_protocol);
                }
                None => others.push(name.to_owned()),
            }
        }
    }
    // The rest stands as one list.
    if let Ok(rest) = HeaderValue::from_str(&others.join(", "))
        && headers.remove(SEC_WEBSOCKET_PROTOCOL).is_some()
        && !others.is_empty()
    {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, rest);
    }
    of_header.or(of_protocol).filter(|token| !token.is_empty())
}

/// The user that a client certificate names: its common name, its organizations as groups.
fn certificate_user(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = client::subject::subject(certificate.subject().as_raw()).ok()?;
    let (name, mut groups) = (subject.common_name, subject.organizations);
    if name.is_empty() {
        return None;
    }
    groups.push("system:authenticated".to_owned());
    Some(User { name, groups, ..User::default() })
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The subresources of the Node of which a caller needs one, the narrowest first.
fn subresources(path: &str) -> &'static [&'static str] {
    let below = |root: &str| {
        let root = root.trim_end_matches('/');
        path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if below("/pods") || below("/runningpods") {
        &["pods", "proxy"]
    } else if below("/healthz") {
        &["healthz", "proxy"]
    } else if below("/configz") {
        &["configz", "proxy"]
    } else if below("/stats") {
        &["stats"]
    } else if below("/metrics") {
        &["metrics"]
    } else if below("/logs") {
        &["log"]
    } else {
        &["proxy"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_first() {
        let check = |path: &str, expected: &[&str]| assert_eq!(subresources(path), expected, "{path}");
        check("/pods", &["pods", "proxy"]);
        check("/podsx", &["proxy"]);
        check("/runningpods/", &["pods", "proxy"]);
        check("/healthz/ping", &["healthz", "proxy"]);
        check("/configz", &["configz", "proxy"]);
        check("/stats/summary", &["stats"]);
        check("/metrics/cadvisor", &["metrics"]);
        check("/logs/", &["log"]);
        check("/exec/ns/p/c", &["proxy"]);
        check("/containerLogs/ns/p/c", &["proxy"]);
    }

    #[test]
    fn tokens_are_taken_out() {
        let check = |pairs: &[(&'static str, &str)], token: Option<&str>, left: Option<&str>| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_str(value).unwrap());
            }
            assert_eq!(take_token(&mut headers).as_deref(), token, "{pairs:?}");
            assert!(headers.get(AUTHORIZATION).is_none());
            let got = headers.get(SEC_WEBSOCKET_PROTOCOL).map(|v| v.to_str().unwrap());
            assert_eq!(got, left, "{pairs:?}");
        };
        let protocol = "sec-websocket-protocol";
        check(&[("authorization", "Bearer abc")], Some("abc"), None);
        check(&[("authorization", "bearer  abc ")], Some("abc"), None);
        check(&[("authorization", "Basic abc")], None, None);
        check(&[("authorization", "Bearer ")], None, None);
        check(&[], None, None);
        let coded = "base64url.bearer.authorization.k8s.io.YWJj";
        check(&[(protocol, "v4.channel.k8s.io"), (protocol, coded)], Some("abc"), Some("v4.channel.k8s.io"));
        check(&[(protocol, &format!("a, {coded},b"))], Some("abc"), Some("a, b"));
        check(&[(protocol, coded), ("authorization", "Bearer x")], Some("x"), None);
        check(&[(protocol, "base64url.bearer.authorization.k8s.io.***")], None, None);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_expire() {
        let cache = Cache::new();
        cache.put(1, "a", Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(cache.get(&1), Some("a"));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(cache.get(&1), None);
        for n in 0..3 * CACHED {
            cache.put(n, "b", Duration::from_secs(100));
        }
        assert_eq!(cache.entries.lock().len(), CACHED);
    }
}
