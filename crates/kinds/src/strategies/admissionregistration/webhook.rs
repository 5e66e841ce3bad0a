//! Webhook configurations.

use std::collections::HashSet;

use api::field::{Errors, Path};
use api::go::quote;
use api::names::{self, name_subdomain};
use api::view::{View, same};

use super::GROUP;
use super::rules::{FAILURE_POLICIES, MATCH_POLICIES, REINVOCATIONS, match_conditions, rule};
use crate::columns;
use crate::strategies::generic::{CLUSTER, bump_if_written, check, check_update, first_generation};
use crate::strategies::rules::Rules;
use crate::validation::meta::{SelectorOptions, label_selector, object_meta};

const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const NO_SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun", "Some", "Unknown"];

const WEBHOOK: Rules = Rules {
    group: GROUP,
    unconditional_update: false,
    prepare_create: first_generation,
    prepare_update: |c, n, o| bump_if_written(c, n, o, "webhooks"),
    validate: |c, s| check(c, s, |e, v| configuration(e, v, &Options::default())),
    validate_update: |c, n, o| check_update(c, n, o, |e, n, o| configuration(e, n, &Options::new(n, o))),
    ..CLUSTER
};

pub(crate) const MUTATING_WEBHOOK: Rules = Rules {
    resource: "mutatingwebhookconfigurations",
    columns: columns::cluster::MUTATING_WEBHOOK_CONFIGURATION,
    ..WEBHOOK
};
pub(crate) const VALIDATING_WEBHOOK: Rules = Rules {
    resource: "validatingwebhookconfigurations",
    columns: columns::cluster::VALIDATING_WEBHOOK_CONFIGURATION,
    ..WEBHOOK
};

/// Faults that are let be since the stored object has them.
#[derive(Default)]
struct Options {
    same_conditions: bool,
    side_effects: bool,
    unknown_versions: bool,
    repeated_names: bool,
    selector: SelectorOptions,
}

fn has_known_version(hook: View<'_>) -> bool {
    hook.strs("admissionReviewVersions").any(|v| VERSIONS.contains(&v))
}

impl Options {
    fn new(new: View<'_>, old: View<'_>) -> Self {
        let hooks: Vec<View<'_>> = old.items("webhooks").collect();
        let bad_selector = |h: &View<'_>| {
            ["namespaceSelector", "objectSelector"].iter().any(|f| {
                let mut errs = Errors::new();
                label_selector(&mut errs, &Path::root(""), h.opt(f), SelectorOptions::default());
                !errs.is_empty()
            })
        };
        let mut seen = HashSet::new();
        Self {
            same_conditions: new.len("webhooks") == hooks.len()
                && new
                    .items("webhooks")
                    .zip(&hooks)
                    .all(|(n, o)| same(n.get("matchConditions"), o.get("matchConditions"))),
            side_effects: hooks.iter().any(|h| !NO_SIDE_EFFECTS.contains(&h.str("sideEffects"))),
            unknown_versions: hooks
                .iter()
                .any(|h| h.len("admissionReviewVersions") > 0 && !has_known_version(*h)),
            repeated_names: !hooks.iter().all(|h| seen.insert(h.str("name"))),
            selector: SelectorOptions { invalid_values: hooks.iter().any(bad_selector) },
        }
    }
}

fn configuration(errs: &mut Errors, v: View<'_>, o: &Options) {
    object_meta(errs, v.st("metadata"), false, name_subdomain);
    let at = Path::root("webhooks");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, h) in v.items("webhooks").enumerate() {
        let at = at.index(i);
        webhook(errs, &at, h, o);
        review_versions(errs, &at, h, o);
        let name = h.str("name");
        if !o.repeated_names && !name.is_empty() {
            if seen.contains(&name) {
                errs.duplicate(&at.field("name"), name);
            } else {
                seen.insert(name);
            }
        }
    }
}

/// Checks a name, which must have at least three segments.
fn qualified(errs: &mut Errors, at: &Path<'_>, name: &str) {
    if name.is_empty() {
        errs.required(at, "");
        return;
    }
    let bad = names::dns1123_subdomain(name);
    if !bad.is_empty() {
        errs.invalid(at, name, bad.join(","));
    } else if name.split('.').count() < 3 {
        errs.invalid(at, name, "should be a domain with at least three segments separated by dots");
    }
}

fn webhook(errs: &mut Errors, at: &Path<'_>, h: View<'_>, o: &Options) {
    qualified(errs, &at.field("name"), h.str("name"));
    let rules_at = at.field("rules");
    for (i, r) in h.items("rules").enumerate() {
        rule(errs, &rules_at.index(i), r);
    }
    for (f, valid) in [("failurePolicy", FAILURE_POLICIES), ("matchPolicy", MATCH_POLICIES)] {
        if let Some(p) = h.opt_str(f) {
            errs.one_of(&at.field(f), p, valid);
        }
    }
    let allowed = if o.side_effects { SIDE_EFFECTS } else { NO_SIDE_EFFECTS };
    match h.opt_str("sideEffects") {
        None => {
            errs.required(&at.field("sideEffects"), format!("must specify one of {}", allowed.join(", ")));
        }
        Some(s) => errs.one_of(&at.field("sideEffects"), s, allowed),
    }
    if let Some(n) = h.opt_int("timeoutSeconds").filter(|n| !(1..=30).contains(n)) {
        errs.invalid(&at.field("timeoutSeconds"), n, "the timeout value must be between 1 and 30 seconds");
    }
    for f in ["namespaceSelector", "objectSelector"] {
        label_selector(errs, &at.field(f), h.opt(f), o.selector);
    }
    // Only mutating webhooks have the field.
    if h.knows("reinvocationPolicy")
        && let Some(p) = h.opt_str("reinvocationPolicy")
    {
        errs.one_of(&at.field("reinvocationPolicy"), p, REINVOCATIONS);
    }
    client_config(errs, &at.field("clientConfig"), h.st("clientConfig"));
    if !o.same_conditions {
        match_conditions(errs, at, h, false);
    }
}

/// Checks the address of a webhook: a URL, or a Service.
pub(crate) fn client_config(errs: &mut Errors, at: &Path<'_>, client: View<'_>) {
    match (client.opt_str("url"), client.opt("service")) {
        (Some(u), None) => url(errs, &at.field("url"), u),
        (None, Some(s)) => service(errs, &at.field("service"), s),
        _ => errs.required(at, "exactly one of url or service is required"),
    }
}

fn review_versions(errs: &mut Errors, at: &Path<'_>, h: View<'_>, o: &Options) {
    let at = at.field("admissionReviewVersions");
    let all: Vec<&str> = h.strs("admissionReviewVersions").collect();
    if all.is_empty() {
        errs.required(&at, format!("must specify one of {}", VERSIONS.join(", ")));
        return;
    }
    let mut seen = HashSet::new();
    for (i, v) in all.iter().enumerate() {
        if seen.insert(*v) {
            errs.each(&at.index(i), v, names::dns1035_label(v));
        } else {
            errs.invalid(&at.index(i), *v, "duplicate version");
        }
    }
    if !o.unknown_versions && !has_known_version(h) {
        errs.invalid(
            &at,
            h.get("admissionReviewVersions"),
            format!("must include at least one of {}", VERSIONS.join(", ")),
        );
    }
}

/// The reason for which Go can't read a text as a URL.
fn unreadable(text: &str) -> Option<String> {
    if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Some("net/url: invalid control character in URL".into());
    }
    if text.starts_with(':') {
        return Some("missing protocol scheme".into());
    }
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    let path = text.split('?').next().unwrap_or_default();
    let letters = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let scheme =
        path.split_once(':').filter(|(s, _)| letters(s) && s.starts_with(|c: char| c.is_ascii_alphabetic()));
    if scheme.is_none() && path.split('/').next().is_some_and(|first| first.contains(':')) {
        return Some("first path segment in URL cannot contain colon".into());
    }
    // The rest of a URL whose scheme no slash follows is not read.
    let opaque = scheme.is_some_and(|(_, rest)| !rest.starts_with('/'));
    let escaped = [if opaque { "" } else { path }, fragment];
    escaped.into_iter().find_map(bad_escape).map(|bad| format!("invalid URL escape {}", quote(bad)))
}

/// The first percent sign that two hexadecimal digits don't follow, with the text that stands there.
fn bad_escape(text: &str) -> Option<&str> {
    let bad = text.match_indices('%').map(|(i, _)| i).find(|i| {
        let digits = text.as_bytes().get(i + 1..i + 3).unwrap_or_default();
        digits.len() < 2 || !digits.iter().all(u8::is_ascii_hexdigit)
    })?;
    Some(&text[bad..text.ceil_char_boundary((bad + 3).min(text.len()))])
}

/// Checks the parts of a URL; there is no scheme without a colon before any slash.
fn url(errs: &mut Errors, at: &Path<'_>, text: &str) {
    const FORM: &str = "; desired format: https://host[/path]";
    if let Some(why) = unreadable(text) {
        errs.required(at, format!("url must be a valid URL: parse {}: {why}{FORM}", quote(text)));
        return;
    }
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = match rest.split_once(':') {
        Some((s, r))
            if !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) =>
        {
            (s.to_lowercase(), r)
        }
        _ => (String::new(), rest),
    };
    let authority = rest.strip_prefix("//").map_or("", |r| r.split('/').next().unwrap_or_default());
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if scheme != "https" {
        errs.invalid(at, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        errs.invalid(at, host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        errs.invalid(at, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errs.invalid(at, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errs.invalid(at, query, "query parameters are not permitted in the URL");
    }
}

fn service(errs: &mut Errors, at: &Path<'_>, s: View<'_>) {
    // Upstream has these two messages the wrong way round.
    if s.str("namespace").is_empty() {
        errs.required(&at.field("name"), "");
    }
    if s.str("name").is_empty() {
        errs.required(&at.field("namespace"), "");
    }
    let port = s.int("port");
    let bad = names::port_number(port);
    if !bad.is_empty() {
        errs.invalid(&at.field("port"), port, format!("port is not valid: {}", bad.join(", ")));
    }
    let path = s.str("path");
    let at = at.field("path");
    match path {
        "" | "/" => return,
        "//" => {
            errs.invalid(&at, path, "segment[0] may not be empty");
            return;
        }
        _ => {}
    }
    if !path.starts_with('/') {
        errs.invalid(&at, path, "must start with a '/'");
    }
    // The first byte is taken for the slash, whatever it is.
    let steps = String::from_utf8_lossy(&path.as_bytes()[1..]);
    let steps = steps.as_ref();
    for (i, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            errs.invalid(&at, path, format!("segment[{i}] may not be empty"));
            continue;
        }
        for why in names::dns1123_subdomain(step) {
            errs.invalid(&at, path, format!("segment[{i}]: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let check = |text: &str, expected: &[&str]| {
            let mut errs = Errors::new();
            url(&mut errs, &Path::root("url"), text);
            let found: Vec<&str> =
                errs.0.iter().map(|e| e.detail.split(';').next().unwrap_or_default()).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("https://host/path", &[]);
        check("http://host", &["'https' is the only allowed URL scheme"]);
        check("x", &["'https' is the only allowed URL scheme", "host must be specified"]);
        check("https://", &["host must be specified"]);
        check("::1", &["url must be a valid URL: parse \"::1\": missing protocol scheme"]);
        check("101%", &["url must be a valid URL: parse \"101%\": invalid URL escape \"%\""]);
        check(
            "1:2",
            &["url must be a valid URL: parse \"1:2\": first path segment in URL cannot contain colon"],
        );
        check("https://a:b@host", &["user information is not permitted in the URL"]);
        check(
            "https://host?q#f",
            &["fragments are not permitted in the URL", "query parameters are not permitted in the URL"],
        );
    }
}
