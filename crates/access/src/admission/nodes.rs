//! TaintNodesByCondition, and PodTopologyLabels.

use api::view::Edit;
use api::{Status, Struct, Text};

use super::plugin::{Env, Plugin};
use super::service_account::append;
use super::{AdmissionRequest, Operation};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Taints a new node, so that it takes no pods before it is ready.
#[derive(Default)]
pub(super) struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if request.operation != Operation::Create || !request.is("", "nodes") {
            return Ok(());
        }
        let mut node = Edit::new(env.schema, object);
        let Some(mut spec) = node.make("spec") else { return Ok(()) };
        let tainted =
            spec.view().items("taints").any(|t| t.str("key") == NOT_READY && t.str("effect") == "NoSchedule");
        if !tainted {
            append(&mut spec, "taints", |taint| {
                taint.set("key", NOT_READY);
                taint.set("effect", "NoSchedule");
            });
        }
        Ok(())
    }
}

/// Gives a pod its node's zone and region as labels.
#[derive(Default)]
pub(super) struct PodTopologyLabels;

impl Plugin for PodTopologyLabels {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if request.operation != Operation::Create {
            return Ok(());
        }
        let view = env.view(object);
        let node = if request.is("", "pods") {
            view.st("spec").str("nodeName")
        } else if request.is_with("", "pods", "binding") || request.is("", "bindings") {
            let target = view.st("target");
            if target.str("kind") == "Node" { target.str("name") } else { "" }
        } else {
            ""
        };
        if node.is_empty() {
            return Ok(());
        }
        let Some(node) = env.reader.get(("", "nodes"), "", node) else { return Ok(()) };
        let labels: Vec<(&str, Text)> =
            TOPOLOGY.iter().filter_map(|key| Some((*key, Text::from(node.label(key)?)))).collect();
        if labels.is_empty() {
            return Ok(());
        }
        let mut edit = Edit::new(env.schema, object);
        if let Some(mut meta) = edit.make("metadata")
            && let Some(map) = meta.make_map("labels")
        {
            for (key, value) in labels {
                map.insert(key, value);
            }
        }
        Ok(())
    }
}
