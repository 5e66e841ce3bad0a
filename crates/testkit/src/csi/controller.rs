//! The driver's controller service: volumes come, grow and go.

use std::fs;

use plugins::csi as pb;
use plugins::csi::controller_server::Controller;
use tonic::{Request, Response, Status};

use super::{Call, Inner, done};

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
        if of.name.contains('/') {
            return Err(Status::invalid_argument("a volume's name has no slash"));
        }
        fs::create_dir_all(self.data.join(&of.name)).map_err(internal)?;
        self.state().sizes.insert(of.name.clone(), size);
        let volume = pb::Volume { capacity_bytes: size, volume_id: of.name, ..pb::Volume::default() };
        done(lost, pb::CreateVolumeResponse { volume: Some(volume) })
    }

    async fn delete_volume(
        &self,
        request: Request<pb::DeleteVolumeRequest>,
    ) -> Result<Response<pb::DeleteVolumeResponse>, Status> {
        let of = request.into_inner();
        let lost = self.begin(call("DeleteVolume", &of.volume_id)).await?;
        match fs::remove_dir_all(self.data.join(&of.volume_id)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(internal(error)),
            _ => {}
        }
        done(lost, pb::DeleteVolumeResponse {})
    }

    async fn controller_publish_volume(
        &self,
        request: Request<pb::ControllerPublishVolumeRequest>,
    ) -> Result<Response<pb::ControllerPublishVolumeResponse>, Status> {
        let of = request.into_inner();
        let lost = self.begin(call("ControllerPublishVolume", &of.volume_id)).await?;
        let publish_context = [("device".to_owned(), format!("/dev/{}", of.volume_id))].into();
        done(lost, pb::ControllerPublishVolumeResponse { publish_context })
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<pb::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<pb::ControllerUnpublishVolumeResponse>, Status> {
        let of = request.into_inner();
        let lost = self.begin(call("ControllerUnpublishVolume", &of.volume_id)).await?;
        done(lost, pb::ControllerUnpublishVolumeResponse {})
    }

    async fn controller_expand_volume(
        &self,
        request: Request<pb::ControllerExpandVolumeRequest>,
    ) -> Result<Response<pb::ControllerExpandVolumeResponse>, Status> {
        let of = request.into_inner();
        let size = of.capacity_range.map_or(0, |r| r.required_bytes);
        let lost = self.begin(Call { size, ..call("ControllerExpandVolume", &of.volume_id) }).await?;
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

    without! {
        validate_volume_capabilities: ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse;
        list_volumes: ListVolumesRequest => ListVolumesResponse;
        get_capacity: GetCapacityRequest => GetCapacityResponse;
        create_snapshot: CreateSnapshotRequest => CreateSnapshotResponse;
        delete_snapshot: DeleteSnapshotRequest => DeleteSnapshotResponse;
        list_snapshots: ListSnapshotsRequest => ListSnapshotsResponse;
        controller_get_volume: ControllerGetVolumeRequest => ControllerGetVolumeResponse;
        controller_modify_volume: ControllerModifyVolumeRequest => ControllerModifyVolumeResponse;
    }
}
