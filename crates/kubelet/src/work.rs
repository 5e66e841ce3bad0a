//! File work on behalf of a Pod, which goes on in its thread when whoever waits for it has gone.

use std::future::Future;

use tokio_util::task::TaskTracker;

tokio::task_local! {
    /// What counts the work of the Pod whose step runs in this task.
    static OF_POD: TaskTracker;
}

/// The file work under way for one Pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Work(TaskTracker);

impl Work {
    /// Counts what `step` begins by [`blocking`].
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

/// Runs file work off the async threads. It ends also when its caller has gone, and counts as work of
/// the Pod until then.
pub(crate) async fn blocking<T, F>(work: F) -> Result<T, String>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, String> + Send + 'static,
{
    let counted = OF_POD.try_with(TaskTracker::token).ok();
    let task = tokio::task::spawn_blocking(move || {
        let result = work();
        drop(counted);
        result
    });
    task.await.map_err(|e| e.to_string())?
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
            wait.recv().map_err(|e| e.to_string())
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
        work.scope(blocking(|| Ok(()))).await.unwrap();
        work.idle().await;
    }
}
