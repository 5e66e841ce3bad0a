use super::*;
use crate::codec::DecodeError;
use crate::schema::{Gvk, Schema};

fn root(kind: &str) -> crate::StructId {
    Schema::builtin().kind(&Gvk::new("", "v1", kind)).unwrap()
}

/// Decodes a kind of the core group and encodes it again.
fn round(kind: &str, body: &str) -> Result<(String, Vec<String>), DecodeError> {
    let schema = Schema::builtin();
    let d = decode(schema, root(kind), body.as_bytes())?;
    let mut out = Vec::new();
    encode(schema, &d.tree, &mut out);
    // The same tree comes from a value without a schema, and goes back to one.
    if let Ok(any) = decode_any(body.as_bytes()) {
        let again = root_from_any(schema, root(kind), any)?;
        assert_eq!(again.tree, d.tree, "{body}");
        let mut any = to_any(schema, &d.tree);
        assert_eq!(decode_any(&out).unwrap(), any, "{body}");
        let (mut sorted, mut expected) = (Vec::new(), Vec::new());
        encode_sorted(schema, &d.tree, &mut sorted);
        encode_any(&any, &mut expected);
        assert_eq!(String::from_utf8(sorted), String::from_utf8(expected), "{body}");
        let mut named = Vec::new();
        encode_kind(schema, &Gvk::new("", "v1", kind), &d.tree, &mut named);
        let map = any.as_map_mut().unwrap();
        map.insert("kind", kind);
        map.insert("apiVersion", "v1");
        assert_eq!(decode_any(&named).unwrap(), any, "{body}");
    }
    Ok((String::from_utf8(out).unwrap(), d.strict))
}

/// Embedded objects are compared by text, not by value.
/// DIFFERENCE: upstream compares white space too, which it shows to no client that speaks JSON.
#[test]
fn embedded_objects_keep_their_text() {
    let schema = Schema::builtin();
    let root = schema.kind(&Gvk::new("apps", "v1", "ControllerRevision")).unwrap();
    let data = |text: &str| {
        let body = format!("{{\"data\":{text}}}");
        let tree = decode(schema, root, body.as_bytes()).unwrap().tree;
        let mut out = Vec::new();
        encode(schema, &tree, &mut out);
        let out = String::from_utf8(out).unwrap();
        let head = "{\"metadata\":{},\"data\":";
        let kept = out.strip_prefix(head).and_then(|t| t.split_once(",\"revision\"")).unwrap().0.to_owned();
        (kept, compact(text), root_from_any(schema, root, to_any(schema, &tree)).unwrap().tree == tree)
    };
    for (text, kept, short, same_when_patched) in [
        (r#"{"a":1,"b":[]}"#, r#"{"a":1,"b":[]}"#, r#"{"a":1,"b":[]}"#, true),
        (r#"{"b": 1.0, "a": 1e400}"#, r#"{"b":1.0,"a":1e400}"#, r#"{"b":1.0,"a":1e400}"#, true),
        (r#"{"b":2,"a":1}"#, r#"{"b":2,"a":1}"#, r#"{"b":2,"a":1}"#, false),
        (
            "{\"a\":\n9223372036854775808}",
            "{\"a\":9223372036854775808}",
            "{\"a\":9223372036854775808}",
            false,
        ),
        (r#"{"a":" \" <"}"#, r#"{"a":" \" <"}"#, r#"{"a":" \" \u003c"}"#, false),
    ] {
        assert_eq!(data(text), (kept.into(), short.into(), same_when_patched), "{text}");
    }
}

#[test]
fn normal_form() {
    for (kind, body, expected) in [
        (
            "ConfigMap",
            r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"b":"2","a":"1"}}"#,
            r#"{"metadata":{},"data":{"a":"1","b":"2"}}"#,
        ),
        (
            "ConfigMap",
            r#"{"data":{},"immutable":false,"binaryData":null}"#,
            r#"{"metadata":{},"immutable":false}"#,
        ),
        (
            "Pod",
            r#"{"spec":{"hostNetwork":false,"containers":[]}}"#,
            r#"{"metadata":{},"spec":{"containers":null},"status":{}}"#,
        ),
        (
            "Pod",
            r#"{"metadata":{"creationTimestamp":null,"deletionTimestamp":"2024-01-02T05:04:05+02:00"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"0.5","memory":"1024Mi"}}}],"priority":0}}"#,
            r#"{"metadata":{"deletionTimestamp":"2024-01-02T03:04:05Z"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"500m","memory":"1Gi"}}}],"priority":0},"status":{}}"#,
        ),
        ("Secret", r#"{"data":{"a":"YQ==","b":null}}"#, r#"{"metadata":{},"data":{"a":"YQ==","b":""}}"#),
        (
            "Service",
            r#"{"spec":{"ports":[{"port":80}]}}"#,
            r#"{"metadata":{},"spec":{"ports":[{"port":80,"targetPort":0}]},"status":{"loadBalancer":{}}}"#,
        ),
        (
            "ConfigMap",
            r#"{"data":{"a":"\u003c\u2028\u0001\ud83d\ude00\ud83d"}}"#,
            "{\"metadata\":{},\"data\":{\"a\":\"\\u003c\\u2028\\u0001😀\u{fffd}\"}}",
        ),
        ("Pod", "null", r#"{"metadata":{},"spec":{"containers":null},"status":{}}"#),
    ] {
        let (text, strict) = round(kind, body).unwrap();
        assert_eq!((text.as_str(), strict.len()), (expected, 0), "{body}");
    }
}

#[test]
fn strict_complaints() {
    for (kind, body, expected) in [
        (
            "Pod",
            r#"{"foo":1,"spec":{"foo":{"a":[1]},"containers":[{"name":"a","bar":1}]}}"#,
            vec![
                "unknown field \"foo\"",
                "unknown field \"spec.foo\"",
                "unknown field \"spec.containers[0].bar\"",
            ],
        ),
        ("Pod", r#"{"spec":{"hostname":"a","hostname":"b"}}"#, vec!["duplicate field \"spec.hostname\""]),
        ("ConfigMap", r#"{"data":{"a":"1","a":"2"}}"#, vec!["duplicate field \"data.a\""]),
        ("ConfigMap", r#"{"Data":{}}"#, vec!["unknown field \"Data\""]),
    ] {
        let d = decode(Schema::builtin(), root(kind), body.as_bytes()).unwrap();
        assert_eq!(d.strict, expected, "{body}");
    }
}

#[test]
fn duplicates_merge_as_in_go() {
    let (text, _) = round_lenient(
        r#"{"data":{"a":"1"},"data":{"b":"2"},"metadata":{"name":"x"},"metadata":{"uid":"y"}}"#,
    );
    assert_eq!(text, r#"{"metadata":{"name":"x","uid":"y"},"data":{"a":"1","b":"2"}}"#);
}

fn round_lenient(body: &str) -> (String, Vec<String>) {
    let schema = Schema::builtin();
    let d = decode(schema, root("ConfigMap"), body.as_bytes()).unwrap();
    let mut out = Vec::new();
    encode(schema, &d.tree, &mut out);
    (String::from_utf8(out).unwrap(), d.strict)
}

#[test]
fn errors() {
    for (kind, body, expected) in [
        (
            "Pod",
            r#"{"spec":{"hostNetwork":"a"}}"#,
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":["a"]}}"#,
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":[{"ports":[{"containerPort":1.5}]}]}}"#,
            "json: cannot unmarshal number 1.5 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            "Pod",
            r#"{"metadata":{"labels":"a"}}"#,
            "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        (
            "Pod",
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        ("Pod", r#"{"kind":1}"#, "json: cannot unmarshal number into Go struct field .kind of type string"),
        ("Secret", r#"{"data":{"a":"!"}}"#, "illegal base64 data at input byte 0"),
        ("Pod", r#"{"spec":{"#, "unexpected end of JSON input"),
        ("Pod", r#"{"spec":tru}"#, "invalid character '}' in literal true (expecting 'e')"),
        ("Pod", r#"{"spec":{},}"#, "invalid character '}' looking for beginning of object key string"),
        ("Pod", r#"{"spec":[1 2]}"#, "invalid character '2' after array element"),
        ("Pod", r#"{"spec":{"hostNetwork":"a"}} x"#, "invalid character 'x' after top-level value"),
        ("Pod", "{\"a\":\"\n\"}", "invalid character '\\n' in string literal"),
        (
            "Pod",
            r#"{"metadata":{"creationTimestamp":"x"}}"#,
            "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
        ),
        (
            "Pod",
            r#"{"metadata":{"creationTimestamp":1}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
    ] {
        assert_eq!(round(kind, body).unwrap_err().to_string(), expected, "{body}");
    }
}

#[test]
fn what_a_merge_made_is_refused_in_the_words_of_gos_conversion() {
    let schema = Schema::builtin();
    for (body, expected) in [
        (r#"{"metadata":{"name":7}}"#, "cannot convert int64 to string"),
        (r#"{"spec":{"restartPolicy":7}}"#, "cannot convert int64 to v1.RestartPolicy"),
        (r#"{"metadata":{"generation":1.5}}"#, "cannot convert float64 to int64"),
        (r#"{"spec":{"priority":"1"}}"#, "unrecognized type: int32"),
        (r#"{"spec":{"containers":{}}}"#, "cannot restore slice from map"),
        (r#"{"spec":[]}"#, "cannot restore struct from: slice"),
        (r#"{"metadata":{"labels":1}}"#, "cannot restore map from int64"),
    ] {
        let node = decode_any(body.as_bytes()).unwrap();
        let why = root_from_merged(schema, root("Pod"), node).unwrap_err().to_string();
        assert_eq!(why, expected, "{body}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    for open in ["[", "{\"a\":"] {
        let body = open.repeat(100_000);
        assert_eq!(decode_any(body.as_bytes()).unwrap_err().to_string(), "exceeded max depth");
        let body = format!("{{\"x\":{body}");
        assert_eq!(
            decode(Schema::builtin(), root("Pod"), body.as_bytes()).unwrap_err().to_string(),
            "exceeded max depth"
        );
    }
}

#[test]
fn floats_as_go_writes_them() {
    for (text, expected) in [
        ("1.0", "1"),
        ("1.50", "1.5"),
        ("1e21", "1e+21"),
        ("1e20", "100000000000000000000"),
        ("1e-7", "1e-7"),
        ("0.000001", "0.000001"),
        ("-0.0", "-0"),
        ("9223372036854775808", "9223372036854776000"),
    ] {
        let mut out = Vec::new();
        encode_any(&decode_any(text.as_bytes()).unwrap(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

#[test]
fn objects_at_rest() {
    let schema = Schema::builtin();
    for (body, expected) in [
        (
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"uid":"u","resourceVersion":"5","name":"n"}}"#,
            r#"{"metadata":{"name":"n","uid":"u","resourceVersion":""}}"#,
        ),
        ("{}", r#"{"metadata":{"resourceVersion":""}}"#),
    ] {
        let d = decode(schema, root("ConfigMap"), body.as_bytes()).unwrap();
        let (bytes, at) = encode_object(schema, &d.tree);
        assert_eq!(std::str::from_utf8(&bytes).unwrap(), expected);
        assert!(bytes[..at as usize].ends_with(b"\"resourceVersion\":\""));
    }
}
