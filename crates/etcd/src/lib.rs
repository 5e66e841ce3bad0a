//! etcd's v3 API: its protocol, and a client that knows several members, goes on with another when one fails, and
//! reports errors in one sentence.
//!
//! The crate depends on no other crate of the workspace. It must never know the meaning of a key.

mod client;
mod connect;
mod error;
pub mod rpc;

pub use client::{Client, Watch, prefix_end};
pub use connect::{Config, ConfigError};
pub use error::Error;
