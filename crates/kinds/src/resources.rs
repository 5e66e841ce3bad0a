//! Names of compute resources and the sums of the resources that a pod's containers ask for.

use std::collections::HashMap;

use api::{Map, Text};

use api::quantity::{decimal, nano};
use api::view::View;

/// Whether a pod as a whole may have the resource.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

/// Whether the resource is huge pages: `hugepages-…`.
pub fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether a resource has no domain, or Kubernetes' own.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether more of a resource may be requested than exists.
pub fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Whether the resource is of a domain that is not Kubernetes' own.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && api::names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether a container may name the resource without a domain.
pub fn is_standard_container(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_page(name)
}

const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Whether upstream knows the resource without a domain.
pub fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || is_huge_page(name) || name.starts_with("requests.hugepages-")
}

/// Whether the resource is counted in whole numbers.
pub fn is_integer(name: &str) -> bool {
    matches!(
        name,
        "pods"
            | "resourcequotas"
            | "services"
            | "replicationcontrollers"
            | "secrets"
            | "configmaps"
            | "persistentvolumeclaims"
            | "services.nodeports"
            | "services.loadbalancers"
    ) || is_extended(name)
}

/// The resources that a pod's containers ask for together: the containers' sum, and during the start no less than any
/// init container needs beside the sidecars before it.
#[derive(Default)]
pub struct PodTotals {
    sums: Vec<(Text, i128)>,
    places: HashMap<Text, usize>,
}

impl PodTotals {
    /// Computes the totals of a pod's spec; `what` is `requests` or `limits`.
    pub fn of(spec: View<'_>, what: &str) -> Self {
        let mut total = Self::default();
        for c in spec.items("containers") {
            total.add(c.st("resources").map(what));
        }
        let mut sidecars = Self::default();
        let mut most = Self::default();
        for c in spec.items("initContainers") {
            let own = c.st("resources").map(what);
            let stays = c.str("restartPolicy") == "Always";
            if stays {
                total.add(own);
                sidecars.add(own);
            }
            // A sidecar's own need was counted with the sidecars above.
            for (name, own) in own.into_iter().flat_map(Map::iter) {
                let own = if stays { 0 } else { nano(own.as_str()) };
                let beside = sidecars.nano(name).unwrap_or_default().saturating_add(own);
                let most = most.at(name);
                *most = (*most).max(beside);
            }
        }
        total.max(&most);
        total
    }
    fn at(&mut self, name: &str) -> &mut i128 {
        let i = *self.places.entry(name.into()).or_insert_with(|| {
            self.sums.push((name.into(), 0));
            self.sums.len() - 1
        });
        &mut self.sums[i].1
    }
    fn add(&mut self, m: Option<&Map>) {
        for (k, v) in m.into_iter().flat_map(Map::iter) {
            let at = self.at(k);
            *at = at.saturating_add(nano(v.as_str()));
        }
    }
    fn max(&mut self, other: &Self) {
        for (k, v) in &other.sums {
            let at = self.at(k);
            *at = (*at).max(*v);
        }
    }
    /// The value of a resource in billionths.
    pub fn nano(&self, name: &str) -> Option<i128> {
        self.places.get(name).map(|i| self.sums[*i].1)
    }
    /// Names and values as text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, String)> {
        self.sums.iter().map(|(n, v)| (n.as_str(), decimal(*v)))
    }
}
