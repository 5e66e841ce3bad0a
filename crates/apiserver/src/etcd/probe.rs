//! How the plugins of KMS providers are, as upstream's `kms-providers` check tells it.

use std::sync::Arc;
use std::time::Duration;

use component::{Clock, Shutdown};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// How old the last answer may be that a health check tells: a good one, and a bad one.
const TOLD: (SignedDuration, SignedDuration) = (SignedDuration::from_secs(20), SignedDuration::from_secs(3));

/// How a plugin was when it was last asked.
pub(super) struct Probe {
    name: String,
    pub(super) clock: Clock,
    health: Mutex<Health>,
    /// Somebody wants to know how it is now.
    asked: Notify,
}

struct Health {
    outcome: Result<(), String>,
    at: Timestamp,
}

/// A provider whose plugin can be asked how it is.
pub(super) trait Probed: Send + Sync + 'static {
    /// How the plugin was when it was last asked.
    fn probe(&self) -> &Probe;

    /// How long the plugin is not asked unless somebody wants to know: while it is well, and while it is not.
    const POLL: (Duration, Duration);

    /// Asks the plugin how it is.
    fn check(&self) -> impl Future<Output = Result<(), String>> + Send;
}

impl Probe {
    /// Of the provider of this name.
    pub(super) fn new(name: String, clock: Clock) -> Self {
        let health = Health { outcome: Err("it was not asked yet".into()), at: Timestamp::UNIX_EPOCH };
        Self { name, clock, health: Mutex::new(health), asked: Notify::new() }
    }

    /// The provider's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the plugin was well when it was last asked, which is not long ago.
    pub(super) fn healthy(&self) -> Result<(), String> {
        let health = self.health.lock();
        let age = self.clock.now().duration_since(health.at);
        if age > if health.outcome.is_ok() { TOLD.0 } else { TOLD.1 } {
            self.asked.notify_one();
        }
        health.outcome.clone()
    }
}

/// Asks how it is, and again and again until shutdown. Returns after the first answer.
pub(super) async fn start<P: Probed>(probed: &Arc<P>, shutdown: &Shutdown) {
    poll(&**probed).await;
    let (probed, stop) = (Arc::clone(probed), shutdown.clone());
    shutdown.spawn(async move {
        loop {
            let probe = probed.probe();
            let well = probe.health.lock().outcome.is_ok();
            let pause = if well { P::POLL.0 } else { P::POLL.1 };
            let waited = stop.run(async {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = probe.asked.notified() => {}
                }
            });
            if waited.await.is_none() || stop.run(poll(&*probed)).await.is_none() {
                return;
            }
        }
    });
}

/// Asks how it is, and keeps the answer.
pub(super) async fn poll<P: Probed>(probed: &P) {
    let outcome = probed.check().await;
    let probe = probed.probe();
    let mut health = probe.health.lock();
    if let Err(error) = &outcome
        && health.outcome.as_ref() != Err(error)
    {
        tracing::error!(name = probe.name, error, "kms plugin failed health check probe");
    }
    *health = Health { outcome, at: probe.clock.now() };
}
