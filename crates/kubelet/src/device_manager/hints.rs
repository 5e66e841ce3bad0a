//! The NUMA nodes from which devices can come (upstream: `topology_hints.go`).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use plugins::device as pb;

use super::manager::DeviceManager;
use super::state::State;
use crate::pods::spec;
use crate::topology_manager::{Hint, Hints, MOST_NODES, NumaMask, all_masks, prefer_smallest};

type Devices = BTreeMap<String, pb::Device>;
type Ids = BTreeSet<String>;

/// The NUMA nodes that a device is near to.
fn near(device: &pb::Device) -> Vec<usize> {
    let nodes = device.topology.iter().flat_map(|t| &t.nodes);
    nodes.filter_map(|n| usize::try_from(n.id).ok()).collect()
}

/// Whether any device of a resource is near to a NUMA node.
fn any_near(all: &Devices) -> bool {
    all.values().any(|d| d.topology.as_ref().is_some_and(|t| !t.nodes.is_empty()))
}

/// The devices near to some NUMA nodes, and those near to others alone; none if no device is near to any.
pub(super) fn by_affinity(all: &Devices, mask: NumaMask) -> Option<(Ids, Ids)> {
    let mut sorted = any_near(all).then(|| (Ids::new(), Ids::new()))?;
    for (id, device) in all {
        let near = near(device);
        if mask.contains_any(&near) {
            sorted.0.insert(id.clone());
        } else if !near.is_empty() {
            sorted.1.insert(id.clone());
        }
    }
    Some(sorted)
}

/// The sets of NUMA nodes that have so many devices; all those to be reused are in each. `nodes` are the machine's.
/// None if there are too many to look at.
fn hints(
    all: &Devices,
    available: &Ids,
    reusable: &Ids,
    request: usize,
    nodes: &[usize],
) -> Option<Vec<Hint>> {
    let known: BTreeSet<usize> = all.values().flat_map(near).filter(|n| nodes.contains(n)).collect();
    let numas: Vec<usize> = if known.is_empty() { nodes.to_vec() } else { known.into_iter().collect() };
    if numas.len() > MOST_NODES {
        return None;
    }
    let places = |ids: &Ids| -> Vec<Vec<usize>> {
        ids.iter().map(|id| all.get(id).map(near).unwrap_or_default()).collect()
    };
    let every: Vec<Vec<usize>> = all.values().map(near).collect();
    let free = places(available);
    // Those that say nothing of their place are in no one's way.
    let placed = |id: &&String| all.get(*id).is_some_and(|d| d.topology.is_some());
    let kept = places(&reusable.iter().filter(placed).cloned().collect());
    let mut smallest = numas.len();
    let mut masks = Vec::new();
    for mask in all_masks(&numas) {
        let inside = |places: &[Vec<usize>]| places.iter().filter(|p| mask.contains_any(p)).count();
        if inside(&every) >= request {
            smallest = smallest.min(mask.count());
        }
        if inside(&kept) == kept.len() && inside(&free) + kept.len() >= request {
            masks.push(mask);
        }
    }
    Some(prefer_smallest(masks, smallest))
}

/// The hints of one resource: `has` are the devices that are given already.
fn of_resource(
    state: &State,
    resource: &str,
    request: usize,
    (has, reusable): (Option<Ids>, Ids),
    nodes: &[usize],
) -> Option<Vec<Hint>> {
    let all = state.devices(resource).filter(|all| any_near(all))?;
    if let Some(has) = has.filter(|has| !has.is_empty()) {
        return if has.len() == request {
            hints(all, &has, &Ids::new(), request, nodes)
        } else {
            Some(Vec::new())
        };
    }
    let healthy = state.healthy(resource).cloned().unwrap_or_default();
    let available = &healthy - &state.allocated.in_use(resource);
    if (&available | &reusable).len() < request {
        return Some(Vec::new());
    }
    hints(all, &available, &reusable, request, nodes)
}

impl DeviceManager {
    /// The hints of a container's devices; `nodes` are the machine's NUMA nodes.
    pub(crate) fn hints(&self, pod: &Pod, container: &Container, nodes: &[usize]) -> Hints {
        let wanted = self.wanted(pod, container);
        if wanted.is_empty() {
            return Hints::new();
        }
        self.free_orphans();
        let state = self.state.lock();
        let one = |(resource, request): (String, i64)| {
            let request = usize::try_from(request).unwrap_or_default();
            let has = state.allocated.devices(spec::uid(pod), &container.name, &resource);
            let reusable = state.allocated.reusable(pod, &container.name, &resource);
            let hints = of_resource(&state, &resource, request, (has, reusable), nodes);
            (resource, hints)
        };
        wanted.into_iter().map(one).collect()
    }

    /// The hints of all devices of a Pod.
    pub(crate) fn pod_hints(&self, pod: &Pod, nodes: &[usize]) -> Hints {
        let wanted = by_pod(pod, |container| self.wanted(pod, container));
        if wanted.is_empty() {
            return Hints::new();
        }
        self.free_orphans();
        let state = self.state.lock();
        let one = |(resource, request): (String, i64)| {
            let request = usize::try_from(request).unwrap_or_default();
            let all = spec::init_containers(pod).iter().chain(spec::containers(pod));
            let given = all.filter_map(|c| state.allocated.devices(spec::uid(pod), &c.name, &resource));
            let has: Ids = given.flatten().collect();
            let hints = of_resource(&state, &resource, request, (Some(has), Ids::new()), nodes);
            (resource, hints)
        };
        wanted.into_iter().map(one).collect()
    }
}

/// The resources that a Pod needs at any time, and how many of each; `wanted` says what a container asks for.
fn by_pod(pod: &Pod, wanted: impl Fn(&Container) -> Vec<(String, i64)>) -> BTreeMap<String, i64> {
    let (mut init, mut sidecars) = (BTreeMap::new(), BTreeMap::<String, i64>::new());
    for container in spec::init_containers(pod) {
        for (resource, count) in wanted(container) {
            let beside = sidecars.entry(resource.clone()).or_default();
            if spec::is_sidecar(container) {
                *beside = beside.saturating_add(count);
            } else {
                let most: &mut i64 = init.entry(resource).or_default();
                *most = (*most).max(beside.saturating_add(count));
            }
        }
    }
    let mut running = sidecars;
    for (resource, count) in spec::containers(pod).iter().flat_map(wanted) {
        let sum = running.entry(resource).or_default();
        *sum = sum.saturating_add(count);
    }
    for (resource, count) in init {
        let sum = running.entry(resource).or_default();
        *sum = (*sum).max(count);
    }
    running
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::allocated::Allocation;
    use super::super::choose::{Choice, Near, Place, Preference, Stock, choose};
    use super::*;
    use crate::topology_manager::cases::{cases, hint, mask};

    /// Devices as upstream's tables have them: each with the NUMA nodes that it is near to, if it says any.
    fn devices(value: &Value) -> Devices {
        let one = |d: &Value| {
            let id = d["id"].as_str().unwrap().to_owned();
            let node = |n: &Value| pb::NumaNode { id: n.as_i64().unwrap() };
            let topology =
                d["nodes"].as_array().map(|all| pb::TopologyInfo { nodes: all.iter().map(node).collect() });
            (id.clone(), pb::Device { id, health: "Healthy".into(), topology })
        };
        value.as_array().unwrap().iter().map(one).collect()
    }

    /// Upstream's tables of hints; `testdevice` and others are of plugins.
    #[test]
    fn upstreams_cases_of_hints() {
        for case in cases(include_str!("cases/hints.jsonl"), 25) {
            let mut state = State::default();
            for (resource, all) in case["devices"].as_object().unwrap() {
                state.have(resource, devices(all));
            }
            for (uid, all) in case["allocatedDevices"].as_object().into_iter().flatten() {
                for (container, all) in all.as_object().unwrap() {
                    for (resource, ids) in all.as_object().unwrap() {
                        let ids: Ids = serde_json::from_value(ids.clone()).unwrap();
                        let answer = Some(pb::ContainerAllocateResponse::default());
                        let given = Allocation { devices: [(-1, ids)].into(), answer };
                        state.allocated.insert(uid, container, resource, given);
                    }
                }
            }
            let pod: Pod = serde_json::from_value(case["pod"].clone()).unwrap();
            let whole = case["table"] == "TestGetPodTopologyHints";
            let wanted = |container: &Container| -> Vec<(String, i64)> {
                let limits = container.resources.iter().flat_map(|r| r.limits.iter().flatten());
                let known = limits.filter(|(resource, _)| state.devices(resource).is_some());
                known.map(|(r, count)| (r.clone(), objects::quantity::value(Some(count)))).collect()
            };
            let all = spec::init_containers(&pod).iter().chain(spec::containers(&pod));
            let (containers, wanted): (Vec<&Container>, BTreeMap<String, i64>) = if whole {
                (all.collect(), by_pod(&pod, wanted))
            } else {
                let first = &spec::containers(&pod)[0];
                (vec![first], wanted(first).into_iter().collect())
            };
            let mut got = Hints::new();
            for (resource, count) in wanted {
                let has = containers
                    .iter()
                    .filter_map(|c| state.allocated.devices(spec::uid(&pod), &c.name, &resource));
                let has: Ids = has.flatten().collect();
                let request = usize::try_from(count).unwrap();
                let hints = of_resource(&state, &resource, request, (Some(has), Ids::new()), &[0, 1]);
                got.insert(resource, hints);
            }
            let list = |all: &Value| all.as_array().map(|all| all.iter().map(hint).collect::<Vec<_>>());
            let expected = case["expectedHints"].as_object().into_iter().flatten();
            let expected: Hints = expected.map(|(resource, all)| (resource.clone(), list(all))).collect();
            assert_eq!(got, expected, "{case}");
        }
    }

    /// Upstream's table of devices that are taken near to NUMA nodes.
    #[test]
    fn upstreams_cases_of_devices_that_are_near() {
        for case in cases(include_str!("cases/aligned.jsonl"), 14) {
            let all = devices(&case["devices"]);
            let ids = |value: &Value| {
                serde_json::from_value::<Option<Ids>>(value.clone()).unwrap().unwrap_or_default()
            };
            let sorted = by_affinity(&all, mask(&case["hint"]["NUMANodeAffinity"]));
            let near = sorted.as_ref().map(|(aligned, unaligned)| Near { aligned, unaligned });
            let (healthy, in_use) = (all.keys().cloned().collect(), ids(&case["allocatedDevices"]));
            let stock = Stock { healthy: Some(&healthy), in_use: &in_use, reusable: &Ids::new(), near };
            let of = Place { pod: "p".into(), container: "c".into(), resource: "r".into() };
            let request = case["request"].as_i64().unwrap();
            let preferred = ids(&case["expectedPreferredAllocation"]);
            let prefers = if preferred.is_empty() { Preference::Never } else { Preference::Told(&preferred) };
            let Ok(Choice::Take(taken)) = choose(&of, request, None, stock, prefers) else {
                panic!("{case}")
            };
            assert_eq!(taken.len(), usize::try_from(request).unwrap(), "{case}");
            assert!(preferred.is_subset(&taken), "{case}: {taken:?}");
            let mut nodes: BTreeMap<String, u64> = BTreeMap::new();
            for node in taken.iter().flat_map(|id| super::near(&all[id])) {
                *nodes.entry(node.to_string()).or_default() += 1;
            }
            if preferred.is_empty() {
                assert_eq!(serde_json::to_value(nodes).unwrap(), case["expectedAlignment"], "{case}");
            }
        }
    }

    /// Upstream's table of what a plugin is asked that may say which devices it prefers.
    #[test]
    fn upstreams_cases_of_questions() {
        for case in cases(include_str!("cases/preferred.jsonl"), 5) {
            let all = devices(&case["allDevices"]);
            let ids = |field: &str| {
                serde_json::from_value::<Option<Ids>>(case[field].clone()).unwrap().unwrap_or_default()
            };
            let sorted = by_affinity(&all, mask(&case["hint"]["NUMANodeAffinity"]));
            let near = sorted.as_ref().map(|(aligned, unaligned)| Near { aligned, unaligned });
            let (healthy, reusable) = (all.keys().cloned().collect(), ids("reusableDevices"));
            let in_use = ids("allocatedDevices");
            let stock = Stock { healthy: Some(&healthy), in_use: &in_use, reusable: &reusable, near };
            let of = Place { pod: "p".into(), container: "c".into(), resource: "r".into() };
            let size = case["expectedSize"].as_i64().unwrap();
            let got = choose(&of, size, None, stock, Preference::Open).unwrap();
            assert_eq!(got, Choice::Ask(ids("expectedAvailable"), ids("expectedMustInclude")), "{case}");
        }
    }
}
