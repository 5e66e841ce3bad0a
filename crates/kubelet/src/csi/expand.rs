//! The growth of a driver's volume on the node.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use plugins::csi::node_service_capability::rpc::Type as Capability;
use tonic::Code;

use super::calls::NodeService;
use super::error::{CsiError, Step, Why};
use super::room::Room;
use super::volume::Wanted;
use crate::volumes::growth::Growth;

/// The answers of a driver whose volume can never have a size.
const INFEASIBLE: [Code; 3] = [Code::InvalidArgument, Code::OutOfRange, Code::NotFound];

/// Looks whether a Pod's volume is to be made larger, and does it. `running`: containers have it.
pub(super) async fn look(
    room: &Room,
    pod: &Pod,
    wanted: &Wanted,
    path: &Path,
    running: bool,
) -> Result<(), CsiError> {
    let Some(claim) = wanted.claim.as_ref().filter(|_| !(wanted.read_only && running)) else { return Ok(()) };
    let Ok(node) = NodeService::giving(&room.drivers, &wanted.driver, wanted.migrated) else { return Ok(()) };
    let step = if running { Step::Expand } else { Step::SetUpExpand };
    let failed = |why| CsiError::Failed { step, name: wanted.name.clone(), why };
    let can = node.abilities().await.map_err(|e| failed(e.into()))?;
    if !can.has(Capability::ExpandVolume) {
        return Ok(());
    }
    let growth = Growth {
        client: &room.client,
        recorder: &room.giver.recorder,
        clock: room.tokens.clock,
        node: &room.node_name,
        pod,
        volume: &wanted.name,
        claim,
    };
    let Some(due) = growth.due((!running).then_some(wanted.capacity)).await else { return Ok(()) };
    if wanted.read_only {
        growth.refuse(&due);
        return Ok(());
    }
    let key = wanted.key();
    if !due.is_now(room.sizes.of(key.clone(), due.has)) {
        return Ok(());
    }
    growth.begin(&due).await.map_err(|why| failed(Why::Text(why)))?;
    let secrets = room.secret(wanted.expand_secret.as_ref(), "NodeExpandSecretRef").await.map_err(&failed)?;
    let staged = can.stages().then(|| {
        if wanted.block {
            room.places.device_staged(&wanted.name)
        } else {
            room.places.staged(&wanted.driver, &wanted.handle).join("globalmount")
        }
    });
    let request = wanted.expand(&can, (staged.as_deref(), path), secrets, due.capacity);
    if let Err(error) = node.expand(request).await {
        if error.is_final() {
            let again = room.sizes.failed(&key);
            growth.fail(&due, &error.to_string(), INFEASIBLE.contains(&error.code()), again).await;
        }
        // A volume that cannot grow while it is used is no reason not to use it.
        if error.code() == Code::FailedPrecondition {
            return Ok(());
        }
        return Err(failed(error.into()));
    }
    room.sizes.grown(key, due.capacity);
    growth.end(&due).await.map_err(|why| failed(Why::Text(why)))
}
