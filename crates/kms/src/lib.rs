//! The key management service interface, versions 2 and 1: protocol and clients. API servers let a plugin behind a Unix
//! socket encrypt the keys of the values in etcd.
//!
//! The crate knows nothing of etcd and of how values are encrypted with such a key.

pub mod rpc;
mod v1;

use std::time::Duration;

use rpc::key_management_service_client::KeyManagementServiceClient;
use rpc::{DecryptRequest, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
pub use v1::PluginV1;

/// The reason for which a call of a plugin failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The plugin does not answer; it may later.
    #[error("the KMS plugin at {endpoint} does not answer ({why}): start it, or correct the endpoint")]
    Unavailable {
        /// The plugin's endpoint.
        endpoint: String,
        /// The reason.
        why: String,
    },
    /// The plugin refused.
    #[error("{0}")]
    Refused(String),
}

/// A plugin. Clones share the connection, which is made when it is needed and made again when it is lost.
#[derive(Debug, Clone)]
pub struct Plugin {
    endpoint: String,
    client: KeyManagementServiceClient<Channel>,
}

/// The path of a Unix socket in an endpoint: `unix:///run/kms.sock`.
pub fn socket_path(endpoint: &str) -> Option<&str> {
    endpoint.strip_prefix("unix://").filter(|path| path.starts_with('/') && path.len() > 1)
}

/// A connection to an endpoint, made when it is needed.
fn channel(endpoint: &str, timeout: Duration) -> Option<Channel> {
    let at = Endpoint::from_shared(format!("unix://{}", socket_path(endpoint)?)).ok()?;
    Some(at.timeout(timeout).connect_timeout(timeout).connect_lazy())
}

fn failed(endpoint: &str, status: &Status) -> Error {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            Error::Unavailable { endpoint: endpoint.to_owned(), why: status.message().to_owned() }
        }
        code => Error::Refused(format!("rpc error: code = {code:?} desc = {}", status.message())),
    }
}

impl Plugin {
    /// Makes the client of the plugin at an endpoint, with a limit for every answer. `None` if that is no `unix:///`
    /// URL. Needs a tokio runtime around it.
    pub fn new(endpoint: &str, timeout: Duration) -> Option<Self> {
        let channel = channel(endpoint, timeout)?;
        Some(Self { endpoint: endpoint.to_owned(), client: KeyManagementServiceClient::new(channel) })
    }

    /// The plugin's health, and the key that it uses.
    pub async fn status(&self) -> Result<StatusResponse, Error> {
        let answer = self.client.clone().status(StatusRequest {}).await;
        answer.map(tonic::Response::into_inner).map_err(|e| failed(&self.endpoint, &e))
    }

    /// Lets the plugin encrypt a text.
    pub async fn encrypt(&self, uid: &str, plaintext: &[u8]) -> Result<EncryptResponse, Error> {
        let request = EncryptRequest { plaintext: plaintext.to_vec(), uid: uid.to_owned() };
        let answer = self.client.clone().encrypt(request).await;
        answer.map(tonic::Response::into_inner).map_err(|e| failed(&self.endpoint, &e))
    }

    /// Lets the plugin decrypt a text.
    pub async fn decrypt(&self, request: DecryptRequest) -> Result<Vec<u8>, Error> {
        let answer = self.client.clone().decrypt(request).await;
        answer.map(|r| r.into_inner().plaintext).map_err(|e| failed(&self.endpoint, &e))
    }
}
