//! Containers get devices, and what comes with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use objects::quantity;
use plugins::device as pb;
use tokio::time::Instant;

use super::allocated::{Allocation, NO_NUMA_NODE};
use super::choose::{Choice, Near, Place, Preference, Stock, choose};
use super::endpoint::Endpoint;
use super::error::DeviceError;
use super::hints;
use super::manager::DeviceManager;
use super::options;
use super::state::State;
use crate::given::Given;
use crate::pods::spec;
use crate::topology_manager::NumaMask;
use crate::work::to_end;

impl DeviceManager {
    /// Gives a container of a Pod the devices that it asks for, near to some NUMA nodes if there are any.
    ///
    /// # Errors
    /// It does not get them. Those that it got are free once the Pod is refused.
    pub(crate) async fn allocate(
        self: &Arc<Self>,
        pod: &Arc<Pod>,
        container: &Container,
        near: Option<NumaMask>,
    ) -> Result<(), DeviceError> {
        if self.wanted(pod, container).is_empty() {
            return Ok(());
        }
        let (me, pod, container) = (self.clone(), pod.clone(), container.clone());
        to_end(async move { me.allocate_container(&pod, &container, near).await }).await?
    }

    /// Whether any container of a Pod asks for devices.
    pub(crate) fn wants_any(&self, pod: &Pod) -> bool {
        let mut all = spec::init_containers(pod).iter().chain(spec::containers(pod));
        all.any(|c| !self.wanted(pod, c).is_empty())
    }

    /// The resources of plugins that a container asks for, and how many of each. Those that a claim stands for are not
    /// among them.
    pub(super) fn wanted(&self, pod: &Pod, container: &Container) -> Vec<(String, i64)> {
        let mapped = spec::status(pod).extended_resource_claim_status.as_ref();
        let is_claimed = |resource: &str| {
            let mut all = mapped.iter().flat_map(|m| &m.request_mappings);
            all.any(|m| m.container_name == container.name && m.resource_name == resource)
        };
        let limits = container.resources.iter().flat_map(|r| r.limits.iter().flatten());
        let asked = limits.filter(|(name, _)| self.is_plugins(name) && !is_claimed(name));
        asked.map(|(name, amount)| (name.clone(), quantity::value(Some(amount)))).collect()
    }

    async fn allocate_container(
        &self,
        pod: &Pod,
        container: &Container,
        near: Option<NumaMask>,
    ) -> Result<(), DeviceError> {
        let mut changed = false;
        for (resource, required) in self.wanted(pod, container) {
            self.free_orphans();
            let of = Place { pod: spec::uid(pod).to_owned(), container: container.name.clone(), resource };
            changed |= self.allocate_resource(pod, &of, required, near).await?;
        }
        if changed {
            self.save().await?;
        }
        Ok(())
    }

    /// Answers whether the container got any.
    async fn allocate_resource(
        &self,
        pod: &Pod,
        of: &Place,
        required: i64,
        near: Option<NumaMask>,
    ) -> Result<bool, DeviceError> {
        let mut preferred: Option<BTreeSet<String>> = None;
        let taken = loop {
            let (choice, endpoint) = self.choose(pod, of, (required, near), preferred.as_ref())?;
            match choice {
                Choice::Nothing => return Ok(false),
                Choice::Take(taken) => break taken,
                Choice::Ask(available, included) => {
                    let Some(endpoint) = endpoint else {
                        // It went meanwhile, and prefers nothing.
                        preferred = Some(BTreeSet::new());
                        continue;
                    };
                    let request = pb::ContainerPreferredAllocationRequest {
                        available_device_i_ds: available.into_iter().collect(),
                        must_include_device_i_ds: included.into_iter().collect(),
                        allocation_size: i32::try_from(required).unwrap_or(i32::MAX),
                    };
                    let told = endpoint.preferred(request).await.map_err(DeviceError::Preferred)?;
                    preferred = Some(told.into_iter().collect());
                }
            }
        };
        let began = Instant::now();
        let given = self.ask(of, &taken).await;
        self.metrics.allocation(&of.resource, began.elapsed());
        let mut state = self.state.lock();
        match given {
            Ok(answer) => {
                let devices = Self::near(&state, &of.resource, &taken);
                let given = Allocation { devices, answer: Some(answer) };
                state.allocated.insert(&of.pod, &of.container, &of.resource, given);
                Ok(true)
            }
            Err(error) => {
                state.allocated.take(&of.pod, &of.container, &of.resource);
                Err(error)
            }
        }
    }

    async fn ask(
        &self,
        of: &Place,
        taken: &BTreeSet<String>,
    ) -> Result<pb::ContainerAllocateResponse, DeviceError> {
        let endpoint = self.state.lock().endpoint(&of.resource)?;
        let answer = endpoint.allocate(taken.iter().cloned().collect()).await?;
        answer.ok_or(DeviceError::NoAnswer)
    }

    /// Chooses devices, and holds them while their plugin is asked: nobody else gets them meanwhile.
    fn choose(
        &self,
        pod: &Pod,
        of: &Place,
        (required, near): (i64, Option<NumaMask>),
        preferred: Option<&BTreeSet<String>>,
    ) -> Result<(Choice, Option<Endpoint>), DeviceError> {
        let mut state = self.state.lock();
        let endpoint = state.endpoint(&of.resource).ok();
        let asks = endpoint.as_ref().is_some_and(|e| e.options.get_preferred_allocation_available);
        let preference = match (asks, preferred) {
            (_, Some(told)) => Preference::Told(told),
            (true, None) => Preference::Open,
            (false, None) => Preference::Never,
        };
        let has = state.allocated.devices(&of.pod, &of.container, &of.resource);
        let in_use = state.allocated.in_use(&of.resource);
        let reusable = state.allocated.reusable(pod, &of.container, &of.resource);
        let sorted = near.and_then(|mask| hints::by_affinity(state.devices(&of.resource)?, mask));
        let near = sorted.as_ref().map(|(aligned, unaligned)| Near { aligned, unaligned });
        let stock =
            Stock { healthy: state.healthy(&of.resource), in_use: &in_use, reusable: &reusable, near };
        let choice = choose(of, required, has.as_ref(), stock, preference)?;
        if let Choice::Take(taken) = &choice {
            let devices = [(NO_NUMA_NODE, taken.clone())].into();
            let held = Allocation { devices, answer: None };
            state.allocated.insert(&of.pod, &of.container, &of.resource, held);
        }
        Ok((choice, endpoint))
    }

    /// Devices by the NUMA nodes that they are near to.
    fn near(state: &State, resource: &str, taken: &BTreeSet<String>) -> BTreeMap<i64, BTreeSet<String>> {
        let mut all: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
        for id in taken {
            let nodes = state.device(resource, id).and_then(|d| d.topology.as_ref()).map(|t| &t.nodes);
            match nodes.filter(|nodes| !nodes.is_empty()) {
                Some(nodes) => {
                    for node in nodes {
                        all.entry(node.id).or_default().insert(id.clone());
                    }
                }
                None => drop(all.entry(NO_NUMA_NODE).or_default().insert(id.clone())),
            }
        }
        all
    }

    /// The parts of a container that come with its devices; its plugins are told first that it starts, if they want that.
    ///
    /// # Errors
    /// A plugin fails, or is gone.
    pub(crate) async fn of_container(
        self: &Arc<Self>,
        pod: &Pod,
        container: &Container,
    ) -> Result<Given, DeviceError> {
        let uid = spec::uid(pod);
        let mut missing = false;
        for (resource, required) in self.wanted(pod, container) {
            if required == 0 {
                continue;
            }
            self.pre_start(uid, &container.name, &resource).await?;
            let has = self.state.lock().allocated.devices(uid, &container.name, &resource);
            missing |= has.is_none() && self.workers.get(uid).is_some_and(|w| w.active());
        }
        if missing {
            // Its plugin was not there when the Pod was taken.
            let (me, pod, container) = (self.clone(), pod.clone(), container.clone());
            to_end(async move { me.allocate_container(&pod, &container, None).await }).await??;
        }
        let state = self.state.lock();
        Ok(state.allocated.of_container(uid, &container.name).map(options::given).unwrap_or_default())
    }

    async fn pre_start(&self, pod: &str, container: &str, resource: &str) -> Result<(), DeviceError> {
        let (endpoint, ids) = {
            let state = self.state.lock();
            if !state.knows(resource) {
                return Err(DeviceError::Forgotten(resource.to_owned()));
            }
            let wants = state.last_endpoint(resource).is_some_and(|e| e.options.pre_start_required);
            if !wants {
                return Ok(());
            }
            let ids = state.allocated.devices(pod, container, resource);
            let none = || DeviceError::NoneFound(pod.to_owned(), container.to_owned(), resource.to_owned());
            (state.endpoint(resource), ids.ok_or_else(none)?)
        };
        let endpoint = endpoint.map_err(|e| DeviceError::PreStart(e.to_string()))?;
        let told = endpoint.pre_start(ids.into_iter().collect()).await;
        told.map_err(|e| DeviceError::PreStart(e.to_string()))
    }
}
