//! LimitRanges.

use std::collections::{BTreeSet, HashSet};

use api::field::{Errors, Path, Typed};
use api::names::{self, name_subdomain};
use api::quantity::{milli, nano, value};
use api::view::{Edit, View};
use api::{Node, Text};

use crate::resources;
use crate::strategies::generic::{NAMESPACED, check};
use crate::strategies::meta::core_meta;
use crate::strategies::pod::resources::{container_resource_name, resource_name};
use crate::strategies::rules::Rules;

pub(crate) const LIMIT_RANGE: Rules = Rules {
    resource: "limitranges",
    create_on_update: true,
    prepare_create: |c, s| {
        // An object without a name gets its uid as its name.
        if let Some(mut m) = Edit::new(c.schema, s).at("metadata") {
            let uid = Text::from(m.view().str("uid"));
            if m.view().str("name").is_empty() && !uid.is_empty() {
                m.set("name", uid);
            }
        }
    },
    validate: |c, s| check(c, s, limit_range),
    // Upstream does not compare with the stored object here.
    validate_update: |c, n, _| check(c, n, limit_range),
    ..NAMESPACED
};

fn limit_range(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), true, name_subdomain);
    let limits = Path::root("spec.limits");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, l) in v.st("spec").items("limits").enumerate() {
        let at = limits.index(i);
        let ty = l.str("type");
        let type_at = at.field("type");
        let bad = names::qualified_name(ty);
        if bad.is_empty() {
            if !ty.contains('/') && !matches!(ty, "Pod" | "Container" | "PersistentVolumeClaim") {
                errs.invalid(&type_at, Typed(ty), "must be a standard limit type or fully qualified");
            }
        } else {
            errs.each_typed(&type_at, ty, bad);
        }
        if seen.contains(&ty) {
            errs.duplicate(&type_at, ty);
        } else {
            seen.insert(ty);
        }
        let mut keys: BTreeSet<&str> = BTreeSet::new();
        for f in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            if f == "default" && ty == "Pod" {
                for f in ["default", "defaultRequest"] {
                    if l.len(f) > 0 {
                        errs.forbidden(&at.field(f), "may not be specified when `type` is 'Pod'");
                    }
                }
            }
            if f == "maxLimitRequestRatio"
                && ty == "PersistentVolumeClaim"
                && ["min", "max"].iter().all(|f| l.map(f).is_none_or(|m| m.get("storage").is_none()))
            {
                errs.required(
                    &at.field("limits"),
                    "either minimum or maximum storage value is required, but neither was provided",
                );
            }
            if ty == "Pod" && (f == "default" || f == "defaultRequest") {
                continue;
            }
            let at = at.field(f);
            for (k, _) in l.texts(f) {
                if ty == "Pod" || ty == "Container" {
                    container_resource_name(errs, &at.key(k), k);
                } else {
                    resource_name(errs, &at.key(k), k);
                }
                keys.insert(k);
            }
        }
        for k in keys {
            limit_values(errs, &at, l, k, ty == "Pod");
        }
    }
}

fn limit_values(errs: &mut Errors, at: &Path<'_>, l: View<'_>, k: &str, pod: bool) {
    let get = |f: &str| l.map(f).and_then(|m| m.get(k)).map(Node::as_str);
    let (min, max, ratio) = (get("min"), get("max"), get("maxLimitRequestRatio"));
    let (default, request) = if pod { (None, None) } else { (get("default"), get("defaultRequest")) };
    let above = |a: Option<&str>, b: Option<&str>| match (a, b) {
        (Some(a), Some(b)) => nano(a) > nano(b),
        _ => false,
    };
    let text = |v: Option<&str>| v.unwrap_or_default().to_owned();
    let (min_at, request_at, default_at, ratio_at) =
        (at.field("min"), at.field("defaultRequest"), at.field("default"), at.field("maxLimitRequestRatio"));
    let mut report = |at: &Path<'_>, shown: Option<&str>, why: String| {
        errs.invalid(&at.key(k), text(shown), why);
    };
    if above(min, max) {
        report(&min_at, min, format!("min value {} is greater than max value {}", text(min), text(max)));
    }
    if above(min, request) {
        report(
            &request_at,
            request,
            format!("min value {} is greater than default request value {}", text(min), text(request)),
        );
    }
    if above(request, max) {
        report(
            &request_at,
            request,
            format!("default request value {} is greater than max value {}", text(request), text(max)),
        );
    }
    if above(request, default) {
        report(
            &request_at,
            request,
            format!(
                "default request value {} is greater than default limit value {}",
                text(request),
                text(default)
            ),
        );
    }
    if above(min, default) {
        report(
            &default_at,
            min,
            format!("min value {} is greater than default value {}", text(min), text(default)),
        );
    }
    if above(default, max) {
        report(
            &default_at,
            max,
            format!("default value {} is greater than max value {}", text(default), text(max)),
        );
    }
    if let Some(r) = ratio {
        if nano(r) < 1_000_000_000 {
            report(&ratio_at, ratio, format!("ratio {r} is less than 1"));
        }
        if let (Some(lo), Some(hi)) = (min, max) {
            // Amounts are compared in thousandths, unless one is too great for that; Go's whole numbers wrap around.
            let whole = [r, lo, hi].map(value);
            let (asked, lo, hi) = if whole.iter().all(|n| *n < i64::MAX / 1000) {
                (milli(r) as f64 / 1000.0, milli(lo), milli(hi))
            } else {
                (whole[0] as f64, whole[1], whole[2])
            };
            let limit = hi as f64 / lo as f64;
            if asked > limit {
                report(&ratio_at, ratio, format!("ratio {r} is greater than max/min = {}", go_float(limit)));
            }
        }
    }
    if let (Some(d), Some(r)) = (default, request)
        && !resources::is_overcommit_allowed(k)
        && nano(d) != nano(r)
    {
        report(
            &request_at,
            request,
            format!("default value {d} must equal to defaultRequest value {r} in {k}"),
        );
    }
}

/// A number as Go's `%f` prints it.
fn go_float(f: f64) -> String {
    if f.is_infinite() { "+Inf".into() } else { format!("{f:.6}") }
}
