//! The metrics of aggregation, by upstream's names.

use std::sync::atomic::AtomicU64;

use api::Text;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Name {
    name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NameAndReason {
    name: String,
    reason: String,
}

/// The metrics; clones share them.
#[derive(Clone, Default)]
pub(super) struct Metrics {
    unavailable: Family<Name, Gauge>,
    became_unavailable: Family<NameAndReason, Counter<u64, AtomicU64>>,
}

impl Metrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "aggregator_unavailable_apiservice",
            "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name",
            self.unavailable.clone(),
        );
        registry.register(
            "aggregator_unavailable_apiservice",
            "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason",
            self.became_unavailable.clone(),
        );
    }
    /// An APIService is as it is.
    pub(super) fn is(&self, name: &Text, available: bool) {
        self.unavailable.get_or_create(&Name { name: name.to_string() }).set(i64::from(!available));
    }
    /// An APIService became unavailable.
    pub(super) fn lost(&self, name: &Text, reason: &str) {
        let labels = NameAndReason { name: name.to_string(), reason: reason.to_owned() };
        self.became_unavailable.get_or_create(&labels).inc();
    }
    /// An APIService is gone.
    pub(super) fn forget(&self, name: &Text) {
        self.unavailable.remove(&Name { name: name.to_string() });
    }
}
