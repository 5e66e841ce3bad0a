//! coordination.k8s.io: Leases and LeaseCandidates.

use api::Gate;
use api::Struct;
use api::field::{Errors, Path};
use api::names::{self, name_subdomain};
use api::view::{Edit, View};

use crate::columns;
use crate::strategies::generic::{NAMESPACED, check, check_update};
use crate::strategies::rules::{Rules, going};
use crate::strategy::Ctx;
use crate::validation::meta::{object_meta, object_meta_update};
use crate::validation::{Semver, immutable, semver};

const OLDEST: &str = "OldestEmulationVersion";

pub(crate) const LEASE: Rules = Rules {
    group: "coordination.k8s.io",
    resource: "leases",
    columns: columns::cluster::LEASE,
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

pub(crate) const LEASE_CANDIDATE: Rules = Rules {
    group: "coordination.k8s.io",
    resource: "leasecandidates",
    columns: columns::cluster::LEASE_CANDIDATE,
    no_effect_yet: inert!("LeaseCandidates"),
    going: &[going("v1alpha2", 35, "1.38"), going("v1beta1", 36, "1.39")],
    create_on_update: true,
    unconditional_update: false,
    validate: |c, s| {
        check(c, s, |e, v| {
            object_meta(e, v.st("metadata"), true, |name, _| names::config_map_key(name));
            candidate_spec(e, v.st("spec"));
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            object_meta_update(e, n.st("metadata"), o.st("metadata"));
            candidate_spec(e, n.st("spec"));
            immutable(e, &Path::root("spec"), n.st("spec"), o.st("spec"), "leaseName");
        })
    },
    ..NAMESPACED
};

/// Checks a strategy. Upstream's path of it names the field twice.
fn election(errs: &mut Errors, at: &Path<'_>, strategy: &str) {
    let at = at.field("strategy");
    let at = at.field("strategy");
    if strategy.contains('/') {
        errs.each(&at, strategy, names::qualified_name(strategy));
    } else {
        errs.one_of(&at, strategy, &[OLDEST]);
    }
}

fn candidate_spec(errs: &mut Errors, spec: View<'_>) {
    const WHY: &str = "must be a valid semantic version";
    let at = Path::root("spec");
    if spec.str("leaseName").is_empty() {
        errs.required(&at.field("leaseName"), "");
    }
    let (binary, emulation) = (spec.str("binaryVersion"), spec.str("emulationVersion"));
    let (binary_at, emulation_at) = (at.field("binaryVersion"), at.field("emulationVersion"));
    let emulated = semver(emulation);
    if !emulation.is_empty() && emulated.is_none() {
        errs.invalid(&emulation_at, emulation, WHY);
    }
    if binary.is_empty() {
        errs.required(&binary_at, "");
    } else if semver(binary).is_none() {
        errs.invalid(&binary_at, binary, WHY);
    }
    // A text that is no version counts as 0.0.0.
    let number = |v: &Option<Semver>| v.clone().unwrap_or_default();
    if !binary.is_empty() && !emulation.is_empty() && number(&semver(binary)) < number(&emulated) {
        errs.invalid(&binary_at, binary, "must be greater than or equal to `emulationVersion`");
    }
    let strategy = spec.str("strategy");
    if strategy.is_empty() {
        errs.required(&at.field("strategy"), "");
        return;
    }
    if strategy == OLDEST && number(&emulated) == Semver::default() {
        errs.required(&emulation_at, "must be specified when `strategy` is 'OldestEmulationVersion'");
    }
    election(errs, &at, strategy);
}

fn drop_election(c: &Ctx<'_>, new: &mut Struct, old: Option<&Struct>) {
    if c.gates.enabled(Gate::CoordinatedLeaderElection) {
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
    if let Some(strategy) = spec.opt_str("strategy") {
        election(errs, &at, strategy);
    }
    if !spec.str("preferredHolder").is_empty() && spec.str("strategy").is_empty() {
        errs.forbidden(&at.field("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}
