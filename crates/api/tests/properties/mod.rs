//! Properties that hold for any input. The fuzz targets in `fuzz/` run these, too.

use ferrokube_api::codec::{json, proto};
use ferrokube_api::depth::is_bounded;
use ferrokube_api::managed::{self, Taken, Writer};
use ferrokube_api::page::Start;
use ferrokube_api::patch::{self, JsonPatch};
use ferrokube_api::selector::fields;
use ferrokube_api::selector::labels::Selector;
use ferrokube_api::selector::marks::{Marks, Wanted};
use ferrokube_api::{Gvk, Map, Node, Schema, Struct, StructId, Text, yaml};

/// A property, and the name of its seeds and of its fuzz target.
pub type Property = (&'static str, fn(&[u8]));

/// All properties.
pub const ALL: [Property; 11] = [
    ("json", json_bodies),
    ("yaml", yaml_bodies),
    ("protobuf", protobuf_bodies),
    ("json_patch", json_patches),
    ("merge_patch", merge_patches),
    ("strategic_patch", strategic_patches),
    ("patch_depth", patches_in_depth),
    ("apply", applies),
    ("label_selector", label_selectors),
    ("field_selector", field_selectors),
    ("continue_token", continue_tokens),
];

fn root(schema: &Schema, body: &Node) -> Option<(Gvk, StructId)> {
    let map = body.as_map()?;
    let (group, version) = map.str("apiVersion").split_once('/').unwrap_or(("", map.str("apiVersion")));
    let kind = Gvk::new(group, version, map.str("kind"));
    let root = schema.kind(&kind)?;
    Some((kind, root))
}

/// A value as it is after its first way through JSON, where a number without a fraction becomes an integer;
/// none if it changes once more.
fn settled(node: &Node) -> Option<Node> {
    let written = |node: &Node| {
        let mut text = Vec::new();
        json::encode_any(node, &mut text);
        text
    };
    let once = json::decode_any(&written(node)).ok()?;
    (json::decode_any(&written(&once)).as_ref() == Ok(&once)).then_some(once)
}

/// An object that was read is written such that it reads the same, as JSON and as protobuf.
pub fn json_bodies(data: &[u8]) {
    let schema = Schema::builtin();
    let Ok(any) = json::decode_any(data) else { return };
    assert!(settled(&any).is_some(), "without a schema");
    let Some((_, root)) = root(schema, &any) else { return };
    let _ = json::root_from_any(schema, root, any);
    let Ok(body) = json::decode(schema, root, data) else { return };
    let mut text = Vec::new();
    json::encode(schema, &body.tree, &mut text);
    let again = json::decode(schema, root, &text).map(|d| (d.tree, d.strict));
    assert_eq!(again, Ok((body.tree.clone(), Vec::new())), "as JSON");
    let message = proto::encode_message(schema, &body.tree);
    let again = proto::decode_message(schema, root, &message);
    assert_eq!(again.map(|tree| proto::encode_message(schema, &tree)), Ok(message), "as protobuf");
}

/// An object that was read is written such that it reads the same.
pub fn yaml_bodies(data: &[u8]) {
    let Ok(node @ Node::Map(_)) = yaml::parse(data) else { return };
    let Some(node) = settled(&node) else { panic!("not JSON: {node:?}") };
    let written = yaml::emit(&node);
    assert_eq!(yaml::parse(written.as_ref()).as_ref(), Ok(&node), "{written:?}");
}

/// An object that was read is written such that it reads the same. The first two bytes choose its kind.
pub fn protobuf_bodies(data: &[u8]) {
    let schema = Schema::builtin();
    let _ = proto::open(data);
    let Some((choice, message)) = data.split_first_chunk::<2>() else { return };
    let mut kinds: Vec<_> = schema.kinds().collect();
    kinds.sort_by_key(|(kind, _)| (kind.group.clone(), kind.version.clone(), kind.kind.clone()));
    let (_, root) = kinds[usize::from(u16::from_le_bytes(*choice)) % kinds.len()];
    let Ok(tree) = proto::decode_message(schema, root, message) else { return };
    let written = proto::encode_message(schema, &tree);
    let again = proto::decode_message(schema, root, &written);
    assert_eq!(again.map(|tree| proto::encode_message(schema, &tree)), Ok(written));
    let mut text = Vec::new();
    json::encode(schema, &tree, &mut text);
    // A byte sequence that is no text does not survive JSON, but it must not break it.
    assert!(json::decode_any(&text).is_ok(), "{}", String::from_utf8_lossy(&text));
}

/// An object and a patch: a list of two.
fn both(data: &[u8]) -> Option<(Node, Node)> {
    let Ok(Node::List(list)) = json::decode_any(data) else { return None };
    <[Node; 2]>::try_from(list).ok().map(Into::into)
}

/// No patch makes more than a few times the size of both.
pub fn json_patches(data: &[u8]) {
    let Some((object, patch)) = both(data) else { return };
    let Ok(patch) = JsonPatch::from_node(patch) else { return };
    if let Ok(patched) = patch.apply(object) {
        let mut text = Vec::new();
        json::encode_any(&patched, &mut text);
        assert!(text.len() <= 8 * data.len() + (4 << 20), "{} bytes", text.len());
    }
}

/// To merge a patch twice is the same as to merge it once.
pub fn merge_patches(data: &[u8]) {
    let Some((object, patch)) = both(data) else { return };
    let once = patch::merge(object, patch.clone());
    assert_eq!(patch::merge(once.clone(), patch), once);
}

/// The result is an object or a refusal.
pub fn strategic_patches(data: &[u8]) {
    let schema = Schema::builtin();
    let Some((object, patch)) = both(data) else { return };
    let Some((_, root)) = root(schema, &object) else { return };
    if let Ok(patched) = patch::strategic(schema, root, object, patch) {
        let _ = json::root_from_any(schema, root, patched);
    }
}

/// Expands a short form for deep values: `"*7"` is seven lists in one another, and so many steps in a pointer.
fn grown(node: Node) -> Node {
    let count = |text: &str| text.strip_prefix('*')?.parse::<u16>().ok().map(|n| usize::from(n) % 300);
    match node {
        Node::Str(text) => match count(&text) {
            Some(n) => (0..n).fold(Node::Int(0), |inside, _| Node::List(vec![inside])),
            None if text.starts_with('/') => {
                let tokens =
                    text.split('/').map(|t| count(t).map_or(t.to_owned(), |n| vec!["0"; n].join("/")));
                Node::Str(tokens.collect::<Vec<_>>().join("/").into())
            }
            None => Node::Str(text),
        },
        Node::List(list) => Node::List(list.into_iter().map(grown).collect()),
        Node::Map(map) => {
            Node::Map(Map::from_entries(map.into_entries().into_iter().map(|(k, v)| (k, grown(v))).collect()))
        }
        other => other,
    }
}

/// No patch of any kind makes something deeper than a body may be, and all code works on the result.
pub fn patches_in_depth(data: &[u8]) {
    let Some((object, patch)) = both(data) else { return };
    let (object, patch) = (grown(object), grown(patch));
    if !is_bounded(&object) || !is_bounded(&patch) {
        return;
    }
    let schema = Schema::builtin();
    let mut all = vec![patch::merge(object.clone(), patch.clone())];
    if let Some((_, root)) = root(schema, &object) {
        all.extend(patch::strategic(schema, root, object.clone(), patch.clone()));
    }
    all.extend(JsonPatch::from_node(patch).and_then(|p| p.apply(object)));
    for patched in all {
        assert!(is_bounded(&patched), "too deep");
        let mut text = Vec::new();
        json::encode_any(&patched, &mut text);
        assert!(json::decode_any(&text).is_ok(), "it is no body");
        if let Some((_, root)) = root(schema, &patched) {
            let _ = json::root_from_patched(schema, root, patched);
        }
    }
}

/// Whether every value is read from the object as it was written. Numbers that do not fit a field become something else
/// on their way into it, and an empty text is absent afterwards, which makes another key in a list; upstream does the
/// same, and its validation then refuses the object.
fn stays(node: &Node) -> bool {
    match node {
        Node::Int(i) => i32::try_from(*i).is_ok(),
        Node::Float(_) => false,
        Node::Str(text) => !text.is_empty(),
        Node::List(list) => list.iter().all(stays),
        Node::Map(map) => map.iter().all(|(_, v)| stays(v)),
        _ => true,
    }
}

/// Whether somebody manages fields of an object. An object that nobody manages counts as made before the first apply.
fn is_managed(schema: &Schema, object: &Struct) -> bool {
    let field = |of: &Struct, name: &str| of.get(schema.st(of.id).field(name)?).cloned();
    matches!(field(object, "metadata"), Some(Node::Struct(meta)) if field(&meta, "managedFields").is_some())
}

/// To apply the same configuration once more changes nothing.
pub fn applies(data: &[u8]) {
    let schema = Schema::builtin();
    let Some((live, config)) = both(data) else { return };
    let Some((kind, root)) = root(schema, &live) else { return };
    let stays = stays(&config);
    let Ok(live) = json::root_from_any(schema, root, live) else { return };
    let version = kind.api_version();
    let writer = Writer {
        schema,
        api_version: &version,
        subresource: "",
        manager: "fuzz",
        now: "2026-01-01T00:00:00Z",
        taken: Taken::All,
        versions: None,
    };
    let _ = managed::validate_entries(schema, &live.tree);
    let _ = managed::of(schema, &live.tree);
    let Ok(once) = writer.apply(&kind, root, Some(&live.tree), config.clone(), true) else { return };
    let again = writer.apply(&kind, root, Some(&once.object), config, true);
    if !stays || !is_managed(schema, &once.object) {
        return;
    }
    let Ok(again) = again else { panic!("it does not apply to what came of it: {again:?}") };
    assert_eq!(again.object, once.object, "applied twice");
    let mut updated = once.object.clone();
    writer.update(Some(&live.tree), &mut updated);
}

/// A selector reads as it is written, and no object that it selects is passed over by its marks.
pub fn label_selectors(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(selector) = Selector::parse(text) else { return };
    let written = selector.to_string();
    let again = Selector::parse(&written).map(|s| s.to_string());
    assert_eq!(again.as_ref(), Ok(&written), "{text:?}");
    let wanted = Wanted::by(&selector);
    let labels: Vec<(Text, Text)> = selector
        .requirements
        .iter()
        .map(|r| (r.key.clone(), r.values.first().cloned().unwrap_or_default()))
        .collect();
    for labels in [labels.as_slice(), &[]] {
        let get = |key: &str| labels.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        if selector.matches(get) {
            assert!(wanted.admits(Marks::of(labels)), "{text:?} passes over {labels:?}");
        }
    }
}

/// Any field selector is read or refused.
pub fn field_selectors(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(selector) = fields::Selector::parse(text) {
        let _ = selector.matches(|_| "value");
        let _ = selector.exact("metadata.name");
    }
}

/// A token that was read is written such that it reads the same.
pub fn continue_tokens(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for (namespace, namespaced) in [("", true), ("", false), ("here", true)] {
        let Ok(start) = Start::decode(text, namespace, namespaced) else { continue };
        if start.namespace == namespace || namespace.is_empty() && !start.namespace.is_empty() {
            let again = Start::decode(&start.encode(!namespace.is_empty()), namespace, namespaced);
            assert_eq!(again.as_ref(), Ok(&start));
        }
    }
}
