//! Version v1beta1 of dynamic resources, where requests are flat and devices are not; v1beta2 is like v1.

use api::{Node, Schema, Struct, StructId};

use super::renamed;

const REQUEST: &str = "DeviceRequest";
const DEVICE: &str = "Device";

/// The part of a struct that one version holds in a struct of its own: the struct's name, the field that
/// holds it, and the fields that stay outside.
fn wrapped(version: &str, name: &str) -> Option<(&'static str, &'static [&'static str])> {
    match (version, name) {
        ("v1" | "v1beta2", REQUEST) => Some(("exactly", &["name", "firstAvailable"])),
        ("v1beta1", DEVICE) => Some(("basic", &["name"])),
        _ => None,
    }
}

fn parts(schema: &Schema, id: StructId) -> Option<(&str, &str)> {
    schema.st(id).name.strip_prefix("io.k8s.api.resource.")?.split_once('.')
}

/// A struct of another version, if it is one of those that are composed differently there.
pub(super) fn convert(schema: &Schema, from: &Struct, to: StructId) -> Option<Struct> {
    let ((old, name), (new, other)) = (parts(schema, from.id)?, parts(schema, to)?);
    if name != other || old == new {
        return None;
    }
    match (wrapped(old, name), wrapped(new, name)) {
        (None, Some((field, outside))) => Some(wrap(schema, from, to, field, outside)),
        (Some((field, _)), None) => Some(unwrap(schema, from, to, field)),
        _ => None,
    }
}

fn wrap(schema: &Schema, from: &Struct, to: StructId, field: &str, outside: &[&str]) -> Struct {
    let same = |name: &str| name.to_owned();
    let mut out =
        renamed(schema, from, to, &|name| if outside.contains(&name) { name.into() } else { String::new() });
    let Some(no) = schema.st(to).field(field) else { return out };
    let api::Type::Struct(inner) = schema.ty(schema.st(to).at(no).ty) else { return out };
    let mut part = from.clone();
    part.retain(|no, _| !outside.contains(&schema.st(from.id).at(no).json.as_str()));
    // Upstream's v1beta1 devices always have that struct.
    if !part.is_empty() || schema.st(to).at(no).json == "basic" {
        out.set(no, renamed(schema, &part, *inner, &same));
    }
    out
}

fn unwrap(schema: &Schema, from: &Struct, to: StructId, field: &str) -> Struct {
    let same = |name: &str| name.to_owned();
    let mut out = renamed(schema, from, to, &same);
    let inner = schema.st(from.id).field(field).and_then(|no| from.get(no)).and_then(Node::as_struct);
    if let Some(inner) = inner {
        let inner = renamed(schema, inner, to, &same);
        for (no, node) in inner.iter() {
            out.set(no, node.clone());
        }
        for (no, node) in inner.noted() {
            out.note_empty(no, node.clone());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::schema::Gvk;

    #[test]
    fn there_and_back() {
        let schema = Schema::builtin();
        let check = |version: &str, kind: &str, other: &str, v1: &str| {
            let gvk = |version: &str| Gvk::new("resource.k8s.io", version, kind);
            let read = |version: &str, text: &str| {
                let root = schema.kind(&gvk(version)).unwrap();
                api::codec::json::decode(schema, root, text.as_bytes()).unwrap().tree
            };
            let (old, new) = (read(version, other), read("v1", v1));
            let (from, to) = (gvk(version), gvk("v1"));
            assert_eq!(super::super::same_fields(schema, old.clone(), &from, &to).unwrap(), new, "{other}");
            assert_eq!(super::super::same_fields(schema, new, &to, &from).unwrap(), old, "{v1}");
        };
        let request =
            r#"{"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"c","count":2}}]}}}"#;
        check("v1beta2", "ResourceClaim", request, request);
        check(
            "v1beta1",
            "ResourceClaim",
            r#"{"spec":{"devices":{"requests":[{"name":"a","deviceClassName":"c","count":2,"selectors":[{"cel":{"expression":"x"}}]},{"name":"b","firstAvailable":[{"name":"s","deviceClassName":"d"}]}]}}}"#,
            r#"{"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"c","count":2,"selectors":[{"cel":{"expression":"x"}}]}},{"name":"b","firstAvailable":[{"name":"s","deviceClassName":"d"}]}]}}}"#,
        );
        check(
            "v1beta1",
            "ResourceSlice",
            r#"{"spec":{"driver":"d","nodeName":"n","devices":[{"name":"a","basic":{"attributes":{"k":{"int":1}},"capacity":{"m":{"value":"1Gi"}}}},{"name":"b","basic":{}}]}}"#,
            r#"{"spec":{"driver":"d","nodeName":"n","devices":[{"name":"a","attributes":{"k":{"int":1}},"capacity":{"m":{"value":"1Gi"}}},{"name":"b"}]}}"#,
        );
    }
}
