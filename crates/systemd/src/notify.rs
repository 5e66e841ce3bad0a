//! The states that a service tells its service manager (`sd_notify(3)`), and the watchdog of a service.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service is up: units of `Type=notify` wait for it.
pub const READY: &str = "READY=1";
/// The service is well: units with `WatchdogSec=` are started again without it.
pub const WATCHDOG: &str = "WATCHDOG=1";

/// A watchdog that cannot be understood; the texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchdogError {
    /// Its time is no number of microseconds.
    #[error("error converting WATCHDOG_USEC: {0:?} is not a number")]
    Time(String),
    /// Its time is not above zero.
    #[error("error WATCHDOG_USEC must be a positive number")]
    NotPositive,
    /// The process that it watches is no number.
    #[error("error converting WATCHDOG_PID: {0:?} is not a number")]
    Process(String),
}

/// Tells the service manager a state. Answers whether there is one that listens.
///
/// # Errors
/// It does not take the datagram.
pub fn notify(state: &str) -> io::Result<bool> {
    match std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) {
        Some(socket) => send(&socket, state).map(|()| true),
        None => Ok(false),
    }
}

/// The time within which the service manager wants to hear [`WATCHDOG`] of this process; none if it does not.
///
/// # Errors
/// The environment does not say it as it must.
pub fn watchdog() -> Result<Option<Duration>, WatchdogError> {
    let text = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    watchdog_of(text("WATCHDOG_USEC").as_deref(), text("WATCHDOG_PID").as_deref(), std::process::id())
}

fn watchdog_of(
    time: Option<&str>,
    process: Option<&str>,
    own: u32,
) -> Result<Option<Duration>, WatchdogError> {
    let Some(time) = time.filter(|t| !t.is_empty()) else { return Ok(None) };
    let micros: i64 = time.parse().map_err(|_| WatchdogError::Time(time.to_owned()))?;
    let micros = u64::try_from(micros).ok().filter(|n| *n > 0).ok_or(WatchdogError::NotPositive)?;
    let process = process.filter(|p| !p.is_empty());
    let watched: Option<i64> =
        process.map(|p| p.parse().map_err(|_| WatchdogError::Process(p.to_owned()))).transpose()?;
    let ours = watched.is_none_or(|watched| watched == i64::from(own));
    Ok(ours.then(|| Duration::from_micros(micros)))
}

/// Sends a datagram to a socket: a path, or `@` and an abstract name.
fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let from = UnixDatagram::unbound()?;
    // Nobody who does not read holds up the service.
    from.set_nonblocking(true)?;
    from.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_arrive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("ferrokube-notify-{}", std::process::id());
        let named = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, listener) in [
            (path.as_os_str().to_owned(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{name}").into(), UnixDatagram::bind_addr(&named).unwrap()),
        ] {
            send(&socket, READY).unwrap();
            let mut read = [0; 64];
            let size = listener.recv(&mut read).unwrap();
            assert_eq!(&read[..size], b"READY=1");
        }
        assert!(send(dir.path().join("nobody").as_os_str(), READY).is_err());
        assert!(send(OsStr::new(&"long".repeat(100)), READY).is_err());
    }

    #[test]
    fn watchdogs() {
        let check = |time: Option<&str>, process: Option<&str>, expected: Result<Option<u64>, &str>| {
            let found = watchdog_of(time, process, 7);
            let found = found.map(|time| time.map(|t| t.as_secs())).map_err(|e| e.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{time:?} {process:?}");
        };
        check(None, None, Ok(None));
        check(Some(""), Some("x"), Ok(None));
        check(Some("30000000"), None, Ok(Some(30)));
        check(Some("30000000"), Some("7"), Ok(Some(30)));
        check(Some("30000000"), Some(""), Ok(Some(30)));
        check(Some("30000000"), Some("8"), Ok(None));
        check(Some("30s"), None, Err("error converting WATCHDOG_USEC: \"30s\" is not a number"));
        check(Some("30000000"), Some("me"), Err("error converting WATCHDOG_PID: \"me\" is not a number"));
        for time in ["0", "-1"] {
            check(Some(time), None, Err("error WATCHDOG_USEC must be a positive number"));
        }
    }
}
