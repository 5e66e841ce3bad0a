//! ResourcePoolStatusRequests.

use std::collections::HashSet;

use api::field::{Errors, IMMUTABLE, NEGATIVE, Path, Raw};
use api::names::{self, name_subdomain};
use api::view::{View, same};

use super::GROUP;
use crate::columns;
use crate::strategies::generic::{self, CLUSTER, check, check_update, status_reset_meta};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategies::template::whole;
use crate::validation::{meta, print};

const MAX_LIMIT: i64 = 1000;
const MAX_POOLS: usize = 1000;
const MAX_CONDITIONS: usize = 10;
const MAX_ERROR: usize = 256;
const MAX_POOL_NAME: usize = 253;

pub(crate) const POOL_STATUS: Rules = Rules {
    group: GROUP,
    resource: "resourcepoolstatusrequests",
    columns: columns::storage::RESOURCE_POOL_STATUS_REQUEST,
    takes: Takes::BUT_STATUS,
    unconditional_update: false,
    prepare_create: generic::drop_status,
    prepare_update: generic::keep_status,
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), false, name_subdomain);
            spec(e, v.st("spec"));
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            if !same(n.get("spec"), o.get("spec")) {
                e.invalid(&Path::root("spec"), Raw("null".into()), IMMUTABLE);
            }
        })
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC_AND_METADATA,
        prepare_update: status_reset_meta,
        validate_update: |c, n, o| check_update(c, n, o, status),
    }],
    ..CLUSTER
};

/// Checks the name of a driver: a subdomain whose case does not matter.
fn driver(errs: &mut Errors, at: &Path<'_>, name: &str) {
    if name.is_empty() {
        errs.required(at, "");
    } else {
        errs.each(at, name, names::subdomain_caseless(name));
    }
}

/// Checks the name of a pool: subdomains between slashes.
fn pool_name(errs: &mut Errors, at: &Path<'_>, name: &str) {
    if name.len() > MAX_POOL_NAME {
        errs.too_long(at, MAX_POOL_NAME);
    }
    for (i, part) in name.split('/').enumerate() {
        if part.is_empty() {
            errs.invalid(at, name, format!("segment {i}: must not be empty"));
            continue;
        }
        for why in names::name_subdomain_bytes(part, false) {
            errs.invalid(at, part, format!("segment {i}: {why}"));
        }
    }
}

fn spec(errs: &mut Errors, spec: View<'_>) {
    let at = Path::root("spec");
    driver(errs, &at.field("driver"), spec.str("driver"));
    if let Some(pool) = spec.opt_str("poolName") {
        pool_name(errs, &at.field("poolName"), pool);
    }
    match spec.opt_int("limit") {
        Some(n) if n < 1 => {
            errs.invalid(&at.field("limit"), n, "must be greater than or equal to 1");
        }
        Some(n) if n > MAX_LIMIT => {
            errs.invalid(&at.field("limit"), n, format!("must be less than or equal to {MAX_LIMIT}"));
        }
        _ => {}
    }
}

fn status(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
    let at = Path::root("status");
    if o.has("status") {
        if !same(n.get("status"), o.get("status")) {
            errs.invalid(&at, Raw(print::field(n, "status")), IMMUTABLE);
        }
    } else {
        meta::conditions(errs, &at.field("conditions"), n.st("status"), "conditions");
    }
    let Some(status) = n.opt("status").filter(|_| !same(n.get("status"), o.get("status"))) else { return };
    match status.opt_int("poolCount") {
        None => errs.required(&at.field("poolCount"), ""),
        Some(count) if count < 0 => errs.invalid(&at.field("poolCount"), count, NEGATIVE),
        Some(_) => {}
    }
    let (pools_at, conditions_at) = (at.field("pools"), at.field("conditions"));
    let count = status.len("pools");
    if count > MAX_POOLS {
        errs.too_many(&pools_at, count, MAX_POOLS);
    } else {
        for (i, p) in status.items("pools").enumerate() {
            pool(errs, &pools_at.index(i), p);
        }
    }
    let count = status.len("conditions");
    if count > MAX_CONDITIONS {
        errs.too_many(&conditions_at, count, MAX_CONDITIONS);
        return;
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, c) in status.items("conditions").enumerate() {
        let ty = c.str("type");
        if seen.contains(&ty) {
            errs.duplicate(&conditions_at.index(i), whole(c));
        }
        seen.insert(ty);
    }
}

fn pool(errs: &mut Errors, at: &Path<'_>, p: View<'_>) {
    driver(errs, &at.field("driver"), p.str("driver"));
    let name = p.str("poolName");
    if name.is_empty() {
        errs.required(&at.field("poolName"), "");
    } else {
        pool_name(errs, &at.field("poolName"), name);
    }
    match p.int("generation") {
        0 => errs.required(&at.field("generation"), ""),
        n if n < 0 => errs.invalid(&at.field("generation"), n, NEGATIVE),
        _ => {}
    }
    let least = [
        ("resourceSliceCount", 1),
        ("totalDevices", 0),
        ("allocatedDevices", 0),
        ("availableDevices", 0),
        ("unavailableDevices", 0),
    ];
    for (field, min) in least {
        if let Some(n) = p.opt_int(field).filter(|n| *n < min) {
            errs.invalid(&at.field(field), n, format!("must be greater than or equal to {min}"));
        }
    }
    if let Some(node) = p.opt_str("nodeName") {
        errs.each(&at.field("nodeName"), node, names::name_subdomain_bytes(node, false));
    }
    if p.str("validationError").len() > MAX_ERROR {
        errs.too_long(&at.field("validationError"), MAX_ERROR);
    }
}
