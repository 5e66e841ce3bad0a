//! The answer about a Pod.

use k8s_openapi::api::core::v1::{Container, Pod};
use plugins::resources as pb;

use crate::pods::devices::Devices;
use crate::pods::spec;
use crate::resource_managers::ResourceManagers;

/// The resources that a Pod's containers have alone, and its init containers that go on running.
pub(super) fn of_pod(pod: &Pod, devices: &Devices, managers: &ResourceManagers) -> pb::PodResources {
    let one = |container: &Container| pb::ContainerResources {
        name: container.name.clone(),
        devices: devices.plugins.of_container_by_node(spec::uid(pod), &container.name),
        cpu_ids: managers.cpu_ids(spec::uid(pod), &container.name),
        memory: managers.memory(spec::uid(pod), &container.name),
        dynamic_resources: devices.dra.resources(pod, container),
    };
    let sidecars = spec::init_containers(pod).iter().filter(|c| spec::is_sidecar(c));
    pb::PodResources {
        name: spec::name(pod).to_owned(),
        namespace: spec::namespace(pod).to_owned(),
        containers: sidecars.chain(spec::containers(pod)).map(one).collect(),
    }
}
