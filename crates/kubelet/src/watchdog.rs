//! The watchdog of the service manager: it hears from this kubelet while `/healthz` is well, and starts it again if it does
//! not (upstream: `pkg/kubelet/watchdog`).

use std::time::Duration;

use systemd::notify::{self, WatchdogError};

/// A watchdog must wait longer than this; upstream's bound.
const LEAST: Duration = Duration::from_secs(1);
/// How long after a message that was not taken it is sent once more; upstream's.
const AGAIN: Duration = Duration::from_secs(1);

/// A watchdog that cannot be served; upstream's texts.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchdogSettingError {
    /// The service manager does not say it as it must.
    #[error("configure watchdog: {0}")]
    Environment(#[from] WatchdogError),
    /// It waits too short.
    #[error("configure watchdog timeout too small: {}", api::time::format_duration(*.0))]
    Short(jiff::SignedDuration),
}

/// How often the service manager wants to hear from this process; none if it does not.
///
/// # Errors
/// The setting is none.
pub(crate) fn period() -> Result<Option<Duration>, WatchdogSettingError> {
    half(notify::watchdog()?)
}

fn half(time: Option<Duration>) -> Result<Option<Duration>, WatchdogSettingError> {
    match time {
        Some(time) if time <= LEAST => Err(WatchdogSettingError::Short(time.try_into().unwrap_or_default())),
        time => Ok(time.map(|time| time / 2)),
    }
}

/// Tells the watchdog every `period` that this process is well, while it is. Never ends.
pub(crate) async fn feed(
    period: Duration,
    failure: impl Fn() -> Option<String>,
    tell: impl Fn() -> std::io::Result<bool>,
) {
    loop {
        if let Some(why) = failure() {
            tracing::error!(why, "not telling the watchdog that the kubelet is well, for it is not");
        } else if tell().is_err() {
            tokio::time::sleep(AGAIN.min(period)).await;
            if let Err(error) = tell() {
                tracing::error!(%error, "cannot tell the watchdog that the kubelet is well");
            }
        }
        tokio::time::sleep(period).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use tokio::time::Instant;

    use super::*;

    #[test]
    fn periods() {
        let check = |millis: Option<u64>, expected: Result<Option<u64>, &str>| {
            let found = half(millis.map(Duration::from_millis));
            let found = found.map(|time| time.map(|t| t.as_millis() as u64)).map_err(|e| e.to_string());
            assert_eq!(found, expected.map_err(str::to_owned));
        };
        check(None, Ok(None));
        check(Some(30_000), Ok(Some(15_000)));
        check(Some(1_001), Ok(Some(500)));
        check(Some(1_000), Err("configure watchdog timeout too small: 1s"));
        check(Some(200), Err("configure watchdog timeout too small: 200ms"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_healthy_kubelet_is_heard() {
        let (began, told) = (Instant::now(), RefCell::new(Vec::new()));
        let (well, deaf) = (Cell::new(true), Cell::new(false));
        let period = Duration::from_secs(10);
        let tell = || {
            told.borrow_mut().push(began.elapsed().as_secs());
            if deaf.get() { Err(std::io::ErrorKind::WouldBlock.into()) } else { Ok(true) }
        };
        let events = async {
            tokio::time::sleep(Duration::from_secs(25)).await;
            well.set(false);
            tokio::time::sleep(Duration::from_secs(30)).await;
            well.set(true);
            deaf.set(true);
            tokio::time::sleep(Duration::from_secs(10)).await;
        };
        let failure = || (!well.get()).then(|| "stalled".to_owned());
        tokio::select! {
            () = feed(period, failure, tell) => {}
            () = events => {}
        }
        assert_eq!(*told.borrow(), [0, 10, 20, 60, 61]);
    }
}
