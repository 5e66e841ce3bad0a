//! Rules of the fields that choose a pod's node: selectors, affinity, tolerations, spreading.

use std::collections::{HashMap, HashSet};

use api::Gate;
use api::field::{Errors, Path, Typed};
use api::names;
use api::view::View;

use super::options::Options;
use crate::validation::meta::{SelectorOptions, label_name, label_selector};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks affinity to nodes and to pods.
pub(super) fn affinity(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    let Some(a) = spec.opt("affinity") else { return };
    if let Some(n) = a.opt("nodeAffinity") {
        let at = at.field("nodeAffinity");
        if let Some(r) = n.opt(REQUIRED) {
            node_selector(errs, &at.field(REQUIRED), r, o.invalid_node_affinity_values);
        }
        let at = at.field(PREFERRED);
        for (i, t) in n.items(PREFERRED).enumerate() {
            let at = at.index(i);
            weight(errs, &at, t);
            node_term(errs, &at.field("preference"), t.st("preference"), true);
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(p) = a.opt(kind) else { continue };
        let at = at.field(kind);
        let req = at.field(REQUIRED);
        for (i, t) in p.items(REQUIRED).enumerate() {
            pod_term(errs, &req.index(i), t, o);
        }
        let pref = at.field(PREFERRED);
        for (i, t) in p.items(PREFERRED).enumerate() {
            let at = pref.index(i);
            weight(errs, &at, t);
            pod_term(errs, &at.field("podAffinityTerm"), t.st("podAffinityTerm"), o);
        }
    }
}

fn weight(errs: &mut Errors, at: &Path<'_>, t: View<'_>) {
    let w = t.int("weight");
    if !(1..=100).contains(&w) {
        errs.invalid(&at.field("weight"), w, "must be in the range 1-100");
    }
}

/// Checks a selector of nodes; `keep_values` keeps values that are no label values.
pub(crate) fn node_selector(errs: &mut Errors, at: &Path<'_>, s: View<'_>, keep_values: bool) {
    let at = at.field("nodeSelectorTerms");
    if s.len("nodeSelectorTerms") == 0 {
        errs.required(&at, "must have at least one node selector term");
    }
    for (i, t) in s.items("nodeSelectorTerms").enumerate() {
        node_term(errs, &at.index(i), t, keep_values);
    }
}

fn node_term(errs: &mut Errors, at: &Path<'_>, t: View<'_>, keep_values: bool) {
    let exprs = at.field("matchExpressions");
    for (i, e) in t.items("matchExpressions").enumerate() {
        let at = exprs.index(i);
        let values = at.field("values");
        match e.str("operator") {
            "In" | "NotIn" => {
                if e.len("values") == 0 {
                    errs.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
                }
            }
            "Exists" | "DoesNotExist" => {
                if e.len("values") > 0 {
                    errs.forbidden(
                        &values,
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    );
                }
            }
            "Gt" | "Lt" => {
                if e.len("values") != 1 {
                    errs.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
                }
            }
            other => errs.invalid(&at.field("operator"), Typed(other), "not a valid selector operator"),
        }
        label_name(errs, &at.field("key"), e.str("key"));
        if !keep_values {
            for (j, v) in e.strs("values").enumerate() {
                errs.each(&values.index(j), v, names::label_value(v));
            }
        }
    }
    let fields = at.field("matchFields");
    for (i, e) in t.items("matchFields").enumerate() {
        let at = fields.index(i);
        let values = at.field("values");
        match e.str("operator") {
            "In" | "NotIn" => {
                if e.len("values") != 1 {
                    errs.required(
                        &values,
                        "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                    );
                }
            }
            other => errs.invalid(&at.field("operator"), Typed(other), "not a valid selector operator"),
        }
        let key = e.str("key");
        if key == "metadata.name" {
            for (j, v) in e.strs("values").enumerate() {
                errs.each(&values.index(j), v, names::name_subdomain(v, false));
            }
        } else {
            errs.invalid(&at.field("key"), key, "not a valid field selector key");
        }
    }
}

fn pod_term(errs: &mut Errors, at: &Path<'_>, t: View<'_>, o: &Options<'_>) {
    let so = SelectorOptions { invalid_values: o.invalid_selector_values };
    label_selector(errs, &at.field("labelSelector"), t.opt("labelSelector"), so);
    label_selector(errs, &at.field("namespaceSelector"), t.opt("namespaceSelector"), so);
    for ns in t.strs("namespaces") {
        errs.each(&at.field("namespace"), ns, names::name_label(ns, false));
    }
    let mismatch: Vec<&str> = t.strs("mismatchLabelKeys").collect();
    label_keys(errs, at, t, &mismatch);
    let key = t.str("topologyKey");
    if key.is_empty() {
        errs.required(&at.field("topologyKey"), "can not be empty");
    }
    label_name(errs, &at.field("topologyKey"), key);
}

/// Checks `matchLabelKeys` and `mismatchLabelKeys`.
pub(super) fn label_keys(errs: &mut Errors, at: &Path<'_>, t: View<'_>, mismatch: &[&str]) {
    let selector = t.opt("labelSelector");
    let keys: Vec<&str> = t.strs("matchLabelKeys").collect();
    for (name, list) in [("matchLabelKeys", keys.as_slice()), ("mismatchLabelKeys", mismatch)] {
        if list.is_empty() {
            continue;
        }
        let at = at.field(name);
        if selector.is_none() {
            errs.forbidden(&at, "must not be specified when labelSelector is not set");
            continue;
        }
        for (i, k) in list.iter().enumerate() {
            label_name(errs, &at.index(i), k);
        }
    }
    if let Some(s) = selector {
        let mut seen: HashSet<&str> = s.texts("matchLabels").map(|(k, _)| k).collect();
        let last: HashMap<&str, usize> = keys.iter().enumerate().map(|(i, k)| (*k, i)).collect();
        for e in s.items("matchExpressions") {
            let key = e.str("key");
            // A key that a merge added stands there once; twice means that the user wrote it.
            if let Some(i) = last.get(key)
                && seen.contains(&key)
            {
                errs.invalid(&at.index(*i), key, "exists in both matchLabelKeys and labelSelector");
            }
            seen.insert(key);
        }
    }
    let both = at.field("matchLabelKeys");
    let mismatch: HashSet<&str> = mismatch.iter().copied().collect();
    for (i, k) in keys.iter().enumerate() {
        if mismatch.contains(k) {
            errs.invalid(&both.index(i), *k, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

/// Checks `matchLabelKeys` of a spread constraint before they are merged into its selector: none of them may be in it.
pub(super) fn spread_keys(errs: &mut Errors, at: &Path<'_>, t: View<'_>) {
    if t.len("matchLabelKeys") == 0 {
        return;
    }
    let selector = t.st("labelSelector");
    if !t.has("labelSelector") {
        errs.forbidden(at, "must not be specified when labelSelector is not set");
    }
    let labels = selector.texts("matchLabels").map(|(k, _)| k);
    let selected: HashSet<&str> =
        labels.chain(selector.items("matchExpressions").map(|e| e.str("key"))).collect();
    for (i, key) in t.strs("matchLabelKeys").enumerate() {
        let at = at.index(i);
        label_name(errs, &at, key);
        if selected.contains(key) {
            errs.invalid(&at, key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}

/// Checks `spec.topologySpreadConstraints`.
pub(super) fn spread(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    let all: Vec<View<'_>> = spec.items("topologySpreadConstraints").collect();
    let kind = |t: &View<'_>| (t.str("topologyKey").to_owned(), t.str("whenUnsatisfiable").to_owned());
    let last: HashMap<_, usize> = all.iter().enumerate().map(|(i, t)| (kind(t), i)).collect();
    for (i, t) in all.iter().enumerate() {
        let at = at.index(i);
        errs.positive(&at.field("maxSkew"), t.int("maxSkew"));
        let (key, action) = (t.str("topologyKey"), t.str("whenUnsatisfiable"));
        if key.is_empty() {
            errs.required(&at.field("topologyKey"), "can not be empty");
        }
        errs.one_of(&at.field("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]);
        if last.get(&kind(t)).is_some_and(|last| *last > i) {
            errs.duplicate(&at.field("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {action}}}"));
        }
        if let Some(n) = t.opt_int("minDomains") {
            errs.positive(&at.field("minDomains"), n);
            if action != "DoNotSchedule" {
                errs.invalid(
                    &at.field("minDomains"),
                    n,
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"),
                );
            }
        }
        for f in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(p) = t.opt_str(f) {
                errs.one_of(&at.field(f), p, &["Honor", "Ignore"]);
            }
        }
        let merged = o.gate(Gate::MatchLabelKeysInPodTopologySpreadSelectorMerge);
        if o.gate(Gate::MatchLabelKeysInPodTopologySpread) && merged != o.other_spread_keys {
            label_keys(errs, &at, *t, &[]);
        } else {
            spread_keys(errs, &at.field("matchLabelKeys"), *t);
        }
        if !o.invalid_spread_selectors {
            label_selector(
                errs,
                &at.field("labelSelector"),
                t.opt("labelSelector"),
                SelectorOptions::default(),
            );
        }
    }
}

/// Checks `spec.tolerations`.
pub(crate) fn tolerations(errs: &mut Errors, at: &Path<'_>, of: View<'_>, o: &Options<'_>) {
    for (i, t) in of.items("tolerations").enumerate() {
        let at = at.index(i);
        let (key, operator, value, effect) =
            (t.str("key"), t.str("operator"), t.str("value"), t.str("effect"));
        if !key.is_empty() {
            label_name(errs, &at.field("key"), key);
        }
        if key.is_empty() && operator != "Exists" {
            errs.invalid(
                &at.field("operator"),
                Typed(operator),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if t.has("tolerationSeconds") && effect != "NoExecute" {
            errs.invalid(
                &at.field("effect"),
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        match operator {
            "Equal" | "" => {
                let bad = names::label_value(value);
                if !bad.is_empty() {
                    errs.invalid(&at.field("operator"), value, bad.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    errs.invalid(
                        &at.field("operator"),
                        value,
                        "value must be empty when `operator` is 'Exists'",
                    );
                }
            }
            "Lt" | "Gt" if o.gate(Gate::TaintTolerationComparisonOperators) => {
                let at = at.field("value");
                let digits = value.strip_prefix('-').unwrap_or(value);
                let decimal = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                if value != "0" && (!decimal || digits.starts_with('0')) {
                    errs.invalid(&at, value, "must be a valid decimal integer in canonical form");
                }
                if let Err(e) = value.parse::<i64>() {
                    errs.invalid(&at, value, api::go::no_integer("ParseInt", value, &e));
                }
            }
            "Lt" | "Gt" => {
                errs.not_supported(&at.field("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]);
            }
            _ => errs.not_supported(&at.field("operator"), operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            taint_effect(errs, &at.field("effect"), effect);
        }
    }
}

/// Checks the effect of a taint.
pub(crate) fn taint_effect(errs: &mut Errors, at: &Path<'_>, effect: &str) {
    errs.one_of(at, effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
}
