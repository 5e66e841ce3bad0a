//! Packets go where Services say, in network namespaces of the tests' own.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod contents;
mod forward;
mod network;
mod objects;
mod packets;
