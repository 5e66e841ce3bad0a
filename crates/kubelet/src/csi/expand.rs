//! The node's part of a volume's expansion, and its claim's status (upstream: `operationexecutor/node_expander.go`).

use std::path::Path;
use std::time::Duration;

use client::Patch;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use objects::quantity;
use plugins::csi::node_service_capability::rpc::Type as Capability;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::Code;

use super::calls::{CallError, NodeService};
use super::error::{CsiError, Step, Why};
use super::room::Room;
use super::volume::Wanted;

/// How long an answer of the API server is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The annotation of a claim whose controller did everything; upstream's.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
/// The states of a claim's resize that the node goes on with.
const PENDING: [&str; 2] = ["NodeResizePending", "NodeResizeInProgress"];
/// The conditions of a resize.
const CONDITIONS: [&str; 4] =
    ["FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError"];

/// The step that is due for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Nothing.
    Nothing,
    /// The volume is made larger, and the claim is told.
    Expand,
    /// Another node did it, and the volume is for many nodes: it is made larger here, too.
    Here,
}

/// Whether a volume of this capacity is to be made larger; upstream's rule.
fn due(claim: &PersistentVolumeClaim, capacity: i64) -> Due {
    let status = claim.status.clone().unwrap_or_default();
    let resize = status.allocated_resource_statuses.as_ref().and_then(|s| s.get("storage"));
    let has = quantity::value(status.capacity.as_ref().and_then(|c| c.get("storage")));
    let modes = claim.spec.as_ref().and_then(|s| s.access_modes.as_deref()).unwrap_or_default();
    let skipped = claim.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(NOT_REQUIRED));
    match resize.map(String::as_str).filter(|s| !s.is_empty()) {
        Some(state) if PENDING.contains(&state) => Due::Expand,
        None if has >= capacity && modes.iter().any(|m| m == "ReadWriteMany") && !skipped => Due::Here,
        _ => Due::Nothing,
    }
}

/// Looks whether a Pod's volume is to be made larger, and does it. `running`: containers have it.
pub(super) async fn look(
    room: &Room,
    pod: &Pod,
    wanted: &Wanted,
    path: &Path,
    running: bool,
) -> Result<(), CsiError> {
    let Some((namespace, claim)) = wanted.claim.as_ref().filter(|_| !wanted.read_only) else { return Ok(()) };
    let Ok(node) = NodeService::of(&room.drivers, &wanted.driver) else { return Ok(()) };
    let failed = |why| CsiError::Failed { step: Step::Expand, name: wanted.name.clone(), why };
    let can = node.abilities().await.map_err(|e| failed(e.into()))?;
    if !can.has(Capability::ExpandVolume) {
        return Ok(());
    }
    let claims = room.client.api::<PersistentVolumeClaim>(namespace);
    // Nothing is lost if the API server is away: it is asked again.
    let Ok(Ok(claim)) = timeout(PATIENCE, claims.get(claim)).await else { return Ok(()) };
    let mut wanted = wanted.clone();
    if running {
        let volumes = room.client.api::<PersistentVolume>("");
        let Ok(Ok(volume)) = timeout(PATIENCE, volumes.get(&wanted.name)).await else { return Ok(()) };
        let capacity = volume.spec.as_ref().and_then(|s| s.capacity.as_ref()).and_then(|c| c.get("storage"));
        wanted.capacity = quantity::value(capacity);
    }
    let step = due(&claim, wanted.capacity);
    let key = (wanted.driver.clone(), wanted.handle.clone());
    let size = room
        .size(&key, quantity::value(claim.status.as_ref().and_then(|s| s.capacity.as_ref()?.get("storage"))));
    match step {
        Due::Nothing => return Ok(()),
        Due::Here if size >= wanted.capacity => return Ok(()),
        Due::Here | Due::Expand => {}
    }
    let name = claim.metadata.name.clone().unwrap_or_default();
    let tell = async |patch: Value| {
        let told = timeout(PATIENCE, claims.patch_status(&name, &Patch::Strategic(patch))).await;
        told.map_err(|_| Why::Text("context deadline exceeded".into()))?.map(drop).map_err(|e| {
            Why::Text(format!("mountVolume.NodeExpandVolume update pvc status failed: {}", e.message))
        })
    };
    if step == Due::Expand {
        tell(in_progress(&claim)).await.map_err(&failed)?;
    }
    let secrets = room.secret(wanted.expand_secret.as_ref(), "NodeExpandSecretRef").await.map_err(&failed)?;
    let staged = can.stages().then(|| {
        if wanted.block {
            room.places.device_staged(&wanted.name)
        } else {
            room.places.staged(&wanted.driver, &wanted.handle).join("globalmount")
        }
    });
    let request = wanted.expand(&can, (staged.as_deref(), path), secrets);
    if let Err(error) = node.expand(request).await {
        if error.is_final() && step == Due::Expand {
            let _ = tell(refused(&error, room.tokens.clock.now())).await;
        }
        // A volume that cannot grow while it is used is no reason not to use it.
        if error.code() == Code::FailedPrecondition {
            return Ok(());
        }
        return Err(failed(error.into()));
    }
    room.grown(key, wanted.capacity);
    let message =
        format!("MountVolume.NodeExpandVolume succeeded for volume {:?} {}", wanted.name, room.node_name);
    room.giver.recorder.pod(pod, "Normal", "FileSystemResizeSuccessful", message.clone());
    room.giver.recorder.0.event(&claim, client::EventType::Normal, "FileSystemResizeSuccessful", message);
    if step == Due::Expand {
        tell(finished(&claim, wanted.capacity)).await.map_err(&failed)?;
    }
    Ok(())
}

/// A claim whose volume is being made larger here; the patch holds for this revision of it only.
fn in_progress(claim: &PersistentVolumeClaim) -> Value {
    json!({
        "metadata": { "resourceVersion": claim.metadata.resource_version },
        "status": { "allocatedResourceStatuses": { "storage": "NodeResizeInProgress" } },
    })
}

/// A claim whose volume is larger.
fn finished(claim: &PersistentVolumeClaim, capacity: i64) -> Value {
    let size = claim.status.as_ref().and_then(|s| s.allocated_resources.as_ref()?.get("storage").cloned());
    let size = size.filter(|s| quantity::value(Some(s)) == capacity).map_or(capacity.to_string(), |s| s.0);
    let gone: Vec<Value> =
        CONDITIONS.iter().map(|kind| json!({ "$patch": "delete", "type": kind })).collect();
    json!({ "status": {
        "capacity": { "storage": size },
        "allocatedResourceStatuses": { "storage": null },
        "conditions": gone,
    } })
}

/// A claim whose volume cannot be made larger.
fn refused(error: &CallError, now: jiff::Timestamp) -> Value {
    let infeasible = matches!(error.code(), Code::InvalidArgument | Code::OutOfRange | Code::NotFound);
    let condition = json!({
        "type": "NodeResizeError",
        "status": "True",
        "lastTransitionTime": objects::time::text(now),
        "message": format!("failed to expand pvc with {error}"),
    });
    let mut status = json!({ "conditions": [condition] });
    if infeasible {
        status["allocatedResourceStatuses"] = json!({ "storage": "NodeResizeInfeasible" });
    }
    json!({ "status": status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps() {
        let check = |mode: &str, has: &str, state: Value, annotations: Value, expected: Due| {
            let claim = json!({"metadata": {"annotations": annotations}, "spec": {"accessModes": [mode]},
                "status": {"capacity": {"storage": has}, "allocatedResourceStatuses": state}});
            let got = due(&serde_json::from_value(claim.clone()).unwrap(), 2 << 30);
            assert_eq!(got, expected, "{claim}");
        };
        let state = |s: &str| json!({"storage": s});
        let none = || json!({});
        // Upstream's cases of `TestNodeExpander`.
        check("ReadWriteOnce", "1Gi", state("NodeResizePending"), none(), Due::Expand);
        check("ReadWriteOnce", "1Gi", state("NodeResizeInProgress"), none(), Due::Expand);
        check("ReadWriteOnce", "1Gi", state("NodeResizeInfeasible"), none(), Due::Nothing);
        check("ReadWriteOnce", "1Gi", none(), none(), Due::Nothing);
        check("ReadWriteOnce", "2Gi", none(), none(), Due::Nothing);
        check("ReadWriteMany", "2Gi", none(), none(), Due::Here);
        check("ReadWriteMany", "2Gi", none(), json!({NOT_REQUIRED: "true"}), Due::Nothing);
        check("ReadWriteMany", "1Gi", none(), none(), Due::Nothing);
        check("ReadWriteMany", "1Gi", state("ControllerResizeInProgress"), none(), Due::Nothing);
    }

    #[test]
    fn claims_are_told() {
        let claim: PersistentVolumeClaim =
            serde_json::from_value(json!({"metadata": {"resourceVersion": "7"},
            "status": {"allocatedResources": {"storage": "2Gi"}}}))
            .unwrap();
        assert_eq!(in_progress(&claim)["metadata"]["resourceVersion"], "7");
        assert_eq!(finished(&claim, 2 << 30)["status"]["capacity"]["storage"], "2Gi");
        assert_eq!(finished(&claim, 5)["status"]["capacity"]["storage"], "5");
        let now = jiff::Timestamp::UNIX_EPOCH;
        let check = |status: tonic::Status, infeasible: bool| {
            let patch = refused(&CallError::from(status), now);
            assert_eq!(patch["status"].get("allocatedResourceStatuses").is_some(), infeasible);
            let message = patch["status"]["conditions"][0]["message"].as_str().unwrap();
            assert!(message.starts_with("failed to expand pvc with rpc error: code = "), "{message}");
        };
        check(tonic::Status::out_of_range("too large"), true);
        check(tonic::Status::invalid_argument("odd"), true);
        check(tonic::Status::internal("boom"), false);
    }
}
