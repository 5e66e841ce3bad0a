//! Objects that were made to cost much.

use api::codec::{json, proto};
use api::schema::Gvk;
use api::status::{FieldError, FieldErrorKind};
use api::{Schema, Status};
use ferrokube_kinds as kinds;
use kinds::{Ctx, strategy};
use serde_json::Value;

use super::measure::check;

fn joined(n: usize, f: impl Fn(usize) -> String) -> String {
    (0..n).map(f).collect::<Vec<_>>().join(",")
}

/// The errors of a write of an object of a group, version, kind and resource.
fn errors(kind: &Gvk, resource: &str, text: &str) -> Vec<FieldError> {
    let schema = Schema::builtin();
    let mut tree = json::decode(schema, schema.kind(kind).unwrap(), text.as_bytes()).unwrap().tree;
    super::DEFAULTS.apply(schema, &mut tree);
    let warn = |_: String| {};
    let ctx = Ctx {
        schema,
        now: "2026-01-02T03:04:05Z",
        gates: crate::support::all_but(&[]),
        privileged: true,
        warn: &warn,
    };
    let rules = strategy(&kind.group, resource);
    rules.prepare_create(&ctx, &mut tree);
    let found = rules.validate(&ctx, &tree);
    rules.warnings(&ctx, &tree, None);
    found
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn writes() {
    for (name, group, kind, resource, object) in [
        (
            "owners that are all controllers",
            "",
            "ConfigMap",
            "configmaps",
            Box::new(|n| {
                let owner = |i| {
                    format!(
                        r#"{{"apiVersion":"v1","kind":"Pod","name":"p{i}","uid":"u{i}","controller":true}}"#
                    )
                };
                format!(
                    r#"{{"metadata":{{"name":"a","namespace":"b","ownerReferences":[{}]}}}}"#,
                    joined(n, owner)
                )
            }) as Box<dyn Fn(usize) -> String>,
        ),
        (
            "container ports",
            "",
            "Pod",
            "pods",
            Box::new(|n| pod(&format!(r#""ports":[{}]"#, joined(n, |_| r#"{"containerPort":80}"#.into())))),
        ),
        (
            "host ports of many addresses",
            "",
            "Pod",
            "pods",
            Box::new(|n| {
                let port = |i: usize| {
                    format!(
                        r#"{{"containerPort":80,"hostPort":80,"hostIP":"10.{}.{}.{}"}}"#,
                        i >> 16,
                        i >> 8 & 255,
                        i & 255
                    )
                };
                pod(&format!(r#""ports":[{}]"#, joined(n, port)))
            }),
        ),
        (
            "wrong labels",
            "",
            "ConfigMap",
            "configmaps",
            Box::new(|n| {
                let label = |i| format!(r#""-{i}":"!{i}""#);
                format!(r#"{{"metadata":{{"name":"a","namespace":"b","labels":{{{}}}}}}}"#, joined(n, label))
            }),
        ),
        (
            "claims that nobody declared",
            "",
            "Pod",
            "pods",
            Box::new(|n| {
                let claims = joined(n, |i| format!(r#"{{"name":"c{i}"}}"#));
                let own = joined(n, |i| format!(r#"{{"name":"d{i}","resourceClaimName":"x"}}"#));
                pod(&format!(r#""resources":{{"claims":[{claims}]}}"#))
                    .replace("\"spec\":{", &format!("\"spec\":{{\"resourceClaims\":[{own}],"))
            }),
        ),
        (
            "scopes that do not fit",
            "",
            "ResourceQuota",
            "resourcequotas",
            Box::new(|n| {
                let scopes = joined(n, |_| r#""BestEffort""#.into());
                let hard = joined(n, |i| format!(r#""requests.hugepages-{}Mi":"1""#, i + 1));
                format!(
                    r#"{{"metadata":{{"name":"a","namespace":"b"}},"spec":{{"scopes":[{scopes}],"hard":{{{hard},"cpu":"1"}}}}}}"#
                )
            }),
        ),
        (
            "items of a volume",
            "",
            "Pod",
            "pods",
            Box::new(|n| {
                let items = joined(n, |i| format!(r#"{{"key":"k","path":"p/{i}"}}"#));
                pod("\"image\":\"x\"").replace(
                    "\"spec\":{",
                    &format!(
                        r#""spec":{{"volumes":[{{"name":"v","configMap":{{"name":"c","items":[{items}]}}}}],"#
                    ),
                )
            }),
        ),
        (
            "sidecars with many resources",
            "",
            "Pod",
            "pods",
            Box::new(|n| {
                let wants = joined(n, |i| format!(r#""x.io/r{i}":"1""#));
                let starts = joined(n, |i| format!(r#"{{"name":"i{i}","image":"x"}}"#));
                pod("\"image\":\"x\"").replace(
                    "\"spec\":{",
                    &format!(r#""spec":{{"resources":{{"requests":{{"cpu":"1"}}}},"initContainers":[{{"name":"s","image":"x","restartPolicy":"Always","resources":{{"requests":{{{wants}}}}}}},{starts}],"#),
                )
            }),
        ),
    ] {
        check(name, 1000, |n, t| {
            let text = object(n);
            let kind = Gvk::new(group, "v1", kind);
            let found = t.step("validate", || errors(&kind, resource, &text));
            t.step("make a Status", || Status::invalid("", "Thing", "a", &found).to_json());
        });
    }
}

fn pod(container: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"a","namespace":"b"}},"spec":{{"containers":[{{"name":"c","image":"x",{container}}}]}}}}"#
    )
}

#[test]
fn what_an_answer_shows_is_bounded() {
    let error = |i: usize, value: usize| FieldError {
        kind: FieldErrorKind::Invalid,
        field: format!("a[{i}]"),
        value: Some("x".repeat(value)),
        detail: "wrong".into(),
    };
    // Each case is a number of errors, their size, and the number of causes in the answer.
    for (count, size, causes) in [(1000, 10, 1000), (1001, 10, 1001), (100_000, 10, 1001), (3, 2 << 20, 2)] {
        let all: Vec<FieldError> = (0..count).map(|i| error(i, size)).collect();
        let status = Status::invalid("", "Thing", "a", &all);
        let shown = &status.details.as_ref().unwrap().causes;
        assert_eq!(shown.len(), causes, "{count} of {size}");
        let left = count - (causes - usize::from(count >= causes && count != 1000));
        let rest = match left {
            0 => String::new(),
            1 => "1 more error]".into(),
            n => format!("{n} more errors]"),
        };
        assert!(status.message.ends_with(&rest), "{count} of {size}");
    }
    // Rules stop to collect errors; the count goes on.
    let labels = joined(50_000, |i| format!(r#""-{i}":"x""#));
    let text = format!(r#"{{"metadata":{{"name":"a","namespace":"b","labels":{{{labels}}}}}}}"#);
    let found = errors(&Gvk::new("", "v1", "ConfigMap"), "configmaps", &text);
    assert_eq!(found.len(), 1001);
    assert_eq!(found[1000].kind, FieldErrorKind::More(49_000));
    let status = Status::invalid("", "ConfigMap", "a", &found);
    assert!(
        status.message.ends_with(", 49000 more errors]"),
        "{}",
        &status.message[status.message.len() - 80..]
    );
    let json: Value = serde_json::from_slice(&status.to_json()).unwrap();
    assert_eq!(json["details"]["causes"][1000], serde_json::json!({ "message": "49000 more errors" }));
}

#[test]
fn decoding() {
    let schema = Schema::builtin();
    let root = schema.kind(&Gvk::new("", "v1", "ConfigMap")).unwrap();
    check("fields that come again and again", 2000, |n, t| {
        let one = |i: usize| format!(r#""data":{{"k{}":"x"}}"#, (i * 7919) % n);
        let text = format!("{{{}}}", joined(n, one));
        let tree = t.step("decode", || json::decode(schema, root, text.as_bytes())).unwrap().tree;
        let mut out = Vec::new();
        json::encode(schema, &tree, &mut out);
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap()["data"].as_object().unwrap().len(), n);
    });
    check("unsorted entries", 2000, |n, t| {
        let entry = |i: usize| {
            let key = format!("k{:08}", n - i);
            let inner = [&[0x0a, key.len() as u8][..], key.as_bytes(), &[0x12, 1, b'x']].concat();
            [&[0x12, inner.len() as u8][..], &inner].concat()
        };
        let message: Vec<u8> = (0..n).chain(0..n).flat_map(entry).collect();
        let tree = t.step("decode", || proto::decode_message(schema, root, &message)).unwrap();
        let sorted: Vec<u8> = (0..n).rev().flat_map(entry).collect();
        assert_eq!(tree, proto::decode_message(schema, root, &sorted).unwrap());
    });
}
