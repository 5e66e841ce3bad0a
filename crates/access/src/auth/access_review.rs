//! The texts and checks of access reviews.

use api::Node;
use api::names;
use api::selector::{fields, labels};
use api::status::{FieldError, FieldErrorKind};
use api::view::View;

/// Returns the field selector of a review in the form of a query, of which only demands for equality matter; and
/// upstream's text about terms that cannot be read and are left out of the decision.
pub(super) fn selectors(attributes: &View<'_>) -> (String, String) {
    let selector = attributes.st("fieldSelector");
    let raw = selector.str("rawSelector");
    let mut terms: Vec<String> = Vec::new();
    let (mut good, mut bad) = (0, 0);
    if !raw.is_empty() {
        match fields::Selector::parse(raw) {
            Ok(_) => terms.push(raw.to_owned()),
            Err(_) => bad += 1,
        }
    }
    for requirement in selector.items("requirements") {
        let mut values = requirement.strs("values");
        match (requirement.str("operator"), values.next(), values.next()) {
            (operator @ ("In" | "NotIn"), Some(value), None) => {
                good += 1;
                if operator == "In" {
                    let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
                    terms.push(format!("{}={value}", requirement.str("key")));
                }
            }
            _ => bad += 1,
        }
    }
    let mut ignored = Vec::new();
    let mut say = |name: &str, good: usize, bad: usize| {
        if bad > 0 {
            let how = if good > 0 { "partially ignored" } else { "ignored" };
            ignored.push(format!("spec.resourceAttributes.{name} {how} due to parse error"));
        }
    };
    say("fieldSelector", good, bad);
    let selector = attributes.st("labelSelector");
    let raw = selector.str("rawSelector");
    let known = |r: &View<'_>| matches!(r.str("operator"), "In" | "NotIn" | "Exists" | "DoesNotExist");
    let good = selector.items("requirements").filter(known).count();
    let bad = selector.len("requirements") - good
        + usize::from(!raw.is_empty() && labels::Selector::parse(raw).is_err());
    say("labelSelector", good, bad);
    (terms.join(","), ignored.join("; "))
}

/// Upstream's checks of the three kinds of access review.
pub(super) fn check_access_review(review: &View<'_>, resource: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = review.st("spec");
    let (attributes, other) = (spec.opt("resourceAttributes"), spec.opt("nonResourceAttributes"));
    let shown =
        |st: Option<View<'_>>| {
            Some(st.and_then(|v| v.raw()).map_or_else(
                || "null".to_owned(),
                |raw| kinds::validation::print::internal(review.schema, raw),
            ))
        };
    match (attributes.is_some(), other.is_some()) {
        (true, true) => errors.push(invalid(
            "spec.nonResourceAttributes",
            shown(other),
            "cannot be specified in combination with resourceAttributes",
        )),
        (false, false) => errors.push(invalid(
            "spec.resourceAttributes",
            Some("null".into()),
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    if resource != "selfsubjectaccessreviews" && spec.str("user").is_empty() && spec.len("groups") == 0 {
        errors.push(invalid(
            "spec.user",
            Some("\"\"".into()),
            "at least one of user or group must be specified",
        ));
    }
    if let Some(attributes) = attributes {
        for name in ["fieldSelector", "labelSelector"] {
            if let Some(selector) = attributes.opt(name) {
                check_selector(&mut errors, &format!("spec.resourceAttributes.{name}"), &selector);
            }
        }
    }
    let local = resource == "localsubjectaccessreviews";
    let meta = review.st("metadata");
    let filled = meta.raw().is_some_and(|raw| {
        raw.iter().any(|(no, value)| {
            let field = review.schema.st(raw.id).at(no).json.as_str();
            !(value.is_zero() || field == "managedFields" || local && field == "namespace")
        })
    });
    if filled {
        let detail = if local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(invalid("metadata", shown(Some(meta)), detail));
    }
    if local {
        let namespace = meta.str("namespace");
        if let Some(own) = attributes.map(|a| a.str("namespace")).filter(|own| *own != namespace) {
            errors.push(invalid(
                "spec.resourceAttributes.namespace",
                Some(print(own)),
                "must match metadata.namespace",
            ));
        }
        if other.is_some() {
            errors.push(invalid(
                "spec.nonResourceAttributes",
                shown(other),
                "disallowed on this kind of request",
            ));
        }
    }
    errors
}

fn check_selector(errors: &mut Vec<FieldError>, path: &str, selector: &View<'_>) {
    let raw = selector.str("rawSelector");
    let count = selector.len("requirements");
    if !raw.is_empty() && count > 0 {
        errors.push(invalid(
            &format!("{path}.rawSelector"),
            Some(print(raw)),
            "may not specified at the same time as requirements",
        ));
    }
    if raw.is_empty() && count == 0 {
        errors.push(required(
            format!("{path}.requirements"),
            format!("when {path} is specified, requirements or rawSelector is required"),
        ));
    }
    let labels = path.ends_with("labelSelector");
    for (i, requirement) in selector.items("requirements").enumerate() {
        let at = format!("{path}.requirements[{i}]");
        let (key, values) = (requirement.str("key"), requirement.list("values"));
        if !labels && key.is_empty() {
            errors.push(required(format!("{at}.key"), "must be specified"));
        }
        match requirement.str("operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(required(
                format!("{at}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError {
                kind: FieldErrorKind::Forbidden,
                field: format!("{at}.values"),
                value: None,
                detail: "may not be specified when `operator` is 'Exists' or 'DoesNotExist'".into(),
            }),
            _ => {}
        }
        if labels {
            for why in names::qualified_name(key) {
                errors.push(invalid(&format!("{at}.key"), Some(print(key)), why));
            }
            for (j, value) in values.iter().map(Node::as_str).enumerate() {
                for why in names::label_value(value) {
                    errors.push(invalid(&format!("{at}.values[{j}]"), Some(print(value)), why));
                }
            }
        }
    }
}

pub(super) fn print(value: &str) -> String {
    api::go::quote(value)
}

pub(super) fn invalid(field: &str, value: Option<String>, detail: impl Into<String>) -> FieldError {
    FieldError { kind: FieldErrorKind::Invalid, field: field.into(), value, detail: detail.into() }
}

fn required(field: String, detail: impl Into<String>) -> FieldError {
    FieldError { kind: FieldErrorKind::Required, field, value: None, detail: detail.into() }
}
