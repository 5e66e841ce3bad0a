//! ResourceClaims, their templates and DeviceClasses.

use api::field::{Errors, Path, Typed};
use api::names::{self, name_subdomain, name_subdomain_bytes};
use api::view::View;
use api::{Gate, Struct};

use super::requests::{MAX_REQUESTS, Requests, opaque, request_names};
use super::selector::TooCostly;
use super::{EFFECTS, GROUP, claim_status, fits, qualified_name, unique};
use crate::columns;
use crate::resources::is_extended;
use crate::strategies::generic::{
    self, CLUSTER, NAMESPACED, bump_spec, check, check_update, first_generation,
};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::volumes::template_meta;
use crate::strategies::rules::{Rules, SubresourceRules, Takes, going};
use crate::strategy::Ctx;
use crate::validation::immutable;
use crate::validation::meta::label_name;

const MAX_CONSTRAINTS: usize = 32;
const MAX_CONFIG: usize = 32;
const MAX_SELECTORS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const MAX_EXPRESSION: usize = 10 * 1024;

pub(crate) const CLAIM: Rules = Rules {
    group: GROUP,
    resource: "resourceclaims",
    columns: columns::storage::RESOURCE_CLAIM,
    going: &[going("v1beta1", 35, "1.38"), going("v1beta2", 36, "1.39")],
    takes: Takes::BUT_STATUS,
    prepare_create: generic::drop_status,
    prepare_update: generic::keep_status,
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            spec(e, &Path::root("spec"), v.st("spec"), c);
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta(e, n.st("metadata"), true, name_subdomain);
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            immutable(e, &Path::root(""), n, o, "spec");
        })
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC_AND_METADATA,
        prepare_update: claim_status::prepare,
        validate_update: |c, n, o| check_update(c, n, o, claim_status::check),
    }],
    ..NAMESPACED
};

pub(crate) const CLAIM_TEMPLATE: Rules = Rules {
    group: GROUP,
    resource: "resourceclaimtemplates",
    columns: columns::storage::RESOURCE_CLAIM_TEMPLATE,
    going: &[going("v1beta1", 35, "1.38"), going("v1beta2", 36, "1.39")],
    validate: |c, s| check(c, s, |e, v| template(e, v, c)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            template(e, n, c);
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            immutable(e, &Path::root(""), n, o, "spec");
        })
    },
    ..NAMESPACED
};

fn template(errs: &mut Errors, v: View<'_>, c: &Ctx<'_>) {
    core_meta(errs, v.st("metadata"), true, name_subdomain);
    let at = Path::root("spec");
    template_meta(errs, &at.field("metadata"), v.st("spec").st("metadata"));
    spec(errs, &at.field("spec"), v.st("spec").st("spec"), c);
}

pub(crate) const DEVICE_CLASS: Rules = Rules {
    group: GROUP,
    resource: "deviceclasses",
    columns: columns::storage::DEVICE_CLASS,
    going: &[going("v1beta1", 35, "1.38"), going("v1beta2", 36, "1.39")],
    prepare_create: first_generation,
    prepare_update: |c, n, o: &Struct| bump_spec(c, n, o),
    validate: |c, s| check(c, s, class),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            class_meta(e, n.st("metadata"));
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            class_spec(e, n.st("spec"));
        })
    },
    ..CLUSTER
};

/// Checks metadata. The prefix of a generated name is not checked, only the generated name.
fn class_meta(errs: &mut Errors, meta: View<'_>) {
    let check = |name: &str, prefix| if prefix { Vec::new() } else { name_subdomain_bytes(name, false) };
    core_meta(errs, meta, false, check);
}

fn class(errs: &mut Errors, v: View<'_>) {
    class_meta(errs, v.st("metadata"));
    class_spec(errs, v.st("spec"));
}

fn class_spec(errs: &mut Errors, spec: View<'_>) {
    let at = Path::root("spec");
    selectors(errs, &at.field("selectors"), spec);
    let config_at = at.field("config");
    if fits(errs, &config_at, spec.len("config"), MAX_CONFIG) {
        for (i, c) in spec.items("config").enumerate() {
            opaque(errs, &config_at.index(i), c);
        }
    }
    if let Some(name) = spec.opt_str("extendedResourceName").filter(|n| !is_extended(n)) {
        errs.invalid(&at.field("extendedResourceName"), name, "must be a valid extended resource name");
    }
}

fn spec(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, ctx: &Ctx<'_>) {
    let at = at.field("devices");
    let devices = spec.st("devices");
    let requests_at = at.field("requests");
    if fits(errs, &requests_at, devices.len("requests"), MAX_REQUESTS) {
        for (i, r) in devices.items("requests").enumerate() {
            request(errs, &requests_at.index(i), r);
        }
        unique(errs, &requests_at, devices.items("requests").map(|r| r.str("name")));
    }
    let requests = Requests::of(devices);
    let constraints_at = at.field("constraints");
    if fits(errs, &constraints_at, devices.len("constraints"), MAX_CONSTRAINTS) {
        for (i, c) in devices.items("constraints").enumerate() {
            constraint(errs, &constraints_at.index(i), c, &requests, ctx);
        }
    }
    let config_at = at.field("config");
    if fits(errs, &config_at, devices.len("config"), MAX_CONFIG) {
        for (i, c) in devices.items("config").enumerate() {
            let at = config_at.index(i);
            request_names(errs, &at, c, &requests);
            opaque(errs, &at, c);
        }
    }
}

fn request(errs: &mut Errors, at: &Path<'_>, r: View<'_>) {
    let name = r.str("name");
    errs.each(&at.field("name"), name, names::dns1123_label(name));
    let exactly = r.opt("exactly");
    let alternatives = r.len("firstAvailable");
    match (exactly, alternatives > 0) {
        (None, false) => errs.required(at, "exactly one of `exactly` or `firstAvailable` is required"),
        (Some(_), true) => errs.invalid(
            at,
            None,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (Some(e), false) => devices(errs, &at.field("exactly"), e),
        (None, true) => {
            let at = at.field("firstAvailable");
            if fits(errs, &at, alternatives, MAX_ALTERNATIVES) {
                for (i, s) in r.items("firstAvailable").enumerate() {
                    let at = at.index(i);
                    let name = s.str("name");
                    errs.each(&at.field("name"), name, names::dns1123_label(name));
                    devices(errs, &at, s);
                }
                unique(errs, &at, r.items("firstAvailable").map(|s| s.str("name")));
            }
        }
    }
}

fn devices(errs: &mut Errors, at: &Path<'_>, r: View<'_>) {
    let class = r.str("deviceClassName");
    if class.is_empty() {
        errs.required(&at.field("deviceClassName"), "");
    } else {
        errs.each(&at.field("deviceClassName"), class, names::dns1123_subdomain(class));
    }
    selectors(errs, &at.field("selectors"), r);
    let (mode, count) = (r.str("allocationMode"), r.int("count"));
    match mode {
        "All" if count != 0 => {
            errs.invalid(&at.field("count"), count, "must not be specified when allocationMode is 'All'");
        }
        "All" => {}
        "ExactCount" => errs.positive(&at.field("count"), count),
        _ => errs.not_supported(&at.field("allocationMode"), mode, &["All", "ExactCount"]),
    }
    let at = at.field("tolerations");
    for (i, t) in r.items("tolerations").enumerate() {
        toleration(errs, &at.index(i), t);
    }
}

fn toleration(errs: &mut Errors, at: &Path<'_>, t: View<'_>) {
    let (key, operator, value, effect) = (t.str("key"), t.str("operator"), t.str("value"), t.str("effect"));
    if !key.is_empty() {
        label_name(errs, &at.field("key"), key);
    }
    match operator {
        "Exists" if !value.is_empty() => {
            errs.invalid(&at.field("value"), value, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => errs.each(&at.field("value"), value, names::label_value(value)),
        "" => errs.required(&at.field("operator"), ""),
        _ => errs.not_supported(&at.field("operator"), operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        errs.one_of(&at.field("effect"), effect, EFFECTS);
    }
}

fn selectors(errs: &mut Errors, at: &Path<'_>, of: View<'_>) {
    if !fits(errs, at, of.len("selectors"), MAX_SELECTORS) {
        return;
    }
    for (i, s) in of.items("selectors").enumerate() {
        let at = at.index(i);
        let at = at.field("cel");
        match s.opt("cel") {
            None => errs.required(&at, ""),
            Some(c) if c.str("expression").len() > MAX_EXPRESSION => {
                errs.too_long(&at.field("expression"), MAX_EXPRESSION);
            }
            // Further errors would not be shown.
            Some(_) if errs.is_full() => {}
            Some(c) => {
                let (at, expression) = (at.field("expression"), c.str("expression"));
                match super::selector::compile(expression) {
                    Err(text) => errs.invalid(&at, expression, text),
                    Ok(TooCostly(true)) => errs.forbidden(&at, "too complex, exceeds cost limit"),
                    Ok(TooCostly(false)) => {}
                }
            }
        }
    }
}

fn constraint(errs: &mut Errors, at: &Path<'_>, c: View<'_>, claimed: &Requests<'_>, ctx: &Ctx<'_>) {
    request_names(errs, at, c, claimed);
    let Some(field) = ["matchAttribute", "distinctAttribute"].into_iter().find(|f| c.has(f)) else {
        if !ctx.gates.enabled(Gate::DRAConsumableCapacity) {
            errs.required(&at.field("matchAttribute"), "");
            return;
        }
        errs.required(
            at,
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
        );
        return;
    };
    let name = c.str(field);
    let at = at.field(field);
    qualified_name(errs, &at, name);
    if !name.contains('/') {
        errs.invalid(
            &at,
            Typed(name),
            "a fully qualified name must be a domain and a name separated by a slash",
        );
    }
}
