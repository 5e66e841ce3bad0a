//! The devices of containers and how healthy they are, for those who ask.

use k8s_openapi::api::core::v1::{ResourceHealth, ResourceStatus};
use plugins::device as pb;
use plugins::resources::{ContainerDevices, NumaNode, TopologyInfo};

use super::allocated::{Allocation, NO_NUMA_NODE};
use super::manager::DeviceManager;

/// A device near to some NUMA nodes: one entry for each of them, or one without a place.
fn entries(resource: &str, id: &str, nodes: &[i64]) -> Vec<ContainerDevices> {
    let one = |topology| ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.to_owned()],
        topology,
    };
    if nodes.is_empty() {
        return vec![one(None)];
    }
    nodes.iter().map(|id| one(Some(TopologyInfo { nodes: vec![NumaNode { id: *id }] }))).collect()
}

impl DeviceManager {
    /// The devices of a container, as agents are told of them.
    pub(crate) fn of_container_by_node(&self, pod: &str, container: &str) -> Vec<ContainerDevices> {
        let state = self.state.lock();
        let mut all = Vec::new();
        for (resource, given) in state.allocated.of_container(pod, container).into_iter().flatten() {
            for id in given.ids().into_iter().filter(|_| given.answer.is_some()) {
                let near = given.devices.iter().filter(|(_, ids)| ids.contains(&id)).map(|(node, _)| *node);
                let nodes: Vec<i64> = near.filter(|node| *node != NO_NUMA_NODE).collect();
                all.extend(entries(resource, &id, &nodes));
            }
        }
        all
    }

    /// The healthy devices that the node has, whoever has them.
    pub(crate) fn allocatable(&self) -> Vec<ContainerDevices> {
        let state = self.state.lock();
        let one = |resource: &str, device: &pb::Device| {
            let nodes: Vec<i64> = device.topology.iter().flat_map(|t| &t.nodes).map(|n| n.id).collect();
            entries(resource, &device.id, &nodes)
        };
        state.allocatable().flat_map(|(r, all)| all.into_iter().flat_map(move |d| one(r, d))).collect()
    }

    /// How healthy the devices of a container are.
    pub(crate) fn health(&self, pod: &str, container: &str) -> Vec<ResourceStatus> {
        let state = self.state.lock();
        let health = |resource: &str, id: &str| {
            let healthy = state.is_healthy(resource, id);
            if healthy { "Healthy" } else { "Unhealthy" }.to_owned()
        };
        let one = |resource: &str, allocation: &Allocation| ResourceStatus {
            name: resource.to_owned(),
            resources: Some(
                allocation
                    .ids()
                    .into_iter()
                    .map(|id| ResourceHealth {
                        health: Some(health(resource, &id)),
                        resource_id: id,
                        ..ResourceHealth::default()
                    })
                    .collect(),
            ),
        };
        let all = state.allocated.of_container(pod, container).into_iter().flatten();
        all.filter(|(_, a)| a.answer.is_some()).map(|(resource, a)| one(resource, a)).collect()
    }
}
