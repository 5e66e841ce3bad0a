//! The metrics of policies, under upstream's names.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The buckets of both kinds of policies.
const SECONDS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// The kind of an error, as metrics name it.
pub(super) fn error_type(message: &str) -> &'static str {
    if message.starts_with("compilation") {
        "compile_error"
    } else if message.starts_with("validation failed due to running out of cost budget") {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

/// The error type of what had none.
pub(super) const NO_ERROR: &str = "no_error";

/// The labels of a check by a ValidatingAdmissionPolicy.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Validated {
    pub(super) enforcement_action: &'static str,
    pub(super) error_type: &'static str,
    pub(super) policy: String,
    pub(super) policy_binding: String,
}

/// The labels of a check by a MutatingAdmissionPolicy.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Mutated {
    pub(super) error_type: &'static str,
    pub(super) policy: String,
    pub(super) policy_binding: String,
}

/// Counts and durations of checks.
pub(super) struct Checks<L> {
    total: Family<L, Counter<u64, AtomicU64>>,
    seconds: Family<L, Histogram, fn() -> Histogram>,
}

impl<L: Clone + std::hash::Hash + Eq> Default for Checks<L> {
    fn default() -> Self {
        let make: fn() -> Histogram = || Histogram::new(SECONDS);
        Self { total: Family::default(), seconds: Family::new_with_constructor(make) }
    }
}

impl<L> Checks<L>
where
    L: Clone + std::hash::Hash + Eq + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static,
{
    /// Registers them; `kind` is `validating` or `mutating`.
    pub(super) fn register(&self, registry: &mut Registry, kind: &str) {
        registry.register(
            format!("apiserver_{kind}_admission_policy_check"),
            "Checks by policies and bindings, with what came of them",
            self.total.clone(),
        );
        registry.register(
            format!("apiserver_{kind}_admission_policy_check_duration_seconds"),
            "Seconds that single expressions of policies took",
            self.seconds.clone(),
        );
    }
    /// Notes a check.
    pub(super) fn note(&self, labels: &L, elapsed: Duration) {
        self.total.get_or_create(labels).inc();
        self.seconds.get_or_create(labels).observe(elapsed.as_secs_f64());
    }
}
