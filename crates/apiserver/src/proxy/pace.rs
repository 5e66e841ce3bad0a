//! Connections on which only so many bytes a second go each way (`--max-connection-bytes-per-sec`).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// So many times a second a direction goes on that has much to carry.
const STEPS: u64 = 10;

/// A connection with a pace in each direction, if it has one.
pub(super) struct Paced<C> {
    inner: C,
    paces: Option<Box<[Pace; 2]>>,
}

/// The pace of a direction.
struct Pace {
    /// Bytes a second.
    rate: u64,
    /// Until then, it has carried what it may.
    free: Pin<Box<Sleep>>,
}

impl<C> Paced<C> {
    /// So many bytes a second at most go each way; any number if it is zero.
    pub(super) fn new(inner: C, rate: u64) -> Self {
        let pace = || Pace { rate, free: Box::pin(sleep_until(Instant::now())) };
        Self { inner, paces: (rate > 0).then(|| Box::new([pace(), pace()])) }
    }
}

impl Pace {
    /// How many bytes may go now.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        ready!(self.free.as_mut().poll(cx));
        Poll::Ready(usize::try_from((self.rate / STEPS).max(1)).unwrap_or(usize::MAX))
    }

    /// So many bytes went.
    fn went(&mut self, bytes: usize) {
        let took = Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        let at = self.free.deadline().max(Instant::now()) + took;
        self.free.as_mut().reset(at);
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Paced<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some([reads, _]) = this.paces.as_deref_mut() else {
            return Pin::new(&mut this.inner).poll_read(cx, buffer);
        };
        let most = ready!(reads.poll(cx)).min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        reads.went(read);
        Poll::Ready(Ok(()))
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Paced<C> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let Some([_, writes]) = this.paces.as_deref_mut() else {
            return Pin::new(&mut this.inner).poll_write(cx, bytes);
        };
        let most = ready!(writes.poll(cx));
        let part = bytes.get(..most).unwrap_or(bytes);
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, part))?;
        writes.went(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// The seconds in which a megabyte goes each way at once.
    async fn seconds(rate: u64) -> u64 {
        const SIZE: usize = 1 << 20;
        let (near, far) = duplex(64 << 10);
        let (mut reads, mut writes) = tokio::io::split(Paced::new(near, rate));
        let begin = Instant::now();
        let echo = tokio::spawn(async move {
            let (mut from, mut to) = tokio::io::split(far);
            tokio::io::copy(&mut from, &mut to).await
        });
        let write = async {
            writes.write_all(&vec![7; SIZE]).await?;
            writes.shutdown().await
        };
        let mut all = Vec::new();
        let (written, read) = tokio::join!(write, reads.read_to_end(&mut all));
        written.unwrap();
        assert_eq!((read.unwrap(), all.len()), (SIZE, SIZE));
        echo.await.unwrap().unwrap();
        begin.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_go_at_their_pace() {
        assert_eq!(seconds(0).await, 0);
        let slow = seconds(128 << 10).await;
        assert!((7..=9).contains(&slow), "{slow}");
        let fast = seconds(512 << 10).await;
        assert!((1..=3).contains(&fast), "{fast}");
    }
}
