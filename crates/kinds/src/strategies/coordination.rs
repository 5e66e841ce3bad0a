//! coordination.k8s.io: Leases.

use api::Struct;

use crate::access::{Edit, View};
use crate::strategies::generic::{NAMESPACED, check, check_update};
use crate::strategy::{Ctx, Strategy};
use crate::validation::meta::{object_meta, object_meta_update};
use crate::validation::names::name_subdomain;
use crate::validation::{Errors, Path};

pub(crate) const LEASE: Strategy = Strategy {
    group: "coordination.k8s.io",
    resource: "leases",
    create_on_update: true,
    unconditional_update: false,
    prepare_create: |c, s| drop_election(c, s, None),
    prepare_update: |c, n, o| drop_election(c, n, Some(o)),
    validate: |c, s| {
        check(c, s, |e, v| {
            object_meta(e, v.st("metadata"), true, name_subdomain);
            lease_spec(e, v.st("spec"));
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            object_meta_update(e, n.st("metadata"), o.st("metadata"));
            lease_spec(e, n.st("spec"));
        })
    },
    ..NAMESPACED
};

fn drop_election(c: &Ctx<'_>, new: &mut Struct, old: Option<&Struct>) {
    if (c.gate)("CoordinatedLeaderElection") {
        return;
    }
    let old = old.map(|o| View::new(c.schema, o).st("spec"));
    if let Some(mut spec) = Edit::new(c.schema, new).at("spec") {
        for f in ["strategy", "preferredHolder"] {
            if !old.is_some_and(|o| o.has(f)) {
                spec.remove(f);
            }
        }
    }
}

fn lease_spec(errs: &mut Errors, spec: View<'_>) {
    let at = Path::root("spec");
    if let Some(n) = spec.opt_int("leaseDurationSeconds")
        && n <= 0
    {
        errs.invalid(&at.field("leaseDurationSeconds"), n, "must be greater than 0");
    }
    if let Some(n) = spec.opt_int("leaseTransitions")
        && n < 0
    {
        errs.invalid(&at.field("leaseTransitions"), n, "must be greater than or equal to 0");
    }
    if !spec.str("preferredHolder").is_empty() && spec.str("strategy").is_empty() {
        errs.forbidden(&at.field("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}
