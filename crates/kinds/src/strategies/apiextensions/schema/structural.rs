//! A schema must be structural: upstream's `ValidateStructural`.

use api::field::{Errors, Path};
use api::view::View;

use super::fields::{
    EMBEDDED, INT_OR_STRING, JUNCTORS, LIST_KEYS, LIST_TYPE, MAP_TYPE, PRESERVE, RULES, is_convertible,
    is_plain,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Reports why a schema is not structural; the errors come in the order of their texts.
pub(crate) fn check(errs: &mut Errors, at: &Path<'_>, s: View<'_>) {
    let mut found = Errors::new();
    structural(&mut found, at, s, Level::Root);
    found.0.sort_by_cached_key(ToString::to_string);
    errs.append(found);
}

/// Whether a schema is structural.
pub(crate) fn is_structural(s: View<'_>) -> bool {
    if !is_convertible(s) {
        return false;
    }
    let mut errs = Errors::new();
    check(&mut errs, &Path::root(""), s);
    errs.is_empty()
}

fn structural(errs: &mut Errors, at: &Path<'_>, s: View<'_>, level: Level) {
    if level != Level::Root && is_plain(s) {
        return;
    }
    let ty = s.str("type");
    let type_at = at.field("type");
    let embedded = s.bool(EMBEDDED);
    if ty == "array" && !s.has("items") {
        errs.required(&at.field("items"), "must be specified");
    }
    if let Some(items) = s.opt("items") {
        structural(errs, &at.field("items"), items, Level::Item);
    }
    let properties_at = at.field("properties");
    for (name, p) in s.entries("properties") {
        structural(errs, &properties_at.key(name), s.of(p), Level::Field);
    }
    let more_at = at.field("additionalProperties");
    if s.has("additionalProperties") {
        if level == Level::Root {
            errs.forbidden(&more_at, "must not be used at the root");
        }
        if let Some(more) = s.opt("additionalProperties") {
            structural(errs, &more_at, more, Level::Field);
        }
    }
    if s.bool(INT_OR_STRING) {
        for f in [PRESERVE, EMBEDDED] {
            if s.bool(f) {
                errs.invalid(&at.field(f), true, format!("must be false if {INT_OR_STRING} is true"));
            }
        }
    }
    values(errs, at, s, (true, true));
    if embedded && ty != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        if ty.is_empty() {
            errs.required(&type_at, why);
        } else {
            errs.invalid(&type_at, ty, why);
        }
    } else if ty.is_empty() && !s.bool(INT_OR_STRING) && !s.bool(PRESERVE) {
        errs.required(
            &type_at,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        );
    }
    if embedded && s.has("additionalProperties") {
        errs.forbidden(&more_at, "must not be used if x-kubernetes-embedded-resource is set");
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errs.invalid(&type_at, ty, "must be object at the root");
    }
    let is_resource = level == Level::Root || embedded;
    let property = |name: &str| s.map("properties").and_then(|p| p.get(name)).map(|p| s.of(p));
    if is_resource {
        for name in ["kind", "apiVersion"] {
            if let Some(p) = property(name).filter(|p| p.str("type") != "string") {
                errs.invalid(&properties_at.key(name).field("type"), p.str("type"), "must be string");
            }
        }
    }
    if let Some(m) = property("metadata") {
        metadata(errs, &properties_at.key("metadata"), m, is_resource, level);
    }
    if embedded && !s.bool(PRESERVE) && s.len("properties") == 0 {
        errs.required(
            &properties_at,
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        );
    }
}

fn metadata(errs: &mut Errors, at: &Path<'_>, m: View<'_>, is_resource: bool, level: Level) {
    if is_resource && m.str("type") != "object" {
        errs.invalid(&at.field("type"), m.str("type"), "must be object");
    }
    let fields = m.fields().filter(|(name, _)| !matches!(*name, "type" | "default" | "properties")).count();
    let names_only = m.entries("properties").all(|(k, _)| matches!(k, "name" | "generateName"));
    if level == Level::Root && (fields > 0 || !names_only) {
        errs.forbidden(
            at,
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        );
    }
}

/// Whether `anyOf` says "an integer or a string" in the one form in which it may name types.
fn is_int_or_string(s: View<'_>) -> bool {
    let only = |s: View<'_>, ty: &str| s.str("type") == ty && s.raw().is_some_and(|r| r.iter().count() == 1);
    let mut all = s.items("anyOf");
    s.len("anyOf") == 2
        && all.next().is_some_and(|s| only(s, "integer"))
        && all.next().is_some_and(|s| only(s, "string"))
}

/// Checks `allOf`, `anyOf`, `oneOf` and `not`, which only narrow values and may not tell the structure, and the pattern.
/// An integer or a string may be said by `anyOf` here, or in the first of `allOf`.
fn values(errs: &mut Errors, at: &Path<'_>, s: View<'_>, (in_any, in_first): (bool, bool)) {
    for f in JUNCTORS {
        if in_any && f == "anyOf" && is_int_or_string(s) {
            continue;
        }
        let at = at.field(f);
        for (i, n) in s.items(f).enumerate() {
            nested(errs, &at.index(i), n, in_first && f == "allOf" && i == 0);
        }
    }
    if let Some(n) = s.opt("not") {
        nested(errs, &at.field("not"), n, false);
    }
    let pattern = s.str("pattern");
    if !pattern.is_empty()
        && let Err(why) = api::re2::check(pattern)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errs.invalid(&at.field("pattern"), pattern, why);
    }
}

fn nested(errs: &mut Errors, at: &Path<'_>, n: View<'_>, in_any: bool) {
    values(errs, at, n, (in_any, false));
    if let Some(items) = n.opt("items") {
        nested(errs, &at.field("items"), items, false);
    }
    let properties_at = at.field("properties");
    for (name, p) in n.entries("properties") {
        nested(errs, &properties_at.key(name), n.of(p), false);
    }
    for f in ["type", "title", "description"] {
        if !n.str(f).is_empty() {
            errs.forbidden(&at.field(f), "must be empty to be structural");
        }
    }
    for f in ["additionalProperties", "default", LIST_TYPE, MAP_TYPE] {
        if n.has(f) {
            errs.forbidden(&at.field(f), "must be undefined to be structural");
        }
    }
    for f in ["nullable", PRESERVE, EMBEDDED, INT_OR_STRING] {
        if n.bool(f) {
            errs.forbidden(&at.field(f), "must be false to be structural");
        }
    }
    for f in [LIST_KEYS, RULES] {
        if n.len(f) > 0 {
            errs.forbidden(&at.field(f), "must be empty to be structural");
        }
    }
    if n.map("properties").is_some_and(|p| p.get("metadata").is_some()) {
        errs.forbidden(&properties_at.key("metadata"), "must not be specified in a nested context");
    }
}
