//! Calls to a driver's node service, each within upstream's time limit.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use plugins::csi as pb;
use plugins::csi::node_client::NodeClient;
use plugins::csi::node_service_capability::rpc::Type as Capability;
use tonic::{Code, Response, Status};

use super::drivers::{Driver, Drivers, NotRegistered};
pub(crate) use crate::grpc::CallError;
use crate::grpc::{self, code_name};
use crate::metrics::{self, Metrics};

/// How long a call may take; upstream's `csiTimeout`.
pub(super) const LIMIT: Duration = Duration::from_mins(2);

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
pub(crate) struct NodeService {
    client: NodeClient<tonic::transport::Channel>,
    driver: String,
    /// Whether the volume that is worked on is written for a plugin from which the driver took over.
    migrated: bool,
    metrics: Metrics,
}

impl NodeService {
    /// That of the driver of a name.
    ///
    /// # Errors
    /// It is not registered.
    pub(crate) fn of(drivers: &Drivers, name: &str) -> Result<Self, NotRegistered> {
        Ok(Self::at(name, &drivers.get(name)?, drivers))
    }

    /// That of a driver, which need not be among those that are registered.
    pub(crate) fn at(name: &str, driver: &Driver, drivers: &Drivers) -> Self {
        let client = NodeClient::new(driver.channel.clone());
        Self { client, driver: name.to_owned(), migrated: false, metrics: drivers.metrics.clone() }
    }

    /// That of the driver of a volume that a Pod is given. As upstream, nobody knows of a volume that is taken back whether
    /// it was written for a plugin.
    ///
    /// # Errors
    /// It is not registered.
    pub(super) fn giving(drivers: &Drivers, name: &str, migrated: bool) -> Result<Self, NotRegistered> {
        Ok(Self { migrated, ..Self::of(drivers, name)? })
    }

    /// Waits for the driver's answer, and counts it under the method's name.
    async fn within<T>(
        &self,
        method: &str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CallError> {
        let began = Instant::now();
        let answer = grpc::within(LIMIT, call).await;
        let code = answer.as_ref().err().map_or(Code::Ok, CallError::code);
        let method = format!("/csi.v1.Node/{method}");
        let migrated = if self.migrated { "true" } else { "false" };
        let labels = [self.driver.as_str(), code_name(code), &method, migrated];
        self.metrics.took(&metrics::CSI_OPERATIONS_SECONDS, &labels, began.elapsed());
        answer
    }

    /// Asks for the driver's name of the node, its limits and its place.
    pub(crate) async fn info(&self) -> Result<pb::NodeGetInfoResponse, CallError> {
        self.within("NodeGetInfo", self.client.clone().node_get_info(pb::NodeGetInfoRequest {})).await
    }

    /// Asks for its abilities.
    pub(crate) async fn abilities(&self) -> Result<Abilities, CallError> {
        let answer = self
            .within(
                "NodeGetCapabilities",
                self.client.clone().node_get_capabilities(pb::NodeGetCapabilitiesRequest {}),
            )
            .await?;
        let all = answer.capabilities.into_iter().filter_map(|c| {
            let pb::node_service_capability::Type::Rpc(rpc) = c.r#type?;
            Some(rpc.r#type)
        });
        Ok(Abilities(all.collect()))
    }

    /// Makes a volume ready for the node.
    pub(crate) async fn stage(&self, request: pb::NodeStageVolumeRequest) -> Result<(), CallError> {
        self.within("NodeStageVolume", self.client.clone().node_stage_volume(request)).await.map(drop)
    }

    /// Undoes [`NodeService::stage`].
    pub(crate) async fn unstage(&self, volume: &str, path: &Path) -> Result<(), CallError> {
        let (volume_id, staging_target_path) = (volume.to_owned(), text(path));
        let request = pb::NodeUnstageVolumeRequest { volume_id, staging_target_path };
        self.within("NodeUnstageVolume", self.client.clone().node_unstage_volume(request)).await.map(drop)
    }

    /// Makes a volume appear for a Pod.
    pub(crate) async fn publish(&self, request: pb::NodePublishVolumeRequest) -> Result<(), CallError> {
        self.within("NodePublishVolume", self.client.clone().node_publish_volume(request)).await.map(drop)
    }

    /// Undoes [`NodeService::publish`].
    pub(crate) async fn unpublish(&self, volume: &str, path: &Path) -> Result<(), CallError> {
        let request =
            pb::NodeUnpublishVolumeRequest { volume_id: volume.to_owned(), target_path: text(path) };
        self.within("NodeUnpublishVolume", self.client.clone().node_unpublish_volume(request)).await.map(drop)
    }

    /// Makes a volume larger.
    pub(crate) async fn expand(&self, request: pb::NodeExpandVolumeRequest) -> Result<(), CallError> {
        self.within("NodeExpandVolume", self.client.clone().node_expand_volume(request)).await.map(drop)
    }

    /// Asks for the room that a volume takes.
    pub(crate) async fn stats(
        &self,
        volume: &str,
        path: &Path,
    ) -> Result<pb::NodeGetVolumeStatsResponse, CallError> {
        let request = pb::NodeGetVolumeStatsRequest {
            volume_id: volume.to_owned(),
            volume_path: text(path),
            staging_target_path: String::new(),
        };
        self.within("NodeGetVolumeStats", self.client.clone().node_get_volume_stats(request)).await
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
