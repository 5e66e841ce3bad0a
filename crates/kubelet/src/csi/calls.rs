//! Calls to a driver's node service, each within upstream's time limit.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use plugins::csi as pb;
use plugins::csi::node_client::NodeClient;
use plugins::csi::node_service_capability::rpc::Type as Capability;
use tokio::time::timeout;
use tonic::{Code, Response, Status};

use super::drivers::{Driver, Drivers, NotRegistered};

/// How long a call may take; upstream's `csiTimeout`.
pub(super) const LIMIT: Duration = Duration::from_mins(2);

/// An answer of a driver that is an error, in the words of Go's gRPC.
#[derive(Debug, Clone, thiserror::Error)]
#[error("rpc error: code = {} desc = {}", code_name(.0.code()), .0.message())]
pub(crate) struct CallError(Box<Status>);

impl CallError {
    /// The code of the answer.
    pub(crate) fn code(&self) -> Code {
        self.0.code()
    }

    /// Whether the driver has ended the call, and nothing of it goes on; upstream's `isFinalError`.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(
            self.code(),
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Unavailable
                | Code::ResourceExhausted
                | Code::Aborted
        )
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self(Box::new(status))
    }
}

fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Waits for a driver's answer.
async fn within<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, CallError> {
    let late = || Err(Status::deadline_exceeded("context deadline exceeded"));
    let answer = timeout(LIMIT, call).await.unwrap_or_else(|_| late())?;
    Ok(answer.into_inner())
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
    fn errors_read_like_upstreams() {
        let check = |status: Status, expected: &str, is_final: bool| {
            let error = CallError::from(status);
            assert_eq!((error.to_string().as_str(), error.is_final()), (expected, is_final));
        };
        check(Status::internal("boom"), "rpc error: code = Internal desc = boom", true);
        check(Status::cancelled(""), "rpc error: code = Canceled desc = ", false);
        check(Status::deadline_exceeded("x"), "rpc error: code = DeadlineExceeded desc = x", false);
        check(Status::unavailable("x"), "rpc error: code = Unavailable desc = x", false);
        check(Status::aborted("x"), "rpc error: code = Aborted desc = x", false);
        check(Status::resource_exhausted("x"), "rpc error: code = ResourceExhausted desc = x", false);
        check(Status::not_found("x"), "rpc error: code = NotFound desc = x", true);
    }

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
