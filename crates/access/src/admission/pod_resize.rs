//! PodResizeValidator: the containers of a Pod grow no further than its node could hold.

use api::quantity;
use api::view::View;
use api::{Status, Struct};
use serde::Deserialize;

use super::plugin::{Env, Plugin, with_cause};
use super::{AdmissionRequest, Operation};
use crate::reader::read;

#[derive(Default)]
pub(super) struct PodResizeValidator;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Node {
    metadata: Metadata,
    status: NodeStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    labels: std::collections::HashMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeStatus {
    allocatable: Allocatable,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Allocatable {
    cpu: String,
    memory: String,
}

/// Sums what a Pod requests of a resource, in billionths: its containers together, or more where containers that run
/// before these need more; the request of the Pod as a whole instead, if it has one; and its overhead.
fn request(pod: &View<'_>, resource: &str) -> i128 {
    let spec = pod.st("spec");
    let of = |part: &View<'_>| {
        let requests = part.st("resources").map("requests");
        requests.and_then(|r| r.get(resource)).map(|q| quantity::nano(q.as_str()))
    };
    let mut sum: i128 = spec.items("containers").filter_map(|c| of(&c)).sum();
    let (mut running, mut most) = (0, 0);
    for container in spec.items("initContainers") {
        let own = of(&container).unwrap_or_default();
        most = most.max(running + own);
        if container.str("restartPolicy") == "Always" {
            running += own;
        }
    }
    sum = (sum + running).max(most);
    let overhead = spec.map("overhead").and_then(|o| o.get(resource));
    of(&spec).unwrap_or(sum) + overhead.map_or(0, |q| quantity::nano(q.as_str()))
}

/// Returns texts about the resources of which the node has less than the Pod requests.
fn lacks(pod: &View<'_>, allocatable: &Allocatable) -> Vec<String> {
    let check = |resource, unit: i128, has: &str| {
        let (wants, has) = (request(pod, resource), quantity::nano(has));
        let units = |nano: i128| (nano + unit - 1) / unit;
        let (shown, of) = (units(wants), units(has));
        (wants > has).then(|| format!("{resource}, requested: {shown}, allocatable: {of}"))
    };
    let cpu = check("cpu", 1_000_000, &allocatable.cpu);
    let memory = check("memory", 1_000_000_000, &allocatable.memory);
    cpu.into_iter().chain(memory).collect()
}

impl Plugin for PodResizeValidator {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let (Some(object), Some(old)) = (object, request.old) else { return Ok(()) };
        if request.operation != Operation::Update || !request.is_with("", "pods", "resize") {
            return Ok(());
        }
        let (pod, old) = (env.view(object), env.view(old));
        let name = pod.st("spec").str("nodeName");
        let generation = |pod: &View<'_>| pod.st("metadata").int("generation");
        if name.is_empty() || generation(&pod) == generation(&old) {
            return Ok(());
        }
        let refuse = |why: String| request.forbidden(Some(object), why);
        let Some(node) = env.reader.get(("", "nodes"), "", name).and_then(|n| read::<Node>(&n)) else {
            return Err(refuse(format!("node {name:?} not found")));
        };
        if let Some(os) = node.metadata.labels.get("kubernetes.io/os").filter(|os| *os != "linux") {
            let why = format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}");
            return Err(with_cause(refuse(why), "UnsupportedPlatform", String::new(), ""));
        }
        let lacks = lacks(&pod, &node.status.allocatable);
        if lacks.is_empty() {
            return Ok(());
        }
        let why = format!("node didn't have enough allocatable resources: {}", lacks.join("; "));
        Err(with_cause(refuse(why), "NodeCapacity", String::new(), ""))
    }
}
