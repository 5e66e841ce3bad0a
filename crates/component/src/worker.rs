//! A thread for work that blocks, such as commits to the kernel: one piece follows the other.

use tokio::sync::{mpsc, oneshot};

use crate::Shutdown;

type Piece<W, D> = (W, oneshot::Sender<D>);

/// Gives work to a thread of its own, which ends with it.
#[derive(Debug)]
pub struct Worker<W, D>(mpsc::Sender<Piece<W, D>>);

impl<W: Send + 'static, D: Send + 'static> Worker<W, D> {
    /// Starts the thread. The component cannot go on without it: a panic of `work` is told as that of a task is.
    pub fn start(shutdown: &Shutdown, mut work: impl FnMut(W) -> D + Send + 'static) -> Self {
        let (sender, mut pieces) = mpsc::channel::<Piece<W, D>>(1);
        let guard = shutdown.clone();
        let run = move || {
            while let Some((piece, reply)) = pieces.blocking_recv() {
                // One who does not wait any more wanted the work all the same.
                let _ = reply.send(work(piece));
            }
        };
        shutdown.spawn(async move {
            let _ = tokio::task::spawn_blocking(move || guard.guard(run)).await;
        });
        Self(sender)
    }

    /// Does work; `None` if the thread has ended.
    pub async fn work(&self, work: W) -> Option<D> {
        let (reply, done) = oneshot::channel();
        self.0.send((work, reply)).await.ok()?;
        done.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_piece_follows_the_other() {
        let shutdown = Shutdown::new();
        let mut sum = 0;
        let worker = Worker::start(&shutdown, move |n: u32| {
            sum += n;
            sum
        });
        // The second is done although nobody waits for it.
        assert_eq!(worker.work(1).await, Some(1));
        let (reply, _) = oneshot::channel();
        worker.0.send((2, reply)).await.unwrap();
        assert_eq!(worker.work(3).await, Some(6));
        drop(worker);
        shutdown.finish().await;
    }

    #[tokio::test]
    async fn a_panic_is_told() {
        let shutdown = Shutdown::new();
        let worker = Worker::start(&shutdown, |(): ()| panic!("it breaks"));
        assert_eq!(worker.work(()).await, None::<()>);
        shutdown.panicked().await;
    }
}
