//! PodTemplates.

use api::field::Path;
use api::names::name_subdomain;
use api::view::View;

use crate::columns;
use crate::strategies::generic::{self, NAMESPACED, bump_if_changed, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::spec::template;
use crate::strategies::pod::warnings;
use crate::strategies::rules::Rules;
use crate::strategies::template::{drop_in_template, options};

pub(crate) const POD_TEMPLATE: Rules = Rules {
    resource: "podtemplates",
    columns: columns::core::POD_TEMPLATE,
    prepare_create: |c, s| {
        generic::first_generation(c, s);
        drop_in_template(c, s, &["template"], None);
    },
    prepare_update: |c, n, o| {
        drop_in_template(c, n, &["template"], Some(o));
        bump_if_changed(c, n, o, &["template"]);
    },
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            template(e, &Path::root("template"), v.st("template"), &options(c, None));
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            template(e, &Path::root("template"), n.st("template"), &options(c, Some(o.st("template"))));
        })
    },
    warnings: |c, n, old| {
        let v = View::new(c.schema, n);
        let generation = |v: View<'_>| v.st("metadata").int("generation");
        let mut out = Vec::new();
        if old.is_none_or(|o| generation(View::new(c.schema, o)) != generation(v)) {
            let t = v.st("template");
            warnings::of_spec(&mut out, &Path::root("template"), t.st("metadata"), t.st("spec"), true);
        }
        out
    },
    ..NAMESPACED
};
