//! The processors that Pods and containers ask for alone. Pure.

use k8s_openapi::api::core::v1::{Container, Pod};
use objects::quantity::{self, ResourceList};

use crate::pods::spec::{self, Qos};

/// Whether a Pod says what it wants as a whole.
pub(crate) fn is_pod_level(pod: &Pod) -> bool {
    let Some(resources) = &spec::spec(pod).resources else { return false };
    let lists = [&resources.requests, &resources.limits];
    let supported = |name: &String| name == "cpu" || name == "memory" || name.starts_with("hugepages-");
    lists.into_iter().flatten().flat_map(ResourceList::keys).any(supported)
}

/// Whether a container by itself is of the guaranteed class.
pub(crate) fn is_equivalent_to_guaranteed(container: &Container) -> bool {
    let Some(resources) = &container.resources else { return false };
    let amounts = |name: &str| {
        (spec::amount(resources.requests.as_ref(), name), spec::amount(resources.limits.as_ref(), name))
    };
    ["cpu", "memory"].into_iter().map(amounts).all(|(request, limit)| request != 0 && request == limit)
}

/// An amount of whole processors; none of any other.
fn whole(requests: Option<&ResourceList>) -> usize {
    let cpu = requests.and_then(|all| all.get("cpu"));
    let value = quantity::value(cpu);
    let is_whole = value.checked_mul(1000) == Some(quantity::milli(cpu));
    if is_whole { usize::try_from(value).unwrap_or_default() } else { 0 }
}

/// How many processors a container gets alone. `pod_level` says whether Pods that say what they want as a whole are
/// looked at; upstream's gate `PodLevelResourceManagers`.
pub(crate) fn of_container(pod: &Pod, container: &Container, pod_level: bool) -> usize {
    if spec::qos(pod) != Qos::Guaranteed {
        return 0;
    }
    if pod_level && is_pod_level(pod) && !is_equivalent_to_guaranteed(container) {
        return 0;
    }
    whole(container.resources.as_ref().and_then(|r| r.requests.as_ref()))
}

/// How many processors a Pod needs at any time.
pub(crate) fn of_pod(pod: &Pod, pod_level: bool) -> usize {
    if pod_level && is_pod_level(pod) {
        let resources = spec::spec(pod).resources.as_ref();
        let guaranteed = spec::qos(pod) == Qos::Guaranteed;
        return if guaranteed { whole(resources.and_then(|r| r.requests.as_ref())) } else { 0 };
    }
    let (mut init, mut sidecars) = (0_usize, 0_usize);
    for container in spec::init_containers(pod) {
        let own = of_container(pod, container, pod_level);
        if spec::is_sidecar(container) {
            sidecars = sidecars.saturating_add(own);
        } else {
            init = init.max(sidecars.saturating_add(own));
        }
    }
    let running: usize = spec::containers(pod)
        .iter()
        .map(|c| of_container(pod, c, pod_level))
        .fold(sidecars, usize::saturating_add);
    init.max(running)
}
