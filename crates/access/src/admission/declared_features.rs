//! NodeDeclaredFeatureValidator: a Pod changes only as its node can follow.

use api::view::{View, same};
use api::{Gate, Status, Struct};
use serde::Deserialize;

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};
use crate::reader::read;

#[derive(Default)]
pub(super) struct NodeDeclaredFeatureValidator;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Node {
    status: NodeStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeStatus {
    declared_features: Vec<String>,
}

/// The features that a node needs for a Pod's change, in upstream's order.
fn needed(old: &View<'_>, new: &View<'_>) -> Vec<&'static str> {
    let mut needed = Vec::new();
    if !same(old.get("resources"), new.get("resources")) {
        needed.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let resized = |(old, new): (View<'_>, View<'_>)| {
        old.str("restartPolicy") != "Always" && !same(old.get("resources"), new.get("resources"))
    };
    if old.items("initContainers").zip(new.items("initContainers")).any(resized) {
        needed.push("InPlacePodVerticalScalingInitContainers");
    }
    needed
}

impl Plugin for NodeDeclaredFeatureValidator {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let (Some(object), Some(old)) = (object, request.old) else { return Ok(()) };
        if request.operation != Operation::Update
            || !(request.is("", "pods") || request.is_with("", "pods", "resize"))
            || !env.gates.enabled(Gate::NodeDeclaredFeatures)
        {
            return Ok(());
        }
        let (new, old) = (env.view(object), env.view(old));
        let name = new.st("spec").str("nodeName");
        let generation = |pod: &View<'_>| pod.st("metadata").int("generation");
        if name.is_empty() || generation(&new) == generation(&old) {
            return Ok(());
        }
        let mut needed = needed(&old.st("spec"), &new.st("spec"));
        if needed.is_empty() {
            return Ok(());
        }
        let quoted = api::go::quote(name);
        let Some(node) = env.reader.get(("", "nodes"), "", name) else {
            return Err(request.forbidden(Some(object), format!("node {quoted} not found")));
        };
        let declared = read::<Node>(&node).unwrap_or_default().status.declared_features;
        needed.retain(|feature| !declared.iter().any(|d| d == feature));
        if needed.is_empty() {
            return Ok(());
        }
        let why = format!(
            "pod update requires features {} which are not available on node {quoted}",
            needed.join(", ")
        );
        Err(request.forbidden(Some(object), why))
    }
}
