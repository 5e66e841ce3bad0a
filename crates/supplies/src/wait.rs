//! Waiting for a condition.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The time limit of [`eventually`]: far longer than any step, so that only a hang reaches it.
const LONG: Duration = Duration::from_mins(2);

/// Asks until the answer is `Ok(Some(_))`; fails with the last error or after two minutes.
pub fn eventually<T>(what: &str, ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    within(LONG, what, ask)
}

/// Asks until the answer is `Ok(Some(_))`; errors count as "not yet" until the time is up.
pub fn within<T>(limit: Duration, what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    let mut last;
    loop {
        match ask() {
            Ok(Some(v)) => return Ok(v),
            Ok(None) => last = None,
            Err(e) => last = Some(e),
        }
        if start.elapsed() > limit {
            match last {
                Some(e) => return Err(e.context(format!("waited {limit:?} for {what}"))),
                None => bail!("waited {limit:?} for {what}"),
            }
        }
        std::thread::sleep(Duration::from_millis(50)); // the pace of asking, not a wait for time to pass
    }
}
