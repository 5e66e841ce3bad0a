//! Label selectors of objects, compiled once and matched often (upstream's `LabelSelectorAsSelector`).

use std::collections::BTreeMap;

use api::names;
use api::selector::labels::{Operator, Requirement};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A compiled selector. An absent one selects nothing, an empty one everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// All must hold; `None` selects nothing.
    requirements: Option<Vec<Requirement>>,
}

impl Selector {
    /// What selects nothing.
    pub fn nothing() -> Self {
        Self { requirements: None }
    }

    /// Compiles a selector; the error says in upstream's words what is wrong with it. Validation lets wrong ones
    /// through in Pods that had them before, so they are not impossible.
    pub fn new(selector: Option<&LabelSelector>) -> Result<Self, String> {
        let Some(selector) = selector else { return Ok(Self::nothing()) };
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(requirement(key, Operator::Equals, std::slice::from_ref(value))?);
        }
        for e in selector.match_expressions.iter().flatten() {
            let operator = match e.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(format!("{} is not a valid label selector operator", api::go::quote(other)));
                }
            };
            requirements.push(requirement(&e.key, operator, e.values.as_deref().unwrap_or_default())?);
        }
        Ok(Self { requirements: Some(requirements) })
    }

    /// Asks for exact labels too; a selector of nothing stays one.
    pub fn and(mut self, labels: impl IntoIterator<Item = (String, String)>) -> Self {
        if let Some(all) = &mut self.requirements {
            all.extend(labels.into_iter().map(|(key, value)| Requirement {
                key: key.into(),
                operator: Operator::Equals,
                values: vec![value.into()],
            }));
        }
        self
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether it selects an object with these labels.
    pub fn matches(&self, labels: Option<&Labels>) -> bool {
        self.requirements.as_ref().is_some_and(|all| {
            all.iter().all(|r| r.matches(labels.and_then(|l| l.get(r.key.as_str())).map(String::as_str)))
        })
    }
}

fn requirement(key: &str, operator: Operator, values: &[String]) -> Result<Requirement, String> {
    let mut wrong = Vec::new();
    let mut invalid = |path: String, value: String, why: &str| {
        wrong.push(format!("{path}: Invalid value: {value}: {why}"));
    };
    let why = names::qualified_name(key);
    if !why.is_empty() {
        invalid("key".into(), api::go::quote(key), &why.join("; "));
    }
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            invalid("values".into(), "null".into(), "for 'in', 'notin' operators, values set can't be empty");
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            let list: Vec<String> = values.iter().map(|v| api::go::quote(v)).collect();
            invalid(
                "values".into(),
                format!("[{}]", list.join(",")),
                "values set must be empty for exists and does not exist",
            );
        }
        _ => {}
    }
    for (i, value) in values.iter().enumerate() {
        let why = names::label_value(value);
        if !why.is_empty() {
            invalid(format!("values[{i}][{key}]"), api::go::quote(value), &why.join("; "));
        }
    }
    match wrong.as_slice() {
        [] => Ok(Requirement {
            key: key.into(),
            operator,
            values: values.iter().map(|v| v.as_str().into()).collect(),
        }),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(selector: Value, labels: Value, expected: Result<bool, &str>) {
        let wanted: Option<LabelSelector> = serde_json::from_value(selector.clone()).unwrap();
        let labels: Option<Labels> = serde_json::from_value(labels).unwrap();
        let got = Selector::new(wanted.as_ref()).map(|s| s.matches(labels.as_ref()));
        assert_eq!(got.as_ref().map(|b| *b).map_err(String::as_str), expected, "{selector}");
    }

    #[test]
    fn selects_as_upstream() {
        let all = json!({"a": "1", "b": "2"});
        check(json!(null), all.clone(), Ok(false));
        check(json!({}), all.clone(), Ok(true));
        check(json!({}), json!(null), Ok(true));
        check(json!({"matchLabels": {"a": "1", "b": "2"}}), all.clone(), Ok(true));
        check(json!({"matchLabels": {"a": "1", "b": "3"}}), all.clone(), Ok(false));
        check(json!({"matchLabels": {"a": ""}}), json!(null), Ok(false));
        let term = |op: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": op, "values": values}]});
        check(term("In", json!(["1", "x"])), all.clone(), Ok(true));
        check(term("In", json!(["x"])), all.clone(), Ok(false));
        check(term("NotIn", json!(["x"])), all.clone(), Ok(true));
        check(term("NotIn", json!(["x"])), json!(null), Ok(true));
        check(term("Exists", json!(null)), all.clone(), Ok(true));
        check(term("DoesNotExist", json!(null)), all.clone(), Ok(false));
        check(term("DoesNotExist", json!([])), json!({}), Ok(true));
        check(
            term("Like", json!(["1"])),
            all.clone(),
            Err(r#""Like" is not a valid label selector operator"#),
        );
        check(
            term("In", json!([])),
            all.clone(),
            Err("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
        );
        check(
            term("Exists", json!(["1"])),
            all,
            Err(r#"values: Invalid value: ["1"]: values set must be empty for exists and does not exist"#),
        );
    }
}
