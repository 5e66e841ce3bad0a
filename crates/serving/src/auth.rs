//! Access to an endpoint: client certificates of the cluster and bearer tokens, decided by the API server (TokenReview,
//! SubjectAccessReview) and remembered for a while.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use base64::Engine;
use client::Client;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;

use crate::answer::Failure;
use crate::tokens::Tokens;

/// How long the API server's word on callers is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// On tokens, good and bad; upstream's `authentication.webhook.cacheTTL`, 2 min.
    pub tokens: Duration,
    /// That a caller may do something; upstream's `authorization.webhook.cacheAuthorizedTTL`, 5 min.
    pub allowed: Duration,
    /// That a caller may not; upstream's `authorization.webhook.cacheUnauthorizedTTL`, 30 s.
    pub denied: Duration,
}

impl Default for Trust {
    /// Upstream's defaults.
    fn default() -> Self {
        Self {
            tokens: Duration::from_mins(2),
            allowed: Duration::from_mins(5),
            denied: Duration::from_secs(30),
        }
    }
}

/// The most answers remembered of each kind.
const CACHED: usize = 1024;

/// The user behind a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct User {
    /// Name.
    pub name: String,
    /// uid, "" where none is known.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }
    /// Whether the user has shown no credentials.
    pub fn is_anonymous(&self) -> bool {
        *self == Self::anonymous()
    }
}

/// The access that a caller wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Access {
    /// Access to a subresource of a Node.
    Node {
        /// The verb: `get`, `create`, ….
        verb: &'static str,
        /// The subresource.
        subresource: &'static str,
        /// The Node's name.
        name: String,
    },
    /// Access to a path.
    Path {
        /// The verb: `get`, `post`, …, the method in small letters.
        verb: String,
        /// The path.
        path: String,
    },
}

/// Answers with a time to live, the oldest forgotten first.
pub(crate) struct Cache<K, V> {
    entries: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    pub(crate) fn new() -> Self {
        Self { entries: Mutex::default() }
    }
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let entries = self.entries.lock();
        entries.get(key).filter(|(_, until)| *until > Instant::now()).map(|(value, _)| value.clone())
    }
    pub(crate) fn put(&self, key: K, value: V, ttl: Duration) {
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

/// The longest path that an answer is remembered for: paths are their senders' choice.
const LONGEST_PATH: usize = 256;

/// Recognises callers by the certificates that they show. The handshake has shown that the caller has the key, and no
/// more.
pub trait Peers: Send + Sync + 'static {
    /// The caller with a chain of certificates, its own first: the one that it names, or whom a front proxy names in
    /// headers. Those headers are removed in any case. `None` if the chain is nobody's, or empty.
    fn user(&self, headers: &mut HeaderMap, chain: &[CertificateDer<'static>]) -> Option<User>;
}

/// The group whose members may do everything, as the API server has it, too.
const MASTERS: &str = "system:masters";

/// The check of access to an endpoint.
pub struct Auth {
    client: Client,
    /// Without it, the handshake has verified the certificates that are shown.
    peers: Option<Arc<dyn Peers>>,
    tokens: Tokens,
    /// Whether tokens are read.
    reading_tokens: bool,
    decisions: Cache<(Arc<User>, Access), bool>,
    trust: Trust,
}

impl Auth {
    /// Makes a check that asks the API server with the component's identity.
    pub fn new(client: Client) -> Self {
        Self::with(client, Trust::default())
    }

    /// Makes one that believes the API server for so long.
    pub fn with(client: Client, trust: Trust) -> Self {
        let tokens = Tokens::new(client.clone(), trust.tokens);
        Self { tokens, reading_tokens: true, client, peers: None, decisions: Cache::new(), trust }
    }

    /// Reads tokens or not: a caller with a token that is not read has none.
    #[must_use]
    pub fn reading_tokens(self, reading_tokens: bool) -> Self {
        Self { reading_tokens, ..self }
    }

    /// With another client for questions about access; the one before asks about tokens alone.
    #[must_use]
    pub fn authorized_by(mut self, client: Client) -> Self {
        self.client = client;
        self
    }

    /// With callers who are recognised by certificates that the handshake has not verified.
    #[must_use]
    pub fn recognizing(mut self, peers: Arc<dyn Peers>) -> Self {
        self.peers = Some(peers);
        self
    }

    /// The caller of a request; `None` without credentials. `chain` is the client's certificate with those that signed
    /// it. Credentials are taken out of the headers: nobody behind the endpoint is to see them.
    ///
    /// # Errors
    /// If the credentials are not valid.
    pub async fn authenticate(
        &self,
        headers: &mut HeaderMap,
        chain: &[CertificateDer<'static>],
    ) -> Result<Option<Arc<User>>, Failure> {
        let mut shown = headers.contains_key(AUTHORIZATION);
        let token = take_token(headers);
        let user = match &self.peers {
            None => chain.first().and_then(certificate_user),
            Some(peers) => {
                shown |= !chain.is_empty();
                peers.user(headers, chain)
            }
        };
        if let Some(user) = user {
            return Ok(Some(Arc::new(user)));
        }
        if !self.reading_tokens {
            return Ok(None);
        }
        let Some(token) = token else { return if shown { Err(unauthorized()) } else { Ok(None) } };
        match self.tokens.user(&token).await {
            Some(user) => Ok(Some(user)),
            None => Err(unauthorized()),
        }
    }

    /// Whether a caller may have the access.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn allowed(&self, user: &Arc<User>, access: &Access) -> Result<bool, Status> {
        // The API server would say so, and may be away.
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(true);
        }
        let key = (user.clone(), access.clone());
        if let Some(allowed) = self.decisions.get(&key) {
            return Ok(allowed);
        }
        let mut spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: Some(user.uid.clone()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        match access {
            Access::Node { verb, subresource, name } => {
                spec.resource_attributes = Some(ResourceAttributes {
                    verb: Some((*verb).to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some((*subresource).to_owned()),
                    name: Some(name.clone()),
                    ..ResourceAttributes::default()
                });
            }
            Access::Path { verb, path } => {
                let attributes = NonResourceAttributes { path: Some(path.clone()), verb: Some(verb.clone()) };
                spec.non_resource_attributes = Some(attributes);
            }
        }
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = self.client.api::<SubjectAccessReview>("").create(&review).await?;
        let allowed = answer.status.is_some_and(|s| s.allowed);
        if !matches!(access, Access::Path { path, .. } if path.len() > LONGEST_PATH) {
            self.decisions.put(key, allowed, if allowed { self.trust.allowed } else { self.trust.denied });
        }
        Ok(allowed)
    }
}

/// The refusal of a caller without valid credentials.
pub fn unauthorized() -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, "Unauthorized")
}

/// The start of the protocol by which a WebSocket client that cannot set headers sends its token.
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
    // The other protocols stay, as one list.
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

#[cfg(test)]
mod tests {
    use super::*;

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
