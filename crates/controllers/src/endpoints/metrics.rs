//! The metrics of the two controllers of EndpointSlices, by upstream's names.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use client::Key;
use component::metrics::{Histogram, Page};
use parking_lot::Mutex;

use super::layout::Figures;
use super::owned::Plan;

/// Upstream's buckets of numbers: 2, 4, 8 and so on.
const NUMBERS: &[f64] =
    &[2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0];
/// Prometheus' own buckets.
const DEFAULT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Upstream's buckets of the time that mirroring takes.
const SECONDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// Which of the two controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// That of Services with a selector.
    Slices,
    /// That of Endpoints that somebody else writes.
    Mirror,
}

/// The outcome of a look at a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Success,
    /// The cache did not show the own writes yet.
    Stale,
    Error,
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Stale => "stale",
            Self::Error => "error",
        }
    }
}

/// The numbers of one controller.
pub(super) struct Metrics {
    which: Which,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Numbers by the end of the metric's name.
    observed: BTreeMap<&'static str, Histogram>,
    /// Written slices, by what asks for hints.
    written: BTreeMap<(bool, String), Histogram>,
    changes: BTreeMap<&'static str, u64>,
    syncs: BTreeMap<Outcome, u64>,
    services: HashMap<Key, PerService>,
}

#[derive(Default)]
struct PerService {
    /// By address type.
    figures: BTreeMap<&'static str, Figures>,
    distribution: Option<String>,
}

impl Metrics {
    pub(super) fn new(which: Which) -> Arc<Self> {
        Arc::new(Self { which, inner: Mutex::default() })
    }

    /// Counts the endpoints of one address type of a Service, and what asks for hints.
    pub(super) fn laid_out(&self, key: &Key, kind: &'static str, figures: Figures) {
        self.observe("endpoints_added_per_sync", figures.added);
        self.observe("endpoints_removed_per_sync", figures.removed);
        self.inner.lock().services.entry(key.clone()).or_default().figures.insert(kind, figures);
    }

    /// Counts the slices that are written for one address type.
    pub(super) fn hinted(&self, key: &Key, by_topology: bool, distribution: Option<&str>, written: usize) {
        let mut inner = self.inner.lock();
        let label = (by_topology, distribution.unwrap_or_default().to_owned());
        inner.written.entry(label).or_insert_with(|| Histogram::new(DEFAULT)).observe(written as f64);
        let service = inner.services.entry(key.clone()).or_default();
        service.distribution = distribution.map(str::to_owned);
    }

    /// Counts a number that a look had to do with.
    pub(super) fn observe(&self, name: &'static str, number: usize) {
        let mut inner = self.inner.lock();
        inner.observed.entry(name).or_insert_with(|| Histogram::new(NUMBERS)).observe(number as f64);
    }

    /// Counts the time of a look, in seconds.
    pub(super) fn took(&self, seconds: f64) {
        let mut inner = self.inner.lock();
        let took = inner.observed.entry("endpoints_sync_duration");
        took.or_insert_with(|| Histogram::new(SECONDS)).observe(seconds);
    }

    /// Counts the writes of a plan.
    pub(super) fn planned(&self, plan: &Plan) {
        let all =
            [("create", plan.create.len()), ("update", plan.update.len()), ("delete", plan.delete.len())];
        let mut inner = self.inner.lock();
        for (operation, count) in all.into_iter().filter(|(_, count)| *count > 0) {
            *inner.changes.entry(operation).or_default() += count as u64;
        }
    }

    /// Counts a look.
    pub(super) fn synced(&self, outcome: Outcome) {
        *self.inner.lock().syncs.entry(outcome).or_default() += 1;
    }

    /// Forgets a Service that is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.inner.lock().services.remove(key);
    }

    /// Writes the page.
    pub(super) fn report(&self, page: &mut Page) {
        let inner = self.inner.lock();
        let prefix = match self.which {
            Which::Slices => "endpoint_slice_controller",
            Which::Mirror => "endpoint_slice_mirroring_controller",
        };
        let stability = match self.which {
            Which::Slices => "[BETA]",
            Which::Mirror => "[ALPHA]",
        };
        for (name, histogram) in &inner.observed {
            let name = format!("{prefix}_{name}");
            page.metric(&name, "histogram", &format!("{stability} Figures of a sync")).histogram(
                &name,
                &[],
                histogram,
            );
        }
        let all = || inner.services.values().flat_map(|s| s.figures.values());
        let gauges: [(&str, usize, &str); 3] = [
            ("endpoints_desired", all().map(|f| f.endpoints).sum(), "Endpoints of all Services"),
            ("num_endpoint_slices", all().map(|f| f.slices).sum(), "EndpointSlices that there are"),
            ("desired_endpoint_slices", all().map(|f| f.ideal).sum(), "EndpointSlices that would be enough"),
        ];
        for (name, value, help) in gauges {
            let name = format!("{prefix}_{name}");
            page.metric(&name, "gauge", &format!("{stability} {help}")).value(&name, &[], value as f64);
        }
        let name = format!("{prefix}_changes");
        page.metric(&name, "counter", "[ALPHA] Writes of EndpointSlices");
        for (operation, count) in &inner.changes {
            page.value(&name, &[("operation", operation)], *count as f64);
        }
        if self.which == Which::Slices {
            inner.report_hints(prefix, page);
        }
    }
}

impl Inner {
    /// Writes what the controller of Services with a selector alone tells.
    fn report_hints(&self, prefix: &str, page: &mut Page) {
        let name = format!("{prefix}_syncs");
        page.metric(&name, "counter", "[ALPHA] Syncs by their result");
        for (outcome, count) in &self.syncs {
            page.value(&name, &[("result", outcome.text())], *count as f64);
        }
        let name = format!("{prefix}_endpointslices_changed_per_sync");
        page.metric(&name, "histogram", "[ALPHA] EndpointSlices that a sync wrote");
        for ((by_topology, distribution), histogram) in &self.written {
            let topology = if *by_topology { "Auto" } else { "Disabled" };
            let labels = [("topology", topology), ("traffic_distribution", distribution.as_str())];
            page.histogram(&name, &labels, histogram);
        }
        let name = format!("{prefix}_services_count_by_traffic_distribution");
        page.metric(&name, "gauge", "[BETA] Services by their trafficDistribution");
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for distribution in self.services.values().filter_map(|s| s.distribution.as_deref()) {
            *counts.entry(distribution).or_default() += 1;
        }
        for (distribution, count) in counts {
            page.value(&name, &[("traffic_distribution", distribution)], count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page() {
        let metrics = Metrics::new(Which::Slices);
        let key = Key::new("ns", "s");
        let figures = Figures { added: 5, removed: 1, endpoints: 205, slices: 4, ideal: 3 };
        metrics.laid_out(&key, "IPv4", figures);
        metrics.laid_out(&key, "IPv6", figures);
        metrics.laid_out(&key, "IPv6", figures);
        metrics.hinted(&key, false, Some("PreferClose"), 2);
        metrics.hinted(&Key::new("ns", "t"), true, None, 0);
        metrics.planned(&Plan {
            create: vec![k8s_openapi::api::discovery::v1::EndpointSlice::default(); 2],
            ..Plan::default()
        });
        metrics.synced(Outcome::Stale);
        let text = || {
            let mut page = Page::default();
            metrics.report(&mut page);
            page.text()
        };
        let said = text();
        for line in [
            "endpoint_slice_controller_endpoints_desired 410",
            "endpoint_slice_controller_num_endpoint_slices 8",
            "endpoint_slice_controller_desired_endpoint_slices 6",
            "endpoint_slice_controller_changes{operation=\"create\"} 2",
            "endpoint_slice_controller_syncs{result=\"stale\"} 1",
            "endpoint_slice_controller_endpoints_added_per_sync_sum 15",
            "endpoint_slice_controller_endpointslices_changed_per_sync_count{topology=\"Auto\",traffic_distribution=\"\"} 1",
            "endpoint_slice_controller_services_count_by_traffic_distribution{traffic_distribution=\"PreferClose\"} 1",
        ] {
            assert!(said.lines().any(|l| l == line), "{line}: {said}");
        }
        metrics.forget(&key);
        assert!(text().contains("endpoint_slice_controller_endpoints_desired 0"));
    }

    fn said(metrics: &Metrics) -> String {
        let mut page = Page::default();
        metrics.report(&mut page);
        page.text()
    }

    /// Upstream's cases of `TestNumEndpointsAndSlices` of both controllers, and of `TestPlaceHolderSlice`: the slices that
    /// would be enough, that there are, and the endpoints.
    #[test]
    fn sums() {
        for (which, prefix) in [
            (Which::Slices, "endpoint_slice_controller"),
            (Which::Mirror, "endpoint_slice_mirroring_controller"),
        ] {
            let metrics = Metrics::new(which);
            let set = |name: &str, ideal: usize, slices: usize, endpoints: usize| {
                let figures = Figures { endpoints, slices, ideal, ..Figures::default() };
                metrics.laid_out(&Key::new("ns1", name), "", figures);
            };
            let check = |ideal: usize, slices: usize, endpoints: usize| {
                let text = said(&metrics);
                for (name, value) in [
                    ("desired_endpoint_slices", ideal),
                    ("num_endpoint_slices", slices),
                    ("endpoints_desired", endpoints),
                ] {
                    let line = format!("{prefix}_{name} {value}");
                    assert!(text.lines().any(|l| l == line), "{line}: {text}");
                }
            };
            set("svc1", 2, 13, 30);
            check(2, 13, 30);
            set("svc2", 2, 2, 80);
            check(4, 15, 110);
            set("svc3", 2, 13, 30);
            check(6, 28, 140);
            set("svc1", 2, 2, 80);
            check(6, 17, 190);
            metrics.forget(&Key::new("ns1", "svc3"));
            check(4, 4, 160);
            metrics.forget(&Key::new("ns1", "svc1"));
            set("svc2", 1, 2, 0);
            check(1, 2, 0);
        }
    }

    /// Upstream's case of `TestCache_ServicesByTrafficDistribution`.
    #[test]
    fn services_by_distribution() {
        let metrics = Metrics::new(Which::Slices);
        let set = |name: &str, distribution: Option<&str>| {
            metrics.hinted(&Key::new("ns", name), false, distribution, 0);
        };
        // DIFFERENCE: upstream goes on to tell of a distribution that no Service has any more, with the number 0.
        let check = |want: &[(&str, usize)]| {
            let prefix = "endpoint_slice_controller_services_count_by_traffic_distribution{";
            let text = said(&metrics);
            let got: Vec<&str> = text.lines().filter(|l| l.starts_with(prefix)).collect();
            let line = |(name, n): &(&str, usize)| format!("{prefix}traffic_distribution=\"{name}\"}} {n}");
            assert_eq!(got, want.iter().map(line).collect::<Vec<_>>());
        };
        set("service1", Some("PreferClose"));
        check(&[("PreferClose", 1)]);
        set("service1", Some("PreferClose"));
        check(&[("PreferClose", 1)]);
        set("service2", Some("PreferClose"));
        check(&[("PreferClose", 2)]);
        set("service3", Some("FutureValue"));
        check(&[("FutureValue", 1), ("PreferClose", 2)]);
        set("service4", None);
        check(&[("FutureValue", 1), ("PreferClose", 2)]);
        set("service2", Some("AnotherFutureValue"));
        check(&[("AnotherFutureValue", 1), ("FutureValue", 1), ("PreferClose", 1)]);
        metrics.forget(&Key::new("ns", "service3"));
        check(&[("AnotherFutureValue", 1), ("PreferClose", 1)]);
        set("service1", None);
        check(&[("AnotherFutureValue", 1)]);
        set("service2", None);
        check(&[]);
    }
}
