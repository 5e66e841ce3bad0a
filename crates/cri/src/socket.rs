//! Connections to a runtime's unix socket.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

/// The reason for which an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The endpoint is no unix socket.
    #[error("container runtime endpoint {0:?} is not a unix socket: want unix:///path or /path")]
    NotUnix(String),
    /// Nobody answers behind the socket.
    #[error("cannot connect to the container runtime at {endpoint}")]
    Connect {
        /// The endpoint as given.
        endpoint: String,
        /// The reason.
        #[source]
        source: tonic::transport::Error,
    },
}

/// Connects to the socket that `endpoint` names (`unix:///path` or `/path`). A channel that loses its
/// connection makes a new one at the next call.
pub async fn connect(endpoint: &str) -> Result<Channel, ConnectError> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if !path.starts_with('/') {
        return Err(ConnectError::NotUnix(endpoint.to_owned()));
    }
    let failed = |source| ConnectError::Connect { endpoint: endpoint.to_owned(), source };
    Endpoint::from_shared(format!("unix://{path}"))
        .map_err(failed)?
        .connect_timeout(Duration::from_secs(5))
        .connect()
        .await
        .map_err(failed)
}
