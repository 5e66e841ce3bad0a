//! Lists of tolerations (upstream's `pkg/util/tolerations`).

use api::view::{Edit, View};
use api::{Node, Struct, Text};
use serde::Deserialize;

/// A toleration.
#[derive(Debug, Deserialize, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Toleration {
    pub(super) key: Text,
    pub(super) operator: Text,
    pub(super) value: Text,
    pub(super) effect: Text,
    pub(super) toleration_seconds: Option<i64>,
}

/// The tolerations of a Pod's spec.
pub(super) fn of(spec: &View<'_>) -> Vec<Toleration> {
    let each = spec.items("tolerations").map(|t| Toleration {
        key: t.str("key").into(),
        operator: t.str("operator").into(),
        value: t.str("value").into(),
        effect: t.str("effect").into(),
        toleration_seconds: t.opt_int("tolerationSeconds"),
    });
    each.collect()
}

/// Gives a Pod's spec these tolerations.
pub(super) fn set(spec: &mut Edit<'_>, all: &[Toleration]) {
    let made: Vec<Node> = all.iter().filter_map(|t| made(spec, t)).map(Node::from).collect();
    spec.put("tolerations", (!made.is_empty()).then_some(Node::List(made)));
}

fn made(spec: &Edit<'_>, from: &Toleration) -> Option<Struct> {
    let mut made = spec.fresh("tolerations")?;
    let mut edit = Edit::new(spec.schema, &mut made);
    let texts =
        [("key", &from.key), ("operator", &from.operator), ("value", &from.value), ("effect", &from.effect)];
    for (field, value) in texts {
        if !value.is_empty() {
            edit.set(field, value.clone());
        }
    }
    if let Some(seconds) = from.toleration_seconds {
        edit.set("tolerationSeconds", seconds);
    }
    Some(made)
}

/// The greatest number of tolerations that are merged; more stay as they are.
///
/// DIFFERENCE: upstream compares each with each, also 40,000.
const MOST_MERGED: usize = 1000;

/// Leaves out the tolerations that another one makes needless; of equal ones the first stays.
pub(super) fn merge(all: Vec<Toleration>) -> Vec<Toleration> {
    if all.len() > MOST_MERGED {
        return all;
    }
    let mut merged: Vec<Toleration> = Vec::new();
    for (i, t) in all.iter().enumerate() {
        let covered = merged.iter().any(|m| is_superset(m, t))
            || all[i + 1..].iter().any(|later| later != t && is_superset(later, t));
        if !covered {
            merged.push(t.clone());
        }
    }
    merged
}

/// Whether `wide` tolerates everything that `t` does.
pub(super) fn is_superset(wide: &Toleration, t: &Toleration) -> bool {
    if wide == t {
        return true;
    }
    if wide.key != t.key && !(wide.key.is_empty() && wide.operator == "Exists")
        || wide.effect != t.effect && !wide.effect.is_empty()
    {
        return false;
    }
    if wide.effect == "NoExecute"
        && let Some(seconds) = wide.toleration_seconds
        && t.toleration_seconds.is_none_or(|s| s > seconds)
    {
        return false;
    }
    match wide.operator.as_str() {
        "Equal" | "" => t.operator == "Equal" && wide.value == t.value,
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_merge() {
        let t = |key: &str, operator: &str, value: &str, effect: &str, seconds: Option<i64>| Toleration {
            key: key.into(),
            operator: operator.into(),
            value: value.into(),
            effect: effect.into(),
            toleration_seconds: seconds,
        };
        let equal = t("a", "Equal", "1", "NoSchedule", None);
        let exists = t("a", "Exists", "", "NoSchedule", None);
        let all = t("", "Exists", "", "", None);
        let cases = [
            (vec![equal.clone(), equal.clone()], vec![equal.clone()]),
            (vec![equal.clone(), exists.clone()], vec![exists.clone()]),
            (vec![all.clone(), exists.clone(), equal.clone()], vec![all.clone()]),
            (
                vec![t("b", "Exists", "", "NoExecute", Some(5)), t("b", "Exists", "", "NoExecute", Some(9))],
                vec![t("b", "Exists", "", "NoExecute", Some(9))],
            ),
        ];
        for (given, want) in cases {
            assert!(merge(given) == want);
        }
    }
}
