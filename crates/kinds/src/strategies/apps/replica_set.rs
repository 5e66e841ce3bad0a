//! ReplicaSets.

use api::field::{Errors, Path};
use api::names::name_subdomain;
use api::view::View;

use crate::columns;
use crate::scale::SelectorForm;
use crate::strategies::generic::{NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::options::Options;
use crate::strategies::rules::{Rules, Takes};
use crate::strategies::template::{
    REPLICAS_STATUS, create, options, replicas_text, selected_template, selector, template_warnings, update,
};
use crate::validation::immutable;

fn replica_set(errs: &mut Errors, v: View<'_>, o: &Options<'_>) {
    let at = Path::root("spec");
    let spec = v.st("spec");
    errs.non_negative(&at.field("replicas"), spec.int("replicas"));
    errs.non_negative(&at.field("minReadySeconds"), spec.int("minReadySeconds"));
    selector(errs, &at, spec, "deployment");
    selected_template(errs, &at, spec, o);
}

pub(crate) const REPLICA_SET: Rules = Rules {
    group: "apps",
    resource: "replicasets",
    columns: columns::workloads::REPLICA_SET,
    scale: Some(SelectorForm::LabelSelector),
    takes: Takes::BUT_STATUS,
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
            immutable(e, &Path::root("spec"), n.st("spec"), o.st("spec"), "selector");
        })
    },
    warnings: template_warnings,
    fields: &["status.replicas"],
    field_values: replicas_text,
    subresources: &[REPLICAS_STATUS],
    ..NAMESPACED
};
