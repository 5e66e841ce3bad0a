//! Callers of a component's own endpoint by the certificates that they show: clients of the cluster's authorities, and
//! those whom front proxies name.

use http::HeaderMap;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authenticator::certificate_user;
use super::authorities::{Authorities, ClientCaError};
use super::front_proxy::{FrontProxy, RequestHeaders};
use crate::UserInfo;

/// The authorities of clients and the front proxies that are believed; nobody by default.
#[derive(Default)]
pub struct Peers {
    clients: Option<Authorities>,
    proxies: Option<FrontProxy>,
}

impl Peers {
    /// Those whose certificates these authorities signed, PEM, and those whom these front proxies name; with `uid` their
    /// uids count.
    ///
    /// # Errors
    /// Authorities are given, and there are none, or one of them is no authority.
    pub fn new(
        clients: Option<&str>,
        proxies: Option<RequestHeaders>,
        uid: bool,
    ) -> Result<Self, ClientCaError> {
        let proxy = |headers: RequestHeaders| {
            Ok(FrontProxy::new(Authorities::parse(&headers.authorities_pem)?, headers, uid))
        };
        Ok(Self {
            clients: clients.map(Authorities::parse).transpose()?,
            proxies: proxies.map(proxy).transpose()?,
        })
    }

    /// The caller with a chain of certificates, its own first. The headers by which proxies name users are removed in
    /// any case. `None` if the chain is nobody's, or empty.
    pub fn user(
        &self,
        headers: &mut HeaderMap,
        chain: &[CertificateDer<'static>],
        now: Timestamp,
    ) -> Option<UserInfo> {
        let named = self.proxies.as_ref().and_then(|proxies| {
            let named = proxies.authenticate(headers, chain, now);
            proxies.remove(headers);
            named
                .inspect_err(|error| tracing::trace!(%error, "a client certificate is not a front proxy's"))
                .ok()?
        });
        named.or_else(|| self.client(chain, now))
    }

    fn client(&self, chain: &[CertificateDer<'static>], now: Timestamp) -> Option<UserInfo> {
        let (leaf, intermediates) = chain.split_first()?;
        if let Err(error) = self.clients.as_ref()?.verify(leaf, intermediates, now) {
            tracing::debug!(%error, "client certificate refused");
            return None;
        }
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        certificate_user(&certificate, &Sha256::digest(leaf).into())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::pki::{Authority, Profile};

    #[test]
    fn callers() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let [clients, proxies, other] =
            ["kubernetes", "front-proxy-ca", "other"].map(|name| Authority::generate(name, now).unwrap());
        let issue = |by: &Authority, name: &str| {
            vec![by.issue(&Profile::client(name, None), now).unwrap().certificate()]
        };
        let both =
            (Some(clients.certificate_pem.as_str()), Some(RequestHeaders::of_own(&proxies.certificate_pem)));
        let check = |chain: &[CertificateDer<'static>], named: bool, want: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert("accept", HeaderValue::from_static("*/*"));
            if named {
                headers.insert("x-remote-user", HeaderValue::from_static("ann"));
            }
            let peers = Peers::new(both.0, both.1.clone(), true).unwrap();
            let user = peers.user(&mut headers, chain, now);
            assert_eq!(user.as_ref().map(|user| user.name.as_str()), want);
            assert_eq!(headers.len(), 1, "headers that name users are removed");
            assert!(Peers::default().user(&mut headers, chain, now).is_none());
        };
        check(&[], true, None);
        check(&issue(&clients, "bob"), false, Some("bob"));
        check(&issue(&clients, "bob"), true, Some("bob"));
        check(&issue(&clients, "front-proxy-client"), true, Some("front-proxy-client"));
        check(&issue(&proxies, "front-proxy-client"), true, Some("ann"));
        check(&issue(&proxies, "front-proxy-client"), false, None);
        check(&issue(&proxies, "bob"), true, None);
        check(&issue(&other, "bob"), true, None);
        assert!(Peers::new(Some("nothing"), None, true).is_err());
    }
}
