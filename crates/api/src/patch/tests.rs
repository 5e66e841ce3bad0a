use super::*;
use crate::codec::json;
use crate::depth::{MAX_DEPTH, measure};
use crate::schema::{Gvk, Schema};
use crate::tree::Node;

fn node(text: &str) -> Node {
    json::decode_any(text.as_bytes()).unwrap()
}

fn text(node: &Node) -> String {
    let mut out = Vec::new();
    json::encode_any(node, &mut out);
    String::from_utf8(out).unwrap()
}

/// The cases of RFC 7386, appendix A.
#[test]
fn merge_patch() {
    for (target, patch, expected) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, r"{}"),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"["a"]"#, r#"["c"]"#, r#"["c"]"#),
        (r"{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
    ] {
        assert_eq!(text(&merge(node(target), node(patch))), expected, "{target} {patch}");
    }
}

#[test]
fn json_patch() {
    let check = |doc: &str, patch: &str, expected: Result<&str, &str>| {
        let got = JsonPatch::from_node(node(patch)).and_then(|p| p.apply(node(doc)));
        match expected {
            Ok(e) => assert_eq!(text(&got.unwrap()), e, "{patch}"),
            Err(e) => assert_eq!(got.unwrap_err().to_string(), e, "{patch}"),
        }
    };
    check(r#"{"a":1}"#, r#"[{"op":"add","path":"/b","value":[1]}]"#, Ok(r#"{"a":1,"b":[1]}"#));
    check(
        r#"{"a":[1,3]}"#,
        r#"[{"op":"add","path":"/a/1","value":2},{"op":"add","path":"/a/-","value":4}]"#,
        Ok(r#"{"a":[1,2,3,4]}"#),
    );
    check(r#"{"a":[1,2]}"#, r#"[{"op":"remove","path":"/a/0"}]"#, Ok(r#"{"a":[2]}"#));
    check(
        r#"{"a/b":{"~":1}}"#,
        r#"[{"op":"replace","path":"/a~1b/~0","value":2}]"#,
        Ok(r#"{"a/b":{"~":2}}"#),
    );
    check(r#"{"a":1}"#, r#"[{"op":"move","from":"/a","path":"/b"}]"#, Ok(r#"{"b":1}"#));
    check(
        r#"{"a":1}"#,
        r#"[{"op":"copy","from":"/a","path":"/b"},{"op":"test","path":"/b","value":1}]"#,
        Ok(r#"{"a":1,"b":1}"#),
    );
    check(
        r#"{"a":1}"#,
        r#"[{"op":"test","path":"/a","value":2}]"#,
        Err("testing value /a failed: test failed"),
    );
    check(
        r#"{"a":1}"#,
        r#"[{"op":"remove","path":"/b"}]"#,
        Err("error in remove for path: '/b': Unable to remove nonexistent key: b: missing value"),
    );
    check(
        r"{}",
        r#"[{"op":"add","path":"/a/b","value":1}]"#,
        Err(r#"add operation does not apply: doc is missing path: "/a/b": missing value"#),
    );
    check(
        r"{}",
        r#"[{"op":"replace","path":"/a/b","value":1}]"#,
        Err("replace operation does not apply: doc is missing path: /a/b: missing value"),
    );
    check(
        r#"{"a":[1]}"#,
        r#"[{"op":"replace","path":"/a/1","value":2}]"#,
        Err("replace operation does not apply: doc is missing key: /a/1: missing value"),
    );
    // Clients rely on it: the CSI snapshotter's first annotation comes by this.
    check(r#"{"a":{}}"#, r#"[{"op":"replace","path":"/a/b","value":[1]}]"#, Ok(r#"{"a":{"b":[1]}}"#));
    check(r"{}", r#"[{"path":"/a"}]"#, Err("Unexpected kind: unknown"));
    check(
        r#"{"a":[1]}"#,
        r#"[{"op":"add","path":"/a/7","value":1}]"#,
        Err("error in add for path: '/a/7': Unable to access invalid index: 7: invalid index referenced"),
    );
}

/// JSON text of so many lists in one another.
fn lists(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

/// The pointer to the innermost of lists in one another, and to the place in it.
fn innermost(key: &str, depth: usize) -> String {
    format!("/{key}{}/-", "/0".repeat(depth - 1))
}

#[test]
fn json_patches_go_no_deeper_than_bodies() {
    let apply = |doc: &str, patch: &str| JsonPatch::from_node(node(patch)).and_then(|p| p.apply(node(doc)));
    // The document has the given depth together with the value that the operation adds.
    let check = |doc: &str, patch: &str, depth: usize| {
        let patched = apply(doc, patch);
        if depth > MAX_DEPTH {
            assert_eq!(patched, Err(PatchError::TooDeep), "{depth}");
        } else {
            assert_eq!(measure(&patched.unwrap(), depth).map(|m| m.0), Some(depth));
        }
    };
    for total in [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1] {
        let (half, rest) = (total / 2, total - total / 2);
        let (doc, value) = (format!(r#"{{"a":{}}}"#, lists(half - 1)), lists(rest));
        let at = innermost("a", half - 1);
        check(&doc, &format!(r#"[{{"op":"add","path":"{at}","value":{value}}}]"#), total);
        let doc = format!(r#"{{"a":{},"b":{value}}}"#, lists(half - 1));
        check(&doc, &format!(r#"[{{"op":"copy","from":"/b","path":"{at}"}}]"#), total);
        check(&doc, &format!(r#"[{{"op":"move","from":"/b","path":"{at}"}}]"#), total);
        let doc = format!(r#"{{"a":{}}}"#, lists(half).replace("[]", "[0]"));
        let at = format!("/a{}", "/0".repeat(half));
        check(
            &doc,
            &format!(r#"[{{"op":"replace","path":"{at}","value":{}}}]"#, lists(total - half - 1)),
            total,
        );
    }
    // Each copy would make the document twice as deep.
    let at = innermost("a", 200);
    let copy = format!(r#"{{"op":"copy","from":"/a","path":"{at}"}}"#);
    let doc = format!(r#"{{"a":{}}}"#, lists(200));
    assert_eq!(apply(&doc, &format!("[{}]", vec![copy; 9].join(","))), Err(PatchError::TooDeep));
}

#[test]
fn moves_to_and_fro_are_no_depth() {
    let doc = format!(r#"{{"a":{},"b":{{}},"c":{}}}"#, lists(MAX_DEPTH - 10), lists(5));
    let pair = r#"{"op":"move","from":"/c","path":"/b/c"},{"op":"move","from":"/b/c","path":"/c"}"#;
    let moved = |pairs: usize, doc: &str| {
        JsonPatch::from_node(node(&format!("[{}]", vec![pair; pairs].join(",")))).unwrap().apply(node(doc))
    };
    assert_eq!(moved(5_000, &doc), Ok(node(&doc)));
    // A large value beside a deep one would be measured again and again.
    let large = format!("[{}0]", "0,".repeat(100_000));
    let doc = format!(r#"{{"a":{},"b":{{}},"c":{large}}}"#, lists(MAX_DEPTH - 1));
    assert!(matches!(moved(5_000, &doc), Err(PatchError::TooLarge(_))));
    assert_eq!(moved(10, &doc), Ok(node(&doc)));
}

fn strategic_pod(target: &str, patch: &str) -> Result<String, String> {
    let schema = Schema::builtin();
    let root = schema.kind(&Gvk::new("", "v1", "Pod")).unwrap();
    strategic(schema, root, node(target), node(patch)).map(|n| text(&n)).map_err(|e| e.to_string())
}

#[test]
fn strategic_merge() {
    let check = |target: &str, patch: &str, expected: &str| {
        assert_eq!(strategic_pod(target, patch).unwrap(), expected, "{patch}");
    };
    let two = r#"{"spec":{"containers":[{"name":"a","image":"1"},{"name":"b","image":"2"}]}}"#;
    check(
        two,
        r#"{"spec":{"containers":[{"name":"b","image":"3"}]}}"#,
        r#"{"spec":{"containers":[{"image":"1","name":"a"},{"image":"3","name":"b"}]}}"#,
    );
    check(
        two,
        r#"{"spec":{"containers":[{"name":"a","$patch":"delete"},{"name":"c","image":"4"}]}}"#,
        r#"{"spec":{"containers":[{"image":"4","name":"c"},{"image":"2","name":"b"}]}}"#,
    );
    check(
        two,
        r#"{"spec":{"containers":[{"$patch":"replace"},{"name":"c"}]}}"#,
        r#"{"spec":{"containers":[{"name":"c"}]}}"#,
    );
    check(
        two,
        r#"{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a","image":"9"}]}}"#,
        r#"{"spec":{"containers":[{"image":"2","name":"b"},{"image":"9","name":"a"}]}}"#,
    );
    check(
        r#"{"metadata":{"finalizers":["a","b"],"labels":{"x":"1","y":"2"}}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"finalizers":["c"],"labels":{"x":null}}}"#,
        r#"{"metadata":{"finalizers":["c","b"],"labels":{"y":"2"}}}"#,
    );
    check(
        r#"{"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}"#,
        r#"{"spec":{"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"}}]}}"#,
        r#"{"spec":{"volumes":[{"hostPath":{"path":"/x"},"name":"v"}]}}"#,
    );
    check(
        r#"{"spec":{"tolerations":[{"key":"a"}]}}"#,
        r#"{"spec":{"tolerations":[{"key":"b"}]}}"#,
        r#"{"spec":{"tolerations":[{"key":"b"}]}}"#,
    );
    check(
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        r#"{"metadata":{"labels":{"$patch":"replace","c":"d"}}}"#,
        r#"{"metadata":{"labels":{"c":"d"}}}"#,
    );
}

#[test]
fn strategic_merge_refuses() {
    let two = r#"{"spec":{"containers":[{"name":"a"}]}}"#;
    for (patch, error) in [
        (
            r#"{"spec":{"containers":[{"image":"x"}]}}"#,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (r#"{"spec":{"$patch":"bogus"}}"#, "unknown patch type: bogus in map: map[$patch:bogus]"),
    ] {
        assert_eq!(strategic_pod(two, patch).unwrap_err(), error);
    }
}
