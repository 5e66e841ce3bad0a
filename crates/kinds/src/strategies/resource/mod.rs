//! Dynamic resources: claims, their templates, device classes, slices, rules that taint devices, and requests for the
//! state of pools.

mod claim;
mod claim_status;
mod policy;
mod pool_status;
mod requests;
mod selector;
mod slice;
mod taint_rule;

pub(super) use claim::{CLAIM, CLAIM_TEMPLATE, DEVICE_CLASS};
pub(super) use pool_status::POOL_STATUS;
pub(super) use slice::SLICE;
pub(super) use taint_rule::TAINT_RULE;

use std::collections::HashSet;

use api::field::{Errors, Path};
use api::names;

const GROUP: &str = "resource.k8s.io";
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];
/// The greatest length of the name after the domain in bytes.
const MAX_ID: usize = 32;

/// Checks the length of a list; a list that is too long is not checked further.
fn fits(errs: &mut Errors, at: &Path<'_>, len: usize, max: usize) -> bool {
    if len > max {
        errs.too_many(at, len, max);
    }
    len <= max
}

/// Reports names that stand twice.
fn unique<'a>(errs: &mut Errors, at: &Path<'_>, names: impl Iterator<Item = &'a str>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, name) in names.enumerate() {
        if seen.contains(&name) {
            errs.duplicate(&at.index(i), name);
        } else {
            seen.insert(name);
        }
    }
}

/// Checks the name of an attribute or a capacity: an identifier, with or without a domain.
fn qualified_name(errs: &mut Errors, at: &Path<'_>, name: &str) {
    let identifier = |errs: &mut Errors, id: &str| {
        if id.len() > MAX_ID {
            errs.too_long(at, MAX_ID);
        }
        errs.each(at, id, names::c_identifier(id));
    };
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [id] => identifier(errs, id),
        [domain, id] => {
            if domain.is_empty() {
                errs.invalid(at, "", "the domain must not be empty");
            } else {
                super::pod::volume_sources::csi_driver_name(errs, at, domain);
            }
            if id.is_empty() {
                errs.invalid(at, "", "the name must not be empty");
            } else {
                identifier(errs, id);
            }
        }
        _ => {}
    }
}
