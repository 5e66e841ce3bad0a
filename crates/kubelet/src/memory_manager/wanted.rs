//! The memory that Pods and containers ask for. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use objects::quantity::{self, ResourceList};

use crate::cpu_manager::wanted::{is_equivalent_to_guaranteed, is_pod_level};
use crate::pods::spec;

/// Bytes by kinds: `memory`, `hugepages-2Mi`, ….
pub(crate) type Amounts = BTreeMap<String, u64>;

fn amounts(requests: Option<&ResourceList>) -> Amounts {
    let is_memory = |name: &str| name == "memory" || name.starts_with("hugepages-");
    let all = requests.into_iter().flatten().filter(|(name, _)| is_memory(name));
    let bytes = |amount| u64::try_from(quantity::value(Some(amount))).unwrap_or_default();
    all.map(|(name, amount)| (name.clone(), bytes(amount))).collect()
}

/// The memory of a container. `pod_level` says whether Pods that say what they want as a whole are looked at; upstream's
/// gate `PodLevelResourceManagers`.
pub(crate) fn of_container(pod: &Pod, container: &Container, pod_level: bool) -> Amounts {
    if pod_level && is_pod_level(pod) && !is_equivalent_to_guaranteed(container) {
        return Amounts::new();
    }
    amounts(container.resources.as_ref().and_then(|r| r.requests.as_ref()))
}

/// The memory that a Pod needs at any time.
pub(crate) fn of_pod(pod: &Pod, pod_level: bool) -> Amounts {
    if pod_level && is_pod_level(pod) {
        let mut all = amounts(spec::spec(pod).resources.as_ref().and_then(|r| r.requests.as_ref()));
        all.retain(|_, bytes| *bytes > 0);
        return all;
    }
    let add = |to: &mut Amounts, own: &Amounts| {
        for (kind, bytes) in own {
            let sum = to.entry(kind.clone()).or_default();
            *sum = sum.saturating_add(*bytes);
        }
    };
    let (mut init, mut sidecars, mut running) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in spec::init_containers(pod) {
        let own = of_container(pod, container, pod_level);
        if spec::is_sidecar(container) {
            add(&mut sidecars, &own);
            continue;
        }
        for (kind, bytes) in own {
            let beside = sidecars.get(&kind).copied().unwrap_or_default();
            let most = init.entry(kind).or_default();
            *most = (*most).max(beside.saturating_add(bytes));
        }
    }
    for container in spec::containers(pod) {
        add(&mut running, &of_container(pod, container, pod_level));
    }
    for (kind, bytes) in &mut running {
        let beside = sidecars.get(kind).copied().unwrap_or_default();
        let before = init.get(kind).copied().unwrap_or_default();
        *bytes = bytes.saturating_add(beside).max(before);
    }
    running
}
