//! The decisions about an autoscaler and its target (upstream: `reconcileAutoscaler`): pure.

use std::cmp::Ordering;

use api::{FeatureGates, Gate};
use client::EventType;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition as Condition,
    HorizontalPodAutoscalerStatus as Status, MetricStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::calculator::Tolerances;
use super::limits::{History, Sizes, Usual};
use super::targets::{Proposal, Unable};

const ABLE: &str = "AbleToScale";
const ACTIVE: &str = "ScalingActive";
const LIMITED: &str = "ScalingLimited";
const TO_ZERO: &str = "ScaledToZero";

/// An Event about an autoscaler.
pub(super) type Said = (EventType, &'static str, String);

/// The moment of a look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// The time of day, for what is written.
    pub(super) now: Timestamp,
    /// The time by which intervals are measured.
    pub(super) at: Instant,
}

/// The status of an autoscaler while it is looked at.
#[derive(Debug, Clone)]
pub(super) struct Look<'a> {
    pub(super) hpa: &'a HorizontalPodAutoscaler,
    pub(super) gates: FeatureGates,
    pub(super) moment: Moment,
    status: Status,
    pub(super) events: Vec<Said>,
}

/// The first decision of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Begin {
    /// Nothing: the target has no replicas, and that is left alone.
    Disabled,
    /// The target gets this size, for this reason, whatever its metrics are.
    Scale(i32, String),
    /// The metrics decide.
    Measure,
}

/// The demand of all metrics together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// The size, unless nothing can be said.
    pub(super) replicas: Option<i32>,
    /// The name of the metric that asks for it.
    pub(super) metric: String,
    pub(super) statuses: Vec<MetricStatus>,
    /// The error of those that could not be told.
    pub(super) error: Option<String>,
}

/// A change of the target's size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rescale {
    pub(super) to: i32,
    pub(super) reason: String,
}

/// The tolerances of an autoscaler.
pub(super) fn tolerances(hpa: &HorizontalPodAutoscaler, usual: f64, gates: FeatureGates) -> Tolerances {
    let behavior = hpa.spec.behavior.as_ref();
    let behavior = behavior.filter(|_| gates.enabled(Gate::HPAConfigurableTolerance));
    let own = |rules: Option<&k8s_openapi::api::autoscaling::v2::HPAScalingRules>| {
        let own = rules.and_then(|r| r.tolerance.as_ref());
        own.and_then(|t| api::quantity::Quantity::parse(&t.0).ok()).map_or(usual, |t| t.as_f64())
    };
    Tolerances {
        down: own(behavior.and_then(|b| b.scale_down.as_ref())),
        up: own(behavior.and_then(|b| b.scale_up.as_ref())),
    }
}

/// The least size of an autoscaler's target.
pub(super) fn least(hpa: &HorizontalPodAutoscaler) -> i32 {
    hpa.spec.min_replicas.unwrap_or(1)
}

fn most(hpa: &HorizontalPodAutoscaler) -> i32 {
    hpa.spec.max_replicas
}

/// Whether something besides Pods is measured, so that a metric can be told without any.
fn measures_others(hpa: &HorizontalPodAutoscaler) -> bool {
    let mut metrics = hpa.spec.metrics.iter().flatten();
    metrics.any(|m| matches!(m.type_.as_str(), "Object" | "External"))
}

impl<'a> Look<'a> {
    pub(super) fn new(hpa: &'a HorizontalPodAutoscaler, gates: FeatureGates, moment: Moment) -> Self {
        let status = hpa.status.clone().unwrap_or_default();
        Self { hpa, gates, moment, status, events: Vec::new() }
    }

    /// Sets a condition; its time changes with its status.
    fn set(&mut self, kind: &str, holds: bool, reason: &str, message: impl Into<String>) {
        let status = if holds { "True" } else { "False" };
        let all = self.status.conditions.get_or_insert_default();
        let at = all.iter().position(|c| c.type_ == kind).unwrap_or_else(|| {
            all.push(Condition { type_: kind.to_owned(), ..Condition::default() });
            all.len() - 1
        });
        let Some(condition) = all.get_mut(at) else { return };
        if condition.status != status {
            condition.last_transition_time = Some(Time(whole(self.moment.now)));
        }
        status.clone_into(&mut condition.status);
        condition.reason = Some(reason.to_owned());
        condition.message = Some(message.into());
    }

    fn remove(&mut self, kind: &str) {
        if let Some(all) = &mut self.status.conditions {
            all.retain(|c| c.type_ != kind);
        }
    }

    fn warn(&mut self, reason: &'static str, message: impl Into<String>) {
        self.events.push((EventType::Warning, reason, message.into()));
    }

    /// The status to write, if it is another one.
    pub(super) fn changed(&self) -> Option<&Status> {
        let old = self.hpa.status.clone().unwrap_or_default();
        (old != self.status).then_some(&self.status)
    }

    /// The target's scale cannot be read.
    pub(super) fn no_scale(&mut self, why: &str) {
        self.warn("FailedGetScale", why);
        let text = format!("the HPA controller was unable to get the target's current scale: {why}");
        self.set(ABLE, false, "FailedGetScale", text);
    }

    /// The target has a scale with so many wanted replicas.
    pub(super) fn begin(&mut self, current: i32) -> Begin {
        let text = "the HPA controller was able to get the target's current scale";
        self.set(ABLE, true, "SucceededGetScale", text);
        let (least, most) = (least(self.hpa), most(self.hpa));
        if current == 0 {
            return self.begin_at_zero(least);
        }
        if current > most {
            return Begin::Scale(most, "Current number of replicas above Spec.MaxReplicas".to_owned());
        }
        if current < least {
            return Begin::Scale(least, "Current number of replicas below Spec.MinReplicas".to_owned());
        }
        Begin::Measure
    }

    fn begin_at_zero(&mut self, least: i32) -> Begin {
        let own_doing = self.went_to_zero();
        if own_doing && (least != 0 || measures_others(self.hpa)) {
            return Begin::Measure;
        }
        let text = "scaling is disabled since the replica count of the target is zero";
        self.set(ACTIVE, false, "ScalingDisabled", text);
        if !self.gates.enabled(Gate::HPAScaleToZero) {
            self.remove(TO_ZERO);
        }
        Begin::Disabled
    }

    /// Whether the target has no replicas because the autoscaler took them.
    fn went_to_zero(&self) -> bool {
        let said = self.status.conditions.iter().flatten().find(|c| c.type_ == TO_ZERO);
        self.gates.enabled(Gate::HPAScaleToZero) && said.is_some_and(|c| c.status == "True")
    }

    /// The scale has no selector, or a wrong one, or one that selects the Pods of others, too.
    pub(super) fn bad_selector(&mut self, reason: &'static str, why: &str) -> Measured {
        self.warn(reason, why);
        if reason == "SelectorRequired" {
            self.set(ACTIVE, false, "InvalidSelector", "the HPA target's scale is missing a selector");
        } else {
            self.set(ACTIVE, false, reason, why);
        }
        Measured { replicas: None, metric: String::new(), statuses: Vec::new(), error: Some(why.to_owned()) }
    }

    /// Puts what the metrics ask for together: the greatest size counts. If some of them cannot be told, the target does
    /// not get smaller.
    pub(super) fn measured(&mut self, wanted: i32, metrics: Vec<Result<Proposal, Unable>>) -> Measured {
        let count = metrics.len();
        let (mut replicas, mut metric) = (0, String::new());
        let (mut statuses, mut wrong): (Vec<MetricStatus>, Vec<Unable>) = (Vec::new(), Vec::new());
        for made in metrics {
            match made {
                Ok(proposal) => {
                    statuses.push(proposal.status);
                    if replicas == 0 || proposal.replicas > replicas {
                        (replicas, metric) = (proposal.replicas, proposal.name);
                    }
                }
                Err(unable) => {
                    self.warn(unable.reason, unable.cause.clone());
                    statuses.push(MetricStatus::default());
                    wrong.push(unable);
                }
            }
        }
        let error = wrong.first().map(|first| {
            format!(
                "invalid metrics ({} invalid out of {count}), first error is: {}",
                wrong.len(),
                first.error
            )
        });
        if let Some(first) = wrong.first()
            && (wrong.len() >= count || replicas < wanted)
        {
            let text = format!("the HPA was unable to compute the replica count: {}", first.cause);
            self.set(ACTIVE, false, first.reason, text);
            return Measured { replicas: None, metric: String::new(), statuses, error };
        }
        let text = format!("the HPA was able to successfully calculate a replica count from {metric}");
        self.set(ACTIVE, true, "ValidMetricFound", text);
        Measured { replicas: Some(replicas), metric, statuses, error }
    }

    /// The metrics say nothing.
    pub(super) fn unmeasured(&mut self, current: i32, statuses: Vec<MetricStatus>, error: &str) {
        self.finish(current, self.status.desired_replicas, statuses, false);
        self.warn("FailedComputeMetricsReplicas", error);
    }

    /// Limits the size that the metrics ask for.
    pub(super) fn limited(
        &mut self,
        current: i32,
        measured: &Measured,
        history: &mut History,
        usual: Usual,
    ) -> Option<Rescale> {
        let (least, most) = (least(self.hpa), most(self.hpa));
        let desired = measured.replicas.unwrap_or(0).max(0);
        let mut reason = match desired.cmp(&current) {
            Ordering::Greater => format!("{} above target", measured.metric),
            Ordering::Less => "All metrics below target".to_owned(),
            Ordering::Equal => String::new(),
        };
        let behavior = self.hpa.spec.behavior.as_ref();
        let sizes = Sizes { min: least, max: most, current, desired };
        let limited = history.limit(sizes, behavior, usual, self.moment.at);
        self.set(ABLE, true, limited.able.0, limited.able.1);
        self.set(LIMITED, limited.limited, limited.limit.0, limited.limit.1);
        let mut to = limited.size;
        if current == 0 && self.went_to_zero() && to < least {
            to = least;
            if reason.is_empty() {
                "Current number of replicas below Spec.MinReplicas".clone_into(&mut reason);
            }
        }
        (to != current).then_some(Rescale { to, reason })
    }

    /// The target could not get another size.
    pub(super) fn not_rescaled(
        &mut self,
        current: i32,
        rescale: &Rescale,
        statuses: Vec<MetricStatus>,
        why: &str,
    ) {
        let Rescale { to, reason } = rescale;
        self.warn("FailedRescale", format!("New size: {to}; reason: {reason}; error: {why}"));
        let text = format!("the HPA controller was unable to update the target scale: {why}");
        self.set(ABLE, false, "FailedUpdateScale", text);
        self.finish(current, self.status.desired_replicas, statuses, false);
    }

    /// The target got another size.
    pub(super) fn rescaled(&mut self, current: i32, rescale: &Rescale, statuses: Vec<MetricStatus>) {
        let Rescale { to, reason } = rescale;
        let text = format!("the HPA controller was able to update the target scale to {to}");
        self.set(ABLE, true, "SucceededRescale", text);
        let text = format!("New size: {to}; reason: {reason}");
        self.events.push((EventType::Normal, "SuccessfulRescale", text));
        if !self.gates.enabled(Gate::HPAScaleToZero) {
            self.remove(TO_ZERO);
        } else if current > 0 && *to == 0 && least(self.hpa) == 0 && measures_others(self.hpa) {
            let text = "the HPA controller scaled the workload to zero";
            self.set(TO_ZERO, true, "ScaledToZero", text);
        } else {
            let text = "the HPA controller did not scale the workload to zero";
            self.set(TO_ZERO, false, "NotScaledToZero", text);
        }
        self.finish(current, *to, statuses, true);
    }

    /// The target keeps its size.
    pub(super) fn kept(&mut self, current: i32, statuses: Vec<MetricStatus>) {
        self.finish(current, current, statuses, false);
    }

    fn finish(&mut self, current: i32, desired: i32, statuses: Vec<MetricStatus>, rescaled: bool) {
        // As upstream's type has it: none is not written.
        self.status.current_replicas = Some(current).filter(|n| *n != 0);
        self.status.observed_generation = None;
        self.status.desired_replicas = desired;
        self.status.current_metrics = (!statuses.is_empty()).then_some(statuses);
        if rescaled {
            self.status.last_scale_time = Some(Time(whole(self.moment.now)));
        }
    }
}

/// Times are stored in whole seconds.
fn whole(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
