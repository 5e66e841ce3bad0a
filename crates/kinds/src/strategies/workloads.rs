//! Kinds that make pods from a template.

use api::{Node, Struct, Text};

use super::core::{check, check_update, name_warning};
use super::generic::{self, NAMESPACED, bump_if_changed, keep_status, set_generation};
use super::pod::options::Options;
use super::pod::{core_meta, core_meta_update, prepare, spec::template, warnings};
use crate::access::{Edit, View, same};
use crate::strategy::{Ctx, Strategy, Subresource};
use crate::validation::meta::{
    SelectorOptions, has_invalid_value, is_empty_selector, label_selector, selects,
};
use crate::validation::names::{self, NameCheck, name_label, name_subdomain};
use crate::validation::{Errors, Path, Raw, print};

/// Drops what is disabled in the template below the fields `at`.
pub(super) fn drop_in_template(c: &Ctx<'_>, s: &mut Struct, at: &[&str], old: Option<&Struct>) {
    let old = old.map(|o| {
        let mut v = View::new(c.schema, o);
        for f in at {
            v = v.st(f);
        }
        v.st("spec")
    });
    fn down(e: &mut Edit<'_>, at: &[&str], f: &mut dyn FnMut(&mut Edit<'_>)) {
        match at.split_first() {
            None => f(e),
            Some((first, rest)) => {
                if let Some(mut e) = e.at(first) {
                    down(&mut e, rest, f);
                }
            }
        }
    }
    let mut all = at.to_vec();
    all.push("spec");
    down(&mut Edit::new(c.schema, s), &all, &mut |spec| prepare::drop_disabled(c, spec, old));
}

fn create(c: &Ctx<'_>, s: &mut Struct) {
    generic::create(c, s);
    drop_in_template(c, s, &["spec", "template"], None);
}

fn update(c: &Ctx<'_>, n: &mut Struct, o: &Struct) {
    keep_status(c, n, o);
    drop_in_template(c, n, &["spec", "template"], Some(o));
    bump_if_changed(c, n, o, &["spec"]);
}

fn options<'a>(c: &Ctx<'a>, old: Option<View<'_>>) -> Options<'a> {
    Options::new(*c, false, old.map(|t| (t.st("spec"), t.st("metadata"))))
}

/// Warnings about the template in `spec`; on an update only if the object changed.
fn template_warnings(c: &Ctx<'_>, n: &Struct, old: Option<&Struct>) -> Vec<String> {
    let v = View::new(c.schema, n);
    let mut out = Vec::new();
    match old {
        None => name_warning(&mut out, v.st("metadata")),
        Some(o)
            if View::new(c.schema, o).st("metadata").int("generation")
                == v.st("metadata").int("generation") =>
        {
            return out;
        }
        Some(_) => {}
    }
    let t = v.st("spec").st("template");
    let at = Path::root("spec.template");
    warnings::of_spec(&mut out, &at, t.st("metadata"), t.st("spec"), true);
    out
}

pub(super) fn whole(v: View<'_>) -> Raw {
    Raw(v.raw().map(|s| print::internal(v.schema, s)).unwrap_or_default())
}

pub(super) fn labels_value(v: View<'_>) -> Raw {
    Raw(v.get("labels").map_or_else(|| "null".into(), print::scalar_json))
}

const MISMATCH: &str = "`selector` does not match template `labels`";

/// The rules that pods which are always started again share.
fn always(errs: &mut Errors, spec_at: &Path<'_>, t: View<'_>, kind: &str) {
    let at = spec_at.field("template");
    let at = at.field("spec");
    let policy = t.st("spec").str("restartPolicy");
    if policy != "Always" {
        errs.not_supported(&at.field("restartPolicy"), policy, &["Always"]);
    }
    if t.st("spec").has("activeDeadlineSeconds") {
        errs.forbidden(
            &at.field("activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        );
    }
}

/// Whether every requirement is one that a selector can be made of.
pub(super) fn is_selector(s: View<'_>) -> bool {
    let mut e = Errors::new();
    label_selector(&mut e, &Path::root(""), Some(s), SelectorOptions::default());
    e.is_empty()
}

fn selector(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, kind: &str) {
    let at = at.field("selector");
    match spec.opt("selector") {
        None => errs.required(&at, ""),
        Some(s) => {
            label_selector(errs, &at, Some(s), SelectorOptions::default());
            if is_empty_selector(s) {
                errs.invalid(&at, whole(s), format!("empty selector is invalid for {kind}"));
            }
        }
    }
}

/// The selector and the template of a ReplicaSet or Deployment.
fn selected_template(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    let t = spec.st("template");
    let sel = spec.opt("selector");
    if let Some(s) = sel.filter(|s| !is_selector(*s)) {
        errs.invalid(&at.field("selector"), whole(s), "invalid label selector");
        return;
    }
    let template_at = at.field("template");
    // No selector selects nothing, so that no template matches it.
    let matches = sel.is_some_and(|s| is_empty_selector(s) || selects(s, t.st("metadata").map("labels")));
    if !matches {
        errs.invalid(&template_at.field("metadata.labels"), labels_value(t.st("metadata")), MISMATCH);
    }
    template(errs, &template_at, t, o);
    always(errs, at, t, "ReplicaSet");
}

fn replica_set(errs: &mut Errors, v: View<'_>, o: &Options<'_>) {
    let at = Path::root("spec");
    let spec = v.st("spec");
    errs.non_negative(&at.field("replicas"), spec.int("replicas"));
    errs.non_negative(&at.field("minReadySeconds"), spec.int("minReadySeconds"));
    selector(errs, &at, spec, "deployment");
    selected_template(errs, &at, spec, o);
}

/// Counts of a status: none negative, none above another.
fn counts(errs: &mut Errors, status: View<'_>, all: &[&str], below_replicas: &[&str]) {
    let at = Path::root("status");
    for f in all {
        if let Some(n) = status.opt_int(f) {
            errs.non_negative(&at.field(f), n);
        }
    }
    for f in below_replicas {
        if status.int(f) > status.int("replicas") {
            errs.invalid(&at.field(f), status.int(f), "cannot be greater than status.replicas");
        }
    }
}

fn available_below_ready(errs: &mut Errors, status: View<'_>, what: &str) {
    if status.int("availableReplicas") > status.int("readyReplicas") {
        errs.invalid(
            &Path::root("status.availableReplicas"),
            status.int("availableReplicas"),
            format!("cannot be greater than {what}"),
        );
    }
}

fn collisions(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    let f = "collisionCount";
    if o.opt_int(f).is_some_and(|old| n.opt_int(f).is_none_or(|new| new < old)) {
        errs.invalid(&Path::root("status.collisionCount"), n.int(f), "cannot be decremented");
    }
}

fn replicas_text(schema: &api::Schema, s: &Struct, out: &mut Vec<Text>) {
    out.push(compact_str::format_compact!("{}", View::new(schema, s).st("status").int("replicas")));
}

pub(super) const REPLICA_SET: Strategy = Strategy {
    group: "apps",
    resource: "replicasets",
    prepare_create: create,
    prepare_update: update,
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            replica_set(e, v, &options(c, None));
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            replica_set(e, n, &options(c, Some(o.st("spec").st("template"))));
            e.immutable(&Path::root("spec"), n.st("spec"), o.st("spec"), "selector");
        })
    },
    warnings: template_warnings,
    fields: &["status.replicas"],
    field_values: replicas_text,
    subresources: &[Subresource {
        name: "status",
        prepare_update: generic::status_only,
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                core_meta_update(e, n.st("metadata"), o.st("metadata"));
                let s = n.st("status");
                counts(
                    e,
                    s,
                    &[
                        "replicas",
                        "fullyLabeledReplicas",
                        "readyReplicas",
                        "availableReplicas",
                        "observedGeneration",
                        "terminatingReplicas",
                    ],
                    &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
                );
                available_below_ready(e, s, "readyReplicas");
            })
        },
    }],
    ..NAMESPACED
};

pub(super) const REPLICATION_CONTROLLER: Strategy = Strategy {
    resource: "replicationcontrollers",
    prepare_create: create,
    prepare_update: update,
    validate: |c, s| {
        check(c, s, |e, v| {
            let meta = v.st("metadata");
            // Its generated name is not checked: only the name that came of it.
            core_meta(
                e,
                meta,
                true,
                |name, prefix| if prefix { Vec::new() } else { name_subdomain(name, false) },
            );
            replication_controller(e, v, &options(c, None));
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            replication_controller(e, n, &options(c, Some(o.st("spec").st("template"))));
        })
    },
    warnings: template_warnings,
    fields: &["status.replicas"],
    field_values: replicas_text,
    subresources: &[Subresource {
        name: "status",
        prepare_update: generic::status_only,
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                core_meta_update(e, n.st("metadata"), o.st("metadata"));
                let s = n.st("status");
                counts(
                    e,
                    s,
                    &[
                        "replicas",
                        "fullyLabeledReplicas",
                        "readyReplicas",
                        "availableReplicas",
                        "observedGeneration",
                    ],
                    &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
                );
                available_below_ready(e, s, "readyReplicas");
            })
        },
    }],
    ..NAMESPACED
};

fn replication_controller(errs: &mut Errors, v: View<'_>, o: &Options<'_>) {
    let at = Path::root("spec");
    let spec = v.st("spec");
    errs.non_negative(&at.field("minReadySeconds"), spec.int("minReadySeconds"));
    if spec.len("selector") == 0 {
        errs.required(&at.field("selector"), "");
    }
    match spec.opt_int("replicas") {
        None => errs.required(&at.field("replicas"), ""),
        Some(n) => errs.non_negative(&at.field("replicas"), n),
    }
    let template_at = at.field("template");
    let Some(t) = spec.opt("template") else {
        errs.required(&template_at, "");
        return;
    };
    let labels = t.st("metadata").map("labels");
    let matches =
        spec.texts("selector").all(|(k, v)| labels.and_then(|l| l.get(k)).is_some_and(|l| l.as_str() == v));
    if !matches {
        errs.invalid(&template_at.field("metadata.labels"), labels_value(t.st("metadata")), MISMATCH);
    }
    template(errs, &template_at, t, o);
    always(errs, &at, t, "ReplicationController");
}

pub(super) const DEPLOYMENT: Strategy = Strategy {
    group: "apps",
    resource: "deployments",
    prepare_create: create,
    prepare_update: |c, n, o| {
        update(c, n, o);
        let (nv, ov) = (View::new(c.schema, n).st("metadata"), View::new(c.schema, o).st("metadata"));
        if !same(nv.get("annotations"), ov.get("annotations")) {
            let next = ov.int("generation") + 1;
            set_generation(&mut Edit::new(c.schema, n), next);
        }
    },
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            deployment(e, v, &options(c, None));
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            deployment(e, n, &options(c, Some(o.st("spec").st("template"))));
            e.immutable(&Path::root("spec"), n.st("spec"), o.st("spec"), "selector");
        })
    },
    warnings: template_warnings,
    subresources: &[Subresource {
        name: "status",
        prepare_update: |c, n, o| {
            generic::status_only(c, n, o);
            let old = View::new(c.schema, o).st("metadata");
            if let (Some(mut m), Some(old)) = (Edit::new(c.schema, n).make("metadata"), old.raw()) {
                m.copy("labels", old);
            }
        },
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                core_meta_update(e, n.st("metadata"), o.st("metadata"));
                let s = n.st("status");
                counts(
                    e,
                    s,
                    &[
                        "observedGeneration",
                        "replicas",
                        "updatedReplicas",
                        "readyReplicas",
                        "availableReplicas",
                        "unavailableReplicas",
                        "terminatingReplicas",
                        "collisionCount",
                    ],
                    &["updatedReplicas", "readyReplicas", "availableReplicas"],
                );
                available_below_ready(e, s, "readyReplicas");
                collisions(e, s, o.st("status"));
            })
        },
    }],
    ..NAMESPACED
};

/// A count or a percentage.
pub(super) fn int_or_percent(errs: &mut Errors, at: &Path<'_>, v: Option<&Node>) {
    match v {
        Some(Node::Str(s)) => errs.each(at, s, names::percent(s)),
        n => errs.non_negative(at, n.and_then(Node::as_int).unwrap_or(0)),
    }
}

fn percent(v: Option<&Node>) -> Option<i64> {
    match v {
        Some(Node::Str(s)) if names::percent(s).is_empty() => s.trim_end_matches('%').parse().ok(),
        _ => None,
    }
}

/// The number in a count or a percentage, 0 if there is none.
pub(super) fn amount(v: Option<&Node>) -> i64 {
    percent(v).unwrap_or_else(|| match v {
        Some(Node::Str(s)) => s.parse().unwrap_or(0),
        n => n.and_then(Node::as_int).unwrap_or(0),
    })
}

/// A percentage above 100.
pub(super) fn at_most_100_percent(errs: &mut Errors, at: &Path<'_>, v: Option<&Node>) {
    if percent(v).is_some_and(|p| p > 100) {
        errs.invalid(at, v, "must not be greater than 100%");
    }
}

fn deployment(errs: &mut Errors, v: View<'_>, o: &Options<'_>) {
    let at = Path::root("spec");
    let spec = v.st("spec");
    errs.non_negative(&at.field("replicas"), spec.int("replicas"));
    selector(errs, &at, spec, "deployment");
    selected_template(errs, &at, spec, o);
    let strategy_at = at.field("strategy");
    let strategy = spec.st("strategy");
    let rolling_at = strategy_at.field("rollingUpdate");
    match strategy.str("type") {
        "Recreate" => {
            if strategy.has("rollingUpdate") {
                errs.forbidden(&rolling_at, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => match strategy.opt("rollingUpdate") {
            None => errs.required(&rolling_at, "this should be defaulted and never be nil"),
            Some(r) => {
                let (unavailable, surge) = (r.get("maxUnavailable"), r.get("maxSurge"));
                let unavailable_at = rolling_at.field("maxUnavailable");
                int_or_percent(errs, &unavailable_at, unavailable);
                int_or_percent(errs, &rolling_at.field("maxSurge"), surge);
                if amount(unavailable) == 0 && amount(surge) == 0 {
                    errs.invalid(&unavailable_at, unavailable, "may not be 0 when `maxSurge` is 0");
                }
                at_most_100_percent(errs, &unavailable_at, unavailable);
            }
        },
        _ => errs.not_supported(&strategy_at, whole(strategy), &["Recreate", "RollingUpdate"]),
    }
    errs.non_negative(&at.field("minReadySeconds"), spec.int("minReadySeconds"));
    if let Some(n) = spec.opt_int("revisionHistoryLimit") {
        errs.non_negative(&at.field("revisionHistoryLimit"), n);
    }
    if let Some(n) = spec.opt_int("progressDeadlineSeconds") {
        let at = at.field("progressDeadlineSeconds");
        errs.non_negative(&at, n);
        if n <= spec.int("minReadySeconds") {
            errs.invalid(&at, n, "must be greater than minReadySeconds");
        }
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(meta: View<'_>) -> i64 {
    meta.map("annotations").and_then(|a| a.get(TEMPLATE_GENERATION)?.as_str().parse().ok()).unwrap_or(0)
}

fn set_template_generation(e: &mut Edit<'_>, n: i64) {
    if let Some(mut m) = e.make("metadata")
        && let Some(a) = m.make_map("annotations")
    {
        a.insert(TEMPLATE_GENERATION, compact_str::format_compact!("{n}"));
    }
}

pub(super) const DAEMON_SET: Strategy = Strategy {
    group: "apps",
    resource: "daemonsets",
    prepare_create: |c, s| {
        create(c, s);
        let mut e = Edit::new(c.schema, s);
        let n = template_generation(e.view().st("metadata")).max(1);
        set_template_generation(&mut e, n);
    },
    prepare_update: |c, n, o| {
        update(c, n, o);
        let old = View::new(c.schema, o);
        let mut e = Edit::new(c.schema, n);
        let changed = !same(e.view().st("spec").get("template"), old.st("spec").get("template"));
        let generation = template_generation(old.st("metadata")) + i64::from(changed);
        set_template_generation(&mut e, generation);
    },
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            daemon_set(e, v, &options(c, None), false);
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            e.immutable(&Path::root("spec"), n.st("spec"), o.st("spec"), "selector");
            let keep = has_invalid_value(o.st("spec").opt("selector"));
            daemon_set(e, n, &options(c, Some(o.st("spec").st("template"))), keep);
        })
    },
    warnings: template_warnings,
    subresources: &[Subresource {
        name: "status",
        prepare_update: generic::status_only,
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                core_meta_update(e, n.st("metadata"), o.st("metadata"));
                let s = n.st("status");
                counts(
                    e,
                    s,
                    &[
                        "currentNumberScheduled",
                        "numberMisscheduled",
                        "desiredNumberScheduled",
                        "numberReady",
                        "observedGeneration",
                        "updatedNumberScheduled",
                        "numberAvailable",
                        "numberUnavailable",
                        "collisionCount",
                    ],
                    &[],
                );
                collisions(e, s, o.st("status"));
            })
        },
    }],
    ..NAMESPACED
};

fn daemon_set(errs: &mut Errors, v: View<'_>, o: &Options<'_>, keep_values: bool) {
    let at = Path::root("spec");
    let spec = v.st("spec");
    let t = spec.st("template");
    let sel = spec.opt("selector");
    label_selector(errs, &at.field("selector"), sel, SelectorOptions { invalid_values: keep_values });
    let matches = sel.is_some_and(|s| !is_selector(s) || selects(s, t.st("metadata").map("labels")));
    if !matches {
        errs.invalid(&at.field("template.metadata.labels"), labels_value(t.st("metadata")), MISMATCH);
    }
    if let Some(s) = sel.filter(|s| is_empty_selector(*s)) {
        errs.invalid(&at.field("selector"), whole(s), "empty selector is invalid for daemonset");
    }
    template(errs, &at.field("template"), t, o);
    always(errs, &at, t, "DaemonSet");
    errs.non_negative(&at.field("minReadySeconds"), spec.int("minReadySeconds"));
    errs.non_negative(&at.field("templateGeneration"), template_generation(v.st("metadata")));
    let strategy = spec.st("updateStrategy");
    let strategy_at = at.field("updateStrategy");
    match strategy.str("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let at = strategy_at.field("rollingUpdate");
            match strategy.opt("rollingUpdate") {
                None => errs.required(&at, ""),
                Some(r) => {
                    let (unavailable, surge) = (r.get("maxUnavailable"), r.get("maxSurge"));
                    let (unavailable_at, surge_at) = (at.field("maxUnavailable"), at.field("maxSurge"));
                    int_or_percent(errs, &unavailable_at, unavailable);
                    int_or_percent(errs, &surge_at, surge);
                    at_most_100_percent(errs, &unavailable_at, unavailable);
                    at_most_100_percent(errs, &surge_at, surge);
                    match (amount(unavailable) != 0, amount(surge) != 0) {
                        (true, true) => {
                            errs.invalid(&surge_at, surge, "may not be set when maxUnavailable is non-zero");
                        }
                        (false, false) => {
                            errs.required(&unavailable_at, "cannot be 0 when maxSurge is 0");
                        }
                        _ => {}
                    }
                }
            }
        }
        _ => errs.not_supported(&strategy_at, whole(strategy), &["RollingUpdate", "OnDelete"]),
    }
    if let Some(n) = spec.opt_int("revisionHistoryLimit") {
        errs.non_negative(&at.field("revisionHistoryLimit"), n);
    }
}

fn drop_max_unavailable(c: &Ctx<'_>, s: &mut Struct, old: Option<&Struct>) {
    let used = old.is_some_and(|o| {
        View::new(c.schema, o).st("spec").st("updateStrategy").st("rollingUpdate").has("maxUnavailable")
    });
    if (c.gate)("MaxUnavailableStatefulSet") || used {
        return;
    }
    if let Some(mut spec) = Edit::new(c.schema, s).at("spec")
        && let Some(mut u) = spec.at("updateStrategy")
        && let Some(mut r) = u.at("rollingUpdate")
    {
        r.remove("maxUnavailable");
    }
}

pub(super) const STATEFUL_SET: Strategy = Strategy {
    group: "apps",
    resource: "statefulsets",
    prepare_create: |c, s| {
        create(c, s);
        drop_max_unavailable(c, s, None);
    },
    prepare_update: |c, n, o| {
        drop_max_unavailable(c, n, Some(o));
        update(c, n, o);
    },
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_label as NameCheck);
            stateful_set(e, v, &options(c, None), false);
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            stateful_set(e, n, &options(c, Some(o.st("spec").st("template"))), true);
            let free = [
                "replicas",
                "template",
                "updateStrategy",
                "minReadySeconds",
                "ordinals",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
            ];
            let fixed = ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"];
            debug_assert!(free.iter().all(|f| !fixed.contains(f)));
            if fixed.iter().any(|f| !same(n.st("spec").get(f), o.st("spec").get(f))) {
                e.forbidden(
                    &Path::root("spec"),
                    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
                );
            }
        })
    },
    warnings: |c, n, o| {
        let mut out = template_warnings(c, n, o);
        let v = View::new(c.schema, n).st("spec");
        let generation = |s: &Struct| View::new(c.schema, s).st("metadata").int("generation");
        if o.is_none_or(|o| generation(o) != generation(n)) {
            if v.int("revisionHistoryLimit") < 0 {
                out.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".into());
            }
            let at = Path::root("spec.volumeClaimTemplates");
            for (i, t) in v.items("volumeClaimTemplates").enumerate() {
                let at = at.index(i);
                warnings::claim_storage(&mut out, &at.field("Spec"), t.st("spec"));
            }
        }
        out
    },
    subresources: &[Subresource {
        name: "status",
        prepare_update: generic::status_only,
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                let s = n.st("status");
                counts(
                    e,
                    s,
                    &[
                        "replicas",
                        "readyReplicas",
                        "currentReplicas",
                        "updatedReplicas",
                        "availableReplicas",
                        "observedGeneration",
                        "collisionCount",
                    ],
                    &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
                );
                available_below_ready(e, s, "status.readyReplicas");
                core_meta_update(e, n.st("metadata"), o.st("metadata"));
                collisions(e, s, o.st("status"));
            })
        },
    }],
    ..NAMESPACED
};

fn stateful_set(errs: &mut Errors, v: View<'_>, o: &Options<'_>, is_update: bool) {
    let at = Path::root("spec");
    let spec = v.st("spec");
    let policy = spec.str("podManagementPolicy");
    let policy_at = at.field("podManagementPolicy");
    match policy {
        "" => errs.required(&policy_at, ""),
        "OrderedReady" | "Parallel" => {}
        _ => errs.invalid(&policy_at, policy, "must be 'OrderedReady' or 'Parallel'"),
    }
    let strategy = spec.st("updateStrategy");
    let strategy_at = at.field("updateStrategy");
    let rolling_at = strategy_at.field("rollingUpdate");
    let rolling = strategy.opt("rollingUpdate");
    match strategy.str("type") {
        "" => errs.required(&strategy_at, ""),
        "OnDelete" => {
            if let Some(r) = rolling {
                errs.invalid(&rolling_at, whole(r), "only allowed for updateStrategy 'RollingUpdate'");
            }
        }
        "RollingUpdate" => {
            if let Some(r) = rolling {
                errs.non_negative(&rolling_at.field("partition"), r.int("partition"));
                if let Some(max) = r.get("maxUnavailable") {
                    let at = rolling_at.field("maxUnavailable");
                    int_or_percent(errs, &at, Some(max));
                    if amount(Some(max)) == 0 {
                        errs.invalid(&at, Some(max), "cannot be 0");
                    }
                    at_most_100_percent(errs, &at, Some(max));
                }
            }
        }
        _ => errs.invalid(&strategy_at, whole(strategy), "must be 'RollingUpdate' or 'OnDelete'"),
    }
    if let Some(p) = spec.opt("persistentVolumeClaimRetentionPolicy") {
        let at = at.field("persistentVolumeClaimRetentionPolicy");
        for f in ["whenDeleted", "whenScaled"] {
            errs.one_of(&at.field(f), p.str(f), &["Retain", "Delete"]);
        }
    }
    if !is_update {
        let at = at.field("volumeClaimTemplates");
        for (i, t) in spec.items("volumeClaimTemplates").enumerate() {
            let at = at.index(i);
            super::claims::claim_spec(errs, &at.field("spec"), t.st("spec"), false);
        }
    }
    errs.non_negative(&at.field("replicas"), spec.int("replicas"));
    errs.non_negative(&at.field("minReadySeconds"), spec.int("minReadySeconds"));
    if let Some(ord) = spec.opt("ordinals") {
        errs.non_negative(&at.field("ordinals.start"), ord.int("start"));
    }
    let service = spec.str("serviceName");
    if !is_update && !service.is_empty() {
        errs.each(&at.field("serviceName"), service, names::dns1123_label(service));
    }
    selector(errs, &at, spec, "statefulset");
    stateful_template(errs, &at, spec, o);
    let t = spec.st("template").st("spec");
    let t_at = at.field("template.spec");
    if t.str("restartPolicy") != "Always" {
        errs.not_supported(&t_at.field("restartPolicy"), t.str("restartPolicy"), &["Always"]);
    }
    if t.has("activeDeadlineSeconds") {
        errs.forbidden(
            &t_at.field("activeDeadlineSeconds"),
            "activeDeadlineSeconds in StatefulSet is not Supported",
        );
    }
}

/// The template as its pods will be: with a volume for each claim, and without the names that the
/// set gives.
fn stateful_template(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    let sel = spec.opt("selector");
    if let Some(s) = sel.filter(|s| !is_selector(*s)) {
        errs.invalid(&at.field("selector"), whole(s), "");
        return;
    }
    let Some(mut t) = spec.st("template").raw().cloned() else { return };
    let schema = spec.schema;
    let mut e = Edit::new(schema, &mut t);
    if let Some(mut s) = e.make("spec") {
        s.remove("subdomain");
        s.remove("hostname");
        let claims: Vec<Text> =
            spec.items("volumeClaimTemplates").map(|c| c.st("metadata").str("name").into()).collect();
        if !claims.is_empty() {
            let mut list: Vec<Node> = Vec::new();
            for name in &claims {
                let Some(mut v) = s.fresh("volumes") else { return };
                let mut ve = Edit::new(schema, &mut v);
                ve.set("name", name.clone());
                if let Some(mut c) = ve.make("persistentVolumeClaim") {
                    c.set("claimName", name.clone());
                }
                list.push(v.into());
            }
            for v in s.view().list("volumes") {
                let name = s.view().of(v).str("name");
                if !claims.iter().any(|c| c == name) {
                    list.push(v.clone());
                }
            }
            s.set("volumes", list);
        }
    }
    let t = View::new(schema, &t);
    let template_at = at.field("template");
    let meta = t.st("metadata");
    let matches = sel.is_some_and(|s| is_empty_selector(s) || selects(s, meta.map("labels")));
    if !matches {
        errs.invalid(&template_at.field("metadata.labels"), labels_value(meta), MISMATCH);
    }
    template(errs, &template_at, t, o);
    crate::validation::meta::labels(errs, &template_at.field("labels"), meta, "labels");
    let notes = template_at.field("annotations");
    crate::validation::meta::annotations(errs, &notes, meta);
    super::pod::annotations::check(errs, &notes, meta, t.st("spec"), o);
}

pub(super) const POD_TEMPLATE: Strategy = Strategy {
    resource: "podtemplates",
    prepare_create: |c, s| {
        generic::first_generation(c, s);
        drop_in_template(c, s, &["template"], None);
    },
    prepare_update: |c, n, o| {
        drop_in_template(c, n, &["template"], Some(o));
        bump_if_changed(c, n, o, &["template"]);
    },
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            template(e, &Path::root("template"), v.st("template"), &options(c, None));
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            template(e, &Path::root("template"), n.st("template"), &options(c, Some(o.st("template"))));
        })
    },
    warnings: |c, n, old| {
        let v = View::new(c.schema, n);
        let generation = |v: View<'_>| v.st("metadata").int("generation");
        let mut out = Vec::new();
        if old.is_none_or(|o| generation(View::new(c.schema, o)) != generation(v)) {
            let t = v.st("template");
            warnings::of_spec(&mut out, &Path::root("template"), t.st("metadata"), t.st("spec"), true);
        }
        out
    },
    ..NAMESPACED
};

pub(super) const CONTROLLER_REVISION: Strategy = Strategy {
    group: "apps",
    resource: "controllerrevisions",
    validate: |c, s| {
        check(c, s, |e, v| {
            revision(e, v);
            let at = Path::root("data");
            match v.get("data") {
                Some(Node::Map(_)) => {}
                None | Some(Node::Null) => e.required(&at, "data is mandatory"),
                Some(_) => e.required(&at, "data must be a valid JSON object"),
            }
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            revision(e, n);
            e.immutable(&Path::root(""), n, o, "data");
        })
    },
    ..NAMESPACED
};

fn revision(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), true, name_subdomain);
    errs.non_negative(&Path::root("revision"), v.int("revision"));
}
