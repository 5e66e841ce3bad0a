//! Metrics by upstream's names (`pkg/proxy/metrics`).
//!
//! DIFFERENCE: one commit changes both families of addresses, so the values of both labels `ip_family` are the same.

use std::sync::Arc;

use component::metrics::{Histogram, Page};
use parking_lot::Mutex;

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
/// 1 ms, and 14 times twice as much.
const SYNC_BOUNDS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
/// 0.25 s, 0.5 s, each second to 59 s, each 5 s to 115 s, each 30 s to 5 minutes.
const PROGRAMMING_BOUNDS: [f64; 80] = programming_bounds();

const fn programming_bounds() -> [f64; 80] {
    let mut bounds = [0.0; 80];
    bounds[0] = 0.25;
    bounds[1] = 0.5;
    let mut i = 2;
    let mut next = 1.0;
    while i < bounds.len() {
        bounds[i] = next;
        next += if next < 60.0 {
            1.0
        } else if next < 120.0 {
            5.0
        } else {
            30.0
        };
        i += 1;
    }
    bounds
}

#[derive(Debug)]
struct Values {
    sync: Histogram,
    full: Histogram,
    partial: Histogram,
    programming: Histogram,
    conntrack: Histogram,
    forgotten: u64,
    failures: u64,
    last_sync: f64,
    last_queued: f64,
    endpoint_changes: u64,
    endpoint_pending: u64,
    service_changes: u64,
    service_pending: u64,
    without_local: [usize; 2],
    healthz: [u64; 2],
    livez: [u64; 2],
}

/// The proxy's metrics. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Metrics(Arc<Mutex<Values>>);

impl Default for Metrics {
    fn default() -> Self {
        let sync = || Histogram::new(&SYNC_BOUNDS);
        Self(Arc::new(Mutex::new(Values {
            sync: sync(),
            full: sync(),
            partial: sync(),
            programming: Histogram::new(&PROGRAMMING_BOUNDS),
            conntrack: sync(),
            forgotten: 0,
            failures: 0,
            last_sync: 0.0,
            last_queued: 0.0,
            endpoint_changes: 0,
            endpoint_pending: 0,
            service_changes: 0,
            service_pending: 0,
            without_local: [0; 2],
            healthz: [0; 2],
            livez: [0; 2],
        })))
    }
}

impl Metrics {
    /// A change of a Service, or of a slice, came at this time.
    pub(crate) fn queued(&self, service: bool, now: f64) {
        let mut values = self.0.lock();
        values.last_queued = now;
        if service {
            values.service_changes += 1;
            values.service_pending += 1;
        } else {
            values.endpoint_changes += 1;
            values.endpoint_pending += 1;
        }
    }

    /// All that came is taken for the next commit.
    pub(crate) fn taken(&self) {
        let mut values = self.0.lock();
        (values.service_pending, values.endpoint_pending) = (0, 0);
    }

    /// A commit is done, after so many seconds.
    pub(crate) fn synced(&self, seconds: f64, full: bool, now: f64, without_local: [usize; 2]) {
        let mut values = self.0.lock();
        values.sync.observe(seconds);
        if full {
            values.full.observe(seconds);
        } else {
            values.partial.observe(seconds);
        }
        values.last_sync = now;
        values.without_local = without_local;
    }

    /// The kernel refused a commit.
    pub(crate) fn failed(&self) {
        self.0.lock().failures += 1;
    }

    /// An endpoint's change is in force so many seconds after its cause.
    pub(crate) fn programmed(&self, seconds: f64) {
        self.0.lock().programming.observe(seconds.max(0.0));
    }

    /// So many connections were forgotten within so many seconds.
    pub(crate) fn forgot(&self, connections: usize, seconds: f64) {
        let mut values = self.0.lock();
        values.forgotten += connections as u64;
        values.conntrack.observe(seconds);
    }

    /// `/healthz` or `/livez` was answered.
    pub(crate) fn probed(&self, livez: bool, healthy: bool) {
        let mut values = self.0.lock();
        let counts = if livez { &mut values.livez } else { &mut values.healthz };
        counts[usize::from(!healthy)] += 1;
    }

    /// Writes them all.
    pub(crate) fn write(&self, page: &mut Page) {
        let values = self.0.lock();
        let name = |rest: &str| format!("kubeproxy_{rest}");
        let by_family = |page: &mut Page, rest: &str, help: &str, histogram: &Histogram| {
            let name = name(rest);
            page.metric(&name, "histogram", help);
            for family in FAMILIES {
                page.histogram(&name, &[("ip_family", family)], histogram);
            }
        };
        by_family(
            page,
            "sync_proxy_rules_duration_seconds",
            "SyncProxyRules latency in seconds",
            &values.sync,
        );
        let help = "SyncProxyRules latency in seconds for full resyncs";
        by_family(page, "sync_full_proxy_rules_duration_seconds", help, &values.full);
        let help = "SyncProxyRules latency in seconds for partial resyncs";
        by_family(page, "sync_partial_proxy_rules_duration_seconds", help, &values.partial);
        let help = "In Cluster Network Programming Latency in seconds";
        by_family(page, "network_programming_duration_seconds", help, &values.programming);
        let help = "ReconcileConntrackFlowsLatency latency in seconds";
        by_family(page, "conntrack_reconciler_sync_duration_seconds", help, &values.conntrack);
        let numbers: [(&str, &str, &str, f64); 5] = [
            (
                "conntrack_reconciler_deleted_entries_total",
                "counter",
                "Cumulative conntrack flows deleted by conntrack reconciler",
                values.forgotten as f64,
            ),
            (
                "sync_proxy_rules_nftables_sync_failures_total",
                "counter",
                "Cumulative proxy nftables sync failures",
                values.failures as f64,
            ),
            (
                "sync_proxy_rules_nftables_cleanup_failures_total",
                "counter",
                "Cumulative proxy nftables cleanup failures",
                // Removals are part of the one commit.
                0.0,
            ),
            (
                "sync_proxy_rules_last_timestamp_seconds",
                "gauge",
                "The last time proxy rules were successfully synced",
                values.last_sync,
            ),
            (
                "sync_proxy_rules_last_queued_timestamp_seconds",
                "gauge",
                "The last time a sync of proxy rules was queued",
                values.last_queued,
            ),
        ];
        for (rest, kind, help, value) in numbers {
            let name = name(rest);
            page.metric(&name, kind, help);
            for family in FAMILIES {
                page.value(&name, &[("ip_family", family)], value);
            }
        }
        values.write_changes(page);
    }
}

impl Values {
    fn write_changes(&self, page: &mut Page) {
        let endpoint = ["endpoint", "Endpoint"];
        let service = ["service", "Service"];
        for ([word, shown], total, pending) in [
            (endpoint, self.endpoint_changes, self.endpoint_pending),
            (service, self.service_changes, self.service_pending),
        ] {
            let name = format!("kubeproxy_sync_proxy_rules_{word}_changes_total");
            page.metric(&name, "counter", &format!("Cumulative proxy rules {shown} changes"));
            page.value(&name, &[], total as f64);
            let name = format!("kubeproxy_sync_proxy_rules_{word}_changes_pending");
            page.metric(&name, "gauge", &format!("Pending proxy rules {shown} changes"));
            page.value(&name, &[], pending as f64);
        }
        let name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
        page.metric(name, "gauge", "Number of services with a Local traffic policy and no endpoints");
        for family in FAMILIES {
            for (policy, count) in ["internal", "external"].into_iter().zip(self.without_local) {
                page.value(name, &[("ip_family", family), ("traffic_policy", policy)], count as f64);
            }
        }
        for (word, counts) in [("healthz", self.healthz), ("livez", self.livez)] {
            let name = format!("kubeproxy_proxy_{word}_total");
            page.metric(&name, "counter", &format!("Cumulative proxy {word} HTTP status"));
            for (code, count) in ["200", "503"].into_iter().zip(counts) {
                page.value(&name, &[("code", code)], count as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_upstreams() {
        let at = |i: usize| PROGRAMMING_BOUNDS[i];
        assert_eq!((at(1), at(2), at(60), at(61), at(72)), (0.5, 1.0, 59.0, 60.0, 115.0));
        assert_eq!((at(73), at(79)), (120.0, 300.0));
        let mut page = Page::default();
        Metrics::default().write(&mut page);
        assert_eq!(page.text().matches("# TYPE kubeproxy_").count(), 17);
    }
}
