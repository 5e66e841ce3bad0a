//! The metrics of the nodes' controllers, by upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use component::metrics::Page;
use parking_lot::Mutex;

use crate::common::counters::Counters;

const EVICTIONS: &str = "node_collector_evictions_total";
const NODE_SECONDS: &str = "node_collector_update_node_health_duration_seconds";
const ALL_SECONDS: &str = "node_collector_update_all_nodes_health_duration_seconds";

/// Upstream's buckets: 0.001 seconds and on, each four times the one before.
const SHORT: &[f64] = &[0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384];
/// Upstream's buckets: 0.01 seconds and on, each four times the one before.
const LONG: &[f64] = &[0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84];

/// The numbers of nodes in a zone that are ready, and that are not.
type Counts = (usize, usize);

/// The numbers of the nodes' lifecycle.
pub(super) struct Lifecycle {
    counters: Counters,
    zones: Mutex<BTreeMap<String, Counts>>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        let counters = Counters::new(
            &[(
                EVICTIONS,
                &["zone"],
                "[STABLE] Number of Node evictions that happened since current instance of NodeController started.",
            )],
            &[
                (
                    (
                        NODE_SECONDS,
                        &[],
                        "[ALPHA] Duration in seconds for NodeController to update the health of a single node.",
                    ),
                    SHORT,
                ),
                (
                    (
                        ALL_SECONDS,
                        &[],
                        "[ALPHA] Duration in seconds for NodeController to update the health of all nodes.",
                    ),
                    LONG,
                ),
            ],
        );
        Self { counters, zones: Mutex::default() }
    }
}

impl Lifecycle {
    /// Notes the nodes of each zone. A zone that is gone has no nodes from now on.
    pub(super) fn zones(&self, counts: &BTreeMap<String, Counts>) {
        let mut zones = self.zones.lock();
        for (zone, known) in zones.iter_mut().filter(|(zone, _)| !counts.contains_key(*zone)) {
            tracing::debug!(zone, "a zone has no nodes any more");
            *known = (0, 0);
        }
        for (zone, count) in counts {
            if zones.insert(zone.clone(), *count).is_none() {
                self.counters.add(EVICTIONS, &[zone], 0);
            }
        }
    }
    /// Counts a node whose Pods are to go.
    pub(super) fn evicted(&self, zone: &str) {
        self.counters.add(EVICTIONS, &[zone], 1);
    }
    /// Counts a look at one node.
    pub(super) fn looked(&self, took: Duration) {
        self.counters.observe(NODE_SECONDS, &[], took.as_secs_f64());
    }
    /// Counts a look at all nodes.
    pub(super) fn looked_at_all(&self, took: Duration) {
        self.counters.observe(ALL_SECONDS, &[], took.as_secs_f64());
    }
    /// Writes the page.
    pub(super) fn report(&self, page: &mut Page) {
        self.counters.report(page);
        let zones = self.zones.lock();
        let mut gauge = |name: &str, help: &str, value: fn(Counts) -> f64| {
            page.metric(name, "gauge", help);
            for (zone, counts) in &*zones {
                page.value(name, &[("zone", zone)], value(*counts));
            }
        };
        gauge(
            "node_collector_zone_size",
            "[ALPHA] Gauge measuring number of registered Nodes per zones.",
            |(ready, silent)| (ready + silent) as f64,
        );
        gauge(
            "node_collector_zone_health",
            "[ALPHA] Gauge measuring percentage of healthy nodes per zone.",
            |(ready, silent)| {
                if ready + silent == 0 { 100.0 } else { 100.0 * ready as f64 / (ready + silent) as f64 }
            },
        );
        gauge(
            "node_collector_unhealthy_nodes_in_zone",
            "[ALPHA] Gauge measuring number of not Ready Nodes per zones.",
            |(_, silent)| silent as f64,
        );
    }
}

/// The numbers of the eviction by taints.
pub(super) fn eviction() -> Counters {
    Counters::new(
        &[(
            DELETIONS,
            &[],
            "[ALPHA] Total number of Pods deleted by TaintEvictionController since its start.",
        )],
        &[(
            (
                DELETION_SECONDS,
                &[],
                "[ALPHA] Latency, in seconds, between the time when a taint effect has been activated for the Pod \
                 and its deletion via TaintEvictionController.",
            ),
            &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0],
        )],
    )
}
/// The number of Pods that were deleted because of taints.
pub(super) const DELETIONS: &str = "taint_eviction_controller_pod_deletions_total";
/// How long after their time they were deleted.
pub(super) const DELETION_SECONDS: &str = "taint_eviction_controller_pod_deletion_duration_seconds";

/// The numbers of the collector of Pods.
pub(super) fn podgc() -> Counters {
    Counters::new(
        &[
            (
                FORCED,
                &["namespace", "reason"],
                "[ALPHA] Number of pods that are being forcefully deleted since the Pod GC Controller started.",
            ),
            (
                FORCE_ERRORS,
                &["namespace", "reason"],
                "[ALPHA] Number of errors encountered when forcefully deleting the pods since the Pod GC Controller \
                 started.",
            ),
        ],
        &[],
    )
}
/// The number of Pods that the collector deleted, or tried to.
pub(super) const FORCED: &str = "pod_gc_collector_force_delete_pods_total";
/// The number of deletions that failed.
pub(super) const FORCE_ERRORS: &str = "pod_gc_collector_force_delete_pod_errors_total";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_come_and_go() {
        let numbers = Lifecycle::default();
        let check = |name: &str, want: &[&str]| {
            let mut page = Page::default();
            numbers.report(&mut page);
            let text = page.text();
            let lines: Vec<&str> =
                text.lines().filter_map(|l| l.strip_prefix(&format!("{name}{{"))).collect();
            assert_eq!(lines, want, "{name}");
        };
        numbers.zones(&BTreeMap::from([("a".to_owned(), (3, 1)), ("b".to_owned(), (0, 2))]));
        numbers.evicted("b");
        check("node_collector_zone_size", &["zone=\"a\"} 4", "zone=\"b\"} 2"]);
        check("node_collector_zone_health", &["zone=\"a\"} 75", "zone=\"b\"} 0"]);
        check("node_collector_unhealthy_nodes_in_zone", &["zone=\"a\"} 1", "zone=\"b\"} 2"]);
        check(EVICTIONS, &["zone=\"a\"} 0", "zone=\"b\"} 1"]);
        numbers.zones(&BTreeMap::from([("a".to_owned(), (4, 0))]));
        check("node_collector_zone_size", &["zone=\"a\"} 4", "zone=\"b\"} 0"]);
        check("node_collector_zone_health", &["zone=\"a\"} 100", "zone=\"b\"} 100"]);
        check("node_collector_unhealthy_nodes_in_zone", &["zone=\"a\"} 0", "zone=\"b\"} 0"]);
    }
}
