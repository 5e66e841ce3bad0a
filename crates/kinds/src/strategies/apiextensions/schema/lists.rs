//! The extensions of lists: their types, and the keys of their elements.

use std::collections::HashSet;

use api::Node;
use api::field::{Errors, Path};
use api::view::View;

use super::fields::{LIST_KEYS, LIST_TYPE, MAP_TYPE};

/// An extension needs a type.
pub(super) fn needs_type(errs: &mut Errors, at: &Path<'_>, s: View<'_>, extension: &str, wanted: &str) {
    let ty = s.str("type");
    if !s.has(extension) || ty == wanted {
        return;
    }
    let why = format!("must be {wanted} if {extension} is specified");
    if ty.is_empty() {
        errs.required(&at.field("type"), why);
    } else {
        errs.invalid(&at.field("type"), ty, why);
    }
}

/// Checks the extensions of lists.
pub(super) fn list(errs: &mut Errors, at: &Path<'_>, s: View<'_>, sets_of_atomic: bool) {
    needs_type(errs, at, s, LIST_TYPE, "array");
    let kind = s.opt_str(LIST_TYPE);
    let items = s.opt("items");
    let items_at = at.field("items");
    if let (true, Some("set"), Some(items), "array") = (sets_of_atomic, kind, items, s.str("type")) {
        let atomic = "must be atomic as item of a list with x-kubernetes-list-type=set";
        match items.str("type") {
            "array" if items.opt_str(LIST_TYPE).is_some_and(|t| t != "atomic") => {
                errs.invalid(&items_at.field(LIST_TYPE), items.get(LIST_TYPE), atomic);
            }
            "object" if items.str(MAP_TYPE) != "atomic" => {
                errs.invalid(&items_at.field(MAP_TYPE), items.get(LIST_TYPE), atomic);
            }
            _ => {}
        }
    }
    if let Some(k) = kind.filter(|k| !matches!(*k, "atomic" | "set" | "map")) {
        errs.not_supported(&at.field(LIST_TYPE), k, &["atomic", "set", "map"]);
    }
    let keys: Vec<&str> = s.strs(LIST_KEYS).collect();
    let keys_at = at.field(LIST_KEYS);
    if !keys.is_empty() {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        match kind {
            None => errs.required(&at.field(LIST_TYPE), why),
            Some("map") => {}
            Some(k) => errs.invalid(&at.field(LIST_TYPE), k, why),
        }
    }
    if kind == Some("map") {
        map_list(errs, at, s, &keys, &keys_at, items);
    }
}

/// Reports keys of lists that may be absent or null, and elements that may be null. Upstream's
/// `validateMapListKeysMapSet`.
pub(super) fn keys(errs: &mut Errors, at: &Path<'_>, s: View<'_>) {
    let items_at = at.field("items");
    let (items, kind) = (s.opt("items"), s.opt_str(LIST_TYPE));
    let (Some(items), Some(kind @ ("set" | "map"))) = (items, kind) else { return };
    if items.bool("nullable") {
        errs.forbidden(
            &items_at.field("nullable"),
            format!("cannot be nullable when x-kubernetes-list-type is {kind}"),
        );
    }
    if kind != "map" {
        return;
    }
    let properties_at = items_at.field("properties");
    let required: HashSet<&str> = items.strs("required").collect();
    for k in s.strs(LIST_KEYS) {
        let Some(p) = items.map("properties").and_then(|m| m.get(k)).map(|p| s.of(p)) else { continue };
        let at = properties_at.key(k);
        if !required.contains(k) && !p.has("default") {
            errs.required(
                &at.field("default"),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            );
        }
        if p.bool("nullable") {
            errs.forbidden(
                &at.field("nullable"),
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            );
        }
    }
}

/// Whether a list's keys may be absent or null, or its elements may be null.
pub(super) fn has_loose_keys(s: View<'_>) -> bool {
    let mut errs = Errors::new();
    keys(&mut errs, &Path::root(""), s);
    !errs.is_empty()
}

fn map_list(
    errs: &mut Errors,
    at: &Path<'_>,
    s: View<'_>,
    keys: &[&str],
    keys_at: &Path<'_>,
    items: Option<View<'_>>,
) {
    let items_at = at.field("items");
    if keys.is_empty() {
        errs.required(keys_at, "must not be empty if x-kubernetes-list-type is map");
    }
    if !s.has("items") {
        errs.required(&items_at, "must have a schema if x-kubernetes-list-type is map");
    }
    let Some(items) = items else {
        if let Some(list @ Node::List(_)) = s.get("items") {
            errs.invalid(
                &items_at,
                Some(list),
                "must only have a single schema if x-kubernetes-list-type is map",
            );
        }
        return;
    };
    let ty = items.str("type");
    if ty != "object" {
        errs.invalid(
            &items_at.field("type"),
            ty,
            "must be object if parent array's x-kubernetes-list-type is map",
        );
        return;
    }
    let properties_at = items_at.field("properties");
    let mut seen: HashSet<&str> = HashSet::new();
    for k in keys {
        match items.map("properties").and_then(|p| p.get(k)).map(|p| s.of(p)) {
            None => errs.invalid(keys_at, s.get(LIST_KEYS), "entries must all be names of item properties"),
            Some(p) if matches!(p.str("type"), "array" | "object") => errs.invalid(
                &properties_at.key(k).field("type"),
                ty,
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            ),
            Some(_) => {}
        }
        if !seen.insert(k) {
            errs.invalid(keys_at, s.get(LIST_KEYS), "must not contain duplicate entries");
        }
    }
}
