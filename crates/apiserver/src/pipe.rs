//! The pipe: authentication → authorization → flow control → body → handler → answer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustls_pki_types::CertificateDer;
use streaming::websocket::is_websocket;

use crate::answer::Outcome;
use crate::auth::{Access, Decision, forbidden};
use crate::config::MAX_BODY;
use crate::front::{
    Body, Leash, add_warnings, full, header as header_of, outcome_response, read_body, status_response, text,
    throw_away, websocket,
};
use crate::handlers;
use crate::inner::Inner;
use crate::metrics::Permit;
use crate::negotiate::{self, Allowed, Form, Format};
use crate::proxy::Connect;
use crate::query::Query;
use crate::request::{Attributes, Request, RequestInfo, UserInfo};
use crate::{discovery, health, request_info, routes, snapshot};

/// Answers an HTTP request.
pub(crate) async fn http(
    inner: &Arc<Inner>,
    request: http::Request<Incoming>,
    peer: Option<&[CertificateDer<'static>]>,
    query: Query,
    info: RequestInfo,
    leash: &Arc<Leash>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let info = Arc::new(info);
    let (user, _permit) = match enter(inner, &parts, peer, &query, &info) {
        Ok(entered) => entered,
        Err(refused) => {
            throw_away(body, MAX_BODY).await;
            return *refused;
        }
    };
    if !info.is_resource {
        throw_away(body, MAX_BODY).await;
        if info.path == snapshot::PATH && parts.method == Method::GET {
            return snapshot::serve(inner).await;
        }
        return plain(inner, &parts, &query, &info);
    }
    if info.group.is_empty()
        && Connect::serves(&info.resource, &info.subresource)
        && let Some(connect) = inner.connect.get()
    {
        let running = inner.metrics.connect(&parts.method, &info);
        let attributes = Attributes { user, info };
        let mut request = http::Request::from_parts(parts, body);
        // What is taken over by an upgrade goes on when the answer is long sent.
        request.extensions_mut().insert(running.clone());
        let response = connect.handle(request, &attributes).await;
        return response.map(|body| {
            body.map_frame(move |frame| {
                let _until_the_end = &running;
                frame
            })
            .boxed()
        });
    }
    let accept = header_of(&parts, header::ACCEPT);
    let user_agent = header_of(&parts, header::USER_AGENT);
    let stream = info.verb == "watch";
    let form = match negotiate::output(&accept, &query, &user_agent, convertible(inner, &info), stream) {
        Ok(form) => form,
        Err(status) => {
            throw_away(body, MAX_BODY).await;
            return status_response(inner, &status, Form::JSON);
        }
    };
    let plain_form = Form { convert: negotiate::Convert::None, ..form };
    let body = if matches!(parts.method, Method::GET | Method::HEAD) {
        Ok(bytes::Bytes::new())
    } else {
        read_body(body).await
    };
    let body = match body {
        Ok(body) => body,
        Err(status) => return status_response(inner, &status, plain_form),
    };
    let request = Request {
        user,
        info,
        content_type: header_of(&parts, header::CONTENT_TYPE).into_owned(),
        accept: accept.into_owned(),
        user_agent: user_agent.into_owned(),
        query,
        body,
        ..Request::default()
    };
    let gzip = parts.method == Method::GET
        && header_of(&parts, header::ACCEPT_ENCODING).split(',').any(|e| e.trim().starts_with("gzip"));
    let result = dispatch(inner, &request).await;
    let warnings = std::mem::take(&mut *request.warnings.lock());
    match result {
        Ok(outcome) => {
            let info = &request.info;
            // What a WebSocket is sent outlives the HTTP connection, and so what ends it.
            let switched = matches!(outcome, Outcome::Watch(_)) && is_websocket(&parts.headers);
            let leash = if switched { &Arc::default() } else { leash };
            let encode = || outcome_response(inner, outcome, form, gzip, warnings, info, leash);
            let response = std::panic::catch_unwind(AssertUnwindSafe(encode))
                .unwrap_or_else(|_| status_response(inner, &panicked(info), Form::JSON));
            if !switched || !response.status().is_success() {
                return response;
            }
            let protobuf = form.format == Format::Protobuf;
            let request = http::Request::from_parts(parts, ());
            websocket::watch(request, response, Arc::clone(leash), protobuf)
        }
        Err(status) => {
            let mut response = status_response(inner, &status, plain_form);
            add_warnings(&mut response, warnings);
            response
        }
    }
}

/// Who sent a request, and its place among those under way; one that goes on has none.
type Entered = (Arc<UserInfo>, Option<Permit>);

/// Lets a caller in: it is known, it may, there is room for its request, and there is something at its path.
fn enter(
    inner: &Inner,
    parts: &http::request::Parts,
    peer: Option<&[CertificateDer<'static>]>,
    query: &Query,
    info: &Arc<RequestInfo>,
) -> Result<Entered, Box<Response<Body>>> {
    let refuse = |status: Status, form| Box::new(status_response(inner, &status, form));
    let form = || error_form(&header_of(parts, header::ACCEPT), query);
    let user = inner.auth.authenticator.authenticate(parts, peer).map_err(|e| refuse(e, Form::JSON))?;
    let attributes = Attributes { user: Arc::clone(&user), info: Arc::clone(info) };
    let other = inner.auth.authenticator.impersonate(&parts.headers, &attributes);
    let user = other.map_err(|e| refuse(e, Form::JSON))?.unwrap_or(user);
    authorize(inner, &user, info).map_err(|e| refuse(e, form()))?;
    let permit = if is_long_running(info) {
        None
    } else {
        let mutating = !matches!(parts.method, Method::GET | Method::HEAD);
        let permit = inner.metrics.enter(mutating, &inner.config);
        if permit.is_none() && !user.groups.iter().any(|g| g == "system:masters") {
            let mut response = text(429, "Too many requests, please try again later.\n");
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
            return Err(Box::new(response));
        }
        permit
    };
    if info.is_resource {
        routes::check(&inner.registry, &parts.method, &info.path).map_err(|e| refuse(e, form()))?;
    }
    Ok((user, permit))
}

/// Whether a request goes on until its client ends it: no limit of time or number applies.
pub(crate) fn is_long_running(info: &RequestInfo) -> bool {
    let connects = info.group.is_empty() && Connect::serves(&info.resource, &info.subresource);
    info.verb == "watch" || connects || info.path == snapshot::PATH
}

/// Handles a request; a defect that shows at it is its answer, not the end of the caller.
async fn dispatch(inner: &Arc<Inner>, request: &Request) -> Result<Outcome, Status> {
    let handled = AssertUnwindSafe(handlers::dispatch(inner, request)).catch_unwind().await;
    handled.unwrap_or_else(|_| Err(panicked(&request.info)))
}

/// The answer to a request at which a defect showed.
fn panicked(info: &RequestInfo) -> Status {
    tracing::error!(verb = info.verb, path = %info.path, "a request made the API server panic");
    let message = "This request caused apiserver to panic. Look in the logs for details.";
    Status::failure(500, "InternalError", message)
}

/// Answers a request of this process: the same pipe from authorization on.
pub(crate) async fn local(inner: &Arc<Inner>, request: &Request) -> Result<Outcome, Status> {
    authorize(inner, &request.user, &request.info)?;
    dispatch(inner, request).await
}

/// Answers a GET of this process for a path that is no resource.
pub(crate) async fn local_path(
    inner: &Arc<Inner>,
    user: &Arc<UserInfo>,
    path: &str,
) -> Result<Bytes, Status> {
    let request = http::Request::builder()
        .uri(path)
        .header(header::ACCEPT, "application/json")
        .body(())
        .map_err(|e| Status::bad_request(e.to_string()))?;
    let (parts, ()) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let info = Arc::new(request_info::parse(&parts.method, parts.uri.path(), &query)?);
    authorize(inner, user, &info)?;
    let response = plain(inner, &parts, &query, &info);
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.map_err(Status::internal)?.to_bytes();
    if code >= 400 {
        let text = String::from_utf8_lossy(&body).into_owned();
        return Err(if code == 404 { Status::no_such_resource() } else { Status::failure(code, "", text) });
    }
    Ok(body)
}

/// What a resource's answers can be turned into: upstream has no table for what is answered but not kept.
fn convertible(inner: &Inner, info: &RequestInfo) -> Allowed {
    let kept = |r: &Arc<crate::registry::Resource>| r.stored.is_some() || r.plural == "componentstatuses";
    let answered = matches!(&*info.subresource, "binding" | "eviction" | "token")
        || inner.registry.find(&info.group, &info.version, &info.resource).is_some_and(|r| !kept(r));
    if answered { Allowed::Partial } else { Allowed::Meta }
}

fn error_form(accept: &str, query: &Query) -> Form {
    negotiate::output(accept, query, "", Allowed::Meta, false)
        .map_or(Form::JSON, |f| Form { convert: negotiate::Convert::None, ..f })
}

/// Whether the caller may; upstream's 403 if not.
pub(crate) fn authorize(inner: &Inner, user: &Arc<UserInfo>, info: &Arc<RequestInfo>) -> Result<(), Status> {
    let attributes = Attributes { user: Arc::clone(user), info: Arc::clone(info) };
    match inner.auth.authorizer.authorize(&attributes) {
        Decision::Allow => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => {
            Err(forbidden(user, &Access::from(&**info), &reason))
        }
    }
}

/// Paths that are no resources.
fn plain(
    inner: &Arc<Inner>,
    parts: &http::request::Parts,
    query: &Query,
    info: &RequestInfo,
) -> Response<Body> {
    let path = info.path.as_str();
    let answer = health::serve(inner, path, query)
        .or_else(|| (path == "/metrics").then(|| inner.serve_metrics(&header_of(parts, header::ACCEPT))))
        .or_else(|| issuer_document(inner, path))
        .or_else(|| discovery::serve(inner, parts, path, query));
    // Upstream's mux leads every method to most of these.
    let any = discovery::of_aggregator(path)
        || ["/healthz", "/livez", "/readyz", "/metrics", "/openapi/"].iter().any(|p| path.starts_with(p));
    if answer.as_ref().is_some_and(|a| a.status() != 404)
        && !any
        && !matches!(parts.method, Method::GET | Method::HEAD)
    {
        return status_response(inner, &method_not_allowed(), Form::JSON);
    }
    answer.unwrap_or_else(|| text(404, "404 page not found\n"))
}

/// What others need to verify service account tokens.
fn issuer_document(inner: &Inner, path: &str) -> Option<Response<Body>> {
    let config = &inner.config;
    let address = config.advertise_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let server = format!("https://{}", SocketAddr::new(address, config.port));
    let (media_type, document) = inner.auth.reviewer.issuer_document(path, &server)?;
    let mut response = Response::new(full(Bytes::from(document)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("public, max-age=3600"));
    Some(response)
}

/// The 405 for a method that a path does not take.
pub(crate) fn method_not_allowed() -> Status {
    let mut status = Status::failure(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    status.details = Some(Box::default());
    status
}
