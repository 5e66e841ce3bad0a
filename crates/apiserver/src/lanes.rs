//! Where long work is done: on threads of its own, so that those that accept connections, feed watches and answer
//! short requests go on meanwhile. So many works are done at once, of all and of each user, each on a thread for itself;
//! the others wait for as long as their requests may, and those that wait in vain are never begun.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use api::Status;
use component::{boxed, boxed_work};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

/// As the stacks of the process's other threads: what handles objects recurses.
const STACK: usize = 16 << 20;
/// How much less than others its threads want the processor.
const NICENESS: i32 = 5;
/// How many works wait at most.
const WAITING: usize = 1024;
/// How many users are told apart, most of the time.
const USERS: usize = 64;

/// The lanes.
pub(crate) struct Lanes {
    /// Made for the first work; none if there can be no threads.
    threads: OnceLock<Threads>,
    running: Arc<Semaphore>,
    of_users: Vec<Arc<Semaphore>>,
    waiting: AtomicUsize,
    count: usize,
}

struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        // Nobody wants the tasks that still run there any more, and this may be no place to wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Lanes {
    /// Lanes, or none: then work is done where it is asked for.
    pub(crate) fn with_threads(threads: bool) -> Self {
        if !threads {
            let none = Self::new(WAITING);
            let _ = none.threads.set(Threads(None));
            return none;
        }
        Self::default()
    }
}

impl Default for Lanes {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, |n| n.get());
        Self::new((processors / 2).max(2))
    }
}

impl Lanes {
    /// For so many works that compute. A work may also wait for the store, so that twice as many run, half of them of one
    /// user.
    fn new(count: usize) -> Self {
        Self {
            threads: OnceLock::new(),
            running: Arc::new(Semaphore::new(2 * count)),
            of_users: (0..USERS).map(|_| Arc::new(Semaphore::new(count))).collect(),
            waiting: AtomicUsize::default(),
            count,
        }
    }

    fn threads(&self) -> Option<&Runtime> {
        let make = || {
            let made = Builder::new_multi_thread()
                .worker_threads(1)
                .max_blocking_threads(2 * self.count)
                .thread_stack_size(STACK)
                .thread_name("lane")
                .on_thread_start(|| {
                    // Without it, the system shares out the processor evenly, which will do.
                    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
                })
                .enable_all()
                .build();
            Threads(made.inspect_err(|error| tracing::warn!(%error, "no threads for long work")).ok())
        };
        self.threads.get_or_init(make).0.as_ref()
    }

    /// Does work for a user once there is room. A caller that stops waiting for the result ends the work where it waits
    /// itself; a work that begins only after the deadline is not begun.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        user: usize,
        deadline: Option<Instant>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Status> {
        let late = move || deadline.is_some_and(|at| Instant::now() >= at);
        let permits = {
            let _waits = Waits::new(&self.waiting).ok_or_else(|| too_many(1))?;
            let of_user = Arc::clone(&self.of_users[user % USERS]).acquire_owned().await;
            (of_user, Arc::clone(&self.running).acquire_owned().await)
        };
        let Some(threads) = self.threads() else { return Ok(work.await) };
        let (wanted, mut unwanted) = oneshot::channel::<()>();
        let runtime = threads.handle().clone();
        // A worker of the runtime that does one work keeps others in its own queue, where they wait although other
        // workers are idle; threads for blocking work take theirs one by one.
        let task = threads.spawn_blocking(boxed_work(move || {
            let _permits = permits;
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = &mut unwanted => None,
                    done = async { if late() { None } else { Some(work.await) } } => done,
                }
            })
        }));
        let ended = task.await;
        drop(wanted);
        match ended {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(timed_out()),
            Err(ended) => Err(Status::internal(ended)),
        }
    }

    /// Starts a task there that does only a little at once.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.threads() {
            Some(threads) => drop(threads.spawn(boxed(task))),
            None => drop(tokio::spawn(boxed(task))),
        }
    }
}

/// One more that waits.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(count: &'a AtomicUsize) -> Option<Self> {
        let this = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < WAITING).then_some(this)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Upstream's answer to a request that was not answered in its time.
pub(crate) fn timed_out() -> Status {
    let text = "Timeout: request did not complete within the allotted timeout";
    let mut status = Status::failure(504, "Timeout", text);
    status.details = Some(Box::default());
    status
}

/// Upstream's answer to a request for which there is no room; it may come again after so many seconds.
pub(crate) fn too_many(retry_after: u64) -> Status {
    let mut status = Status::failure(429, "TooManyRequests", "Too many requests, please try again later.");
    status.details = Some(Box::new(api::status::Details {
        retry_after_seconds: retry_after as i32,
        ..Default::default()
    }));
    status
}

/// Fails with upstream's 504 once a deadline has passed.
pub(crate) fn in_time(deadline: Option<Instant>) -> Result<(), Status> {
    if deadline.is_some_and(|at| Instant::now() >= at) { Err(timed_out()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Work that holds a thread until it is told to end.
    fn stubborn() -> (mpsc::Sender<()>, impl Future<Output = ()> + Send) {
        let (end, ended) = mpsc::channel();
        (end, async move {
            let _ = ended.recv();
        })
    }

    fn occupied(lanes: &Lanes) -> usize {
        2 * lanes.count - lanes.running.available_permits()
    }

    /// The current thread goes on whatever the lanes do.
    #[tokio::test]
    async fn no_user_has_all_lanes() {
        let lanes = Arc::new(Lanes::new(2));
        let mut ends = Vec::new();
        let start = |user| {
            let (end, work) = stubborn();
            let lanes = Arc::clone(&lanes);
            let deadline = Instant::now() + Duration::from_mins(1);
            (end, tokio::spawn(async move { lanes.run(user, Some(deadline), work).await.is_ok() }))
        };
        for _ in 0..10 {
            ends.push(start(1));
        }
        while occupied(&lanes) < 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(occupied(&lanes), 2, "the others wait");
        ends.push(start(2));
        while occupied(&lanes) < 3 {
            tokio::task::yield_now().await;
        }
        for (end, task) in ends {
            drop(end);
            assert!(task.await.unwrap());
        }
        assert_eq!(occupied(&lanes), 0);
    }

    #[tokio::test]
    async fn what_waits_too_long_is_never_begun() {
        let lanes = Arc::new(Lanes::new(1));
        let (end, work) = stubborn();
        let soon = || Some(Instant::now() + Duration::from_millis(10));
        let begun = Arc::new(AtomicUsize::default());
        let count = |begun: &Arc<AtomicUsize>| {
            let begun = Arc::clone(begun);
            async move { begun.fetch_add(1, Ordering::Relaxed) }
        };
        let (tell, is_there) = oneshot::channel();
        let own = Arc::clone(&lanes);
        let first = tokio::spawn(async move {
            let work = async {
                let _ = tell.send(());
                work.await;
            };
            own.run(1, None, work).await
        });
        is_there.await.unwrap();
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let second = tokio::time::timeout(Duration::from_millis(10), lanes.run(1, soon(), count(&begun)));
        assert!(second.await.is_err());
        assert_eq!(occupied(&lanes), 1, "the first holds its thread");
        drop(end);
        assert_eq!(lanes.run(1, None, count(&begun)).await.unwrap(), 0, "the second was never begun");
        let past = Some(Instant::now());
        assert_eq!(lanes.run(1, past, count(&begun)).await.unwrap_err().code, 504);
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }
}
