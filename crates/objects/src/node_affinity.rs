//! The nodes on which a Pod may run (upstream's `component-helpers/scheduling/corev1/nodeaffinity`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec};

/// The one field that terms may name.
const NAME: &str = "metadata.name";

/// The terms of a Pod's required node affinity, one of which must match; `None` if the Pod requires nothing.
pub fn required_terms(pod: &Pod) -> Option<&[NodeSelectorTerm]> {
    terms_of(pod.spec.as_ref()?)
}

fn terms_of(spec: &PodSpec) -> Option<&[NodeSelectorTerm]> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    Some(&affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms)
}

/// A node, as far as selectors see it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'n> {
    /// The node's name.
    pub name: &'n str,
    /// The node's labels.
    pub labels: Option<&'n BTreeMap<String, String>>,
}

impl<'n> Seen<'n> {
    /// The part of a node that selectors see.
    pub fn of(node: &'n Node) -> Self {
        let meta = &node.metadata;
        Self { name: meta.name.as_deref().unwrap_or_default(), labels: meta.labels.as_ref() }
    }

    fn label(self, key: &str) -> Option<&'n str> {
        self.labels?.get(key).map(String::as_str)
    }
}

/// Whether a Pod's node selector and required node affinity admit a node.
pub fn admits(pod: &Pod, node: &Node) -> bool {
    pod.spec.as_ref().is_none_or(|spec| spec_admits(spec, Seen::of(node)))
}

/// The same for the spec of a Pod.
pub fn spec_admits(spec: &PodSpec, node: Seen<'_>) -> bool {
    let mut selector = spec.node_selector.iter().flatten();
    selector.all(|(key, value)| node.label(key) == Some(value))
        && terms_of(spec).is_none_or(|terms| terms.iter().any(|t| matches(t, node)))
}

/// Whether a node satisfies a selector term; an empty or wrong term matches no node.
pub fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    matches(term, Seen::of(node))
}

/// The same for what selectors see of a node.
pub fn matches(term: &NodeSelectorTerm, node: Seen<'_>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|r| label_matches(r, node.label(&r.key)))
        && fields.iter().all(|r| field_matches(r, node.name))
}

fn label_matches(r: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = r.values.as_deref().unwrap_or_default();
    let listed = |v: &str| values.iter().any(|x| x == v);
    match (r.operator.as_str(), values) {
        ("In", [_, ..]) => value.is_some_and(listed),
        ("NotIn", [_, ..]) => !value.is_some_and(listed),
        ("Exists", []) => value.is_some(),
        ("DoesNotExist", []) => value.is_none(),
        ("Gt" | "Lt", [bound]) => match (value.map(str::parse::<i64>), bound.parse::<i64>()) {
            (Some(Ok(have)), Ok(bound)) if r.operator == "Gt" => have > bound,
            (Some(Ok(have)), Ok(bound)) => have < bound,
            _ => false,
        },
        _ => false,
    }
}

/// Whether a node satisfies a requirement on a field, which is compared with one value.
fn field_matches(r: &NodeSelectorRequirement, name: &str) -> bool {
    match (r.operator.as_str(), r.values.as_deref().unwrap_or_default()) {
        _ if r.key != NAME => false,
        ("In", [only]) => only == name,
        ("NotIn", [only]) => only != name,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node() -> Node {
        let labels = json!({"foo": "bar", "gpu": "4", "odd": "x"});
        serde_json::from_value(json!({"metadata": {"name": "host_1", "labels": labels}})).unwrap()
    }

    /// The cases of upstream's `TestNodeSelectorMatch` and `TestPodMatchesNodeSelectorAndAffinityTerms`.
    #[test]
    fn terms() {
        let check = |term: Value, want: bool| {
            let parsed: NodeSelectorTerm = serde_json::from_value(term.clone()).unwrap();
            assert_eq!(term_matches(&parsed, &node()), want, "{term}");
        };
        let of = |list: &str, key: &str, operator: &str, values: Value| json!({list: [{"key": key, "operator": operator, "values": values}]});
        let label = |key: &str, operator: &str, values: Value| of("matchExpressions", key, operator, values);
        let field = |key: &str, operator: &str, values: Value| of("matchFields", key, operator, values);
        check(json!({}), false);
        check(json!({"matchExpressions": [], "matchFields": []}), false);
        check(label("foo", "In", json!(["bar", "value2"])), true);
        check(label("foo", "In", json!(["value1", "value2"])), false);
        check(label("foo", "In", json!([])), false);
        check(label("foo", "NotIn", json!(["value1", "value2"])), true);
        check(label("foo", "NotIn", json!(["bar"])), false);
        check(label("none", "NotIn", json!(["bar"])), true);
        check(label("foo", "NotIn", json!([])), false);
        check(label("foo", "Exists", json!(null)), true);
        check(label("none", "Exists", json!(null)), false);
        check(label("foo", "Exists", json!(["bar"])), false);
        check(label("none", "DoesNotExist", json!([])), true);
        check(label("foo", "DoesNotExist", json!([])), false);
        check(label("gpu", "Gt", json!(["3"])), true);
        check(label("gpu", "Gt", json!(["4"])), false);
        check(label("gpu", "Lt", json!(["5"])), true);
        check(label("gpu", "Lt", json!(["4"])), false);
        check(label("gpu", "Gt", json!(["3", "2"])), false);
        check(label("gpu", "Gt", json!(["x"])), false);
        check(label("odd", "Lt", json!(["5"])), false);
        check(label("none", "Gt", json!(["-1"])), false);
        check(label("foo", "invalid-operator", json!(["bar"])), false);
        check(field("metadata.name", "In", json!(["host_1"])), true);
        check(field("metadata.name", "In", json!(["host_2"])), false);
        check(field("metadata.name", "In", json!(["host_1", "host_2"])), false);
        check(field("metadata.name", "NotIn", json!(["host_2"])), true);
        check(field("metadata.name", "NotIn", json!(["host_1"])), false);
        check(field("metadata.name", "Exists", json!(null)), false);
        check(field("metadata.uid", "In", json!([""])), false);
        let mut both = label("foo", "In", json!(["bar"]));
        both["matchFields"] = json!([{"key": "metadata.name", "operator": "In", "values": ["host_2"]}]);
        check(both, false);
    }

    #[test]
    fn what_a_pod_asks_for() {
        let check = |spec: Value, want: bool| {
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(admits(&pod, &node()), want, "{spec}");
        };
        let with = |selector: Value, terms: Value| {
            json!({"containers": [], "nodeSelector": selector, "affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
        };
        let term =
            |value: &str| json!({"matchExpressions": [{"key": "foo", "operator": "In", "values": [value]}]});
        check(json!({"containers": []}), true);
        check(json!({"containers": [], "nodeSelector": {"foo": "bar"}}), true);
        check(json!({"containers": [], "nodeSelector": {"foo": "baz"}}), false);
        check(json!({"containers": [], "nodeSelector": {"foo": "bar", "none": ""}}), false);
        check(with(json!({}), json!([term("x"), term("bar")])), true);
        check(with(json!({}), json!([term("x")])), false);
        check(with(json!({}), json!([])), false);
        check(with(json!({"foo": "baz"}), json!([term("bar")])), false);
        check(json!({"containers": [], "affinity": {"nodeAffinity": {}}}), true);
        assert!(admits(&Pod::default(), &node()));
    }
}
