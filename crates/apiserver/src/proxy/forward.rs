//! Handing requests on: plain ones as a reverse proxy does, upgrades as bytes both ways.

use std::net::SocketAddr;

use api::Status;
use futures::{StreamExt, TryStreamExt};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, Limited, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::backend::Dialer;
use super::location::{Location, escape_path, unavailable};
use super::{html, sniff};
use crate::front::{Body, BodyError, full};
use crate::metrics::LongRunning;

/// The longest HTML page whose links are rewritten; a longer one is passed on as it is.
const MAX_HTML: usize = 4 << 20;

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
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
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

/// Where a proxied page lies, as its reader sees it.
pub(super) struct Place {
    /// The path in front of the backend's paths, without a trailing slash.
    pub(super) prefix: String,
    /// The backend's authority.
    pub(super) backend: String,
    /// The `Host` header of the request.
    pub(super) host: String,
}

impl Place {
    /// A link of the backend as it must read outside: absolute paths of the same host go through the proxy.
    pub(super) fn rewrite(&self, link: &str) -> Option<String> {
        let (host, path) = match link.split_once("://") {
            Some((scheme, rest))
                if scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) =>
            {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                (&rest[..end], &rest[end..])
            }
            _ => match link.strip_prefix("//") {
                Some(rest) => {
                    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                    (&rest[..end], &rest[end..])
                }
                None => ("", link),
            },
        };
        let other_host = !host.is_empty() && host != self.backend && host != self.host;
        if other_host || !path.starts_with('/') {
            return None;
        }
        // A backend that already knows its prefix writes it itself.
        if path.starts_with(&self.prefix) {
            Some(path.to_owned())
        } else {
            Some(format!("{}{path}", self.prefix))
        }
    }
}

/// Hands a request on and its answer back. `prefix` is set for the proxies, whose answers' links are
/// rewritten.
pub(super) async fn plain(
    dialer: &Dialer,
    location: &Location,
    request: Request<Incoming>,
    prefix: String,
) -> Result<Response<Body>, Status> {
    let mut headers = request.headers().clone();
    remove_hop_by_hop(&mut headers);
    forwarded_for(&request, &mut headers);
    let place = Place {
        prefix,
        backend: location.authority(),
        host: headers.get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default().to_owned(),
    };
    let uri = format!("{}{}", place.prefix, escape_path(&location.path));
    if let Ok(uri) = HeaderValue::from_str(&uri) {
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
    for name in ["credentials", "headers", "methods", "origin"] {
        parts.headers.remove(format!("access-control-allow-{name}"));
    }
    if let Some(target) = parts.headers.get(header::LOCATION) {
        if let Some(link) = target.to_str().ok().and_then(|link| place.rewrite(link))
            && let Ok(link) = HeaderValue::from_str(&link)
        {
            parts.headers.insert(header::LOCATION, link);
        }
    } else if is_html(&parts.headers) {
        return rewritten(parts, body, &place).await;
    }
    let named = [header::CONTENT_TYPE, header::CONTENT_ENCODING];
    if named.iter().any(|name| parts.headers.contains_key(name)) {
        return Ok(Response::from_parts(parts, Body::stream(body.map_err(Into::into))));
    }
    Ok(named_by_content(parts, body).await)
}

/// Gives an answer the content type that its first bytes have.
async fn named_by_content(mut parts: http::response::Parts, mut body: Incoming) -> Response<Body> {
    let first = body.frame().await;
    let data = first.as_ref().and_then(|f| f.as_ref().ok()).and_then(Frame::data_ref);
    if let Some(data) = data.filter(|d| !d.is_empty()) {
        parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(sniff::content_type(data)));
    }
    let frames = futures::stream::iter(first).chain(BodyStream::new(body)).map_err(BodyError::from);
    Response::from_parts(parts, Body::stream(StreamBody::new(frames)))
}

fn is_html(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim() == "text/html")
        && !headers.contains_key(header::CONTENT_ENCODING)
        && headers
            .get(header::CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.parse::<usize>().ok())
            .is_none_or(|length| length <= MAX_HTML)
}

async fn rewritten(
    mut parts: http::response::Parts,
    body: Incoming,
    place: &Place,
) -> Result<Response<Body>, Status> {
    let page = Limited::new(body, MAX_HTML)
        .collect()
        .await
        .map_err(|e| unavailable(format!("error trying to reach service: {e}")))?
        .to_bytes();
    let page = html::rewrite(&page, |link| place.rewrite(link));
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, full(page)))
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
    fn links() {
        let place = Place {
            prefix: "/api/v1/namespaces/n/pods/p/proxy".into(),
            backend: "10.0.0.1:80".into(),
            host: "localhost:8001".into(),
        };
        let check = |link: &str, expected: Option<&str>| {
            assert_eq!(place.rewrite(link).as_deref(), expected, "{link}");
        };
        check("/x/", Some("/api/v1/namespaces/n/pods/p/proxy/x/"));
        check("x/y", None);
        check("?q", None);
        check("#top", None);
        check("mailto:someone", None);
        check("http://10.0.0.1:80/x?q=1", Some("/api/v1/namespaces/n/pods/p/proxy/x?q=1"));
        check("//localhost:8001/x", Some("/api/v1/namespaces/n/pods/p/proxy/x"));
        check("https://elsewhere.example/x", None);
        check("/api/v1/namespaces/n/pods/p/proxy/x", Some("/api/v1/namespaces/n/pods/p/proxy/x"));
    }

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
    }
}
