//! Annotations of a pod that have a meaning to the API server.

use std::cell::LazyCell;
use std::collections::HashSet;

use api::field::{Errors, Path};
use api::go::quote;
use api::view::View;

use super::options::Options;
use super::parts::{CONTAINER_LISTS, each_container};
use super::paths::local_descending;

pub(super) const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(super) const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Whether a text is a 32 bit integer without a plus sign or leading zeros.
pub(super) fn is_deletion_cost(v: &str) -> bool {
    let first = v.starts_with(|c| matches!(c, '-' | '1'..='9')) || v == "0";
    first && v.parse::<i32>().is_ok()
}

/// The type and profile of the field for which an old AppArmor annotation stands.
pub(super) fn app_armor_annotation(v: &str) -> Option<(&'static str, Option<&str>)> {
    match v {
        "unconfined" => Some(("Unconfined", None)),
        "runtime/default" => Some(("RuntimeDefault", None)),
        _ => v.strip_prefix("localhost/").filter(|p| !p.is_empty()).map(|p| ("Localhost", Some(p))),
    }
}

/// Checks the annotations of a pod.
pub(crate) fn check(errs: &mut Errors, at: &Path<'_>, meta: View<'_>, spec: View<'_>, o: &Options<'_>) {
    let Some(all) = meta.map("annotations") else { return };
    if let Some(v) = all.get(MIRROR)
        && spec.str("nodeName").is_empty()
    {
        errs.invalid(&at.key(MIRROR), v.as_str(), "must set spec.nodeName if mirror pod annotation is set");
    }
    if let Some(v) = all.get(DELETION_COST)
        && !o.invalid_deletion_cost
        && !is_deletion_cost(v.as_str())
    {
        errs.invalid(&at.key(DELETION_COST), v.as_str(), "must be a 32bit integer");
    }
    for (k, v) in all.iter() {
        if k == SECCOMP_POD || k.starts_with(SECCOMP_CONTAINER) {
            let at = at.field(k);
            match v.as_str() {
                "runtime/default" | "docker/default" | "unconfined" => {}
                p => match p.strip_prefix("localhost/") {
                    Some(path) => local_descending(errs, &at, path),
                    None => errs.invalid(&at, p, "must be a valid seccomp profile"),
                },
            }
        }
    }
    let containers: LazyCell<HashSet<&str>, _> =
        LazyCell::new(|| CONTAINER_LISTS.iter().flat_map(|l| spec.items(l)).map(|c| c.str("name")).collect());
    for (k, v) in all.iter() {
        let Some(container) = k.strip_prefix(APPARMOR) else { continue };
        if !containers.contains(container) {
            errs.invalid(&at.key(k), container, "container not found");
        }
        let profile = v.as_str();
        if !(profile.is_empty()
            || profile == "runtime/default"
            || profile == "unconfined"
            || profile.starts_with("localhost/"))
        {
            errs.invalid(&at.key(k), profile, format!("invalid AppArmor profile name: {}", quote(profile)));
        }
    }
}

/// Checks an update of the annotations.
pub(super) fn check_update(
    errs: &mut Errors,
    at: &Path<'_>,
    new: View<'_>,
    old: View<'_>,
    spec: View<'_>,
    o: &Options<'_>,
) {
    for (k, v) in old.texts("annotations") {
        if new.map("annotations").and_then(|m| m.get(k)).is_some_and(|n| n.as_str() == v) {
            continue;
        }
        if k.starts_with(APPARMOR) {
            errs.forbidden(&at.key(k), "may not remove or update AppArmor annotations");
        }
        if k == MIRROR {
            errs.forbidden(&at.key(k), "may not remove or update mirror pod annotation");
        }
    }
    for (k, _) in new.texts("annotations") {
        if old.map("annotations").is_some_and(|m| m.get(k).is_some()) {
            continue;
        }
        if k.starts_with(APPARMOR) {
            errs.forbidden(&at.key(k), "may not add AppArmor annotations");
        }
        if k == MIRROR {
            errs.forbidden(&at.key(k), "may not add mirror pod annotation");
        }
    }
    check(errs, at, new, spec, o);
}

/// Checks that annotations agree with the fields that mean the same.
pub(crate) fn match_fields(errs: &mut Errors, spec_at: &Path<'_>, meta: View<'_>, spec: View<'_>) {
    let Some(all) = meta.map("annotations") else { return };
    let sc_at = spec_at.field("securityContext");
    if let (Some(p), Some(a)) = (spec.st("securityContext").opt("seccompProfile"), all.get(SECCOMP_POD)) {
        seccomp_matches(errs, &sc_at.field("seccompProfile"), a.as_str(), p);
    }
    each_container(spec, spec_at, |at, c| {
        let key = format!("{SECCOMP_CONTAINER}{}", c.str("name"));
        if let (Some(p), Some(a)) = (c.st("securityContext").opt("seccompProfile"), all.get(&key)) {
            let at = at.field("securityContext");
            seccomp_matches(errs, &at.field("seccompProfile"), a.as_str(), p);
        }
    });
    if spec.st("os").str("name") == "windows" {
        return;
    }
    let pod = spec.st("securityContext").opt("appArmorProfile");
    each_container(spec, spec_at, |at, c| {
        let Some(p) = c.st("securityContext").opt("appArmorProfile").or(pod) else { return };
        let key = format!("{APPARMOR}{}", c.str("name"));
        let Some(a) = all.get(&key) else { return };
        let at = at.field("securityContext");
        let at = at.field("appArmorProfile");
        profile_matches(errs, &at, a.as_str(), p, &["runtime/default"], "apparmor");
    });
}

fn seccomp_matches(errs: &mut Errors, at: &Path<'_>, annotation: &str, p: View<'_>) {
    profile_matches(errs, at, annotation, p, &["runtime/default", "docker/default"], "seccomp");
}

fn profile_matches(errs: &mut Errors, at: &Path<'_>, a: &str, p: View<'_>, runtime: &[&str], what: &str) {
    let wrong_type = match p.str("type") {
        "Unconfined" => a != "unconfined",
        "RuntimeDefault" => !runtime.contains(&a),
        "Localhost" => match a.strip_prefix("localhost/") {
            None => true,
            Some(path) => {
                if p.opt_str("localhostProfile") != Some(path) {
                    errs.forbidden(
                        &at.field("localhostProfile"),
                        format!("{what} profile in annotation and field must match"),
                    );
                }
                false
            }
        },
        _ => false,
    };
    if wrong_type {
        errs.forbidden(&at.field("type"), format!("{what} type in annotation and field must match"));
    }
}
