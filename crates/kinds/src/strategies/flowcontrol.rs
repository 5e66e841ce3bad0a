//! FlowSchemas and PriorityLevelConfigurations.

use std::collections::HashSet;

use api::field::{Errors, Path};
use api::names::{self, name_subdomain};
use api::view::View;

use super::generic::{self, CLUSTER, STATUS_ALONE, check};
use super::template::whole;
use crate::columns;
use crate::strategies::meta::core_meta;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Upstream's limits; the last one limits the bits of hash by which a hand of queues is chosen.
const MAX_PRECEDENCE: i64 = 10_000;
const MAX_QUEUES: i64 = 10_000_000;
const MAX_HASH_BITS: i64 = 60;

const STATUS: SubresourceRules = SubresourceRules {
    validate_update: |c, n, _| check(c, n, |e, v| conditions(e, v.st("status"))),
    ..STATUS_ALONE
};

pub(super) const FLOW_SCHEMA: Rules = Rules {
    group: GROUP,
    resource: "flowschemas",
    columns: columns::cluster::FLOW_SCHEMA,
    takes: Takes::BUT_STATUS,
    prepare_create: generic::create,
    prepare_update: generic::update,
    validate: |c, s| check(c, s, flow_schema),
    validate_update: |c, n, _| check(c, n, flow_schema),
    subresources: &[STATUS],
    ..CLUSTER
};

fn conditions(errs: &mut Errors, status: View<'_>) {
    let at = Path::root("status.conditions");
    let mut seen = HashSet::new();
    for (i, ty) in status.items("conditions").map(|c| c.str("type")).enumerate() {
        let at = at.index(i);
        let at = at.field("type");
        if !seen.insert(ty) {
            errs.duplicate(&at, ty);
        }
        if ty.is_empty() {
            errs.required(&at, "");
        }
    }
}

fn flow_schema(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), false, name_subdomain);
    let at = Path::root("spec");
    let spec = v.st("spec");
    let n = spec.int("matchingPrecedence");
    let precedence_at = at.field("matchingPrecedence");
    if n <= 0 {
        errs.invalid(&precedence_at, n, "must be a positive value");
    }
    if n > MAX_PRECEDENCE {
        errs.invalid(&precedence_at, n, format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if n == 1 && v.st("metadata").str("name") != "exempt" {
        errs.invalid(&precedence_at, n, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
    if let Some(m) = spec.opt("distinguisherMethod")
        && !matches!(m.str("type"), "ByNamespace" | "ByUser")
    {
        let at = at.field("distinguisherMethod");
        errs.not_supported(&at.field("type"), whole(m), &["ByNamespace", "ByUser"]);
    }
    let level = spec.st("priorityLevelConfiguration").str("name");
    let level_at = at.field("priorityLevelConfiguration");
    let level_at = level_at.field("name");
    if level.is_empty() {
        errs.required(&level_at, "must reference a priority level");
    } else {
        errs.each(&level_at, level, name_subdomain(level, false));
    }
    let at = at.field("rules");
    for (i, r) in spec.items("rules").enumerate() {
        rule(errs, &at.index(i), r);
    }
    conditions(errs, v.st("status"));
}

fn rule(errs: &mut Errors, at: &Path<'_>, r: View<'_>) {
    let subjects_at = at.field("subjects");
    if r.len("subjects") == 0 {
        errs.required(&subjects_at, "subjects must contain at least one value");
    }
    for (i, s) in r.items("subjects").enumerate() {
        subject(errs, &subjects_at.index(i), s);
    }
    if r.len("resourceRules") == 0 && r.len("nonResourceRules") == 0 {
        errs.required(at, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    let rules_at = at.field("resourceRules");
    for (i, r) in r.items("resourceRules").enumerate() {
        resource_rule(errs, &rules_at.index(i), r);
    }
    let rules_at = at.field("nonResourceRules");
    for (i, r) in r.items("nonResourceRules").enumerate() {
        let at = rules_at.index(i);
        verbs(errs, &at, r);
        let urls_at = at.field("nonResourceURLs");
        if r.len("nonResourceURLs") == 0 {
            errs.required(&urls_at, "nonResourceURLs must contain at least one value");
        } else if !alone(errs, &at, r, "nonResourceURLs", "non-resource URLs") {
            for (j, url) in r.strs("nonResourceURLs").enumerate() {
                if let Some(why) = bad_url(url) {
                    errs.invalid(&urls_at.index(j), url, why);
                }
            }
        }
    }
}

/// The kinds of subjects, with the fields that identify them.
const SUBJECTS: [(&str, &str); 3] =
    [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

fn subject(errs: &mut Errors, at: &Path<'_>, s: View<'_>) {
    let kind = s.str("kind");
    let Some((_, own)) = SUBJECTS.iter().find(|(k, _)| *k == kind) else {
        errs.not_supported(&at.field("kind"), kind, &["Group", "ServiceAccount", "User"]);
        return;
    };
    let own_at = at.field(own);
    match s.opt(own) {
        None => errs.required(&own_at, format!("{own} is required when subject kind is '{kind}'")),
        Some(s) => {
            let name = s.str("name");
            let account = kind == "ServiceAccount";
            if name.is_empty() {
                errs.required(&own_at.field("name"), "");
            } else if account && name != "*" {
                errs.each(&own_at.field("name"), name, name_subdomain(name, false));
            }
            if account {
                let ns = s.str("namespace");
                if ns.is_empty() {
                    errs.required(&own_at.field("namespace"), "must specify namespace for service account");
                } else {
                    errs.each(&own_at.field("namespace"), ns, names::name_label(ns, false));
                }
            }
        }
    }
    for (kind, field) in SUBJECTS.iter().filter(|(_, f)| f != own) {
        if s.has(field) {
            errs.forbidden(
                &at.field(field),
                format!("{field} is forbidden when subject kind is not '{kind}'"),
            );
        }
    }
}

/// Whether a list has the wildcard, which must then stand alone.
fn alone(errs: &mut Errors, at: &Path<'_>, r: View<'_>, list: &str, what: &str) -> bool {
    let wild = r.strs(list).any(|v| v == "*");
    if wild && r.len(list) > 1 {
        errs.invalid(
            &at.field(list),
            r.get(list),
            format!("if '*' is present, must not specify other {what}"),
        );
    }
    wild
}

fn verbs(errs: &mut Errors, at: &Path<'_>, r: View<'_>) {
    const VERBS: &[&str] =
        &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
    if r.len("verbs") == 0 {
        errs.required(&at.field("verbs"), "verbs must contain at least one value");
    } else if !alone(errs, at, r, "verbs", "verbs") && r.strs("verbs").any(|v| !VERBS.contains(&v)) {
        errs.not_supported(&at.field("verbs"), r.get("verbs"), VERBS);
    }
}

fn resource_rule(errs: &mut Errors, at: &Path<'_>, r: View<'_>) {
    verbs(errs, at, r);
    for (list, one, many) in
        [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")]
    {
        if r.len(list) == 0 {
            errs.required(&at.field(list), format!("resource rules must supply at least one {one}"));
        } else {
            alone(errs, at, r, list, many);
        }
    }
    let ns_at = at.field("namespaces");
    if r.len("namespaces") == 0 && !r.bool("clusterScope") {
        errs.required(
            &ns_at,
            "resource rules that are not cluster scoped must supply at least one namespace",
        );
    } else if !alone(errs, at, r, "namespaces", "namespaces") {
        for (i, ns) in r.strs("namespaces").enumerate() {
            for why in names::name_label(ns, false) {
                errs.invalid(
                    &ns_at.index(i),
                    ns,
                    format!("each member of this list must be '*' or a DNS-1123 label; {why}"),
                );
            }
        }
    }
}

fn bad_url(url: &str) -> Option<&'static str> {
    let stars = url.matches('*').count();
    Some(match url {
        "" => "must not be empty",
        "/" => return None,
        _ if !url.starts_with('/') => "must start with slash",
        _ if url.contains(' ') => "must not contain white-space",
        _ if url.contains("//") => "must not contain double slash",
        _ if stars > 1 || stars == 1 && !url.ends_with("/*") => "wildcard can only do suffix matching",
        _ => return None,
    })
}

pub(super) const PRIORITY_LEVEL: Rules = Rules {
    group: GROUP,
    resource: "prioritylevelconfigurations",
    columns: columns::cluster::PRIORITY_LEVEL_CONFIGURATION,
    takes: Takes::BUT_STATUS,
    prepare_create: generic::create,
    prepare_update: generic::update,
    validate: |c, s| check(c, s, priority_level),
    validate_update: |c, n, _| check(c, n, priority_level),
    subresources: &[STATUS],
    ..CLUSTER
};

fn priority_level(errs: &mut Errors, v: View<'_>) {
    const PRESERVE: &str = "flowcontrol.k8s.io/preserve-zero-concurrency-shares";
    let meta = v.st("metadata");
    core_meta(errs, meta, false, name_subdomain);
    if meta.map("annotations").is_some_and(|a| a.get(PRESERVE).is_some()) {
        errs.forbidden(&Path::root("metadata.annotations"), format!("annotation '{PRESERVE}' is forbidden"));
    }
    let at = Path::root("spec");
    let spec = v.st("spec");
    let ty = spec.str("type");
    if (meta.str("name") == "exempt") != (ty == "Exempt") {
        errs.invalid(&at.field("type"), ty, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    let (exempt_at, limited_at) = (at.field("exempt"), at.field("limited"));
    match ty {
        "Exempt" => {
            if spec.has("limited") {
                errs.forbidden(&limited_at, "must be nil if the type is not Limited");
            }
            if let Some(e) = spec.opt("exempt") {
                shares(errs, &exempt_at, e);
                lendable(errs, &exempt_at, e);
            }
        }
        "Limited" => {
            if spec.has("exempt") {
                errs.forbidden(&exempt_at, "must be nil if the type is Limited");
            }
            match spec.opt("limited") {
                None => errs.required(&limited_at, "must not be empty when type is Limited"),
                Some(l) => limited(errs, &limited_at, l),
            }
        }
        _ => errs.not_supported(&at.field("type"), ty, &["Exempt", "Limited"]),
    }
    conditions(errs, v.st("status"));
}

fn shares(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    if let Some(n) = v.opt_int("nominalConcurrencyShares").filter(|n| *n < 0) {
        errs.invalid(&at.field("nominalConcurrencyShares"), n, "must be a non-negative integer");
    }
}

fn lendable(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    if let Some(n) = v.opt_int("lendablePercent").filter(|n| !(0..=100).contains(n)) {
        errs.invalid(&at.field("lendablePercent"), n, "must be between 0 and 100, inclusive");
    }
}

fn limited(errs: &mut Errors, at: &Path<'_>, l: View<'_>) {
    shares(errs, at, l);
    let response = l.st("limitResponse");
    let response_at = at.field("limitResponse");
    let queuing_at = response_at.field("queuing");
    match (response.str("type"), response.opt("queuing")) {
        ("Reject", Some(_)) => {
            errs.forbidden(&queuing_at, "must be nil if limited.limitResponse.type is not Limited");
        }
        ("Reject", None) => {}
        ("Queue", None) => {
            errs.required(&queuing_at, "must not be empty if limited.limitResponse.type is Limited");
        }
        ("Queue", Some(q)) => queuing(errs, &queuing_at, q),
        (ty, _) => errs.not_supported(&response_at.field("type"), ty, &["Queue", "Reject"]),
    }
    lendable(errs, at, l);
    if let Some(n) = l.opt_int("borrowingLimitPercent").filter(|n| *n < 0) {
        errs.invalid(&at.field("borrowingLimitPercent"), n, "if specified, must be a non-negative integer");
    }
}

fn queuing(errs: &mut Errors, at: &Path<'_>, q: View<'_>) {
    let (length, queues, hand) = (q.int("queueLengthLimit"), q.int("queues"), q.int("handSize"));
    if length <= 0 {
        errs.invalid(&at.field("queueLengthLimit"), length, "must be positive");
    }
    if queues <= 0 {
        errs.invalid(&at.field("queues"), queues, "must be positive");
    } else if queues > MAX_QUEUES {
        errs.invalid(&at.field("queues"), queues, format!("must not be greater than {MAX_QUEUES}"));
    }
    let at = at.field("handSize");
    if hand <= 0 {
        errs.invalid(&at, hand, "must be positive");
    } else if hand > queues {
        errs.invalid(&at, hand, format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > MAX_HASH_BITS {
        errs.invalid(
            &at,
            hand,
            format!(
                "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
            ),
        );
    }
}

/// The bits of hash that are needed to deal a hand from a deck.
fn entropy_bits(deck: i64, hand: i64) -> i64 {
    ((deck as f64).log2() * hand as f64).ceil() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy() {
        for (deck, hand, expected) in [(1, 1, 0), (64, 8, 48), (128, 6, 42), (512, 4, 36), (1 << 20, 4, 80)] {
            assert_eq!(entropy_bits(deck, hand), expected, "{deck} {hand}");
        }
    }

    #[test]
    fn urls() {
        for (url, good) in [
            ("/", true),
            ("/a/*", true),
            ("", false),
            ("a", false),
            ("/a b", false),
            ("//", false),
            ("/*/a", false),
        ] {
            assert_eq!(bad_url(url).is_none(), good, "{url:?}");
        }
    }
}
