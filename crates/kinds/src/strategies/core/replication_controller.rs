//! ReplicationControllers.

use api::field::{Errors, Path};
use api::names::name_subdomain_bytes;
use api::view::View;

use crate::columns;
use crate::scale::SelectorForm;
use crate::strategies::generic::{NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::options::Options;
use crate::strategies::pod::spec::template;
use crate::strategies::rules::{Rules, Takes};
use crate::strategies::template::{
    MISMATCH, REPLICAS_STATUS, always, create, labels_value, options, replicas_text, template_warnings,
    update,
};
use crate::strategy::{Deletion, Dependents};

pub(crate) const REPLICATION_CONTROLLER: Rules = Rules {
    resource: "replicationcontrollers",
    columns: columns::core::REPLICATION_CONTROLLER,
    path: Some("controllers"),
    deletion: Deletion { dependents: Dependents::Orphan, ..Deletion::USUAL },
    scale: Some(SelectorForm::Labels),
    takes: Takes::BUT_STATUS,
    prepare_create: create,
    prepare_update: update,
    validate: |c, s| {
        check(c, s, |e, v| {
            let meta = v.st("metadata");
            // The prefix of a generated name is not checked: only the generated name.
            core_meta(
                e,
                meta,
                true,
                |name, prefix| if prefix { Vec::new() } else { name_subdomain_bytes(name, false) },
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
    warnings: |c, n, old| match old {
        // Upstream takes the stored template for the new one here.
        Some(o) => template_warnings(c, o, Some(n)),
        None => template_warnings(c, n, None),
    },
    fields: &["status.replicas"],
    field_values: replicas_text,
    subresources: &[REPLICAS_STATUS],
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
