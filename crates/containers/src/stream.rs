//! Streams of processes: pipes and terminals, as tokio reads and writes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::pipe::PipeFlags;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// One end of a pipe, or a terminal's master. A terminal that nobody has open any more is at its end.
#[derive(Debug)]
pub struct Stream(AsyncFd<OwnedFd>);

impl Stream {
    /// Takes a descriptor, which waits for nothing from now on.
    pub(crate) fn new(d: OwnedFd) -> io::Result<Self> {
        crate::raw::nonblocking(&d)?;
        crate::raw::registered(d, Interest::READABLE | Interest::WRITABLE).map(Self)
    }

    /// A second one of the same.
    pub(crate) fn again(&self) -> io::Result<Self> {
        Self::new(self.0.get_ref().try_clone()?)
    }

    /// The descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let read = guard.try_io(|d| match rustix::io::read(d.get_ref(), buf.initialize_unfilled()) {
                Err(rustix::io::Errno::IO) => Ok(0),
                other => other.map_err(io::Error::from),
            });
            if let Ok(read) = read {
                return Poll::Ready(read.map(|n| buf.advance(n)));
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(written) = guard.try_io(|d| Ok(rustix::io::write(d.get_ref(), buf)?)) {
                return Poll::Ready(written);
            }
        }
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    /// Nothing is left to be written; a pipe's other end sees the end once the stream is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A pipe: the reading and the writing end.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}
