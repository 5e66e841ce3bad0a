//! Events of both groups; they are kept as the core group's.

use api::field::{Errors, IMMUTABLE, Path};
use api::names::{self, name_subdomain};
use api::status::FieldError;
use api::view::{View, same};
use api::{Node, Schema, Struct, Text};

use crate::columns;
use crate::convert;
use crate::strategies::generic::{NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::Rules;
use crate::strategy::{Ctx, Deletion, Dependents};
use crate::validation::immutable;

const EVENT: Rules = Rules {
    resource: "events",
    columns: columns::core::EVENT,
    deletion: Deletion { dependents: Dependents::Unsupported, ..Deletion::USUAL },
    convert: convert::event,
    expires: true,
    create_on_update: true,
    fields: &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ],
    field_values: event_fields,
    ..NAMESPACED
};

/// The rules of the core group's Events: few checks.
pub(crate) const CORE_EVENT: Rules = Rules {
    validate: |c, s| check(c, s, |e, v| legacy_event(e, v, "reportingComponent")),
    validate_update: |c, n, o| check_update(c, n, o, |e, n, _| legacy_event(e, n, "reportingComponent")),
    ..EVENT
};

/// The rules of events.k8s.io/v1's Events. The tree is the core group's, in which both are stored.
pub(crate) const NEW_EVENT: Rules = Rules {
    group: "events.k8s.io",
    validate: new_event,
    validate_update: new_event_update,
    // The group has its own names for the same values; it has none for `source`.
    fields: &[
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
        "reason",
        "reportingController",
        "",
        "type",
    ],
    ..EVENT
};

fn event_fields(schema: &Schema, s: &Struct, out: &mut Vec<Text>) {
    let v = View::new(schema, s);
    let o = v.st("involvedObject");
    for f in ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"] {
        out.push(o.str(f).into());
    }
    let reporting = v.str("reportingComponent");
    out.push(v.str("reason").into());
    out.push(reporting.into());
    let source = v.st("source").str("component");
    out.push(if source.is_empty() { reporting } else { source }.into());
    out.push(v.str("type").into());
}

fn is_set(v: View<'_>, f: &str) -> bool {
    matches!(v.get(f), Some(Node::Str(_)))
}

fn legacy_event(errs: &mut Errors, v: View<'_>, reporting_field: &'static str) {
    let ns = v.st("metadata").str("namespace");
    let object_ns = v.st("involvedObject").str("namespace");
    let wrong_ns = |errs: &mut Errors| {
        errs.invalid(&Path::root("involvedObject.namespace"), object_ns, "does not match event.namespace");
    };
    if is_set(v, "eventTime") {
        if object_ns.is_empty() && ns != "default" && ns != "kube-system" {
            wrong_ns(errs);
        }
        let controller = v.str("reportingComponent");
        let at = Path::root(reporting_field);
        if controller.is_empty() {
            errs.required(&at, "");
        }
        errs.each(&at, controller, names::qualified_name(controller));
        for (f, max) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
            let at = Path::root(f);
            if v.str(f).is_empty() {
                errs.required(&at, "");
            }
            if v.str(f).len() > max {
                errs.invalid(&at, "", format!("can have at most {max} characters"));
            }
        }
        if v.str("message").len() > 1024 {
            errs.invalid(&Path::root("message"), "", "can have at most 1024 characters");
        }
    } else if object_ns.is_empty() {
        if !ns.is_empty() && ns != "default" {
            wrong_ns(errs);
        }
    } else if ns != object_ns {
        wrong_ns(errs);
    }
    errs.each(&Path::root("namespace"), ns, names::dns1123_subdomain(ns));
}

fn event_series(errs: &mut Errors, v: View<'_>) {
    let Some(s) = v.opt("series") else { return };
    if s.int("count") < 2 {
        errs.invalid(&Path::root("series.count"), "", "should be at least 2");
    }
    if !is_set(s, "lastObservedTime") {
        errs.required(&Path::root("series.lastObservedTime"), "");
    }
}

fn new_event(c: &Ctx<'_>, s: &Struct) -> Vec<FieldError> {
    check(c, s, |errs, v| {
        legacy_event(errs, v, "reportingController");
        core_meta(errs, v.st("metadata"), true, name_subdomain);
        event_series(errs, v);
        // Upstream compares with Go's zero value, which a zero time that was read is not.
        if !is_set(v, "eventTime") && !v.zero_time("eventTime") {
            errs.required(&Path::root("eventTime"), "");
        }
        let ty = v.str("type");
        if ty != "Normal" && ty != "Warning" {
            errs.invalid(&Path::root("type"), "", format!("has invalid value: {ty}"));
        }
        for f in ["firstTimestamp", "lastTimestamp"] {
            if is_set(v, f) || v.zero_time(f) {
                errs.invalid(&Path::root(f), "", "needs to be unset");
            }
        }
        if v.int("count") != 0 {
            errs.invalid(&Path::root("count"), "", "needs to be unset");
        }
        if !v.st("source").is_empty() {
            errs.invalid(&Path::root("source"), "", "needs to be unset");
        }
    })
}

fn new_event_update(c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
    check_update(c, new, old, |errs, n, o| {
        legacy_event(errs, n, "reportingController");
        core_meta_update(errs, n.st("metadata"), o.st("metadata"));
        if !same(n.get("series"), o.get("series")) {
            event_series(errs, n);
        }
        let root = Path::root("");
        for f in [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "reason",
            "type",
            "eventTime",
            "action",
            "related",
        ] {
            immutable(errs, &root, n, o, f);
        }
        for (f, shown) in
            [("reportingComponent", "reportingController"), ("reportingInstance", "reportingInstance")]
        {
            if n.str(f) != o.str(f) {
                errs.invalid(&Path::root(shown), n.str(f), IMMUTABLE);
            }
        }
    })
}
