//! The server's metrics, under upstream's names.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use access::{Query, RequestInfo};
use api::gate::Stage;
use api::{FeatureGates, Gate, Text};
use component::Shown;
use http::header::{self, HeaderValue};
use http::{Method, Response};
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::front::{Body, full};
use crate::process_metrics::ProcessMetrics;
use crate::version::{self, BUILD};

/// A label's value that is part of a request.
#[derive(Clone, Debug, Hash, PartialEq, Eq, Default)]
struct Label(Text);

impl EncodeLabelValue for Label {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(&self.0)
    }
}

/// The labels of most metrics of requests.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Target {
    component: &'static str,
    group: Label,
    resource: Label,
    scope: &'static str,
    subresource: Label,
    verb: &'static str,
    version: Label,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DurationLabels {
    dry_run: &'static str,
    #[prometheus(flatten)]
    target: Target,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    code: u16,
    #[prometheus(flatten)]
    labels: DurationLabels,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VersionLabels {
    group: Label,
    resource: Label,
    version: Label,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StorageLabels {
    group: Label,
    operation: &'static str,
    resource: Label,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DeprecatedLabels {
    group: Label,
    removed_release: Label,
    resource: Label,
    subresource: Label,
    version: Label,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    build_date: &'static str,
    compiler: &'static str,
    git_commit: &'static str,
    git_tree_state: &'static str,
    git_version: &'static str,
    go_version: &'static str,
    major: &'static str,
    minor: &'static str,
    platform: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FeatureLabels {
    name: &'static str,
    stage: &'static str,
}

type Durations = Family<DurationLabels, Histogram, fn() -> Histogram>;
type Commits = Family<StorageLabels, Histogram, fn() -> Histogram>;
type Sizes = Family<Target, Histogram, fn() -> Histogram>;
type Count<L> = Family<L, Counter<u64, AtomicU64>>;
type Level<L> = Family<L, Gauge<i64, AtomicI64>>;

/// Upstream's buckets of `apiserver_request_duration_seconds`.
const SECONDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];
/// Upstream's buckets of `etcd_request_duration_seconds`.
const COMMIT_SECONDS: [f64; 21] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0,
];
/// Upstream's buckets of `apiserver_response_sizes`.
const BYTES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// The subresources that connect a client with something else.
const CONNECTS: [&str; 5] = ["log", "exec", "attach", "proxy", "portforward"];

/// The metrics of a server.
pub struct Metrics {
    shown: Shown,
    registry: Mutex<Registry>,
    requests: Count<RequestLabels>,
    durations: Durations,
    sizes: Sizes,
    long_running: Level<Target>,
    watch_events: Count<VersionLabels>,
    commits: Commits,
    deprecated: Level<DeprecatedLabels>,
    handshake_errors: Counter<u64, AtomicU64>,
}

/// A request that goes on for as long as it likes; it counts as one until all clones are dropped.
#[derive(Clone, Debug)]
pub(crate) struct LongRunning(#[allow(dead_code, reason = "what counts is its end")] Arc<Counted>);

#[derive(Debug)]
struct Counted(Gauge<i64, AtomicI64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A watch that counts as one until this is dropped.
pub(crate) struct Watching {
    _running: LongRunning,
    events: Counter<u64, AtomicU64>,
}

impl Watching {
    /// Counts events that were sent.
    pub(crate) fn sent(&self, events: u64) {
        self.events.inc_by(events);
    }
}

/// The facts of a request by which it is counted.
pub(crate) struct Seen {
    labels: DurationLabels,
}

impl Seen {
    /// Of a request; `known` if it is for a resource that is served. Others would make any number of labels.
    pub(crate) fn new(
        method: &Method,
        content_type: &[u8],
        query: &Query,
        info: Option<&RequestInfo>,
        known: bool,
    ) -> Self {
        let scope = info.map_or("", |i| match i {
            i if !i.name.is_empty() || i.verb == "create" => "resource",
            i if !i.namespace.is_empty() => "namespace",
            i if i.is_resource => "cluster",
            _ => "",
        });
        let resource = info.filter(|i| i.is_resource);
        let connects = resource.is_some_and(|i| CONNECTS.contains(&&*i.subresource));
        let verb = match method.as_str() {
            _ if connects => "CONNECT",
            "GET" | "HEAD" if resource.is_some_and(|i| i.verb == "watch") => "WATCH",
            "GET" | "HEAD" if resource.is_some() && scope != "resource" => "LIST",
            "GET" | "HEAD" => "GET",
            "POST" => "POST",
            "PUT" => "PUT",
            "DELETE" => "DELETE",
            "PATCH" if content_type == b"application/apply-patch+yaml" => "APPLY",
            "PATCH" => "PATCH",
            _ => "other",
        };
        let dry_run = match query.str("dryRun") {
            "" => "",
            "All" => "All",
            _ => "invalid",
        };
        let part = |of: fn(&RequestInfo) -> &Text| {
            Label(resource.filter(|_| known).map(|i| of(i).clone()).unwrap_or_default())
        };
        let health =
            info.map(|i| i.path.as_str()).filter(|p| matches!(*p, "/healthz" | "/livez" | "/readyz"));
        let target = Target {
            component: "apiserver",
            group: part(|i| &i.group),
            resource: part(|i| &i.resource),
            scope,
            subresource: health.map_or_else(|| part(|i| &i.subresource), |p| Label(p.into())),
            verb,
            version: part(|i| &i.version),
        };
        Self { labels: DurationLabels { dry_run, target } }
    }
}

fn build_labels() -> BuildLabels {
    BuildLabels {
        build_date: BUILD.date,
        compiler: BUILD.compiler,
        git_commit: BUILD.commit,
        git_tree_state: BUILD.tree_state,
        git_version: version::git_version(),
        go_version: BUILD.go_version,
        major: BUILD.major,
        minor: BUILD.minor,
        platform: version::platform(),
    }
}

fn since_epoch() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

impl Metrics {
    pub(crate) fn new(gates: FeatureGates, shown: Shown) -> Self {
        let out = Self {
            shown,
            registry: Mutex::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            sizes: Family::new_with_constructor(|| Histogram::new(BYTES)),
            long_running: Family::default(),
            watch_events: Family::default(),
            commits: Family::new_with_constructor(|| Histogram::new(COMMIT_SECONDS)),
            deprecated: Family::default(),
            handshake_errors: Counter::default(),
        };
        let features: Level<FeatureLabels> = Family::default();
        for gate in Gate::all() {
            let stage = match gate.stage() {
                Stage::Alpha => "ALPHA",
                Stage::Beta => "BETA",
                Stage::Deprecated => "DEPRECATED",
                Stage::Stable => "",
            };
            features
                .get_or_create(&FeatureLabels { name: gate.name(), stage })
                .set(gates.enabled(gate).into());
        }
        let started: Gauge<f64, AtomicU64> = Gauge::default();
        started.set(since_epoch());
        let mut registry = out.registry.lock();
        registry.register(
            "apiserver_request",
            "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code",
            out.requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component",
            out.durations.clone(),
        );
        registry.register(
            "apiserver_response_sizes",
            "[STABLE] Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component",
            out.sizes.clone(),
        );
        registry.register(
            "apiserver_longrunning_requests",
            "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way",
            out.long_running.clone(),
        );
        registry.register(
            "apiserver_watch_events",
            "[ALPHA] Number of events sent in watch clients",
            out.watch_events.clone(),
        );
        registry.register(
            "etcd_request_duration_seconds",
            "[ALPHA] Etcd request latency in seconds for each operation and object type",
            out.commits.clone(),
        );
        registry.register(
            "apiserver_requested_deprecated_apis",
            "[STABLE] Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release",
            out.deprecated.clone(),
        );
        registry.register(
            "apiserver_tls_handshake_errors",
            "[ALPHA] Number of requests dropped with 'TLS handshake error from' error",
            out.handshake_errors.clone(),
        );
        let build: Level<BuildLabels> = Family::default();
        build.get_or_create(&build_labels()).set(1);
        registry.register(
            "kubernetes_build_info",
            "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running",
            build,
        );
        registry.register_collector(Box::new(ProcessMetrics));
        registry.register(
            "kubernetes_feature_enabled",
            "[BETA] This metric records the data about the stage and enablement of a k8s feature",
            features,
        );
        registry.register(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds",
            started,
        );
        drop(registry);
        out
    }
    /// Lets others register their metrics, too.
    pub fn register(&self, with: impl FnOnce(&mut Registry)) {
        with(&mut self.registry.lock());
    }
    /// Remembers how long a write took to be durable.
    pub(crate) fn commit(&self, group: &Text, plural: &Text, operation: &'static str, took: Duration) {
        let labels =
            StorageLabels { group: Label(group.clone()), operation, resource: Label(plural.clone()) };
        self.commits.get_or_create(&labels).observe(took.as_secs_f64());
    }
    /// Remembers that somebody uses an API that is deprecated.
    pub(crate) fn deprecated(&self, info: &RequestInfo, removed_release: &Text) {
        let label = |text: &Text| Label(text.clone());
        let labels = DeprecatedLabels {
            group: label(&info.group),
            removed_release: label(removed_release),
            resource: label(&info.resource),
            subresource: label(&info.subresource),
            version: label(&info.version),
        };
        self.deprecated.get_or_create(&labels).set(1);
    }
    /// Counts a connection that TLS refused.
    pub(crate) fn handshake_failed(&self) {
        self.handshake_errors.inc();
    }
    /// Counts a watch of a resource.
    pub(crate) fn watch(&self, info: &RequestInfo) -> Watching {
        let target = Seen::new(&Method::GET, b"", &Query::default(), Some(info), true).labels.target;
        let labels = VersionLabels {
            group: target.group.clone(),
            resource: target.resource.clone(),
            version: target.version.clone(),
        };
        let events = self.watch_events.get_or_create(&labels).clone();
        Watching { _running: self.count(&target), events }
    }
    /// Counts a request that connects its client with something else.
    pub(crate) fn connect(&self, method: &Method, info: &RequestInfo) -> LongRunning {
        self.count(&Seen::new(method, b"", &Query::default(), Some(info), true).labels.target)
    }
    fn count(&self, target: &Target) -> LongRunning {
        let running = self.long_running.get_or_create(target).clone();
        running.inc();
        LongRunning(Arc::new(Counted(running)))
    }
    /// Counts a request that was answered, with a body of this size if that is known.
    pub(crate) fn request(&self, seen: Seen, code: u16, took: Duration, size: Option<u64>) {
        let labels = seen.labels;
        if labels.target.verb != "WATCH" {
            self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        }
        if let Some(size) = size.filter(|_| matches!(labels.target.verb, "GET" | "LIST")) {
            self.sizes.get_or_create(&labels.target).observe(size as f64);
        }
        self.requests.get_or_create(&RequestLabels { code, labels }).inc();
    }
    /// A page of other metrics, as it is shown.
    pub(crate) fn show(&self, page: String) -> String {
        self.shown.apply(page)
    }
    /// Answers a scrape: as OpenMetrics if that is asked for, otherwise in Prometheus' older text form.
    pub(crate) fn serve(&self, accept: &str) -> Response<Body> {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut out, &self.registry.lock());
        let open = accept.contains("application/openmetrics-text");
        let media = if open {
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        } else {
            out = prometheus_text(&out);
            "text/plain; version=0.0.4; charset=utf-8"
        };
        let mut response = Response::new(full(self.shown.apply(out)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        response
    }
}

/// OpenMetrics in Prometheus' older form, where a counter is described under its whole name.
fn prometheus_text(open: &str) -> String {
    let mut out = String::with_capacity(open.len());
    let mut help: Option<(&str, &str)> = None;
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|r| r.split_once(' ')) {
            let total = if kind == "counter" { "_total" } else { "" };
            if let Some((_, text)) = help.take().filter(|h| h.0 == name) {
                let text = text.strip_suffix('.').unwrap_or(text);
                let _ = writeln!(out, "# HELP {name}{total} {text}");
            }
            let _ = writeln!(out, "# TYPE {name}{total} {kind}");
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_requests() {
        let check = |method: Method, path: &str, content_type: &str, expected: &str| {
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let query = Query::parse(query);
            let info = access::request_info::parse(&method, path, &query).ok();
            let Target { verb, scope, group, version, resource, subresource, .. } =
                Seen::new(&method, content_type.as_bytes(), &query, info.as_ref(), true).labels.target;
            let (group, version) = (group.0, version.0);
            let got = format!("{verb} {scope} {group}/{version}/{} {}", resource.0, subresource.0);
            assert_eq!(got, expected, "{method} {path}");
        };
        let pods = "/api/v1/namespaces/d/pods";
        check(Method::GET, pods, "", "LIST namespace /v1/pods ");
        check(Method::GET, "/api/v1/pods", "", "LIST cluster /v1/pods ");
        check(Method::GET, "/api/v1/pods?watch=1", "", "WATCH cluster /v1/pods ");
        check(Method::POST, pods, "", "POST resource /v1/pods ");
        check(Method::DELETE, pods, "", "DELETE namespace /v1/pods ");
        let web = "/apis/apps/v1/namespaces/d/deployments/web";
        check(Method::GET, web, "", "GET resource apps/v1/deployments ");
        check(Method::PUT, &format!("{web}/status"), "", "PUT resource apps/v1/deployments status");
        check(Method::PATCH, web, "application/merge-patch+json", "PATCH resource apps/v1/deployments ");
        check(Method::PATCH, web, "application/apply-patch+yaml", "APPLY resource apps/v1/deployments ");
        check(Method::POST, &format!("{pods}/p/exec"), "", "CONNECT resource /v1/pods exec");
        check(Method::GET, "/readyz", "", "GET  // /readyz");
        check(Method::GET, "/version", "", "GET  // ");
    }

    #[test]
    fn the_older_form() {
        let open = "# HELP a_b Help.\n# TYPE a_b counter\na_b_total{x=\"1\"} 2\n# HELP g G.\n# TYPE g gauge\n# UNIT g s\ng 1\n# EOF\n";
        let expected = "# HELP a_b_total Help\n# TYPE a_b_total counter\na_b_total{x=\"1\"} 2\n# HELP g G\n# TYPE g gauge\ng 1\n";
        assert_eq!(prometheus_text(open), expected);
    }
}
