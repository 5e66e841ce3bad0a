//! Counters of the kubelet's own work: upstream's names, types, labels and bounds (`pkg/kubelet/metrics` and what it stands
//! beside in `/metrics`).
//!
//! `upstream.tsv` has all of upstream's names with our judgement: `here`, or why there is nothing to tell.

mod table;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use component::metrics::{Histogram, Page};
use parking_lot::Mutex;

pub(crate) use self::table::*;

/// The most combinations of labels of one metric: some come from Pods and plugins. Those that come later are not counted.
const MOST: usize = 2000;

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    /// With its bounds.
    Histogram(&'static [f64]),
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }

    /// The value of a series before anything is counted.
    fn first(self) -> Value {
        match self {
            Self::Counter | Self::Gauge => Value::Number(0.0),
            Self::Histogram(bounds) => Value::Histogram(Histogram::new(bounds)),
        }
    }
}

/// A metric as data.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The names of its labels, in their order.
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

#[derive(Debug, Clone)]
enum Value {
    Number(f64),
    Histogram(Histogram),
}

/// The series of a metric, by the values of its labels.
type Series = BTreeMap<Vec<String>, Value>;

/// The counters. Clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics(Arc<Mutex<HashMap<&'static str, Series>>>);

impl Metrics {
    fn change(&self, metric: &'static Metric, labels: &[&str], change: impl FnOnce(&mut Value)) {
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
        let mut all = self.0.lock();
        let series = all.entry(metric.name).or_default();
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        if series.len() >= MOST && !series.contains_key(&labels) {
            return;
        }
        change(series.entry(labels).or_insert_with(|| metric.kind.first()));
    }

    /// Counts one.
    pub(crate) fn count(&self, metric: &'static Metric, labels: &[&str]) {
        self.add(metric, labels, 1.0);
    }

    /// Adds to a counter or a gauge.
    pub(crate) fn add(&self, metric: &'static Metric, labels: &[&str], more: f64) {
        self.change(metric, labels, |value| {
            if let Value::Number(number) = value {
                *number += more;
            }
        });
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, metric: &'static Metric, labels: &[&str], now: f64) {
        self.change(metric, labels, |value| *value = Value::Number(now));
    }

    /// Sets a gauge without labels that was never set.
    pub(crate) fn set_first(&self, metric: &'static Metric, now: f64) {
        self.0.lock().entry(metric.name).or_default().entry(Vec::new()).or_insert(Value::Number(now));
    }

    /// Takes a value into a histogram.
    pub(crate) fn observe(&self, metric: &'static Metric, labels: &[&str], one: f64) {
        self.change(metric, labels, |value| {
            if let Value::Histogram(histogram) = value {
                histogram.observe(one);
            }
        });
    }

    /// Takes a time into a histogram of seconds.
    pub(crate) fn took(&self, metric: &'static Metric, labels: &[&str], time: Duration) {
        self.observe(metric, labels, time.as_secs_f64());
    }

    /// Begins a gauge anew, of which the series before do not count any more.
    pub(crate) fn reset(&self, metric: &'static Metric) {
        self.0.lock().remove(metric.name);
    }

    /// Notes when the last shutdown of the machine began and ended, in seconds since 1970, each 0 if it is not known.
    pub(crate) fn shutdown(&self, (start, end): (f64, f64)) {
        self.set(&GRACEFUL_SHUTDOWN_START_TIME_SECONDS, &[], start);
        self.set(&GRACEFUL_SHUTDOWN_END_TIME_SECONDS, &[], end);
    }

    /// Writes all of them. A metric without labels is there from the start.
    pub(crate) fn write(&self, page: &mut Page) {
        for metric in ALL {
            page.metric(metric.name, metric.kind.name(), metric.help);
            let mut series = self.0.lock().get(metric.name).cloned().unwrap_or_default();
            if metric.labels.is_empty() {
                series.entry(Vec::new()).or_insert_with(|| metric.kind.first());
            }
            for (values, value) in &series {
                let labels: Vec<(&str, &str)> =
                    metric.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                match value {
                    Value::Number(number) => page.value(metric.name, &labels, *number),
                    Value::Histogram(histogram) => page.histogram(metric.name, &labels, histogram),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, type, labels, and our judgement.
    const UPSTREAM: &str = include_str!("upstream.tsv");

    #[test]
    fn a_page() {
        let metrics = Metrics::default();
        metrics.count(&EVICTIONS, &["memory.available"]);
        metrics.count(&EVICTIONS, &["memory.available"]);
        metrics.set(&RUNNING_CONTAINERS, &["running"], 3.0);
        metrics.reset(&RUNNING_CONTAINERS);
        metrics.set(&RUNNING_CONTAINERS, &["exited"], 1.0);
        metrics.took(&POD_START_DURATION_SECONDS, &[], Duration::from_millis(700));
        for n in 0..MOST + 10 {
            metrics.count(&RUN_PODSANDBOX_ERRORS_TOTAL, &[&n.to_string()]);
        }
        let mut page = Page::default();
        metrics.write(&mut page);
        let text = page.text();
        for line in [
            "kubelet_evictions{eviction_signal=\"memory.available\"} 2",
            "kubelet_running_containers{container_state=\"exited\"} 1",
            "kubelet_pod_start_duration_seconds_bucket{le=\"0.5\"} 0",
            "kubelet_pod_start_duration_seconds_bucket{le=\"1\"} 1",
            "kubelet_started_pods_total 0",
            "kubelet_pod_start_total_duration_seconds_count 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        let bounded = text.lines().filter(|l| l.starts_with("kubelet_run_podsandbox_errors_total{")).count();
        assert_eq!((bounded, text.contains("container_state=\"running\"")), (MOST, false));
    }

    #[test]
    fn the_table_is_upstreams() {
        let upstream: HashMap<&str, Vec<&str>> = UPSTREAM
            .lines()
            .map(|line| line.split('\t').collect::<Vec<_>>())
            .map(|row| (row[0], row))
            .collect();
        for metric in ALL {
            let row =
                upstream.get(metric.name).unwrap_or_else(|| panic!("{} is not upstream's", metric.name));
            assert_eq!(
                (row[1], row[2], row[3]),
                (metric.kind.name(), metric.labels.join(",").as_str(), "here"),
                "{}",
                metric.name
            );
            assert!(metric.labels.is_sorted(), "{}", metric.name);
        }
        for row in upstream.values() {
            assert!(row.len() == 4 && !row[3].is_empty(), "{row:?}: here, or why not");
        }
    }
}
