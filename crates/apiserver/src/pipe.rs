//! The pipe: authentication → authorization → body → flow control → handler → answer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use streaming::websocket::is_websocket;
use tokio::time::Instant;

use crate::answer::Outcome;
use crate::auth::{Access, Decision, credentials, forbidden};
use crate::config::MAX_BODY;
use crate::flow::{Caller, Taken};
use crate::front::{
    Body, Leash, Peer, Unread, add_warnings, full, header as header_of, outcome_response, read_body,
    status_response, text, throw_away, websocket,
};
use crate::handlers;
use crate::inner::Inner;
use crate::negotiate::{self, Allowed, Form, Format};
use crate::proxy::Connect;
use crate::query::Query;
use crate::request::{Attributes, Request, RequestInfo, UserInfo};
use crate::{discovery, health, request_info, routes, snapshot, weight};

/// Answers an HTTP request, by its deadline.
pub(crate) async fn http(
    inner: &Arc<Inner>,
    request: http::Request<Incoming>,
    peer: &Peer,
    query: Query,
    info: RequestInfo,
    deadline: Option<Instant>,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let info = Arc::new(info);
    let user = match enter(inner, &mut parts, peer, &query, &info) {
        Ok(user) => user,
        Err(refused) => {
            throw_away(body, MAX_BODY).await;
            return *refused;
        }
    };
    let caller = inner.flow.caller(&user, &info);
    if !info.is_resource {
        throw_away(body, MAX_BODY).await;
        return path(inner, parts, query, info, caller, deadline).await;
    }
    if info.group.is_empty()
        && Connect::serves(&info.resource, &info.subresource)
        && let Some(connect) = inner.connect.get()
    {
        let mut request = http::Request::from_parts(parts, body);
        request.extensions_mut().insert(peer.address);
        return connected(inner, connect, request, Attributes { user, info }).await;
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
    let mutating = is_mutating(&parts.method);
    // No seat is taken by who is still sending; the room is, until the answer.
    let mut room = inner.flow.body(caller);
    let body = if mutating { read_body(body, &mut room).await } else { Ok(Bytes::new()) };
    let body = match body {
        Ok(body) => body,
        Err(Unread::NoRoom) => return too_many(),
        Err(Unread::Bad(status)) => return status_response(inner, &status, plain_form),
    };
    let Ok(_seat) = seat(inner, caller, mutating, &info) else { return too_many() };
    let request = Request {
        user,
        info,
        content_type: header_of(&parts, header::CONTENT_TYPE).into_owned(),
        accept: accept.into_owned(),
        user_agent: user_agent.into_owned(),
        query,
        body,
        deadline,
        ..Request::default()
    };
    let gzip = parts.method == Method::GET
        && header_of(&parts, header::ACCEPT_ENCODING).split(',').any(|e| e.trim().starts_with("gzip"));
    let Handled { result, warnings, info, long } = match handle(inner, request, caller).await {
        Ok(handled) => handled,
        Err(status) => return status_response(inner, &status, plain_form),
    };
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(status) => {
            let mut response = status_response(inner, &status, plain_form);
            add_warnings(&mut response, warnings);
            return response;
        }
    };
    // What a WebSocket is sent outlives the HTTP connection, and so what ends it.
    let switched = matches!(outcome, Outcome::Watch(_)) && is_websocket(&parts.headers);
    let leash = if switched { Arc::default() } else { Arc::clone(&peer.leash) };
    let answer = Answer { outcome, form, gzip, warnings, info, leash: Arc::clone(&leash) };
    let response = if long || weight::of_answer(&answer.outcome, form) {
        let own = Arc::clone(inner);
        let encoded = inner.lanes.run(caller.user(), deadline, async move { encode(&own, answer) }).await;
        encoded.unwrap_or_else(|status| status_response(inner, &status, plain_form))
    } else {
        encode(inner, answer)
    };
    if !switched || !response.status().is_success() {
        return response;
    }
    let protobuf = form.format == Format::Protobuf;
    websocket::watch(http::Request::from_parts(parts, ()), response, leash, protobuf)
}

/// What came of a request.
struct Handled {
    result: Result<Outcome, Status>,
    warnings: Vec<String>,
    info: Arc<RequestInfo>,
    /// It was long work, and so may the answer be.
    long: bool,
}

/// Handles a request, where long work is done if it is some.
async fn handle(inner: &Arc<Inner>, request: Request, caller: Caller) -> Result<Handled, Status> {
    let done = |request: Request, result, long| Handled {
        result,
        warnings: std::mem::take(&mut *request.warnings.lock()),
        info: request.info,
        long,
    };
    if !weight::of_request(inner, &request) {
        let result = dispatch(inner, &request).await;
        return Ok(done(request, result, false));
    }
    let (own, deadline) = (Arc::clone(inner), request.deadline);
    // Boxed, so that what waits for short work has no room for this as well.
    let work = Box::pin(async move {
        let result = dispatch(&own, &request).await;
        done(request, result, true)
    });
    inner.lanes.run(caller.user(), deadline, work).await
}

/// What is to be encoded, and how.
struct Answer {
    outcome: Outcome,
    form: Form,
    gzip: bool,
    warnings: Vec<String>,
    info: Arc<RequestInfo>,
    leash: Arc<Leash>,
}

fn encode(inner: &Arc<Inner>, answer: Answer) -> Response<Body> {
    let Answer { outcome, form, gzip, warnings, info, leash } = answer;
    let encode = || outcome_response(inner, outcome, form, gzip, warnings, &info, &leash);
    std::panic::catch_unwind(AssertUnwindSafe(encode))
        .unwrap_or_else(|_| status_response(inner, &panicked(&info), Form::JSON))
}

/// Answers at a path that is no resource.
async fn path(
    inner: &Arc<Inner>,
    parts: http::request::Parts,
    query: Query,
    info: Arc<RequestInfo>,
    caller: Caller,
    deadline: Option<Instant>,
) -> Response<Body> {
    let Ok(_seat) = seat(inner, caller, is_mutating(&parts.method), &info) else { return too_many() };
    if info.path == snapshot::PATH && parts.method == Method::GET {
        return snapshot::serve(inner).await;
    }
    // Documents are made when they are first asked for.
    if !info.path.starts_with("/openapi") {
        return plain(inner, &parts, &query, &info);
    }
    let own = Arc::clone(inner);
    let answer = async move { plain(&own, &parts, &query, &info) };
    let answer = inner.lanes.run(caller.user(), deadline, answer).await;
    answer.unwrap_or_else(|status| status_response(inner, &status, Form::JSON))
}

/// Hands a request on to what it is to be connected with.
async fn connected(
    inner: &Arc<Inner>,
    connect: &Connect,
    mut request: http::Request<Incoming>,
    attributes: Attributes,
) -> Response<Body> {
    let running = inner.metrics.connect(request.method(), &attributes.info);
    // What is taken over by an upgrade goes on when the answer is long sent.
    request.extensions_mut().insert(running.clone());
    let response = connect.handle(request, &attributes).await;
    response.map(|body| {
        body.map_frame(move |frame| {
            let _until_the_end = &running;
            frame
        })
        .boxed()
    })
}

/// Lets a caller in: it is known, it may, and there is something at its path. What it is known by is gone afterwards.
fn enter(
    inner: &Inner,
    parts: &mut http::request::Parts,
    peer: &Peer,
    query: &Query,
    info: &Arc<RequestInfo>,
) -> Result<Arc<UserInfo>, Box<Response<Body>>> {
    let refuse = |status: Status, form| Box::new(status_response(inner, &status, form));
    let user = inner.auth.authenticator.authenticate(parts, peer.certificates.as_deref());
    peer.is(user.as_deref().ok());
    let user = user.map_err(|e| refuse(e, Form::JSON))?;
    let attributes = Attributes { user: Arc::clone(&user), info: Arc::clone(info) };
    let other = inner.auth.authenticator.impersonate(&parts.headers, &attributes);
    credentials::remove(&mut parts.headers);
    let user = other.map_err(|e| refuse(e, Form::JSON))?.unwrap_or(user);
    let form = || error_form(&header_of(parts, header::ACCEPT), query);
    authorize(inner, &user, info).map_err(|e| refuse(e, form()))?;
    if info.is_resource {
        routes::check(&inner.registry, &parts.method, &info.path).map_err(|e| refuse(e, form()))?;
    }
    Ok(user)
}

fn is_mutating(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// A place among the requests that are handled, for one that needs it; an error if all are taken.
fn seat(inner: &Inner, caller: Caller, mutating: bool, info: &RequestInfo) -> Result<Option<Taken>, ()> {
    if is_long_running(info) {
        return Ok(None);
    }
    inner.flow.seat(caller, mutating).map(Some).ok_or(())
}

/// Upstream's answer to a request for which there is no place.
fn too_many() -> Response<Body> {
    let mut response = text(429, "Too many requests, please try again later.\n");
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    response
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
