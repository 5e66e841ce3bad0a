//! The driver's node service.

use std::fs;
use std::path::{Path, PathBuf};

use plugins::csi as pb;
use plugins::csi::node_server::Node;
use plugins::csi::volume_capability::AccessType;
use tonic::{Request, Response, Status};

use super::{Ability, Call, Inner, done, needs};

fn call(name: &str, volume: &str, path: &str) -> Call {
    Call { name: name.into(), volume: volume.into(), path: PathBuf::from(path), ..Call::default() }
}

/// The group and the options of a mount.
fn of_mount(capability: Option<&pb::VolumeCapability>) -> (String, Vec<String>) {
    match capability.and_then(|c| c.access_type.as_ref()) {
        Some(AccessType::Mount(mount)) => (mount.volume_mount_group.clone(), mount.mount_flags.clone()),
        _ => (String::new(), Vec::new()),
    }
}

impl Inner {
    /// The driver's name of its node.
    pub(super) fn node_id(&self) -> String {
        format!("node-of-{}", self.name)
    }

    /// Refuses a second place for a volume that is for a single writer.
    fn may_be_at(&self, volume: &str, at: &Path, can: Option<&pb::VolumeCapability>) -> Result<(), Status> {
        use pb::volume_capability::access_mode::Mode;
        let mode = can.and_then(|c| c.access_mode.as_ref()).map(|m| m.mode);
        let elsewhere =
            self.state().published.get(volume).is_some_and(|all| all.iter().any(|path| path != at));
        if elsewhere && mode == Some(Mode::SingleNodeSingleWriter as i32) {
            return Err(Status::failed_precondition("the volume is published at another path"));
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl Node for Inner {
    async fn node_stage_volume(
        &self,
        request: Request<pb::NodeStageVolumeRequest>,
    ) -> Result<Response<pb::NodeStageVolumeResponse>, Status> {
        let of = request.into_inner();
        let (group, options) = of_mount(of.volume_capability.as_ref());
        let call = Call {
            context: of.volume_context,
            publish_context: of.publish_context,
            secrets: of.secrets,
            group,
            options,
            ..call("NodeStageVolume", &of.volume_id, &of.staging_target_path)
        };
        let path = call.path.clone();
        let lost = self.begin(call).await?;
        needs(!of.volume_id.is_empty(), "the volume's id")?;
        needs(!of.staging_target_path.is_empty(), "the staging path")?;
        needs(of.volume_capability.is_some(), "what the volume is to be able to do")?;
        let data = self.dir_of(&of.volume_id)?;
        self.mount(&data, &path, false)?;
        done(lost, pb::NodeStageVolumeResponse {})
    }

    async fn node_unstage_volume(
        &self,
        request: Request<pb::NodeUnstageVolumeRequest>,
    ) -> Result<Response<pb::NodeUnstageVolumeResponse>, Status> {
        let of = request.into_inner();
        let call = call("NodeUnstageVolume", &of.volume_id, &of.staging_target_path);
        let path = call.path.clone();
        let lost = self.begin(call).await?;
        needs(!of.volume_id.is_empty(), "the volume's id")?;
        needs(!of.staging_target_path.is_empty(), "the staging path")?;
        self.unmount(&path)?;
        done(lost, pb::NodeUnstageVolumeResponse {})
    }

    async fn node_publish_volume(
        &self,
        request: Request<pb::NodePublishVolumeRequest>,
    ) -> Result<Response<pb::NodePublishVolumeResponse>, Status> {
        let of = request.into_inner();
        let (group, options) = of_mount(of.volume_capability.as_ref());
        let ephemeral = of.volume_context.get("csi.storage.k8s.io/ephemeral").is_some_and(|e| e == "true");
        let call = Call {
            staged: PathBuf::from(&of.staging_target_path),
            context: of.volume_context,
            publish_context: of.publish_context,
            secrets: of.secrets,
            group,
            options,
            read_only: of.readonly,
            ..call("NodePublishVolume", &of.volume_id, &of.target_path)
        };
        let (path, staged) = (call.path.clone(), call.staged.clone());
        let lost = self.begin(call).await?;
        needs(!of.volume_id.is_empty(), "the volume's id")?;
        needs(!of.target_path.is_empty(), "the target path")?;
        needs(of.volume_capability.is_some(), "what the volume is to be able to do")?;
        if ephemeral {
            fs::create_dir_all(self.data.join(&of.volume_id)).map_err(|e| Status::internal(e.to_string()))?;
        }
        let data = self.dir_of(&of.volume_id)?;
        let from = if of.staging_target_path.is_empty() { data } else { staged };
        if !of.staging_target_path.is_empty() && !self.is_mounted(&from) {
            return Err(Status::failed_precondition("the volume is not staged"));
        }
        self.may_be_at(&of.volume_id, &path, of.volume_capability.as_ref())?;
        self.mount(&from, &path, of.readonly)?;
        self.state().published.entry(of.volume_id).or_default().insert(path);
        done(lost, pb::NodePublishVolumeResponse {})
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<pb::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<pb::NodeUnpublishVolumeResponse>, Status> {
        let of = request.into_inner();
        let call = call("NodeUnpublishVolume", &of.volume_id, &of.target_path);
        let path = call.path.clone();
        let lost = self.begin(call).await?;
        needs(!of.volume_id.is_empty(), "the volume's id")?;
        needs(!of.target_path.is_empty(), "the target path")?;
        self.unmount(&path)?;
        if let Some(published) = self.state().published.get_mut(&of.volume_id) {
            published.remove(&path);
        }
        // The kubelet's names of inline volumes begin so; their data go with their Pod.
        if of.volume_id.starts_with("csi-")
            && let Ok(data) = self.dir_of(&of.volume_id)
        {
            let _ = fs::remove_dir_all(data);
        }
        done(lost, pb::NodeUnpublishVolumeResponse {})
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<pb::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<pb::NodeGetVolumeStatsResponse>, Status> {
        use pb::volume_usage::Unit;
        let of = request.into_inner();
        let lost = self.begin(call("NodeGetVolumeStats", &of.volume_id, &of.volume_path)).await?;
        needs(!of.volume_id.is_empty(), "the volume's id")?;
        needs(!of.volume_path.is_empty(), "the volume's path")?;
        self.dir_of(&of.volume_id)?;
        if !self.is_mounted(Path::new(&of.volume_path)) {
            return Err(Status::not_found(format!("no volume at {}", of.volume_path)));
        }
        let one =
            |unit: Unit, total| pb::VolumeUsage { unit: unit as i32, total, used: 1, available: total - 1 };
        let usage = vec![one(Unit::Bytes, 1 << 20), one(Unit::Inodes, 100)];
        let condition = self.state().conditions.get(&of.volume_id).cloned();
        let volume_condition = condition.map(|(abnormal, message)| pb::VolumeCondition { abnormal, message });
        done(lost, pb::NodeGetVolumeStatsResponse { usage, volume_condition })
    }

    async fn node_expand_volume(
        &self,
        request: Request<pb::NodeExpandVolumeRequest>,
    ) -> Result<Response<pb::NodeExpandVolumeResponse>, Status> {
        let of = request.into_inner();
        let size = of.capacity_range.map_or(0, |r| r.required_bytes);
        let staged = PathBuf::from(&of.staging_target_path);
        let call = Call { staged, size, ..call("NodeExpandVolume", &of.volume_id, &of.volume_path) };
        let lost = self.begin(call).await?;
        needs(!of.volume_id.is_empty(), "the volume's id")?;
        needs(!of.volume_path.is_empty(), "the volume's path")?;
        self.dir_of(&of.volume_id)?;
        self.state().sizes.insert(of.volume_id, size);
        done(lost, pb::NodeExpandVolumeResponse { capacity_bytes: size })
    }

    async fn node_get_capabilities(
        &self,
        _: Request<pb::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<pb::NodeGetCapabilitiesResponse>, Status> {
        use pb::node_service_capability::{Rpc, Type};
        let one = |ability: &i32| pb::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: Ability::try_from(*ability).unwrap_or(Ability::Unknown) as i32,
            })),
        };
        let capabilities = self.state().abilities.iter().map(one).collect();
        Ok(Response::new(pb::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<pb::NodeGetInfoRequest>,
    ) -> Result<Response<pb::NodeGetInfoResponse>, Status> {
        let lost = self.begin(call("NodeGetInfo", "", "")).await?;
        let (limit, segments) = {
            let state = self.state();
            (state.limit, state.topology.clone())
        };
        done(
            lost,
            pb::NodeGetInfoResponse {
                node_id: self.node_id(),
                max_volumes_per_node: limit,
                accessible_topology: (!segments.is_empty()).then_some(pb::Topology { segments }),
            },
        )
    }
}
