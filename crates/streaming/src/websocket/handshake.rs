//! The opening handshake; pure.

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use thiserror::Error;

/// The constant of RFC 6455, section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The reason for which a handshake is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum HandshakeError {
    /// The request does not ask for a WebSocket.
    #[error("not a websocket request")]
    NotWebSocket,
    /// The request asks for another version than 13.
    #[error("missing or bad WebSocket Version")]
    Version,
    /// The request has no key.
    #[error("missing or bad WebSocket key")]
    Key,
    /// None of the request's subprotocols is served.
    #[error("requested protocol(s) are not supported: [{requested}]; supports [{supported}]")]
    Protocol {
        /// The requested subprotocols.
        requested: String,
        /// The served subprotocols.
        supported: String,
    },
}

/// An accepted handshake.
#[derive(Debug, PartialEq, Eq)]
pub struct Accept {
    /// The chosen subprotocol, "" for none.
    pub protocol: String,
    /// The headers of the 101 answer.
    pub headers: HeaderMap,
}

/// Whether a request asks for an upgrade of any kind.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let named =
        |value: &HeaderValue| value.as_bytes().to_ascii_lowercase().windows(7).any(|w| w == b"upgrade");
    headers.get_all(CONNECTION).iter().any(named)
}

/// Whether a request asks for a WebSocket.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && is_upgrade(headers)
}

/// The subprotocols that a request asks for, in its order. A name that is no text is replaced by one that nobody
/// serves.
pub fn requested_protocols(headers: &HeaderMap) -> Vec<&str> {
    let all = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    all.flat_map(|v| v.as_bytes().split(|b| *b == b','))
        .map(|p| std::str::from_utf8(p.trim_ascii()).unwrap_or("\u{fffd}"))
        .filter(|p| !p.is_empty())
        .collect()
}

/// Chooses the client's first subprotocol that is served ("" stands for a request without one) and
/// makes the answer's headers.
pub fn accept(headers: &HeaderMap, supported: &[&str]) -> Result<Accept, HandshakeError> {
    if !is_websocket(headers) {
        return Err(HandshakeError::NotWebSocket);
    }
    if headers.get(SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes) != Some(b"13") {
        return Err(HandshakeError::Version);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or(HandshakeError::Key)?;
    if !STANDARD.decode(key.as_bytes()).is_ok_and(|k| k.len() == 16) {
        return Err(HandshakeError::Key);
    }
    let requested = requested_protocols(headers);
    let wanted = if requested.is_empty() { vec![""] } else { requested.clone() };
    let protocol = *wanted.iter().find(|p| supported.contains(p)).ok_or_else(|| {
        HandshakeError::Protocol { requested: requested.join(" "), supported: supported.join(" ") }
    })?;
    let mut answer = HeaderMap::new();
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(value) = HeaderValue::from_str(&accept_key(key.as_bytes())) {
        answer.insert(SEC_WEBSOCKET_ACCEPT, value);
    }
    if !protocol.is_empty()
        && let Ok(value) = HeaderValue::from_str(protocol)
    {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
    Ok(Accept { protocol: protocol.to_owned(), headers: answer })
}

fn accept_key(key: &[u8]) -> String {
    // The RFC's choice; it authenticates nothing.
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(GUID);
    STANDARD.encode(hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(protocols: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, HeaderValue::from_static("WebSocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        if !protocols.is_empty() {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(protocols).unwrap());
        }
        headers
    }

    #[test]
    fn key_of_the_rfc() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn chooses_the_clients_first() {
        let check = |asked: &str, served: &[&str], chosen: Option<&str>| {
            let got = accept(&request(asked), served).map(|a| a.protocol);
            assert_eq!(got.as_deref().ok(), chosen, "{asked} of {served:?}");
        };
        check("a, b", &["b", "a"], Some("a"));
        check("x,b", &["a", "b"], Some("b"));
        check("x", &["a"], None);
        check("", &["", "a"], Some(""));
        check("", &["a"], None);
    }

    #[test]
    fn what_is_no_text_is_not_left_out() {
        let check = |asked: &[u8], expected: &[&str]| {
            let mut headers = HeaderMap::new();
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_bytes(asked).unwrap());
            assert_eq!(requested_protocols(&headers), expected);
        };
        check(b"a, \xff,b", &["a", "\u{fffd}", "b"]);
        check("ü".as_bytes(), &["ü"]);
        let mut headers = request("");
        headers.insert(CONNECTION, HeaderValue::from_bytes(b"\xff, Upgrade").unwrap());
        assert!(is_upgrade(&headers));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(accept(&headers, &["", "a"]).is_err());
    }

    #[test]
    fn refuses() {
        let mut headers = request("");
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("8"));
        assert_eq!(accept(&headers, &[""]), Err(HandshakeError::Version));
        let mut headers = request("");
        headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static("short"));
        assert_eq!(accept(&headers, &[""]), Err(HandshakeError::Key));
        let mut headers = request("");
        headers.remove(CONNECTION);
        assert_eq!(accept(&headers, &[""]), Err(HandshakeError::NotWebSocket));
    }
}
