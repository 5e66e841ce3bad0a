//! The streaming protocols of exec, attach, port-forward and logs: SPDY/3.1 as the Kubernetes clients and runtimes
//! speak it, WebSocket with its `channel.k8s.io` family of subprotocols, and the bridges between the two.
//!
//! Codecs are sans-IO: bytes in, frames out, bounded. The connections on top of them take any tokio byte stream and do
//! not know its maker (TLS, an HTTP upgrade, a pipe in a test). The crate depends on no other crate of the workspace
//! and must never know an object of the API.

pub mod channel;
pub mod remotecommand;
pub mod spdy;
pub mod tunnel;
pub mod websocket;
