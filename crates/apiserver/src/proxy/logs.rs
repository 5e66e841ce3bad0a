//! Logs of containers, as an HTTP body or as messages of a WebSocket.

use api::Status;
use api::status::Details;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use streaming::channel::SINGLE;
use streaming::websocket::{self, HandshakeError, accept, is_websocket};

use super::backend::Dialer;
use super::forward::empty;
use super::location::Location;
use crate::front::Body;
use crate::metrics::LongRunning;

/// How much of a kubelet's refusal is read.
const MAX_REFUSAL: usize = 50_000;

/// Serves the logs that lie at a kubelet's `location`; none for a Pod that has no node.
pub(super) async fn serve(
    dialer: &Dialer,
    location: Option<&Location>,
    mut request: Request<Incoming>,
    pod: &str,
) -> Result<Response<Body>, Status> {
    let Some(location) = location else {
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    };
    let answer = dialer.send(location, Request::new(empty())).await.map_err(|e| {
        let url = format!("https://{}{}", location.authority(), location.target());
        Status::failure(500, "", format!("Get {url:?}: {e}"))
    })?;
    if !(200..=206).contains(&answer.status().as_u16()) {
        let code = answer.status().as_u16();
        let text = match Limited::new(answer.into_body(), MAX_REFUSAL).collect().await {
            Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            Err(e) => return Err(Status::internal(e)),
        };
        return Err(refusal(code, &text, pod));
    }
    if !is_websocket(request.headers()) {
        let mut response = Response::new(Body::stream(answer.into_body().map_err(Into::into)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        return Ok(response);
    }
    let accepted = match accept(request.headers(), &SINGLE) {
        Ok(accepted) => accepted,
        Err(HandshakeError::Protocol { .. }) => {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::FORBIDDEN;
            return Ok(response);
        }
        Err(e) => return Err(Status::bad_request(e.to_string())),
    };
    let client = hyper::upgrade::on(&mut request);
    let running = request.extensions().get::<LongRunning>().cloned();
    let base64 = accepted.protocol.starts_with("base64.");
    tokio::spawn(async move {
        let _until_the_end = running;
        if let Ok(client) = client.await {
            messages(TokioIo::new(client), answer.into_body(), base64).await;
        }
    });
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = accepted.headers;
    Ok(response)
}

/// Sends a body as messages, after an empty one that says that the connection stands.
async fn messages<T>(client: T, mut body: Incoming, base64: bool)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite,
{
    let (mut receiver, sender) = websocket::server(client);
    let send = async |data: &[u8]| {
        if base64 { sender.text(&[&STANDARD.encode(data)]).await } else { sender.binary(&[data]).await }
    };
    let copy = async {
        send(&[]).await?;
        while let Some(Ok(frame)) = body.frame().await {
            if let Some(data) = frame.data_ref().filter(|d| !d.is_empty()) {
                send(data).await?;
            }
        }
        Ok::<_, websocket::SocketError>(())
    };
    // All messages of the client are ignored, but for its leaving.
    let leave = async { while let Ok(Some(_)) = receiver.next().await {} };
    tokio::select! {
        _ = copy => {}
        () = leave => {}
    }
    sender.close().await;
}

/// A kubelet's refusal as upstream words it.
fn refusal(code: u16, text: &str, pod: &str) -> Status {
    match code {
        500 => return Status::internal(text),
        400 => return Status::bad_request(text),
        _ => {}
    }
    let (reason, message) = match code {
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
        403 => ("Forbidden", text.to_owned()),
        404 => ("NotFound", "the server could not find the requested resource".to_owned()),
        405 => {
            ("MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned())
        }
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
        code if code >= 500 => (
            "InternalError",
            format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        ),
        code => (
            "",
            format!("the server responded with the status code {code} but did not return more information"),
        ),
    };
    let mut status = Status::failure(code, reason, format!("{message} ( pods/log {pod})"));
    status.details =
        Some(Box::new(Details { kind: "pods/log".into(), name: pod.to_owned(), ..Details::default() }));
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |code: u16, expected: &str| assert_eq!(refusal(code, "why", "p").message, expected);
        check(400, "why");
        check(500, "Internal error occurred: why");
        check(404, "the server could not find the requested resource ( pods/log p)");
        check(
            502,
            "an error on the server (\"why\") has prevented the request from succeeding ( pods/log p)",
        );
    }
}
