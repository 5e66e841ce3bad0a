//! Version 1: a plugin that encrypts keys and has no status. Deprecated upstream, and only behind a gate.

use std::time::Duration;

use tokio::sync::OnceCell;
use tonic::transport::Channel;

use crate::rpc::v1beta1::key_management_service_client::KeyManagementServiceClient;
use crate::rpc::v1beta1::{DecryptRequest, EncryptRequest, VersionRequest};
use crate::{Error, channel, failed};

/// The version that requests and the plugin must name.
const VERSION: &str = "v1beta1";

/// A plugin of version 1. The connection is made when it is needed and made again when it is lost.
#[derive(Debug)]
pub struct PluginV1 {
    endpoint: String,
    client: KeyManagementServiceClient<Channel>,
    /// Set once the plugin has named this version.
    known: OnceCell<()>,
}

impl PluginV1 {
    /// Makes the client of the plugin at an endpoint, with a limit for every answer. `None` if that is no `unix:///`
    /// URL. Needs a tokio runtime around it.
    pub fn new(endpoint: &str, timeout: Duration) -> Option<Self> {
        let client = KeyManagementServiceClient::new(channel(endpoint, timeout)?);
        Some(Self { endpoint: endpoint.to_owned(), client, known: OnceCell::new() })
    }

    /// The client, once the plugin has named its version.
    async fn client(&self) -> Result<KeyManagementServiceClient<Channel>, Error> {
        let ask = async {
            let answer = self.client.clone().version(VersionRequest { version: VERSION.into() }).await;
            let version = answer.map_err(|e| failed(&self.endpoint, &e))?.into_inner().version;
            if version == VERSION {
                return Ok(());
            }
            Err(Error::Refused(format!(
                "KMS provider api version {version} is not supported, only {VERSION} is supported now"
            )))
        };
        self.known.get_or_try_init(|| ask).await?;
        Ok(self.client.clone())
    }

    /// Lets the plugin encrypt a text.
    pub async fn encrypt(&self, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let request = EncryptRequest { version: VERSION.into(), plain: plain.to_vec() };
        let answer = self.client().await?.encrypt(request).await;
        answer.map(|r| r.into_inner().cipher).map_err(|e| failed(&self.endpoint, &e))
    }

    /// Lets the plugin decrypt a text.
    pub async fn decrypt(&self, cipher: &[u8]) -> Result<Vec<u8>, Error> {
        let request = DecryptRequest { version: VERSION.into(), cipher: cipher.to_vec() };
        let answer = self.client().await?.decrypt(request).await;
        answer.map(|r| r.into_inner().plain).map_err(|e| failed(&self.endpoint, &e))
    }
}
