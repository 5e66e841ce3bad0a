//! The stages that a request goes through before anybody handles it, in upstream's order (`DefaultBuildHandlerChain`):
//! authentication, impersonation, flow control, authorization. Each reads and fills the request's context.

use std::sync::Arc;

use access::UserInfo;
use access::auth::{Access, credentials, forbidden};
use api::Status;
use http::request::Parts;

use super::is_long_running;
use crate::front::Peer;
use crate::inner::Inner;
use crate::request::Request;

/// There is no place for a request.
#[derive(Debug)]
pub(super) struct TooMany;

/// Finds out who asks.
pub(super) async fn authenticate(
    inner: &Inner,
    ctx: &mut Request,
    parts: &Parts,
    peer: &Peer,
) -> Result<(), Status> {
    let user = inner.auth.authenticator.authenticate(parts, peer.certificates.as_deref()).get().await;
    peer.is(user.as_deref().ok());
    ctx.user = user?;
    Ok(())
}

/// Lets the caller act as somebody else, if it asks to and may. What callers are known by is gone afterwards.
pub(super) async fn impersonate(inner: &Inner, ctx: &mut Request, parts: &mut Parts) -> Result<(), Status> {
    let other = inner.auth.authenticator.impersonate(&parts.headers, &ctx.user, &ctx.info).get().await;
    credentials::remove(&mut parts.headers);
    if let Some(other) = other? {
        ctx.impersonator = Some(std::mem::replace(&mut ctx.user, other));
    }
    Ok(())
}

/// Takes a place among those under way; none is needed where a request goes on for as long as it likes.
///
/// Who is still sending gets no place before all is there (`sent`), and is refused here if there would be none.
pub(super) fn control_flow(inner: &Inner, ctx: &mut Request, sent: bool) -> Result<(), TooMany> {
    ctx.caller = inner.flow.caller(&ctx.user, &ctx.info);
    take_seat(inner, ctx)?;
    if !sent {
        ctx.seat = None;
    }
    Ok(())
}

/// Takes a place for a request that has none.
pub(super) fn take_seat(inner: &Inner, ctx: &mut Request) -> Result<(), TooMany> {
    if ctx.seat.is_none() && !is_long_running(&ctx.info) {
        ctx.seat = Some(inner.flow.seat(ctx.caller, ctx.mutating).ok_or(TooMany)?);
    }
    Ok(())
}

/// As [`control_flow`] for a caller of this process, which waits for its place.
pub(super) async fn wait_for_seat(inner: &Inner, ctx: &mut Request) -> Result<(), TooMany> {
    ctx.caller = inner.flow.caller(&ctx.user, &ctx.info);
    if !is_long_running(&ctx.info) {
        ctx.seat = Some(inner.flow.wait_for_seat(ctx.caller, ctx.mutating).await.ok_or(TooMany)?);
    }
    Ok(())
}

/// Whether a user may; upstream's 403 if not.
pub(crate) async fn authorize(
    inner: &Inner,
    user: &Arc<UserInfo>,
    access: &Access<'_>,
) -> Result<(), Status> {
    match inner.auth.authorizer.authorize(user, access).get().await.refusal() {
        None => Ok(()),
        Some(reason) => Err(forbidden(user, access, &reason)),
    }
}
