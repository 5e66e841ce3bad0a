//! Exec, attach and port-forward by the WebSocket protocols that kubelets do not speak: translated to
//! SPDY streams (remote command, version 5), or unpacked to SPDY's bytes (port-forward).

use api::Status;
use api::status::{Cause, Details};
use bytes::Bytes;
use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use streaming::channel::{ERROR, TUNNEL_PREFIX, V5};
use streaming::remotecommand::{BACKEND_PROTOCOLS, CommandError, Options, greet, translate};
use streaming::spdy::{self, Connection, Role};
use streaming::websocket::{self, accept, is_websocket, requested_protocols};

use super::backend::Dialer;
use super::forward::{empty, refused};
use super::location::Location;
use crate::front::Body;
use crate::metrics::LongRunning;

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// How much of a kubelet's refusal is shown.
const MAX_REFUSAL: usize = 50_000;

/// Whether a request wants remote command by WebSocket with streams that close alone.
pub(super) fn wants_translation(headers: &HeaderMap) -> bool {
    is_websocket(headers) && requested_protocols(headers).contains(&V5)
}

/// The SPDY protocols that a request wants to speak inside a WebSocket.
pub(super) fn tunnelled(headers: &HeaderMap) -> Vec<String> {
    if !is_websocket(headers) {
        return Vec::new();
    }
    requested_protocols(headers)
        .into_iter()
        .filter(|p| p.ends_with(".k8s.io"))
        .filter_map(|p| p.strip_prefix(TUNNEL_PREFIX).map(str::to_owned))
        .collect()
}

/// The request that asks a kubelet for SPDY.
fn spdy_request<'a>(protocols: impl IntoIterator<Item = &'a str>) -> Request<Body> {
    let mut request = Request::new(empty());
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(spdy::UPGRADE));
    for protocol in protocols {
        if let Ok(value) = HeaderValue::from_str(protocol) {
            headers.append(STREAM_PROTOCOL, value);
        }
    }
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
    dialer: &Dialer,
    location: Location,
    mut request: Request<Incoming>,
    options: Options,
) -> Result<Response<Body>, Status> {
    let accepted = accept(request.headers(), &[V5]).map_err(|e| Status::bad_request(e.to_string()))?;
    let client = hyper::upgrade::on(&mut request);
    let running = request.extensions().get::<LongRunning>().cloned();
    let dialer = dialer.clone();
    tokio::spawn(async move {
        let _until_the_end = running;
        let Ok(client) = client.await else { return };
        let (mut receiver, sender) = websocket::server(TokioIo::new(client));
        if greet(&sender, options).await.is_err() {
            return;
        }
        let result = match backend(&dialer, &location).await {
            Ok(backend) => command_status(translate(&mut receiver, &sender, &backend, options).await),
            Err(status) => Some(status),
        };
        if let Some(status) = result {
            // A client that went away needs no result.
            let _ = sender.binary(&[&[ERROR], &status.to_untyped_json()]).await;
        }
        sender.close().await;
    });
    Ok(switching(accepted.headers))
}

async fn backend(dialer: &Dialer, location: &Location) -> Result<Connection, Status> {
    let answer = dialer.send(location, spdy_request(BACKEND_PROTOCOLS)).await.map_err(|e| {
        Status::internal(format_args!(
            "error sending request: Post \"https://{}\": {e}",
            location.authority()
        ))
    })?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refusal(answer).await);
    }
    let upgraded = hyper::upgrade::on(answer).await.map_err(Status::internal)?;
    let (connection, _) = Connection::start(dialer.paced(upgraded), Role::Client, Bytes::new());
    Ok(connection)
}

/// The refusal of a kubelet.
async fn refusal(answer: Response<Incoming>) -> Status {
    let text = match Limited::new(answer.into_body(), MAX_REFUSAL).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => Bytes::from_static(b"unable to read error from server response"),
    };
    match serde_json::from_slice::<Status>(&text) {
        Ok(status) if status.status == "Failure" => status,
        _ => Status::internal(format_args!(
            "unable to upgrade connection: {}",
            String::from_utf8_lossy(&text).trim()
        )),
    }
}

/// The result of a command as its client reads it; none for a client that went away.
fn command_status(result: Result<(), CommandError>) -> Option<Status> {
    Some(match result {
        Ok(()) => Status { status: "Success".into(), ..Status::default() },
        Err(CommandError::Gone) => return None,
        Err(CommandError::Failed(why)) => Status::internal(why),
        Err(exit @ CommandError::Exit(code)) => Status {
            status: "Failure".into(),
            message: format!("command terminated with non-zero exit code: {exit}"),
            reason: "NonZeroExitCode".into(),
            details: Some(Box::new(Details {
                causes: vec![Cause {
                    reason: "ExitCode".into(),
                    message: code.to_string(),
                    field: String::new(),
                }],
                ..Details::default()
            })),
            ..Status::default()
        },
    })
}

/// Serves a WebSocket whose messages are the bytes of a SPDY connection to the kubelet.
pub(super) async fn tunnel(
    dialer: &Dialer,
    location: &Location,
    mut request: Request<Incoming>,
    protocols: &[String],
) -> Result<Response<Body>, Status> {
    let mut answer = dialer.send(location, spdy_request(protocols.iter().map(String::as_str))).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(answer);
    }
    let chosen = answer.headers().get(STREAM_PROTOCOL).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let chosen = if chosen.is_empty() { String::new() } else { format!("{TUNNEL_PREFIX}{chosen}") };
    let accepted = accept(request.headers(), &[&chosen]).map_err(|e| Status::bad_request(e.to_string()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results() {
        let json = |r| command_status(r).map(|s| String::from_utf8(s.to_untyped_json()).unwrap());
        let exit = json(Err(CommandError::Exit(3))).unwrap();
        let exit: serde_json::Value = serde_json::from_str(&exit).unwrap();
        assert_eq!(
            exit["message"],
            "command terminated with non-zero exit code: command terminated with exit code 3"
        );
        assert_eq!(exit["reason"], "NonZeroExitCode");
        assert_eq!(exit["details"]["causes"][0], serde_json::json!({"reason": "ExitCode", "message": "3"}));
        assert_eq!(json(Ok(())).unwrap(), r#"{"metadata":{},"status":"Success"}"#);
        assert_eq!(json(Err(CommandError::Gone)), None);
    }

    #[test]
    fn tunnels() {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(
            "sec-websocket-protocol",
            HeaderValue::from_static("SPDY/3.1+portforward.k8s.io, v5.channel.k8s.io, SPDY/3.1+other"),
        );
        assert_eq!(tunnelled(&headers), ["portforward.k8s.io"]);
        assert!(wants_translation(&headers));
        headers.remove(UPGRADE);
        assert!(tunnelled(&headers).is_empty() && !wants_translation(&headers));
    }
}
