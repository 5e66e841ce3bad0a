//! The server's metrics, under upstream's names.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use http::header::{self, HeaderValue};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::config::Config;
use crate::proxy::Body;
use crate::server::full;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    code: u16,
    component: &'static str,
    dry_run: &'static str,
    group: String,
    resource: String,
    scope: &'static str,
    subresource: String,
    verb: String,
    version: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DurationLabels {
    component: &'static str,
    dry_run: &'static str,
    group: String,
    resource: String,
    scope: &'static str,
    subresource: String,
    verb: String,
    version: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    request_kind: &'static str,
}

type Durations = Family<DurationLabels, Histogram, fn() -> Histogram>;

/// Upstream's buckets of `apiserver_request_duration_seconds`.
const BUCKETS: [f64; 22] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0,
];

/// The metrics of a server.
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter<u64, AtomicU64>>,
    durations: Durations,
    in_flight: Family<KindLabels, Gauge<i64, AtomicI64>>,
    watches: Gauge<i64, AtomicI64>,
    reading: Arc<AtomicUsize>,
    writing: Arc<AtomicUsize>,
}

/// A request that counts as under way until this is dropped.
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let requests = Family::default();
        let durations: Durations = Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let in_flight = Family::default();
        let watches = Gauge::default();
        let mut registry = Registry::default();
        registry.register(
            "apiserver_request",
            "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code",
            requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component",
            durations.clone(),
        );
        registry.register(
            "apiserver_current_inflight_requests",
            "Maximal number of currently used inflight request limit of this apiserver per request kind in last second",
            in_flight.clone(),
        );
        registry.register(
            "apiserver_longrunning_requests",
            "Gauge of all active long-running apiserver requests",
            watches.clone(),
        );
        Self {
            registry: Mutex::new(registry),
            requests,
            durations,
            in_flight,
            watches,
            reading: Arc::default(),
            writing: Arc::default(),
        }
    }
    /// Lets others register their metrics, too.
    pub fn register(&self, with: impl FnOnce(&mut Registry)) {
        with(&mut self.registry.lock());
    }
    /// Counts a request as under way; `None` above the limit.
    pub(crate) fn enter(&self, mutating: bool, config: &Config) -> Option<Permit> {
        let (count, limit) = if mutating {
            (&self.writing, config.max_mutating_in_flight)
        } else {
            (&self.reading, config.max_in_flight)
        };
        let permit = Permit(Arc::clone(count));
        (count.fetch_add(1, Ordering::AcqRel) < limit).then_some(permit)
    }
    /// Counts watches.
    pub(crate) fn watches(&self, by: i64) {
        self.watches.inc_by(by);
    }
    /// Counts a request that was answered.
    #[allow(clippy::too_many_arguments, reason = "the metric's labels")]
    pub(crate) fn request(
        &self,
        verb: &str,
        group: &str,
        version: &str,
        resource: &str,
        subresource: &str,
        code: u16,
        took: Duration,
    ) {
        let verb = verb.to_ascii_uppercase();
        let scope = if resource.is_empty() { "" } else { "resource" };
        if verb != "WATCH" {
            let labels = DurationLabels {
                component: "apiserver",
                dry_run: "",
                group: group.into(),
                resource: resource.into(),
                scope,
                subresource: subresource.into(),
                verb: verb.clone(),
                version: version.into(),
            };
            self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        }
        let labels = RequestLabels {
            code,
            component: "apiserver",
            dry_run: "",
            group: group.into(),
            resource: resource.into(),
            scope,
            subresource: subresource.into(),
            verb,
            version: version.into(),
        };
        self.requests.get_or_create(&labels).inc();
    }
    pub(crate) fn serve(&self) -> Response<Body> {
        for (kind, count) in [("readOnly", &self.reading), ("mutating", &self.writing)] {
            let labels = KindLabels { request_kind: kind };
            self.in_flight.get_or_create(&labels).set(count.load(Ordering::Acquire) as i64);
        }
        let mut out = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut out, &self.registry.lock());
        let mut response = Response::new(full(out));
        let media = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        response
    }
}
