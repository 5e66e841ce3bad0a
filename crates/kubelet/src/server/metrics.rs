//! `/metrics` and its relatives, in Prometheus' text format.

use api::FeatureGates;
use api::gate::{Gate, Stage};
use component::metrics::{Page, process};

use super::gauges;
use super::served::Served;
use crate::stats::usage::Usage;
use crate::stats::{Container, Stats};

fn nanos(n: u64) -> f64 {
    n as f64 / 1e9
}

/// `/metrics/probes`: what probes said, and how long they took.
pub(super) fn probes(served: &Served) -> String {
    let mut page = Page::default();
    let name = "prober_probe_total";
    let help =
        "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.";
    page.metric(name, "counter", help);
    for (c, count) in served.probes.counts() {
        let labels = [
            ("container", c.container.as_str()),
            ("namespace", &c.namespace),
            ("pod", &c.pod),
            ("pod_uid", &c.uid),
            ("probe_type", c.kind),
            ("result", c.result),
        ];
        page.value(name, &labels, count as f64);
    }
    let name = "prober_probe_duration_seconds";
    page.metric(name, "histogram", "[ALPHA] Duration in seconds for a probe response.");
    for (c, durations) in served.probes.durations() {
        let labels = [
            ("container", c.container.as_str()),
            ("namespace", &c.namespace),
            ("pod", &c.pod),
            ("probe_type", c.kind),
        ];
        page.histogram(name, &labels, &durations);
    }
    let name = "process_start_time_seconds";
    let help = "[ALPHA] Start time of the process since unix epoch in seconds.";
    if let Some(started) = component::metrics::started() {
        page.metric(name, "gauge", help).value(name, &[], started);
    }
    page.text()
}

/// The memory that guaranteed Pods and burstable ones have kept for them; nothing without the feature.
fn kept_memory(page: &mut Page, kept: Option<(i64, i64)>) {
    let Some((min, low)) = kept else { return };
    let name = "kubelet_memory_qos_node_memory_min_bytes";
    let help = "[ALPHA] Total cgroup v2 memory.min in bytes for Guaranteed pods. This memory is hard-reserved and never reclaimed by the kernel.";
    page.metric(name, "gauge", help).value(name, &[], min as f64);
    let name = "kubelet_memory_qos_node_memory_low_bytes";
    let help = "[ALPHA] Total cgroup v2 memory.low in bytes for Burstable pods. This memory is soft-reserved and may be reclaimed under extreme pressure.";
    page.metric(name, "gauge", help).value(name, &[], low as f64);
}

/// `/metrics`: the kubelet's own.
pub(super) async fn own(served: &Served) -> String {
    let mut page = Page::default();
    let name = "kubernetes_build_info";
    let help = "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.";
    let platform = format!("linux/{}", served.collector.machine.architecture);
    let labels = [
        ("build_date", ""),
        ("compiler", ""),
        ("git_commit", ""),
        ("git_tree_state", ""),
        ("git_version", component::version::told()),
        ("go_version", ""),
        ("major", "1"),
        ("minor", "36"),
        ("platform", &platform),
    ];
    page.metric(name, "gauge", help).value(name, &labels, 1.0);
    gates(&mut page, served.config.gates);
    gauges::read(served).await;
    served.metrics.write(&mut page);
    served.devices.dra.write_metrics(&mut page);
    served.devices.plugins.write_metrics(&mut page);
    served.managers.write_metrics(&mut page);
    kept_memory(&mut page, served.collector.cgroups.kept_memory());
    served.pod_resources.write_metrics(&mut page);
    if let Some(requests) = served.client.requests() {
        requests.write(&mut page);
    }
    process(&mut page);
    page.text()
}

/// Which gates are on.
fn gates(page: &mut Page, on: FeatureGates) {
    let name = "kubernetes_feature_enabled";
    page.metric(
        name,
        "gauge",
        "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
    );
    for gate in Gate::all() {
        let stage = match gate.stage() {
            Stage::Alpha => "ALPHA",
            Stage::Beta => "BETA",
            Stage::Stable => "",
            Stage::Deprecated => "DEPRECATED",
        };
        let on = f64::from(u8::from(on.enabled(gate)));
        page.value(name, &[("name", gate.name()), ("stage", stage)], on);
    }
}

/// A value of `/metrics/resource`, and the milliseconds since 1970 when it was measured, if it was.
type Measured = (f64, Option<i64>);

/// A metric of `/metrics/resource`: its name, its type, its help, and its value of a container, a Pod or the node.
type Series<T> = (&'static str, &'static str, &'static str, fn(&T) -> Option<Measured>);

const OF_CONTAINERS: [Series<Container>; 5] = [
    (
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        |c| cpu(&c.usage),
    ),
    (
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the container in bytes",
        |c| memory(&c.usage),
    ),
    (
        "container_start_time_seconds",
        "gauge",
        "[STABLE] Start time of the container since unix epoch in seconds",
        |c| c.started.map(|started| (started.as_millisecond() as f64 / 1e3, None)),
    ),
    (
        "container_swap_limit_bytes",
        "gauge",
        "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems",
        |c| {
            let usage = &c.usage;
            measured(
                usage,
                usage.swap.zip(usage.swap_available).map(|(used, left)| used.saturating_add(left) as f64),
            )
        },
    ),
    (
        "container_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        |c| swap(&c.usage),
    ),
];

const OF_THE_NODE: [Series<Usage>; 3] = [
    (
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        cpu,
    ),
    ("node_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the node in bytes", memory),
    (
        "node_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        swap,
    ),
];

const OF_PODS: [Series<Usage>; 3] = [
    (
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        cpu,
    ),
    ("pod_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the pod in bytes", memory),
    (
        "pod_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        swap,
    ),
];

fn measured(usage: &Usage, value: Option<f64>) -> Option<Measured> {
    Some((value?, Some(usage.time.as_millisecond())))
}

fn cpu(usage: &Usage) -> Option<Measured> {
    measured(usage, usage.cpu_nanos.map(nanos))
}

fn memory(usage: &Usage) -> Option<Measured> {
    measured(usage, usage.working_set.map(|n| n as f64))
}

fn swap(usage: &Usage) -> Option<Measured> {
    measured(usage, usage.swap.map(|n| n as f64))
}

/// `/metrics/resource`: the use of the node, its Pods and their containers; upstream's stable set.
pub(super) fn resource(stats: Option<&Stats>) -> String {
    let mut page = Page::default();
    if let Some(stats) = stats {
        for (name, kind, help, value) in OF_CONTAINERS {
            page.metric(name, kind, help);
            let all = stats.pods.iter().flat_map(|pod| pod.containers.iter().map(move |c| (pod, c)));
            for (pod, c) in all {
                let labels = [
                    ("container", c.name.as_str()),
                    ("namespace", pod.namespace.as_str()),
                    ("pod", pod.name.as_str()),
                ];
                if let Some((value, at)) = value(c) {
                    page.value_at(name, &labels, value, at);
                }
            }
        }
        for (name, kind, help, value) in OF_THE_NODE {
            page.metric(name, kind, help);
            if let Some((value, at)) = value(&stats.node) {
                page.value_at(name, &[], value, at);
            }
        }
        for (name, kind, help, value) in OF_PODS {
            page.metric(name, kind, help);
            for pod in &stats.pods {
                if let Some((value, at)) = value(&pod.usage) {
                    page.value_at(name, &[("namespace", &pod.namespace), ("pod", &pod.name)], value, at);
                }
            }
        }
    }
    page.metric(
        "resource_scrape_error",
        "gauge",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
    )
    .value("resource_scrape_error", &[], if stats.is_some() { 0.0 } else { 1.0 });
    page.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_statistics() {
        assert!(resource(None).ends_with("resource_scrape_error 1\n"));
    }
}
