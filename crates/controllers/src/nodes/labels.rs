//! The older labels of a node's system and architecture, which follow the newer ones: pure.

use std::collections::BTreeMap;

use crate::views::NodeView;

/// The labels that lead, and those that follow.
const PAIRS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// Returns the labels that a node must get.
pub(super) fn missing(node: &NodeView) -> BTreeMap<&'static str, &str> {
    let Some(labels) = &node.metadata.labels else { return BTreeMap::new() };
    let get = |key: &str| labels.get(key).map(String::as_str);
    PAIRS
        .into_iter()
        .filter_map(|(first, second)| Some((second, get(first)?)))
        .filter(|(second, value)| get(second) != Some(value))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Upstream's 4 cases of `TestReconcileNodeLabels`.
    #[test]
    fn upstreams_cases() {
        let check = |labels: Value, want: Value| {
            let node: NodeView = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
            assert_eq!(json!(missing(&node)), want, "{labels}");
        };
        let stable = |mut more: Value| {
            more["kubernetes.io/os"] = "linux".into();
            more["kubernetes.io/arch"] = "amd64".into();
            more
        };
        let both = json!({"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64"});
        check(json!(null), json!({}));
        check(json!({"topology.kubernetes.io/region": "region1"}), json!({}));
        check(stable(json!({})), both.clone());
        let other = json!({"beta.kubernetes.io/os": "windows", "beta.kubernetes.io/arch": "arm"});
        check(stable(other), both.clone());
        check(stable(both), json!({}));
        check(json!({"beta.kubernetes.io/os": "windows"}), json!({}));
    }
}
