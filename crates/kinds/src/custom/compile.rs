//! From the schema in a definition to a [`Structural`].

use api::codec::json;
use api::structural::{
    Additional, Bound, Builder, Checks, Kind, ListType, Part, PartId, Pattern, Rare, Rule, Structural,
    is_known_format,
};
use api::view::View;
use api::{Node, Text};

/// The structural schema of a `JSONSchemaProps`. The fields of every object are no properties of the root: of
/// `metadata` a schema may restrict the name, of the others nothing.
pub fn structural(schema: View<'_>) -> Structural {
    let mut builder = Builder::default();
    let metadata = schema.entries("properties").find(|(name, _)| *name == "metadata");
    let metadata = metadata.map(|(_, m)| add(&mut builder, schema.of(m)));
    let root = part(&mut builder, schema, true);
    builder.finish(root, metadata)
}

/// A value without a schema's types, as it stands in a definition.
fn value(node: &Node) -> Node {
    match node {
        Node::Raw(text) => json::decode_any(text.as_bytes()).unwrap_or(Node::Null),
        other => other.clone(),
    }
}

fn texts(of: View<'_>, name: &str) -> Vec<Text> {
    of.strs(name).map(Text::from).collect()
}

fn add(builder: &mut Builder, schema: View<'_>) -> PartId {
    let part = part(builder, schema, false);
    builder.add(part)
}

fn part(builder: &mut Builder, s: View<'_>, is_root: bool) -> Part {
    let mut properties = Vec::new();
    for (name, property) in s.entries("properties") {
        if is_root && matches!(name, "metadata" | "kind" | "apiVersion") {
            continue;
        }
        properties.push((Text::from(name), add(builder, s.of(property))));
    }
    let additional = match s.get("additionalProperties") {
        Some(Node::Bool(true)) => Additional::Any,
        Some(Node::Bool(false)) => Additional::Forbidden,
        Some(Node::Struct(_)) => Additional::Part(add(builder, s.st("additionalProperties"))),
        _ => Additional::None,
    };
    let items = s.opt("items").map(|items| add(builder, items));
    let kind =
        if s.bool("x-kubernetes-int-or-string") { Kind::IntOrString } else { Kind::named(s.str("type")) };
    let list = match s.str("x-kubernetes-list-type") {
        "set" => ListType::Set,
        "map" => ListType::Map,
        _ => ListType::Atomic,
    };
    let rare = rare(builder, s);
    Part {
        kind,
        nullable: s.bool("nullable"),
        keeps_unknown: s.bool("x-kubernetes-preserve-unknown-fields"),
        embedded: s.bool("x-kubernetes-embedded-resource"),
        atomic: s.str("x-kubernetes-map-type") == "atomic",
        list,
        additional,
        items,
        properties: properties.into(),
        rare: rare.map(Box::new),
    }
}

/// The facts that few parts have; `None` if this one has none of them.
fn rare(builder: &mut Builder, s: View<'_>) -> Option<Rare> {
    const NAMES: [&str; 25] = [
        "default",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-validations",
        "format",
        "pattern",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "uniqueItems",
        "enum",
        "required",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ];
    if !NAMES.iter().any(|name| s.has(name)) {
        return None;
    }
    let mut all = |name: &str| -> Vec<PartId> { s.items(name).map(|below| add(builder, below)).collect() };
    let (all_of, any_of, one_of) = (all("allOf"), all("anyOf"), all("oneOf"));
    let not = s.opt("not").map(|below| add(builder, below));
    let (format, format_text) = format(s);
    let bound = |name: &str, exclusive: &str| {
        let at = match s.get(name)? {
            Node::Int(i) => *i as f64,
            Node::Float(f) => *f,
            _ => return None,
        };
        Some(Bound { at, exclusive: s.bool(exclusive) })
    };
    let number = |name: &str| match s.get(name)? {
        Node::Int(i) => Some(*i as f64),
        Node::Float(f) => Some(*f),
        _ => None,
    };
    Some(Rare {
        default: s.get("default").map(value),
        keys: texts(s, "x-kubernetes-list-map-keys").into(),
        rules: s.items("x-kubernetes-validations").map(rule).collect(),
        checks: Checks {
            format,
            format_text,
            pattern: s.opt_str("pattern").filter(|p| !p.is_empty()).map(Pattern::new),
            min_length: s.opt_int("minLength"),
            max_length: s.opt_int("maxLength"),
            min_items: s.opt_int("minItems"),
            max_items: s.opt_int("maxItems"),
            min_properties: s.opt_int("minProperties"),
            max_properties: s.opt_int("maxProperties"),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            unique: s.bool("uniqueItems"),
            values: s.list("enum").iter().map(value).collect(),
            required: texts(s, "required"),
            all_of,
            any_of,
            one_of,
            not,
        },
    })
}

/// The format that is checked, without hyphens, and as it is written. Upstream drops formats that it does not know for
/// the type.
fn format(s: View<'_>) -> (Text, Text) {
    let format = s.str("format");
    match s.str("type") {
        // An integer or a string has no type; if it is a string, it has the format.
        "" | "string" => {
            let plain = format.replace('-', "");
            if is_known_format(&plain) { (plain.into(), format.into()) } else { Default::default() }
        }
        "integer" if matches!(format, "int32" | "int64") => (Text::default(), format.into()),
        "number" if matches!(format, "float" | "double") => (Text::default(), format.into()),
        _ => (Text::default(), Text::default()),
    }
}

fn rule(r: View<'_>) -> Rule {
    Rule {
        rule: r.str("rule").into(),
        message: r.str("message").into(),
        message_expression: r.str("messageExpression").into(),
        reason: r.str("reason").into(),
        field_path: r.str("fieldPath").into(),
        optional_old_self: r.opt_bool("optionalOldSelf"),
    }
}
