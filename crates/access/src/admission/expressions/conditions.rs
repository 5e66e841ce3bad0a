//! Match conditions of policies and webhooks (upstream: `plugin/webhook/matchconditions`).

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cel::admission::Parts;
use cel::{Environment, MATCH_CONDITIONS_BUDGET, Type, Value, Version};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Expression, Scope};
use crate::admission::Operation;

/// `MatchCondition`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::admission) struct Condition {
    name: String,
    expression: String,
}

/// The conditions of a policy or a webhook.
#[derive(Debug)]
pub(in crate::admission) struct Conditions {
    all: Vec<Expression>,
    /// Whether what cannot be evaluated fails the request; it is no match otherwise.
    fails: bool,
}

/// Whether a request meets conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::admission) enum Met {
    /// All hold.
    Yes,
    /// One does not hold.
    No,
    /// They cannot be evaluated; upstream's text.
    Failed(String),
}

/// The one whose conditions are asked, for the metrics.
#[derive(Debug, Clone, Copy)]
pub(in crate::admission) struct Named<'a> {
    /// `webhook` or `policy`.
    pub(in crate::admission) kind: &'static str,
    /// `validate` or `admit`.
    pub(in crate::admission) step: &'static str,
    pub(in crate::admission) name: &'a str,
    pub(in crate::admission) operation: Operation,
}

impl Conditions {
    /// Compiles conditions. `fails` says whether the failure policy is `Fail`.
    pub(in crate::admission) fn new(env: &Environment, of: &[Condition], fails: bool) -> Self {
        let all = of.iter().map(|c| Expression::new(env, &c.expression, &[Type::Bool])).collect();
        Self { all, fails }
    }
    /// Compiles the conditions of a webhook.
    pub(in crate::admission) fn of_webhook(of: &[Condition], fails: bool) -> Self {
        static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
        let parts = Parts { params: false, authorizer: true, mutations: false };
        let env = ENVIRONMENT.get_or_init(|| cel::admission::admission(Version::STORED, parts));
        Self::new(env, of, fails)
    }
    /// Whether there is one, so that something has to be evaluated.
    pub(in crate::admission) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    /// Asks the conditions. One that does not hold decides, whatever became of others.
    pub(in crate::admission) async fn met(&self, scope: &Scope<'_>, metrics: &Metrics, of: Named<'_>) -> Met {
        if self.is_empty() {
            return Met::Yes;
        }
        let began = Instant::now();
        let met = self.ask(scope, metrics, of).await;
        metrics.asked(of, began.elapsed());
        match met {
            Met::Failed(_) if !self.fails => Met::No,
            met => met,
        }
    }

    async fn ask(&self, scope: &Scope<'_>, metrics: &Metrics, of: Named<'_>) -> Met {
        let mut left = MATCH_CONDITIONS_BUDGET;
        let mut values = Vec::with_capacity(self.all.len());
        for expression in &self.all {
            match scope.evaluate(expression, &mut left).await {
                Ok(evaluated) => values.push(evaluated.value),
                Err(end) => return Met::Failed(end.to_string()),
            }
        }
        let mut failed: Vec<String> = Vec::new();
        for value in values {
            match value {
                Ok(Value::Bool(false)) => return Met::No,
                Ok(_) => {}
                Err(why) => {
                    metrics.failed(of);
                    if !failed.contains(&why) {
                        failed.push(why);
                    }
                }
            }
        }
        match &failed[..] {
            [] => Met::Yes,
            [one] => Met::Failed(one.clone()),
            all => Met::Failed(format!("[{}]", all.join(", "))),
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    name: String,
    kind: &'static str,
    r#type: &'static str,
    operation: &'static str,
}

impl Labels {
    fn of(named: Named<'_>) -> Self {
        let Named { kind, step, name, operation } = named;
        Self { name: name.into(), kind, r#type: step, operation: operation.name() }
    }
}

type Seconds = Family<Labels, Histogram, fn() -> Histogram>;

/// The metrics of match conditions, under upstream's names. Clones count together.
#[derive(Clone)]
pub(in crate::admission) struct Metrics {
    errors: Family<Labels, Counter<u64, AtomicU64>>,
    exclusions: Family<Labels, Counter<u64, AtomicU64>>,
    seconds: Seconds,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds =
            Seconds::new_with_constructor(|| Histogram::new([0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25]));
        Self { errors: Family::default(), exclusions: Family::default(), seconds }
    }
}

impl Metrics {
    /// Registers them.
    pub(in crate::admission) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_admission_match_condition_evaluation_errors",
            "Match conditions of webhooks and policies that could not be evaluated",
            self.errors.clone(),
        );
        registry.register(
            "apiserver_admission_match_condition_exclusions",
            "Requests about which a webhook was not asked because of its match conditions",
            self.exclusions.clone(),
        );
        registry.register(
            "apiserver_admission_match_condition_evaluation_seconds",
            "Seconds that the match conditions of a webhook or a policy took",
            self.seconds.clone(),
        );
    }
    fn failed(&self, of: Named<'_>) {
        self.errors.get_or_create(&Labels::of(of)).inc();
    }
    fn asked(&self, of: Named<'_>, elapsed: Duration) {
        self.seconds.get_or_create(&Labels::of(of)).observe(elapsed.as_secs_f64());
    }
    /// Counts a request about which a webhook was not asked because of its conditions.
    pub(in crate::admission) fn excluded(&self, of: Named<'_>) {
        self.exclusions.get_or_create(&Labels::of(of)).inc();
    }
}
