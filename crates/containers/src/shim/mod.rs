//! The shim, as the runtime sees it: its program, the sockets to it, and the set-up of processes.

pub(crate) mod launch;
pub(crate) mod link;
pub(crate) mod setup;
pub(crate) mod socket;
#[allow(dead_code, reason = "each side uses its own words")]
#[path = "../../shim/wire.rs"]
pub(crate) mod wire;
