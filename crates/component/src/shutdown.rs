//! Shutdown: a signal that all tasks see, and a wait until all have ended. A component's tasks cannot be lost unseen.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;

/// A component's shutdown. Clones share the signal and the tasks; a child is also stopped by its parent.
///
/// There are two sorts of tasks. A component cannot go on without those of [`Shutdown::spawn`]: if one of them panics,
/// [`Shutdown::panicked`] reports it to the process, which ends and is started anew, as upstream's do. Those of
/// [`Shutdown::spawn_one`] are one of many (a connection, a request): a panic costs that one alone.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tasks: TaskTracker,
    /// The first loss, shared with parents and children, since all are in one process.
    loss: Arc<Loss>,
}

/// A task or thread that a component needs, and that has panicked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panicked {
    /// The place where it was started, as `file:line`.
    pub task: String,
    /// The message of the panic.
    pub message: String,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the task of {} panicked: {}", self.task, self.message)
    }
}

#[derive(Debug, Default)]
struct Loss {
    first: OnceLock<Panicked>,
    told: CancellationToken,
}

impl Loss {
    fn report(&self, started: &Location<'_>, panic: &(dyn Any + Send)) {
        let task = format!("{}:{}", started.file(), started.line());
        // The first panic is the cause, others may follow from it.
        let _ = self.first.set(Panicked { task, message: message_of(panic) });
        self.told.cancel();
    }
}

/// The message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

/// A task without its type: the code of tokio for tasks is compiled anew for each type, some five kilobytes each.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Takes a task's type away, for those who start tasks of many types.
pub fn boxed<F: Future + Send + 'static>(task: F) -> Boxed<F::Output> {
    Box::pin(task)
}

/// Takes the type of work for a thread away, as [`boxed`] does of tasks.
pub fn boxed_work<T>(work: impl FnOnce() -> T + Send + 'static) -> Box<dyn FnOnce() -> T + Send> {
    Box::new(work)
}

/// A task whose panic is reported.
async fn watched<T>(loss: Arc<Loss>, started: &'static Location<'static>, mut task: Boxed<T>) -> T {
    let polled = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panic) => Poll::Ready(Err(panic)),
    });
    polled.await.unwrap_or_else(|panic| {
        loss.report(started, &*panic);
        resume_unwind(panic)
    })
}

impl Shutdown {
    /// Makes a shutdown that is not stopped.
    pub fn new() -> Self {
        Self::default()
    }
    /// Makes a shutdown that stops with this one, and can be stopped and waited for alone.
    pub fn child(&self) -> Self {
        Self { token: self.token.child_token(), tasks: TaskTracker::new(), loss: Arc::clone(&self.loss) }
    }
    /// Makes a shutdown that stops alone, but whose losses are reported here.
    pub fn apart(&self) -> Self {
        Self { loss: Arc::clone(&self.loss), ..Self::default() }
    }
    /// Starts a task that [`Shutdown::finish`] waits for, and without which the component cannot go on.
    #[track_caller]
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(watched(Arc::clone(&self.loss), Location::caller(), boxed(task)))
    }
    /// Starts a task that [`Shutdown::finish`] waits for, and that is one of many: a panic costs that task alone.
    pub fn spawn_one<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(boxed(task))
    }
    /// Runs the work of a thread without which the component cannot go on.
    #[track_caller]
    pub fn guard<R>(&self, work: impl FnOnce() -> R) -> R {
        let started = Location::caller();
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            self.loss.report(started, &*panic);
            resume_unwind(panic)
        })
    }
    /// Resolves once a task or thread has panicked without which the process cannot go on: of this shutdown, its
    /// parents or its children.
    pub async fn panicked(&self) -> Panicked {
        loop {
            self.loss.told.cancelled().await;
            if let Some(first) = self.loss.first.get() {
                return first.clone();
            }
        }
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
    /// Runs a future until it is done, or until the signal is given: then returns `None`.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Whether a loss is reported within a (paused) minute.
    async fn told(shutdown: &Shutdown) -> Option<Panicked> {
        tokio::time::timeout(Duration::from_mins(1), shutdown.panicked()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_component_is_not_lost_unseen() {
        let process = Shutdown::new();
        let component = process.child();
        let task = component.spawn(async {
            tokio::task::yield_now().await;
            panic!("at {}", "noon");
        });
        let loss = told(&process).await.unwrap();
        assert_eq!(loss.message, "at noon");
        assert!(loss.task.contains("shutdown.rs:"), "{loss}");
        assert_eq!(told(&component.child()).await, Some(loss));
        assert!(task.await.unwrap_err().is_panic(), "a task that waits for it learns of it as before");
        process.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_loss_is_told() {
        let process = Shutdown::new();
        assert!(process.spawn(async { panic!("first") }).await.is_err());
        assert!(process.spawn(async { panic!("second") }).await.is_err());
        assert_eq!(told(&process).await.unwrap().message, "first");
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_many_costs_itself_alone() {
        let process = Shutdown::new();
        assert!(process.spawn_one(async { panic!("one") }).await.is_err());
        assert_eq!(process.spawn(async { 7 }).await.unwrap(), 7);
        let stopped = process.clone();
        process.spawn(async move { stopped.wait().await });
        assert_eq!(told(&process).await, None);
        process.finish().await;
        assert_eq!(told(&process).await, None, "an end that was asked for is no loss");
    }

    #[tokio::test(start_paused = true)]
    async fn threads_are_seen_too() {
        let process = Shutdown::new();
        let guarded = process.child();
        let thread = std::thread::spawn(move || guarded.guard(|| panic!("in a thread")));
        assert!(thread.join().is_err());
        assert_eq!(told(&process).await.unwrap().message, "in a thread");
        assert_eq!(process.guard(|| 7), 7);
    }
}
