//! PodDisruptionBudgets.

use api::field::{Errors, Path};
use api::view::View;

use crate::columns;
use crate::strategies::generic::{self, NAMESPACED, check, check_update};
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategies::template::{at_most_100_percent, int_or_percent, whole};
use crate::validation::meta::{SelectorOptions, conditions, label_selector};

pub(super) const BUDGET: Rules = Rules {
    group: "policy",
    resource: "poddisruptionbudgets",
    columns: columns::workloads::POD_DISRUPTION_BUDGET,
    is_consulted: true,
    takes: Takes::BUT_STATUS,
    prepare_create: generic::create,
    prepare_update: generic::update,
    unconditional_update: false,
    // Upstream checks the metadata of budgets no more than that of any object.
    validate: |c, s| check(c, s, |e, v| spec(e, v.st("spec"), false)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            let mut before = Errors::new();
            let selector = o.st("spec").opt("selector");
            label_selector(&mut before, &Path::root(""), selector, SelectorOptions::default());
            spec(e, n.st("spec"), !before.is_empty());
        })
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC,
        prepare_update: generic::status_only,
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, _| {
                let at = Path::root("status");
                let status = n.st("status");
                conditions(e, &at.field("conditions"), status, "conditions");
                for f in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                    e.non_negative(&at.field(f), status.int(f));
                }
            })
        },
    }],
    ..NAMESPACED
};

fn spec(errs: &mut Errors, spec: View<'_>, invalid_values: bool) {
    let at = Path::root("spec");
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        errs.invalid(&at, whole(spec), "minAvailable and maxUnavailable cannot be both set");
    }
    for f in ["minAvailable", "maxUnavailable"] {
        if let v @ Some(_) = spec.get(f) {
            int_or_percent(errs, &at.field(f), v);
            at_most_100_percent(errs, &at.field(f), v);
        }
    }
    label_selector(errs, &at.field("selector"), spec.opt("selector"), SelectorOptions { invalid_values });
    if let Some(p) = spec.opt_str("unhealthyPodEvictionPolicy") {
        errs.one_of(&at.field("unhealthyPodEvictionPolicy"), p, &["AlwaysAllow", "IfHealthyBudget"]);
    }
}
