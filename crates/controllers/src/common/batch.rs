//! Many similar requests, few at first.

use std::future::Future;

use futures::StreamExt;
use futures::future::join_all;

/// The most requests about the objects of one owner that are under way at a time.
const AT_ONCE: usize = 100;

/// Runs requests, a bounded number at a time; their answers in the same order.
pub(crate) async fn all<R: Future>(requests: impl IntoIterator<Item = R>) -> Vec<R::Output> {
    let requests: Vec<R> = requests.into_iter().collect();
    futures::stream::iter(requests).buffered(AT_ONCE).collect().await
}

/// Runs `count` requests in batches of 1, 2, 4, … at most [`AT_ONCE`], and stops after the first batch in which one failed: an error that
/// all would meet is met once, not `count` times. Returns the number of requests that succeeded, and the first error.
pub(crate) async fn slow_start<F, R, E>(count: usize, request: F) -> (usize, Result<(), E>)
where
    F: Fn(usize) -> R,
    R: Future<Output = Result<(), E>>,
{
    let (mut done, mut size) = (0, 1);
    while done < count {
        let batch = size.min(count - done);
        let results = join_all((done..done + batch).map(&request)).await;
        let succeeded = results.iter().filter(|r| r.is_ok()).count();
        done += succeeded;
        if let Some(Err(error)) = results.into_iter().find(Result::is_err) {
            return (done, Err(error));
        }
        size = (size * 2).min(AT_ONCE);
    }
    (done, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Upstream's cases of `TestSlowStartBatch` and `TestSyncReplicaSetCreateFailures`: the requests, the first that fails, the calls, and the successes.
    #[tokio::test]
    async fn batches() {
        let check = async |count: usize, failing_from: usize, calls: usize, successes: usize| {
            let made = AtomicUsize::new(0);
            let (done, result) = slow_start(count, |_| {
                let n = made.fetch_add(1, Ordering::SeqCst);
                async move { if n < failing_from { Ok(()) } else { Err("full") } }
            })
            .await;
            assert_eq!((made.into_inner(), done), (calls, successes), "{count} {failing_from}");
            assert_eq!(result.is_err(), successes < count);
        };
        check(0, 0, 0, 0).await;
        check(1, 0, 1, 0).await;
        check(10, 0, 1, 0).await;
        check(4, 4, 4, 4).await;
        check(10, 5, 7, 5).await;
        check(500, 500, 500, 500).await;
        check(100, 10, 15, 10).await;
    }

    #[tokio::test]
    async fn no_more_than_so_many_at_once() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let request = |n: usize| {
            let (now, most) = (&now, &most);
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                n
            }
        };
        let answers = all((0..250).map(request)).await;
        assert_eq!(answers, (0..250).collect::<Vec<_>>());
        assert_eq!(most.swap(0, Ordering::SeqCst), AT_ONCE);
        let (done, result) = slow_start(500, |n| async move {
            request(n).await;
            Ok::<_, ()>(())
        })
        .await;
        assert_eq!((done, result, most.into_inner()), (500, Ok(()), AT_ONCE));
    }
}
