//! Object metadata, label selectors and conditions.

use std::collections::HashSet;

use api::field::{Errors, IMMUTABLE, Lazy, Path, Raw, Typed};
use api::go::quote;
use api::names::{self, NameCheck};
use api::status::FieldError;
use api::view::{View, same};
use api::{Schema, Struct};

use super::print::value;

/// Annotations may have this many bytes together.
pub const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Checks `metadata` of a create.
pub fn object_meta(errs: &mut Errors, meta: View<'_>, namespaced: bool, check: NameCheck) {
    object_meta_at(errs, &Path::root("metadata"), meta, namespaced, check);
}

/// Checks every create once its own rules found nothing.
pub fn common_create(schema: &Schema, object: &Struct, namespaced: bool) -> Vec<FieldError> {
    let mut errs = Errors::new();
    object_meta(&mut errs, View::new(schema, object).st("metadata"), namespaced, names::path_segment);
    errs.0
}

/// Checks every update before its own rules; both lists are reported, this one first.
pub fn common_update(schema: &Schema, new: &Struct, old: &Struct, namespaced: bool) -> Vec<FieldError> {
    let mut errs = Errors::new();
    let (n, o) = (View::new(schema, new).st("metadata"), View::new(schema, old).st("metadata"));
    object_meta(&mut errs, n, namespaced, names::path_segment);
    object_meta_update(&mut errs, n, o);
    errs.0
}

/// Checks metadata of a create at a path.
pub fn object_meta_at(errs: &mut Errors, at: &Path<'_>, meta: View<'_>, namespaced: bool, check: NameCheck) {
    let generate = meta.str("generateName");
    if !generate.is_empty() {
        errs.each(&at.field("generateName"), generate, check(generate, true));
    }
    let name = meta.str("name");
    if name.is_empty() {
        errs.required(&at.field("name"), "name or generateName is required");
    } else {
        errs.each(&at.field("name"), name, check(name, false));
    }
    let ns = meta.str("namespace");
    if namespaced {
        if ns.is_empty() {
            errs.required(&at.field("namespace"), "");
        } else {
            errs.each(&at.field("namespace"), ns, names::name_label(ns, false));
        }
    } else if !ns.is_empty() {
        errs.forbidden(&at.field("namespace"), "not allowed on this type");
    }
    errs.non_negative(&at.field("generation"), meta.int("generation"));
    labels(errs, &at.field("labels"), meta, "labels");
    annotations(errs, &at.field("annotations"), meta);
    owner_references(errs, &at.field("ownerReferences"), meta);
    finalizers(errs, &at.field("finalizers"), meta);
    managed_fields(errs, &at.field("managedFields"), meta);
}

/// Checks `metadata` of an update.
pub fn object_meta_update(errs: &mut Errors, new: View<'_>, old: View<'_>) {
    object_meta_update_at(errs, &Path::root("metadata"), new, old);
}

/// Checks metadata of an update at a path.
pub fn object_meta_update_at(errs: &mut Errors, at: &Path<'_>, new: View<'_>, old: View<'_>) {
    if old.has("deletionTimestamp") {
        let kept: HashSet<&str> = old.strs("finalizers").collect();
        let mut extra: Vec<&str> = new.strs("finalizers").filter(|f| !kept.contains(f)).collect();
        if !extra.is_empty() {
            extra.sort_unstable();
            extra.dedup();
            let all: Vec<String> = extra.iter().map(|f| quote(f)).collect();
            errs.forbidden(
                &at.field("finalizers"),
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    all.join(", ")
                ),
            );
        }
    }
    if new.str("resourceVersion").is_empty() {
        errs.invalid(&at.field("resourceVersion"), "", "must be specified for an update");
    }
    if new.int("generation") < old.int("generation") {
        errs.invalid(&at.field("generation"), new.int("generation"), "must not be decremented");
    }
    for name in ["name", "namespace", "uid"] {
        if new.str(name) != old.str(name) {
            errs.invalid(&at.field(name), new.str(name), IMMUTABLE);
        }
    }
    for name in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if !same(new.get(name), old.get(name)) {
            errs.invalid(&at.field(name), new.get(name), IMMUTABLE);
        }
    }
    labels(errs, &at.field("labels"), new, "labels");
    annotations(errs, &at.field("annotations"), new);
    owner_references(errs, &at.field("ownerReferences"), new);
    managed_fields(errs, &at.field("managedFields"), new);
}

/// Checks a label key.
pub fn label_name(errs: &mut Errors, at: &Path<'_>, name: &str) {
    errs.each(at, name, names::qualified_name(name));
}

/// Checks a map of labels in the field `name` of `of`; errors are reported at `at` itself.
pub fn labels(errs: &mut Errors, at: &Path<'_>, of: View<'_>, name: &str) {
    for (k, v) in of.texts(name) {
        label_name(errs, at, k);
        errs.each(at, v, names::label_value(v));
    }
}

/// Checks annotations.
pub fn annotations(errs: &mut Errors, at: &Path<'_>, meta: View<'_>) {
    let mut size = 0;
    for (k, v) in meta.texts("annotations") {
        let bad = if k.bytes().any(|b| b.is_ascii_uppercase()) {
            names::qualified_name(&k.to_lowercase())
        } else {
            names::qualified_name(k)
        };
        errs.each(at, k, bad);
        size += k.len() + v.len();
    }
    if size > ANNOTATIONS_LIMIT {
        errs.too_long(at, ANNOTATIONS_LIMIT);
    }
}

fn owner_references(errs: &mut Errors, at: &Path<'_>, meta: View<'_>) {
    let mut controller: Option<String> = None;
    for r in meta.items("ownerReferences") {
        let (api_version, kind, name) = (r.str("apiVersion"), r.str("kind"), r.str("name"));
        // More than one slash cannot be parsed; upstream goes on with an empty version then.
        let version = match api_version.split('/').collect::<Vec<_>>().as_slice() {
            [v] => *v,
            [_, v] => *v,
            _ => "",
        };
        if version.is_empty() {
            errs.invalid(&at.field("apiVersion"), api_version, "version must not be empty");
        }
        if kind.is_empty() {
            errs.invalid(&at.field("kind"), kind, "must not be empty");
        }
        if name.is_empty() {
            errs.invalid(&at.field("name"), name, "must not be empty");
        }
        if r.str("uid").is_empty() {
            errs.invalid(&at.field("uid"), "", "must not be empty");
        }
        if api_version == "v1" && kind == "Event" {
            let bad = || r.raw().map(|s| super::print::internal(r.schema, s)).unwrap_or_default();
            errs.invalid(at, Lazy(bad), "/v1, Kind=Event is disallowed from being an owner");
        }
        if r.bool("controller") {
            let this = format!("{kind}/{name}");
            if let Some(first) = &controller {
                let all = || {
                    meta.type_of("ownerReferences")
                        .map(|ty| value(meta.schema, ty, meta.get("ownerReferences"), false))
                        .unwrap_or_default()
                };
                errs.invalid_because(at, Lazy(all), || {
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    )
                });
            } else {
                controller = Some(this);
            }
        }
    }
}

fn finalizers(errs: &mut Errors, at: &Path<'_>, meta: View<'_>) {
    let (mut orphan, mut foreground) = (false, false);
    for f in meta.strs("finalizers") {
        errs.each(at, f, names::qualified_name(f));
        orphan |= f == "orphan";
        foreground |= f == "foregroundDeletion";
    }
    if orphan && foreground {
        let all = meta.get("finalizers").map(api::go::scalar_json).unwrap_or_default();
        errs.invalid(at, Raw(all), "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

fn managed_fields(errs: &mut Errors, at: &Path<'_>, meta: View<'_>) {
    for (i, f) in meta.items("managedFields").enumerate() {
        let at = at.index(i);
        let operation = f.str("operation");
        if operation != "Apply" && operation != "Update" {
            errs.invalid(&at.field("operation"), operation, "must be `Apply` or `Update`");
        }
        let ty = f.str("fieldsType");
        if !ty.is_empty() && ty != "FieldsV1" {
            errs.invalid(&at.field("fieldsType"), ty, "must be `FieldsV1`");
        }
        field_manager(errs, &at.field("manager"), f.str("manager"));
        if f.str("subresource").len() > 256 {
            errs.too_long(&at.field("subresource"), 256);
        }
    }
}

/// Checks the name of a field manager.
pub fn field_manager(errs: &mut Errors, at: &Path<'_>, manager: &str) {
    if manager.len() > 128 {
        errs.too_long(at, 128);
    }
    for (i, c) in manager.char_indices() {
        if c.is_control() || c.is_whitespace() && c != ' ' {
            errs.invalid(at, manager, format!("invalid character U+{:04X} (at position {i})", c as u32));
        }
    }
}

/// Faults that a label selector may have.
#[derive(Clone, Copy, Default)]
pub struct SelectorOptions {
    /// Values that are no label values, since the stored object has such.
    pub invalid_values: bool,
}

/// Checks a label selector.
pub fn label_selector(errs: &mut Errors, at: &Path<'_>, s: Option<View<'_>>, o: SelectorOptions) {
    let Some(s) = s else { return };
    labels(errs, &at.field("matchLabels"), s, "matchLabels");
    let exprs = at.field("matchExpressions");
    for (i, e) in s.items("matchExpressions").enumerate() {
        let at = exprs.index(i);
        let operator = e.str("operator");
        match operator {
            "In" | "NotIn" if e.len("values") == 0 => {
                errs.required(&at.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if e.len("values") > 0 => {
                errs.forbidden(
                    &at.field("values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errs.invalid(&at.field("operator"), Typed(operator), "not a valid selector operator"),
        }
        label_name(errs, &at.field("key"), e.str("key"));
        if !o.invalid_values {
            let values = at.field("values");
            for (j, v) in e.strs("values").enumerate() {
                errs.each(&values.index(j), v, names::label_value(v));
            }
        }
    }
}

/// Whether a selector has a value that is no label value.
pub fn has_invalid_value(s: Option<View<'_>>) -> bool {
    s.is_some_and(|s| {
        s.items("matchExpressions").any(|e| e.strs("values").any(|v| !names::label_value(v).is_empty()))
    })
}

/// Whether a label selector has no terms.
pub fn is_empty_selector(s: View<'_>) -> bool {
    s.len("matchLabels") == 0 && s.len("matchExpressions") == 0
}

/// Whether labels fulfil a selector.
pub fn selects(s: View<'_>, labels: Option<&api::Map>) -> bool {
    let get = |k: &str| labels.and_then(|m| m.get(k)).map(api::Node::as_str);
    s.texts("matchLabels").all(|(k, v)| get(k) == Some(v))
        && s.items("matchExpressions").all(|e| {
            let have = get(e.str("key"));
            let among = |v| e.strs("values").any(|x| x == v);
            match e.str("operator") {
                "In" => have.is_some_and(among),
                "NotIn" => !have.is_some_and(among),
                "Exists" => have.is_some(),
                _ => have.is_none(),
            }
        })
}

/// Checks `metav1.Condition`s.
pub fn conditions(errs: &mut Errors, at: &Path<'_>, of: View<'_>, name: &str) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, c) in of.items(name).enumerate() {
        let at = at.index(i);
        let ty = c.str("type");
        if seen.contains(&ty) {
            errs.duplicate(&at.field("type"), ty);
        } else {
            seen.insert(ty);
        }
        label_name(errs, &at.field("type"), ty);
        errs.one_of(&at.field("status"), c.str("status"), &["False", "True", "Unknown"]);
        if c.int("observedGeneration") < 0 {
            errs.invalid(
                &at.field("observedGeneration"),
                c.int("observedGeneration"),
                "must be greater than or equal to zero",
            );
        }
        if !matches!(c.get("lastTransitionTime"), Some(api::Node::Str(_))) {
            errs.required(&at.field("lastTransitionTime"), "");
        }
        let reason = c.str("reason");
        if reason.is_empty() {
            errs.required(&at.field("reason"), "");
        } else {
            let b = reason.as_bytes();
            let good = b[0].is_ascii_alphabetic()
                && b[b.len() - 1] != b','
                && b[b.len() - 1] != b':'
                && b.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':'));
            if !good {
                errs.invalid(
                    &at.field("reason"),
                    reason,
                    names::regex_error(
                        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
                        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
                        &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
                    ),
                );
            }
            if reason.len() > 1024 {
                errs.too_long(&at.field("reason"), 1024);
            }
        }
        if c.str("message").len() > 32 * 1024 {
            errs.too_long(&at.field("message"), 32 * 1024);
        }
    }
}
