//! The metrics of the controller, by upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use client::Key;
use component::metrics::{Histogram, Page};
use parking_lot::Mutex;

/// Upstream's buckets of seconds: 0.001 and on, each twice the one before.
const SECONDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// Names begin with this.
const PREFIX: &str = "horizontal_pod_autoscaler_controller";

const LABELS: &str = "The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'.";

/// The effect of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    None,
    Up,
    Down,
}

impl Action {
    /// The way from one size to another.
    pub(super) fn between(from: i32, to: i32) -> Self {
        match to.cmp(&from) {
            std::cmp::Ordering::Equal => Self::None,
            std::cmp::Ordering::Greater => Self::Up,
            std::cmp::Ordering::Less => Self::Down,
        }
    }
    fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Up => "scale_up",
            Self::Down => "scale_down",
        }
    }
}

/// The place of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    None,
    Spec,
    Internal,
}

impl Fault {
    fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Spec => "spec",
            Self::Internal => "internal",
        }
    }
}

#[derive(Default)]
struct Inner {
    looks: BTreeMap<(Action, Fault), Histogram>,
    metrics: BTreeMap<(Action, Fault, String), Histogram>,
    desired: BTreeMap<(String, String), i32>,
}

/// The numbers of the controller.
#[derive(Default)]
pub(super) struct Report(Mutex<Inner>);

impl Report {
    /// Counts a look at an autoscaler.
    pub(super) fn looked(&self, action: Action, fault: Fault, took: Duration) {
        let mut inner = self.0.lock();
        let histogram = inner.looks.entry((action, fault)).or_insert_with(|| Histogram::new(SECONDS));
        histogram.observe(took.as_secs_f64());
    }

    /// Counts the computation of one metric of a type.
    pub(super) fn measured(&self, action: Action, fault: Fault, kind: &str, took: Duration) {
        let mut inner = self.0.lock();
        let key = (action, fault, kind.to_owned());
        let histogram = inner.metrics.entry(key).or_insert_with(|| Histogram::new(SECONDS));
        histogram.observe(took.as_secs_f64());
    }

    /// Notes the size that an autoscaler wants.
    pub(super) fn desired(&self, key: &Key, replicas: i32) {
        self.0.lock().desired.insert((key.namespace.to_string(), key.name.to_string()), replicas);
    }

    /// Forgets an autoscaler.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().desired.remove(&(key.namespace.to_string(), key.name.to_string()));
    }

    /// Writes the page; there are so many autoscalers.
    pub(super) fn write(&self, page: &mut Page, autoscalers: usize) {
        let inner = self.0.lock();
        let total = format!("{PREFIX}_reconciliations_total");
        let seconds = format!("{PREFIX}_reconciliation_duration_seconds");
        let both = "Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.";
        let help = format!("[BETA] Number of reconciliations of HPA controller. {LABELS} {both}");
        page.metric(&total, "counter", &help);
        let help = format!(
            "[BETA] The time(seconds) that the HPA controller takes to reconcile once. {LABELS} {both}"
        );
        page.metric(&seconds, "histogram", &help);
        for ((action, fault), histogram) in &inner.looks {
            let labels = [("action", action.label()), ("error", fault.label())];
            page.value(&total, &labels, histogram.count() as f64);
            page.histogram(&seconds, &labels, histogram);
        }
        let total = format!("{PREFIX}_metric_computation_total");
        let seconds = format!("{PREFIX}_metric_computation_duration_seconds");
        let kinds = "The label 'metric_type' corresponds to HPA.spec.metrics[*].type";
        let help = format!("[BETA] Number of metric computations. {LABELS} {kinds}");
        page.metric(&total, "counter", &help);
        let help = format!(
            "[BETA] The time(seconds) that the HPA controller takes to calculate one metric. {LABELS} {kinds}"
        );
        page.metric(&seconds, "histogram", &help);
        for ((action, fault, kind), histogram) in &inner.metrics {
            let labels =
                [("action", action.label()), ("error", fault.label()), ("metric_type", kind.as_str())];
            page.value(&total, &labels, histogram.count() as f64);
            page.histogram(&seconds, &labels, histogram);
        }
        let name = format!("{PREFIX}_num_horizontal_pod_autoscalers");
        page.metric(&name, "gauge", "[ALPHA] Current number of controlled HPA objects.");
        page.value(&name, &[], autoscalers as f64);
        let name = format!("{PREFIX}_desired_replicas");
        page.metric(&name, "gauge", "[ALPHA] Current desired replica count for HPA objects.");
        for ((namespace, hpa), replicas) in &inner.desired {
            page.value(&name, &[("namespace", namespace), ("hpa_name", hpa)], f64::from(*replicas));
        }
    }
}
