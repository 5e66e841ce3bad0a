//! Exec, attach and port-forward by the WebSocket protocols that older kubelets do not speak: translated to
//! SPDY streams (remote command, version 5), or unpacked to SPDY's bytes (port-forward).

use api::Status;
use bytes::Bytes;
use http::header::HeaderMap;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use streaming::channel::V5;
use streaming::remotecommand::{BACKEND_PROTOCOLS, CommandError, Options, finish, greet, translate};
use streaming::spdy::{Connection, Role, request_headers};
use streaming::websocket::{self, accept};

use super::backend::Dialer;
use super::counts::Counts;
use super::forward::{empty, refused};
use super::location::Location;
use crate::front::Body;
use crate::metrics::LongRunning;

/// How much of a kubelet's refusal is shown.
const MAX_REFUSAL: usize = 50_000;

/// The request that asks a kubelet for SPDY.
fn spdy_request<'a>(protocols: impl IntoIterator<Item = &'a str>) -> Request<Body> {
    let mut request = Request::new(empty());
    *request.method_mut() = Method::POST;
    *request.headers_mut() = request_headers(protocols);
    request
}

fn switching(headers: HeaderMap) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    response
}

/// Serves remote command of version 5.
pub(super) fn remote_command(
    (dialer, counts): (&Dialer, &Counts),
    location: Location,
    mut request: Request<Incoming>,
    options: Options,
) -> Result<Response<Body>, Status> {
    let accepted = accept(request.headers(), &[V5]).map_err(|e| {
        counts.not_translated();
        Status::bad_request(e.to_string())
    })?;
    let client = hyper::upgrade::on(&mut request);
    let running = request.extensions().get::<LongRunning>().cloned();
    let (dialer, counts) = (dialer.clone(), counts.clone());
    tokio::spawn(async move {
        let _until_the_end = running;
        let Ok(client) = client.await else { return counts.not_translated() };
        let (mut receiver, sender) = websocket::server(TokioIo::new(client));
        if greet(&sender, options).await.is_err() {
            return counts.not_translated();
        }
        let result = match backend(&dialer, &location).await {
            Ok(backend) => translate(&mut receiver, &sender, &backend, options).await,
            Err(why) => Err(why),
        };
        counts.translated(&result);
        finish(&sender, &result).await;
    });
    Ok(switching(accepted.headers))
}

async fn backend(dialer: &Dialer, location: &Location) -> Result<Connection, CommandError> {
    let failed = CommandError::Failed;
    let answer = dialer.send(location, spdy_request(BACKEND_PROTOCOLS)).await.map_err(|e| {
        failed(format!("error sending request: Post \"https://{}\": {e}", location.authority()))
    })?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let body = Limited::new(answer.into_body(), MAX_REFUSAL).collect().await;
        return Err(CommandError::of_refusal(body.ok().map(|b| b.to_bytes()).as_deref()));
    }
    let upgraded = hyper::upgrade::on(answer).await.map_err(|e| failed(e.to_string()))?;
    let (connection, _) = Connection::start(dialer.paced(upgraded), Role::Client, Bytes::new());
    Ok(connection)
}

/// Serves a WebSocket whose messages are the bytes of a SPDY connection to the kubelet.
pub(super) async fn tunnel(
    (dialer, counts): (&Dialer, &Counts),
    location: &Location,
    mut request: Request<Incoming>,
    protocols: &[String],
) -> Result<Response<Body>, Status> {
    let mut answer = dialer.send(location, spdy_request(protocols.iter().map(String::as_str))).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        counts.tunneled(answer.status());
        return refused(answer);
    }
    let accepted = streaming::tunnel::accepted(request.headers(), answer.headers()).map_err(|e| {
        counts.tunneled(StatusCode::INTERNAL_SERVER_ERROR);
        Status::bad_request(e.to_string())
    })?;
    counts.tunneled(StatusCode::SWITCHING_PROTOCOLS);
    let client = hyper::upgrade::on(&mut request);
    let running = request.extensions().get::<LongRunning>().cloned();
    let backend = hyper::upgrade::on(&mut answer);
    let dialer = dialer.clone();
    tokio::spawn(async move {
        let _until_the_end = running;
        if let Ok((client, backend)) = tokio::try_join!(client, backend) {
            let (mut receiver, sender) = websocket::server(TokioIo::new(client));
            streaming::tunnel::websocket(&mut receiver, &sender, dialer.paced(backend)).await;
        }
    });
    Ok(switching(accepted.headers))
}
