//! Calls to a driver's node service, each within upstream's time limit.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use plugins::csi as pb;
use plugins::csi::node_client::NodeClient;
use plugins::csi::node_service_capability::rpc::Type as Capability;
use tonic::{Response, Status};

use super::drivers::{Driver, Drivers, NotRegistered};
use crate::grpc;
pub(crate) use crate::grpc::CallError;

/// How long a call may take; upstream's `csiTimeout`.
pub(super) const LIMIT: Duration = Duration::from_mins(2);

/// Waits for a driver's answer.
async fn within<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, CallError> {
    grpc::within(LIMIT, call).await
}

/// Abilities of a driver's node service.
#[derive(Debug, Clone, Default)]
pub(crate) struct Abilities(BTreeSet<i32>);

impl Abilities {
    /// Whether the driver has one.
    pub(crate) fn has(&self, one: Capability) -> bool {
        self.0.contains(&(one as i32))
    }
    /// Whether it stages volumes before it publishes them.
    pub(crate) fn stages(&self) -> bool {
        self.has(Capability::StageUnstageVolume)
    }
    /// Whether it gives a volume's files to a group itself.
    pub(crate) fn groups(&self) -> bool {
        self.has(Capability::VolumeMountGroup)
    }
    /// The mode of the protocol for a mode of Kubernetes; upstream's two tables.
    pub(crate) fn access_mode(&self, mode: &str) -> i32 {
        use pb::volume_capability::access_mode::Mode;
        let several = self.has(Capability::SingleNodeMultiWriter);
        let mode = match (mode, several) {
            ("ReadWriteOnce" | "ReadWriteOncePod", false) => Mode::SingleNodeWriter,
            ("ReadWriteOnce", true) => Mode::SingleNodeMultiWriter,
            ("ReadWriteOncePod", true) => Mode::SingleNodeSingleWriter,
            ("ReadOnlyMany", _) => Mode::MultiNodeReaderOnly,
            ("ReadWriteMany", _) => Mode::MultiNodeMultiWriter,
            _ => Mode::Unknown,
        };
        mode as i32
    }
}

/// The node service of a registered driver.
pub(crate) struct NodeService(NodeClient<tonic::transport::Channel>);

impl NodeService {
    /// That of the driver of a name.
    ///
    /// # Errors
    /// It is not registered.
    pub(crate) fn of(drivers: &Drivers, name: &str) -> Result<Self, NotRegistered> {
        Ok(Self::at(&drivers.get(name)?))
    }

    /// That of a driver.
    pub(crate) fn at(driver: &Driver) -> Self {
        Self(NodeClient::new(driver.channel.clone()))
    }

    /// Asks for the driver's name of the node, its limits and its place.
    pub(crate) async fn info(&mut self) -> Result<pb::NodeGetInfoResponse, CallError> {
        within(self.0.node_get_info(pb::NodeGetInfoRequest {})).await
    }

    /// Asks for its abilities.
    pub(crate) async fn abilities(&mut self) -> Result<Abilities, CallError> {
        let answer = within(self.0.node_get_capabilities(pb::NodeGetCapabilitiesRequest {})).await?;
        let all = answer.capabilities.into_iter().filter_map(|c| {
            let pb::node_service_capability::Type::Rpc(rpc) = c.r#type?;
            Some(rpc.r#type)
        });
        Ok(Abilities(all.collect()))
    }

    /// Makes a volume ready for the node.
    pub(crate) async fn stage(&mut self, request: pb::NodeStageVolumeRequest) -> Result<(), CallError> {
        within(self.0.node_stage_volume(request)).await.map(drop)
    }

    /// Undoes [`NodeService::stage`].
    pub(crate) async fn unstage(&mut self, volume: &str, path: &Path) -> Result<(), CallError> {
        let (volume_id, staging_target_path) = (volume.to_owned(), text(path));
        let request = pb::NodeUnstageVolumeRequest { volume_id, staging_target_path };
        within(self.0.node_unstage_volume(request)).await.map(drop)
    }

    /// Makes a volume appear for a Pod.
    pub(crate) async fn publish(&mut self, request: pb::NodePublishVolumeRequest) -> Result<(), CallError> {
        within(self.0.node_publish_volume(request)).await.map(drop)
    }

    /// Undoes [`NodeService::publish`].
    pub(crate) async fn unpublish(&mut self, volume: &str, path: &Path) -> Result<(), CallError> {
        let request =
            pb::NodeUnpublishVolumeRequest { volume_id: volume.to_owned(), target_path: text(path) };
        within(self.0.node_unpublish_volume(request)).await.map(drop)
    }

    /// Makes a volume larger.
    pub(crate) async fn expand(&mut self, request: pb::NodeExpandVolumeRequest) -> Result<(), CallError> {
        within(self.0.node_expand_volume(request)).await.map(drop)
    }

    /// Asks for the room that a volume takes.
    pub(crate) async fn stats(
        &mut self,
        volume: &str,
        path: &Path,
    ) -> Result<pb::NodeGetVolumeStatsResponse, CallError> {
        let request = pb::NodeGetVolumeStatsRequest {
            volume_id: volume.to_owned(),
            volume_path: text(path),
            staging_target_path: String::new(),
        };
        within(self.0.node_get_volume_stats(request)).await
    }
}

/// A path as the protocol writes it. All of them are the kubelet's own, which are text.
pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes() {
        use pb::volume_capability::access_mode::Mode;
        let several = Abilities(BTreeSet::from([Capability::SingleNodeMultiWriter as i32]));
        let check = |mode: &str, without: Mode, with: Mode| {
            assert_eq!(Abilities::default().access_mode(mode), without as i32, "{mode}");
            assert_eq!(several.access_mode(mode), with as i32, "{mode}");
        };
        check("ReadWriteOnce", Mode::SingleNodeWriter, Mode::SingleNodeMultiWriter);
        check("ReadWriteOncePod", Mode::SingleNodeWriter, Mode::SingleNodeSingleWriter);
        check("ReadOnlyMany", Mode::MultiNodeReaderOnly, Mode::MultiNodeReaderOnly);
        check("ReadWriteMany", Mode::MultiNodeMultiWriter, Mode::MultiNodeMultiWriter);
        check("Odd", Mode::Unknown, Mode::Unknown);
    }
}
