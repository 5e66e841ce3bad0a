//! Carries bytes from one connection to another.

use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::channel::TUNNEL_PREFIX;
use crate::spdy::PROTOCOL;
use crate::websocket::{Accept, HandshakeError, Receiver, Sender, accept, is_websocket, requested_protocols};

const PIECE: usize = 32 << 10;

/// Carries bytes both ways until one side ends or fails; bytes that it had already sent still arrive.
pub async fn bytes<A, B>(a: A, b: B)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (mut a_read, mut a_write) = tokio::io::split(a);
    let (mut b_read, mut b_write) = tokio::io::split(b);
    tokio::select! {
        () = copy(&mut a_read, &mut b_write) => {}
        () = copy(&mut b_read, &mut a_write) => {}
    }
    // The side that ended will not read; the other one learns of it.
    let _ = tokio::join!(a_write.shutdown(), b_write.shutdown());
}

async fn copy<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(from: &mut R, to: &mut W) {
    let mut buffer = bytes::BytesMut::with_capacity(PIECE);
    while matches!(from.read_buf(&mut buffer).await, Ok(n) if n > 0) {
        if to.write_all_buf(&mut buffer).await.is_err() || to.flush().await.is_err() {
            return;
        }
        buffer.reserve(PIECE);
    }
}

/// The SPDY protocols that a request wants to speak inside a WebSocket; none for another request.
pub fn wanted(headers: &HeaderMap) -> Vec<String> {
    if !is_websocket(headers) {
        return Vec::new();
    }
    let all = requested_protocols(headers).into_iter().filter(|p| p.ends_with(".k8s.io"));
    all.filter_map(|p| p.strip_prefix(TUNNEL_PREFIX).map(str::to_owned)).collect()
}

/// Accepts a WebSocket for the SPDY protocol that the `backend` chose in its answer.
///
/// # Errors
/// The client did not ask for that one, or for no WebSocket at all.
pub fn accepted(headers: &HeaderMap, backend: &HeaderMap) -> Result<Accept, HandshakeError> {
    let chosen = backend.get(PROTOCOL).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let chosen = if chosen.is_empty() { String::new() } else { format!("{TUNNEL_PREFIX}{chosen}") };
    accept(headers, &[&chosen])
}

/// Carries the messages of a WebSocket as the bytes of another connection, until one side ends.
pub async fn websocket<T, B>(receiver: &mut Receiver<T>, sender: &Sender<T>, backend: B)
where
    T: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (mut read, mut write) = tokio::io::split(backend);
    let inward = async {
        while let Ok(Some(message)) = receiver.next().await {
            if write.write_all(&message.into_bytes()).await.is_err() || write.flush().await.is_err() {
                return;
            }
        }
    };
    let outward = async {
        let mut buffer = bytes::BytesMut::with_capacity(PIECE);
        while matches!(read.read_buf(&mut buffer).await, Ok(n) if n > 0) {
            if sender.binary(&[&buffer.split()]).await.is_err() {
                return;
            }
            buffer.reserve(PIECE);
        }
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
    }
    let _ = write.shutdown().await;
    sender.close().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;

    use crate::websocket::frame::{self, Opcode};
    use crate::websocket::server;

    #[test]
    fn protocols_inside_a_websocket() {
        let value = http::HeaderValue::from_static;
        let mut headers = HeaderMap::new();
        headers.insert("upgrade", value("websocket"));
        headers.insert("connection", value("Upgrade"));
        let asked = "SPDY/3.1+portforward.k8s.io, v5.channel.k8s.io, SPDY/3.1+other";
        headers.insert("sec-websocket-protocol", value(asked));
        assert_eq!(wanted(&headers), ["portforward.k8s.io"]);
        assert!(crate::remotecommand::is_wanted(&headers));
        headers.insert("sec-websocket-version", value("13"));
        headers.insert("sec-websocket-key", value("dGhlIHNhbXBsZSBub25jZQ=="));
        let mut backend = HeaderMap::new();
        assert!(accepted(&headers, &backend).is_err());
        backend.insert(PROTOCOL, value("portforward.k8s.io"));
        assert_eq!(accepted(&headers, &backend).unwrap().protocol, "SPDY/3.1+portforward.k8s.io");
        headers.remove("upgrade");
        assert!(wanted(&headers).is_empty() && !crate::remotecommand::is_wanted(&headers));
    }

    #[tokio::test]
    async fn both_ways_until_one_ends() {
        let (mut client, a) = tokio::io::duplex(64);
        let (mut backend, b) = tokio::io::duplex(64);
        let tunnel = tokio::spawn(bytes(a, b));
        client.write_all(b"ask").await.unwrap();
        let mut three = [0; 3];
        backend.read_exact(&mut three).await.unwrap();
        backend.write_all(b"answer").await.unwrap();
        drop(backend);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!((&three, &answer[..]), (b"ask", &b"answer"[..]));
        tunnel.await.unwrap();
    }

    #[tokio::test]
    async fn messages_are_bytes() {
        let (mut client, io) = tokio::io::duplex(1 << 10);
        let (mut backend, b) = tokio::io::duplex(1 << 10);
        let tunnel = tokio::spawn(async move {
            let (mut receiver, sender) = server(io);
            websocket(&mut receiver, &sender, b).await;
        });
        let mut out = BytesMut::new();
        frame::encode(true, Opcode::Binary, &[b"ab"], Some([1; 4]), &mut out);
        frame::encode(true, Opcode::Binary, &[b"c"], Some([2; 4]), &mut out);
        client.write_all(&out).await.unwrap();
        let mut three = [0; 3];
        backend.read_exact(&mut three).await.unwrap();
        assert_eq!(&three, b"abc");
        backend.write_all(b"xyz").await.unwrap();
        drop(backend);
        let mut answer = BytesMut::new();
        while client.read_buf(&mut answer).await.unwrap() > 0 {}
        let first = frame::decode(&mut answer, false, 100).unwrap().unwrap();
        let second = frame::decode(&mut answer, false, 100).unwrap().unwrap();
        assert_eq!((&first.payload[..], second.opcode), (&b"xyz"[..], Opcode::Close));
        tunnel.await.unwrap();
    }
}
