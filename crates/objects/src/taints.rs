//! Taints and tolerations (upstream's `ToleratesTaint`).

use std::cmp::Ordering;

use api::{FeatureGates, Gate};
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

/// The rule by which tolerations cover taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tolerance {
    /// Whether the operators `Lt` and `Gt` compare numbers; they cover nothing otherwise.
    compares: bool,
}

impl Tolerance {
    /// The rule with these features: the gate is `TaintTolerationComparisonOperators`.
    pub fn of(gates: FeatureGates) -> Self {
        Self { compares: gates.enabled(Gate::TaintTolerationComparisonOperators) }
    }

    /// Whether a toleration covers a taint.
    pub fn covers(self, toleration: &Toleration, taint: &Taint) -> bool {
        let all_or = |wanted: &Option<String>, has: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == has)
        };
        if !all_or(&toleration.effect, &taint.effect) || !all_or(&toleration.key, &taint.key) {
            return false;
        }
        let wanted = toleration.value.as_deref().unwrap_or_default();
        let has = taint.value.as_deref().unwrap_or_default();
        let compared = |order: Ordering| {
            let numbers = integer(has).zip(integer(wanted)).filter(|_| self.compares);
            numbers.is_some_and(|(has, wanted)| has.cmp(&wanted) == order)
        };
        match toleration.operator.as_deref() {
            None | Some("" | "Equal") => wanted == has,
            Some("Exists") => true,
            Some("Lt") => compared(Ordering::Less),
            Some("Gt") => compared(Ordering::Greater),
            Some(_) => false,
        }
    }

    /// The first of some taints that no toleration covers.
    pub fn uncovered<'t>(
        self,
        taints: impl IntoIterator<Item = &'t Taint>,
        tolerations: &[Toleration],
    ) -> Option<&'t Taint> {
        taints.into_iter().find(|taint| !tolerations.iter().any(|t| self.covers(t, taint)))
    }
}

/// Reads a decimal integer in its one canonical form: no plus sign, no leading zeros (upstream's `IsDecimalInteger`).
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = text == "0" || digits.starts_with(|c: char| ('1'..='9').contains(&c));
    if canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const PLAIN: Tolerance = Tolerance { compares: false };
    const COMPARES: Tolerance = Tolerance { compares: true };

    /// The cases of upstream's `TestTolerationToleratesTaint`.
    #[test]
    fn tolerations_cover_taints() {
        let check = |rule: Tolerance, toleration: Value, taint: Value, want: bool| {
            let t: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            let covers = rule.covers(&t, &serde_json::from_value(taint.clone()).unwrap());
            assert_eq!(covers, want, "{rule:?} {toleration} {taint}");
        };
        let taint =
            |key: &str, value: &str, effect: &str| json!({"key": key, "value": value, "effect": effect});
        let bar = |effect: &str| taint("foo", "bar", effect);
        let foo = |operator: &str, value: &str, effect: &str| json!({"key": "foo", "operator": operator, "value": value, "effect": effect});
        check(PLAIN, foo("Exists", "", NO_SCHEDULE), json!({"key": "foo", "effect": NO_SCHEDULE}), true);
        check(PLAIN, foo("Exists", "", NO_SCHEDULE), bar(NO_SCHEDULE), true);
        check(PLAIN, foo("Exists", "", ""), bar(NO_SCHEDULE), true);
        check(PLAIN, json!({"operator": "Exists", "effect": NO_SCHEDULE}), bar(NO_SCHEDULE), true);
        check(PLAIN, json!({"operator": "Exists"}), bar(NO_SCHEDULE), true);
        check(PLAIN, foo("Exists", "", NO_SCHEDULE), bar(NO_EXECUTE), false);
        check(PLAIN, foo("Equal", "bar", NO_SCHEDULE), bar(NO_SCHEDULE), true);
        check(PLAIN, foo("", "bar", NO_SCHEDULE), bar(NO_SCHEDULE), true);
        check(PLAIN, json!({"key": "foo", "value": "bar"}), bar(NO_SCHEDULE), true);
        check(PLAIN, foo("Equal", "bar1", NO_SCHEDULE), bar(NO_SCHEDULE), false);
        check(PLAIN, foo("Equal", "bar", NO_SCHEDULE), bar(NO_EXECUTE), false);
        check(PLAIN, json!({"key": "x", "operator": "Exists"}), bar(NO_SCHEDULE), false);
        check(PLAIN, json!({"key": "foo"}), json!({"key": "foo", "effect": NO_EXECUTE}), true);
        for operator in ["Lt", "Gt", "other"] {
            check(PLAIN, foo(operator, "bar", NO_SCHEDULE), bar(NO_SCHEDULE), false);
        }
        for (operator, value, has, want) in [
            ("Gt", "950", "800", false),
            ("Gt", "750", "950", true),
            ("Lt", "800", "950", false),
            ("Lt", "950", "800", true),
            ("Gt", "950", "950", false),
            ("Gt", "950", "high", false),
            ("Gt", "-100", "-200", false),
            ("Gt", "9223372036854775806", "100", false),
        ] {
            check(COMPARES, foo(operator, value, NO_SCHEDULE), taint("foo", has, NO_SCHEDULE), want);
            check(PLAIN, foo(operator, value, NO_SCHEDULE), taint("foo", has, NO_SCHEDULE), false);
            check(COMPARES, foo(operator, value, NO_SCHEDULE), taint("foo", has, NO_EXECUTE), false);
            check(COMPARES, foo(operator, value, NO_SCHEDULE), taint("bar", has, NO_SCHEDULE), false);
        }
    }

    /// The cases of upstream's `TestCompareNumericValues`.
    #[test]
    fn numbers_are_compared() {
        for (operator, wanted, has, want) in [
            ("Gt", "100", "200", true),
            ("Gt", "200", "100", false),
            ("Gt", "100", "100", false),
            ("Gt", "-100", "-50", true),
            ("Gt", "-50", "-100", false),
            ("Gt", "0", "1", true),
            ("Gt", "9223372036854775806", "9223372036854775807", true),
            ("Lt", "200", "100", true),
            ("Lt", "100", "200", false),
            ("Lt", "100", "100", false),
            ("Lt", "-50", "-100", true),
            ("Lt", "-100", "-50", false),
            ("Lt", "0", "-1", true),
            ("Gt", "abc", "100", false),
            ("Gt", "", "100", false),
            ("Gt", "0100", "200", false),
            ("Gt", "+100", "200", false),
            ("Gt", "100.5", "200", false),
            ("Gt", "-", "100", false),
            ("Gt", "100", "xyz", false),
            ("Gt", "100", "", false),
            ("Gt", "100", "0200", false),
            ("Lt", "100", "+200", false),
            ("Lt", "100", " 200 ", false),
            ("Gt", "0", "0", false),
            ("Lt", "0", "0", false),
            ("Gt", "0", "9223372036854775807", true),
            ("Lt", "0", "-9223372036854775808", true),
            // Beyond upstream's: numbers that no i64 holds, and a zero with a sign.
            ("Gt", "0", "9223372036854775808", false),
            ("Gt", "-1", "-0", false),
        ] {
            let some = |text: &str| Some(text.to_owned());
            let toleration =
                Toleration { operator: some(operator), value: some(wanted), ..Toleration::default() };
            let taint = Taint { value: some(has), ..Taint::default() };
            assert_eq!(COMPARES.covers(&toleration, &taint), want, "{has} {operator} {wanted}");
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
        assert_eq!(PLAIN.uncovered(&all, &[covers("a")]), Some(&all[1]));
        assert_eq!(PLAIN.uncovered(&all, &[]), Some(&all[0]));
        assert_eq!(PLAIN.uncovered(&all, &[covers("b"), covers("a")]), None);
        assert_eq!(PLAIN.uncovered(&[], &[]), None);
    }
}
