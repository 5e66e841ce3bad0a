//! Counts the requests to the server, under upstream's labels.

use std::time::Instant;

use http::Method;

use crate::metrics::{self, Metrics};

/// The first parts of paths under which requests are counted.
const ROOTS: [&str; 18] = [
    "healthz",
    "pods",
    "stats",
    "metrics",
    "run",
    "exec",
    "attach",
    "portForward",
    "containerLogs",
    "configz",
    "runningpods",
    "checkpoint",
    "pprof",
    "logs",
    "debug",
    "flagz",
    "statusz",
    "spec",
];
/// The pages below `/metrics` that are counted by themselves.
const PAGES: [&str; 3] = ["cadvisor", "probes", "resource"];
/// Those that may go on for long; upstream's.
const LONG: [&str; 5] = ["exec", "attach", "portForward", "containerLogs", "debug"];
const METHODS: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];

/// The path under which a request is counted.
fn bucket(path: &str) -> String {
    let mut parts = path.trim_start_matches('/').split('/');
    let root = parts.next().unwrap_or_default();
    if !ROOTS.contains(&root) {
        return "other".into();
    }
    match parts.next() {
        Some(page) if root == "metrics" && PAGES.contains(&page) => format!("{root}/{page}"),
        Some(_) if root == "metrics" => "other".into(),
        _ => root.to_owned(),
    }
}

/// The method under which a request is counted.
fn bucket_of_method(method: &Method) -> &str {
    if METHODS.contains(&method.as_str()) { method.as_str() } else { "other" }
}

/// A request that is under way. Its end is counted; a stream goes on without it.
pub(super) struct UnderWay<'a> {
    metrics: &'a Metrics,
    labels: [String; 4],
    began: Instant,
}

impl<'a> UnderWay<'a> {
    /// A request that begins.
    pub(super) fn new(metrics: &'a Metrics, method: &Method, path: &str) -> Self {
        let bucket = bucket(path);
        let long = if LONG.contains(&bucket.as_str()) { "true" } else { "false" };
        let labels = [long, bucket_of_method(method), &bucket, "readwrite"].map(str::to_owned);
        let under_way = Self { metrics, labels, began: Instant::now() };
        metrics.count(&metrics::HTTP_REQUESTS_TOTAL, &under_way.labels());
        metrics.add(&metrics::HTTP_INFLIGHT_REQUESTS, &under_way.labels(), 1.0);
        under_way
    }

    fn labels(&self) -> [&str; 4] {
        self.labels.each_ref().map(String::as_str)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.metrics.add(&metrics::HTTP_INFLIGHT_REQUESTS, &self.labels(), -1.0);
        self.metrics.took(&metrics::HTTP_REQUESTS_DURATION_SECONDS, &self.labels(), self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use component::metrics::Page;

    use super::*;

    /// Upstream's cases (`TestMetricBuckets`), and some more.
    #[test]
    fn paths_are_counted_by_their_beginning() {
        for (expected, paths) in [
            (
                "attach",
                "/attach/podNamespace/podID/containerName /attach/podNamespace/podID/uid/containerName",
            ),
            ("configz", "/configz"),
            ("containerLogs", "/containerLogs/podNamespace/podID/containerName"),
            ("debug", "/debug/flags/v /debug/pprof/subpath"),
            ("exec", "/exec/podNamespace/podID/containerName /exec/podNamespace/podID/uid/containerName"),
            ("healthz", "/healthz /healthz/ /healthz/log /healthz/ping /healthz/syncloop"),
            ("logs", "/logs/ /logs/logpath"),
            ("metrics", "/metrics"),
            ("metrics/cadvisor", "/metrics/cadvisor"),
            ("metrics/probes", "/metrics/probes"),
            ("metrics/resource", "/metrics/resource"),
            ("pods", "/pods/ /pods"),
            ("portForward", "/portForward/podNamespace/podID /portForward/podNamespace/podID/uid"),
            ("run", "/run/podNamespace/podID/containerName /run/podNamespace/podID/uid/containerName"),
            ("runningpods", "/runningpods/"),
            ("stats", "/stats/ /stats/summary"),
            ("statusz", "/statusz"),
            ("flagz", "/flagz"),
            ("other", "/junk /healthzjunk /metrics/slis /"),
        ] {
            for path in paths.split(' ') {
                assert_eq!(bucket(path), expected, "{path}");
            }
        }
    }

    /// Upstream's cases (`TestMetricMethodBuckets`).
    #[test]
    fn methods_are_counted_by_their_names() {
        for (method, expected) in [("GET", "GET"), ("POST", "POST"), ("WEIRD", "other")] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(bucket_of_method(&method), expected);
        }
    }

    #[test]
    fn a_request_is_under_way_until_it_ends() {
        let metrics = Metrics::default();
        let page = || {
            let mut page = Page::default();
            metrics.write(&mut page);
            page.text()
        };
        let labels = "{long_running=\"true\",method=\"POST\",path=\"exec\",server_type=\"readwrite\"}";
        let request = UnderWay::new(&metrics, &Method::POST, "/exec/a/b/c");
        let text = page();
        assert!(text.contains(&format!("kubelet_http_inflight_requests{labels} 1\n")), "{text}");
        drop(request);
        let text = page();
        assert!(text.contains(&format!("kubelet_http_inflight_requests{labels} 0\n")), "{text}");
        assert!(
            text.contains(&format!("kubelet_http_requests_duration_seconds_count{labels} 1\n")),
            "{text}"
        );
    }
}
