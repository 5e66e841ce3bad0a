//! Rules that webhooks and policies share: the choice of the requests that they see.

use super::expressions;
use std::collections::HashSet;

use api::field::{Errors, Path};
use api::names;
use api::view::View;

pub(super) const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
pub(super) const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
pub(super) const REINVOCATIONS: &[&str] = &["IfNeeded", "Never"];
const MAX_CONDITIONS: usize = 64;

/// Reports a wildcard beside other values.
fn not_alone(errs: &mut Errors, at: &Path<'_>, r: View<'_>, list: &str, what: &str) {
    if r.len(list) > 1 && r.strs(list).any(|v| v == "*") {
        errs.invalid(
            &at.field(list),
            r.get(list),
            format!("if '*' is present, must not specify other {what}"),
        );
    }
}

/// Checks operations, groups, versions, resources and scope.
pub(super) fn rule(errs: &mut Errors, at: &Path<'_>, r: View<'_>) {
    let operations_at = at.field("operations");
    if r.len("operations") == 0 {
        errs.required(&operations_at, "");
    }
    not_alone(errs, at, r, "operations", "operations");
    for (i, o) in r.strs("operations").enumerate() {
        errs.one_of(&operations_at.index(i), o, &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]);
    }
    if r.len("apiGroups") == 0 {
        errs.required(&at.field("apiGroups"), "");
    }
    not_alone(errs, at, r, "apiGroups", "API groups");
    let versions_at = at.field("apiVersions");
    if r.len("apiVersions") == 0 {
        errs.required(&versions_at, "");
    }
    not_alone(errs, at, r, "apiVersions", "API versions");
    for (i, v) in r.strs("apiVersions").enumerate() {
        if v.is_empty() {
            errs.required(&versions_at.index(i), "");
        }
    }
    resources(errs, at, r);
    if let Some(s) = r.opt_str("scope") {
        errs.one_of(&at.field("scope"), s, &["*", "Cluster", "Namespaced"]);
    }
}

fn resources(errs: &mut Errors, at: &Path<'_>, r: View<'_>) {
    let at = at.field("resources");
    let all: Vec<&str> = r.strs("resources").collect();
    if all.is_empty() {
        errs.required(&at, "");
    }
    let (mut whole, mut subs) = (HashSet::new(), HashSet::new());
    let mut plain = false;
    for (i, name) in all.iter().enumerate() {
        let at = at.index(i);
        if name.is_empty() {
            errs.required(&at, "");
            continue;
        }
        let Some((resource, sub)) = name.split_once('/') else {
            plain = *name != "*";
            continue;
        };
        if whole.contains(&resource) {
            errs.invalid(&at, *name, format!("if '{resource}/*' is present, must not specify {name}"));
        }
        if subs.contains(&sub) {
            errs.invalid(&at, *name, format!("if '*/{sub}' is present, must not specify {name}"));
        }
        if sub == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            subs.insert(sub);
        }
    }
    if all.len() > 1 && all.contains(&"*/*") {
        errs.invalid(&at, r.get("resources"), "if '*/*' is present, must not specify other resources");
    }
    if all.contains(&"*") && plain {
        errs.invalid(
            &at,
            r.get("resources"),
            "if '*' is present, must not specify other resources without subresources",
        );
    }
}

/// Checks the conditions, as expressions, that every request must fulfil.
pub(super) fn match_conditions(errs: &mut Errors, at: &Path<'_>, of: View<'_>, params: bool) {
    let env = (of.len("matchConditions") > 0).then(|| expressions::environment(params));
    let at = at.field("matchConditions");
    let count = of.len("matchConditions");
    if count > MAX_CONDITIONS {
        errs.too_many(&at, count, MAX_CONDITIONS);
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, c) in of.items("matchConditions").enumerate() {
        let at = at.index(i);
        let name = c.str("name");
        if c.str("expression").trim().is_empty() {
            errs.required(&at.field("expression"), "");
        } else if let Some(env) = &env {
            expressions::match_condition(errs, &at.field("expression"), c.str("expression"), env);
        }
        if name.is_empty() {
            errs.required(&at.field("name"), "");
            continue;
        }
        errs.each(&at.field("name"), name, names::qualified_name(name));
        if seen.contains(&name) {
            errs.duplicate(&at.field("name"), name);
        } else {
            seen.insert(name);
        }
    }
}
