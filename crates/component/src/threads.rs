//! Threads for work that blocks for a moment, such as that with files, mounts and cgroups.
//!
//! Each thread keeps some 2 MiB of freed memory for as long as it is used now and then, and tokio lends its threads in
//! turn: were there one for each piece of work that many Pods want at once, all of them would stay. So only a few work at
//! a time, which are as fast as many.

use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

use crate::shutdown::boxed_work;

/// The longest wait for a place. Work that never ends, as with files of a server that does not answer, slows others down
/// by this much and does not stop them.
const PATIENCE: Duration = Duration::from_secs(1);

/// The places of this process: its threads are one pool, whoever uses them.
static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(places())));

/// Several for each processor, since some of the work waits for the disk.
fn places() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    (processors * 4).clamp(8, 64)
}

/// Does work off the async threads, as one of few at a time. Once it has begun it comes to its end, whether or not its
/// caller waits.
///
/// # Errors
/// The work panicked, or the process stops.
pub fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, JoinError>> + Send {
    // The task that waits has no room for what the work takes along.
    let work = boxed_work(work);
    async move {
        let place = place(&PLACES, PATIENCE).await;
        let done = spawn_blocking(move || {
            let done = work();
            drop(place);
            done
        });
        done.await
    }
}

/// A place; none after the longest wait.
async fn place(places: &Arc<Semaphore>, patience: Duration) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = places.clone().try_acquire_owned() {
        return Some(place);
    }
    timeout(patience, places.clone().acquire_owned()).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn few_work_at_a_time_and_each_has_its_turn() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = |number: usize| {
            let (now, most) = (now.clone(), most.clone());
            blocking(move || {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
                number
            })
        };
        let all: tokio::task::JoinSet<_> = (0..1000).map(work).collect();
        let mut done: Vec<usize> = all.join_all().await.into_iter().map(Result::unwrap).collect();
        done.sort_unstable();
        assert_eq!(done, (0..1000).collect::<Vec<_>>());
        assert!(most.load(Ordering::SeqCst) <= places());
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_never_ends_stops_nobody() {
        let places = Arc::new(Semaphore::new(1));
        let held = place(&places, PATIENCE).await;
        assert!(held.is_some());
        let began = tokio::time::Instant::now();
        assert!(place(&places, PATIENCE).await.is_none());
        assert_eq!(began.elapsed(), PATIENCE);
        drop(held);
        assert!(place(&places, PATIENCE).await.is_some());
    }

    #[tokio::test]
    async fn a_panic_gives_its_place_back() {
        for _ in 0..2 * places() {
            assert!(blocking(|| panic!("on purpose")).await.unwrap_err().is_panic());
        }
        assert_eq!(blocking(|| 7).await.unwrap(), 7);
    }
}
