//! Carries bytes from one connection to another.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::websocket::{Receiver, Sender};

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
