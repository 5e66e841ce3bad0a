//! `/metrics` and its relatives, in Prometheus' text format.

use component::metrics::{Page, process};

use super::served::Served;
use crate::node::machine::Machine;
use crate::node::status::KUBELET_VERSION;
use crate::stats::usage::Usage;
use crate::stats::{Container, Interface, Stats};

fn nanos(n: u64) -> f64 {
    n as f64 / 1e9
}

/// `/metrics/probes`: what probes said.
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
    page.text()
}

/// `/metrics`: the kubelet's own.
pub(super) fn own(served: &Served) -> String {
    let mut page = Page::default();
    let name = served.config.node_name.as_str();
    page.metric("kubelet_node_name", "gauge", "[ALPHA] The node's name. The count is always 1.").value(
        "kubelet_node_name",
        &[("node", name)],
        1.0,
    );
    page.metric(
        "kubernetes_build_info",
        "gauge",
        "[ALPHA] A metric with a constant '1' value labeled by version.",
    )
    .value("kubernetes_build_info", &[("git_version", KUBELET_VERSION), ("platform", "linux")], 1.0);
    let pods = served.pods.pods();
    let running =
        pods.iter().filter(|p| p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running")).count();
    page.metric("kubelet_running_pods", "gauge", "[BETA] Number of pods that have a running pod sandbox")
        .value("kubelet_running_pods", &[], running as f64);
    page.metric("kubelet_running_containers", "gauge", "[BETA] Number of containers currently running");
    let (mut up, mut down) = (0u32, 0u32);
    for status in
        pods.iter().filter_map(|p| p.status.as_ref()).flat_map(|s| s.container_statuses.iter().flatten())
    {
        match &status.state {
            Some(state) if state.running.is_some() => up += 1,
            Some(state) if state.terminated.is_some() => down += 1,
            _ => {}
        }
    }
    page.value("kubelet_running_containers", &[("container_state", "exited")], f64::from(down));
    page.value("kubelet_running_containers", &[("container_state", "running")], f64::from(up));
    page.metric(
        "kubelet_desired_pods",
        "gauge",
        "[ALPHA] The number of pods the kubelet is being instructed to run.",
    )
    .value("kubelet_desired_pods", &[("static", "")], pods.len() as f64);
    served.metrics.write(&mut page);
    served.devices.dra.write_metrics(&mut page);
    served.devices.plugins.write_metrics(&mut page);
    served.managers.write_metrics(&mut page);
    served.pod_resources.write_metrics(&mut page);
    process(&mut page);
    page.text()
}

/// A value of `/metrics/resource`, and the milliseconds since 1970 when it was measured, if it was.
type Measured = (f64, Option<i64>);

/// A metric of `/metrics/resource`: its name, its type, its help, and its value of a container, a Pod or the node.
type Series<T> = (&'static str, &'static str, &'static str, fn(&T) -> Option<Measured>);

const OF_CONTAINERS: [Series<Container>; 4] = [
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

/// `/metrics/cadvisor`: the metrics of containers under the names that dashboards know.
pub(super) fn cadvisor(stats: &Stats, machine: &Machine) -> String {
    let mut page = Page::default();
    page.metric("machine_cpu_cores", "gauge", "Number of logical CPU cores.").value(
        "machine_cpu_cores",
        &[],
        machine.milli_cpus as f64 / 1000.0,
    );
    page.metric("machine_memory_bytes", "gauge", "Amount of memory installed on the machine.").value(
        "machine_memory_bytes",
        &[],
        machine.memory as f64,
    );
    type Pick = fn(&Usage) -> Option<f64>;
    let all: [(&str, &str, &str, Pick); 5] = [
        ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", |u| {
            u.cpu_nanos.map(nanos)
        }),
        (
            "container_memory_usage_bytes",
            "gauge",
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
            |u| u.memory.map(|n| n as f64),
        ),
        ("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", |u| {
            u.working_set.map(|n| n as f64)
        }),
        ("container_memory_rss", "gauge", "Size of RSS in bytes.", |u| u.rss.map(|n| n as f64)),
        ("container_memory_swap", "gauge", "Container swap usage in bytes.", |u| u.swap.map(|n| n as f64)),
    ];
    for (name, kind, help, pick) in all {
        page.metric(name, kind, help);
        if let Some(value) = pick(&stats.node) {
            page.value(
                name,
                &[
                    ("container", ""),
                    ("id", "/"),
                    ("image", ""),
                    ("name", ""),
                    ("namespace", ""),
                    ("pod", ""),
                ],
                value,
            );
        }
        for pod in &stats.pods {
            for c in &pod.containers {
                if let Some(value) = pick(&c.usage) {
                    let labels = [
                        ("container", c.name.as_str()),
                        ("id", c.id.as_str()),
                        ("image", ""),
                        ("name", c.id.as_str()),
                        ("namespace", pod.namespace.as_str()),
                        ("pod", pod.name.as_str()),
                    ];
                    page.value(name, &labels, value);
                }
            }
        }
    }
    type Count = fn(&Interface) -> u64;
    let network: [(&str, &str, Count); 4] = [
        ("container_network_receive_bytes_total", "Cumulative count of bytes received", |i| i.rx),
        (
            "container_network_receive_errors_total",
            "Cumulative count of errors encountered while receiving",
            |i| i.rx_errors,
        ),
        ("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", |i| i.tx),
        (
            "container_network_transmit_errors_total",
            "Cumulative count of errors encountered while transmitting",
            |i| i.tx_errors,
        ),
    ];
    for (name, help, count) in network {
        page.metric(name, "counter", help);
        for pod in &stats.pods {
            for interface in &pod.interfaces {
                let labels = [
                    ("interface", interface.name.as_str()),
                    ("namespace", pod.namespace.as_str()),
                    ("pod", pod.name.as_str()),
                ];
                page.value(name, &labels, count(interface) as f64);
            }
        }
    }
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
