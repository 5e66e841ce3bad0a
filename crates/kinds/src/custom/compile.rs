//! From the schema in a definition to a [`Structural`].

use api::codec::json;
use api::structural::{
    Additional, Bound, Builder, Checks, Kind, ListType, Part, PartId, Pattern, Rare, Rule, Structural,
    is_known_format,
};
use api::view::View;
use api::{Map, Node, Text};

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
    // Most parts have two of some fifty fields: what is there is looked at once.
    let mut part = Part::default();
    let (mut entries, mut more, mut items) = (None, None, None);
    let (mut is_rare, mut int_or_string) = (false, false);
    let is_true = |node: &Node| node.as_bool() == Some(true);
    for (name, node) in s.fields() {
        match name {
            "type" => part.kind = Kind::named(node.as_str()),
            "properties" => entries = node.as_map(),
            "additionalProperties" => more = Some(node),
            "items" => items = node.as_struct(),
            "nullable" => part.nullable = is_true(node),
            "x-kubernetes-int-or-string" => int_or_string = is_true(node),
            "x-kubernetes-preserve-unknown-fields" => part.keeps_unknown = is_true(node),
            "x-kubernetes-embedded-resource" => part.embedded = is_true(node),
            _ => is_rare |= RARE.contains(&name),
        }
        match (name, node.as_str()) {
            ("x-kubernetes-list-type", "set") => part.list = ListType::Set,
            ("x-kubernetes-list-type", "map") => part.list = ListType::Map,
            ("x-kubernetes-map-type", kind) => part.atomic = kind == "atomic",
            _ => {}
        }
    }
    if int_or_string {
        part.kind = Kind::IntOrString;
    }
    let mut properties = Vec::with_capacity(entries.map_or(0, Map::len));
    for (name, property) in entries.into_iter().flat_map(Map::iter) {
        if is_root && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            continue;
        }
        properties.push((name.clone(), add(builder, s.of(property))));
    }
    part.properties = properties.into();
    part.additional = match more {
        Some(Node::Bool(true)) => Additional::Any,
        Some(Node::Bool(false)) => Additional::Forbidden,
        Some(Node::Struct(below)) => Additional::Part(add(builder, View::new(s.schema, below))),
        _ => Additional::None,
    };
    part.items = items.map(|items| add(builder, View::new(s.schema, items)));
    part.rare = is_rare.then(|| Box::new(rare(builder, s)));
    part
}

/// The fields that few parts have.
const RARE: [&str; 25] = [
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

/// The facts that few parts have.
fn rare(builder: &mut Builder, s: View<'_>) -> Rare {
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
    Rare {
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
    }
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
