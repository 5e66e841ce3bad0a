//! Handing requests on: plain ones as a reverse proxy does, upgrades as bytes both ways.

use std::net::SocketAddr;

use api::Status;
use futures::{StreamExt, TryStreamExt};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::backend::Dialer;
use super::location::{Location, unavailable};
use super::place::Place;
use super::sniff;
use crate::front::{Body, BodyError, full};
use crate::metrics::LongRunning;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Headers of one connection, not of what it carries (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|v| v.as_bytes().split(|b| *b == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    let mut te = headers.get_all(header::TE).iter().flat_map(|v| v.as_bytes().split(|b| *b == b','));
    let trailers = te.any(|part| part.trim_ascii().eq_ignore_ascii_case(b"trailers"));
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    // A client that reads trailers reads those of the backend, too.
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Adds the client's address to those before it.
pub(super) fn forwarded_for(request: &Request<Incoming>, headers: &mut HeaderMap) {
    let Some(peer) = request.extensions().get::<SocketAddr>() else { return };
    let ip = peer.ip().to_canonical().to_string();
    let before = headers.get_all(&X_FORWARDED_FOR).into_iter().map(HeaderValue::as_bytes);
    let chain = before.chain([ip.as_bytes()]).collect::<Vec<_>>().join(&b", "[..]);
    if let Ok(value) = HeaderValue::from_bytes(&chain) {
        headers.insert(X_FORWARDED_FOR, value);
    }
}

/// Hands a request on and its answer back. `prefix` is the path in front of the backend's, not escaped.
pub(super) async fn plain(
    dialer: &Dialer,
    location: &Location,
    request: Request<Incoming>,
    prefix: Vec<u8>,
) -> Result<Response<Body>, Status> {
    let mut headers = request.headers().clone();
    remove_hop_by_hop(&mut headers);
    forwarded_for(&request, &mut headers);
    let place = Place {
        prefix,
        backend: [location.authority(), location.usual_authority()],
        asked: headers.get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default().to_owned(),
        ..Place::default()
    };
    if let Ok(uri) = HeaderValue::from_str(&place.outer(location.path.as_bytes())) {
        headers.insert("x-forwarded-uri", uri);
    }
    let (parts, body) = request.into_parts();
    let mut outgoing = Request::new(Body::stream(body.map_err(Into::into)));
    *outgoing.method_mut() = parts.method;
    *outgoing.headers_mut() = headers;
    let answer = dialer
        .send(location, outgoing)
        .await
        .map_err(|e| unavailable(format!("error trying to reach service: {e}")))?;
    let (mut parts, body) = answer.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    let (parts, body) = place.rewrite_answer(parts, body).await.map_err(Status::internal)?;
    let named = [header::CONTENT_TYPE, header::CONTENT_ENCODING];
    if named.iter().any(|name| parts.headers.contains_key(name)) {
        return Ok(Response::from_parts(parts, body));
    }
    Ok(named_by_content(parts, body).await)
}

/// Gives an answer the content type that its first bytes have.
async fn named_by_content(mut parts: http::response::Parts, mut body: Body) -> Response<Body> {
    let first = body.frame().await;
    let data = first.as_ref().and_then(|f| f.as_ref().ok()).and_then(Frame::data_ref);
    if let Some(data) = data.filter(|d| !d.is_empty()) {
        parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(sniff::content_type(data)));
    }
    let frames = futures::stream::iter(first).chain(BodyStream::new(body)).map_err(BodyError::from);
    Response::from_parts(parts, Body::stream(StreamBody::new(frames)))
}

/// Hands an upgrade on: once the backend took it, bytes go both ways until one side ends.
pub(super) async fn upgrade(
    dialer: &Dialer,
    location: &Location,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Status> {
    let mut headers = request.headers().clone();
    forwarded_for(&request, &mut headers);
    let mut outgoing = Request::new(empty());
    *outgoing.method_mut() = request.method().clone();
    *outgoing.headers_mut() = headers;
    let mut answer = dialer.send(location, outgoing).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(answer);
    }
    let client = hyper::upgrade::on(&mut request);
    let running = request.extensions().get::<LongRunning>().cloned();
    let backend = hyper::upgrade::on(&mut answer);
    let dialer = dialer.clone();
    tokio::spawn(async move {
        let _until_the_end = running;
        // A client that went away before its upgrade has nothing to be carried.
        if let Ok((client, backend)) = tokio::try_join!(client, backend) {
            streaming::tunnel::bytes(TokioIo::new(client), dialer.paced(backend)).await;
        }
    });
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = answer.headers().clone();
    Ok(response)
}

/// The answer of a backend that did not take an upgrade.
pub(super) fn refused(answer: Response<Incoming>) -> Result<Response<Body>, Status> {
    if answer.status().as_u16() < 400 {
        let code = answer.status().as_u16();
        return Err(Status::failure(500, "", format!("invalid upgrade response: status code {code}")));
    }
    let (mut parts, body) = answer.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    Ok(Response::from_parts(parts, Body::stream(body.map_err(Into::into))))
}

/// No body.
pub(super) fn empty() -> Body {
    full("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("connection", "keep-alive, X-Mine"), ("x-mine", "1"), ("upgrade", "h2c"), ("accept", "*/*")]
        {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        remove_hop_by_hop(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
        headers.insert(header::TE, HeaderValue::from_static("deflate, Trailers"));
        remove_hop_by_hop(&mut headers);
        assert_eq!(headers[header::TE], "trailers");
    }
}
