//! The metrics of calls, under upstream's names.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Took {
    name: String,
    operation: &'static str,
    rejected: &'static str,
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Asked {
    code: u16,
    name: String,
    operation: &'static str,
    rejected: &'static str,
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Rejected {
    error_type: &'static str,
    name: String,
    operation: &'static str,
    rejection_code: u16,
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Opened {
    name: String,
    r#type: &'static str,
}

type Count<L> = Family<L, Counter<u64, AtomicU64>>;

/// Upstream's bounds of the calls' seconds.
const SECONDS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// Codes above this are counted as this, so that a webhook cannot make metrics without end.
const MOST: u16 = 600;

/// The metrics of all webhooks.
pub(in crate::admission) struct Metrics {
    seconds: Family<Took, Histogram, fn() -> Histogram>,
    requests: Count<Asked>,
    rejections: Count<Rejected>,
    open: Count<Opened>,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds = Family::new_with_constructor((|| Histogram::new(SECONDS)) as fn() -> Histogram);
        Self { seconds, requests: Family::default(), rejections: Family::default(), open: Family::default() }
    }
}

fn text(of: bool) -> &'static str {
    if of { "true" } else { "false" }
}

impl Metrics {
    /// Registers them.
    pub(in crate::admission) fn register(&self, registry: &mut Registry) {
        let prefix = "apiserver_admission_webhook_";
        let name = |of: &str| format!("{prefix}{of}");
        registry.register(
            name("admission_duration_seconds"),
            "[STABLE] Admission webhook latency histogram in seconds, by name, operation and type (validate or admit)",
            self.seconds.clone(),
        );
        registry.register(
            name("request"),
            "[ALPHA] Admission webhook requests, by name, type, operation, code and whether they were rejected",
            self.requests.clone(),
        );
        registry.register(
            name("rejection_count"),
            "[ALPHA] Requests that an admission webhook rejected, by name, type, operation, error and code",
            self.rejections.clone(),
        );
        registry.register(
            name("fail_open_count"),
            "[ALPHA] Calls of admission webhooks that failed without consequence, by name and type",
            self.open.clone(),
        );
    }
    /// Counts a call.
    pub(in crate::admission) fn observe(
        &self,
        name: &str,
        step: &'static str,
        operation: &'static str,
        (code, rejected): (u16, bool),
        took: Duration,
    ) {
        let (name, rejected, r#type) = (name.to_owned(), text(rejected), step);
        let asked = Asked { code: code.min(MOST), name: name.clone(), operation, rejected, r#type };
        self.requests.get_or_create(&asked).inc();
        self.seconds.get_or_create(&Took { name, operation, rejected, r#type }).observe(took.as_secs_f64());
    }
    /// Counts a call that refused its request.
    pub(in crate::admission) fn reject(
        &self,
        name: &str,
        step: &'static str,
        operation: &'static str,
        error_type: &'static str,
        code: u16,
    ) {
        let (name, rejection_code, r#type) = (name.to_owned(), code.min(MOST), step);
        self.rejections
            .get_or_create(&Rejected { error_type, name, operation, rejection_code, r#type })
            .inc();
    }
    /// Counts a call that failed without consequence.
    pub(in crate::admission) fn fail_open(&self, name: &str, step: &'static str) {
        self.open.get_or_create(&Opened { name: name.to_owned(), r#type: step }).inc();
    }
}
