//! TLS records leave together.
//!
//! Each record is handed to the socket as soon as it is made. A list of 30 MB is 2,000 of them, and as many system
//! calls, each of which sends packets of its own.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is sent at once: what the kernel passes on as one packet, before it is cut.
const FULL: usize = 64 << 10;
/// The room that a connection keeps for it while it has nothing to send.
const KEPT: usize = 8 << 10;

/// A socket that may gather what is written until it is flushed or there is much of it.
///
/// Only for a writer that flushes before it waits, as HTTP/2 connections do; not for upgraded ones, whose users
/// need not.
#[derive(Debug)]
pub(crate) struct Outbox<S> {
    inner: S,
    gathers: bool,
    waiting: Vec<u8>,
    /// How much of it was sent.
    sent: usize,
}

impl<S> Outbox<S> {
    /// One that passes on everything at once.
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, gathers: false, waiting: Vec::new(), sent: 0 }
    }

    /// From now on it gathers.
    pub(crate) fn gather(&mut self) {
        self.gathers = true;
    }
}

impl<S: AsyncWrite + Unpin> Outbox<S> {
    /// Sends what waits.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.waiting.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.inner).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.sent += n,
            }
        }
        self.waiting.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Outbox<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Outbox<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.as_mut().poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.gathers {
            return Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        }
        let more: usize = bufs.iter().map(|b| b.len()).sum();
        if self.waiting.len() + more > FULL {
            ready!(self.poll_send(cx))?;
            if more >= FULL {
                return Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
            }
        }
        for buf in bufs {
            self.waiting.extend_from_slice(buf);
        }
        Poll::Ready(Ok(more))
    }

    fn is_write_vectored(&self) -> bool {
        self.gathers || self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        self.waiting.shrink_to(KEPT);
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The number of bytes that have arrived at the other end.
    async fn arrived(far: &mut tokio::io::DuplexStream) -> usize {
        let mut buf = vec![0; 1 << 20];
        tokio::select! {
            biased;
            n = far.read(&mut buf) => n.unwrap(),
            () = std::future::ready(()) => 0,
        }
    }

    #[tokio::test]
    async fn sends_when_flushed_or_full() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut outbox = Outbox::new(near);
        outbox.write_all(b"at once").await.unwrap();
        assert_eq!(arrived(&mut far).await, 7);
        outbox.gather();
        outbox.write_all(&[1; 1000]).await.unwrap();
        outbox.write_all(&[2; 1000]).await.unwrap();
        assert_eq!(arrived(&mut far).await, 0, "it waits");
        outbox.flush().await.unwrap();
        assert_eq!(arrived(&mut far).await, 2000);
        for _ in 0..5 {
            outbox.write_all(&[3; 16 << 10]).await.unwrap();
        }
        assert_eq!(arrived(&mut far).await, FULL, "there was no room for the fifth");
        outbox.write_all(&vec![4; FULL]).await.unwrap();
        assert_eq!(arrived(&mut far).await, (16 << 10) + FULL, "in their order");
        outbox.write_all(b"last").await.unwrap();
        outbox.shutdown().await.unwrap();
        assert_eq!(arrived(&mut far).await, 4);
    }

    #[tokio::test]
    async fn what_is_sent_in_parts_is_whole() {
        let (near, mut far) = tokio::io::duplex(1000);
        let mut outbox = Outbox::new(near);
        outbox.gather();
        let sent: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
        let writing = async {
            for part in sent.chunks(7001) {
                outbox.write_all(part).await.unwrap();
            }
            outbox.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let ((), read) = tokio::join!(writing, far.read_to_end(&mut got));
        read.unwrap();
        assert!(got == sent);
    }
}
