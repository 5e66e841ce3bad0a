//! Counters of the work with plugins; upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use component::metrics::{Histogram, Page};
use parking_lot::Mutex;

use super::state::MOST_RESOURCES;

/// Prometheus' default bounds.
const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The counters, by resource.
#[derive(Debug, Default)]
pub(super) struct DeviceMetrics {
    registrations: Mutex<BTreeMap<String, u64>>,
    allocations: Mutex<BTreeMap<String, Histogram>>,
}

impl DeviceMetrics {
    /// Counts a plugin that wants to register.
    pub(super) fn registration(&self, resource: &str) {
        let mut all = self.registrations.lock();
        if all.len() < MOST_RESOURCES || all.contains_key(resource) {
            *all.entry(resource.to_owned()).or_default() += 1;
        }
    }

    /// Counts a call that gives devices.
    pub(super) fn allocation(&self, resource: &str, took: Duration) {
        let mut all = self.allocations.lock();
        if all.len() < MOST_RESOURCES || all.contains_key(resource) {
            let one = all.entry(resource.to_owned()).or_insert_with(|| Histogram::new(SECONDS));
            one.observe(took.as_secs_f64());
        }
    }

    /// Writes all of them.
    pub(super) fn write(&self, page: &mut Page) {
        let name = "kubelet_device_plugin_registration_total";
        page.metric(
            name,
            "counter",
            "[ALPHA] Cumulative number of device plugin registrations. Broken down by resource name.",
        );
        for (resource, count) in self.registrations.lock().iter() {
            page.value(name, &[("resource_name", resource)], *count as f64);
        }
        let name = "kubelet_device_plugin_alloc_duration_seconds";
        page.metric(name, "histogram", "[ALPHA] Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.");
        for (resource, histogram) in self.allocations.lock().iter() {
            page.histogram(name, &[("resource_name", resource)], histogram);
        }
    }
}
