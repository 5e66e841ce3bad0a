//! DaemonSets.

use api::field::{Errors, Path};
use api::names::name_subdomain;
use api::view::{Edit, View, same};

use crate::columns;
use crate::convert;
use crate::convert::apps::{set_template_generation, template_generation};
use crate::strategies::generic::{self, NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::options::Options;
use crate::strategies::pod::spec::template;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategies::template::{
    MISMATCH, always, amount, at_most_100_percent, collisions, counts, create, int_or_percent, is_selector,
    labels_value, options, unnamed_template_warnings, update, whole,
};
use crate::validation::immutable;
use crate::validation::meta::{
    SelectorOptions, has_invalid_value, is_empty_selector, label_selector, selects,
};

pub(crate) const DAEMON_SET: Rules = Rules {
    group: "apps",
    resource: "daemonsets",
    columns: columns::workloads::DAEMON_SET,
    field_annotation: Some(convert::apps::TEMPLATE_GENERATION),
    settle: convert::apps::settle_daemon_set,
    takes: Takes::BUT_STATUS,
    prepare_create: |c, s| {
        create(c, s);
        let mut e = Edit::new(c.schema, s);
        let n = template_generation(e.view()).max(1);
        set_template_generation(&mut e, n);
    },
    prepare_update: |c, n, o| {
        update(c, n, o);
        let old = View::new(c.schema, o);
        let mut e = Edit::new(c.schema, n);
        let changed = !same(e.view().st("spec").get("template"), old.st("spec").get("template"));
        let generation = template_generation(old) + i64::from(changed);
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
            immutable(e, &Path::root("spec"), n.st("spec"), o.st("spec"), "selector");
            let keep = has_invalid_value(o.st("spec").opt("selector"));
            daemon_set(e, n, &options(c, Some(o.st("spec").st("template"))), keep);
        })
    },
    warnings: unnamed_template_warnings,
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC,
        prepare_update: |c, n, o| {
            generic::status_only(c, n, o);
            let kept = template_generation(View::new(c.schema, o));
            set_template_generation(&mut Edit::new(c.schema, n), kept);
        },
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
    errs.non_negative(&at.field("templateGeneration"), template_generation(v));
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
