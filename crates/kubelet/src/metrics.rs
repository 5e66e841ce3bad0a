//! Counters of the kubelet's own work.

use std::collections::BTreeMap;
use std::sync::Arc;

use component::metrics::{Histogram, Page};
use parking_lot::Mutex;

/// Something that is counted by one label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Counted {
    /// Pods evicted, by the signal.
    Evictions,
    /// Pods that made room for a critical one, by the resource that was short.
    Preemptions,
    /// Images removed, by the reason.
    ImagesRemoved,
}

/// Each with its name, its label and its help.
const COUNTED: [(Counted, &str, &str, &str); 3] = [
    (
        Counted::Evictions,
        "kubelet_evictions",
        "eviction_signal",
        "[ALPHA] Cumulative number of pod evictions by eviction signal",
    ),
    (
        Counted::Preemptions,
        "kubelet_preemptions",
        "preemption_signal",
        "[ALPHA] Cumulative number of pod preemptions by preemption resource",
    ),
    (
        Counted::ImagesRemoved,
        "kubelet_image_garbage_collected_total",
        "reason",
        "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
    ),
];

/// Prometheus' default bounds.
const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The counters. Clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counts: Mutex<BTreeMap<(Counted, String), u64>>,
    /// The age of what evictions were decided by, by the signal.
    ages: Mutex<BTreeMap<String, Histogram>>,
    /// When the last shutdown of the machine began and ended, in seconds since 1970.
    shutdown: Mutex<(f64, f64)>,
}

impl Metrics {
    /// Counts one.
    pub(crate) fn count(&self, what: Counted, label: &str) {
        *self.0.counts.lock().entry((what, label.to_owned())).or_default() += 1;
    }

    /// Notes how old a measurement was, in seconds, by which Pods are evicted.
    pub(crate) fn eviction_stats_age(&self, signal: &str, seconds: f64) {
        let mut ages = self.0.ages.lock();
        ages.entry(signal.to_owned()).or_insert_with(|| Histogram::new(SECONDS)).observe(seconds);
    }

    /// Notes when the last shutdown of the machine began and ended, in seconds since 1970, each 0 if it is not known.
    pub(crate) fn shutdown(&self, times: (f64, f64)) {
        *self.0.shutdown.lock() = times;
    }

    /// Writes all of them.
    pub(crate) fn write(&self, page: &mut Page) {
        let counts = self.0.counts.lock();
        for (what, name, label, help) in COUNTED {
            page.metric(name, "counter", help);
            for ((_, value), count) in counts.iter().filter(|((of, _), _)| *of == what) {
                page.value(name, &[(label, value)], *count as f64);
            }
        }
        let (start, end) = *self.0.shutdown.lock();
        let name = "kubelet_graceful_shutdown_end_time_seconds";
        let help = "[ALPHA] Last graceful shutdown end time since unix epoch in seconds";
        page.metric(name, "gauge", help).value(name, &[], end);
        let name = "kubelet_graceful_shutdown_start_time_seconds";
        let help = "[ALPHA] Last graceful shutdown start time since unix epoch in seconds";
        page.metric(name, "gauge", help).value(name, &[], start);
        let name = "kubelet_eviction_stats_age_seconds";
        let help = "[ALPHA] Time between when stats are collected, and when pod is evicted based on those stats by eviction signal";
        page.metric(name, "histogram", help);
        for (signal, ages) in self.0.ages.lock().iter() {
            page.histogram(name, &[("eviction_signal", signal)], ages);
        }
    }
}
