//! managedFields with many managers, and with many fields.

use api::codec::json;
use api::managed::{Taken, Versions, Writer};
use api::schema::Gvk;
use api::{Schema, Struct, StructId};

use super::measure::check;

struct Known;

impl Versions for Known {
    fn has(&self, version: &str) -> bool {
        version == "v1"
    }
    fn convert(&self, object: &Struct, _: &str, to: &str) -> Result<Option<Struct>, String> {
        Ok((to == "v1").then(|| object.clone()))
    }
}

fn joined(n: usize, f: impl Fn(usize) -> String) -> String {
    (0..n).map(f).collect::<Vec<_>>().join(",")
}

fn config_map(schema: &'static Schema, data: &str, managed: &str) -> (Struct, StructId) {
    let root = schema.kind(&Gvk::new("", "v1", "ConfigMap")).unwrap();
    let text = format!(r#"{{"metadata":{{"name":"a","managedFields":[{managed}]}},"data":{{{data}}}}}"#);
    (json::decode(schema, root, text.as_bytes()).unwrap().tree, root)
}

#[test]
fn managers() {
    let schema = Schema::builtin();
    let data = |n: usize, v: &'static str| joined(n, move |i| format!(r#""k{}":"{v}""#, (i * 7919) % n));
    let entry = |name: &str, version: &str, operation: &str, fields: &str| {
        format!(
            r#"{{"manager":"{name}","operation":"{operation}","apiVersion":"{version}","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{{fields}}}}},"time":"2026-01-01T00:00:00Z"}}"#
        )
    };
    let field = |i: usize| format!(r#""f:k{i}":{{}}"#);
    for (name, managed) in [
        (
            "updaters",
            Box::new(|n: usize| joined(n, |i| entry(&format!("m{i}"), "v1", "Update", &field(i))))
                as Box<dyn Fn(usize) -> String>,
        ),
        ("appliers", Box::new(|n| joined(n, |i| entry(&format!("m{i}"), "v1", "Apply", &field(i))))),
        ("versions", Box::new(|n| joined(n, |i| entry("m", &format!("v{i}"), "Update", &field(i))))),
        ("the same one", Box::new(|n| joined(n, |i| entry("m", "v1", "Update", &field(i))))),
        ("fields", Box::new(|n| entry("m", "v1", "Update", &joined(n, |i| field((i * 7919) % n))))),
        (
            "spellings of a field",
            Box::new(|n| {
                let spelled = |i: usize| {
                    let spaces: String = (0..20).map(|b| if i >> b & 1 == 1 { " :" } else { ":" }).collect();
                    let (a, b) = spaces.split_at(spaces.len() / 2);
                    let pad = |s: &str| " ".repeat(s.matches(' ').count());
                    format!(r#""k:{{{}\"name\":{}\"x\"}}":{{"f:y{i}":{{}}}}"#, pad(a), pad(b))
                };
                entry("m", "v1", "Update", &format!(r#""f:x":{{{}}}"#, joined(n, spelled)))
            }),
        ),
    ] {
        check(name, 640, |n, t| {
            let (old, root) = config_map(schema, &data(n, "a"), &managed(n));
            let (new, _) = config_map(schema, &data(n, "b"), &managed(n));
            let writer = Writer {
                schema,
                api_version: "v1",
                subresource: "",
                manager: "me",
                now: "2026-01-02T03:04:05Z",
                taken: Taken::All,
                versions: Some(&Known),
            };
            t.step("update", || writer.update(Some(&old), &mut new.clone()));
            let config = format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{{{}}}}}"#,
                data(n, "c")
            );
            let config = json::decode_any(config.as_bytes()).unwrap();
            let kind = Gvk::new("", "v1", "ConfigMap");
            for force in [false, true] {
                let applied =
                    t.step("apply", || writer.apply(&kind, root, Some(&old), config.clone(), force));
                if let Err(e) = applied {
                    t.step("conflict", || api::Status::from(e).to_json());
                }
            }
            t.step("keep times", || api::managed::keep_times(schema, &old, &mut new.clone()));
        });
    }
}

#[test]
fn a_long_key_is_not_repeated_for_each_conflict() {
    let schema = Schema::builtin();
    let root = schema.kind(&Gvk::new("", "v1", "Pod")).unwrap();
    let pod = |value: &str, typed: &str| {
        let long = "x".repeat(100_000);
        let env = joined(5_000, |i| format!(r#"{{"name":"e{i}","value":"{value}"}}"#));
        format!(
            r#"{{{typed}"metadata":{{"name":"a"}},"spec":{{"containers":[{{"name":"{long}","env":[{env}]}}]}}}}"#
        )
    };
    let typed = r#""apiVersion":"v1","kind":"Pod","#;
    let writer = |manager| Writer {
        schema,
        api_version: "v1",
        subresource: "",
        manager,
        now: "2026-01-02T03:04:05Z",
        taken: Taken::All,
        versions: None,
    };
    let kind = Gvk::new("", "v1", "Pod");
    let config = |value: &str| json::decode_any(pod(value, typed).as_bytes()).unwrap();
    let one = writer("one").apply(&kind, root, None, config("1"), false).unwrap().object;
    let refused = writer("two").apply(&kind, root, Some(&one), config("2"), false).unwrap_err();
    let text = refused.to_string();
    assert!(text.starts_with("Apply failed with 5000 conflicts"), "{}", &text[..80]);
    assert!(text.ends_with(" more") && text.len() < 4 << 20, "{}", text.len());
}
