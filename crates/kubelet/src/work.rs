//! File work on behalf of a Pod, which goes on in its thread when whoever waits for it has gone.

use std::future::Future;
use std::io;

use component::boxed;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinError;
use tokio_util::task::TaskTracker;

tokio::task_local! {
    /// The counter of the work of the Pod whose step runs in this task.
    static OF_POD: TaskTracker;
}

/// The file work under way for one Pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Work(TaskTracker);

impl Work {
    /// Counts the work that `step` begins by [`blocking`].
    pub(crate) async fn scope<F: Future>(&self, step: F) -> F::Output {
        OF_POD.scope(self.0.clone(), step).await
    }

    /// Resolves once nothing is under way. Nothing may be begun meanwhile.
    pub(crate) async fn idle(&self) {
        self.0.close();
        self.0.wait().await;
        self.0.reopen();
    }
}

/// File work that did not come to its end: it panicked, or the process stops.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Interrupted(#[from] JoinError);

impl From<Interrupted> for io::Error {
    fn from(error: Interrupted) -> Self {
        Self::other(error)
    }
}

/// Runs file work off the async threads. It ends also when its caller has gone, and counts as work of
/// the Pod until then.
pub(crate) async fn blocking<T, F>(work: F) -> Result<T, Interrupted>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let counted = OF_POD.try_with(TaskTracker::token).ok();
    let done = component::blocking(move || {
        let result = work();
        drop(counted);
        result
    });
    Ok(done.await?)
}

/// Runs work that may wait for another program where it stands: the other tasks of this thread go on in another one.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Runs work in a task of its own, to its end, whether or not its caller waits. It counts as work of the Pod until then.
pub(crate) async fn to_end<F>(work: F) -> Result<F::Output, Interrupted>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let counted = OF_POD.try_with(TaskTracker::token).ok();
    let task = tokio::spawn(boxed(async move {
        let result = work.await;
        drop(counted);
        result
    }));
    Ok(task.await?)
}

/// Runs file work that may fail, as [`blocking`] does.
pub(crate) async fn try_blocking<T, E, F>(work: F) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Interrupted> + Send + 'static,
    F: FnOnce() -> Result<T, E> + Send + 'static,
{
    blocking(work).await.unwrap_or_else(|error| Err(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_whose_caller_has_gone_is_waited_for() {
        let work = Work::default();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (begun, began) = tokio::sync::oneshot::channel();
        let step = work.scope(blocking(move || {
            let _ = begun.send(());
            let _ = wait.recv();
        }));
        let given_up = tokio::select! {
            biased;
            _ = step => false,
            _ = began => true,
        };
        assert!(given_up);
        let mut idle = Box::pin(work.idle());
        let now = tokio::select! {
            biased;
            () = &mut idle => true,
            () = tokio::task::yield_now() => false,
        };
        assert!(!now, "the work is still under way");
        go.send(()).unwrap();
        idle.await;
        work.scope(blocking(|| ())).await.unwrap();
        work.idle().await;
    }
}
