//! Counters of questions; upstream's names.

use std::collections::BTreeMap;

use component::metrics::Page;
use parking_lot::Mutex;

/// A call, and whether it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    Any,
    List,
    GetAllocatable,
    Get,
    GetFailed,
}

/// Each with its name and its help.
const ALL: [(Asked, &str, &str); 5] = [
    (
        Asked::Any,
        "kubelet_pod_resources_endpoint_requests_total",
        "[ALPHA] Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
    ),
    (
        Asked::List,
        "kubelet_pod_resources_endpoint_requests_list",
        "[ALPHA] Number of requests to the PodResource List endpoint. Broken down by server api version.",
    ),
    (
        Asked::GetAllocatable,
        "kubelet_pod_resources_endpoint_requests_get_allocatable",
        "[ALPHA] Number of requests to the PodResource GetAllocatableResources endpoint. Broken down by server api version.",
    ),
    (
        Asked::Get,
        "kubelet_pod_resources_endpoint_requests_get",
        "[ALPHA] Number of requests to the PodResource Get endpoint. Broken down by server api version.",
    ),
    (
        Asked::GetFailed,
        "kubelet_pod_resources_endpoint_errors_get",
        "[ALPHA] Number of requests to the PodResource Get endpoint which returned error. Broken down by server api version.",
    ),
];
/// Calls that cannot fail here: upstream counts their errors all the same.
const NEVER: [(&str, &str); 2] = [
    (
        "kubelet_pod_resources_endpoint_errors_list",
        "[ALPHA] Number of requests to the PodResource List endpoint which returned error. Broken down by server api version.",
    ),
    (
        "kubelet_pod_resources_endpoint_errors_get_allocatable",
        "[ALPHA] Number of requests to the PodResource GetAllocatableResources endpoint which returned error. Broken down by server api version.",
    ),
];

/// The counters, by the version of the API.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<BTreeMap<(Asked, &'static str), u64>>);

impl Counts {
    /// Counts one.
    pub(super) fn count(&self, what: Asked, version: &'static str) {
        *self.0.lock().entry((what, version)).or_default() += 1;
    }

    /// Writes all of them.
    pub(super) fn write(&self, page: &mut Page) {
        let counts = self.0.lock();
        for (what, name, help) in ALL {
            page.metric(name, "counter", help);
            for ((_, version), count) in counts.iter().filter(|((of, _), _)| *of == what) {
                page.value(name, &[("server_api_version", version)], *count as f64);
            }
        }
        for (name, help) in NEVER {
            page.metric(name, "counter", help);
        }
    }
}
