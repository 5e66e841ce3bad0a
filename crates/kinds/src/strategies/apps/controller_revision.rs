//! ControllerRevisions.

use api::Node;
use api::field::{Errors, Path};
use api::names::name_subdomain;
use api::view::View;

use crate::columns;
use crate::strategies::generic::{NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::Rules;
use crate::validation::immutable;

pub(crate) const CONTROLLER_REVISION: Rules = Rules {
    group: "apps",
    resource: "controllerrevisions",
    columns: columns::workloads::CONTROLLER_REVISION,
    validate: |c, s| {
        check(c, s, |e, v| {
            revision(e, v);
            let at = Path::root("data");
            match v.get("data") {
                Some(Node::Raw(text)) if text.starts_with('{') => {}
                None | Some(Node::Null) => e.required(&at, "data is mandatory"),
                Some(_) => e.required(&at, "data must be a valid JSON object"),
            }
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            revision(e, n);
            immutable(e, &Path::root(""), n, o, "data");
        })
    },
    ..NAMESPACED
};

fn revision(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), true, name_subdomain);
    errs.non_negative(&Path::root("revision"), v.int("revision"));
}
