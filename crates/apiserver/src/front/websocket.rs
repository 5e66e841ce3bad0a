//! A watch through a WebSocket: a message for each event.

use std::sync::Arc;

use bytes::Bytes;
use http::header::ORIGIN;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use streaming::websocket::{self, Accept, SocketError, accept, requested_protocols};

use super::body::{Body, full};
use super::lifetime::Lifetime;

/// Decides on a handshake as upstream's library does: it wants to know the page that asks, and takes any
/// subprotocol, but no choice of them.
fn handshake(headers: &HeaderMap) -> Result<Accept, StatusCode> {
    let origin = headers.get(ORIGIN).map(HeaderValue::as_bytes).unwrap_or_default();
    let known = origin.starts_with(b"/") || Uri::try_from(origin).is_ok_and(|u| u.scheme().is_some());
    let mut protocols = requested_protocols(headers);
    if protocols.is_empty() {
        protocols.push("");
    }
    let accepted = accept(headers, &protocols).map_err(|_| StatusCode::BAD_REQUEST)?;
    match (known, protocols.len()) {
        (false, _) => Err(StatusCode::FORBIDDEN),
        (true, 1) => Ok(accepted),
        (true, _) => Err(StatusCode::BAD_REQUEST),
    }
}

/// Lets a watch's answer go through the WebSocket that its request asks for. The answer's body is tied to a
/// lifetime of its own, since the connection's ends with the upgrade.
pub(crate) fn watch(
    request: Request<()>,
    answer: Response<Body>,
    lifetime: Arc<Lifetime>,
    protobuf: bool,
) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    match handshake(request.headers()) {
        Ok(accepted) => {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            *response.headers_mut() = accepted.headers;
        }
        Err(code) => {
            *response.status_mut() = code;
            return response;
        }
    }
    let client = hyper::upgrade::on(request);
    let body = answer.into_body();
    tokio::spawn(async move {
        let _busy = lifetime.request();
        let Ok(client) = client.await else { return };
        let (mut receiver, sender) = websocket::server(TokioIo::new(client));
        // All messages of the client are ignored, but for its leaving.
        let leave = async { while let Ok(Some(_)) = receiver.next().await {} };
        tokio::select! {
            _ = messages(&sender, body, protobuf) => {}
            () = leave => {}
            _ = lifetime.end() => {}
        }
    });
    response
}

async fn messages<T>(sender: &websocket::Sender<T>, mut body: Body, protobuf: bool) -> Result<(), SocketError>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite,
{
    while let Some(Ok(frame)) = body.frame().await {
        let Some(mut data) = frame.data_ref().map(|d| &d[..]) else { continue };
        while !data.is_empty() {
            if protobuf {
                let Some((length, rest)) = data.split_first_chunk() else { break };
                let length = u32::from_be_bytes(*length) as usize;
                let Some((event, rest)) = rest.split_at_checked(length) else { break };
                sender.binary(&[event]).await?;
                data = rest;
            } else {
                let end = data.iter().position(|b| *b == b'\n').map_or(data.len(), |at| at + 1);
                let (event, rest) = data.split_at(end);
                sender.text(&[&String::from_utf8_lossy(event)]).await?;
                data = rest;
            }
        }
    }
    sender.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes() {
        let check = |more: &[(&str, &str)], expected: Result<&str, u16>| {
            let mut headers = HeaderMap::new();
            let always = [
                ("upgrade", "websocket"),
                ("connection", "Upgrade"),
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ];
            for (name, value) in always.iter().chain(more) {
                headers.insert(
                    http::HeaderName::try_from(*name).unwrap(),
                    http::HeaderValue::try_from(*value).unwrap(),
                );
            }
            let got = handshake(&headers).map(|a| a.protocol).map_err(|c| c.as_u16());
            assert_eq!(got, expected.map(str::to_owned), "{more:?}");
        };
        let origin = ("origin", "https://example.com");
        check(&[origin], Ok(""));
        check(&[("origin", "/page")], Ok(""));
        check(&[], Err(403));
        check(&[("origin", "null")], Err(403));
        check(&[origin, ("sec-websocket-protocol", "any")], Ok("any"));
        check(&[origin, ("sec-websocket-protocol", "one, two")], Err(400));
        check(&[("sec-websocket-protocol", "one, two")], Err(403));
        check(&[origin, ("sec-websocket-version", "8")], Err(400));
    }
}
