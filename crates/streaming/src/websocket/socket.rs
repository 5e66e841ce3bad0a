//! Messages over an upgraded byte stream, the server's side.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::Mutex;

use super::frame::{self, Frame, FrameError, Opcode};

/// The longest message taken. Clients send at most 32 KiB of a stream in one; Go's own servers take up to 32 MiB, but
/// no client needs that.
const MAX_MESSAGE: usize = 4 << 20;
/// The time that the closing frame may take.
const LINGER: Duration = Duration::from_secs(10);

/// The reason for which a connection ended without a closing handshake.
#[derive(Debug, Error)]
pub enum SocketError {
    /// The byte stream failed.
    #[error("websocket connection failed")]
    Io(#[from] std::io::Error),
    /// The client broke the protocol.
    #[error("websocket protocol error: {0}")]
    Frame(#[from] FrameError),
}

/// A whole message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Bytes.
    Binary(Bytes),
    /// Text; not checked to be UTF-8, since no subprotocol depends on it.
    Text(Bytes),
}

impl Message {
    /// The message's bytes.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Binary(b) | Self::Text(b) => b,
        }
    }
}

/// Receives messages, and answers pings.
pub struct Receiver<T> {
    io: ReadHalf<T>,
    buffer: BytesMut,
    partial: Option<(Opcode, BytesMut)>,
    sender: Sender<T>,
    closed: bool,
}

/// Sends messages. Clones share the connection; a message is never torn by another one.
pub struct Sender<T> {
    io: Arc<Mutex<Output<T>>>,
}

struct Output<T> {
    io: WriteHalf<T>,
    buffer: BytesMut,
    closed: bool,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { io: self.io.clone() }
    }
}

/// Makes the server's side of a connection whose handshake is done.
pub fn server<T: AsyncRead + AsyncWrite>(io: T) -> (Receiver<T>, Sender<T>) {
    let (read, write) = tokio::io::split(io);
    let output = Output { io: write, buffer: BytesMut::new(), closed: false };
    let sender = Sender { io: Arc::new(Mutex::new(output)) };
    let receiver =
        Receiver { io: read, buffer: BytesMut::new(), partial: None, sender: sender.clone(), closed: false };
    (receiver, sender)
}

impl<T: AsyncRead + AsyncWrite> Receiver<T> {
    /// The next message; `None` once the client closed the connection.
    pub async fn next(&mut self) -> Result<Option<Message>, SocketError> {
        while !self.closed {
            while let Some(frame) = frame::decode(&mut self.buffer, true, MAX_MESSAGE)? {
                if let Some(message) = self.take(frame).await? {
                    return Ok(Some(message));
                }
                if self.closed {
                    return Ok(None);
                }
            }
            self.buffer.reserve(32 << 10);
            if self.io.read_buf(&mut self.buffer).await? == 0 {
                self.closed = true;
            }
        }
        Ok(None)
    }

    async fn take(&mut self, frame: Frame) -> Result<Option<Message>, SocketError> {
        match frame.opcode {
            Opcode::Ping => self.sender.send(Opcode::Pong, &[&frame.payload]).await?,
            Opcode::Pong => {}
            Opcode::Close => {
                self.closed = true;
                let status = &frame.payload[..frame.payload.len().min(2)];
                // The client need not wait for the answer.
                let _ = self.sender.finish(status).await;
            }
            Opcode::Text | Opcode::Binary => {
                if self.partial.is_some() {
                    return Err(FrameError::Fragment.into());
                }
                if frame.fin {
                    return Ok(Some(message(frame.opcode, frame.payload)));
                }
                self.partial = Some((frame.opcode, BytesMut::from(&frame.payload[..])));
            }
            Opcode::Continuation => {
                let Some((opcode, mut all)) = self.partial.take() else {
                    return Err(FrameError::Fragment.into());
                };
                if all.len() + frame.payload.len() > MAX_MESSAGE {
                    return Err(FrameError::TooLong.into());
                }
                all.extend_from_slice(&frame.payload);
                if frame.fin {
                    return Ok(Some(message(opcode, all.freeze())));
                }
                self.partial = Some((opcode, all));
            }
        }
        Ok(None)
    }
}

fn message(opcode: Opcode, payload: Bytes) -> Message {
    if opcode == Opcode::Text { Message::Text(payload) } else { Message::Binary(payload) }
}

impl<T: AsyncWrite> Sender<T> {
    /// Sends a message of bytes, given in parts.
    pub async fn binary(&self, parts: &[&[u8]]) -> Result<(), SocketError> {
        self.send(Opcode::Binary, parts).await
    }
    /// Sends a message of text, given in parts.
    pub async fn text(&self, parts: &[&str]) -> Result<(), SocketError> {
        let parts: Vec<&[u8]> = parts.iter().map(|p| p.as_bytes()).collect();
        self.send(Opcode::Text, &parts).await
    }
    /// Tells the client that nothing more is sent (status 1000), and ends the byte stream.
    pub async fn close(&self) {
        let normal = 1000u16.to_be_bytes();
        // A client that does not read is gone.
        let _ = tokio::time::timeout(LINGER, self.finish(&normal)).await;
    }

    async fn finish(&self, status: &[u8]) -> Result<(), SocketError> {
        let mut output = self.io.lock().await;
        if !output.closed {
            output.write(Opcode::Close, &[status]).await?;
            output.closed = true;
            output.io.shutdown().await?;
        }
        Ok(())
    }

    async fn send(&self, opcode: Opcode, parts: &[&[u8]]) -> Result<(), SocketError> {
        let mut output = self.io.lock().await;
        if output.closed {
            return Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into());
        }
        output.write(opcode, parts).await
    }
}

impl<T: AsyncWrite> Output<T> {
    async fn write(&mut self, opcode: Opcode, parts: &[&[u8]]) -> Result<(), SocketError> {
        // Bytes that a cancelled call left unsent go out first.
        frame::encode(true, opcode, parts, None, &mut self.buffer);
        while !self.buffer.is_empty() {
            self.io.write_buf(&mut self.buffer).await?;
        }
        self.io.flush().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn receive(frames: &[(bool, Opcode, &[u8])]) -> (Vec<Message>, Result<(), String>, Vec<u8>) {
        let (mut client, io) = tokio::io::duplex(1 << 16);
        let mut bytes = BytesMut::new();
        for (fin, opcode, payload) in frames {
            frame::encode(*fin, *opcode, &[payload], Some([1, 2, 3, 4]), &mut bytes);
        }
        client.write_all(&bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let (mut receiver, sender) = server(io);
        let mut messages = Vec::new();
        let end = loop {
            match receiver.next().await {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break Ok(()),
                Err(e) => break Err(e.to_string()),
            }
        };
        sender.close().await;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        (messages, end, answer)
    }

    #[tokio::test]
    async fn messages_pings_and_close() {
        let (messages, end, answer) = receive(&[
            (true, Opcode::Binary, b"\0one"),
            (false, Opcode::Text, b"tw"),
            (true, Opcode::Ping, b"?"),
            (true, Opcode::Continuation, b"o"),
            (true, Opcode::Close, &[3, 232]),
            (true, Opcode::Binary, b"late"),
        ])
        .await;
        let expected =
            [Message::Binary(Bytes::from_static(b"\0one")), Message::Text(Bytes::from_static(b"two"))];
        assert_eq!(messages, expected);
        assert_eq!(end, Ok(()));
        assert_eq!(answer, [0x8a, 1, b'?', 0x88, 2, 3, 232]);
    }

    #[tokio::test]
    async fn fragments_out_of_order() {
        let (_, end, _) = receive(&[(true, Opcode::Continuation, b"x")]).await;
        assert!(end.unwrap_err().contains("fragments"));
        let (_, end, _) = receive(&[(false, Opcode::Text, b"x"), (true, Opcode::Text, b"y")]).await;
        assert!(end.unwrap_err().contains("fragments"));
    }

    #[tokio::test]
    async fn a_long_message_in_fragments_is_refused() {
        let part = vec![0u8; 48 << 10];
        let (mut client, io) = tokio::io::duplex(1 << 16);
        let flood = tokio::spawn(async move {
            let mut opcode = Opcode::Binary;
            loop {
                let mut bytes = BytesMut::new();
                frame::encode(false, opcode, &[&part], Some([0; 4]), &mut bytes);
                opcode = Opcode::Continuation;
                if client.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        let (mut receiver, sender) = server(io);
        assert!(matches!(receiver.next().await, Err(SocketError::Frame(FrameError::TooLong))));
        drop((receiver, sender));
        flood.await.unwrap();
    }
}
