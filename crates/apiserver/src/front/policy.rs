//! The headers by which browsers know what they may do, and connections that are to be made anew.

use std::fmt;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode, Version};

use super::body::{Body, full};
use super::peer::Peer;
use crate::config::Serving;

/// The methods that scripts of an allowed origin may use; upstream's list.
const METHODS: &str = "POST, GET, OPTIONS, PUT, DELETE, PATCH";
/// The headers that such scripts may send; upstream's list.
const SENT: &str = "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since";
/// The headers of an answer that such scripts may read; upstream's list.
const READ: &str = "Date";

/// Whether an origin matches an expression.
type Matches = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// The policy of a server towards browsers, and towards connections that last.
#[derive(Default)]
pub(crate) struct Policy {
    transport_security: Option<HeaderValue>,
    origins: Vec<Matches>,
    goaway_chance: f64,
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("origins", &self.origins.len()).finish_non_exhaustive()
    }
}

impl Policy {
    /// By the configuration.
    ///
    /// # Errors
    /// An expression or a directive cannot be used.
    pub(crate) fn new(serving: &Serving) -> Result<Self, String> {
        let compile = |pattern: &String| -> Result<Matches, String> {
            let compiled = api::re2::compile(pattern)
                .map_err(|why| format!("--cors-allowed-origins has an invalid regular expression: {why}"))?;
            Ok(Box::new(move |origin: &str| compiled.is_match(origin)) as Matches)
        };
        let directives = serving.transport_security.join("; ");
        let directives = Some(directives).filter(|d| !d.is_empty());
        let transport_security = directives.map(|d| HeaderValue::from_str(&d)).transpose();
        Ok(Self {
            transport_security: transport_security.map_err(|_| {
                "--strict-transport-security-directives cannot stand in a header; leave out what is no ASCII"
            })?,
            origins: serving.origins.iter().map(compile).collect::<Result<_, String>>()?,
            goaway_chance: if serving.http2 { serving.goaway_chance } else { 0.0 },
        })
    }

    /// The origin of a request whose scripts may read the answer.
    pub(super) fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.origins.is_empty() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?;
        let text = std::str::from_utf8(origin.as_bytes()).ok().filter(|text| !text.is_empty())?;
        self.origins.iter().any(|matches| matches(text)).then(|| origin.clone())
    }

    /// The answer to a browser that asks what scripts of an origin may do.
    pub(super) fn preflight(method: &Method) -> Option<Response<Body>> {
        (method == Method::OPTIONS).then(|| {
            let mut response = Response::new(full(bytes::Bytes::new()));
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        })
    }

    /// Has a connection of HTTP/2 be made anew for a part of the requests, each of which is still answered.
    pub(super) fn part_with(&self, version: Version, peer: &Peer) {
        if version == Version::HTTP_2 && self.goaway_chance > 0.0 && fastrand::f64() < self.goaway_chance {
            peer.lifetime.farewell();
        }
    }

    /// Adds the headers for the scripts of an origin.
    pub(super) fn let_in(origin: Option<HeaderValue>, headers: &mut HeaderMap) {
        let Some(origin) = origin else { return };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let fixed: [(HeaderName, &'static str); 4] = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, SENT),
            (header::ACCESS_CONTROL_EXPOSE_HEADERS, READ),
            (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
        ];
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }

    /// Adds the headers of every answer.
    pub(super) fn tell(&self, headers: &mut HeaderMap) {
        if let Some(directives) = &self.transport_security {
            headers.entry(header::STRICT_TRANSPORT_SECURITY).or_insert_with(|| directives.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_that_are_let_in() {
        let policy = |patterns: &[&str]| {
            let origins = patterns.iter().map(|p| (*p).to_owned()).collect();
            Policy::new(&Serving { origins, ..Serving::default() })
        };
        let check = |patterns: &[&str], origin: &str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
            let let_in = policy(patterns).unwrap().origin(&headers);
            assert_eq!(let_in.is_some(), expected, "{patterns:?} {origin}");
        };
        check(&[], "http://example.com", false);
        check(&[r"//example\.com$"], "http://example.com", true);
        check(&[r"//example\.com$"], "https://example.com", true);
        check(&[r"//example\.com$"], "https://example.com:8443", false);
        check(&[r"//example\.com(:|$)"], "https://example.com:8443", true);
        check(&[r"//example\.com$"], "https://not-example.com", false);
        check(&[r"^https://a\.b$", r"//c\.d:"], "http://c.d:80", true);
        assert!(policy(&["(//a$"]).unwrap_err().contains("missing closing )"));
    }

    #[test]
    fn directives_of_transport_security() {
        let directives = ["max-age=31536000", "includeSubDomains"].map(str::to_owned).to_vec();
        let policy = Policy::new(&Serving { transport_security: directives, ..Serving::default() }).unwrap();
        let mut headers = HeaderMap::new();
        policy.tell(&mut headers);
        assert_eq!(headers[header::STRICT_TRANSPORT_SECURITY], "max-age=31536000; includeSubDomains");
        let mut none = HeaderMap::new();
        Policy::default().tell(&mut none);
        assert!(none.is_empty());
    }
}
