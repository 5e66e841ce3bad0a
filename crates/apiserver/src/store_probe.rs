//! The checks of the health of etcd: whoever asks for one has etcd asked, and gets the last answer.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Asks etcd whether it answers.
type Ask = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// A check that asks etcd within a time, as upstream's `newETCD3Check`.
pub(crate) struct StoreProbe {
    ask: Ask,
    timeout: Duration,
    state: Arc<Mutex<State>>,
}

struct State {
    last: Result<(), String>,
    /// When it was asked last, and whether the answer is still to come.
    asked: Option<(Instant, bool)>,
}

impl StoreProbe {
    /// A check that wants an answer within the time.
    pub(crate) fn new(ask: Ask, timeout: Duration) -> Self {
        let state = State { last: Ok(()), asked: None };
        Self { ask, timeout, state: Arc::new(Mutex::new(state)) }
    }

    /// The last answer; asks anew if half of the time has passed since it was asked.
    pub(crate) fn check(&self) -> Result<(), String> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let due = state.asked.is_none_or(|(at, waits)| !waits && now - at >= self.timeout / 2);
        if due && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            state.asked = Some((now, true));
            let (asked, timeout, kept) = ((self.ask)(), self.timeout, Arc::clone(&self.state));
            runtime.spawn(async move {
                let late = || Err("error getting data from etcd: context deadline exceeded".to_owned());
                let answer = tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| late());
                let mut state = kept.lock();
                state.last = answer;
                state.asked = Some((now, false));
            });
        }
        state.last.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_takes_too_long_is_none() {
        let delay = Arc::new(AtomicU64::new(0));
        let asked = Arc::new(AtomicU64::new(0));
        let ask: Ask = {
            let (delay, asked) = (Arc::clone(&delay), Arc::clone(&asked));
            Arc::new(move || {
                let wait = Duration::from_secs(delay.load(Ordering::Relaxed));
                asked.fetch_add(1, Ordering::Relaxed);
                Box::pin(async move {
                    tokio::time::sleep(wait).await;
                    Ok(())
                })
            })
        };
        let probe = StoreProbe::new(ask, Duration::from_secs(4));
        let step = || tokio::time::sleep(Duration::from_secs(1));
        for _ in 0..8 {
            assert_eq!(probe.check(), Ok(()));
            step().await;
        }
        assert_eq!(asked.load(Ordering::Relaxed), 4, "once in two seconds");
        delay.store(3, Ordering::Relaxed);
        for _ in 0..8 {
            assert_eq!(probe.check(), Ok(()), "slow, but in time");
            step().await;
        }
        delay.store(60, Ordering::Relaxed);
        let mut bad = 0;
        for _ in 0..12 {
            bad += usize::from(probe.check().is_err_and(|why| why.ends_with("context deadline exceeded")));
            step().await;
        }
        assert!((1..12).contains(&bad), "{bad}");
        delay.store(0, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_mins(1)).await;
        let _ = probe.check();
        step().await;
        assert_eq!(probe.check(), Ok(()));
    }
}
