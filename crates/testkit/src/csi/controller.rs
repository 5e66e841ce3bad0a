//! The driver's controller service: volumes come, grow and go.

use std::fs;

use plugins::csi as pb;
use plugins::csi::controller_server::Controller;
use tonic::{Code, Request, Response, Status};

use super::{Call, Inner, done, needs};

fn call(name: &str, volume: &str) -> Call {
    Call { name: name.into(), volume: volume.into(), ..Call::default() }
}

fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

/// Calls that the driver does not have, as its abilities say.
macro_rules! without {
    ($($name:ident: $request:ident => $response:ident;)*) => {$(
        fn $name<'life, 'async_trait>(
            &'life self,
            _: Request<pb::$request>,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<Response<pb::$response>, Status>> + Send + 'async_trait>>
        where
            'life: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(std::future::ready(Err(Status::unimplemented(stringify!($name)))))
        }
    )*};
}

#[tonic::async_trait]
impl Controller for Inner {
    async fn create_volume(
        &self,
        request: Request<pb::CreateVolumeRequest>,
    ) -> Result<Response<pb::CreateVolumeResponse>, Status> {
        let of = request.into_inner();
        let size = of.capacity_range.map_or(0, |r| r.required_bytes);
        let lost = self.begin(Call { size, ..call("CreateVolume", &of.name) }).await?;
        needs(!of.name.is_empty(), "the volume's name")?;
        needs(!of.volume_capabilities.is_empty(), "what the volume is to be able to do")?;
        if of.name.contains('/') || of.name == "." || of.name == ".." {
            return Err(Status::invalid_argument("a volume's name is that of a directory"));
        }
        let most = of.capacity_range.map_or(0, |r| r.limit_bytes);
        let fits = |has: i64| has >= size && (most == 0 || has <= most);
        if self.state().sizes.get(&of.name).is_some_and(|has| !fits(*has)) {
            return Err(Status::already_exists("a volume of this name has another size"));
        }
        fs::create_dir_all(self.data.join(&of.name)).map_err(internal)?;
        let size = *self.state().sizes.entry(of.name.clone()).or_insert(size);
        let volume = pb::Volume { capacity_bytes: size, volume_id: of.name, ..pb::Volume::default() };
        done(lost, pb::CreateVolumeResponse { volume: Some(volume) })
    }

    async fn delete_volume(
        &self,
        request: Request<pb::DeleteVolumeRequest>,
    ) -> Result<Response<pb::DeleteVolumeResponse>, Status> {
        let of = request.into_inner();
        let lost = self.begin(call("DeleteVolume", &of.volume_id)).await?;
        match self.dir_of(&of.volume_id) {
            Ok(dir) => fs::remove_dir_all(dir).map_err(internal)?,
            Err(error) if error.code() == Code::NotFound => {}
            Err(error) => return Err(error),
        }
        self.state().sizes.remove(&of.volume_id);
        done(lost, pb::DeleteVolumeResponse {})
    }

    async fn controller_publish_volume(
        &self,
        request: Request<pb::ControllerPublishVolumeRequest>,
    ) -> Result<Response<pb::ControllerPublishVolumeResponse>, Status> {
        let of = request.into_inner();
        let lost = self.begin(call("ControllerPublishVolume", &of.volume_id)).await?;
        needs(!of.volume_id.is_empty(), "the volume's id")?;
        needs(!of.node_id.is_empty(), "the node's id")?;
        needs(of.volume_capability.is_some(), "what the volume is to be able to do")?;
        self.dir_of(&of.volume_id)?;
        if of.node_id != self.node_id() {
            return Err(Status::not_found(format!("no node {}", of.node_id)));
        }
        let publish_context = [("device".to_owned(), format!("/dev/{}", of.volume_id))].into();
        done(lost, pb::ControllerPublishVolumeResponse { publish_context })
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<pb::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<pb::ControllerUnpublishVolumeResponse>, Status> {
        let of = request.into_inner();
        let lost = self.begin(call("ControllerUnpublishVolume", &of.volume_id)).await?;
        needs(!of.volume_id.is_empty(), "the volume's id")?;
        done(lost, pb::ControllerUnpublishVolumeResponse {})
    }

    async fn controller_expand_volume(
        &self,
        request: Request<pb::ControllerExpandVolumeRequest>,
    ) -> Result<Response<pb::ControllerExpandVolumeResponse>, Status> {
        let of = request.into_inner();
        let size = of.capacity_range.map_or(0, |r| r.required_bytes);
        let lost = self.begin(Call { size, ..call("ControllerExpandVolume", &of.volume_id) }).await?;
        needs(!of.volume_id.is_empty(), "the volume's id")?;
        needs(of.capacity_range.is_some(), "the size")?;
        self.dir_of(&of.volume_id)?;
        let answer =
            pb::ControllerExpandVolumeResponse { capacity_bytes: size, node_expansion_required: true };
        done(lost, answer)
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<pb::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<pb::ControllerGetCapabilitiesResponse>, Status> {
        use pb::controller_service_capability::{Rpc, Type, rpc};
        let all = [rpc::Type::CreateDeleteVolume, rpc::Type::PublishUnpublishVolume, rpc::Type::ExpandVolume];
        let one = |kind: rpc::Type| pb::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind as i32 })),
        };
        let capabilities = all.map(one).into();
        Ok(Response::new(pb::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<pb::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<pb::ValidateVolumeCapabilitiesResponse>, Status> {
        use pb::validate_volume_capabilities_response::Confirmed;
        use pb::volume_capability::AccessType;
        let of = request.into_inner();
        let lost = self.begin(call("ValidateVolumeCapabilities", &of.volume_id)).await?;
        needs(!of.volume_id.is_empty(), "the volume's id")?;
        needs(!of.volume_capabilities.is_empty(), "what the volume is to be able to do")?;
        self.dir_of(&of.volume_id)?;
        let is_mount = |c: &pb::VolumeCapability| matches!(c.access_type, Some(AccessType::Mount(_)));
        let answer = if of.volume_capabilities.iter().all(is_mount) {
            let confirmed = Confirmed {
                volume_context: of.volume_context,
                volume_capabilities: of.volume_capabilities,
                parameters: of.parameters,
                mutable_parameters: of.mutable_parameters,
            };
            pb::ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() }
        } else {
            let message = "a volume is a directory".to_owned();
            pb::ValidateVolumeCapabilitiesResponse { confirmed: None, message }
        };
        done(lost, answer)
    }

    without! {
        list_volumes: ListVolumesRequest => ListVolumesResponse;
        get_capacity: GetCapacityRequest => GetCapacityResponse;
        create_snapshot: CreateSnapshotRequest => CreateSnapshotResponse;
        delete_snapshot: DeleteSnapshotRequest => DeleteSnapshotResponse;
        list_snapshots: ListSnapshotsRequest => ListSnapshotsResponse;
        controller_get_volume: ControllerGetVolumeRequest => ControllerGetVolumeResponse;
        controller_modify_volume: ControllerModifyVolumeRequest => ControllerModifyVolumeResponse;
    }
}
