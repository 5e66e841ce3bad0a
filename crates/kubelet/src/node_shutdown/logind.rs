//! systemd's login manager, which announces that the machine is to go down, and waits a while for those who ask it to.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use systemd::{BusError, Connection, Object, Wanted};

use crate::work::{Interrupted, try_blocking};

const SERVICE: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";
const LOGIND: Object = Object { service: SERVICE, path: PATH, interface: INTERFACE };
const SYSTEMD: Object = Object {
    service: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
/// The signal with which it tells of a shutdown, and of the end of one that was called off.
const PREPARE: &str = "PrepareForShutdown";

/// Where its settings are overridden; upstream's file.
const DROP_INS: &str = "/etc/systemd/logind.conf.d";
const DROP_IN: &str = "99-kubelet.conf";

/// Why the login manager is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogindError {
    /// Its bus is of none.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// Its settings cannot be written.
    #[error("cannot write {path}: {error}")]
    DropIn {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The kubelet ends.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// A login manager.
pub(crate) trait Logind: Send {
    /// Keeps the machine up for a while when it is to go down; gone, the machine may go.
    type Lock: Send;

    /// Asks for its signals.
    fn subscribe(&mut self) -> impl Future<Output = Result<(), LogindError>> + Send;
    /// How long it waits for those who ask it to.
    fn inhibit_delay(&mut self) -> impl Future<Output = Result<Duration, LogindError>> + Send;
    /// Has it wait longer from its next look at its settings on.
    fn override_delay(&mut self, delay: Duration) -> impl Future<Output = Result<(), LogindError>> + Send;
    /// Has it look at its settings.
    fn reload(&mut self) -> impl Future<Output = Result<(), LogindError>> + Send;
    /// Asks it to wait.
    fn inhibit(&mut self) -> impl Future<Output = Result<Self::Lock, LogindError>> + Send;
    /// Whether the machine is going down.
    fn preparing(&mut self) -> impl Future<Output = Result<bool, LogindError>> + Send;
    /// Waits until there may be a signal; whoever does not wait until then loses none.
    fn wait(&mut self) -> impl Future<Output = Result<(), LogindError>> + Send;
    /// Whether the machine goes down, as the signal says; none if it was no signal of that.
    fn take(&mut self) -> impl Future<Output = Result<Option<bool>, LogindError>> + Send;
}

/// The way to a login manager.
pub(crate) trait Dial: Send + Sync {
    /// The login manager.
    type Logind: Logind;

    /// Connects to it.
    fn dial(&self) -> impl Future<Output = Result<Self::Logind, LogindError>> + Send;
}

/// The one of this machine.
pub(crate) struct System;

impl Dial for System {
    type Logind = OfBus;

    async fn dial(&self) -> Result<OfBus, LogindError> {
        Ok(OfBus(Connection::system().await?))
    }
}

/// A login manager on a bus.
pub(crate) struct OfBus(Connection);

impl Logind for OfBus {
    type Lock = OwnedFd;

    async fn subscribe(&mut self) -> Result<(), LogindError> {
        Ok(self.0.subscribe(Wanted { of: LOGIND, member: PREPARE }).await?)
    }

    async fn inhibit_delay(&mut self) -> Result<Duration, LogindError> {
        Ok(Duration::from_micros(LOGIND.number(&mut self.0, "InhibitDelayMaxUSec").await?))
    }

    async fn override_delay(&mut self, delay: Duration) -> Result<(), LogindError> {
        try_blocking(move || write_drop_in(Path::new(DROP_INS), delay)).await
    }

    async fn reload(&mut self) -> Result<(), LogindError> {
        const HANG_UP: i32 = 1;
        Ok(SYSTEMD.order(&mut self.0, "KillUnit", &["systemd-logind.service", "all"], HANG_UP).await?)
    }

    async fn inhibit(&mut self) -> Result<OwnedFd, LogindError> {
        let texts = ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"];
        Ok(LOGIND.open(&mut self.0, "Inhibit", &texts).await?)
    }

    async fn preparing(&mut self) -> Result<bool, LogindError> {
        Ok(LOGIND.boolean(&mut self.0, "PreparingForShutdown").await?)
    }

    async fn wait(&mut self) -> Result<(), LogindError> {
        Ok(self.0.wait().await?)
    }

    async fn take(&mut self) -> Result<Option<bool>, LogindError> {
        let Some(signal) = self.0.take() else { return Ok(None) };
        // DIFFERENCE: upstream believes whoever sends the signal. Every user of the machine may send signals to a process,
        // whatever that one asked for, and would make the node end all its Pods.
        match self.0.owner(SERVICE).await {
            Ok(owner) if owner == signal.sender() => Ok(signal.boolean()),
            Ok(_) | Err(BusError::Answer { .. }) => {
                tracing::warn!(sender = signal.sender(), "somebody else than logind tells of a shutdown");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes the file that has the login manager wait longer.
fn write_drop_in(dir: &Path, delay: Duration) -> Result<(), LogindError> {
    let path = dir.join(DROP_IN);
    let text = format!("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={:.0}\n", delay.as_secs_f64());
    let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, text));
    written.map_err(|error| LogindError::DropIn { path, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drop_in_is_upstreams() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("logind.conf.d");
        write_drop_in(&below, Duration::from_secs(30)).unwrap();
        let text = std::fs::read_to_string(below.join(DROP_IN)).unwrap();
        assert_eq!(text, "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=30\n");
        write_drop_in(&below, Duration::from_secs(90)).unwrap();
        assert!(std::fs::read_to_string(below.join(DROP_IN)).unwrap().ends_with("=90\n"));
        let error = write_drop_in(&below.join(DROP_IN), Duration::ZERO).unwrap_err().to_string();
        assert!(error.starts_with("cannot write "), "{error}");
    }
}
