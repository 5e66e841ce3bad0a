//! The answer about a Pod.

use k8s_openapi::api::core::v1::{Container, Pod};
use plugins::resources as pb;

use crate::pods::devices::Devices;
use crate::pods::spec;

/// The devices of a Pod's containers, and of its init containers that go on running. Processors and memory are given to
/// nobody alone, so nothing is told of them.
pub(super) fn of_pod(pod: &Pod, devices: &Devices) -> pb::PodResources {
    let one = |container: &Container| pb::ContainerResources {
        name: container.name.clone(),
        devices: devices.plugins.of_container_by_node(spec::uid(pod), &container.name),
        dynamic_resources: devices.dra.resources(pod, container),
        ..pb::ContainerResources::default()
    };
    let sidecars = spec::init_containers(pod).iter().filter(|c| spec::is_sidecar(c));
    pb::PodResources {
        name: spec::name(pod).to_owned(),
        namespace: spec::namespace(pod).to_owned(),
        containers: sidecars.chain(spec::containers(pod)).map(one).collect(),
    }
}
