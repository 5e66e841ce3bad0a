//! An object that somebody converted, with the metadata that it had: only labels and annotations may change (upstream:
//! `apiextensions-apiserver/pkg/apiserver/conversion`).

use api::field::{Errors, Path};
use api::names;
use api::schema::Gvk;
use api::{Map, Node, Text};
use kinds::validation::meta::ANNOTATIONS_LIMIT;

/// A fault of a converted object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bad {
    /// Its version or kind.
    Kind(String),
    /// It is no object, or another one.
    Object(String),
    /// Its metadata.
    Metadata(String),
}

impl Bad {
    /// The end of upstream's error about the object at a place of an answer.
    pub(super) fn text(&self, index: usize, is_list: bool) -> String {
        match self {
            Self::Kind(why) | Self::Object(why) if is_list => {
                format!("returned invalid converted object at index {index}: {why}")
            }
            Self::Metadata(why) if is_list => {
                format!("returned invalid metadata in object at index {index}: {why}")
            }
            Self::Kind(why) => format!("returned invalid object at index 0: {why}"),
            Self::Object(why) => format!("returned invalid object: {why}"),
            Self::Metadata(why) => format!("returned invalid metadata: {why}"),
        }
    }
}

fn text<'a>(map: Option<&'a Map>, key: &str) -> &'a str {
    map.and_then(|m| m.get(key)).map_or("", Node::as_str)
}

/// The converted object with the original's metadata, but for labels and annotations.
pub(super) fn restored(original: &Node, converted: Node, to: &Gvk) -> Result<Node, Bad> {
    let Node::Map(mut converted) = converted else {
        return Err(Bad::Object("Object 'Kind' is missing in 'null'".into()));
    };
    let before = original.as_map();
    let (version, kind) = (text(Some(&converted), "apiVersion"), text(Some(&converted), "kind"));
    if kind.is_empty() {
        let mut shown = String::new();
        api::go::write_json(&Node::Map(converted), &mut shown);
        return Err(Bad::Object(format!("Object 'Kind' is missing in '{shown}'")));
    }
    if version != to.api_version() {
        let why = format!("invalid groupVersion (expected {}, received {version})", to.api_version());
        return Err(Bad::Kind(why));
    }
    if kind != to.kind {
        return Err(Bad::Kind(format!("invalid kind (expected {}, received {kind})", to.kind)));
    }
    let (old, new) = (metadata(before), metadata(Some(&converted)));
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (old, new) = (text(old, field), text(new, field));
        if old != new {
            return Err(Bad::Object(format!("must have the same {name}: {old} != {new}")));
        }
    }
    let answered = match converted.remove("metadata") {
        Some(Node::Map(answered)) => answered,
        Some(other) => {
            let why = format!("invalid metadata of type {} in converted object", go_type(&other));
            return Err(Bad::Metadata(why));
        }
        None => return Err(Bad::Metadata("missing metadata in converted object".into())),
    };
    let mut kept = old.cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match answered.get(field) {
            None | Some(Node::Null) => {
                kept.remove(field);
            }
            Some(Node::Map(map)) => {
                let before = kept.get(field).and_then(Node::as_map);
                checked(field, map, before).map_err(Bad::Metadata)?;
                kept.insert(field, map.clone());
            }
            Some(other) => {
                let why = format!("invalid metadata.{field} of type {} in converted object", go_type(other));
                return Err(Bad::Metadata(why));
            }
        }
    }
    converted.insert("metadata", kept);
    Ok(Node::Map(converted))
}

fn metadata(object: Option<&Map>) -> Option<&Map> {
    object?.get("metadata")?.as_map()
}

/// Checks labels or annotations; those that are as before may be wrong.
fn checked(field: &str, new: &Map, old: Option<&Map>) -> Result<(), String> {
    for (key, value) in new.iter() {
        if !matches!(value, Node::Str(_)) {
            let kind = go_type(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {kind} in converted object"
            ));
        }
    }
    if old.is_some_and(|old| old == new) {
        return Ok(());
    }
    let texts: Vec<(&Text, &str)> = new.iter().map(|(k, v)| (k, v.as_str())).collect();
    let mut errs = Errors::new();
    let metadata = Path::root("metadata");
    if field == "labels" {
        let at = metadata.field("labels");
        for (key, value) in texts {
            errs.each(&at, key, names::qualified_name(key));
            errs.each(&at, value, names::label_value(value));
        }
    } else {
        // Upstream's path.
        let at = metadata.field("annotation");
        for (key, _) in &texts {
            errs.each(&at, key, names::qualified_name(&key.to_lowercase()));
        }
        let size: usize = texts.iter().map(|(key, value)| key.len() + value.len()).sum();
        if size > ANNOTATIONS_LIMIT {
            errs.too_long(&at, ANNOTATIONS_LIMIT);
        }
    }
    let errs: Vec<String> = errs.0.iter().map(ToString::to_string).collect();
    match errs.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

/// The type that Go's decoder gives to a value.
fn go_type(value: &Node) -> &'static str {
    match value {
        Node::Null => "<nil>",
        Node::Bool(_) => "bool",
        Node::Int(_) => "int64",
        Node::Str(_) => "string",
        Node::List(_) => "[]interface {}",
        Node::Map(_) => "map[string]interface {}",
        _ => "float64",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(value: &Value) -> Node {
        api::codec::json::decode_any(value.to_string().as_bytes()).unwrap()
    }

    fn check(original: &Value, converted: &Value, expected: Result<Value, &str>) {
        let to = Gvk::new("example.com", "v2", "Thing");
        let got = restored(&node(original), node(converted), &to).map_err(|bad| bad.text(3, true));
        let expected = expected.map(|value| node(&value)).map_err(str::to_owned);
        assert_eq!(got, expected);
    }

    fn thing(version: &str, metadata: Value) -> Value {
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": metadata})
    }

    /// Upstream's `TestRestoreObjectMeta` and `TestValidateConvertedObject`.
    #[test]
    fn metadata_stays() {
        let meta = |rest: Value| {
            let mut meta = json!({"name": "a", "namespace": "ns", "uid": "u"});
            meta.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            meta
        };
        let old = |rest: Value| thing("v1", meta(rest));
        let new = |rest: Value| thing("v2", meta(rest));
        check(&old(json!({})), &new(json!({})), Ok(new(json!({}))));
        check(
            &old(json!({"finalizers": ["x"], "generation": 2})),
            &new(json!({"finalizers": ["y"], "resourceVersion": "7"})),
            Ok(new(json!({"finalizers": ["x"], "generation": 2}))),
        );
        check(&old(json!({"labels": {"a": "b"}})), &new(json!({})), Ok(new(json!({}))));
        check(
            &old(json!({"labels": {"a": "b"}})),
            &new(json!({"labels": {"c": "d"}, "annotations": {"e": "f"}})),
            Ok(new(json!({"labels": {"c": "d"}, "annotations": {"e": "f"}}))),
        );
        let odd = json!({"labels": {"a": "-"}});
        check(&old(odd.clone()), &new(odd.clone()), Ok(new(odd)));
        check(
            &old(json!({})),
            &new(json!({"labels": {"a": 1}})),
            Err(
                "returned invalid metadata in object at index 3: metadata.labels[a] must be a string, but is int64 in converted object",
            ),
        );
        check(
            &old(json!({})),
            &new(json!({"annotations": "x"})),
            Err(
                "returned invalid metadata in object at index 3: invalid metadata.annotations of type string in converted object",
            ),
        );
        let mut bare = new(json!({}));
        bare["metadata"] = json!(null);
        check(
            &thing("v1", json!({})),
            &bare,
            Err(
                "returned invalid metadata in object at index 3: invalid metadata of type <nil> in converted object",
            ),
        );
        check(
            &old(json!({})),
            &thing("v2", json!({"name": "b"})),
            Err("returned invalid converted object at index 3: must have the same name: a != b"),
        );
        check(
            &old(json!({})),
            &thing("v2", json!({"name": "a", "namespace": "ns", "uid": "w"})),
            Err("returned invalid converted object at index 3: must have the same UID: u != w"),
        );
        check(
            &old(json!({})),
            &thing("v3", meta(json!({}))),
            Err(
                "returned invalid converted object at index 3: invalid groupVersion (expected example.com/v2, received example.com/v3)",
            ),
        );
        let mut other = new(json!({}));
        other["kind"] = json!("Other");
        check(
            &old(json!({})),
            &other,
            Err(
                "returned invalid converted object at index 3: invalid kind (expected Thing, received Other)",
            ),
        );
    }

    #[test]
    fn bad_labels() {
        let to = Gvk::new("example.com", "v2", "Thing");
        let new = thing("v2", json!({"labels": {"a": "-"}}));
        let why = restored(&node(&thing("v1", json!({}))), node(&new), &to).unwrap_err().text(0, false);
        assert!(
            why.starts_with("returned invalid metadata: metadata.labels: Invalid value: \"-\": "),
            "{why}"
        );
    }
}
