//! Taints and tolerations (upstream's `ToleratesTaint`).

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

/// The effect by which new Pods do not come.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// The effect by which new Pods do not come, and present ones go.
pub const NO_EXECUTE: &str = "NoExecute";
/// The effect by which new Pods come only if no other node is better.
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";

/// The taints of a node.
pub fn of_node(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default()
}

/// The tolerations of a Pod.
pub fn tolerations(pod: &Pod) -> &[Toleration] {
    pod.spec.as_ref().and_then(|s| s.tolerations.as_deref()).unwrap_or_default()
}

/// Whether a toleration covers a taint. The operators `Lt` and `Gt` cover none: the gate
/// `TaintTolerationComparisonOperators` is off by default.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let all_or = |wanted: &Option<String>, has: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == has)
    };
    all_or(&toleration.effect, &taint.effect)
        && all_or(&toleration.key, &taint.key)
        && match toleration.operator.as_deref() {
            None | Some("" | "Equal") => {
                toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
            }
            Some("Exists") => true,
            _ => false,
        }
}

/// The first of some taints that no toleration covers.
pub fn untolerated<'t>(
    taints: impl IntoIterator<Item = &'t Taint>,
    tolerations: &[Toleration],
) -> Option<&'t Taint> {
    taints.into_iter().find(|taint| !tolerations.iter().any(|t| tolerates(t, taint)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The cases of upstream's `TestTolerationToleratesTaint`.
    #[test]
    fn tolerations_cover_taints() {
        let check = |toleration: Value, taint: Value, want: bool| {
            let t: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(
                tolerates(&t, &serde_json::from_value(taint.clone()).unwrap()),
                want,
                "{toleration} {taint}"
            );
        };
        let taint = |effect: &str| json!({"key": "foo", "value": "bar", "effect": effect});
        let foo = |operator: &str, value: &str, effect: &str| json!({"key": "foo", "operator": operator, "value": value, "effect": effect});
        check(foo("Exists", "", NO_SCHEDULE), taint(NO_SCHEDULE), true);
        check(foo("Exists", "", ""), taint(NO_SCHEDULE), true);
        check(json!({"operator": "Exists"}), taint(NO_SCHEDULE), true);
        check(foo("Exists", "", NO_SCHEDULE), taint(NO_EXECUTE), false);
        check(foo("Equal", "bar", NO_SCHEDULE), taint(NO_SCHEDULE), true);
        check(foo("", "bar", NO_SCHEDULE), taint(NO_SCHEDULE), true);
        check(json!({"key": "foo", "value": "bar"}), taint(NO_SCHEDULE), true);
        check(foo("Equal", "bar1", NO_SCHEDULE), taint(NO_SCHEDULE), false);
        check(json!({"key": "x", "operator": "Exists"}), taint(NO_SCHEDULE), false);
        check(json!({"key": "foo"}), json!({"key": "foo", "effect": NO_EXECUTE}), true);
        for operator in ["Lt", "Gt", "other"] {
            check(foo(operator, "bar", NO_SCHEDULE), taint(NO_SCHEDULE), false);
        }
    }

    #[test]
    fn the_first_that_is_not_covered() {
        let taint = |key: &str| Taint { key: key.into(), effect: NO_SCHEDULE.into(), ..Taint::default() };
        let covers = |key: &str| Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            ..Toleration::default()
        };
        let all = [taint("a"), taint("b")];
        assert_eq!(untolerated(&all, &[covers("a")]), Some(&all[1]));
        assert_eq!(untolerated(&all, &[]), Some(&all[0]));
        assert_eq!(untolerated(&all, &[covers("b"), covers("a")]), None);
        assert_eq!(untolerated(&[], &[]), None);
    }
}
