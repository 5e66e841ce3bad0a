//! The time that admission takes: of each plugin, and of each step as a whole, under upstream's names.
//!
//! A write passes some twenty plugins, so a measurement is one look at the clock and two additions: no lock, no lookup.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::Operation;

/// Upstream's bounds of the buckets, in seconds.
const BOUNDS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

/// The steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Changes objects, or refuses them.
    Admit,
    /// Refuses them.
    Validate,
}

const STEPS: [(Step, &str); 2] = [(Step::Admit, "admit"), (Step::Validate, "validate")];
const OPERATIONS: [Operation; 4] =
    [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

/// The letters of the operations, in the order of [`OPERATIONS`], in the table below.
const LETTERS: &str = "CUDX";

/// The plugins with the operations in which each is asked to admit, and those in which it is asked to validate: what
/// upstream's plugins handle.
const HANDLED: [(&str, &str, &str); 41] = [
    ("AlwaysAdmit", "CUDX", "CUDX"),
    ("NamespaceAutoProvision", "C", ""),
    ("NamespaceLifecycle", "CUD", ""),
    ("NamespaceExists", "", "CUD"),
    ("LimitPodHardAntiAffinityTopology", "", "CU"),
    ("LimitRanger", "CU", "CU"),
    ("ServiceAccount", "CU", "CU"),
    ("NodeRestriction", "CUD", ""),
    ("TaintNodesByCondition", "C", ""),
    ("AlwaysPullImages", "CU", "CU"),
    ("ImagePolicyWebhook", "", "CU"),
    ("PodSecurity", "", "CU"),
    ("PodNodeSelector", "C", "C"),
    ("Priority", "CUD", "CUD"),
    ("DefaultTolerationSeconds", "CU", ""),
    ("PodTolerationRestriction", "CU", "CU"),
    ("EventRateLimit", "", "CU"),
    ("ExtendedResourceToleration", "CU", ""),
    ("DefaultStorageClass", "C", ""),
    ("StorageObjectInUseProtection", "C", ""),
    ("PodGroupProtection", "C", ""),
    ("OwnerReferencesPermissionEnforcement", "", "CU"),
    ("PersistentVolumeClaimResize", "", "U"),
    ("RuntimeClass", "C", "C"),
    ("CertificateApproval", "", "U"),
    ("CertificateSigning", "", "U"),
    ("ClusterTrustBundleAttest", "", "CU"),
    ("CertificateSubjectRestriction", "", "C"),
    ("DefaultIngressClass", "C", ""),
    ("DenyServiceExternalIPs", "", "CU"),
    ("PodTopologyLabels", "C", ""),
    ("PodGroupWorkloadExists", "", "C"),
    ("NodeDeclaredFeatureValidator", "", "U"),
    ("JobValidation", "", "U"),
    ("PodResizeValidator", "", "U"),
    ("MutatingAdmissionPolicy", "CUX", ""),
    ("MutatingAdmissionWebhook", "CUDX", ""),
    ("ValidatingAdmissionPolicy", "", "CUDX"),
    ("ValidatingAdmissionWebhook", "", "CUDX"),
    ("ResourceQuota", "", "CU"),
    ("AlwaysDeny", "CUDX", "CUDX"),
];

/// One histogram.
#[derive(Debug, Default)]
struct Counts {
    /// By bucket, the last without a bound.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Counts {
    fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// Histograms by step, operation, and whether the request was refused.
type Table = [[[Counts; 2]; OPERATIONS.len()]; STEPS.len()];

fn counts(table: &Table, step: Step, operation: Operation, rejected: bool) -> Option<&Counts> {
    let step = STEPS.iter().position(|(s, _)| *s == step)?;
    let operation = OPERATIONS.iter().position(|o| *o == operation)?;
    table.get(step)?.get(operation)?.get(usize::from(rejected))
}

/// The times of one plugin.
#[derive(Debug)]
struct OfPlugin {
    name: &'static str,
    admit: &'static str,
    validate: &'static str,
    table: Table,
}

/// The times of all plugins that are on; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Durations {
    plugins: Arc<[OfPlugin]>,
    steps: Arc<Table>,
}

/// A step that is under way.
pub(super) struct Running<'a> {
    durations: &'a Durations,
    step: Step,
    operation: Operation,
    began: Instant,
    /// When the last plugin was done.
    last: Instant,
}

impl Durations {
    /// Of these plugins.
    pub(super) fn new(names: impl Iterator<Item = &'static str>) -> Self {
        let of = |name| {
            let known = HANDLED.iter().find(|(known, ..)| *known == name);
            let (_, admit, validate) = known.copied().unwrap_or((name, "", ""));
            OfPlugin { name, admit, validate, table: Table::default() }
        };
        Self { plugins: names.map(of).collect(), steps: Arc::default() }
    }

    /// Begins a step.
    pub(super) fn begin(&self, step: Step, operation: Operation) -> Running<'_> {
        let began = Instant::now();
        Running { durations: self, step, operation, began, last: began }
    }

    /// Registers them.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl Running<'_> {
    /// The plugin of this number is done.
    pub(super) fn done<E>(&mut self, plugin: usize, outcome: &Result<(), E>) {
        let Some(of) = self.durations.plugins.get(plugin) else { return };
        let handled = if self.step == Step::Admit { of.admit } else { of.validate };
        let letter = OPERATIONS.iter().zip(LETTERS.chars()).find(|(o, _)| **o == self.operation);
        if !letter.is_some_and(|(_, letter)| handled.contains(letter)) {
            return;
        }
        let now = Instant::now();
        if let Some(counts) = counts(&of.table, self.step, self.operation, outcome.is_err()) {
            counts.observe(now.duration_since(self.last));
        }
        self.last = now;
    }
    /// The step is done.
    pub(super) fn end<E>(&self, outcome: &Result<(), E>) {
        let counts = counts(&self.durations.steps, self.step, self.operation, outcome.is_err());
        if let Some(counts) = counts {
            counts.observe(self.began.elapsed());
        }
    }
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabels {
    operation: &'static str,
    rejected: &'static str,
    r#type: &'static str,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PluginLabels {
    name: &'static str,
    operation: &'static str,
    rejected: &'static str,
    r#type: &'static str,
}

/// The histograms of a table that have values, with their labels.
fn filled(table: &Table) -> impl Iterator<Item = (StepLabels, &Counts)> {
    let steps = STEPS.iter().zip(table);
    let operations = steps.flat_map(|(step, all)| OPERATIONS.iter().zip(all).map(move |o| (step.1, o)));
    let all = operations.flat_map(|(r#type, (operation, all))| {
        ["false", "true"].into_iter().zip(all).map(move |(rejected, counts)| {
            (StepLabels { operation: operation.name(), rejected, r#type }, counts)
        })
    });
    all.filter(|(_, counts)| counts.buckets.iter().any(|bucket| bucket.load(Ordering::Relaxed) > 0))
}

fn encode<L: EncodeLabelSet>(
    out: &mut prometheus_client::encoding::MetricEncoder<'_>,
    labels: &L,
    counts: &Counts,
) -> fmt::Result {
    let bounds = BOUNDS.into_iter().chain([f64::MAX]);
    let buckets: Vec<(f64, u64)> =
        bounds.zip(&counts.buckets).map(|(bound, count)| (bound, count.load(Ordering::Relaxed))).collect();
    let count = buckets.iter().map(|(_, count)| count).sum();
    let sum = Duration::from_nanos(counts.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
    out.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

impl Collector for Durations {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = out.encode_descriptor(
            "apiserver_admission_step_admission_duration_seconds",
            "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit)",
            None::<&Unit>,
            MetricType::Histogram,
        )?;
        for (labels, counts) in filled(&self.steps) {
            encode(&mut family, &labels, counts)?;
        }
        let mut family = out.encode_descriptor(
            "apiserver_admission_controller_admission_duration_seconds",
            "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit)",
            None::<&Unit>,
            MetricType::Histogram,
        )?;
        for plugin in &*self.plugins {
            for (StepLabels { operation, rejected, r#type }, counts) in filled(&plugin.table) {
                let labels = PluginLabels { name: plugin.name, operation, rejected, r#type };
                encode(&mut family, &labels, counts)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    #[test]
    fn every_plugin_is_known() {
        let known: Vec<&str> = HANDLED.iter().map(|(name, ..)| *name).collect();
        assert_eq!(known, super::super::chain::all_names().collect::<Vec<_>>());
        let letters = |text: &str| text.chars().all(|c| LETTERS.contains(c));
        assert!(HANDLED.iter().all(|(_, admit, validate)| letters(admit) && letters(validate)));
    }

    #[test]
    fn what_handles_a_request_is_counted() {
        let durations = Durations::new(["NamespaceLifecycle", "ResourceQuota"].into_iter());
        let mut registry = Registry::default();
        durations.register(&mut registry);
        let page = || {
            let mut page = String::new();
            text::encode(&mut page, &registry).unwrap();
            page
        };
        assert!(!page().contains("_count"), "{}", page());
        let mut running = durations.begin(Step::Admit, Operation::Create);
        running.done::<()>(0, &Ok(()));
        running.done::<()>(1, &Ok(()));
        running.done::<()>(9, &Ok(()));
        running.end::<()>(&Ok(()));
        let mut running = durations.begin(Step::Validate, Operation::Update);
        running.done(1, &Err(()));
        running.end(&Err(()));
        let page = page();
        let has = |line: &str| assert!(page.contains(line), "{line}\n{page}");
        has(
            "apiserver_admission_step_admission_duration_seconds_count{operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 1",
        );
        has(
            "apiserver_admission_step_admission_duration_seconds_count{operation=\"UPDATE\",rejected=\"true\",type=\"validate\"} 1",
        );
        has(
            "apiserver_admission_controller_admission_duration_seconds_count{name=\"NamespaceLifecycle\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 1",
        );
        has(
            "apiserver_admission_controller_admission_duration_seconds_count{name=\"ResourceQuota\",operation=\"UPDATE\",rejected=\"true\",type=\"validate\"} 1",
        );
        assert_eq!(page.matches("controller_admission_duration_seconds_count").count(), 2, "{page}");
    }
}
