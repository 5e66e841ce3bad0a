//! The container runtime interface: its v1 protocol and a client over a unix socket.
//!
//! Depends on no other crate of the workspace. It must never know what a Pod of the API is.

pub mod runtime;
pub mod socket;

pub use socket::{ConnectError, connect};

/// The image service's client.
pub type Images = runtime::image_service_client::ImageServiceClient<tonic::transport::Channel>;
/// The runtime service's client.
pub type Runtime = runtime::runtime_service_client::RuntimeServiceClient<tonic::transport::Channel>;

/// The largest message taken from a runtime; upstream's limit.
const MAX_MESSAGE: usize = 16 << 20;

/// The runtime service behind a channel.
pub fn runtime_service(channel: tonic::transport::Channel) -> Runtime {
    Runtime::new(channel).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}

/// The image service behind a channel.
pub fn image_service(channel: tonic::transport::Channel) -> Images {
    Images::new(channel).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}
