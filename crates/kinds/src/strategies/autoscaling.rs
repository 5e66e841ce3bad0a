//! HorizontalPodAutoscalers, as version 2 has them.

use api::field::{Errors, Path, Typed};
use api::names::{self, name_subdomain};
use api::quantity::nano;
use api::status::FieldError;
use api::view::View;
use api::{Gate, Schema, Struct};

use crate::columns;
use crate::convert;
use crate::strategies::generic::{self, NAMESPACED, check, check_update, keep_status};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::resources::container_resource_name;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::Ctx;

/// Upstream's limits in seconds.
const MAX_PERIOD: i64 = 1800;
const MAX_WINDOW: i64 = 3600;

/// Checks a Scale that a client wrote.
pub fn check_scale(schema: &Schema, scale: &Struct) -> Vec<FieldError> {
    let mut errs = Errors::new();
    let v = View::new(schema, scale);
    core_meta(&mut errs, v.st("metadata"), true, name_subdomain);
    errs.non_negative(&Path::root("spec.replicas"), v.st("spec").int("replicas"));
    errs.0
}

pub(super) const AUTOSCALER: Rules = Rules {
    group: "autoscaling",
    resource: "horizontalpodautoscalers",
    columns: columns::workloads::HORIZONTAL_POD_AUTOSCALER,
    convert: convert::autoscaling::convert,
    takes: Takes::BUT_STATUS,
    prepare_create: generic::drop_status,
    prepare_update: keep_status,
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            spec(e, v.st("spec"), None, c);
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            spec(e, n.st("spec"), Some(o.st("spec")), c);
        })
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC,
        prepare_update: generic::status_only,
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                core_meta_update(e, n.st("metadata"), o.st("metadata"));
                for f in ["currentReplicas", "desiredReplicas"] {
                    e.non_negative(&Path::root("status").field(f), n.st("status").int(f));
                }
            })
        },
    }],
    ..NAMESPACED
};

/// The values that a reference's apiVersion may have.
#[derive(Clone, Copy)]
enum ApiVersion {
    /// Any text, since the stored object has such a text.
    Any,
    /// A version with or without a group.
    Valid,
    /// A version with a group.
    Grouped,
}

fn api_version(text: &str, rule: ApiVersion) -> Result<(), String> {
    match (rule, text.matches('/').count()) {
        (ApiVersion::Any, _) => Ok(()),
        (_, 2..) => Err(format!("unexpected GroupVersion string: {text}")),
        (ApiVersion::Grouped, 0) => Err("apiVersion must specify API group".into()),
        (ApiVersion::Grouped, _) if text.starts_with('/') => Err("apiVersion must specify API group".into()),
        _ => Ok(()),
    }
}

fn spec(errs: &mut Errors, spec: View<'_>, old: Option<View<'_>>, c: &Ctx<'_>) {
    let at = Path::root("spec");
    let had_zero = old.is_some_and(|o| o.opt_int("minReplicas") == Some(0));
    let least = i64::from(!(c.gates.enabled(Gate::HPAScaleToZero) || had_zero));
    let (min, max) = (spec.opt_int("minReplicas"), spec.int("maxReplicas"));
    if let Some(min) = min.filter(|m| *m < least) {
        errs.invalid(&at.field("minReplicas"), min, format!("must be greater than or equal to {least}"));
    }
    let max_at = at.field("maxReplicas");
    if max == 0 {
        errs.required(&max_at, "must be set and greater than 0");
    } else if max < 0 {
        errs.invalid(&max_at, max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|m| max < m) {
        errs.invalid(&max_at, max, "must be greater than or equal to `minReplicas`");
    }
    let target = spec.st("scaleTargetRef");
    let same_target = old.is_some_and(|o| {
        let o = o.st("scaleTargetRef");
        ["apiVersion", "kind"].iter().all(|f| o.str(f) == target.str(f))
    });
    let rule = match target.str("kind") {
        _ if same_target => ApiVersion::Any,
        "ReplicationController" => ApiVersion::Valid,
        _ => ApiVersion::Grouped,
    };
    reference(errs, &at.field("scaleTargetRef"), target, rule);
    let kept = old.is_some_and(|o| {
        o.items("metrics").any(|m| {
            m.str("type") == "Object"
                && api_version(m.st("object").st("describedObject").str("apiVersion"), ApiVersion::Valid)
                    .is_err()
        })
    });
    let rule = if kept { ApiVersion::Any } else { ApiVersion::Valid };
    let metrics_at = at.field("metrics");
    for (i, m) in spec.items("metrics").enumerate() {
        metric(errs, &metrics_at.index(i), m, rule);
    }
    if min == Some(0) && !spec.items("metrics").any(|m| matches!(m.str("type"), "Object" | "External")) {
        errs.forbidden(
            &metrics_at,
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
    let at = at.field("behavior");
    for f in ["scaleUp", "scaleDown"] {
        if let Some(rules) = spec.st("behavior").opt(f) {
            scaling_rules(errs, &at.field(f), rules);
        }
    }
}

fn reference(errs: &mut Errors, at: &Path<'_>, r: View<'_>, rule: ApiVersion) {
    for f in ["kind", "name"] {
        let v = r.str(f);
        if v.is_empty() {
            errs.required(&at.field(f), "");
        } else {
            errs.each(&at.field(f), v, names::path_segment(v, false));
        }
    }
    let v = r.str("apiVersion");
    if let Err(why) = api_version(v, rule) {
        errs.invalid(&at.field("apiVersion"), v, why);
    }
}

fn scaling_rules(errs: &mut Errors, at: &Path<'_>, r: View<'_>) {
    if let Some(window) = r.opt_int("stabilizationWindowSeconds") {
        let at = at.field("stabilizationWindowSeconds");
        if window < 0 {
            errs.invalid(&at, window, "must be greater than or equal to zero");
        }
        if window > MAX_WINDOW {
            errs.invalid(&at, window, format!("must be less than or equal to {MAX_WINDOW}"));
        }
    }
    if let Some(p) = r.opt_str("selectPolicy") {
        errs.one_of(&at.field("selectPolicy"), p, &["Disabled", "Max", "Min"]);
    }
    let policies_at = at.field("policies");
    if r.len("policies") == 0 {
        errs.required(&policies_at, "must specify at least one Policy");
    }
    for (i, p) in r.items("policies").enumerate() {
        let at = policies_at.index(i);
        errs.one_of(&at.field("type"), p.str("type"), &["Percent", "Pods"]);
        errs.positive(&at.field("value"), p.int("value"));
        let period = p.int("periodSeconds");
        let at = at.field("periodSeconds");
        errs.positive(&at, period);
        if period > MAX_PERIOD {
            errs.invalid(&at, period, format!("must be less than or equal to {MAX_PERIOD}"));
        }
    }
    if let Some(q) = r.opt_str("tolerance").filter(|q| nano(q) < 0) {
        errs.invalid(&at.field("tolerance"), q, api::field::NEGATIVE);
    }
}

const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

fn metric(errs: &mut Errors, at: &Path<'_>, m: View<'_>, rule: ApiVersion) {
    const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];
    let ty = m.str("type");
    let type_at = at.field("type");
    if ty.is_empty() {
        errs.required(&type_at, "must specify a metric source type");
    }
    errs.one_of(&type_at, ty, TYPES);
    let present: Vec<&str> = SOURCES.iter().map(|s| s.1).filter(|f| m.has(f)).collect();
    if let Some(first) = present.first() {
        source(errs, &at.field(first), m.st(first), first, rule);
    }
    let expected = SOURCES.iter().find(|s| s.0 == ty).map(|s| s.1);
    match expected {
        Some(f) if !m.has(f) => {
            errs.required(&at.field(f), "must populate information for the given metric source");
        }
        Some(_) => {}
        None => errs.not_supported(&type_at, ty, TYPES),
    }
    if present.len() != 1 {
        for f in present.iter().filter(|f| Some(**f) != expected) {
            errs.forbidden(&at.field(f), "must populate the given metric source only");
        }
    }
}

fn source(errs: &mut Errors, at: &Path<'_>, s: View<'_>, kind: &str, rule: ApiVersion) {
    if kind == "object" {
        reference(errs, &at.field("describedObject"), s.st("describedObject"), rule);
    }
    let of_resource = matches!(kind, "resource" | "containerResource");
    if of_resource {
        let name = s.str("name");
        if name.is_empty() {
            errs.required(&at.field("name"), "must specify a resource name");
        } else if kind == "containerResource" {
            container_resource_name(errs, &at.field("name"), name);
        }
        if kind == "containerResource" {
            let container = s.str("container");
            if container.is_empty() {
                errs.required(&at.field("container"), "must specify a container");
            } else {
                errs.each(&at.field("container"), container, names::dns1123_label(container));
            }
        }
    } else {
        let name = s.st("metric").str("name");
        let at = at.field("metric");
        if name.is_empty() {
            errs.required(&at.field("name"), "must specify a metric name");
        } else {
            errs.each(&at.field("name"), name, names::path_segment(name, false));
        }
    }
    let at = at.field("target");
    let t = s.st("target");
    target(errs, &at, t);
    let (value, average) = (t.has("value"), t.has("averageValue"));
    let utilization = t.has("averageUtilization");
    let average_at = at.field("averageValue");
    match kind {
        "object" if !value && !average => {
            errs.required(&average_at, "must set either a target value or averageValue");
        }
        "external" if !value && !average => {
            errs.required(&average_at, "must set either a target value for metric or a per-pod target");
        }
        "external" if value && average => errs
            .forbidden(&at.field("value"), "may not set both a target value for metric and a per-pod target"),
        "pods" if !average => errs.required(&average_at, "must specify a positive target averageValue"),
        _ if of_resource && !utilization && !average => errs.required(
            &at.field("averageUtilization"),
            "must set either a target raw value or a target utilization",
        ),
        _ if of_resource && utilization && average => {
            errs.forbidden(&average_at, "may not set both a target raw value and a target utilization");
        }
        _ => {}
    }
}

fn target(errs: &mut Errors, at: &Path<'_>, t: View<'_>) {
    let ty = t.str("type");
    if ty.is_empty() {
        errs.required(&at.field("type"), "must specify a metric target type");
    }
    if !matches!(ty, "Utilization" | "Value" | "AverageValue") {
        errs.invalid(&at.field("type"), Typed(ty), "must be either Utilization, Value, or AverageValue");
    }
    for f in ["value", "averageValue"] {
        if let Some(q) = t.opt_str(f).filter(|q| nano(q) <= 0) {
            errs.invalid(&at.field(f), api::field::Raw(api::go::quote(q)), "must be positive");
        }
    }
    if let Some(n) = t.opt_int("averageUtilization").filter(|n| *n < 1) {
        errs.invalid(&at.field("averageUtilization"), n, "must be greater than 0");
    }
}
