//! SPDY/3.1 as Go's `spdystream` speaks it.
//!
//! `DIFFERENCE` from the SPDY draft, shared with `spdystream`: windows are not counted. That peer
//! never sends WINDOW_UPDATE and ignores those it gets, so a sender that waited for them would
//! stop after 64 KiB. Back-pressure is the byte stream's own: a stream whose reader is slow holds
//! up its connection.

mod connection;
mod dictionary;
mod frame;
mod headers;

use http::header::{self, CONNECTION, HeaderMap, HeaderName, HeaderValue};

pub use connection::{Acceptor, Connection, ReadHalf, Role, Stream, StreamError, WriteHalf};
pub use frame::{Decoder, Encoder, Frame, FrameError};

/// The value of the `Upgrade` header.
pub const UPGRADE: &str = "SPDY/3.1";

/// The header by which SPDY's subprotocol is asked for and chosen.
pub const PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// The headers of a request for SPDY, with the subprotocols from which the server may choose.
pub fn request_headers<'a>(protocols: impl IntoIterator<Item = &'a str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(UPGRADE));
    for value in protocols.into_iter().filter_map(|name| HeaderValue::from_str(name).ok()) {
        headers.append(PROTOCOL, value);
    }
    headers
}

/// Headers of a stream: names in lower case, in the order they were sent.
pub type Headers = Vec<(String, String)>;

/// The value of a header; names compare without regard to case.
pub fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
}
