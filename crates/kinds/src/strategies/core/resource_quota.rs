//! ResourceQuotas.

use std::collections::HashMap;

use api::Text;
use api::field::{Errors, IMMUTABLE, Lazy, Path, Raw, Typed};
use api::names::name_subdomain;
use api::quantity::nano;
use api::view::View;

use crate::columns;
use crate::resources;
use crate::strategies::generic::{self, NAMESPACED, check, check_update, keep_status};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::resources::{quantity_value, resource_name};
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::validation::print;

pub(crate) const RESOURCE_QUOTA: Rules = Rules {
    resource: "resourcequotas",
    columns: columns::core::RESOURCE_QUOTA,
    takes: Takes::BUT_STATUS,
    prepare_create: generic::drop_status,
    prepare_update: keep_status,
    validate: |c, s| check(c, s, quota),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            quota_spec(e, n.st("spec"));
            let scopes = |v: View<'_>| {
                let mut all: Vec<Text> = v.st("spec").strs("scopes").map(Text::from).collect();
                all.sort();
                all.dedup();
                all
            };
            if scopes(n) != scopes(o) {
                e.invalid(&Path::root("spec.scopes"), Raw(print::field(n.st("spec"), "scopes")), IMMUTABLE);
            }
        })
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC,
        prepare_update: generic::status_only,
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                core_meta_update(e, n.st("metadata"), o.st("metadata"));
                let at = Path::root("status");
                for f in ["hard", "used"] {
                    let at = at.field(f);
                    for (k, q) in n.st("status").texts(f) {
                        quota_resource(e, &at.key(k), k);
                        quantity_value(e, &at.key(k), k, q);
                    }
                }
            })
        },
    }],
    warnings: |c, n, old| match old {
        None => warnings(View::new(c.schema, n).st("spec")),
        Some(_) => Vec::new(),
    },
    ..NAMESPACED
};

/// Warns of requests that can never be used up, since the limits are smaller.
fn warnings(spec: View<'_>) -> Vec<String> {
    let Some(hard) = spec.map("hard") else { return Vec::new() };
    let mut out = Vec::new();
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let (mut request, limit) = (format!("requests.{name}"), format!("limits.{name}"));
        if hard.get(&request).is_none() && matches!(name, "cpu" | "memory") {
            request = name.into();
        }
        if let (Some(r), Some(l)) = (hard.get(&request), hard.get(&limit))
            && nano(r.as_str()) > nano(l.as_str())
        {
            let (r, l) = (r.as_str(), l.as_str());
            out.push(format!("ResourceQuota {request} ({r}) should be less than {limit} ({l})"));
        }
    }
    out
}

fn quota(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), true, name_subdomain);
    quota_spec(errs, v.st("spec"));
}

fn is_quota_resource(name: &str) -> bool {
    matches!(
        name,
        "cpu"
            | "memory"
            | "ephemeral-storage"
            | "requests.cpu"
            | "requests.memory"
            | "requests.storage"
            | "requests.ephemeral-storage"
            | "limits.cpu"
            | "limits.memory"
            | "limits.ephemeral-storage"
            | "pods"
            | "resourcequotas"
            | "services"
            | "replicationcontrollers"
            | "secrets"
            | "persistentvolumeclaims"
            | "configmaps"
            | "services.nodeports"
            | "services.loadbalancers"
    ) || resources::is_huge_page(name)
        || name.starts_with("requests.hugepages-")
}

fn quota_resource(errs: &mut Errors, at: &Path<'_>, name: &str) {
    resource_name(errs, at, name);
    if !name.contains('/') && !is_quota_resource(name) {
        errs.invalid(at, Typed(name), "must be a standard resource for quota");
    }
}

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

fn is_scope(s: &str) -> bool {
    SCOPES.contains(&s)
}

/// Whether a scope applies to a resource.
fn scope_fits(scope: &str, resource: &str) -> bool {
    let compute = matches!(
        resource,
        "cpu" | "memory" | "requests.cpu" | "requests.memory" | "limits.cpu" | "limits.memory"
    );
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => resource == "pods" || compute,
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

/// For each scope, the number of a quota's resources to which it does not apply.
#[derive(Default)]
struct Misfits<'a>(HashMap<&'a str, usize>);

impl<'a> Misfits<'a> {
    fn of(&mut self, scope: &'a str, spec: View<'_>) -> usize {
        let misfit = |k: &str| is_quota_resource(k) && !scope_fits(scope, k);
        *self.0.entry(scope).or_insert_with(|| {
            if is_scope(scope) { spec.texts("hard").filter(|(k, _)| misfit(k)).count() } else { 0 }
        })
    }
}

fn quota_spec(errs: &mut Errors, spec: View<'_>) {
    let at = Path::root("spec");
    let hard = at.field("hard");
    for (k, q) in spec.texts("hard") {
        quota_resource(errs, &hard.key(k), k);
        quantity_value(errs, &hard.key(k), k, q);
    }
    let scopes_at = at.field("scopes");
    let all = || spec.get("scopes");
    let scopes: Vec<&str> = spec.strs("scopes").collect();
    let mut misfits = Misfits::default();
    for s in &scopes {
        if !is_scope(s) {
            errs.invalid(&scopes_at, all(), "unsupported scope");
        }
        let strange = misfits.of(s, spec);
        errs.times(strange, |e| e.invalid(&scopes_at, all(), "unsupported scope applied to resource"));
    }
    let conflicts = |errs: &mut Errors, at: &Path<'_>, of: &[&str]| {
        for (a, b) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
            if of.contains(&a) && of.contains(&b) {
                errs.invalid(at, all(), "conflicting scopes");
            }
        }
    };
    conflicts(errs, &scopes_at, &scopes);
    let Some(selector) = spec.opt("scopeSelector") else { return };
    let at = at.field("scopeSelector.matchExpressions");
    let mut named: Vec<&str> = Vec::new();
    for r in selector.items("matchExpressions") {
        let (scope, operator) = (r.str("scopeName"), r.str("operator"));
        if !is_scope(scope) {
            errs.invalid(&at.field("scopeName"), Typed(scope), "unsupported scope");
        }
        errs.times(misfits.of(scope, spec), |e| {
            let value = || selector.raw().map(|s| print::internal(selector.schema, s)).unwrap_or_default();
            e.invalid(&at, Lazy(value), "unsupported scope applied to resource");
        });
        if matches!(
            scope,
            "BestEffort" | "NotBestEffort" | "Terminating" | "NotTerminating" | "CrossNamespacePodAffinity"
        ) && operator != "Exists"
        {
            errs.invalid(
                &at.field("operator"),
                Typed(operator),
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        match operator {
            "In" | "NotIn" => {
                if r.len("values") == 0 {
                    errs.required(
                        &at.field("values"),
                        "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
                    );
                }
            }
            "Exists" | "DoesNotExist" => {
                if r.len("values") > 0 {
                    errs.invalid(
                        &at.field("values"),
                        r.get("values"),
                        "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
                    );
                }
            }
            _ => errs.invalid(&at.field("operator"), Typed(operator), "not a valid selector operator"),
        }
        named.push(scope);
    }
    conflicts(errs, &at, &named);
}
