//! systemd and its login manager, asked over the system's bus: the units that hold cgroups, and whether the machine goes
//! down. And what a service tells its manager of itself.
//!
//! The client of D-Bus is this crate's own: a whole one (zbus) is fifty crates more to build, for a dozen calls and two
//! signals. Messages, names and values are pure; [`Units`] waits for its answers in its caller's thread, [`Connection`]
//! in its caller's task. The crate knows neither Kubernetes nor cgroups' files.

mod address;
mod bus;
mod message;
mod names;
pub mod notify;
mod units;
mod values;

use std::path::Path;

pub use bus::{BusError, Connection, Object, Signal, Wanted};
pub use message::{Malformed, Property, Value};
pub use names::{InvalidSlice, expand_slice};
pub use units::{Scope, Units};
pub use values::{INFINITY, InvalidRange, bits, quota_per_second};

/// Whether systemd is the machine's first process, as `sd_booted(3)` finds out.
pub fn is_running() -> bool {
    Path::new("/run/systemd/system").symlink_metadata().is_ok_and(|found| found.is_dir())
}
