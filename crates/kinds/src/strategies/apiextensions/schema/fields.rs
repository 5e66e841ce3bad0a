//! The fields of schemas, and walks through them.

use api::Node;
use api::structural::is_known_format;
use api::view::View;

pub(super) const EMBEDDED: &str = "x-kubernetes-embedded-resource";
pub(super) const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
pub(super) const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
pub(super) const LIST_TYPE: &str = "x-kubernetes-list-type";
pub(super) const LIST_KEYS: &str = "x-kubernetes-list-map-keys";
pub(super) const MAP_TYPE: &str = "x-kubernetes-map-type";
pub(super) const RULES: &str = "x-kubernetes-validations";
pub(super) const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
pub(super) const JUNCTORS: [&str; 3] = ["allOf", "oneOf", "anyOf"];

/// Appends the formats that are unknown and so not checked.
pub(in crate::strategies::apiextensions) fn unknown_formats<'a>(s: View<'a>, out: &mut Vec<&'a str>) {
    let format = s.str("format");
    let known = match s.str("type") {
        "" | "string" => is_known_format(&format.replace('-', "")),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if !format.is_empty() && !known {
        out.push(format);
    }
    below(s).for_each(|below| unknown_formats(below, out));
}

/// Whether a schema is that of a plain value, with nothing but words and bounds. Most are, and all rules but those of
/// types leave them alone.
pub(super) fn is_plain(s: View<'_>) -> bool {
    let mut has_type = false;
    let plain = s.fields().all(|(name, node)| match name {
        "type" => {
            has_type = true;
            matches!(node.as_str(), "boolean" | "integer" | "number" | "string")
        }
        "description" | "title" | "format" | "enum" | "nullable" | "minimum" | "maximum" | "minLength"
        | "maxLength" => true,
        _ => false,
    });
    plain && has_type
}

/// The schemas directly below a schema.
pub(super) fn below(s: View<'_>) -> impl Iterator<Item = View<'_>> {
    let s = (!is_plain(s)).then_some(s);
    s.into_iter().flat_map(parts)
}

fn parts(s: View<'_>) -> impl Iterator<Item = View<'_>> {
    let single = ["items", "not", "additionalProperties"].into_iter().filter_map(move |f| s.opt(f));
    let listed = JUNCTORS.into_iter().flat_map(move |f| s.items(f));
    single.chain(listed).chain(s.entries("properties").map(move |(_, p)| s.of(p)))
}

/// Whether something holds of a schema or of one below it.
pub(super) fn any(s: View<'_>, holds: &dyn Fn(View<'_>) -> bool) -> bool {
    holds(s) || below(s).any(|below| any(below, holds))
}

/// Whether a schema uses what upstream allows in structural schemas only: defaults and its own extensions.
pub(in crate::strategies::apiextensions) fn needs_structure(s: View<'_>) -> bool {
    any(s, &|s| {
        s.fields().any(|(name, node)| match name {
            "default" | PRESERVE | LIST_TYPE => true,
            EMBEDDED | INT_OR_STRING => node.as_bool() == Some(true),
            LIST_KEYS | RULES => !node.as_list().is_empty(),
            _ => false,
        })
    })
}

/// Whether a schema has a default or a rule.
pub(super) fn has_default_or_rule(s: View<'_>) -> bool {
    any(s, &|s| s.fields().any(|(name, _)| matches!(name, "default" | RULES)))
}

/// Whether a schema has a default.
pub(in crate::strategies::apiextensions) fn has_default(s: View<'_>) -> bool {
    any(s, &|s| s.has("default"))
}

/// Whether there is a structural form of a schema at all: the walk reports the parts that it has no place for.
pub(super) fn is_convertible(s: View<'_>) -> bool {
    !any(s, &|s| {
        s.fields().any(|(name, node)| match name {
            "id" | "$schema" | "$ref" => !node.as_str().is_empty(),
            "patternProperties" | "dependencies" | "additionalItems" | "definitions" => true,
            PRESERVE => node.as_bool() == Some(false),
            "items" => matches!(node, Node::List(_)),
            _ => false,
        })
    })
}
