//! StatefulSets.

use std::collections::HashSet;

use api::field::{Errors, Path, Typed};
use api::names::{self, NameCheck, name_label};
use api::view::{Edit, View, same};
use api::{Gate, Node, Struct, Text};

use crate::columns;
use crate::scale::SelectorForm;
use crate::strategies::core::persistent_volume_claim::{ClaimOptions, claim_spec};
use crate::strategies::generic::{self, NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::options::Options;
use crate::strategies::pod::spec::template;
use crate::strategies::pod::{self, warnings};
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategies::template::{
    MISMATCH, amount, at_most_100_percent, available_below_ready, collisions, counts, create, int_or_percent,
    is_selector, labels_value, options, selector, unnamed_template_warnings, update, whole,
};
use crate::strategy::Ctx;
use crate::validation::meta::{is_empty_selector, selects};

/// Sets the default of `maxUnavailable`, or drops the field where its feature is off.
fn max_unavailable(c: &Ctx<'_>, s: &mut Struct, old: Option<&Struct>) {
    let used = old.is_some_and(|o| {
        View::new(c.schema, o).st("spec").st("updateStrategy").st("rollingUpdate").has("maxUnavailable")
    });
    let on = c.gates.enabled(Gate::MaxUnavailableStatefulSet);
    if let Some(mut spec) = Edit::new(c.schema, s).at("spec")
        && let Some(mut u) = spec.at("updateStrategy")
        && let Some(mut r) = u.at("rollingUpdate")
    {
        if on {
            r.default("maxUnavailable", 1);
        } else if !used {
            r.remove("maxUnavailable");
        }
    }
}

pub(crate) const STATEFUL_SET: Rules = Rules {
    group: "apps",
    resource: "statefulsets",
    columns: columns::workloads::STATEFUL_SET,
    scale: Some(SelectorForm::LabelSelector),
    takes: Takes::BUT_STATUS,
    prepare_create: |c, s| {
        create(c, s);
        max_unavailable(c, s, None);
    },
    prepare_update: |c, n, o| {
        max_unavailable(c, n, Some(o));
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
        let mut out = unnamed_template_warnings(c, n, o);
        let v = View::new(c.schema, n).st("spec");
        let at = Path::root("spec.volumeClaimTemplates");
        for (i, t) in v.items("volumeClaimTemplates").enumerate() {
            let at = at.index(i);
            // Upstream names the step below only on updates.
            let below = at.field("Spec");
            warnings::claim_storage(&mut out, if o.is_none() { &at } else { &below }, t.st("spec"));
        }
        if v.int("revisionHistoryLimit") < 0 {
            out.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".into());
        }
        out
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC,
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
        _ => errs.invalid(&policy_at, Typed(policy), "must be 'OrderedReady' or 'Parallel'"),
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
            claim_spec(errs, &at.field("spec"), t.st("spec"), ClaimOptions::default());
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

/// Checks the template as its pods will be: with a volume for each claim, and without the names that the set gives.
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
        let mut known: HashSet<&str> = HashSet::new();
        let names = spec.items("volumeClaimTemplates").map(|c| c.st("metadata").str("name"));
        let claims: Vec<Text> = names.filter(|name| known.insert(name)).map(Text::from).collect();
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
                if !known.contains(name) {
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
    pod::annotations::check(errs, &notes, meta, t.st("spec"), o);
}
