//! Label selectors of objects, compiled once and matched often (upstream's `LabelSelectorAsSelector`).

use std::collections::BTreeMap;
use std::fmt;

use api::go::quote;
use api::names;
use api::selector::labels::{Operator, Requirement};
use compact_str::CompactString as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Labels in little room, for objects of which many are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct CompactLabels(Box<[(Text, Text)]>);

impl CompactLabels {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| k.as_str().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value.as_str())
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The labels with their values, by key.
    pub fn pairs(&self) -> impl Iterator<Item = &(Text, Text)> + Clone {
        self.0.iter()
    }
}

impl<K: Into<Text>, V: Into<Text>> FromIterator<(K, V)> for CompactLabels {
    /// Takes labels in any order; the last of several with one key counts.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let all: BTreeMap<Text, Text> = labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        Self(all.into_iter().collect())
    }
}

/// The error of a selector, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// A compiled selector. An absent one selects nothing, an empty one everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The requirements, which must all hold; `None` selects nothing.
    requirements: Option<Vec<Requirement>>,
}

impl Selector {
    /// A selector that selects nothing.
    pub fn nothing() -> Self {
        Self { requirements: None }
    }

    /// Compiles a selector. Validation lets wrong selectors through in objects that had them before, so they are
    /// possible.
    ///
    /// # Errors
    /// If the selector is wrong.
    pub fn new(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
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
                    let text = format!("{} is not a valid label selector operator", quote(other));
                    return Err(SelectorError(text));
                }
            };
            requirements.push(requirement(&e.key, operator, e.values.as_deref().unwrap_or_default())?);
        }
        Ok(Self { requirements: Some(requirements) })
    }

    /// Compiles a selector; a wrong one selects nothing.
    pub fn or_nothing(selector: &LabelSelector) -> Self {
        Self::new(Some(selector)).unwrap_or_else(|_| Self::nothing())
    }

    /// A selector of the objects that have all of these labels.
    pub fn exactly(labels: &Labels) -> Self {
        Self { requirements: Some(Vec::new()) }.and(labels.clone())
    }

    /// The selector of a map: by equality if it has a label, of nothing if it has none.
    pub fn of_map(labels: Option<&Labels>) -> Self {
        labels.filter(|l| !l.is_empty()).map_or_else(Self::nothing, Self::exactly)
    }

    /// Adds labels that an object must have exactly; a selector of nothing stays one.
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

    /// Labels of which an object must have one to be selected, where a requirement names its values: none for a selector
    /// of nothing, `None` where no requirement does.
    pub fn needed(&self) -> Option<Vec<(&str, &str)>> {
        let Some(all) = &self.requirements else { return Some(Vec::new()) };
        let named =
            |r: &&Requirement| matches!(r.operator, Operator::Equals | Operator::DoubleEquals | Operator::In);
        let of = all.iter().find(named)?;
        Some(of.values.iter().map(|value| (of.key.as_str(), value.as_str())).collect())
    }

    /// Whether it selects every object.
    pub fn is_everything(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether it selects an object with these labels.
    pub fn matches(&self, labels: Option<&Labels>) -> bool {
        self.matches_by(|key| labels.and_then(|l| l.get(key)).map(String::as_str))
    }

    /// Whether it selects an object, of which `label` tells the value of each label.
    pub fn matches_by<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.requirements.as_ref().is_some_and(|all| all.iter().all(|r| r.matches(label(&r.key))))
    }
}

impl fmt::Display for Selector {
    /// Writes the text form; that of a selector of nothing is empty, as upstream's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<&Requirement> = self.requirements.iter().flatten().collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        for (i, requirement) in all.into_iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

fn requirement(key: &str, operator: Operator, values: &[String]) -> Result<Requirement, SelectorError> {
    let mut wrong = Vec::new();
    let mut invalid = |path: String, value: String, why: &str| {
        wrong.push(format!("{path}: Invalid value: {value}: {why}"));
    };
    let why = names::qualified_name(key);
    if !why.is_empty() {
        invalid("key".into(), quote(key), &why.join("; "));
    }
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            // Upstream copies the list onto a nil slice, so it shows an empty one as `null`, too.
            invalid("values".into(), "null".into(), "for 'in', 'notin' operators, values set can't be empty");
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            let list: Vec<String> = values.iter().map(|v| quote(v)).collect();
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
            invalid(format!("values[{i}][{key}]"), quote(value), &why.join("; "));
        }
    }
    match wrong.as_slice() {
        [] => Ok(Requirement {
            key: key.into(),
            operator,
            values: values.iter().map(|v| v.as_str().into()).collect(),
        }),
        [one] => Err(SelectorError(one.clone())),
        many => Err(SelectorError(format!("[{}]", many.join(", ")))),
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
        assert_eq!(got.map_err(|e| e.0), expected.map_err(str::to_owned), "{selector}");
    }

    fn term(key: &str, operator: &str, values: Value) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn selects_as_upstream() {
        let all = json!({"a": "1", "b": "2"});
        check(json!(null), all.clone(), Ok(false));
        check(json!({}), all.clone(), Ok(true));
        check(json!({}), json!(null), Ok(true));
        check(json!({"matchLabels": {"a": "1"}}), all.clone(), Ok(true));
        check(json!({"matchLabels": {"a": "1", "b": "2"}}), all.clone(), Ok(true));
        check(json!({"matchLabels": {"a": "1", "b": "3"}}), all.clone(), Ok(false));
        check(json!({"matchLabels": {"a": ""}}), json!(null), Ok(false));
        check(term("a", "In", json!(["1", "x"])), all.clone(), Ok(true));
        check(term("a", "In", json!(["x"])), all.clone(), Ok(false));
        check(term("a", "NotIn", json!(["x"])), all.clone(), Ok(true));
        check(term("a", "NotIn", json!(["1"])), all.clone(), Ok(false));
        check(term("a", "NotIn", json!(["x"])), json!(null), Ok(true));
        check(term("a", "Exists", json!(null)), all.clone(), Ok(true));
        check(term("a", "Exists", json!([])), json!({"a": ""}), Ok(true));
        check(term("a", "DoesNotExist", json!(null)), all, Ok(false));
        check(term("a", "DoesNotExist", json!([])), json!({}), Ok(true));
    }

    #[test]
    fn what_is_wrong_is_told_as_upstream_does() {
        let wrong = |selector: Value, why: &str| check(selector, json!({"a": "1"}), Err(why));
        wrong(term("a", "Like", json!(["1"])), r#""Like" is not a valid label selector operator"#);
        let empty = "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty";
        wrong(term("a", "In", json!([])), empty);
        wrong(term("a", "NotIn", json!(null)), empty);
        wrong(
            term("a", "Exists", json!(["1"])),
            r#"values: Invalid value: ["1"]: values set must be empty for exists and does not exist"#,
        );
        let begins = |selector: Value, with: &str| {
            let parsed: LabelSelector = serde_json::from_value(selector).unwrap();
            let why = Selector::new(Some(&parsed)).unwrap_err().to_string();
            assert!(why.starts_with(with), "{why}");
            assert_eq!(Selector::or_nothing(&parsed), Selector::nothing());
        };
        let slashes = r#"key: Invalid value: "k8s.io/too/many/slashes": "#;
        begins(json!({"matchLabels": {"k8s.io/too/many/slashes": "value"}}), slashes);
        begins(term("foo", "NotIn", json!(["a", "b c"])), r#"values[1][foo]: Invalid value: "b c": "#);
    }

    #[test]
    fn maps() {
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let both = labels(&[("a", "1"), ("b", "2")]);
        assert!(Selector::of_map(Some(&labels(&[("a", "1")]))).matches(Some(&both)));
        assert!(!Selector::of_map(Some(&both)).matches(Some(&labels(&[("a", "1")]))));
        assert_eq!(Selector::of_map(None), Selector::nothing());
        assert_eq!(Selector::of_map(Some(&Labels::new())), Selector::nothing());
        assert!(Selector::exactly(&Labels::new()).is_everything());
        assert_eq!(Selector::nothing().and(both), Selector::nothing());
    }
}
