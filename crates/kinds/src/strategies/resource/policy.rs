//! Rules of the requests for a capacity that several allocations share.

use api::quantity::Quantity;

use api::field::{Errors, Path};
use api::view::View;

const MAX_VALUES: usize = 10;

/// A quantity of a tree, which is canonical; 0 if it is absent.
fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_default()
}

/// Checks `requestPolicy` of a capacity.
pub(super) fn request_policy(errs: &mut Errors, at: &Path<'_>, capacity: View<'_>) {
    let Some(policy) = capacity.opt("requestPolicy") else { return };
    let at = at.field("requestPolicy");
    let whole = quantity(capacity.str("value"));
    let default = policy.opt_str("default").map(quantity);
    let values: Vec<Quantity> = policy.strs("validValues").map(quantity).collect();
    match (values.is_empty(), policy.opt("validRange"), default) {
        (false, Some(_), _) => errs.forbidden(
            &at,
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time",
        ),
        (true, None, _) => {}
        (_, range, None) => {
            let what = if range.is_some() { "validRange" } else { "validValues" };
            errs.required(&at.field("default"), format!("required when {what} is defined"));
        }
        (false, None, Some(default)) => valid_values(errs, &at.field("validValues"), &values, &default, &whole),
        (true, Some(range), Some(default)) => {
            valid_range(errs, &at.field("validRange"), range, &default, &whole);
        }
    }
}

fn valid_values(errs: &mut Errors, at: &Path<'_>, values: &[Quantity], default: &Quantity, whole: &Quantity) {
    for (i, pair) in values.windows(2).enumerate() {
        if pair[0] > pair[1] {
            let why = "values must be sorted in ascending order";
            errs.invalid(&at.index(i + 1), pair[1].to_string(), why);
        }
    }
    let mut found = false;
    if super::fits(errs, at, values.len(), MAX_VALUES) {
        for (i, value) in values.iter().enumerate() {
            if value > whole {
                let why = format!("option is larger than capacity value: {whole}");
                errs.invalid(&at.index(i), value.to_string(), why);
            }
            found |= value == default;
        }
        let keys: Vec<String> = values.iter().map(|v| v.value().to_string()).collect();
        super::unique(errs, at, keys.iter().map(String::as_str));
    }
    if !found {
        errs.invalid(at, default.to_string(), "default value is not valid according to the requestPolicy");
    }
}

fn valid_range(errs: &mut Errors, at: &Path<'_>, range: View<'_>, default: &Quantity, whole: &Quantity) {
    let bound = |name: &str| range.opt_str(name).map(quantity);
    let (min_at, max_at, step_at) = (at.field("min"), at.field("max"), at.field("step"));
    let Some(min) = bound("min") else {
        errs.required(&min_at, "required when validRange is defined");
        return;
    };
    if min > *whole {
        errs.invalid(&min_at, min.to_string(), format!("min is larger than capacity value: {whole}"));
    }
    if *default < min {
        errs.invalid(&min_at, default.to_string(), format!("default is less than min: {min}"));
    }
    let max = bound("max");
    if let Some(max) = &max {
        if min > *max {
            errs.invalid(&max_at, min.to_string(), format!("min is larger than max: {max}"));
        }
        if max > whole {
            errs.invalid(&max_at, max.to_string(), format!("max is larger than capacity value: {whole}"));
        }
        if default > max {
            errs.invalid(&max_at, default.to_string(), format!("default is more than max: {max}"));
        }
    }
    let Some(step) = bound("step") else { return };
    let mut first = min.clone();
    first.add(&step);
    if first > *whole {
        let why = format!("one step {first} is larger than capacity value: {whole}");
        errs.invalid(&step_at, step.to_string(), why);
    }
    for value in [Some(default), max.as_ref()].into_iter().flatten() {
        // No value is a multiple of a step of zero.
        let beyond = value.value().wrapping_sub(min.value());
        if beyond.checked_rem(step.value()) != Some(0) {
            let why = format!("value is not a multiple of a given step ({step}) from ({min})");
            errs.invalid(&step_at, value.to_string(), why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Schema;

    fn check(capacity: &str, expected: &[&str]) {
        let body = format!(
            r#"{{"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","spec":{{"devices":[{{"capacity":{{"c":{capacity}}}}}]}}}}"#
        );
        let schema = Schema::builtin();
        let root = schema.kind(&api::schema::Gvk::new("resource.k8s.io", "v1", "ResourceSlice")).unwrap();
        let tree = api::codec::json::decode(schema, root, body.as_bytes()).unwrap().tree;
        let device = View::new(schema, &tree).st("spec").items("devices").next().unwrap();
        let mut errs = Errors::new();
        for (_, c) in device.entries("capacity") {
            request_policy(&mut errs, &Path::root("c"), device.of(c));
        }
        let got: Vec<String> = errs.0.iter().map(|e| format!("{}: {}", e.field, e.detail)).collect();
        assert_eq!(got, expected, "{capacity}");
    }

    #[test]
    fn policies() {
        let values = |policy: &str| format!(r#"{{"value":"10Gi","requestPolicy":{policy}}}"#);
        check(&values(r#"{"default":"1Gi"}"#), &[]);
        check(&values(r#"{"default":"1Gi","validValues":["1Gi","2Gi"]}"#), &[]);
        check(
            &values(r#"{"validValues":["1Gi"]}"#),
            &["c.requestPolicy.default: required when validValues is defined"],
        );
        check(
            &values(r#"{"default":"3Gi","validValues":["2Gi","1Gi","20Gi","20Gi"]}"#),
            &[
                "c.requestPolicy.validValues[1]: values must be sorted in ascending order",
                "c.requestPolicy.validValues[2]: option is larger than capacity value: 10Gi",
                "c.requestPolicy.validValues[3]: option is larger than capacity value: 10Gi",
                "c.requestPolicy.validValues[3]: ",
                "c.requestPolicy.validValues: default value is not valid according to the requestPolicy",
            ],
        );
        check(
            &values(r#"{"default":"1Gi","validRange":{"max":"2Gi"}}"#),
            &["c.requestPolicy.validRange.min: required when validRange is defined"],
        );
        check(&values(r#"{"default":"2Gi","validRange":{"min":"1Gi","max":"4Gi","step":"1Gi"}}"#), &[]);
        check(
            &values(r#"{"default":"1Gi","validRange":{"min":"2Gi","max":"11Gi","step":"9Gi"}}"#),
            &[
                "c.requestPolicy.validRange.min: default is less than min: 2Gi",
                "c.requestPolicy.validRange.max: max is larger than capacity value: 10Gi",
                "c.requestPolicy.validRange.step: one step 11Gi is larger than capacity value: 10Gi",
                "c.requestPolicy.validRange.step: value is not a multiple of a given step (9Gi) from (2Gi)",
            ],
        );
        check(
            &values(r#"{"default":"1Gi","validRange":{"min":"1Gi","step":"0"}}"#),
            &["c.requestPolicy.validRange.step: value is not a multiple of a given step (0) from (1Gi)"],
        );
    }
}
