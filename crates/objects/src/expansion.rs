//! The growth of a claim's volume, as its status tells it: the parts of the controller and of the node, and the patches from
//! one state to the next (upstream: `pkg/volume/util/resize_util.go`, `pkg/volume/util/operationexecutor`).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::{quantity, time};

/// The annotation of a claim that names the part that makes its volume larger; upstream's.
pub const RESIZER: &str = "volume.kubernetes.io/storage-resizer";
/// The annotation of a volume that is being made larger, with the claim's capacity before; upstream's.
pub const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// The annotation of a claim whose controller did everything; upstream's.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
/// The states of a claim's growth.
const CONTROLLER_IN_PROGRESS: &str = "ControllerResizeInProgress";
const CONTROLLER_INFEASIBLE: &str = "ControllerResizeInfeasible";
const NODE_PENDING: &str = "NodeResizePending";
const NODE_IN_PROGRESS: &str = "NodeResizeInProgress";
const NODE_INFEASIBLE: &str = "NodeResizeInfeasible";
/// The conditions of a growth.
const RESIZING: &str = "Resizing";
const FS_PENDING: &str = "FileSystemResizePending";
const NODE_ERROR: &str = "NodeResizeError";
const CONDITIONS: [&str; 4] = [FS_PENDING, RESIZING, "ControllerResizeError", NODE_ERROR];

/// The room that a claim asks for.
pub fn requested(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

/// The room that a claim has.
pub fn has(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.status.as_ref()?.capacity.as_ref()?.get("storage")
}

/// The room that a claim asks for.
pub fn wants(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

/// The room of a volume.
pub fn capacity(volume: &PersistentVolume) -> Option<&Quantity> {
    volume.spec.as_ref()?.capacity.as_ref()?.get("storage")
}

/// The room up to which a claim's volume was last to grow.
pub fn allocated(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.status.as_ref()?.allocated_resources.as_ref()?.get("storage")
}

/// The state of a claim's growth; empty if it does not grow.
fn state(claim: &PersistentVolumeClaim) -> &str {
    let all = claim.status.as_ref().and_then(|s| s.allocated_resource_statuses.as_ref());
    all.and_then(|all| all.get("storage")).map_or("", String::as_str)
}

/// The controller's next step for a claim whose volume grows without a resizer of its own.
#[derive(Debug, Clone, PartialEq)]
pub enum ControllerPart {
    /// The node goes on.
    Nothing,
    /// The node is to try once more.
    ToNode,
    /// The volume grows to this size.
    Expand(Quantity),
}

/// That step; upstream's `expandAndRecoverFunction`.
pub fn controller_part(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> ControllerPart {
    let wanted = requested(claim).cloned().unwrap_or_default();
    let small = quantity::value(capacity(volume)) < quantity::value(Some(&wanted));
    // A size that was begun with is reached first.
    let begun = || ControllerPart::Expand(allocated(claim).unwrap_or(&wanted).clone());
    match (small, state(claim)) {
        (true, CONTROLLER_IN_PROGRESS | NODE_PENDING | NODE_IN_PROGRESS | NODE_INFEASIBLE) => begun(),
        (false, NODE_IN_PROGRESS | NODE_PENDING) => ControllerPart::Nothing,
        (false, NODE_INFEASIBLE) => ControllerPart::ToNode,
        (false, CONTROLLER_IN_PROGRESS | CONTROLLER_INFEASIBLE | "") => begun(),
        _ => ControllerPart::Expand(wanted.clone()),
    }
}

/// Whether a claim has all that it asks for, and all of its volume.
pub fn is_complete(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let has = quantity::value(has(claim));
    has >= quantity::value(requested(claim)) && has >= quantity::value(capacity(volume))
}

/// The node's next step for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodePart {
    /// Nothing.
    Nothing,
    /// The volume is made larger, and the claim is told.
    Expand,
    /// Another node did it, and the volume is for many nodes: it is made larger here, too.
    Here,
    /// The volume has grown by the hand of somebody who tells no states of it: an older resizer, or a person. It is made
    /// larger here, and the claim is told.
    Untold,
}

/// That step for a volume of this capacity in bytes; upstream's `checkForRecoveryFromExpansion` and
/// `NodeExpander.runPreCheck`.
pub fn node_part(claim: &PersistentVolumeClaim, capacity: i64) -> NodePart {
    let modes = claim.spec.as_ref().and_then(|s| s.access_modes.as_deref()).unwrap_or_default();
    let skipped = claim.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(NOT_REQUIRED));
    let shared = modes.iter().any(|m| m == "ReadWriteMany") && !skipped;
    let untold = claim.status.as_ref().is_none_or(|s| s.allocated_resources.is_none());
    match state(claim) {
        "" if untold && quantity::value(has(claim)) < capacity => NodePart::Untold,
        NODE_PENDING | NODE_IN_PROGRESS => NodePart::Expand,
        "" if shared && quantity::value(has(claim)) >= capacity => NodePart::Here,
        _ => NodePart::Nothing,
    }
}

/// A condition of a claim: the one that is there, if it holds already.
fn condition(claim: &PersistentVolumeClaim, kind: &str, message: &str, now: Timestamp) -> Option<Value> {
    let all = claim.status.as_ref().and_then(|s| s.conditions.as_ref());
    let holds = all.into_iter().flatten().any(|c| c.type_ == kind && c.status == "True");
    let mut condition = json!({ "type": kind, "status": "True", "lastTransitionTime": time::text(now) });
    if !message.is_empty() {
        condition["message"] = json!(message);
    }
    (!holds).then_some(condition)
}

/// The conditions of a growth are taken away, but for one.
fn without_others(but: &str) -> impl Iterator<Item = Value> {
    CONDITIONS
        .into_iter()
        .filter(move |kind| *kind != but)
        .map(|kind| json!({ "$patch": "delete", "type": kind }))
}

/// A claim whose volume grows by the controller's hand, as the resizer of that name. Like the others here, a strategic merge
/// patch of the claim's status; it holds for this revision of the claim only.
pub fn controller_in_progress(
    claim: &PersistentVolumeClaim,
    resizer: &str,
    size: &Quantity,
    now: Timestamp,
) -> Value {
    let conditions: Vec<Value> =
        condition(claim, RESIZING, "", now).into_iter().chain(without_others(RESIZING)).collect();
    json!({
        "metadata": {
            "resourceVersion": claim.metadata.resource_version,
            "annotations": { RESIZER: resizer },
        },
        "status": {
            "allocatedResourceStatuses": { "storage": CONTROLLER_IN_PROGRESS },
            "allocatedResources": { "storage": size },
            "conditions": conditions,
        },
    })
}

/// A claim whose volume's file system is to grow on a node; it holds for this revision of the claim only.
pub fn node_pending(claim: &PersistentVolumeClaim, now: Timestamp) -> Value {
    let message = "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";
    let conditions: Vec<Value> = condition(claim, FS_PENDING, message, now).into_iter().collect();
    json!({
        "metadata": { "resourceVersion": claim.metadata.resource_version },
        "status": { "allocatedResourceStatuses": { "storage": NODE_PENDING }, "conditions": conditions },
    })
}

/// A claim whose volume grows on a node; it holds for this revision of the claim only.
pub fn node_in_progress(claim: &PersistentVolumeClaim) -> Value {
    json!({
        "metadata": { "resourceVersion": claim.metadata.resource_version },
        "status": { "allocatedResourceStatuses": { "storage": NODE_IN_PROGRESS } },
    })
}

/// A claim whose volume has grown to a capacity in bytes.
pub fn finished(claim: &PersistentVolumeClaim, capacity: i64) -> Value {
    let size = allocated(claim).filter(|size| quantity::value(Some(size)) == capacity);
    let size = size.map_or_else(|| capacity.to_string(), |size| size.0.clone());
    json!({ "status": {
        "capacity": { "storage": size },
        "allocatedResourceStatuses": { "storage": null },
        "conditions": without_others("").collect::<Vec<_>>(),
    } })
}

/// A claim whose volume could not grow on a node, and never can if it is `infeasible`.
pub fn node_failed(why: &str, infeasible: bool, now: Timestamp) -> Value {
    let condition = json!({
        "type": NODE_ERROR,
        "status": "True",
        "lastTransitionTime": time::text(now),
        "message": format!("failed to expand pvc with {why}"),
    });
    let mut status = json!({ "conditions": [condition] });
    if infeasible {
        status["allocatedResourceStatuses"] = json!({ "storage": NODE_INFEASIBLE });
    }
    json!({ "status": status })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(value: Value) -> PersistentVolumeClaim {
        serde_json::from_value(value).unwrap()
    }

    /// Upstream's cases of `TestNodeExpander`.
    #[test]
    fn parts_of_the_node() {
        let check = |mode: &str, has: &str, state: Value, annotations: Value, expected: NodePart| {
            let of = json!({"metadata": {"annotations": annotations}, "spec": {"accessModes": [mode]},
                "status": {"capacity": {"storage": has}, "allocatedResourceStatuses": state,
                    "allocatedResources": {"storage": "2Gi"}}});
            assert_eq!(node_part(&claim(of.clone()), 2 << 30), expected, "{of}");
        };
        let state = |s: &str| json!({"storage": s});
        let none = || json!({});
        check("ReadWriteOnce", "1Gi", state("NodeResizePending"), none(), NodePart::Expand);
        check("ReadWriteOnce", "1Gi", state("NodeResizeInProgress"), none(), NodePart::Expand);
        check("ReadWriteOnce", "1Gi", state("NodeResizeInfeasible"), none(), NodePart::Nothing);
        check("ReadWriteOnce", "1Gi", none(), none(), NodePart::Nothing);
        check("ReadWriteOnce", "2Gi", none(), none(), NodePart::Nothing);
        check("ReadWriteMany", "2Gi", none(), none(), NodePart::Here);
        check("ReadWriteMany", "2Gi", none(), json!({NOT_REQUIRED: "true"}), NodePart::Nothing);
        check("ReadWriteMany", "1Gi", none(), none(), NodePart::Nothing);
        check("ReadWriteMany", "1Gi", state("ControllerResizeInProgress"), none(), NodePart::Nothing);
        let check = |status: Value, expected: NodePart| {
            assert_eq!(node_part(&claim(json!({"status": status})), 2 << 30), expected, "{status}");
        };
        let has = |room: &str| json!({"capacity": {"storage": room}});
        check(has("1Gi"), NodePart::Untold);
        check(has("2Gi"), NodePart::Nothing);
        check(Value::Null, NodePart::Untold);
        let told = |state: &str| {
            let mut status = has("1Gi");
            status["allocatedResourceStatuses"] = json!({"storage": state});
            status
        };
        check(told("NodeResizePending"), NodePart::Expand);
        check(told("ControllerResizeInProgress"), NodePart::Nothing);
    }

    /// Upstream's cases of `TestOperationGenerator_GenerateExpandAndRecoverVolumeFunc`, and more.
    #[test]
    fn parts_of_the_controller() {
        let check = |(wants, has, volume): (&str, &str, &str),
                     (state, allocated): (&str, &str),
                     (expected, complete): (Option<Option<&str>>, bool)| {
            let mut status = json!({"capacity": {"storage": has}});
            if !state.is_empty() {
                status["allocatedResourceStatuses"] = json!({"storage": state});
            }
            if !allocated.is_empty() {
                status["allocatedResources"] = json!({"storage": allocated});
            }
            let of =
                claim(json!({"spec": {"resources": {"requests": {"storage": wants}}}, "status": status}));
            let volume = json!({"spec": {"capacity": {"storage": volume}}});
            let volume = serde_json::from_value(volume).unwrap();
            let expected = match expected {
                None => ControllerPart::Nothing,
                Some(None) => ControllerPart::ToNode,
                Some(Some(size)) => ControllerPart::Expand(Quantity(size.into())),
            };
            let got = (controller_part(&of, &volume), is_complete(&of, &volume));
            assert_eq!(got, (expected, complete), "{wants} {has} {state} {allocated}");
        };
        check(("2G", "1G", "1G"), ("", ""), (Some(Some("2G")), false));
        check(("2G", "1G", "1G"), ("NodeResizePending", "1500M"), (Some(Some("1500M")), false));
        check(("2G", "1G", "1G"), ("ControllerResizeInProgress", "2G"), (Some(Some("2G")), false));
        check(("2G", "1G", "1G"), ("ControllerResizeInfeasible", "3G"), (Some(Some("2G")), false));
        check(("2G", "1G", "2G"), ("NodeResizePending", "2G"), (None, false));
        check(("2G", "1G", "2G"), ("NodeResizeInProgress", "2G"), (None, false));
        check(("2G", "1G", "2G"), ("NodeResizeInfeasible", "2G"), (Some(None), false));
        check(("2G", "1G", "3G"), ("ControllerResizeInProgress", "3G"), (Some(Some("3G")), false));
        check(("2G", "1G", "3G"), ("", "3G"), (Some(Some("3G")), false));
        check(("2G", "2G", "2G"), ("", "2G"), (Some(Some("2G")), true));
        check(("1G", "2G", "3G"), ("", ""), (Some(Some("1G")), false));
    }

    #[test]
    fn claims_are_told() {
        let of = claim(json!({"metadata": {"resourceVersion": "7"}, "status": {
            "allocatedResources": {"storage": "2Gi"}, "conditions": [{"type": "Resizing", "status": "True"}]}}));
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(node_in_progress(&of)["metadata"]["resourceVersion"], "7");
        assert_eq!(finished(&of, 2 << 30)["status"]["capacity"]["storage"], "2Gi");
        let grown = finished(&of, 5);
        assert_eq!((&grown["status"]["capacity"]["storage"], kinds(&grown).len()), (&json!("5"), 4));
        let pending = node_pending(&of, now);
        assert_eq!(kinds(&pending), ["FileSystemResizePending"]);
        let begun = controller_in_progress(&of, "d", &Quantity("2Gi".into()), now);
        assert_eq!(begun["metadata"]["annotations"][RESIZER], "d");
        assert_eq!(begun["status"]["allocatedResources"]["storage"], "2Gi");
        // The condition that is there keeps its time.
        assert_eq!(kinds(&begun), ["FileSystemResizePending", "ControllerResizeError", "NodeResizeError"]);
        let first =
            controller_in_progress(&PersistentVolumeClaim::default(), "d", &Quantity("1".into()), now);
        assert_eq!(kinds(&first)[0], "Resizing");
        for infeasible in [true, false] {
            let failed = node_failed("boom", infeasible, now);
            assert_eq!(failed["status"].get("allocatedResourceStatuses").is_some(), infeasible);
            assert_eq!(failed["status"]["conditions"][0]["message"], "failed to expand pvc with boom");
        }
    }

    fn kinds(patch: &Value) -> Vec<&str> {
        let conditions = patch["status"]["conditions"].as_array().unwrap();
        conditions.iter().map(|c| c["type"].as_str().unwrap()).collect()
    }
}
