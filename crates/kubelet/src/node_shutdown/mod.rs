//! The end of Pods before the machine is shut down: systemd's login manager waits for this kubelet, which ends its Pods by
//! their priority, each with the time that the configuration has for it. Upstream's graceful node shutdown.

mod logind;
mod manager;
mod plan;
mod record;

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

pub(crate) use self::logind::System;
pub(crate) use self::manager::{Given, NodeShutdown};
pub use self::plan::{GracePeriod, two_periods};

/// The reason and the message of Pods that are not taken any more.
pub(crate) const REFUSED: (&str, &str) = ("NodeShutdown", "Pod was rejected as the node is shutting down.");
/// Why the Node is not ready.
pub(crate) const NOT_READY: &str = "node is shutting down";

/// Whether the machine is going down, as those see it who report the Node and admit Pods.
#[derive(Debug, Default)]
pub(crate) struct GoingDown {
    now: AtomicBool,
    /// It has changed.
    pub(crate) changed: Notify,
}

impl GoingDown {
    fn set(&self, now: bool) {
        if self.now.swap(now, Ordering::SeqCst) != now {
            self.changed.notify_one();
        }
    }

    /// Whether it is.
    pub(crate) fn is(&self) -> bool {
        self.now.load(Ordering::SeqCst)
    }
}
