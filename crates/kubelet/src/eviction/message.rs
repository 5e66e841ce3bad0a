//! Why a Pod is evicted, in upstream's words.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::observe::{Observations, available};
use super::threshold::Threshold;
use crate::pods::spec;
use crate::stats::{self, PodStats};

/// The reason of Pods that were evicted, and of their Events.
pub(crate) const REASON: &str = "Evicted";

/// A message, and the annotations of its Event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Why {
    pub(crate) message: String,
    pub(crate) annotations: BTreeMap<String, String>,
}

fn request(container: &Container, resource: &str) -> Quantity {
    let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    let text = requests.and_then(|r| r.get(resource)).map_or("0", |q| q.0.as_str());
    Quantity::parse(text).unwrap_or_default()
}

fn bytes(n: u64) -> Quantity {
    Quantity::from_bytes(i64::try_from(n).unwrap_or(i64::MAX))
}

fn usage(container: &stats::Container, resource: &str) -> Option<Quantity> {
    match resource {
        "ephemeral-storage" => Some(bytes(container.layer?.bytes.saturating_add(container.logs?.bytes))),
        "memory" => container.usage.working_set.map(bytes),
        _ => None,
    }
}

/// The message for a resource that is short, by the thresholds that were met and what was seen.
pub(crate) fn why(
    resource: &str,
    pod: &Pod,
    stats: Option<&PodStats>,
    thresholds: &[Threshold],
    seen: &Observations,
) -> Why {
    let mut why = Why { message: format!("The node was low on resource: {resource}. "), ..Why::default() };
    let met = thresholds
        .iter()
        .filter(|t| t.signal.resource() == resource)
        .find_map(|t| Some((t, seen.get(&t.signal)?)));
    if let Some((threshold, seen)) = met {
        let (least, left) = (threshold.value.text(seen.capacity), available(threshold.signal, seen));
        let _ = write!(why.message, "Threshold quantity: {least}, available: {left}. ");
    }
    let Some(stats) = stats else { return why };
    let mut annotate = |key: &str, value: String| drop(why.annotations.insert(key.to_owned(), value));
    let of_pod = spec::spec(pod).resources.as_ref().and_then(|r| r.requests.as_ref()?.get("memory"));
    if let Some(asked) = of_pod.filter(|_| resource == "memory") {
        let used = bytes(stats.usage.working_set.unwrap_or_default());
        let asked = Quantity::parse(&asked.0).unwrap_or_default();
        let name = spec::name(pod);
        let _ = write!(
            why.message,
            "Pod {name} was using {used}, request is {asked}, has larger consumption of {resource}. "
        );
        annotate("offending_pod", name.to_owned());
        annotate("offending_pod_usage", used.to_string());
    }
    // Ephemeral containers ask for nothing, so nothing is said of them.
    let (mut names, mut used) = (Vec::new(), Vec::new());
    for found in &stats.containers {
        let mut all = spec::containers(pod).iter().chain(spec::init_containers(pod));
        let Some(container) = all.find(|c| c.name == found.name) else { continue };
        let asked = request(container, resource);
        let Some(usage) = usage(found, resource).filter(|usage| *usage > asked) else { continue };
        let _ = write!(
            why.message,
            "Container {} was using {usage}, request is {asked}, has larger consumption of {resource}. ",
            found.name
        );
        names.push(found.name.clone());
        used.push(usage.to_string());
    }
    annotate("offending_containers", names.join(","));
    annotate("offending_containers_usage", used.join(","));
    annotate("starved_resource", resource.to_owned());
    why
}
