//! The cases of upstream's test of strategic merge patches (`k8s.io/apimachinery`,
//! `pkg/util/strategicpatch/patch_test.go`), as far as a server applies them: an object, a patch, and
//! the object after it. `unordered` ones were compared with their merging lists sorted.

#![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

use std::collections::HashMap;

use ferrokube_api::codec::json;
use ferrokube_api::patch::strategic;
use ferrokube_api::schema::{AnyKind, Field, ListKind, PatchStrategy, StructType};
use ferrokube_api::{FieldNo, Map, Node, Schema, StructId, Type, TypeId};

const ITEM: StructId = StructId::unmarked(0);
const RETAINED: StructId = StructId::unmarked(1);

/// The types of that test: `MergeItem` and `RetainKeysMergeItem`.
fn schema() -> Schema {
    const STRING: TypeId = TypeId(0);
    const INTS: TypeId = TypeId(2);
    const ITEMS: TypeId = TypeId(4);
    const STRINGS: TypeId = TypeId(5);
    const ANY: TypeId = TypeId(6);
    let list = |of| Type::List { of, kind: ListKind::Atomic };
    let types = vec![
        Type::String,
        Type::Int64,
        list(TypeId(1)),
        Type::Struct(ITEM),
        list(TypeId(3)),
        Type::Map { of: STRING, atomic: false },
        Type::Any(AnyKind::RawExtension),
        Type::Struct(RETAINED),
    ];
    let plain = PatchStrategy::default();
    // The name is the first field.
    let merge = PatchStrategy { merge: true, merge_key: Some(FieldNo(0)), ..plain };
    let field = |json: &str, ty: TypeId, patch: PatchStrategy| Field {
        json: json.into(),
        proto: 0,
        proto_in: smallvec::SmallVec::new(),
        ty,
        pointer: false,
        omitempty: true,
        required: false,
        default: None,
        values: Vec::new(),
        patch,
        gates: smallvec::SmallVec::new(),
        mark: None,
    };
    let item = vec![
        field("name", STRING, plain),
        field("value", STRING, plain),
        field("other", STRING, plain),
        field("mergingList", ITEMS, merge),
        field("nonMergingList", ITEMS, plain),
        field("mergingIntList", INTS, PatchStrategy { merge_key: None, ..merge }),
        field("nonMergingIntList", INTS, plain),
        field("mergeItemPtr", ITEMS, merge),
        field("simpleMap", STRINGS, plain),
        field("replacingItem", ANY, PatchStrategy { replace: true, ..plain }),
        field("retainKeysMap", TypeId(7), PatchStrategy { retain_keys: true, ..plain }),
        field("retainKeysMergingList", ITEMS, PatchStrategy { retain_keys: true, ..merge }),
    ];
    let retained = vec![
        field("name", STRING, plain),
        field("value", STRING, plain),
        field("other", STRING, plain),
        field("simpleMap", STRINGS, plain),
        field("mergingIntList", INTS, PatchStrategy { merge_key: None, ..merge }),
        field("mergingList", ITEMS, merge),
        field("nonMergingList", ITEMS, plain),
    ];
    let st = |name: &str, fields| StructType {
        name: name.into(),
        fields,
        atomic: false,
        kind: false,
        union: None,
        by_json: Vec::new(),
        message: Vec::new(),
        names: ferrokube_api::schema::NameIndex::default(),
        rest: None,
    };
    Schema::new(types, vec![st("MergeItem", item), st("RetainKeysMergeItem", retained)], HashMap::new())
}

const MERGING: [&str; 3] = ["mergingList", "mergeItemPtr", "retainKeysMergingList"];

/// The value with the lists that merge sorted, as far as maps lead to them.
fn sorted(node: Node) -> Node {
    let Node::Map(m) = node else { return node };
    let entries = m.into_entries().into_iter().map(|(key, value)| {
        let value = match value {
            Node::List(l) if MERGING.contains(&key.as_str()) => {
                let mut l: Vec<Node> = l.into_iter().map(sorted).collect();
                l.sort_by_key(|i| i.as_map().and_then(|m| m.get("name")).map(text));
                Node::List(l)
            }
            Node::List(mut l) if key == "mergingIntList" => {
                l.sort_by_key(text);
                Node::List(l)
            }
            other => sorted(other),
        };
        (key, value)
    });
    Node::Map(Map::from_entries(entries.collect()))
}

fn text(node: &Node) -> String {
    let mut out = Vec::new();
    json::encode_any(node, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn upstream_cases() {
    let schema = schema();
    let mut wrong = Vec::new();
    let item = schema.named("MergeItem").unwrap();
    let cases = include_str!("data/strategic.jsonl");
    assert_eq!(cases.lines().count(), 200);
    for line in cases.lines() {
        let case = json::decode_any(line.as_bytes()).unwrap();
        let case = case.as_map().unwrap();
        let part = |name: &str| case.get(name).cloned().unwrap_or_else(|| Node::from(Map::new()));
        let result = strategic(&schema, item, part("original"), part("patch"));
        let name = case.str("name");
        let unordered = case.get("unordered").is_some();
        let form = |n: Node| text(&if unordered { sorted(n) } else { n });
        match (result, case.get("error")) {
            (Ok(got), None) => {
                let (got, expected) = (form(got), form(part("result")));
                if got != expected {
                    wrong.push(format!("{name}:\n  {expected}\n  {got}"));
                }
            }
            (Err(e), Some(expected)) if e.to_string().contains(expected.as_str()) => {}
            (result, _) => wrong.push(format!("{name}: {result:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}
