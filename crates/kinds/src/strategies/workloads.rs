//! scheduling.k8s.io/v1alpha2: Workloads and PodGroups. The rules come from the field tags of upstream's types
//! (`+k8s:required`, `+k8s:format`, …): a field that an update leaves as it was is not checked again.

use std::collections::HashSet;

use api::codec::json::encode;
use api::field::{Errors, IMMUTABLE, Path, Raw};
use api::names::{self, name_subdomain};
use api::view::{Edit, View, same};
use api::{Gate, Struct};

use crate::columns;
use crate::strategies::generic::{self, NAMESPACED, check, check_update, status_reset_meta};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::Ctx;
use crate::validation::meta;

const GROUP: &str = "scheduling.k8s.io";
const MAX_TEMPLATES: usize = 8;
const MAX_CLAIMS: usize = 4;
const MAX_TOPOLOGIES: usize = 1;
/// The highest priority that a user may define.
const MAX_PRIORITY: i64 = 1_000_000_000;

pub(super) const WORKLOAD: Rules = Rules {
    group: GROUP,
    resource: "workloads",
    columns: columns::workloads::WORKLOAD,
    prepare_update: drop_by_template,
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            workload(e, c, v.st("spec"), None);
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            workload(e, c, n.st("spec"), Some(o.st("spec")));
        })
    },
    ..NAMESPACED
};

pub(super) const POD_GROUP: Rules = Rules {
    group: GROUP,
    resource: "podgroups",
    columns: columns::workloads::POD_GROUP,
    takes: Takes::BUT_STATUS,
    prepare_create: generic::drop_status,
    prepare_update: generic::keep_status,
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            pod_group(e, c, v.st("spec"), None);
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            pod_group(e, c, n.st("spec"), Some(o.st("spec")));
        })
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC_AND_METADATA,
        prepare_update: status_reset_meta,
        validate_update: |c, n, o| check_update(c, n, o, pod_group_status),
    }],
    ..NAMESPACED
};

/// Drops fields of features that are off from each template that did not have them before, whatever others have.
fn drop_by_template(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    const FIELDS: [(Gate, &str); 5] = [
        (Gate::TopologyAwareWorkloadScheduling, "schedulingConstraints"),
        (Gate::DRAWorkloadResourceClaims, "resourceClaims"),
        (Gate::WorkloadAwarePreemption, "disruptionMode"),
        (Gate::WorkloadAwarePreemption, "priorityClassName"),
        (Gate::WorkloadAwarePreemption, "priority"),
    ];
    let old = View::new(c.schema, old).st("spec");
    let before: Vec<View<'_>> = old.items("podGroupTemplates").collect();
    let mut edit = Edit::new(c.schema, new);
    let Some(mut spec) = edit.at("spec") else { return };
    for (i, mut template) in spec.items("podGroupTemplates").enumerate() {
        for (gate, field) in FIELDS {
            if !c.gates.enabled(gate) && !before.get(i).is_some_and(|had| had.has(field)) {
                template.remove(field);
            }
        }
    }
}

/// Whether an update leaves a field as it was.
fn kept(new: View<'_>, old: Option<View<'_>>, name: &str) -> bool {
    old.is_some_and(|o| same(new.get(name), o.get(name)))
}

/// Reports a field that an update changes, without its value; returns whether there is more to check.
fn fixed(errs: &mut Errors, at: &Path<'_>, new: View<'_>, old: Option<View<'_>>, name: &str) -> bool {
    if kept(new, old, name) {
        return false;
    }
    if old.is_some() {
        errs.invalid(&at.field(name), Raw("null".into()), IMMUTABLE);
    }
    old.is_none()
}

fn required(errs: &mut Errors, at: &Path<'_>, value: &str, check: fn(&str) -> Vec<String>) {
    if value.is_empty() {
        errs.required(at, "");
    } else {
        errs.each(at, value, check(value));
    }
}

fn short_name(value: &str) -> Vec<String> {
    names::in_bytes(names::dns1123_label(value))
}

fn long_name(value: &str) -> Vec<String> {
    names::name_subdomain_bytes(value, false)
}

fn path_segment(value: &str) -> Vec<String> {
    names::path_segment(value, false)
}

/// Checks that exactly one of the members is present.
fn union(errs: &mut Errors, at: &Path<'_>, of: View<'_>, members: &[&str]) {
    let has: Vec<&str> = members.iter().copied().filter(|m| of.has(m)).collect();
    let quoted = |all: &[&str]| all.iter().map(|m| format!("`{m}`")).collect::<Vec<_>>().join(", ");
    let all = quoted(members);
    match has[..] {
        [_] => {}
        [] => errs.invalid(at, "", format!("must specify one of: {all}")),
        _ => {
            errs.invalid(at, format!("{{{}}}", quoted(&has)), format!("must specify exactly one of: {all}"));
        }
    }
}

fn workload(errs: &mut Errors, c: &Ctx<'_>, spec: View<'_>, old: Option<View<'_>>) {
    let at = Path::root("spec");
    if fixed(errs, &at, spec, old, "controllerRef")
        && let Some(r) = spec.opt("controllerRef")
    {
        let at = at.field("controllerRef");
        let group = r.str("apiGroup");
        if !group.is_empty() {
            errs.each(&at.field("apiGroup"), group, long_name(group));
        }
        required(errs, &at.field("kind"), r.str("kind"), path_segment);
        required(errs, &at.field("name"), r.str("name"), path_segment);
    }
    let changed = !kept(spec, old, "podGroupTemplates");
    let made = fixed(errs, &at, spec, old, "podGroupTemplates");
    let at = at.field("podGroupTemplates");
    let count = spec.len("podGroupTemplates");
    if !made {
        if changed && count == 0 {
            errs.required(&at, "");
        }
        if changed && count > MAX_TEMPLATES {
            errs.too_many(&at, count, MAX_TEMPLATES);
        }
        return;
    }
    if count > MAX_TEMPLATES {
        errs.too_many(&at, count, MAX_TEMPLATES);
        return;
    }
    if count == 0 {
        errs.required(&at, "");
    }
    unique(errs, &at, spec, "podGroupTemplates");
    for (i, t) in spec.items("podGroupTemplates").enumerate() {
        let at = at.index(i);
        required(errs, &at.field("name"), t.str("name"), short_name);
        policy(errs, &at.field("schedulingPolicy"), t.st("schedulingPolicy"));
        gated(errs, c, &at, t, None);
    }
}

/// Reports elements whose names stand twice.
fn unique(errs: &mut Errors, at: &Path<'_>, of: View<'_>, list: &str) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, item) in of.items(list).enumerate() {
        let name = item.str("name");
        if seen.contains(&name) {
            let mut json = Vec::new();
            if let Some(st) = item.raw() {
                encode(of.schema, st, &mut json);
            }
            errs.duplicate(&at.index(i), Raw(String::from_utf8_lossy(&json).into_owned()));
        }
        seen.insert(name);
    }
}

fn policy(errs: &mut Errors, at: &Path<'_>, p: View<'_>) {
    union(errs, at, p, &["basic", "gang"]);
    if let Some(gang) = p.opt("gang") {
        let at = at.field("gang");
        let at = at.field("minCount");
        match gang.int("minCount") {
            0 => errs.required(&at, ""),
            n if n < 1 => errs.invalid(&at, n, "must be greater than or equal to 1"),
            _ => {}
        }
    }
}

/// Checks the parts that groups and templates of groups share, most of them behind gates.
fn gated(errs: &mut Errors, c: &Ctx<'_>, at: &Path<'_>, g: View<'_>, old: Option<View<'_>>) {
    let constraints = "schedulingConstraints";
    if !c.gates.enabled(Gate::TopologyAwareWorkloadScheduling) {
        if g.has(constraints) && !kept(g, old, constraints) {
            errs.forbidden(&at.field(constraints), "");
        }
    } else if fixed(errs, at, g, old, constraints) {
        topology(errs, &at.field(constraints), g.st(constraints));
    }
    let at_claims = at.field("resourceClaims");
    if fixed(errs, at, g, old, "resourceClaims") {
        claims(errs, &at_claims, g);
    } else if !kept(g, old, "resourceClaims") && g.len("resourceClaims") > MAX_CLAIMS {
        errs.too_many(&at_claims, g.len("resourceClaims"), MAX_CLAIMS);
    }
    let preemption = c.gates.enabled(Gate::WorkloadAwarePreemption);
    for name in ["disruptionMode", "priorityClassName", "priority"] {
        let at_field = at.field(name);
        if !preemption {
            if !kept(g, old, name) && g.has(name) {
                errs.forbidden(&at_field, "");
            }
            continue;
        }
        if !fixed(errs, at, g, old, name) {
            continue;
        }
        match name {
            "disruptionMode" => {
                if let Some(mode) = g.opt_str(name) {
                    errs.one_of(&at_field, mode, &["Pod", "PodGroup"]);
                }
            }
            "priorityClassName" => {
                let class = g.str(name);
                if !class.is_empty() {
                    errs.each(&at_field, class, long_name(class));
                }
            }
            _ => {
                if let Some(n) = g.opt_int(name).filter(|n| *n > MAX_PRIORITY) {
                    errs.invalid(&at_field, n, format!("must be less than or equal to {MAX_PRIORITY}"));
                }
            }
        }
    }
}

fn topology(errs: &mut Errors, at: &Path<'_>, constraints: View<'_>) {
    let at = at.field("topology");
    let count = constraints.len("topology");
    if count > MAX_TOPOLOGIES {
        errs.too_many(&at, count, MAX_TOPOLOGIES);
        return;
    }
    for (i, t) in constraints.items("topology").enumerate() {
        required(errs, &at.index(i).field("key"), t.str("key"), names::qualified_name);
    }
}

fn claims(errs: &mut Errors, at: &Path<'_>, g: View<'_>) {
    let count = g.len("resourceClaims");
    if count > MAX_CLAIMS {
        errs.too_many(at, count, MAX_CLAIMS);
        return;
    }
    unique(errs, at, g, "resourceClaims");
    for (i, claim) in g.items("resourceClaims").enumerate() {
        let at = at.index(i);
        union(errs, &at, claim, &["resourceClaimName", "resourceClaimTemplateName"]);
        required(errs, &at.field("name"), claim.str("name"), short_name);
        for name in ["resourceClaimName", "resourceClaimTemplateName"] {
            if let Some(text) = claim.opt_str(name) {
                errs.each(&at.field(name), text, long_name(text));
            }
        }
    }
}

fn pod_group(errs: &mut Errors, c: &Ctx<'_>, spec: View<'_>, old: Option<View<'_>>) {
    let at = Path::root("spec");
    if fixed(errs, &at, spec, old, "podGroupTemplateRef")
        && let Some(r) = spec.opt("podGroupTemplateRef")
    {
        let at = at.field("podGroupTemplateRef");
        union(errs, &at, r, &["workload"]);
        if let Some(w) = r.opt("workload") {
            let at = at.field("workload");
            required(errs, &at.field("workloadName"), w.str("workloadName"), long_name);
            let template = w.str("podGroupTemplateName");
            required(errs, &at.field("podGroupTemplateName"), template, short_name);
        }
    }
    if fixed(errs, &at, spec, old, "schedulingPolicy") {
        policy(errs, &at.field("schedulingPolicy"), spec.st("schedulingPolicy"));
    }
    gated(errs, c, &at, spec, old);
}

fn pod_group_status(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
    let at = Path::root("status");
    let (status, old) = (n.st("status"), o.st("status"));
    meta::conditions(errs, &at.field("conditions"), status, "conditions");
    let at = at.field("resourceClaimStatuses");
    let claims: HashSet<&str> = n.st("spec").items("resourceClaims").map(|c| c.str("name")).collect();
    for (i, s) in status.items("resourceClaimStatuses").enumerate() {
        let name = s.str("name");
        if !claims.contains(name) {
            errs.invalid(
                &at.index(i).field("name"),
                name,
                "must match the name of an entry in `spec.resourceClaims`",
            );
        }
    }
    if kept(status, Some(old), "resourceClaimStatuses") {
        return;
    }
    let count = status.len("resourceClaimStatuses");
    if count > MAX_CLAIMS {
        errs.too_many(&at, count, MAX_CLAIMS);
        return;
    }
    unique(errs, &at, status, "resourceClaimStatuses");
    for (i, s) in status.items("resourceClaimStatuses").enumerate() {
        if let Some(claim) = s.opt_str("resourceClaimName") {
            errs.each(&at.index(i).field("resourceClaimName"), claim, long_name(claim));
        }
    }
}
