//! Admission policies and their bindings.

use std::collections::HashSet;

use api::field::{Errors, Path};
use api::names::{self, name_subdomain, path_segment};
use api::view::{View, same};

use super::GROUP;
use super::expressions::Composed;
use super::rules::{FAILURE_POLICIES, MATCH_POLICIES, REINVOCATIONS, match_conditions, rule};
use crate::columns;
use crate::strategies::generic::{
    self, CLUSTER, STATUS_ALONE, bump_spec, check, check_update, first_generation,
};
use crate::strategies::rules::{Rules, SubresourceRules, Takes, going};
use crate::validation::meta::{SelectorOptions, conditions, label_selector, object_meta};

const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;

const SPEC_ONLY: Rules = Rules {
    group: GROUP,
    unconditional_update: false,
    prepare_create: first_generation,
    prepare_update: bump_spec,
    ..CLUSTER
};

pub(crate) const VALIDATING_POLICY: Rules = Rules {
    resource: "validatingadmissionpolicies",
    columns: columns::cluster::VALIDATING_ADMISSION_POLICY,
    takes: Takes::BUT_STATUS,
    prepare_create: generic::create,
    prepare_update: generic::update,
    validate: |c, s| check(c, s, |e, v| validating_policy(e, v, None)),
    validate_update: |c, n, o| check_update(c, n, o, |e, n, o| validating_policy(e, n, Some(o))),
    subresources: &[SubresourceRules {
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, _| {
                let at = Path::root("status");
                let status = n.st("status");
                let warnings_at = at.field("typeChecking");
                let warnings_at = warnings_at.field("expressionWarnings");
                for (i, w) in status.st("typeChecking").items("expressionWarnings").enumerate() {
                    let at = warnings_at.index(i);
                    for f in ["warning", "fieldRef"] {
                        if w.str(f).trim().is_empty() {
                            e.required(&at.field(f), "");
                        }
                    }
                }
                conditions(e, &at.field("conditions"), status, "conditions");
            })
        },
        ..STATUS_ALONE
    }],
    ..SPEC_ONLY
};

pub(crate) const VALIDATING_BINDING: Rules = Rules {
    resource: "validatingadmissionpolicybindings",
    columns: columns::cluster::VALIDATING_ADMISSION_POLICY_BINDING,
    validate: |c, s| check(c, s, |e, v| binding(e, v, true)),
    validate_update: |c, n, _| check(c, n, |e, v| binding(e, v, true)),
    ..SPEC_ONLY
};

pub(crate) const MUTATING_POLICY: Rules = Rules {
    resource: "mutatingadmissionpolicies",
    columns: columns::cluster::MUTATING_ADMISSION_POLICY,
    going: &[going("v1alpha1", 35, "1.38")],
    validate: |c, s| check(c, s, |e, v| mutating_policy(e, v, None)),
    validate_update: |c, n, o| check_update(c, n, o, |e, n, o| mutating_policy(e, n, Some(o))),
    ..SPEC_ONLY
};

pub(crate) const MUTATING_BINDING: Rules = Rules {
    resource: "mutatingadmissionpolicybindings",
    columns: columns::cluster::MUTATING_ADMISSION_POLICY_BINDING,
    going: &[going("v1alpha1", 35, "1.38")],
    validate: |c, s| check(c, s, |e, v| binding(e, v, false)),
    validate_update: |c, n, _| check(c, n, |e, v| binding(e, v, false)),
    ..SPEC_ONLY
};

/// Checks the parts that both kinds of policies share, and returns what their expressions may use.
fn common(errs: &mut Errors, v: View<'_>, old: Option<View<'_>>, mutating: bool) -> Composed {
    object_meta(errs, v.st("metadata"), false, name_subdomain);
    let at = Path::root("spec");
    let spec = v.st("spec");
    match spec.opt_str("failurePolicy") {
        None => errs.required(&at.field("failurePolicy"), ""),
        Some(p) => errs.one_of(&at.field("failurePolicy"), p, FAILURE_POLICIES),
    }
    if let Some(p) = spec.opt("paramKind") {
        param_kind(errs, &at.field("paramKind"), p);
    }
    let match_at = at.field("matchConstraints");
    match spec.opt("matchConstraints") {
        None => errs.required(&match_at, ""),
        Some(m) => {
            match_resources(errs, &match_at, m);
            let rules_at = match_at.field("resourceRules");
            if m.len("resourceRules") == 0 {
                errs.required(&rules_at, "");
            }
            if mutating {
                mutating_operations(errs, &rules_at, m);
            }
        }
    }
    let unchanged = old.is_some_and(|o| {
        ["paramKind", "matchConditions"].iter().all(|f| same(o.st("spec").get(f), spec.get(f)))
    });
    if !unchanged {
        match_conditions(errs, &at, spec, spec.has("paramKind"));
    }
    let at = at.field("variables");
    // As in upstream, a validating policy without variables does not know of any.
    let has_variables = mutating || spec.len("variables") > 0;
    let composed = Composed::new(spec.has("paramKind"), has_variables);
    for (i, variable) in spec.items("variables").enumerate() {
        let at = at.index(i);
        let name = variable.str("name");
        if name.trim().is_empty() {
            errs.required(&at.field("name"), "name is not specified");
        } else if !is_cel_identifier(name) {
            errs.invalid(&at.field("name"), name, "must be a valid CEL identifier");
        }
        if expression(errs, &at, variable) {
            composed.variable(errs, &at.field("expression"), name, variable.str("expression"));
        }
    }
    composed
}

fn is_cel_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
        && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
        && !cel::RESERVED.contains(&name)
}

/// Whether there is an expression.
fn expression(errs: &mut Errors, at: &Path<'_>, v: View<'_>) -> bool {
    let missing = v.str("expression").trim().is_empty();
    if missing {
        errs.required(&at.field("expression"), "expression is not specified");
    }
    !missing
}

fn param_kind(errs: &mut Errors, at: &Path<'_>, p: View<'_>) {
    let (text, kind) = (p.str("apiVersion"), p.str("kind"));
    let version_at = at.field("apiVersion");
    let parts: Vec<&str> = text.split('/').collect();
    match parts[..] {
        [""] => errs.required(&version_at, ""),
        [_, _, _, ..] => {
            errs.invalid(&version_at, text, format!("unexpected GroupVersion string: {text}"));
        }
        _ => {
            let (group, version) = if parts.len() == 2 { (parts[0], parts[1]) } else { ("", text) };
            let bad = names::dns1123_subdomain(group);
            if !group.is_empty() && !bad.is_empty() {
                errs.invalid(&version_at, group, bad.join(","));
            }
            let bad = names::dns1035_label(version);
            if version.is_empty() {
                errs.invalid(&version_at, text, "version must be specified");
            } else if !bad.is_empty() {
                errs.invalid(&version_at, version, bad.join(","));
            }
        }
    }
    let bad = names::dns1035_label(&kind.to_lowercase());
    if kind.is_empty() {
        errs.required(&at.field("kind"), "");
    } else if !bad.is_empty() {
        errs.invalid(
            &at.field("kind"),
            kind,
            format!("may have mixed case, but should otherwise match: {}", bad.join(",")),
        );
    }
}

fn match_resources(errs: &mut Errors, at: &Path<'_>, m: View<'_>) {
    match m.opt_str("matchPolicy") {
        None => errs.required(&at.field("matchPolicy"), ""),
        Some(p) => errs.one_of(&at.field("matchPolicy"), p, MATCH_POLICIES),
    }
    for f in ["namespaceSelector", "objectSelector"] {
        match m.opt(f) {
            None => errs.required(&at.field(f), ""),
            s => label_selector(errs, &at.field(f), s, SelectorOptions::default()),
        }
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        let at = at.field(list);
        for (i, r) in m.items(list).enumerate() {
            let at = at.index(i);
            let names_at = at.field("resourceNames");
            let all: Vec<&str> = r.strs("resourceNames").collect();
            let mut seen = HashSet::new();
            for (j, name) in all.iter().enumerate() {
                errs.each(&names_at.index(j), name, path_segment(name, false));
                if !seen.insert(*name) {
                    errs.duplicate(&names_at.index(j), *name);
                }
            }
            rule(errs, &at, r);
        }
    }
}

/// Reports deletions among the operations of a mutating policy: they leave nothing to mutate.
fn mutating_operations(errs: &mut Errors, rules_at: &Path<'_>, m: View<'_>) {
    let at = rules_at.field("operations");
    for o in m.items("resourceRules").flat_map(|r| r.strs("operations")) {
        errs.one_of(&at, o, &["*", "CONNECT", "CREATE", "UPDATE"]);
    }
}

fn validating_policy(errs: &mut Errors, v: View<'_>, old: Option<View<'_>>) {
    let composed = common(errs, v, old, false);
    let at = Path::root("spec");
    let spec = v.st("spec");
    let (validations_at, notes_at) = (at.field("validations"), at.field("auditAnnotations"));
    if spec.len("validations") == 0 && spec.len("auditAnnotations") == 0 {
        for at in [&validations_at, &notes_at] {
            errs.required(at, "validations or auditAnnotations must contain at least one item");
        }
    }
    for (i, validation) in spec.items("validations").enumerate() {
        let at = validations_at.index(i);
        if expression(errs, &at, validation) {
            composed.validation(errs, &at.field("expression"), validation.str("expression"));
        }
        let (message, dynamic) = (validation.str("message"), validation.str("messageExpression"));
        let blank = |t: &str| !t.is_empty() && t.trim().is_empty();
        if blank(dynamic) {
            errs.invalid(&at.field("messageExpression"), dynamic, "must be non-empty if specified");
        } else if !dynamic.is_empty() {
            composed.message(errs, &at.field("messageExpression"), dynamic);
        }
        if blank(message) {
            errs.invalid(&at.field("message"), message, "must be non-empty if specified");
        } else if message.trim().contains(['\n', '\r']) {
            errs.invalid(&at.field("message"), message, "must not contain line breaks");
        }
        if let Some(r) = validation.opt_str("reason") {
            errs.one_of(&at.field("reason"), r, &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
        }
    }
    let count = spec.len("auditAnnotations");
    if count > MAX_AUDIT_ANNOTATIONS {
        errs.invalid(
            &notes_at,
            spec.get("auditAnnotations"),
            format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations"),
        );
    }
    let name = v.st("metadata").str("name");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, note) in spec.items("auditAnnotations").enumerate() {
        let at = notes_at.index(i);
        let key = note.str("key");
        if name.is_empty() {
            errs.invalid(&at.field("key"), key, "requires metadata.name be non-empty");
        } else {
            let full = format!("{name}/{key}");
            errs.each(&at.field("key"), &full, names::qualified_name(&full));
        }
        let value = note.str("valueExpression").trim();
        let value_at = at.field("valueExpression");
        if value.is_empty() {
            errs.required(&value_at, "valueExpression is not specified");
        } else if value.len() > MAX_VALUE_EXPRESSION {
            errs.required(&value_at, format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length"));
        } else {
            composed.annotation(errs, &value_at, note.str("valueExpression"));
        }
        if seen.contains(&key) {
            errs.duplicate(&at.field("key"), key);
        } else {
            seen.insert(key);
        }
    }
}

fn mutating_policy(errs: &mut Errors, v: View<'_>, old: Option<View<'_>>) {
    let composed = common(errs, v, old, true);
    let at = Path::root("spec");
    let spec = v.st("spec");
    let mutations_at = at.field("mutations");
    if spec.len("mutations") == 0 {
        errs.required(&mutations_at, "mutations must contain at least one item");
    }
    for (i, m) in spec.items("mutations").enumerate() {
        mutation(errs, &mutations_at.index(i), m, &composed);
    }
    let policy = spec.str("reinvocationPolicy");
    if policy.is_empty() {
        errs.required(&at.field("reinvocationPolicy"), "");
    } else {
        errs.one_of(&at.field("reinvocationPolicy"), policy, REINVOCATIONS);
    }
}

fn mutation(errs: &mut Errors, at: &Path<'_>, m: View<'_>, composed: &Composed) {
    let ty = m.str("patchType");
    let (own, other) = match ty {
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        "" => {
            errs.required(&at.field("patchType"), "");
            return;
        }
        _ => {
            errs.not_supported(&at.field("patchType"), ty, &["ApplyConfiguration", "JSONPatch"]);
            return;
        }
    };
    match m.opt(own) {
        None => errs.required(&at.field(own), format!("must be specified when patchType is {ty}")),
        Some(p) if p.str("expression").trim().is_empty() => {
            errs.required(&at.field(own).field("expression"), "");
        }
        Some(p) => {
            let at = at.field(own);
            composed.mutation(errs, &at.field("expression"), p.str("expression"), ty == "JSONPatch");
        }
    }
    if m.has(other) {
        errs.invalid(
            &at.field(other),
            format!("{{{other}}}"),
            format!("must not be specified when patchType is {ty}"),
        );
    }
}

fn binding(errs: &mut Errors, v: View<'_>, validating: bool) {
    object_meta(errs, v.st("metadata"), false, name_subdomain);
    let at = Path::root("spec");
    let spec = v.st("spec");
    let policy = spec.str("policyName");
    if policy.is_empty() {
        errs.required(&at.field("policyName"), "");
    } else {
        errs.each(&at.field("policyName"), policy, name_subdomain(policy, false));
    }
    if let Some(p) = spec.opt("paramRef") {
        param_ref(errs, &at.field("paramRef"), p);
    }
    if let Some(m) = spec.opt("matchResources") {
        let at = at.field("matchResources");
        match_resources(errs, &at, m);
        if !validating {
            mutating_operations(errs, &at.field("resourceRules"), m);
        }
    }
    if !validating {
        return;
    }
    let at = at.field("validationActions");
    let all: Vec<&str> = spec.strs("validationActions").collect();
    let mut seen = HashSet::new();
    for (i, a) in all.iter().enumerate() {
        errs.one_of(&at.index(i), a, &["Audit", "Deny", "Warn"]);
        if !seen.insert(*a) {
            errs.duplicate(&at.index(i), *a);
        }
    }
    if all.contains(&"Deny") && all.contains(&"Warn") {
        errs.invalid(
            &at,
            spec.get("validationActions"),
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        );
    }
    if all.is_empty() {
        errs.required(&at, "at least one validation action is required");
    }
}

fn param_ref(errs: &mut Errors, at: &Path<'_>, p: View<'_>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let name = p.str("name");
    let selector = p.opt("selector");
    if !name.is_empty() {
        errs.each(&at.field("name"), name, path_segment(name, false));
        if selector.is_some() {
            errs.forbidden(&at.field("name"), EXCLUSIVE);
        }
    }
    if selector.is_some() {
        label_selector(errs, &at.field("selector"), selector, SelectorOptions::default());
        if !name.is_empty() {
            errs.forbidden(&at.field("selector"), EXCLUSIVE);
        }
    } else if name.is_empty() {
        errs.required(at, "one of name or selector must be specified");
    }
    let action = p.str("parameterNotFoundAction");
    let at = at.field("parameterNotFoundAction");
    if action.is_empty() {
        errs.required(&at, "");
    } else {
        errs.one_of(&at, action, &["Deny", "Allow"]);
    }
}
