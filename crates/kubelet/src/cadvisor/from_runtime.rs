//! The figures of Pods as the runtime tells them (upstream: `pkg/kubelet/metrics/collectors/cri_metrics.go`, behind the gate
//! `PodAndContainerStatsFromCRI`); pure.

use std::collections::{BTreeSet, HashMap};

use component::metrics::Page;
use cri::runtime as pb;

/// Whether a text can name a metric or, without colons, a label.
fn is_name(text: &str, colons: bool) -> bool {
    let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_' || (colons && b == b':');
    let mut bytes = text.bytes();
    bytes.next().is_some_and(letter) && bytes.all(|b| letter(b) || b.is_ascii_digit())
}

/// Writes what a runtime tells of Pods. A metric that it did not describe, whose labels are not those that it described, or
/// that it tells twice, is left out: a page with it could not be read.
pub(super) fn write(page: &mut Page, described: &[pb::MetricDescriptor], pods: &[pb::PodSandboxMetrics]) {
    let named = |d: &&pb::MetricDescriptor| {
        is_name(&d.name, true) && d.label_keys.iter().all(|label| is_name(label, false))
    };
    let described: HashMap<&str, &pb::MetricDescriptor> =
        described.iter().filter(named).map(|d| (d.name.as_str(), d)).collect();
    let mut told = BTreeSet::new();
    let all = pods.iter().flat_map(|pod| {
        let of_containers = pod.container_metrics.iter().flat_map(|container| &container.metrics);
        pod.metrics.iter().chain(of_containers)
    });
    for metric in all {
        let Some(of) = described.get(metric.name.as_str()) else { continue };
        if of.label_keys.len() != metric.label_values.len() {
            continue;
        }
        let keys = of.label_keys.iter().map(String::as_str);
        let mut labels: Vec<(&str, &str)> =
            keys.zip(metric.label_values.iter().map(String::as_str)).collect();
        labels.sort_unstable();
        let twice = labels.windows(2).any(|two| two[0].0 == two[1].0);
        if twice || !told.insert((of.name.as_str(), labels.clone())) {
            continue;
        }
        let kind = match metric.metric_type() {
            pb::MetricType::Counter => "counter",
            pb::MetricType::Gauge => "gauge",
        };
        let value = metric.value.map(|value| value.value).unwrap_or_default();
        // Without a time the figure is of this moment.
        let millis = (metric.timestamp != 0).then_some(metric.timestamp / 1_000_000);
        let help = of.help.replace('\\', "\\\\").replace('\n', "\\n");
        page.metric(&of.name, kind, &help).value_at(&of.name, &labels, value as f64, millis);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(name: &str, labels: &[&str]) -> pb::MetricDescriptor {
        let label_keys = labels.iter().map(ToString::to_string).collect();
        pb::MetricDescriptor { name: name.into(), help: format!("Help of\n{name}."), label_keys }
    }

    fn metric(name: &str, kind: pb::MetricType, labels: &[&str], value: u64, timestamp: i64) -> pb::Metric {
        pb::Metric {
            name: name.into(),
            timestamp,
            metric_type: kind.into(),
            label_values: labels.iter().map(ToString::to_string).collect(),
            value: Some(pb::UInt64Value { value }),
        }
    }

    #[test]
    fn a_page() {
        use pb::MetricType::{Counter, Gauge};
        let described = [
            descriptor("container_cpu", &["pod", "id"]),
            descriptor("container_memory", &["id"]),
            descriptor("not a name", &["id"]),
            descriptor("odd_labels", &["a-b"]),
            descriptor("same_labels", &["id", "id"]),
        ];
        let of_container = vec![
            metric("container_memory", Gauge, &["c"], 7, 0),
            metric("container_memory", Gauge, &["c"], 8, 0),
            metric("container_memory", Gauge, &["c", "more"], 9, 0),
            metric("not a name", Gauge, &["c"], 1, 0),
            metric("odd_labels", Gauge, &["c"], 1, 0),
            metric("same_labels", Gauge, &["c", "c"], 1, 0),
            metric("not_described", Gauge, &["c"], 1, 0),
        ];
        let pod = pb::PodSandboxMetrics {
            pod_sandbox_id: "s".into(),
            metrics: vec![metric("container_cpu", Counter, &["p\"", "s"], 5, 1_500_000_000)],
            container_metrics: vec![pb::ContainerMetrics { container_id: "c".into(), metrics: of_container }],
        };
        let mut page = Page::default();
        write(&mut page, &described, &[pod]);
        let expected = "# HELP container_cpu Help of\\ncontainer_cpu.\n\
                        # TYPE container_cpu counter\n\
                        container_cpu{id=\"s\",pod=\"p\\\"\"} 5 1500\n\
                        # HELP container_memory Help of\\ncontainer_memory.\n\
                        # TYPE container_memory gauge\n\
                        container_memory{id=\"c\"} 7\n";
        assert_eq!(page.text(), expected);
    }
}
