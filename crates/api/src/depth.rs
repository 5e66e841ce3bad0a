//! How deep a value may nest: one limit for every body that enters and for all code that reads it.

use crate::tree::{Node, Struct};

/// The greatest number of objects and lists that may stand in one another, the outermost counted: in bodies of every
/// form, in the results of patches and apply, and in values that are embedded in an object (`managedFields`, raw
/// values).
///
/// DIFFERENCE: upstream's JSON and YAML go down to 10,000, and its protobuf as far as the bytes last. Go's stacks grow;
/// here a thread's stack is of one size, and all code that works on an object (decoding, comparison, validation,
/// encoding, release) recurses into it. No type of the API comes near: the deepest values are the schemas of
/// CustomResourceDefinitions, with two levels for each level of the values that they describe.
pub const MAX_DEPTH: usize = 256;

/// The error for a value that nests deeper than [`MAX_DEPTH`]: the words of Go's decoder.
pub const TOO_DEEP: &str = "exceeded max depth";

/// More levels than answers put around an object (those of a list, of a Table and its rows) and `managedFields` into
/// one that is not stored.
pub(crate) const AROUND: usize = 16;

/// Counts how many objects and lists of a JSON text stand in one another. The text is not checked for being JSON.
pub fn of_json(json: &[u8]) -> usize {
    let (mut deepest, mut depth, mut at) = (0, 0usize, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = json.get(at) {
                    at += if *byte == b'\\' { 2 } else { 1 };
                    if *byte == b'"' {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

/// Whether a value nests no deeper than [`MAX_DEPTH`].
pub fn is_bounded(node: &Node) -> bool {
    measure(node, MAX_DEPTH).is_some()
}

/// [`is_bounded`] for an object.
pub fn is_object_bounded(object: &Struct) -> bool {
    object.iter().all(|(_, value)| measure(value, MAX_DEPTH - 1).is_some())
}

/// Returns how many objects and lists stand in one another in a value, and how many values it holds with itself; `None`
/// if it nests deeper than `limit`. The function itself recurses no deeper than that.
pub(crate) fn measure(node: &Node, limit: usize) -> Option<(usize, usize)> {
    let (mut depth, mut count) = (0, 1);
    let mut inside = |node: &Node| -> Option<()> {
        let (d, n) = measure(node, limit.checked_sub(1)?)?;
        (depth, count) = (depth.max(d), count + n);
        Some(())
    };
    match node {
        Node::List(list) => list.iter().try_for_each(&mut inside)?,
        Node::Map(map) => map.iter().try_for_each(|(_, v)| inside(v))?,
        Node::Struct(s) => s.iter().try_for_each(|(_, v)| inside(v))?,
        Node::Raw(text) => {
            let depth = of_json(text.as_bytes());
            return (depth <= limit).then_some((depth, 1));
        }
        _ => return Some((0, 1)),
    }
    (depth < limit).then_some((depth + 1, count))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::codec::{json, proto};
    use crate::managed::{Taken, Writer};
    use crate::patch::{self, JsonPatch};
    use crate::schema::{Gvk, Schema};
    use crate::yaml;

    /// Half of the stack that a thread of the process has in an unoptimized build.
    const STACK: usize = 8 << 20;

    /// Runs a function on half of a thread's stack, so that as much is left over.
    pub(crate) fn on_a_stack(f: fn()) {
        std::thread::Builder::new().stack_size(STACK).spawn(f).unwrap().join().unwrap();
    }

    /// JSON text of so many lists in one another.
    fn lists(depth: usize) -> String {
        "[".repeat(depth) + &"]".repeat(depth)
    }

    #[test]
    fn depths_of_texts() {
        for (text, depth) in [
            ("1", 0),
            ("{}", 1),
            (r#"{"a":[{"b":"}]{[[[["}],"c":{}}"#, 3),
            (r#""a\"[[""#, 0),
            (r#"["\\",[]]"#, 2),
        ] {
            assert_eq!(of_json(text.as_bytes()), depth, "{text}");
            let node = json::decode_any(text.as_bytes()).unwrap();
            assert_eq!(measure(&node, 10).map(|m| m.0), Some(depth), "{text}");
            assert_eq!(measure(&Node::Raw(text.into()), depth), Some((depth, 1)));
            if depth > 0 {
                assert_eq!(measure(&node, depth - 1), None, "{text}");
                assert_eq!(measure(&Node::Raw(text.into()), depth - 1), None);
            }
        }
    }

    /// Objects that nest as deeply as may be: in a schema, in an embedded object and in managedFields.
    fn deepest() -> [(Gvk, String); 3] {
        let crd = |levels: usize| {
            let (open, close) = (r#"{"type":"object","properties":{"p":"#, "}}");
            let schema = open.repeat(levels) + r#"{"not":{}}"# + &close.repeat(levels);
            format!(
                r#"{{"metadata":{{}},"spec":{{"versions":[{{"name":"v","schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#
            )
        };
        let left = (MAX_DEPTH - of_json(crd(0).as_bytes())) / 2;
        let revision = |depth: usize| format!(r#"{{"metadata":{{}},"data":{},"revision":1}}"#, lists(depth));
        let managed = |depth: usize| {
            let fields = r#"{"f:x":"#.repeat(depth) + "{}" + &"}".repeat(depth);
            format!(
                r#"{{"metadata":{{"managedFields":[{{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields},"manager":"m","operation":"Update","time":"2026-01-01T00:00:00Z"}}]}}}}"#
            )
        };
        [
            (Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), crd(left)),
            (Gvk::new("apps", "v1", "ControllerRevision"), revision(MAX_DEPTH - 1)),
            (Gvk::new("", "v1", "ConfigMap"), managed(MAX_DEPTH - 5)),
        ]
    }

    /// The deepest objects pass through every codec and every function that recurses.
    fn all_works_on_the_deepest() {
        let schema = Schema::builtin();
        for (kind, text) in deepest() {
            let root = schema.kind(&kind).unwrap();
            let depth = of_json(text.as_bytes());
            assert!(depth > MAX_DEPTH - 2, "{kind:?}");
            let tree = json::decode(schema, root, text.as_bytes()).unwrap().tree;
            assert!(is_object_bounded(&tree));
            assert_eq!(tree.clone(), tree);
            assert!(tree.same_as_written(&tree));
            let mut written = Vec::new();
            json::encode(schema, &tree, &mut written);
            assert_eq!(of_json(&written), depth, "{kind:?}");
            let message = proto::encode_message(schema, &tree);
            assert_eq!(proto::decode_message(schema, root, &message), Ok(tree.clone()));
            let any = json::to_any(schema, &tree);
            let shown = yaml::emit(&any);
            assert_eq!(yaml::parse(shown.as_ref()), Ok(any.clone()));
            assert_eq!(json::root_from_any(schema, root, any.clone()).unwrap().tree, tree);
            assert!(is_bounded(&patch::merge(any.clone(), any.clone())));
            let merged = patch::strategic(schema, root, any.clone(), any.clone()).unwrap();
            assert_eq!(json::root_from_merged(schema, root, merged).unwrap().tree, tree);
            let test =
                format!(r#"[{{"op":"test","path":"","value":{}}}]"#, String::from_utf8(written).unwrap());
            let _ = JsonPatch::from_node(json::decode_answer(test.as_bytes()).unwrap())
                .unwrap()
                .apply(any.clone());
            let writer = Writer {
                schema,
                api_version: &kind.api_version(),
                subresource: "",
                manager: "m",
                now: "2026-01-01T00:00:00Z",
                taken: Taken::All,
                versions: None,
            };
            let mut tracked = tree.clone();
            writer.update(None, &mut tracked);
            let mut config = any;
            if let Some(map) = config.as_map_mut() {
                map.insert("kind", kind.kind.clone());
                map.insert("apiVersion", kind.api_version());
            }
            let _ = writer.apply(&kind, root, Some(&tree), config, true);
        }
    }

    #[test]
    fn the_deepest_objects_fit_on_a_stack() {
        on_a_stack(all_works_on_the_deepest);
    }

    /// One level more is refused by every codec.
    fn nothing_deeper_is_read() {
        let schema = Schema::builtin();
        for (kind, text) in deepest() {
            let root = schema.kind(&kind).unwrap();
            let deeper = match &*kind.kind {
                "ControllerRevision" => text.replace("[]", "[[]]"),
                "ConfigMap" => text.replace("{}}", r#"{"f:x":{}}}"#),
                _ => text.replace(r#"{"not":{}}"#, r#"{"not":{"not":{"not":{}}}}"#),
            };
            assert!(of_json(deeper.as_bytes()) > MAX_DEPTH, "{kind:?}");
            let refused = |why: String| assert!(why.ends_with(TOO_DEEP), "{kind:?}: {why}");
            refused(json::decode(schema, root, deeper.as_bytes()).unwrap_err().to_string());
            let any = json::decode_answer(deeper.as_bytes()).unwrap();
            assert!(!is_bounded(&any));
            refused(json::root_from_patched(schema, root, any.clone()).unwrap_err().to_string());
            assert!(yaml::parse(yaml::emit(&any).as_ref()).is_err());
            assert!(yaml::parse(deeper.as_bytes()).is_err());
            let tree = json::decode_to(schema, root, deeper.as_bytes(), MAX_DEPTH + 2).unwrap().tree;
            assert!(!is_object_bounded(&tree));
            let message = proto::encode_message(schema, &tree);
            refused(proto::decode_message(schema, root, &message).unwrap_err().to_string());
        }
    }

    #[test]
    fn one_level_more_is_refused() {
        on_a_stack(nothing_deeper_is_read);
    }
}
