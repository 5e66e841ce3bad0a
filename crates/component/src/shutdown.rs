//! Shutdown: a signal that everybody sees, and a wait until everybody has gone.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;

/// A component's shutdown. Clones share the signal and the tasks; a child is also stopped by its parent.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// A new one, not stopped.
    pub fn new() -> Self {
        Self::default()
    }
    /// One that stops with this one, and can be stopped and waited for alone.
    pub fn child(&self) -> Self {
        Self { token: self.token.child_token(), tasks: TaskTracker::new() }
    }
    /// Starts a task that [`Shutdown::finish`] waits for.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }
    /// Gives the signal.
    pub fn stop(&self) {
        self.token.cancel();
    }
    /// Whether the signal was given.
    pub fn stopped(&self) -> bool {
        self.token.is_cancelled()
    }
    /// Resolves once the signal is given.
    pub fn wait(&self) -> WaitForCancellationFuture<'_> {
        self.token.cancelled()
    }
    /// Runs a future until it is done or the signal is given; `None` then.
    pub async fn run<F: Future>(&self, future: F) -> Option<F::Output> {
        self.token.run_until_cancelled(future).await
    }
    /// Gives the signal and waits until every task has ended.
    pub async fn finish(&self) {
        self.stop();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
