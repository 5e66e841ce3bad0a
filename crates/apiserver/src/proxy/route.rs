//! Requests for group versions for which another server answers: they are led there with the caller's name, and the
//! answer is led back, as upstream's aggregator does (`handler_proxy.go`).

use std::time::Duration;

use access::{Notes, UserInfo};
use http::header::{HeaderMap, HeaderValue, LOCATION};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use streaming::websocket::is_upgrade;
use tokio::time::timeout;

use super::forward::{empty, forwarded_for, remove_hop_by_hop};
use super::link;
use super::place::Place;
use crate::aggregated::{Answered, Elsewhere, SendError, name_caller, no_body};
use crate::front::{Body, text};

/// Upstream's answer while a server is not available.
const UNAVAILABLE: &str = "service unavailable\n";
/// The time that the document of a group version has, which clients read of every server; upstream's.
const DISCOVERY: Duration = Duration::from_secs(5);

/// The settings of requests that are led to others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    /// Whether the other server is told the caller's uid.
    pub(crate) uid: bool,
    /// Whether its redirects are kept from the client.
    pub(crate) reject_redirects: bool,
}

/// Leads a request to the other server that answers for it.
pub(crate) async fn lead(
    other: &Elsewhere,
    request: Request<Incoming>,
    user: &UserInfo,
    Told { uid, reject_redirects }: Told,
    notes: &Notes,
) -> Response<Body> {
    if !other.available {
        return text(503, UNAVAILABLE);
    }
    if let Some(defect) = other.backend.defect() {
        return text(500, format!("{defect}\n"));
    }
    let mut headers = request.headers().clone();
    forwarded_for(&request, &mut headers);
    if let Err(error) = name_caller(&mut headers, user, uid) {
        return failed(other, &SendError::Failed(error.into()));
    }
    let answer = if is_upgrade(&headers) {
        upgrade(other, request, headers).await
    } else {
        plain(other, request, headers, reject_redirects).await
    };
    answer.unwrap_or_else(|error| {
        if let SendError::Failed(failure) = &error
            && let Some(defect) = failure.defect
        {
            let (key, reason) = defect.annotation(&other.backend.endpoint().host());
            notes.annotate(&key, reason);
        }
        failed(other, &error)
    })
}

/// Upstream's answer where the other server gave none.
fn failed(other: &Elsewhere, error: &SendError) -> Response<Body> {
    let (group, version) = (&other.group, &other.version);
    tracing::debug!(%group, %version, %error, "an aggregated API server gave no answer");
    match error {
        SendError::Settings(why) => text(500, format!("{why}\n")),
        SendError::Unresolved(_) => text(503, UNAVAILABLE),
        SendError::Failed(why) => text(503, format!("error trying to reach service: {why}\n")),
    }
}

async fn plain(
    other: &Elsewhere,
    request: Request<Incoming>,
    mut headers: HeaderMap,
    reject_redirects: bool,
) -> Result<Response<Body>, SendError> {
    remove_hop_by_hop(&mut headers);
    let (parts, body) = request.into_parts();
    let body =
        if http_body::Body::is_end_stream(&body) { no_body() } else { body.map_err(Into::into).boxed() };
    let place = Place::of_server(other.backend.authority()?);
    // The path is the client's, which may be written in another way than Go writes it.
    let path = link::unescape(parts.uri.path()).unwrap_or_else(|_| parts.uri.path().into());
    for (name, value) in [("x-forwarded-uri", &place.outer(&path)), ("x-forwarded-host", &place.host)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
    let mut outgoing = Request::new(body);
    *outgoing.method_mut() = parts.method;
    *outgoing.uri_mut() = target(&parts.uri);
    *outgoing.headers_mut() = headers;
    let answer = other.backend.send(outgoing);
    let answer = if is_of_version(parts.uri.path()) {
        let late = |_| Err(SendError::Failed("context deadline exceeded".into()));
        timeout(DISCOVERY, answer).await.unwrap_or_else(late)
    } else {
        answer.await
    };
    Ok(passed_on(answer?, reject_redirects, &place).await)
}

/// The answer as the client gets it.
async fn passed_on(answer: Response<Answered>, reject_redirects: bool, place: &Place) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    // The client would ask the target with the credentials that it has for this server.
    if reject_redirects && parts.status.is_redirection() && parts.headers.contains_key(LOCATION) {
        return text(502, "the backend attempted to redirect this request, which is not permitted");
    }
    remove_hop_by_hop(&mut parts.headers);
    // They are this server's to give, and say which of its requests this was.
    parts.headers.remove("audit-id");
    match place.rewrite_answer(parts, body).await {
        Ok((parts, body)) => {
            let mut response = Response::new(body);
            (*response.status_mut(), *response.headers_mut()) = (parts.status, parts.headers);
            response
        }
        Err(why) => text(503, format!("Internal error occurred: {why}\n")),
    }
}

/// An answer that refuses an upgrade, as the client gets it: upstream hands these on as they are.
fn refused(answer: Response<Answered>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    parts.headers.remove("audit-id");
    let mut response = Response::new(Body::stream(body.map_err(Into::into)));
    (*response.status_mut(), *response.headers_mut()) = (parts.status, parts.headers);
    response
}

/// Whether a path is that of the document of a group version.
fn is_of_version(path: &str) -> bool {
    path.starts_with("/apis/") && path.trim_matches('/').split('/').count() == 3
}

/// Path and query of a URI.
fn target(uri: &http::Uri) -> http::Uri {
    uri.path_and_query().cloned().map_or_else(http::Uri::default, Into::into)
}

/// Hands an upgrade on: once the other server took it, bytes go both ways until one side ends.
async fn upgrade(
    other: &Elsewhere,
    mut request: Request<Incoming>,
    headers: HeaderMap,
) -> Result<Response<Body>, SendError> {
    let mut outgoing = Request::new(no_body());
    *outgoing.method_mut() = request.method().clone();
    *outgoing.uri_mut() = target(request.uri());
    *outgoing.headers_mut() = headers;
    let sent = other.backend.send(outgoing).await;
    let mut answer = match sent {
        // Upstream dials for upgrades by itself, and says so.
        Err(SendError::Failed(why)) => {
            return Ok(text(503, format!("error dialing backend: {why}\n")));
        }
        sent => sent?,
    };
    let status = answer.status();
    if status.as_u16() >= 400 {
        return Ok(refused(answer));
    }
    if status != StatusCode::SWITCHING_PROTOCOLS {
        let code = status.as_u16();
        return Ok(text(503, format!("invalid upgrade response: status code {code}\n")));
    }
    let (client, backend) = (hyper::upgrade::on(&mut request), hyper::upgrade::on(&mut answer));
    tokio::spawn(async move {
        // A client that went away before its upgrade has nothing to be carried.
        if let Ok((client, backend)) = tokio::try_join!(client, backend) {
            streaming::tunnel::bytes(TokioIo::new(client), TokioIo::new(backend)).await;
        }
    });
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = answer.headers().clone();
    Ok(response)
}
