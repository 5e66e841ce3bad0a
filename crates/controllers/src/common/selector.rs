//! Label selectors, ready to match.

use std::collections::BTreeMap;

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
