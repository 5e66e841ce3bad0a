//! The runtime with real containers, over its socket: `ferrokube cri-runtime` on a host for each test.

mod adopted;
mod containers;
mod handlers;
mod joining;
mod kills;
mod limits;
mod streams;
mod support;
