//! Authentication: by client certificates, then by bearer tokens, then as the anonymous user.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Status, Text};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::subject::subject;
use component::Clock;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use streaming::websocket::is_websocket;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authorities::Authorities;
use super::bearer::BearerTokens;
use super::cache::{Cache, Digest};
use super::front_proxy::{FrontProxy, RequestHeaders};
use super::groups::add_authenticated;
use super::{Authenticator, Eventual, UnionAuthorizer, impersonation};
use crate::RequestInfo;
use crate::UserInfo;
use crate::notes::Notes;

/// The number of certificates that are remembered.
const CACHED: usize = 1024;
/// Upstream's prefix of a bearer token among WebSocket protocols.
pub(super) const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The configuration of authentication.
pub struct AuthenticationConfig {
    /// The authorities of client certificates.
    pub client_ca: Authorities,
    /// The front proxies that may name users with the authorities of their certificates, and whether their uids count.
    pub front_proxies: Option<(Authorities, RequestHeaders, bool)>,
    /// Whether requests without credentials are `system:anonymous` (`--anonymous-auth`).
    pub anonymous: bool,
    /// The clock.
    pub clock: Clock,
}

struct Certified {
    user: Arc<UserInfo>,
    not_after: i64,
    /// The exchanges of authorities before the certificate was judged.
    version: u64,
}

/// Recognises callers by everything that this server knows.
pub struct UnionAuthenticator {
    authorities: Authorities,
    front_proxy: Option<FrontProxy>,
    tokens: Arc<BearerTokens>,
    authorizer: Arc<UnionAuthorizer>,
    anonymous: Option<Arc<UserInfo>>,
    clock: Clock,
    certificates: Cache<Digest, Arc<Certified>>,
}

impl UnionAuthenticator {
    /// Makes the authenticator from its parts; the authorizer decides on impersonation.
    pub fn new(
        config: AuthenticationConfig,
        tokens: Arc<BearerTokens>,
        authorizer: Arc<UnionAuthorizer>,
    ) -> Self {
        let proxies = config.front_proxies;
        Self {
            authorities: config.client_ca,
            front_proxy: proxies
                .map(|(authorities, headers, uid)| FrontProxy::new(authorities, headers, uid)),
            tokens,
            authorizer,
            anonymous: config.anonymous.then(nobody),
            clock: config.clock,
            certificates: Cache::new(CACHED),
        }
    }

    /// Returns the user of a certificate chain; `None` if the chain is not good.
    fn by_certificate(&self, chain: &[CertificateDer<'static>], now: Timestamp) -> Option<Arc<UserInfo>> {
        let (leaf, intermediates) = chain.split_first()?;
        let digest: Digest = Sha256::digest(leaf).into();
        // Taken before the judgement, so that an exchange meanwhile is followed by another one.
        let version = self.authorities.version();
        if let Some(known) = self.certificates.get(&digest)
            && now.as_second() <= known.not_after
            && known.version == version
        {
            return Some(known.user.clone());
        }
        if let Err(error) = self.authorities.verify(leaf, intermediates, now) {
            tracing::debug!(%error, "client certificate refused");
            return None;
        }
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        let user = Arc::new(certificate_user(&certificate, &digest)?);
        let not_after = certificate.validity().not_after.timestamp();
        self.certificates.put(digest, Arc::new(Certified { user: user.clone(), not_after, version }));
        Some(user)
    }
}

/// Returns the user that a certificate names: the common name with the organizations as groups. `None` if another
/// reader could find another user in it.
pub(crate) fn certificate_user(certificate: &X509Certificate<'_>, digest: &Digest) -> Option<UserInfo> {
    let subject = match subject(certificate.subject().as_raw()) {
        Ok(subject) => subject,
        Err(error) => {
            tracing::debug!(%error, "client certificate refused");
            return None;
        }
    };
    if subject.common_name.is_empty() || subject.uid.as_deref() == Some("") {
        return None;
    }
    let (name, uid) = (subject.common_name.into(), subject.uid.unwrap_or_default().into());
    let mut groups: Vec<Text> = subject.organizations.into_iter().map(Text::from).collect();
    add_authenticated(&mut groups);
    let mut hex = String::with_capacity(75);
    hex.push_str("X509SHA256=");
    for byte in digest {
        hex.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        hex.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
    }
    let extra = BTreeMap::from([("authentication.kubernetes.io/credential-id".into(), vec![hex.into()])]);
    Some(UserInfo { name, uid, groups, extra })
}

/// The anonymous user, as whom requests without credentials act.
pub fn nobody() -> Arc<UserInfo> {
    Arc::new(UserInfo {
        name: "system:anonymous".into(),
        groups: vec!["system:unauthenticated".into()],
        ..UserInfo::default()
    })
}

/// A bearer token of a request, or an error for text that is no token.
type Token = Result<Text, ()>;

/// The token of an `Authorization` header, if it has one.
pub(super) fn bearer_of(header: &[u8]) -> Option<Token> {
    let mut parts = header.trim_ascii().split(|b| *b == b' ');
    parts.next().filter(|scheme| scheme.eq_ignore_ascii_case(b"bearer"))?;
    let token = parts.next().filter(|token| !token.is_empty())?;
    Some(std::str::from_utf8(token).map(Text::from).map_err(|_| ()))
}

/// The token among the subprotocols of a WebSocket's handshake.
fn protocol_token(headers: &HeaderMap) -> Option<Token> {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) || !is_websocket(headers) {
        return None;
    }
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let protocols = protocols.flat_map(|v| v.as_bytes().split(|b| *b == b',')).map(<[u8]>::trim_ascii);
    let (tokens, others): (Vec<_>, Vec<_>) =
        protocols.partition(|p| p.starts_with(TOKEN_PROTOCOL.as_bytes()));
    let encoded = tokens.first()?.get(TOKEN_PROTOCOL.len()..).unwrap_or_default();
    let token = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|token| String::from_utf8(token).ok());
    match token {
        Some(token) if tokens.len() == 1 && token.is_empty() => None,
        // There must be another protocol: the server never answers with the token's.
        Some(token) if tokens.len() == 1 && !others.is_empty() => Some(Ok(token.into())),
        _ => Some(Err(())),
    }
}

/// The bearer tokens of a request, in upstream's order.
fn bearers(headers: &HeaderMap) -> impl Iterator<Item = Token> + '_ {
    let header = headers.get(AUTHORIZATION).and_then(|value| bearer_of(value.as_bytes()));
    header.into_iter().chain(std::iter::once_with(|| protocol_token(headers)).flatten())
}

impl UnionAuthenticator {
    /// Recognises the caller by all credentials that this server knows itself.
    fn known(
        &self,
        request: &Parts,
        peer: Option<&[CertificateDer<'static>]>,
        notes: &Notes,
    ) -> Result<Arc<UserInfo>, Status> {
        let now = self.clock.now();
        let mut refused = false;
        if let Some(chain) = peer.filter(|c| !c.is_empty()) {
            // A certificate is judged as a proxy's only where somebody is named.
            let proxies = self.front_proxy.as_ref().filter(|p| p.is_used(&request.headers));
            match proxies.map(|p| p.authenticate(&request.headers, chain, now)) {
                Some(Ok(Some(user))) => return Ok(Arc::new(user)),
                Some(Err(error)) => tracing::trace!(%error, "a client certificate is not a front proxy's"),
                Some(Ok(None)) | None => {}
            }
            match self.by_certificate(chain, now) {
                Some(user) => return Ok(user),
                None => refused = true,
            }
        }
        for token in bearers(&request.headers) {
            refused = true;
            let Ok(token) = token else { continue };
            match self.tokens.authenticate(&token, &[], notes) {
                Ok(Some(who)) => return Ok(who.user),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "token refused"),
            }
        }
        match &self.anonymous {
            Some(nobody) if !refused => Ok(nobody.clone()),
            _ => Err(Status::unauthorized()),
        }
    }
}

impl Authenticator for UnionAuthenticator {
    fn forget(&self, headers: &mut HeaderMap) {
        if let Some(proxies) = &self.front_proxy {
            proxies.remove(headers);
        }
    }
    fn authenticate<'a>(
        &'a self,
        request: &'a Parts,
        peer: Option<&'a [CertificateDer<'static>]>,
        notes: &'a Notes,
    ) -> Eventual<'a, Result<Arc<UserInfo>, Status>> {
        Eventual::Now(self.known(request, peer, notes))
    }

    fn impersonate<'a>(
        &'a self,
        headers: &'a HeaderMap,
        user: &'a Arc<UserInfo>,
        info: &'a RequestInfo,
    ) -> Eventual<'a, Result<Option<Arc<UserInfo>>, Status>> {
        match impersonation::wanted(headers) {
            Err(status) => Eventual::Now(Err(status)),
            Ok(None) => Eventual::Now(Ok(None)),
            Ok(Some(wanted)) => Eventual::later(async move {
                impersonation::impersonate(wanted, user, info, &self.authorizer).await.map(Some)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn bearer_tokens() {
        let encoded = |token: &[u8]| format!("{TOKEN_PROTOCOL}{}", URL_SAFE_NO_PAD.encode(token));
        let check = |given: &[(&str, &[u8])], want: &[Result<&str, ()>]| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(
                    http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                    HeaderValue::from_bytes(value).unwrap(),
                );
            }
            let got: Vec<_> = bearers(&headers).collect();
            let want: Vec<_> = want.iter().map(|w| w.map(Text::from)).collect();
            assert_eq!(got, want, "{given:?}");
        };
        const AUTH: &str = "authorization";
        check(&[], &[]);
        check(&[(AUTH, b"Bearer tok")], &[Ok("tok")]);
        check(&[(AUTH, b" bearer tok more")], &[Ok("tok")]);
        check(&[(AUTH, b"Bearer ")], &[]);
        check(&[(AUTH, b"Basic dTpw")], &[]);
        check(&[(AUTH, b"Basic \xff")], &[]);
        check(&[(AUTH, b"Bearer \xff")], &[Err(())]);
        check(&[(AUTH, "Bearer ü".as_bytes())], &[Ok("ü")]);
        check(&[(AUTH, b"Bearer a"), (AUTH, b"Bearer b")], &[Ok("a")]);
        const UPGRADE: [(&str, &[u8]); 2] = [("upgrade", b"websocket"), ("connection", b"Upgrade")];
        let socket = |protocols: &[&[u8]], want: &[Result<&str, ()>]| {
            let protocols = protocols.iter().map(|p| ("sec-websocket-protocol", *p));
            check(&UPGRADE.into_iter().chain(protocols).collect::<Vec<_>>(), want);
        };
        let (token, none) = (encoded(b"tok"), encoded(b""));
        socket(&[format!("v5.channel.k8s.io, {token}").as_bytes()], &[Ok("tok")]);
        socket(&[token.as_bytes(), b"v5.channel.k8s.io"], &[Ok("tok")]);
        socket(&[token.as_bytes(), b"\xff"], &[Ok("tok")]);
        socket(&[token.as_bytes()], &[Err(())]);
        socket(&[token.as_bytes(), token.as_bytes(), b"v5.channel.k8s.io"], &[Err(())]);
        socket(&[format!("{token}\u{fc}, v4.channel.k8s.io").as_bytes()], &[Err(())]);
        socket(&[encoded(b"\xff").as_bytes(), b"v5.channel.k8s.io"], &[Err(())]);
        socket(&[none.as_bytes()], &[]);
        socket(&[b"v4.channel.k8s.io"], &[]);
        // Only a WebSocket's handshake has subprotocols.
        check(&[("sec-websocket-protocol", format!("v5.channel.k8s.io, {token}").as_bytes())], &[]);
        let protocols = format!("a,{token}");
        let both = [(AUTH, &b"Bearer old"[..]), ("sec-websocket-protocol", protocols.as_bytes())];
        check(&UPGRADE.into_iter().chain(both).collect::<Vec<_>>(), &[Ok("old"), Ok("tok")]);
    }
}
