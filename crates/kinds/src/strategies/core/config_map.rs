//! ConfigMaps, and the rules that they share with Secrets.

use api::Node;
use api::field::{Errors, Path};
use api::names::{self, name_subdomain};
use api::view::{View, same, same_as_written};

use crate::columns;
use crate::strategies::generic::{NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::Rules;

/// The greatest size of the data of a Secret or ConfigMap in bytes.
pub(crate) const MAX_DATA: usize = 1024 * 1024;

pub(crate) const SEALED: &str = "field is immutable when `immutable` is set";

pub(crate) const CONFIG_MAP: Rules = Rules {
    resource: "configmaps",
    columns: columns::core::CONFIG_MAP,
    validate: |c, s| check(c, s, config_map),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            // Absent, `data` is made empty.
            sealed(e, n, o, &[("data", same), ("binaryData", same_as_written)]);
            config_map(e, n);
        })
    },
    ..NAMESPACED
};

/// The test by which two values of a field are the same.
type Equality = fn(Option<&Node>, Option<&Node>) -> bool;

pub(crate) fn sealed(errs: &mut Errors, new: View<'_>, old: View<'_>, fields: &[(&'static str, Equality)]) {
    if !old.bool("immutable") {
        return;
    }
    if !new.bool("immutable") {
        errs.forbidden(&Path::root("immutable"), SEALED);
    }
    for (f, equal) in fields {
        if !equal(new.as_written(f), old.as_written(f)) {
            errs.forbidden(&Path::root(f), SEALED);
        }
    }
}

/// The length of the bytes that a base64 text encodes.
pub(crate) fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count()
}

fn config_map(errs: &mut Errors, m: View<'_>) {
    core_meta(errs, m.st("metadata"), true, name_subdomain);
    let (data, binary) = (Path::root("data"), Path::root("binaryData"));
    let mut size = 0;
    for (k, v) in m.texts("data") {
        let at = data.key(k);
        errs.each(&at, k, names::config_map_key(k));
        if m.map("binaryData").is_some_and(|b| b.get(k).is_some()) {
            errs.invalid(&at, k, "duplicate of key present in binaryData");
        }
        size += v.len();
    }
    for (k, v) in m.texts("binaryData") {
        errs.each(&binary.key(k), k, names::config_map_key(k));
        size += decoded_len(v);
    }
    if size > MAX_DATA {
        errs.too_long(&Path::root(""), MAX_DATA);
    }
}
