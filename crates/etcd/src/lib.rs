//! etcd's v3 API: its protocol, and a client that knows several members, goes on with another when one fails,
//! and says in one sentence what is wrong.
//!
//! Depends on no other crate of the workspace. It must never know what a key means.

mod client;
mod connect;
mod error;
pub mod rpc;

pub use client::{Client, Watch, prefix_end};
pub use connect::{Config, ConfigError};
pub use error::Error;
