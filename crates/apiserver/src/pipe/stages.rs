//! The stages that a request goes through before anybody handles it, in upstream's order (`DefaultBuildHandlerChain`):
//! authentication, impersonation, flow control, authorization. Each reads and fills the request's context.

use access::RequestInfo;
use access::auth::credentials;
use api::Status;
use http::request::Parts;

use crate::flow::{Patience, TooMany};
use crate::front::Peer;
use crate::handlers::builtin;
use crate::proxy::Target;
use crate::request::Request;
use crate::rooms::Rooms;
use crate::snapshot;

/// Finds out who asks.
pub(super) async fn authenticate(
    rooms: &Rooms,
    ctx: &mut Request,
    parts: &Parts,
    peer: &Peer,
) -> Result<(), Status> {
    let chain = peer.certificates.as_deref();
    let user = rooms.front.auth.authenticator.authenticate(parts, chain, &ctx.notes).get().await;
    ctx.notes.keep();
    peer.is(user.as_deref().ok());
    ctx.user = user?;
    Ok(())
}

/// Lets the caller act as somebody else, if it asks to and may. The credentials are gone afterwards.
pub(super) async fn impersonate(rooms: &Rooms, ctx: &mut Request, parts: &mut Parts) -> Result<(), Status> {
    let other = rooms.front.auth.authenticator.impersonate(&parts.headers, &ctx.user, &ctx.info).get().await;
    credentials::remove(&mut parts.headers);
    rooms.front.auth.authenticator.forget(&mut parts.headers);
    if let Some(other) = other? {
        ctx.impersonator = Some(std::mem::replace(&mut ctx.user, other));
    }
    Ok(())
}

/// Takes a place among those under way, and waits for it if there is none yet; none is needed where a request goes on
/// for as long as it likes.
///
/// A request that is still being sent gets no place before all is there (`sent`), and is refused here if it would be
/// refused then.
pub(super) async fn control_flow(
    rooms: &Rooms,
    ctx: &mut Request,
    sent: bool,
    patience: Patience,
) -> Result<(), TooMany> {
    ctx.caller = rooms.front.flow.caller(&ctx.user, &ctx.info);
    if sent {
        take_seat(rooms, ctx, patience).await
    } else if takes_seat(&ctx.info) {
        rooms.front.flow.may_come(ctx.asked())
    } else {
        Ok(())
    }
}

/// Takes a place for a request that has none.
pub(super) async fn take_seat(rooms: &Rooms, ctx: &mut Request, patience: Patience) -> Result<(), TooMany> {
    if ctx.seat.is_none() && takes_seat(&ctx.info) {
        ctx.seat = Some(rooms.front.flow.seat(ctx.asked(), patience).await?);
    }
    Ok(())
}

/// Whether a request takes a place: a watch does so until it has begun.
pub(crate) fn takes_seat(info: &RequestInfo) -> bool {
    info.verb == "watch" || !is_long_running(info)
}

/// The subresources that upstream takes for connections, whatever the resource: those of other servers, too.
const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Whether a request goes on until its client ends it: no limit of time or number applies.
pub(crate) fn is_long_running(info: &RequestInfo) -> bool {
    info.verb == "watch"
        || connected(info).is_some()
        || STREAMS.contains(&info.subresource.as_str())
        || info.path == snapshot::PATH
}

/// The kind of object that a request is to be connected with, if any.
pub(super) fn connected(info: &RequestInfo) -> Option<Target> {
    builtin::connected(&info.group, &info.resource, &info.subresource)
}
