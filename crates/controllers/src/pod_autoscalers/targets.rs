//! The metrics of an autoscaler: their questions, and the replicas that answers lead to.

use api::quantity::Quantity as Amount;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, CrossVersionObjectReference, ExternalMetricStatus, MetricIdentifier,
    MetricSpec, MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricStatus, PodsMetricStatus,
    ResourceMetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use objects::Selector;
use objects::quantity::from_milli;

use super::calculator::{Calculator, PodMetrics, sum};
use crate::common::printed::printed;

/// The question for a metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Question<'a> {
    /// The use of a resource by the Pods; `container` is "" for whole Pods.
    Resource { container: &'a str, resource: &'a str },
    /// A metric of the Pods, where it has these labels.
    Pods { metric: &'a str, labels: String },
    /// A metric of an object.
    Object { metric: &'a str, labels: String, of: &'a CrossVersionObjectReference },
    /// A metric of something outside the cluster.
    External { metric: &'a str, labels: String },
}

/// An answer. Values are in thousandths.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// Of Pods.
    Pods(PodMetrics),
    /// Of one object.
    One(i64),
    /// Of several series.
    Several(Vec<i64>),
}

/// The replicas that a metric asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// The metric's name in reasons.
    pub(super) name: String,
    pub(super) status: MetricStatus,
}

/// Why a metric asks for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unable {
    /// The reason of the Event and of the condition.
    pub(super) reason: &'static str,
    /// The text of the Event and of the condition.
    pub(super) cause: String,
    /// The text of the error.
    pub(super) error: String,
    /// Whether the autoscaler itself is wrong.
    pub(super) is_spec: bool,
}

/// The reason why a kind of metric asks for nothing.
fn reason(spec: &MetricSpec) -> &'static str {
    match spec.type_.as_str() {
        "Resource" => "FailedGetResourceMetric",
        "ContainerResource" => "FailedGetContainerResourceMetric",
        "Pods" => "FailedGetPodsMetric",
        "Object" => "FailedGetObjectMetric",
        "External" => "FailedGetExternalMetric",
        _ => "InvalidMetricSourceType",
    }
}

/// Wraps a failure as upstream does for its kind of metric.
pub(super) fn unable(spec: &MetricSpec, cause: String) -> Unable {
    let error = match spec.type_.as_str() {
        "Object" => format!("failed to get object metric value: {cause}"),
        "Pods" => format!("failed to get pods metric value: {cause}"),
        "Resource" => {
            let name = spec.resource.as_ref().map_or("", |r| &r.name);
            format!("failed to get {name} resource metric value: {cause}")
        }
        "ContainerResource" => {
            let name = spec.container_resource.as_ref().map_or("", |r| &r.container);
            format!("failed to get {name} container metric value: {cause}")
        }
        "External" => {
            let name = spec.external.as_ref().map_or("", |e| &e.metric.name);
            format!("failed to get {name} external metric value: {cause}")
        }
        _ => cause.clone(),
    };
    Unable { reason: reason(spec), cause, error, is_spec: reason(spec) == "InvalidMetricSourceType" }
}

/// The text of the selector of a metric.
fn labels(metric: &MetricIdentifier) -> Result<String, String> {
    Selector::new(metric.selector.as_ref()).map(|s| s.to_string()).map_err(|e| e.to_string())
}

const MISSING: &str = "the source of the metric is missing";

fn source<T>(source: Option<&T>) -> Result<&T, String> {
    source.ok_or_else(|| MISSING.to_owned())
}

/// The question for a metric.
pub(super) fn question(spec: &MetricSpec) -> Result<Question<'_>, Unable> {
    ask(spec).map_err(|cause| unable(spec, cause))
}

fn ask(spec: &MetricSpec) -> Result<Question<'_>, String> {
    let averages =
        |target: &MetricTarget| target.average_value.is_some() || target.average_utilization.is_some();
    const NO_RESOURCE_TARGET: &str = "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set";
    Ok(match spec.type_.as_str() {
        "Resource" => {
            let of = source(spec.resource.as_ref())?;
            if !averages(&of.target) {
                return Err(NO_RESOURCE_TARGET.to_owned());
            }
            Question::Resource { container: "", resource: &of.name }
        }
        "ContainerResource" => {
            let of = source(spec.container_resource.as_ref())?;
            if !averages(&of.target) {
                return Err(NO_RESOURCE_TARGET.to_owned());
            }
            Question::Resource { container: &of.container, resource: &of.name }
        }
        "Pods" => {
            let of = source(spec.pods.as_ref())?;
            Question::Pods { metric: &of.metric.name, labels: labels(&of.metric)? }
        }
        "Object" => {
            let of = source(spec.object.as_ref())?;
            let labels = labels(&of.metric)?;
            let set = match of.target.type_.as_str() {
                "Value" => of.target.value.is_some(),
                "AverageValue" => of.target.average_value.is_some(),
                _ => false,
            };
            if !set {
                return Err("invalid object metric source: neither a value target nor an average value target was set".to_owned());
            }
            Question::Object { metric: &of.metric.name, labels, of: &of.described_object }
        }
        "External" => {
            let of = source(spec.external.as_ref())?;
            let is_average = of.target.average_value.is_some();
            if !is_average && of.target.value.is_none() {
                return Err("invalid external metric source: neither a value target nor an average value target was set".to_owned());
            }
            let labels =
                labels(&of.metric).map_err(|why| wrap_external(&of.metric.name, is_average, &why))?;
            Question::External { metric: &of.metric.name, labels }
        }
        other => return Err(format!("unknown metric source type {}", api::go::quote(other))),
    })
}

fn wrap_external(name: &str, is_average: bool, why: &str) -> String {
    if is_average {
        format!("failed to get {name} external metric: {why}")
    } else {
        format!("failed to get external metric {name}: {why}")
    }
}

/// Wraps the failure of a question as upstream does.
pub(super) fn unanswered(spec: &MetricSpec, namespace: &str, why: &str) -> Unable {
    let of_resource = |resource: &str, target: &MetricTarget, why: &str| {
        let what = if target.average_value.is_some() { "usage" } else { "utilization" };
        format!("failed to get {resource} {what}: unable to get metrics for resource {resource}: {why}")
    };
    let cause = match (&spec.resource, &spec.container_resource, &spec.pods, &spec.object, &spec.external) {
        (Some(of), ..) if spec.type_ == "Resource" => of_resource(&of.name, &of.target, why),
        (_, Some(of), ..) if spec.type_ == "ContainerResource" => of_resource(&of.name, &of.target, why),
        (_, _, Some(of), ..) if spec.type_ == "Pods" => {
            format!("unable to get metric {}: {why}", of.metric.name)
        }
        (_, _, _, Some(of), _) if spec.type_ == "Object" => {
            let (metric, object) = (&of.metric.name, &of.described_object);
            let why = format!(
                "unable to get metric {metric}: {why} on {} {namespace}/{}",
                object.kind, object.name
            );
            if of.target.type_ == "Value" {
                why
            } else {
                format!("failed to get {metric} object metric: {why}")
            }
        }
        (.., Some(of)) if spec.type_ == "External" => {
            let (metric, selector) = (&of.metric.name, printed(of.metric.selector.as_ref()));
            let why = format!("unable to get external metric {namespace}/{metric}/{selector}: {why}");
            wrap_external(metric, of.target.average_value.is_some(), &why)
        }
        _ => why.to_owned(),
    };
    unable(spec, cause)
}

fn target_milli(quantity: Option<&Quantity>) -> i64 {
    objects::quantity::milli(quantity)
}

/// An amount of a resource as its status shows it: memory with binary suffixes.
fn resource_quantity(resource: &str, milli: i64) -> Quantity {
    if resource == "memory" && milli % 1000 == 0 {
        Quantity(Amount::from_bytes(milli / 1000).to_string())
    } else {
        value_quantity(milli)
    }
}

/// An amount in upstream's canonical form.
fn value_quantity(milli: i64) -> Quantity {
    let plain = from_milli(milli);
    Quantity(Amount::parse(&plain.0).map_or(plain.0, |amount| amount.to_string()))
}

fn average(quantity: Quantity) -> MetricValueStatus {
    MetricValueStatus { average_value: Some(quantity), ..MetricValueStatus::default() }
}

fn total(quantity: Quantity) -> MetricValueStatus {
    MetricValueStatus { value: Some(quantity), ..MetricValueStatus::default() }
}

/// The replicas that an answer leads to.
pub(super) fn proposal(
    spec: &MetricSpec,
    answer: Answer,
    calculator: &Calculator<'_>,
) -> Result<Proposal, Unable> {
    let made = match (answer, spec.type_.as_str()) {
        (Answer::Pods(metrics), "Resource" | "ContainerResource") => of_resource(spec, metrics, calculator),
        (Answer::Pods(metrics), "Pods") => of_pods(spec, metrics, calculator),
        (Answer::One(value), "Object") => of_object(spec, value, calculator),
        (Answer::Several(values), "External") => of_external(spec, &values, calculator),
        _ => Err("the answer is of another metric".to_owned()),
    };
    made.map_err(|cause| unable(spec, cause))
}

fn of_resource(
    spec: &MetricSpec,
    metrics: PodMetrics,
    calculator: &Calculator<'_>,
) -> Result<Proposal, String> {
    let is_container = spec.type_ == "ContainerResource";
    let (resource, container, target) = match (&spec.resource, &spec.container_resource) {
        (Some(of), _) if !is_container => (of.name.as_str(), "", &of.target),
        (_, Some(of)) if is_container => (of.name.as_str(), of.container.as_str(), &of.target),
        _ => return Err(MISSING.to_owned()),
    };
    let (replicas, name, current) = if target.average_value.is_some() {
        let made = calculator
            .of_values(metrics, resource, target_milli(target.average_value.as_ref()))
            .map_err(|why| format!("failed to get {resource} usage: {why}"))?;
        let current = average(resource_quantity(resource, made.usage));
        (made.replicas, format!("{resource} resource"), current)
    } else {
        let wanted = target.average_utilization.unwrap_or(0);
        let made = calculator
            .of_resource(metrics, (container, resource), wanted)
            .map_err(|why| format!("failed to get {resource} utilization: {why}"))?;
        let kind = if is_container { "container resource" } else { "resource" };
        let name = format!("{resource} {kind} utilization (percentage of request)");
        let current = MetricValueStatus {
            average_utilization: Some(made.utilization),
            ..average(resource_quantity(resource, made.average))
        };
        (made.replicas, name, current)
    };
    let mut status = MetricStatus { type_: spec.type_.clone(), ..MetricStatus::default() };
    if is_container {
        let (name, container) = (resource.to_owned(), container.to_owned());
        status.container_resource = Some(ContainerResourceMetricStatus { container, current, name });
    } else {
        status.resource = Some(ResourceMetricStatus { current, name: resource.to_owned() });
    }
    Ok(Proposal { replicas, name, status })
}

fn of_pods(spec: &MetricSpec, metrics: PodMetrics, calculator: &Calculator<'_>) -> Result<Proposal, String> {
    let of = source(spec.pods.as_ref())?;
    let made = calculator.of_values(metrics, "", target_milli(of.target.average_value.as_ref()))?;
    let current = average(value_quantity(made.usage));
    let status = MetricStatus {
        type_: spec.type_.clone(),
        pods: Some(PodsMetricStatus { current, metric: of.metric.clone() }),
        ..MetricStatus::default()
    };
    Ok(Proposal { replicas: made.replicas, name: format!("pods metric {}", of.metric.name), status })
}

fn of_object(spec: &MetricSpec, value: i64, calculator: &Calculator<'_>) -> Result<Proposal, String> {
    let of = source(spec.object.as_ref())?;
    let (made, current, name) = if of.target.type_ == "Value" {
        let made = calculator.of_total(value, target_milli(of.target.value.as_ref()))?;
        let name = format!("{} metric {}", of.described_object.kind, of.metric.name);
        (made, total(value_quantity(made.usage)), name)
    } else {
        let made = calculator.of_share(value, target_milli(of.target.average_value.as_ref()));
        (made, average(value_quantity(made.usage)), external_name(&of.metric))
    };
    let status = MetricStatus {
        type_: spec.type_.clone(),
        object: Some(ObjectMetricStatus {
            current,
            described_object: of.described_object.clone(),
            metric: of.metric.clone(),
        }),
        ..MetricStatus::default()
    };
    Ok(Proposal { replicas: made.replicas, name, status })
}

fn external_name(metric: &MetricIdentifier) -> String {
    format!("external metric {}({})", metric.name, printed(metric.selector.as_ref()))
}

fn of_external(spec: &MetricSpec, values: &[i64], calculator: &Calculator<'_>) -> Result<Proposal, String> {
    let of = source(spec.external.as_ref())?;
    let usage = sum(values);
    let (made, current) = if of.target.average_value.is_some() {
        let made = calculator.of_share(usage, target_milli(of.target.average_value.as_ref()));
        (made, average(value_quantity(made.usage)))
    } else {
        let made = calculator
            .of_total(usage, target_milli(of.target.value.as_ref()))
            .map_err(|why| wrap_external(&of.metric.name, false, &why))?;
        (made, total(value_quantity(made.usage)))
    };
    let status = MetricStatus {
        type_: spec.type_.clone(),
        external: Some(ExternalMetricStatus { current, metric: of.metric.clone() }),
        ..MetricStatus::default()
    };
    Ok(Proposal { replicas: made.replicas, name: external_name(&of.metric), status })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases of `TestBuildQuantity`.
    #[test]
    fn amounts_of_resources() {
        let check = |resource: &str, milli: i64, want: &str| {
            assert_eq!(resource_quantity(resource, milli).0, want, "{resource} {milli}");
        };
        check("memory", 1000, "1");
        // Upstream's text of 1000 with binary suffixes.
        check("memory", 1_000_000, "1k");
        check("cpu", 100, "100m");
        check("cpu", 500, "500m");
        check("cpu", 1, "1m");
        check("custom-resource", 200, "200m");
        check("custom-resource", 300, "300m");
    }
}
