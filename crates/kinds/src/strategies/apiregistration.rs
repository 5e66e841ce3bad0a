//! APIServices.

use api::field::{Errors, Path};
use api::names::{self, path_segment};
use api::view::{Edit, View};
use api::{Node, Struct};

use super::core::decoded_len;
use super::generic::{self, CLUSTER, STATUS_ALONE, check, check_update, keep_status};
use crate::columns;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::{Ctx, Form};
use crate::validation::meta::{object_meta, object_meta_update};

pub(super) const API_SERVICE: Rules = Rules {
    group: "apiregistration.k8s.io",
    resource: "apiservices",
    columns: columns::cluster::API_SERVICE,
    form: Form::Json,
    takes: Takes::BUT_STATUS,
    unconditional_update: false,
    prepare_create: |c, s| {
        generic::drop_status(c, s);
        if !View::new(c.schema, s).st("spec").has("service") {
            available(c, s);
        }
    },
    prepare_update: keep_status,
    validate: |c, s| check(c, s, api_service),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            object_meta_update(e, n.st("metadata"), o.st("metadata"));
            api_service(e, n);
        })
    },
    subresources: &[SubresourceRules {
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                object_meta_update(e, n.st("metadata"), o.st("metadata"));
                let at = Path::root("status.conditions");
                for (i, c) in n.st("status").items("conditions").enumerate() {
                    e.one_of(&at.index(i).field("status"), c.str("status"), &["True", "False", "Unknown"]);
                }
            })
        },
        ..STATUS_ALONE
    }],
    ..CLUSTER
};

/// Sets the condition that an APIService which this server serves itself is available.
fn available(c: &Ctx<'_>, s: &mut Struct) {
    let mut e = Edit::new(c.schema, s);
    let Some(mut status) = e.make("status") else { return };
    let Some(mut condition) = status.fresh("conditions") else { return };
    let mut fields = Edit::new(c.schema, &mut condition);
    for (name, value) in [
        ("type", "Available"),
        ("status", "True"),
        ("lastTransitionTime", c.now),
        ("reason", "Local"),
        ("message", "Local APIServices are always available"),
    ] {
        fields.set(name, value);
    }
    status.set("conditions", Node::List(vec![condition.into()]));
}

fn api_service(errs: &mut Errors, v: View<'_>) {
    let spec = v.st("spec");
    let (group, version) = (spec.str("group"), spec.str("version"));
    service_meta(errs, v.st("metadata"), &format!("{version}.{group}"));
    let at = Path::root("spec");
    if group.is_empty() && version != "v1" {
        errs.required(&at.field("group"), "only v1 may have an empty group and it better be legacy kube");
    }
    if !group.is_empty() {
        errs.each(&at.field("group"), group, names::dns1123_subdomain(group));
    }
    errs.each(&at.field("version"), version, names::dns1035_label(version));
    for (field, max) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
        let n = spec.int(field);
        if n <= 0 || n > max {
            errs.invalid(&at.field(field), n, format!("must be positive and less than {max}"));
        }
    }
    let bundle = spec.str("caBundle");
    let insecure = spec.bool("insecureSkipTLSVerify");
    let Some(service) = spec.opt("service") else {
        if !bundle.is_empty() {
            let bytes = decoded_len(bundle);
            errs.invalid(
                &at.field("caBundle"),
                format!("{bytes} bytes"),
                "local APIServices may not have a caBundle",
            );
        }
        if insecure {
            errs.invalid(
                &at.field("insecureSkipTLSVerify"),
                true,
                "local APIServices may not have insecureSkipTLSVerify",
            );
        }
        return;
    };
    let service_at = at.field("service");
    for f in ["namespace", "name"] {
        if service.str(f).is_empty() {
            errs.required(&service_at.field(f), "");
        }
    }
    let port = service.int("port");
    let bad = names::port_number(port);
    if !bad.is_empty() {
        errs.invalid(&service_at.field("port"), port, format!("port is not valid: {}", bad.join(", ")));
    }
    if insecure && !bundle.is_empty() {
        errs.invalid(&at.field("insecureSkipTLSVerify"), true, "may not be true if caBundle is present");
    }
}

/// Checks that the name of an APIService is made of its version and group; upstream demands that of a prefix, too.
fn service_meta(errs: &mut Errors, meta: View<'_>, required: &str) {
    let wrong = format!("must be `spec.version+\".\"+spec.group`: {}", api::go::quote(required));
    let mut found = Errors::new();
    object_meta(&mut found, meta, false, |_, _| Vec::new());
    let at = Path::root("metadata");
    for field in ["generateName", "name"] {
        let name = meta.str(field);
        let mut bad = path_segment(name, false);
        if bad.is_empty() && name != required {
            bad.push(wrong.clone());
        }
        if !name.is_empty() {
            errs.each(&at.field(field), name, bad);
        }
    }
    errs.append(found);
}
