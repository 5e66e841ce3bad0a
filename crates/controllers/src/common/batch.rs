//! Many similar requests, few at first.

use std::future::Future;

use futures::future::join_all;

/// Runs `count` requests in batches of 1, 2, 4, …, and stops after the first batch in which one failed: an error that
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
        size *= 2;
    }
    (done, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Upstream's cases of `slowStartBatch`: the requests, the first that fails, the calls, and the successes.
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
    }
}
