//! scheduling.k8s.io: PriorityClasses.

use api::field::{Errors, Path};
use api::names::name_subdomain;
use api::view::View;

use crate::columns;
use crate::strategies::generic::{self, CLUSTER, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod;
use crate::strategies::rules::Rules;
use crate::validation::immutable;

pub(crate) const PRIORITY_CLASS: Rules = Rules {
    group: "scheduling.k8s.io",
    resource: "priorityclasses",
    columns: columns::workloads::PRIORITY_CLASS,
    is_consulted: true,
    prepare_create: generic::first_generation,
    validate: |c, s| check(c, s, priority_class),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            if n.int("value") != o.int("value") {
                e.forbidden(&Path::root("value"), "may not be changed in an update.");
            }
            immutable(e, &Path::root(""), n, o, "preemptionPolicy");
        })
    },
    ..CLUSTER
};

/// The classes that the system makes, with their values.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

fn priority_class(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), false, name_subdomain);
    let (name, value) = (v.st("metadata").str("name"), v.int("value"));
    if name.starts_with("system-") {
        let why = match SYSTEM_CLASSES.iter().find(|(n, _)| *n == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, want)) if *want != value => {
                Some(format!("value of {name} PriorityClass must be {want}"))
            }
            Some(_) if v.bool("globalDefault") => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            errs.forbidden(
                &Path::root("metadata.name"),
                format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
                ),
            );
        }
    } else if value > 1_000_000_000 {
        errs.forbidden(
            &Path::root("value"),
            "maximum allowed value of a user defined priority is 1000000000",
        );
    }
    if let Some(p) = v.opt_str("preemptionPolicy") {
        pod::spec::preemption_policy(errs, &Path::root("preemptionPolicy"), p);
    }
}
