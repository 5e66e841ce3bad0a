//! RuntimeClasses.

use std::collections::HashSet;

use api::field::{Errors, IMMUTABLE, Path};
use api::names::{name_label, name_subdomain};
use api::view::View;

use super::generic::{CLUSTER, check, check_update};
use super::pod::leniency::options;
use super::pod::resources::{container_resource_name, divisible_huge_pages, quantity_value};
use super::pod::{scheduling::tolerations, warnings::node_label};
use super::template::whole;
use crate::columns;
use crate::resources::is_huge_page;
use crate::strategies::rules::Rules;
use crate::strategy::Ctx;
use crate::validation::meta::{labels, object_meta, object_meta_update};

pub(super) const RUNTIME_CLASS: Rules = Rules {
    group: "node.k8s.io",
    resource: "runtimeclasses",
    columns: columns::cluster::RUNTIME_CLASS,
    is_consulted: true,
    create_on_update: true,
    unconditional_update: false,
    validate: |c, s| check(c, s, |e, v| runtime_class(e, v, c)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            runtime_class(e, n, c);
            object_meta_update(e, n.st("metadata"), o.st("metadata"));
            if n.str("handler") != o.str("handler") {
                e.invalid(&Path::root("handler"), n.str("handler"), IMMUTABLE);
            }
        })
    },
    warnings: |c, n, _| {
        View::new(c.schema, n)
            .st("scheduling")
            .texts("nodeSelector")
            .filter_map(|(key, _)| node_label(key))
            .map(|why| format!("scheduling.nodeSelector: {why}"))
            .collect()
    },
    ..CLUSTER
};

fn runtime_class(errs: &mut Errors, v: View<'_>, c: &Ctx<'_>) {
    object_meta(errs, v.st("metadata"), false, name_subdomain);
    let handler = v.str("handler");
    if handler.is_empty() {
        errs.required(&Path::root("handler"), "");
    } else {
        errs.each(&Path::root("handler"), handler, name_label(handler, false));
    }
    let overhead = v.st("overhead");
    let at = Path::root("overhead");
    let limits_at = at.field("limits");
    for (name, q) in overhead.texts("podFixed") {
        let at = limits_at.key(name);
        container_resource_name(errs, &at, name);
        quantity_value(errs, &at, name, q);
        divisible_huge_pages(errs, &at, name, q);
    }
    let has = |f: fn(&str) -> bool| overhead.entries("podFixed").any(|(k, _)| f(k));
    if has(is_huge_page) && !has(|k| matches!(k, "cpu" | "memory")) {
        errs.forbidden(&at, "HugePages require cpu or memory");
    }
    let at = Path::root("scheduling");
    let Some(scheduling) = v.opt("scheduling") else { return };
    labels(errs, &at.field("nodeSelector"), scheduling, "nodeSelector");
    let at = at.field("tolerations");
    tolerations(errs, &at, scheduling, &options(*c, false, None));
    let mut seen = HashSet::new();
    for (i, t) in scheduling.items("tolerations").enumerate() {
        if !seen.insert(["key", "operator", "value", "effect"].map(|f| t.str(f))) {
            errs.duplicate(&at.index(i), whole(t));
        }
    }
}
