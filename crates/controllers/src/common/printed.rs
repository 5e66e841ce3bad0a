//! Objects as Go prints them.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Prints a selector as Go does.
pub(crate) fn printed(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let (mut labels, mut expressions) = (String::new(), String::new());
    // Writing to a String does not fail.
    for (k, v) in selector.match_labels.iter().flatten() {
        let _ = write!(labels, "{k}: {v},");
    }
    for e in selector.match_expressions.iter().flatten() {
        let values = e.values.as_deref().unwrap_or_default().join(" ");
        let _ = write!(
            expressions,
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
            e.key, e.operator
        );
    }
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
