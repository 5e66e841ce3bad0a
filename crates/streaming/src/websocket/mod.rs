//! WebSocket (RFC 6455): the opening handshake, frames, and messages over a byte stream.

pub mod frame;
pub mod handshake;
mod socket;

pub use handshake::{Accept, HandshakeError, accept, is_upgrade, is_websocket, requested_protocols};
pub use socket::{Message, Receiver, Sender, SocketError, server};
