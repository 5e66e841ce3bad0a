//! Metrics of Pods under cAdvisor's names.

use std::sync::Arc;

use containers::Stats;
use cri::runtime as pb;
use pb::MetricType::{Counter, Gauge};

use super::core::{Container, Core, Sandbox};
use super::stats::interfaces_of;

/// A metric: its name, its kind, its help, and its value.
type Metric<T> = (&'static str, pb::MetricType, &'static str, fn(&T) -> Option<u64>);

/// The labels of a container's metric.
const CONTAINER: [&str; 6] = ["id", "name", "image", "container", "pod", "namespace"];
/// Those of a Pod's network.
const NETWORK: [&str; 4] = ["id", "pod", "namespace", "interface"];

/// The metrics of a container. Times are whole seconds, since CRI's values are whole.
const OF_CONTAINERS: [Metric<Stats>; 15] = [
    ("container_cpu_usage_seconds_total", Counter, "Cumulative cpu time consumed in seconds.", |s| {
        Some(s.cpu_usage? / 1_000_000_000)
    }),
    ("container_cpu_cfs_throttled_periods_total", Counter, "Number of throttled period intervals.", |s| {
        Some(s.cpu_throttled?.0)
    }),
    (
        "container_cpu_cfs_throttled_seconds_total",
        Counter,
        "Total time the container has been throttled.",
        |s| Some(s.cpu_throttled?.1 / 1_000_000_000),
    ),
    ("container_memory_usage_bytes", Gauge, "Current memory usage in bytes.", |s| s.memory_usage),
    ("container_memory_working_set_bytes", Gauge, "Current working set in bytes.", |s| s.memory_working_set),
    ("container_memory_rss", Gauge, "Size of RSS in bytes.", |s| s.memory_rss),
    ("container_memory_swap", Gauge, "Container swap usage in bytes.", |s| s.swap_usage),
    ("container_spec_memory_limit_bytes", Gauge, "Memory limit for the container.", |s| s.memory_limit),
    ("container_memory_page_faults_total", Counter, "Page faults.", |s| Some(s.page_faults?.0)),
    ("container_memory_major_page_faults_total", Counter, "Major page faults.", |s| Some(s.page_faults?.1)),
    ("container_processes", Gauge, "Number of processes running inside the container.", |s| s.pids),
    ("container_threads_max", Gauge, "Maximum number of threads allowed inside the container.", |s| {
        s.pids_limit
    }),
    ("container_fs_reads_bytes_total", Counter, "Cumulative count of bytes read.", |s| Some(s.io_bytes?.0)),
    ("container_fs_writes_bytes_total", Counter, "Cumulative count of bytes written.", |s| {
        Some(s.io_bytes?.1)
    }),
    (
        "container_oom_events_total",
        Counter,
        "Count of out of memory events observed for the container.",
        |s| s.oom_kills,
    ),
];

/// The metrics of a Pod's interface.
const OF_NETWORKS: [Metric<super::cgroup_stats::Interface>; 8] = [
    ("container_network_receive_bytes_total", Counter, "Cumulative count of bytes received.", |i| {
        Some(i.rx_bytes)
    }),
    ("container_network_receive_packets_total", Counter, "Cumulative count of packets received.", |i| {
        Some(i.rx_packets)
    }),
    ("container_network_receive_errors_total", Counter, "Cumulative count of errors while receiving.", |i| {
        Some(i.rx_errors)
    }),
    (
        "container_network_receive_packets_dropped_total",
        Counter,
        "Cumulative count of packets dropped while receiving.",
        |i| Some(i.rx_dropped),
    ),
    ("container_network_transmit_bytes_total", Counter, "Cumulative count of bytes transmitted.", |i| {
        Some(i.tx_bytes)
    }),
    ("container_network_transmit_packets_total", Counter, "Cumulative count of packets transmitted.", |i| {
        Some(i.tx_packets)
    }),
    (
        "container_network_transmit_errors_total",
        Counter,
        "Cumulative count of errors while transmitting.",
        |i| Some(i.tx_errors),
    ),
    (
        "container_network_transmit_packets_dropped_total",
        Counter,
        "Cumulative count of packets dropped while transmitting.",
        |i| Some(i.tx_dropped),
    ),
];

/// The descriptions of all metrics.
pub(crate) fn descriptors() -> Vec<pb::MetricDescriptor> {
    let made = |name: &str, help: &str, labels: &[&str]| pb::MetricDescriptor {
        name: name.to_owned(),
        help: help.to_owned(),
        label_keys: labels.iter().map(ToString::to_string).collect(),
    };
    let containers = OF_CONTAINERS.iter().map(|(name, _, help, _)| made(name, help, &CONTAINER));
    containers.chain(OF_NETWORKS.iter().map(|(name, _, help, _)| made(name, help, &NETWORK))).collect()
}

fn values<T>(all: &[Metric<T>], of: &T, labels: &[String], now: i64) -> Vec<pb::Metric> {
    all.iter()
        .filter_map(|(name, kind, _, value)| {
            Some(pb::Metric {
                name: (*name).to_owned(),
                timestamp: now,
                metric_type: (*kind).into(),
                label_values: labels.to_vec(),
                value: Some(pb::UInt64Value { value: value(of)? }),
            })
        })
        .collect()
}

fn of_container(
    core: &Core,
    container: &Container,
    pod: &pb::PodSandboxMetadata,
) -> Option<pb::ContainerMetrics> {
    let live = container.live()?;
    let used = live.stats();
    let config = container.record.lock().config.clone().unwrap_or_default();
    let name = config.metadata.map(|one| one.name).unwrap_or_default();
    let image = config.image.map(|one| one.user_specified_image).unwrap_or_default();
    let labels = [container.id.clone(), name.clone(), image, name, pod.name.clone(), pod.namespace.clone()];
    Some(pb::ContainerMetrics {
        container_id: container.id.clone(),
        metrics: values(&OF_CONTAINERS, &used, &labels, core.now()),
    })
}

fn of_sandbox(core: &Core, sandbox: &Arc<Sandbox>) -> pb::PodSandboxMetrics {
    let pod = sandbox.record.lock().metadata();
    let now = core.now();
    let interfaces = interfaces_of(sandbox);
    let metrics = interfaces.iter().flat_map(|interface| {
        let labels = [sandbox.id.clone(), pod.name.clone(), pod.namespace.clone(), interface.name.clone()];
        values(&OF_NETWORKS, interface, &labels, now)
    });
    let running = |one: &Arc<Container>| one.state() == pb::ContainerState::ContainerRunning;
    pb::PodSandboxMetrics {
        pod_sandbox_id: sandbox.id.clone(),
        metrics: metrics.collect(),
        container_metrics: core
            .containers_of(&sandbox.id)
            .into_iter()
            .filter(running)
            .filter_map(|one| of_container(core, &one, &pod))
            .collect(),
    }
}

/// The metrics of all sandboxes that are ready.
pub(crate) fn all(core: &Core) -> Vec<pb::PodSandboxMetrics> {
    core.sandboxes.all().iter().filter(|one| one.is_ready()).map(|one| of_sandbox(core, one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_description() {
        let descriptors = descriptors();
        let used = Stats { cpu_usage: Some(3_500_000_000), memory_usage: Some(7), ..Stats::default() };
        let labels = CONTAINER.map(str::to_owned);
        let made = values(&OF_CONTAINERS, &used, &labels, 1);
        assert_eq!(made.len(), 2);
        assert_eq!(made[0].value.unwrap().value, 3);
        for metric in &made {
            let described = descriptors.iter().find(|one| one.name == metric.name).unwrap();
            assert_eq!(described.label_keys.len(), metric.label_values.len());
        }
        let names: std::collections::HashSet<_> = descriptors.iter().map(|one| &one.name).collect();
        assert_eq!(names.len(), descriptors.len(), "no name twice");
    }
}
