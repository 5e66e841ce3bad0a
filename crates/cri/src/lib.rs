//! The container runtime interface: its v1 protocol and a client over a unix socket.
//!
//! The crate depends on no other crate of the workspace. It must never know the API's Pods.

mod calls;
mod client;
pub mod runtime;
pub mod socket;

pub use client::{Images, LIMIT, Runtime};
pub use socket::{ConnectError, connect};
