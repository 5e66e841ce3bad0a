//! Requests that are connected with something else: exec, attach, port-forward, logs and the proxies.

use std::sync::Arc;

use access::admission::{AdmissionRequest, Operation, OperationOptions};
use api::Status;
use http::Response;
use hyper::body::Incoming;

use crate::front::{Body, status_response};
use crate::negotiate::Form;
use crate::proxy::{self, Connect, Target};
use crate::request::Request;
use crate::rooms::Rooms;

/// Hands a request on to what it is to be connected with, unless admission refuses.
pub(super) async fn answer(
    rooms: &Arc<Rooms>,
    (connect, target): (&Connect, Target),
    mut request: http::Request<Incoming>,
    ctx: &mut Request,
) -> Response<Body> {
    if let Err(status) = admit(rooms, ctx).await {
        return status_response(&status, Form::JSON);
    }
    let running = rooms.front.metrics.connect(request.method(), &ctx.info);
    // A connection that an upgrade takes over goes on when the answer is long sent.
    request.extensions_mut().insert(running.clone());
    ctx.running = Some(running);
    connect.handle(request, target, &ctx.user, &ctx.info).await
}

/// Asks admission about what a request is to be connected with. Logs are read, not connected with.
pub(crate) async fn admit(rooms: &Rooms, ctx: &Request) -> Result<(), Status> {
    let (info, resource) = (&ctx.info, ctx.resource.as_ref());
    if info.subresource == "log" {
        return Ok(());
    }
    if ctx.query.get("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let sub = resource.and_then(|resource| resource.subresource(&info.subresource));
    let sub = sub.ok_or_else(Status::no_such_resource)?;
    let mut options = proxy::options(ctx.catalog.schema(), &sub.kind, info, &ctx.query)?;
    let request = AdmissionRequest {
        user: &ctx.user,
        info,
        operation: Operation::Connect,
        kind: &sub.kind,
        request_kind: &sub.kind,
        versions: ctx,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: &info.name,
        old: None,
        dry_run: false,
        options: OperationOptions::default(),
        notes: &ctx.notes,
    };
    rooms.handlers.admission.mutate(&request, &mut options).await?;
    rooms.handlers.admission.validate(&request, Some(&options)).await
}
