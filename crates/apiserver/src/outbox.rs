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
/// What a connection keeps for it while it has nothing to send.
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
        bufs.iter().for_each(|b| self.waiting.extend_from_slice(b));
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
