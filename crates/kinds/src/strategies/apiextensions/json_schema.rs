//! The schema of a custom resource: it must be structural. Whether expressions compile and defaults fit is not checked
//! here.

use std::collections::HashSet;

use api::Node;

use api::field::{Errors, Path};
use api::view::View;

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_KEYS: &str = "x-kubernetes-list-map-keys";
const MAP_TYPE: &str = "x-kubernetes-map-type";
const RULES: &str = "x-kubernetes-validations";
const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const JUNCTORS: [&str; 3] = ["allOf", "oneOf", "anyOf"];

/// Formats of strings that are checked, without hyphens.
const FORMATS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Appends the formats that are unknown and so not checked.
pub(super) fn unknown_formats<'a>(s: View<'a>, out: &mut Vec<&'a str>) {
    let format = s.str("format");
    let known = match s.str("type") {
        "" | "string" => FORMATS.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if !format.is_empty() && !known {
        out.push(format);
    }
    for f in ["items", "not", "additionalProperties"] {
        if let Some(below) = s.opt(f) {
            unknown_formats(below, out);
        }
    }
    for f in JUNCTORS {
        s.items(f).for_each(|below| unknown_formats(below, out));
    }
    s.entries("properties").for_each(|(_, p)| unknown_formats(s.of(p), out));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks a version's schema; `status` tells whether the version has that subresource.
pub(super) fn check(errs: &mut Errors, at: &Path<'_>, s: View<'_>, status: bool) {
    let ty = s.str("type");
    if status && !ty.is_empty() && ty != "object" {
        errs.invalid(
            &at.field("type"),
            ty,
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
        );
    }
    if s.bool("nullable") {
        errs.forbidden(&at.field("nullable"), "nullable cannot be true at the root");
    }
    let mut found = Errors::new();
    structural(&mut found, at, s, Level::Root);
    found.0.sort_by_cached_key(ToString::to_string);
    errs.append(found);
    supported(errs, at, s);
}

fn structural(errs: &mut Errors, at: &Path<'_>, s: View<'_>, level: Level) {
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
    values(errs, at, s, s.bool(INT_OR_STRING));
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
    let fields = |s: View<'_>| {
        s.raw().map_or(0, |r| {
            r.iter()
                .filter(|(no, _)| {
                    !matches!(s.schema.st(r.id).at(*no).json.as_str(), "type" | "default" | "properties")
                })
                .count()
        })
    };
    let names_only = m.entries("properties").all(|(k, _)| matches!(k, "name" | "generateName"));
    if level == Level::Root && (fields(m) > 0 || !names_only) {
        errs.forbidden(
            at,
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        );
    }
}

/// Checks `allOf`, `anyOf`, `oneOf` and `not`, which only narrow values and may not tell the structure.
fn values(errs: &mut Errors, at: &Path<'_>, s: View<'_>, int_or_string: bool) {
    for f in JUNCTORS {
        if int_or_string && f == "anyOf" {
            continue;
        }
        let at = at.field(f);
        for (i, n) in s.items(f).enumerate() {
            if !(int_or_string && f == "allOf" && i == 0) {
                nested(errs, &at.index(i), n);
            }
        }
    }
    if let Some(n) = s.opt("not") {
        nested(errs, &at.field("not"), n);
    }
}

fn nested(errs: &mut Errors, at: &Path<'_>, n: View<'_>) {
    values(errs, at, n, false);
    if let Some(items) = n.opt("items") {
        nested(errs, &at.field("items"), items);
    }
    let properties_at = at.field("properties");
    for (name, p) in n.entries("properties") {
        nested(errs, &properties_at.key(name), n.of(p));
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

/// Reports the parts of OpenAPI that are not supported, and checks the needs of extensions.
fn supported(errs: &mut Errors, at: &Path<'_>, s: View<'_>) {
    let ty = s.str("type");
    if !ty.is_empty() {
        errs.one_of(&at.field("type"), ty, TYPES);
    }
    for f in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if s.has(f) && (f != "id" || !s.str(f).is_empty()) {
            errs.forbidden(&at.field(f), format!("{f} is not supported"));
        }
    }
    if ty == "null" {
        errs.forbidden(&at.field("type"), "type cannot be set to null, use nullable as an alternative");
    }
    if matches!(s.get("items"), Some(Node::List(l)) if !l.is_empty()) {
        errs.forbidden(&at.field("items"), "items must be a schema object and not an array");
    }
    if s.bool("uniqueItems") {
        errs.forbidden(
            &at.field("uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        );
    }
    let more = s.get("additionalProperties");
    if s.len("properties") > 0 && more.is_some_and(|m| m.as_bool() != Some(true)) {
        errs.forbidden(
            &at.field("additionalProperties"),
            "additionalProperties and properties are mutual exclusive",
        );
    }
    if let Some(more) = s.opt("additionalProperties") {
        supported(errs, &at.field("additionalProperties"), more);
    }
    let properties_at = at.field("properties");
    for (name, p) in s.entries("properties") {
        supported(errs, &properties_at.key(name), s.of(p));
    }
    if let Some(n) = s.opt("not") {
        supported(errs, &at.field("not"), n);
    }
    for f in JUNCTORS {
        let at = at.field(f);
        for (i, n) in s.items(f).enumerate() {
            supported(errs, &at.index(i), n);
        }
    }
    if let Some(items) = s.opt("items") {
        supported(errs, &at.field("items"), items);
    }
    if s.opt_bool(PRESERVE) == Some(false) {
        errs.invalid(&at.field(PRESERVE), false, "must be true or undefined");
    }
    needs_type(errs, at, s, MAP_TYPE, "object");
    if let Some(m) = s.opt_str(MAP_TYPE).filter(|m| !matches!(*m, "atomic" | "granular")) {
        errs.not_supported(&at.field(MAP_TYPE), m, &["atomic", "granular"]);
    }
    list(errs, at, s);
    rules(errs, at, s);
}

fn needs_type(errs: &mut Errors, at: &Path<'_>, s: View<'_>, extension: &str, wanted: &str) {
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

fn list(errs: &mut Errors, at: &Path<'_>, s: View<'_>) {
    needs_type(errs, at, s, LIST_TYPE, "array");
    let kind = s.opt_str(LIST_TYPE);
    let items = s.opt("items");
    let items_at = at.field("items");
    if let (Some("set"), Some(items), "array") = (kind, items, s.str("type")) {
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
    for k in keys {
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
    let Some(items) = items else { return };
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

fn rules(errs: &mut Errors, at: &Path<'_>, s: View<'_>) {
    const REASONS: &[&str] =
        &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let breaks = |t: &str| t.contains(['\n', '\r']);
    let blank = |t: &str| !t.is_empty() && t.trim().is_empty();
    let at = at.field(RULES);
    for (i, r) in s.items(RULES).enumerate() {
        let at = at.index(i);
        let (rule, message) = (r.str("rule").trim(), r.str("message"));
        let message_at = at.field("message");
        if rule.is_empty() {
            errs.required(&at.field("rule"), "rule is not specified");
        } else if blank(message) {
            errs.invalid(&message_at, message, "must be non-empty if specified");
        } else if breaks(message.trim()) {
            errs.invalid(&message_at, message, "must not contain line breaks");
        } else if breaks(rule) && message.is_empty() {
            errs.required(&message_at, "message must be specified if rule contains line breaks");
        }
        if blank(r.str("messageExpression")) {
            errs.required(&at.field("messageExpression"), "messageExpression must be non-empty if specified");
        }
        if let Some(reason) = r.opt_str("reason") {
            errs.one_of(&at.field("reason"), reason, REASONS);
        }
        let path = r.str("fieldPath");
        if blank(path) {
            errs.invalid(&at.field("fieldPath"), path, "must be non-empty if specified");
        }
        if breaks(path) {
            errs.invalid(&at.field("fieldPath"), path, "must not contain line breaks");
        }
    }
}
