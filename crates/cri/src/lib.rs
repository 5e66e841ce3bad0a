//! The container runtime interface: its v1 protocol and a client over a unix socket.
//!
//! Depends on no other crate of the workspace. It must never know what a Pod of the API is.

mod calls;
mod client;
pub mod runtime;
pub mod socket;

pub use client::{Images, LIMIT, Runtime};
pub use socket::{ConnectError, connect};
