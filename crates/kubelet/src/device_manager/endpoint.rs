//! A plugin that is called, within limits of time.

use std::path::PathBuf;
use std::time::Duration;

use plugins::device as pb;
use plugins::device::device_plugin_client::DevicePluginClient;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::grpc::{CallError, within};

/// How long a plugin may take to answer.
///
/// DIFFERENCE: upstream waits for ever, and its whole kubelet with it.
const LIMIT: Duration = Duration::from_secs(45);
/// How long it may take before a container starts; upstream's.
const PRE_START: Duration = Duration::from_secs(30);

/// A plugin's service.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// The number of its connection.
    pub(super) connection: u64,
    /// Its socket.
    pub(super) path: PathBuf,
    /// The calls that it wants.
    pub(super) options: pb::DevicePluginOptions,
    /// Told when another takes its place.
    pub(super) gone: CancellationToken,
    channel: Channel,
}

impl Endpoint {
    /// Asks a plugin what it wants to be asked.
    ///
    /// # Errors
    /// It does not say.
    pub(super) async fn new(connection: u64, path: PathBuf, channel: Channel) -> Result<Self, CallError> {
        let mut client = DevicePluginClient::new(channel.clone());
        let options = within(LIMIT, client.get_device_plugin_options(pb::Empty {})).await?;
        Ok(Self { connection, path, options, gone: CancellationToken::new(), channel })
    }

    #[cfg(test)]
    pub(super) fn unused(connection: u64) -> Self {
        Self {
            connection,
            path: PathBuf::from("/nowhere"),
            options: pb::DevicePluginOptions::default(),
            gone: CancellationToken::new(),
            channel: plugins::socket::channel(std::path::Path::new("/nowhere")),
        }
    }

    fn client(&self) -> DevicePluginClient<Channel> {
        DevicePluginClient::new(self.channel.clone())
    }

    /// Follows its devices.
    pub(super) async fn watch(&self) -> Result<Streaming<pb::ListAndWatchResponse>, CallError> {
        within(LIMIT, self.client().list_and_watch(pb::Empty {})).await
    }

    /// Asks which of some devices it would give.
    pub(super) async fn preferred(
        &self,
        request: pb::ContainerPreferredAllocationRequest,
    ) -> Result<Vec<String>, CallError> {
        let request = pb::PreferredAllocationRequest { container_requests: vec![request] };
        let answer = within(LIMIT, self.client().get_preferred_allocation(request)).await?;
        Ok(answer.container_responses.into_iter().next().map(|one| one.device_i_ds).unwrap_or_default())
    }

    /// Has it give devices; none if it answers for no container.
    pub(super) async fn allocate(
        &self,
        devices_ids: Vec<String>,
    ) -> Result<Option<pb::ContainerAllocateResponse>, CallError> {
        let one = pb::ContainerAllocateRequest { devices_ids };
        let request = pb::AllocateRequest { container_requests: vec![one] };
        let answer = within(LIMIT, self.client().allocate(request)).await?;
        Ok(answer.container_responses.into_iter().next())
    }

    /// Tells it that a container with devices is about to start.
    pub(super) async fn pre_start(&self, devices_ids: Vec<String>) -> Result<(), CallError> {
        let request = pb::PreStartContainerRequest { devices_ids };
        within(PRE_START, self.client().pre_start_container(request)).await.map(drop)
    }
}
