//! The times of the API server, and the steps of its end; named as upstream's.

use std::time::Duration;

use anyhow::{Result, bail};
use apiserver::config::{Ending, Limits};
use clap::Args;
use jiff::SignedDuration;

use super::values::signed_duration;

/// The times of the API server.
#[derive(Debug, Args, Clone)]
pub(crate) struct Times {
    /// How long a request may take that does not go on for as long as its client likes
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = signed_duration)]
    request_timeout: SignedDuration,
    /// Seconds after which a watch ends that names no time of its own; it ends within twice this
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    min_request_timeout: i64,
    /// How long after the start /livez takes it that what the server begins with will be done
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = signed_duration)]
    livez_grace_period: SignedDuration,
    /// How long the server goes on after the signal to end, while /readyz tells load balancers to leave it
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = signed_duration)]
    shutdown_delay_duration: SignedDuration,
    /// Whether the server listens on until the requests under way are answered, and answers others with 429 and
    /// Retry-After
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    shutdown_send_retry_after: bool,
    /// How long the server waits at its end for watches, which it ends one after the other
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = signed_duration)]
    shutdown_watch_termination_grace_period: SignedDuration,
    /// How many seconds a Pod stays on a node that is not ready, if the Pod does not say
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true)]
    default_not_ready_toleration_seconds: i64,
    /// How many seconds a Pod stays on a node that is unreachable, if the Pod does not say
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true)]
    default_unreachable_toleration_seconds: i64,
}

/// A time that is not negative.
fn time(given: SignedDuration, refusal: &str) -> Result<Duration> {
    Duration::try_from(given).or_else(|_| bail!("{refusal}"))
}

impl Times {
    /// How many seconds a Pod stays on a node that is not ready, and on one that is unreachable, if it does not say.
    pub(crate) fn toleration_seconds(&self) -> [i64; 2] {
        [self.default_not_ready_toleration_seconds, self.default_unreachable_toleration_seconds]
    }
    /// Puts the times into the limits of requests.
    pub(crate) fn configure(&self, limits: &mut Limits) -> Result<()> {
        let grace = time(self.livez_grace_period, "--livez-grace-period can not be a negative value")?;
        limits.livez_grace = grace;
        limits.request_timeout = time(self.request_timeout, "--request-timeout can not be negative value")?;
        let Ok(least) = u64::try_from(self.min_request_timeout) else {
            bail!("--min-request-timeout can not be negative value");
        };
        limits.min_request_timeout = Duration::from_secs(least);
        limits.ending = Ending {
            delay: time(self.shutdown_delay_duration, "--shutdown-delay-duration can not be negative value")?,
            retry_after: self.shutdown_send_retry_after,
            watches: time(
                self.shutdown_watch_termination_grace_period,
                "shutdown-watch-termination-grace-period, if provided, can not be a negative value",
            )?,
        };
        Ok(())
    }
}
