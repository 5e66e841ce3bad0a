//! Metrics. Upstream has no names for them.

use std::sync::Arc;

use component::metrics::{Histogram, Page};
use parking_lot::Mutex;

use crate::contents::Size;

/// 0.25 ms, and 13 times twice as much.
const BOUNDS: [f64; 14] =
    [0.000_25, 0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048];

#[derive(Debug)]
struct Values {
    sync: Histogram,
    wait: Histogram,
    failures: u64,
    policies: usize,
    size: Size,
}

/// The enforcer's metrics. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Metrics(Arc<Mutex<Values>>);

impl Default for Metrics {
    fn default() -> Self {
        let (sync, wait) = (Histogram::new(&BOUNDS), Histogram::new(&BOUNDS));
        let (failures, policies, size) = Default::default();
        Self(Arc::new(Mutex::new(Values { sync, wait, failures, policies, size })))
    }
}

impl Metrics {
    /// A commit is done, after so many seconds.
    pub(crate) fn synced(&self, seconds: f64, policies: usize, size: Size) {
        let mut values = self.0.lock();
        values.sync.observe(seconds);
        (values.policies, values.size) = (policies, size);
    }

    /// A container was let in, after so many seconds.
    pub(crate) fn admitted(&self, seconds: f64) {
        self.0.lock().wait.observe(seconds);
    }

    /// The kernel refused a commit.
    pub(crate) fn failed(&self) {
        self.0.lock().failures += 1;
    }

    /// Writes all.
    pub(crate) fn write(&self, page: &mut Page) {
        let values = self.0.lock();
        let mut histogram = |name: &str, help: &str, histogram: &Histogram| {
            page.metric(name, "histogram", help).histogram(name, &[], histogram);
        };
        let name = "ferrokube_network_policy_sync_duration_seconds";
        histogram(name, "Seconds in which changes came into force.", &values.sync);
        let name = "ferrokube_network_policy_admission_duration_seconds";
        histogram(name, "Seconds for which new Pods waited for their rules.", &values.wait);
        let mut number = |name: &str, kind: &str, help: &str, value: usize| {
            page.metric(name, kind, help).value(name, &[], value as f64);
        };
        let name = "ferrokube_network_policy_sync_failures_total";
        number(name, "counter", "Changes that the kernel refused.", values.failures as usize);
        let Size { rules, elements, chains, sets } = values.size;
        for (name, help, value) in [
            ("ferrokube_network_policy_policies", "Policies of the cluster.", values.policies),
            ("ferrokube_network_policy_rules", "Rules of the packet filter.", rules),
            ("ferrokube_network_policy_elements", "Elements of the packet filter's sets and maps.", elements),
            ("ferrokube_network_policy_chains", "Chains of the packet filter.", chains),
            ("ferrokube_network_policy_sets", "Sets and maps of the packet filter.", sets),
        ] {
            number(name, "gauge", help, value);
        }
    }
}
