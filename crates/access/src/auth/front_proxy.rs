//! Front proxies: servers that name their callers in headers, as an API server does towards aggregated ones
//! (`--requestheader-*`). The headers count only from a server that shows a certificate of the proxies' own authority,
//! with an allowed name.

use std::collections::BTreeMap;

use api::Text;
use client::subject::subject;
use http::HeaderMap;
use http::header::HeaderName;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authorities::Authorities;
use super::groups::add_authenticated;
use crate::UserInfo;

/// The proxies that are believed, and the headers that they write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHeaders {
    /// The authorities of their certificates, PEM (`--requestheader-client-ca-file`).
    pub authorities_pem: String,
    /// Their names; any, if there are none (`--requestheader-allowed-names`).
    pub allowed_names: Vec<String>,
    /// Where the user's name stands, the first that is there (`--requestheader-username-headers`).
    pub username: Vec<String>,
    /// Where the user's uid stands (`--requestheader-uid-headers`).
    pub uid: Vec<String>,
    /// Where the user's groups stand, all together (`--requestheader-group-headers`).
    pub group: Vec<String>,
    /// How the names of headers begin that hold further attributes (`--requestheader-extra-headers-prefix`).
    pub extra_prefixes: Vec<String>,
}

impl RequestHeaders {
    /// The proxies of a cluster whose keys are its own: those that have the front proxy's certificate, with the usual
    /// headers.
    pub fn of_own(authority_pem: &str) -> Self {
        let one = |text: &str| vec![text.to_owned()];
        Self {
            authorities_pem: authority_pem.to_owned(),
            allowed_names: one("front-proxy-client"),
            username: one("X-Remote-User"),
            uid: one("X-Remote-Uid"),
            group: one("X-Remote-Group"),
            extra_prefixes: one("X-Remote-Extra-"),
        }
    }
}

/// Recognises the callers whom front proxies name.
pub(super) struct FrontProxy {
    authorities: Authorities,
    config: RequestHeaders,
    /// Whether uids count (the feature `RemoteRequestHeaderUID`).
    uid: bool,
}

impl FrontProxy {
    /// Proxies whose certificates are signed by these authorities, which count in place of the configuration's.
    pub(super) fn new(authorities: Authorities, config: RequestHeaders, uid: bool) -> Self {
        Self { authorities, config, uid }
    }

    /// The user that a proxy names; none if it names nobody. An error if the certificate is not a proxy's, or another
    /// reader could find another user in what it says.
    pub(super) fn authenticate(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'static>],
        now: Timestamp,
    ) -> Result<Option<UserInfo>, String> {
        let Some((leaf, intermediates)) = chain.split_first() else { return Ok(None) };
        self.authorities.verify(leaf, intermediates, now).map_err(|e| e.to_string())?;
        let (_, certificate) = X509Certificate::from_der(leaf).map_err(|e| e.to_string())?;
        let name = subject(certificate.subject().as_raw()).map_err(|e| e.to_string())?.common_name;
        let allowed = &self.config.allowed_names;
        if !allowed.is_empty() && !allowed.contains(&name) {
            return Err(format!("x509: subject with cn={name} is not in the allowed list"));
        }
        self.user(headers)
    }

    /// Whether a request has a header by which proxies name users.
    pub(super) fn is_used(&self, headers: &HeaderMap) -> bool {
        self.config.username.iter().any(|name| headers.contains_key(name.as_str()))
    }

    /// The user that headers name.
    fn user(&self, headers: &HeaderMap) -> Result<Option<UserInfo>, String> {
        let name = first(headers, &self.config.username)?;
        if name.is_empty() {
            return Ok(None);
        }
        let uid = if self.uid { first(headers, &self.config.uid)? } else { Text::default() };
        let mut groups = Vec::new();
        for header in &self.config.group {
            for value in headers.get_all(header.as_str()) {
                let group = text(value.as_bytes())?;
                if !group.is_empty() {
                    groups.push(group);
                }
            }
        }
        if name != "system:anonymous" {
            add_authenticated(&mut groups);
        }
        let mut extra: BTreeMap<Text, Vec<Text>> = BTreeMap::new();
        for prefix in &self.config.extra_prefixes {
            for header in headers.keys() {
                let Some(key) = after(header, prefix) else { continue };
                let values = headers.get_all(header).into_iter().map(|v| text(v.as_bytes()));
                extra.entry(unescaped(key)).or_default().extend(values.collect::<Result<Vec<_>, _>>()?);
            }
        }
        Ok(Some(UserInfo { name, uid, groups, extra }))
    }

    /// Removes the headers by which proxies name users.
    pub(super) fn remove(&self, headers: &mut HeaderMap) {
        let RequestHeaders { username, uid, group, extra_prefixes, .. } = &self.config;
        for name in username.iter().chain(uid).chain(group) {
            headers.remove(name.as_str());
        }
        let extra: Vec<HeaderName> = headers
            .keys()
            .filter(|name| extra_prefixes.iter().any(|p| after(name, p).is_some()))
            .cloned()
            .collect();
        for name in extra {
            headers.remove(name);
        }
    }
}

/// The value of the first of these headers that has one.
fn first(headers: &HeaderMap, names: &[String]) -> Result<Text, String> {
    for name in names {
        if let Some(value) = headers.get(name.as_str()).filter(|v| !v.is_empty()) {
            return text(value.as_bytes());
        }
    }
    Ok(Text::default())
}

fn text(bytes: &[u8]) -> Result<Text, String> {
    std::str::from_utf8(bytes)
        .map(Text::from)
        .map_err(|_| "a header that names a user is no UTF-8".to_owned())
}

/// The rest of a header's name after a prefix, whose case does not matter.
fn after<'h>(header: &'h HeaderName, prefix: &str) -> Option<&'h str> {
    let name = header.as_str();
    let start = name.get(..prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then(|| name.get(prefix.len()..)).flatten()
}

/// A key without percent signs; as it is, if it is not escaped well.
fn unescaped(key: &str) -> Text {
    let mut out = Vec::with_capacity(key.len());
    let mut bytes = key.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit =
            || bytes.next().and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        let (Some(high), Some(low)) = (digit(), digit()) else { return key.into() };
        out.push(high << 4 | low);
    }
    String::from_utf8(out).map_or_else(|_| key.into(), Text::from)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::pki::{Authority, Profile};

    fn headers(given: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn only_proxies_are_believed() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (own, stranger) =
            (Authority::generate("front-proxy-ca", now), Authority::generate("kubernetes", now));
        let (own, stranger) = (own.unwrap(), stranger.unwrap());
        let issue = |by: &Authority, profile: &Profile| vec![by.issue(profile, now).unwrap().certificate()];
        let proxy = Profile::client("front-proxy-client", None);
        let named = headers(&[("X-Remote-User", "ann"), ("X-Remote-Group", "a")]);
        let check = |allowed: &[&str],
                     chain: &[CertificateDer<'static>],
                     headers: &HeaderMap,
                     want: Result<Option<&str>, ()>| {
            let mut config = RequestHeaders::of_own(&own.certificate_pem);
            config.allowed_names = allowed.iter().map(|n| (*n).to_owned()).collect();
            let authorities = Authorities::parse(&config.authorities_pem).unwrap();
            let found = FrontProxy::new(authorities, config, true).authenticate(headers, chain, now);
            let found = found.as_ref().map(|u| u.as_ref().map(|u| u.name.as_str())).map_err(|_| ());
            assert_eq!(found, want);
        };
        let good = issue(&own, &proxy);
        check(&["front-proxy-client"], &good, &named, Ok(Some("ann")));
        check(&[], &good, &named, Ok(Some("ann")));
        check(&["another"], &good, &named, Err(()));
        check(&["front-proxy-client"], &good, &headers(&[("X-Remote-Group", "a")]), Ok(None));
        check(&["front-proxy-client"], &good, &headers(&[("X-Remote-User", "")]), Ok(None));
        check(&["front-proxy-client"], &[], &named, Ok(None));
        check(&["front-proxy-client"], &issue(&stranger, &proxy), &named, Err(()));
        let serving = Profile::serving("front-proxy-client", None, vec!["localhost".into()], vec![]);
        check(&["front-proxy-client"], &issue(&own, &serving), &named, Err(()));
    }

    #[test]
    fn users() {
        let mut config =
            RequestHeaders::of_own(&Authority::generate("a", Timestamp::UNIX_EPOCH).unwrap().certificate_pem);
        config.username.insert(0, "X-First".into());
        let authorities = Authorities::parse(&config.authorities_pem).unwrap();
        let proxies = |uid| FrontProxy::new(authorities.clone(), config.clone(), uid);
        let given = headers(&[
            ("X-Remote-User", "ann"),
            ("X-Remote-Uid", "7"),
            ("X-Remote-Group", "a"),
            ("X-Remote-Group", ""),
            ("X-Remote-Group", "b"),
            ("x-remote-extra-example.com%2fKey", "1"),
            ("x-remote-extra-example.com%2fkey", "2"),
            ("x-remote-extra-odd%zz", "3"),
            ("accept", "*/*"),
        ]);
        let user = proxies(true).user(&given).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("ann", "7"));
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        let extra: Vec<_> = user.extra.iter().map(|(k, v)| (k.as_str(), v.join(","))).collect();
        assert_eq!(extra, [("example.com/key", "1,2".into()), ("odd%zz", "3".into())]);
        assert_eq!(proxies(false).user(&given).unwrap().unwrap().uid, "");
        let both = headers(&[("X-Remote-User", "ann"), ("X-First", "bob")]);
        assert_eq!(proxies(true).user(&both).unwrap().unwrap().name, "bob");
        let mut left = given;
        proxies(true).remove(&mut left);
        assert_eq!(left, headers(&[("accept", "*/*")]));
        let mut odd = HeaderMap::new();
        odd.insert("x-remote-user", HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(proxies(true).user(&odd).is_err());
    }
}
