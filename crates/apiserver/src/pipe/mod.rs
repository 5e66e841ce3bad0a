//! The pipe: authentication → impersonation → flow control → authorization → body → handler → answer.

mod connect;
mod paths;
mod stages;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use access::auth::Access;
use access::{Query, RequestInfo, UserInfo, request_info};
use api::Status;
use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::{Method, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use streaming::websocket::is_websocket;

#[cfg(test)]
pub(crate) use self::connect::admit as admit_connect;
use self::stages::TooMany;
pub(crate) use self::stages::authorize;
use crate::answer::Outcome;
use crate::config::MAX_BODY;
use crate::front::{
    Body, Leash, Peer, Unread, header as header_of, outcome_response, read_body, status_response, text,
    throw_away, websocket,
};
use crate::handlers;
use crate::inner::Inner;
use crate::lanes;
use crate::negotiate::{self, Allowed, Form, Format};
use crate::proxy::Connect;
use crate::registry::Resource;
use crate::request::Request;
use crate::{routes, snapshot, weight};

/// Answers an HTTP request, by its deadline.
pub(crate) async fn http(
    inner: &Arc<Inner>,
    request: http::Request<Incoming>,
    peer: &Peer,
    ctx: &mut Request,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let sent = http_body::Body::is_end_stream(&body);
    if let Err(refused) = enter(inner, ctx, &mut parts, peer, sent).await {
        throw_away(body, MAX_BODY).await;
        return *refused;
    }
    if !ctx.info.is_resource {
        throw_away(body, MAX_BODY).await;
        let Ok(()) = stages::take_seat(inner, ctx) else { return too_many() };
        return paths::answer(inner, parts, ctx).await;
    }
    if connects(&ctx.info)
        && let Some(connect) = inner.connect.get()
    {
        let mut request = http::Request::from_parts(parts, body);
        request.extensions_mut().insert(peer.address);
        return connect::answer(inner, connect, request, ctx).await;
    }
    resource(inner, parts, body, peer, ctx).await
}

/// Lets a caller in: it is known, there is a place for it, it may, and there is something at its path. What it is
/// known by is gone afterwards.
async fn enter(
    inner: &Inner,
    ctx: &mut Request,
    parts: &mut Parts,
    peer: &Peer,
    sent: bool,
) -> Result<(), Box<Response<Body>>> {
    let refuse = |status: Status, form| Box::new(status_response(inner, &status, form));
    stages::authenticate(inner, ctx, parts, peer).await.map_err(|e| refuse(e, Form::JSON))?;
    stages::impersonate(inner, ctx, parts).await.map_err(|e| refuse(e, Form::JSON))?;
    stages::control_flow(inner, ctx, sent).map_err(|TooMany| Box::new(too_many()))?;
    let allowed = authorize(inner, &ctx.user, &Access::from(&*ctx.info)).await;
    let there = || {
        if ctx.info.is_resource {
            routes::check(&parts.method, &ctx.info, ctx.resource.as_deref())
        } else {
            Ok(())
        }
    };
    let form = || error_form(&header_of(parts, header::ACCEPT), &ctx.query);
    allowed.and_then(|()| there()).map_err(|e| refuse(e, form()))
}

/// Answers a request for a resource.
async fn resource(
    inner: &Arc<Inner>,
    parts: Parts,
    body: Incoming,
    peer: &Peer,
    ctx: &mut Request,
) -> Response<Body> {
    let accept = header_of(&parts, header::ACCEPT);
    let user_agent = header_of(&parts, header::USER_AGENT);
    let allowed = convertible(&ctx.info, ctx.resource.as_deref());
    let form = match negotiate::output(&accept, &ctx.query, &user_agent, allowed, ctx.info.verb == "watch") {
        Ok(form) => form,
        Err(status) => {
            throw_away(body, MAX_BODY).await;
            return status_response(inner, &status, Form::JSON);
        }
    };
    let plain_form = Form { convert: negotiate::Convert::None, ..form };
    if ctx.mutating {
        // No seat is taken by who is still sending; the room is, until the answer.
        let room = ctx.room.insert(inner.flow.body(ctx.caller));
        ctx.body = match read_body(body, room).await {
            Ok(body) => body,
            Err(Unread::NoRoom) => return too_many(),
            Err(Unread::Bad(status)) => return status_response(inner, &status, plain_form),
        };
    }
    let Ok(()) = stages::take_seat(inner, ctx) else { return too_many() };
    ctx.content_type = header_of(&parts, header::CONTENT_TYPE).into_owned();
    (ctx.accept, ctx.user_agent) = (accept.into_owned(), user_agent.into_owned());
    let gzip = parts.method == Method::GET
        && header_of(&parts, header::ACCEPT_ENCODING).split(',').any(|e| e.trim().starts_with("gzip"));
    let long = weight::of_request(inner, ctx);
    let outcome = match handle(inner, ctx, long).await {
        Ok(outcome) => outcome,
        Err(status) => return status_response(inner, &status, plain_form),
    };
    // What a WebSocket is sent outlives the HTTP connection, and so what ends it.
    let switched = matches!(outcome, Outcome::Watch(_)) && is_websocket(&parts.headers);
    let leash = if switched { Arc::default() } else { Arc::clone(&peer.leash) };
    let answer = Answer { outcome, form, gzip, info: Arc::clone(&ctx.info), leash: Arc::clone(&leash) };
    let response = if long || weight::of_answer(&answer.outcome, form) {
        let own = Arc::clone(inner);
        let encoded = async move { encode(&own, answer) };
        let encoded = inner.lanes.run(ctx.caller.user(), ctx.deadline, encoded).await;
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

/// Handles a request, where long work is done if it is some.
async fn handle(inner: &Arc<Inner>, ctx: &mut Request, long: bool) -> Result<Outcome, Status> {
    if !long {
        return dispatch(inner, ctx).await;
    }
    let (own, user, deadline) = (Arc::clone(inner), ctx.caller.user(), ctx.deadline);
    let stand_in = ctx.stand_in();
    let request = std::mem::replace(ctx, stand_in);
    // Boxed, so that what waits for short work has no room for this as well.
    let work = Box::pin(async move {
        let result = dispatch(&own, &request).await;
        (request, result)
    });
    let (request, result) = inner.lanes.run(user, deadline, work).await?;
    *ctx = request;
    result
}

/// What is to be encoded, and how.
struct Answer {
    outcome: Outcome,
    form: Form,
    gzip: bool,
    info: Arc<RequestInfo>,
    leash: Arc<Leash>,
}

fn encode(inner: &Arc<Inner>, answer: Answer) -> Response<Body> {
    let Answer { outcome, form, gzip, info, leash } = answer;
    let encode = || outcome_response(inner, outcome, form, gzip, &info, &leash);
    std::panic::catch_unwind(AssertUnwindSafe(encode))
        .unwrap_or_else(|_| status_response(inner, &panicked(&info), Form::JSON))
}

/// Upstream's answer to a request for which there is no place.
fn too_many() -> Response<Body> {
    let mut response = text(429, "Too many requests, please try again later.\n");
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    response
}

/// Whether a request goes on until its client ends it: no limit of time or number applies.
pub(crate) fn is_long_running(info: &RequestInfo) -> bool {
    info.verb == "watch" || connects(info) || info.path == snapshot::PATH
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

/// Whether a request is connected with something else.
fn connects(info: &RequestInfo) -> bool {
    info.group.is_empty() && Connect::serves(&info.resource, &info.subresource)
}

/// Answers a request of this process, whose caller is known: the same stages from flow control on.
pub(crate) async fn local(inner: &Arc<Inner>, ctx: &mut Request) -> Result<Outcome, Status> {
    stages::wait_for_seat(inner, ctx).await.map_err(|TooMany| lanes::too_many())?;
    authorize(inner, &ctx.user, &Access::from(&*ctx.info)).await?;
    dispatch(inner, ctx).await
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
    let info = request_info::parse(&parts.method, parts.uri.path(), &query)?;
    let mut ctx = Request::new(info, None, query, None);
    ctx.user = Arc::clone(user);
    stages::wait_for_seat(inner, &mut ctx).await.map_err(|TooMany| lanes::too_many())?;
    authorize(inner, &ctx.user, &Access::from(&*ctx.info)).await?;
    let response = paths::plain(inner, &parts, &ctx);
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.map_err(Status::internal)?.to_bytes();
    if code >= 400 {
        let text = String::from_utf8_lossy(&body).into_owned();
        return Err(if code == 404 { Status::no_such_resource() } else { Status::failure(code, "", text) });
    }
    Ok(body)
}

/// What a resource's answers can be turned into: upstream has no table for what is answered but not kept.
fn convertible(info: &RequestInfo, resource: Option<&Resource>) -> Allowed {
    let kept = |r: &Resource| r.stored.is_some() || r.plural == "componentstatuses";
    let answered = matches!(&*info.subresource, "binding" | "eviction" | "token")
        || resource.is_some_and(|resource| !kept(resource));
    if answered { Allowed::Partial } else { Allowed::Meta }
}

fn error_form(accept: &str, query: &Query) -> Form {
    negotiate::output(accept, query, "", Allowed::Meta, false)
        .map_or(Form::JSON, |f| Form { convert: negotiate::Convert::None, ..f })
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
