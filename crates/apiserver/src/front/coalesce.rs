//! Small HTTP/2 frames leave together.
//!
//! Each stream that has something to send wakes its connection, which the runtime then runs before the other
//! streams: an event that goes to a hundred watchers of one connection would run it a hundred times.
//!
//! The HTTP/2 codec flushes after almost every frame. Over TLS each flush is a record and a system
//! call, so an event that goes to a hundred watchers of one connection would cost a hundred of both.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};

/// The largest TLS record: frames that fill one are passed on as they are.
const RECORD: usize = 16 << 10;

/// A connection whose flushes wait until it has nothing more to write at the moment: the first flush
/// after a write only wakes the task, and the next one, if nothing was written in between, sends.
///
/// Only for a task that flushes whenever it is polled, as an HTTP/2 connection's does.
pub(crate) struct Coalesce<S> {
    inner: BufWriter<S>,
    /// Something was written after the last flush.
    written: bool,
}

impl<S: AsyncWrite> Coalesce<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner: BufWriter::with_capacity(RECORD, inner), written: false }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Coalesce<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesce<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.inner).poll_write(cx, buf))?;
        self.written = true;
        Poll::Ready(Ok(n))
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs))?;
        self.written = true;
        Poll::Ready(Ok(n))
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.written) {
            cx.waker().wake_by_ref();
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Runs a future after the tasks that were ready before it was woken.
pub(crate) async fn after_others<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut others_first = false;
    poll_fn(move |cx| {
        others_first = !others_first;
        if others_first {
            // Waking itself, a task goes to the end of the queue.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        future.as_mut().poll(cx)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    use tokio::io::AsyncReadExt;

    use super::*;

    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicUsize);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn flushes_wait_for_the_last_write() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let mut io = Coalesce::new(near);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut got = [0; 8];
        for part in [b"one ", b"two "] {
            assert!(matches!(Pin::new(&mut io).poll_write(&mut cx, part), Poll::Ready(Ok(4))));
            assert!(Pin::new(&mut io).poll_flush(&mut cx).is_ready());
            let mut buf = ReadBuf::new(&mut got);
            assert!(Pin::new(&mut far).poll_read(&mut cx, &mut buf).is_pending(), "sent too early");
        }
        assert_eq!(woken.0.load(std::sync::atomic::Ordering::Relaxed), 2, "nobody would flush again");
        assert!(Pin::new(&mut io).poll_flush(&mut cx).is_ready());
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"one two ");
    }

    #[tokio::test]
    async fn others_come_first() {
        let told = std::sync::Mutex::new(Vec::new());
        let tell = |who| told.lock().unwrap().push(who);
        let (send, last) = tokio::sync::oneshot::channel();
        let last = after_others(async {
            last.await.unwrap();
            tell("last");
        });
        let first = async {
            send.send(()).unwrap();
            tell("first");
            tokio::task::yield_now().await;
            tell("second");
        };
        tokio::join!(biased; first, last);
        assert_eq!(*told.lock().unwrap(), ["first", "second", "last"]);
    }
}
