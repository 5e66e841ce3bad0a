//! Deployments.

use api::field::{Errors, Path};
use api::names::name_subdomain;
use api::view::{Edit, View, same};

use crate::columns;
use crate::convert;
use crate::convert::apps::{keep_rollback, rollback_to, tidy_rollback};
use crate::scale::SelectorForm;
use crate::strategies::generic::{self, NAMESPACED, check, check_update, set_generation};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::options::Options;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategies::template::{
    amount, at_most_100_percent, available_below_ready, collisions, counts, create, int_or_percent, options,
    selected_template, selector, template_warnings, update, whole,
};
use crate::validation::immutable;

pub(crate) const DEPLOYMENT: Rules = Rules {
    group: "apps",
    resource: "deployments",
    columns: columns::workloads::DEPLOYMENT,
    scale: Some(SelectorForm::LabelSelector),
    field_annotation: Some(convert::apps::ROLLBACK_TO),
    settle: convert::apps::settle_deployment,
    takes: Takes::BUT_STATUS,
    prepare_create: |c, s| {
        create(c, s);
        tidy_rollback(&mut Edit::new(c.schema, s));
    },
    prepare_update: |c, n, o| {
        update(c, n, o);
        let (nv, ov) = (View::new(c.schema, n).st("metadata"), View::new(c.schema, o).st("metadata"));
        if !same(nv.get("annotations"), ov.get("annotations")) {
            let next = ov.int("generation") + 1;
            set_generation(&mut Edit::new(c.schema, n), next);
        }
        tidy_rollback(&mut Edit::new(c.schema, n));
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
            immutable(e, &Path::root("spec"), n.st("spec"), o.st("spec"), "selector");
        })
    },
    warnings: template_warnings,
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::AllBut(&[&["spec"], &["metadata", "labels"]]),
        prepare_update: |c, n, o| {
            generic::status_only(c, n, o);
            let old = View::new(c.schema, o).st("metadata");
            if let (Some(mut m), Some(old)) = (Edit::new(c.schema, n).make("metadata"), old.raw()) {
                m.copy("labels", old);
            }
            keep_rollback(&mut Edit::new(c.schema, n), View::new(c.schema, o));
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
    if let Some(n) = rollback_to(v) {
        errs.non_negative(&at.field("rollback.version"), n);
    }
    if let Some(n) = spec.opt_int("progressDeadlineSeconds") {
        let at = at.field("progressDeadlineSeconds");
        errs.non_negative(&at, n);
        if n <= spec.int("minReadySeconds") {
            errs.invalid(&at, n, "must be greater than minReadySeconds");
        }
    }
}
