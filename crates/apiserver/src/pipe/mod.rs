//! The pipe: authentication → impersonation → flow control → authorization → body → handler → conversion → answer.

mod connect;
mod conversion;
mod paths;
mod stages;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use access::auth::Access;
use access::{Query, RequestInfo, UserInfo, request_info};
use api::{Gate, Status};
use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::{Method, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use streaming::websocket::is_websocket;

#[cfg(test)]
pub(crate) use self::connect::admit as admit_connect;
use self::stages::connected;
pub(crate) use self::stages::{is_long_running, takes_seat};
use crate::catalog::ResourceEntry;
use crate::config::MAX_BODY;
use crate::encoder::Encoder;
use crate::flow::{Patience, TooMany};
use crate::front::{
    Body, Lifetime, Peer, Unread, header as header_of, outcome_response, read_body, status_response, text,
    throw_away, websocket,
};
use crate::handlers;
use crate::lanes;
use crate::negotiate::{self, Allowed, Form, Format};
use crate::outcome::Outcome;
use crate::proxy::route::{self, Told};
use crate::relay::Relay;
use crate::request::Request;
use crate::rooms::Rooms;
use crate::{routes, weight};

/// Answers an HTTP request, by its deadline.
pub(crate) async fn http(
    rooms: &Arc<Rooms>,
    request: http::Request<Incoming>,
    peer: &Peer,
    ctx: &mut Request,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let sent = http_body::Body::is_end_stream(&body);
    if let Err(refused) = enter(rooms, ctx, &mut parts, peer, sent).await {
        throw_away(body, MAX_BODY).await;
        return *refused;
    }
    if let Some(other) = ctx.elsewhere.clone() {
        if let Err(none) = stages::take_seat(rooms, ctx, Patience::OnlyAtLevels).await {
            throw_away(body, MAX_BODY).await;
            return too_many(none);
        }
        if ctx.info.verb == "watch" {
            // The other server counts it from here on.
            ctx.seat = None;
            ctx.watches = Some(rooms.front.flow.watchers.add(&ctx.info));
        }
        let mut request = http::Request::from_parts(parts, body);
        request.extensions_mut().insert(peer.address);
        // The other server audits the request under the same name.
        request.headers_mut().insert("audit-id", ctx.audit_id().clone());
        let uid = rooms.objects.gates.enabled(Gate::RemoteRequestHeaderUID);
        let told = Told { uid, reject_redirects: rooms.front.reject_redirects };
        // Rare, and as large as all the rest: on the heap, so that other requests have no room for it.
        return Box::pin(route::lead(&other, request, &ctx.user, told, &ctx.notes)).await;
    }
    if !ctx.info.is_resource {
        throw_away(body, MAX_BODY).await;
        if let Err(none) = stages::take_seat(rooms, ctx, Patience::OnlyAtLevels).await {
            return too_many(none);
        }
        return paths::answer(rooms, parts, ctx).await;
    }
    if let Some(target) = connected(&ctx.info)
        && let Some(connect) = &rooms.front.connect
    {
        let mut request = http::Request::from_parts(parts, body);
        request.extensions_mut().insert(peer.address);
        return Box::pin(connect::answer(rooms, (connect, target), request, ctx)).await;
    }
    resource(rooms, parts, body, peer, ctx).await
}

/// Lets a caller in: it is known, there is a place for it, it may, and there is something at its path. Its credentials
/// are gone afterwards.
async fn enter(
    rooms: &Rooms,
    ctx: &mut Request,
    parts: &mut Parts,
    peer: &Peer,
    sent: bool,
) -> Result<(), Box<Response<Body>>> {
    let refuse = |status: Status, form| Box::new(status_response(&status, form));
    stages::authenticate(rooms, ctx, parts, peer).await.map_err(|e| refuse(e, Form::JSON))?;
    stages::impersonate(rooms, ctx, parts).await.map_err(|e| refuse(e, Form::JSON))?;
    let flow = stages::control_flow(rooms, ctx, sent, Patience::OnlyAtLevels).await;
    flow.map_err(|none| Box::new(too_many(none)))?;
    let allowed = rooms.front.auth.require(&ctx.user, &Access::from(&*ctx.info)).await;
    let there = || {
        if ctx.info.is_resource && ctx.elsewhere.is_none() {
            routes::check(&parts.method, &ctx.info, ctx.resource.as_deref())
        } else {
            Ok(())
        }
    };
    let form = || error_form(&header_of(parts, header::ACCEPT), &ctx.query);
    allowed.and_then(|()| there()).map_err(|e| refuse(e, form()))
}

/// The subresource whose objects are of a built-in kind even where a definition has it.
const SCALE: &str = "scale";

/// Answers a request for a resource.
async fn resource(
    rooms: &Arc<Rooms>,
    parts: Parts,
    body: Incoming,
    peer: &Peer,
    ctx: &mut Request,
) -> Response<Body> {
    let accept = header_of(&parts, header::ACCEPT);
    let user_agent = header_of(&parts, header::USER_AGENT);
    let allowed = convertible(&ctx.info, ctx.resource.as_deref());
    let objects = match ctx.resource.as_ref().and_then(|r| r.custom.as_ref()) {
        Some(_) if ctx.info.subresource != SCALE => negotiate::Objects::Custom,
        _ => negotiate::Objects::BuiltIn,
    };
    let stream = ctx.info.verb == "watch";
    let form = match negotiate::output(&accept, &ctx.query, &user_agent, allowed, stream, objects) {
        Ok(form) => form,
        Err(status) => {
            throw_away(body, MAX_BODY).await;
            return status_response(&status, Form::JSON);
        }
    };
    let plain_form = Form { convert: negotiate::Convert::None, ..form };
    if ctx.mutating {
        // No seat is taken by who is still sending; the room is, until the answer.
        let room = ctx.room.insert(rooms.front.flow.body(&ctx.caller));
        ctx.body = match read_body(body, room).await {
            Ok(body) => body,
            Err(Unread::NoRoom) => return too_many(TooMany { retry_after: 1 }),
            Err(Unread::Bad(status)) => return status_response(&status, plain_form),
        };
    }
    if let Err(none) = stages::take_seat(rooms, ctx, Patience::OnlyAtLevels).await {
        return too_many(none);
    }
    ctx.content_type = header_of(&parts, header::CONTENT_TYPE).into_owned();
    (ctx.accept, ctx.user_agent) = (accept.into_owned(), user_agent.into_owned());
    let gzip = parts.method == Method::GET
        && header_of(&parts, header::ACCEPT_ENCODING).split(',').any(|e| e.trim().starts_with("gzip"));
    let long = weight::of_request(&rooms.objects.store, ctx);
    let outcome = match handle(rooms, ctx, long).await {
        Ok(outcome) => seated(rooms, ctx, outcome),
        Err(status) => return status_response(&status, plain_form),
    };
    // The events that a WebSocket is sent outlive the HTTP connection, and so whatever ends that.
    let switched = matches!(outcome, Outcome::Watch(_)) && is_websocket(&parts.headers);
    let lifetime = if switched { Arc::default() } else { Arc::clone(&peer.lifetime) };
    let encoder = rooms.encoder(&ctx.catalog);
    let info = Arc::clone(&ctx.info);
    let answer = Answer { outcome, encoder, form, gzip, info, lifetime: Arc::clone(&lifetime) };
    let response = if long || weight::of_answer(&answer.outcome, form) {
        let own = Arc::clone(rooms);
        let encoded = async move { encode(&own, answer) };
        let encoded = rooms.front.lanes.run(ctx.caller.user(), ctx.deadline, encoded).await;
        encoded.unwrap_or_else(|status| status_response(&status, plain_form))
    } else {
        encode(rooms, answer)
    };
    if !switched || !response.status().is_success() {
        return response;
    }
    let protobuf = form.format == Format::Protobuf;
    websocket::watch(http::Request::from_parts(parts, ()), response, lifetime, protobuf)
}

/// Handles a request, where long work is done if it is some.
async fn handle(rooms: &Arc<Rooms>, ctx: &mut Request, long: bool) -> Result<Outcome, Status> {
    if !long {
        return dispatch(rooms, ctx).await;
    }
    let (own, user, deadline) = (Arc::clone(rooms), ctx.caller.user(), ctx.deadline);
    let stand_in = ctx.stand_in();
    let request = std::mem::replace(ctx, stand_in);
    // Boxed, so that what waits for short work has no room for this as well.
    let work = Box::pin(async move {
        let result = dispatch(&own, &request).await;
        (request, result)
    });
    let (request, result) = rooms.front.lanes.run(user, deadline, work).await?;
    *ctx = request;
    result
}

/// An answer that is to be encoded, and its form.
struct Answer {
    outcome: Outcome,
    encoder: Encoder,
    form: Form,
    gzip: bool,
    info: Arc<RequestInfo>,
    lifetime: Arc<Lifetime>,
}

fn encode(rooms: &Arc<Rooms>, answer: Answer) -> Response<Body> {
    let Answer { outcome, encoder, form, gzip, info, lifetime } = answer;
    let front = &rooms.front;
    let encode =
        || outcome_response((encoder, &front.lanes, &front.metrics), outcome, form, gzip, &info, &lifetime);
    std::panic::catch_unwind(AssertUnwindSafe(encode))
        .unwrap_or_else(|_| status_response(&panicked(&info), Form::JSON))
}

/// Upstream's answer to a request for which there is no place.
fn too_many(TooMany { retry_after }: TooMany) -> Response<Body> {
    let mut response = text(429, "Too many requests, please try again later.\n");
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(retry_after));
    response
}

/// A watch keeps the place of its request until it has begun, and is one of the watchers.
fn seated(rooms: &Rooms, ctx: &mut Request, mut outcome: Outcome) -> Outcome {
    if let Outcome::Watch(source) = &mut outcome {
        source.seated(ctx.seat.take(), &rooms.front.flow.watchers, &ctx.info);
    }
    outcome
}

/// Handles a request; a defect that shows at it is its answer, not the end of the caller.
async fn dispatch(rooms: &Arc<Rooms>, request: &Request) -> Result<Outcome, Status> {
    let answered = async {
        let outcome = handlers::dispatch(&rooms.handlers, request).await?;
        conversion::convert(request, outcome).await
    };
    let handled = AssertUnwindSafe(answered).catch_unwind().await;
    handled.unwrap_or_else(|_| Err(panicked(&request.info)))
}

/// The answer to a request at which a defect showed.
fn panicked(info: &RequestInfo) -> Status {
    tracing::error!(verb = info.verb, path = %info.path, "a request made the API server panic");
    let message = "This request caused apiserver to panic. Look in the logs for details.";
    Status::failure(500, "InternalError", message)
}

/// Answers a request of this process, whose caller is known: the same stages from flow control on.
pub(crate) async fn local(rooms: &Arc<Rooms>, ctx: &mut Request) -> Result<Outcome, Status> {
    enter_local(rooms, ctx).await?;
    let outcome = dispatch(rooms, ctx).await?;
    Ok(seated(rooms, ctx, outcome))
}

/// Lets a caller of this process in.
pub(crate) async fn enter_local(rooms: &Arc<Rooms>, ctx: &mut Request) -> Result<(), Status> {
    let flow = stages::control_flow(rooms, ctx, true, Patience::Always).await;
    flow.map_err(|none| lanes::too_many(none.retry_after))?;
    rooms.front.auth.require(&ctx.user, &Access::from(&*ctx.info)).await
}

/// Answers a GET of this process for a path that is no resource.
pub(crate) async fn local_path(
    rooms: &Arc<Rooms>,
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
    let mut ctx = Request::new(rooms.objects.catalog(), info, query, None);
    ctx.user = Arc::clone(user);
    enter_local(rooms, &mut ctx).await?;
    if let Some(other) = &ctx.elsewhere {
        return Relay { other, user, agent: "kube-apiserver" }.raw(path).await;
    }
    let response = paths::plain(rooms, &parts, &ctx);
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.map_err(Status::internal)?.to_bytes();
    if code >= 400 {
        let text = String::from_utf8_lossy(&body).into_owned();
        return Err(if code == 404 { Status::no_such_resource() } else { Status::failure(code, "", text) });
    }
    Ok(body)
}

/// The kinds that a resource's answers can be turned into: upstream has no table for objects that are answered but not
/// kept.
fn convertible(info: &RequestInfo, resource: Option<&ResourceEntry>) -> Allowed {
    let sub = |r: &ResourceEntry| r.subresource(&info.subresource).is_some_and(|sub| sub.verbs == ["create"]);
    let answered = resource.is_some_and(|r| sub(r) || r.stored.is_none() && !r.has_verb("list"));
    if answered { Allowed::Partial } else { Allowed::Meta }
}

fn error_form(accept: &str, query: &Query) -> Form {
    negotiate::output(accept, query, "", Allowed::Meta, false, negotiate::Objects::BuiltIn)
        .map_or(Form::JSON, |f| Form { convert: negotiate::Convert::None, ..f })
}
