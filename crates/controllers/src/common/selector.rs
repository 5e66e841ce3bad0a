//! Label selectors, ready to match.

use std::collections::BTreeMap;

use api::go::quote;
use api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

type Labels = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

/// A label selector. An invalid one, like none at all, matches nothing; an empty one everything.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Selector(Option<Vec<(String, Operator)>>);

impl Selector {
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// Of a `metav1.LabelSelector`.
    pub(crate) fn of(selector: &LabelSelector) -> Self {
        let mut all: Vec<_> = selector
            .match_labels
            .iter()
            .flatten()
            .map(|(k, v)| (k.clone(), Operator::In(vec![v.clone()])))
            .collect();
        for e in selector.match_expressions.iter().flatten() {
            let values = e.values.clone().unwrap_or_default();
            let operator = match (e.operator.as_str(), values.is_empty()) {
                ("In", false) => Operator::In(values),
                ("NotIn", false) => Operator::NotIn(values),
                ("Exists", true) => Operator::Exists,
                ("DoesNotExist", true) => Operator::DoesNotExist,
                _ => return Self::nothing(),
            };
            all.push((e.key.clone(), operator));
        }
        Self(Some(all))
    }

    /// Of a `metav1.LabelSelector`, with the error that upstream has for an invalid one.
    pub(crate) fn parse(selector: &LabelSelector) -> Result<Self, String> {
        let invalid = |field: &str, value: &str, why: &str| {
            Err(format!("{field}: Invalid value: {}: {why}", quote(value)))
        };
        let check = |key: &str, values: &[String]| {
            let wrong = names::qualified_name(key);
            if !wrong.is_empty() {
                return invalid("key", key, &wrong.join("; "));
            }
            for (i, value) in values.iter().enumerate() {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    return invalid(&format!("values[{i}][{key}]"), value, &wrong.join("; "));
                }
            }
            Ok(())
        };
        for (key, value) in selector.match_labels.iter().flatten() {
            check(key, std::slice::from_ref(value))?;
        }
        for e in selector.match_expressions.iter().flatten() {
            let values = e.values.as_deref().unwrap_or_default();
            let shown = || format!("[{}]", values.iter().map(|v| quote(v)).collect::<Vec<_>>().join(","));
            match (e.operator.as_str(), values.is_empty()) {
                ("In" | "NotIn", true) => {
                    let why = "for 'in', 'notin' operators, values set can't be empty";
                    return Err(format!("values: Invalid value: []: {why}"));
                }
                ("Exists" | "DoesNotExist", false) => {
                    let why = "values set must be empty for exists and does not exist";
                    return Err(format!("values: Invalid value: {}: {why}", shown()));
                }
                ("In" | "NotIn", false) | ("Exists" | "DoesNotExist", true) => check(&e.key, values)?,
                (other, _) => return Err(format!("{} is not a valid label selector operator", quote(other))),
            }
        }
        Ok(Self::of(selector))
    }

    /// Of a plain map. As a map of labels selects by equality, `None` and an empty one select nothing.
    pub(crate) fn of_map(labels: Option<&Labels>) -> Self {
        match labels {
            Some(labels) if !labels.is_empty() => Self::exactly(labels),
            _ => Self::nothing(),
        }
    }

    /// What has all of these labels.
    pub(crate) fn exactly(labels: &Labels) -> Self {
        Self(Some(labels.iter().map(|(k, v)| (k.clone(), Operator::In(vec![v.clone()]))).collect()))
    }

    pub(crate) fn matches(&self, labels: Option<&Labels>) -> bool {
        let value = |key: &str| labels.and_then(|l| l.get(key));
        let Some(all) = &self.0 else { return false };
        all.iter().all(|(key, operator)| match operator {
            Operator::In(values) => value(key).is_some_and(|v| values.contains(v)),
            Operator::NotIn(values) => value(key).is_none_or(|v| !values.contains(v)),
            Operator::Exists => value(key).is_some(),
            Operator::DoesNotExist => value(key).is_none(),
        })
    }

    /// Whether it matches everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_some_and(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_invalid() {
        let check = |selector: serde_json::Value, want: Result<(), &str>| {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            let got = Selector::parse(&parsed).map(drop);
            match (&got, want) {
                (Err(got), Err(want)) => assert!(got.starts_with(want), "{got}"),
                _ => assert_eq!(got, want.map_err(str::to_owned), "{selector}"),
            }
        };
        use serde_json::json;
        let one = |key, operator, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(json!({}), Ok(()));
        check(json!({"matchLabels": {"a": "b"}}), Ok(()));
        check(one("a", "In", &["b"]), Ok(()));
        check(one("a", "Exists", &[]), Ok(()));
        let slashes = r#"key: Invalid value: "k8s.io/too/many/slashes": "#;
        check(json!({"matchLabels": {"k8s.io/too/many/slashes": "value"}}), Err(slashes));
        check(one("foo", "illegal", &["bar"]), Err(r#""illegal" is not a valid label selector operator"#));
        check(one("foo", "NotIn", &["a", "b c"]), Err(r#"values[1][foo]: Invalid value: "b c": "#));
        check(one("foo", "In", &[]), Err("values: Invalid value: []: for 'in', 'notin' operators"));
        check(one("foo", "Exists", &["a"]), Err(r#"values: Invalid value: ["a"]: values set must be empty"#));
    }

    #[test]
    fn matching() {
        let check = |selector: serde_json::Value, labels: &[(&str, &str)], want: bool| {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            let labels: Labels = labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            assert_eq!(Selector::of(&parsed).matches(Some(&labels)), want, "{selector} {labels:?}");
        };
        use serde_json::json;
        let one = |key, operator, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(json!({}), &[], true);
        check(json!({"matchLabels": {"a": "b"}}), &[("a", "b"), ("c", "d")], true);
        check(json!({"matchLabels": {"a": "b"}}), &[("a", "x")], false);
        check(one("a", "In", &["b", "c"]), &[("a", "c")], true);
        check(one("a", "NotIn", &["b"]), &[], true);
        check(one("a", "NotIn", &["b"]), &[("a", "b")], false);
        check(one("a", "Exists", &[]), &[("a", "")], true);
        check(one("a", "DoesNotExist", &[]), &[("a", "")], false);
        check(one("a", "In", &[]), &[("a", "c")], false);
        check(one("a", "Like", &["c"]), &[("a", "c")], false);
    }
}
