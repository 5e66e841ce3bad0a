//! Authentication: client certificates, then bearer tokens, then nobody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Status, Text};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::subject::subject;
use compact_str::format_compact;
use component::Clock;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::cache::{Cache, Digest};
use super::token::TokenService;
use super::{Authenticator, UnionAuthorizer, impersonation};
use crate::request::{Attributes, UserInfo};

/// Certificates that are remembered.
const CACHED: usize = 1024;
/// Upstream's prefix of a bearer token among WebSocket protocols.
const PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// How callers are recognised.
pub struct AuthenticationConfig {
    /// The authority of client certificates.
    pub client_ca: CertificateDer<'static>,
    /// Whether requests without credentials are `system:anonymous` (`--anonymous-auth`).
    pub anonymous: bool,
    /// The clock.
    pub clock: Clock,
}

/// Why the authenticator cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("the authority of client certificates is not usable")]
pub struct ClientCaError(#[source] Box<dyn std::error::Error + Send + Sync>);

struct Certified {
    user: Arc<UserInfo>,
    not_after: i64,
}

/// Recognises callers by everything that this server knows.
pub struct UnionAuthenticator {
    verifier: Arc<dyn ClientCertVerifier>,
    tokens: Arc<TokenService>,
    authorizer: Arc<UnionAuthorizer>,
    anonymous: Option<Arc<UserInfo>>,
    clock: Clock,
    certificates: Cache<Digest, Arc<Certified>>,
}

impl UnionAuthenticator {
    /// From its parts; the authorizer decides on impersonation.
    pub fn new(
        config: AuthenticationConfig,
        tokens: Arc<TokenService>,
        authorizer: Arc<UnionAuthorizer>,
    ) -> Result<Self, ClientCaError> {
        let mut roots = RootCertStore::empty();
        roots.add(config.client_ca).map_err(|e| ClientCaError(e.into()))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|e| ClientCaError(e.into()))?;
        let anonymous = config.anonymous.then(nobody);
        Ok(Self {
            verifier,
            tokens,
            authorizer,
            anonymous,
            clock: config.clock,
            certificates: Cache::new(CACHED),
        })
    }

    /// The user of a certificate chain; `None` if the chain is not good.
    fn by_certificate(&self, chain: &[CertificateDer<'static>], now: Timestamp) -> Option<Arc<UserInfo>> {
        let (leaf, intermediates) = chain.split_first()?;
        let digest: Digest = Sha256::digest(leaf).into();
        if let Some(known) = self.certificates.get(&digest)
            && now.as_second() <= known.not_after
        {
            return Some(known.user.clone());
        }
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        if let Err(error) = self.verifier.verify_client_cert(leaf, intermediates, time) {
            tracing::debug!(%error, "client certificate refused");
            return None;
        }
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        let user = Arc::new(certificate_user(&certificate, &digest)?);
        let not_after = certificate.validity().not_after.timestamp();
        self.certificates.put(digest, Arc::new(Certified { user: user.clone(), not_after }));
        Some(user)
    }
}

/// The user that a certificate names: the common name with the organizations as groups. None if somebody could read
/// another one from it.
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
    let (name, uid) = (subject.common_name, subject.uid.unwrap_or_default());
    let mut groups: Vec<Text> = subject.organizations.into_iter().map(Text::from).collect();
    add_authenticated(&mut groups);
    let mut hex = String::with_capacity(75);
    hex.push_str("X509SHA256=");
    for byte in digest {
        hex.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        hex.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
    }
    let extra = BTreeMap::from([("authentication.kubernetes.io/credential-id".into(), vec![hex.into()])]);
    Some(UserInfo { name: name.into(), uid: uid.into(), groups, extra })
}

fn add_authenticated(groups: &mut Vec<Text>) {
    if !groups.iter().any(|g| g == "system:authenticated" || g == "system:unauthenticated") {
        groups.push("system:authenticated".into());
    }
}

/// Who asks without credentials.
pub(crate) fn nobody() -> Arc<UserInfo> {
    Arc::new(UserInfo {
        name: "system:anonymous".into(),
        groups: vec!["system:unauthenticated".into()],
        ..UserInfo::default()
    })
}

/// The token of an `Authorization` header, if it has one.
pub(super) fn bearer_of(header: &str) -> Option<&str> {
    let mut parts = header.trim().split(' ');
    parts.next().filter(|scheme| scheme.eq_ignore_ascii_case("bearer"))?;
    parts.next().filter(|token| !token.is_empty())
}

/// The bearer token of a request; an error if there is one in a form that is none.
fn bearer(headers: &HeaderMap) -> Result<Option<Text>, ()> {
    if let Some(value) = headers.get(AUTHORIZATION)
        && let Some(token) = bearer_of(value.to_str().map_err(|_| ())?)
    {
        return Ok(Some(token.into()));
    }
    let protocols: Vec<&str> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(str::trim)
        .collect();
    let mut tokens = protocols.iter().filter_map(|p| p.strip_prefix(PROTOCOL));
    let Some(encoded) = tokens.next() else { return Ok(None) };
    // Another protocol must be there: the server never answers with the token's.
    if tokens.next().is_some() || protocols.len() < 2 {
        return Err(());
    }
    let token = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| ())?;
    let token = std::str::from_utf8(&token).map_err(|_| ())?;
    Ok((!token.is_empty()).then(|| format_compact!("{token}")))
}

impl Authenticator for UnionAuthenticator {
    fn authenticate(
        &self,
        request: &Parts,
        peer: Option<&[CertificateDer<'static>]>,
    ) -> Result<Arc<UserInfo>, Status> {
        let now = self.clock.now();
        let mut refused = false;
        if let Some(chain) = peer.filter(|c| !c.is_empty()) {
            match self.by_certificate(chain, now) {
                Some(user) => return Ok(user),
                None => refused = true,
            }
        }
        match bearer(&request.headers) {
            Ok(None) => {}
            Ok(Some(token)) => match self.tokens.authenticate(&token, &[], now) {
                Ok(Some(who)) => return Ok(who.user),
                Ok(None) => refused = true,
                Err(error) => {
                    tracing::debug!(%error, "token refused");
                    refused = true;
                }
            },
            Err(()) => refused = true,
        }
        match &self.anonymous {
            Some(nobody) if !refused => Ok(nobody.clone()),
            _ => Err(Status::unauthorized()),
        }
    }

    fn impersonate(
        &self,
        headers: &HeaderMap,
        attributes: &Attributes,
    ) -> Result<Option<Arc<UserInfo>>, Status> {
        impersonation::impersonate(headers, attributes, &self.authorizer)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn bearer_tokens() {
        let protocol = format!("v5.channel.k8s.io, {PROTOCOL}{}", URL_SAFE_NO_PAD.encode("tok"));
        let alone = format!("{PROTOCOL}{}", URL_SAFE_NO_PAD.encode("tok"));
        type Headers<'a> = &'a [(&'a str, &'a str)];
        let cases: [(Headers<'_>, Result<Option<&str>, ()>); 8] = [
            (&[], Ok(None)),
            (&[("authorization", "Bearer tok")], Ok(Some("tok"))),
            (&[("authorization", "bearer tok")], Ok(Some("tok"))),
            (&[("authorization", "Bearer ")], Ok(None)),
            (&[("authorization", "Basic dTpw")], Ok(None)),
            (&[("sec-websocket-protocol", &protocol)], Ok(Some("tok"))),
            (&[("sec-websocket-protocol", &alone)], Err(())),
            (&[("sec-websocket-protocol", "v4.channel.k8s.io")], Ok(None)),
        ];
        for (given, want) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.insert(
                    http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                    HeaderValue::from_str(value).unwrap(),
                );
            }
            assert_eq!(bearer(&headers), want.map(|o| o.map(Text::from)), "{given:?}");
        }
    }
}
