//! The plugin's metrics, under upstream's names.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::policy::{LevelVersion, Mode, Version};
use crate::admission::{AdmissionRequest, Operation};

/// The newest version that upstream's metrics name; policies of later ones are `future`.
const OWN_MINOR: i64 = 36;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Evaluation {
    decision: &'static str,
    mode: &'static str,
    policy_level: &'static str,
    policy_version: String,
    #[prometheus(flatten)]
    target: Target,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Failure {
    fatal: &'static str,
    #[prometheus(flatten)]
    target: Target,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Target {
    request_operation: &'static str,
    resource: &'static str,
    subresource: String,
}

impl Target {
    fn of(request: &AdmissionRequest<'_>) -> Self {
        let update = request.operation == Operation::Update;
        Self {
            request_operation: if update { "update" } else { "create" },
            resource: if request.resource == "pods" { "pod" } else { "controller" },
            subresource: request.subresource.into(),
        }
    }
}

type Count<L> = Family<L, Counter<u64, AtomicU64>>;

/// The counts of evaluations, exemptions and errors.
pub(super) struct Metrics {
    evaluations: Count<Evaluation>,
    exemptions: Count<Target>,
    errors: Count<Failure>,
    /// The evaluations of new pods, and of changed ones, where nothing is forbidden: in most clusters, all evaluations.
    unrestricted: [Counter<u64, AtomicU64>; 2],
}

impl Default for Metrics {
    fn default() -> Self {
        let target =
            |request_operation, resource| Target { request_operation, resource, subresource: String::new() };
        let (evaluations, exemptions) = (Count::<Evaluation>::default(), Count::<Target>::default());
        for resource in ["pod", "controller"] {
            for operation in ["create", "update"] {
                drop(exemptions.get_or_create(&target(operation, resource)));
            }
        }
        let unrestricted = ["create", "update"].map(|operation| {
            let labels = Evaluation {
                decision: "allow",
                mode: Mode::Enforce.text(),
                policy_level: LevelVersion::PRIVILEGED.level.text(),
                policy_version: "latest".into(),
                target: target(operation, "pod"),
            };
            evaluations.get_or_create(&labels).clone()
        });
        Self { evaluations, exemptions, errors: Family::default(), unrestricted }
    }
}

impl Metrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "pod_security_evaluations",
            "[ALPHA] Number of policy evaluations that occurred, not counting ignored or exempt requests.",
            self.evaluations.clone(),
        );
        registry.register(
            "pod_security_exemptions",
            "[ALPHA] Number of exempt requests, not counting ignored or out of scope requests.",
            self.exemptions.clone(),
        );
        registry.register(
            "pod_security_errors",
            "[ALPHA] Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted profile being used for evaluation.",
            self.errors.clone(),
        );
    }
    /// Counts an evaluation of a request.
    pub(super) fn evaluated(
        &self,
        request: &AdmissionRequest<'_>,
        allowed: bool,
        of: LevelVersion,
        mode: Mode,
    ) {
        if allowed && of.is_privileged() && request.resource == "pods" && request.subresource.is_empty() {
            let [create, update] = &self.unrestricted;
            (if request.operation == Operation::Update { update } else { create }).inc();
            return;
        }
        let policy_version = match of.version {
            _ if of.is_privileged() => Version::Latest.to_string(),
            Version::Minor(minor) if minor > OWN_MINOR => "future".into(),
            version => version.to_string(),
        };
        let labels = Evaluation {
            decision: if allowed { "allow" } else { "deny" },
            mode: mode.text(),
            policy_level: of.level.text(),
            policy_version,
            target: Target::of(request),
        };
        self.evaluations.get_or_create(&labels).inc();
    }
    /// Counts a request that is exempt.
    pub(super) fn exempt(&self, request: &AdmissionRequest<'_>) {
        self.exemptions.get_or_create(&Target::of(request)).inc();
    }
    /// Counts an error; after a fatal one nothing was evaluated.
    pub(super) fn failed(&self, request: &AdmissionRequest<'_>, fatal: bool) {
        let fatal = if fatal { "true" } else { "false" };
        self.errors.get_or_create(&Failure { fatal, target: Target::of(request) }).inc();
    }
}

#[cfg(test)]
impl Metrics {
    /// The counts in the form in which they are served, without zeros.
    pub(super) fn counted(&self) -> Vec<String> {
        let mut registry = Registry::default();
        self.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
        lines.map(str::to_owned).collect()
    }
}
