//! Exec, attach and port-forward: CRI gives out URLs, and this server on loopback is behind them.

mod backend;
mod port_forward;
mod remote;
mod result;
mod server;
mod tokens;

pub(crate) use self::backend::{Backend, Streams, Task, Wanted, Work};
pub(crate) use self::server::Server;
