//! Patches with many parts, of objects with many parts.

use api::codec::json::decode_any;
use api::patch::{JsonPatch, merge, strategic};
use api::schema::Gvk;
use api::{Node, Schema};

use super::measure::check;

fn node(text: &str) -> Node {
    decode_any(text.as_bytes()).unwrap()
}

fn joined(n: usize, f: impl Fn(usize) -> String) -> String {
    (0..n).map(f).collect::<Vec<_>>().join(",")
}

#[test]
fn json_patches() {
    for (name, op) in [
        ("add at the front", |_, _| r#"{"op":"add","path":"/l/0","value":0}"#.to_owned()),
        ("add at the end", |_, _| r#"{"op":"add","path":"/l/-","value":0}"#.to_owned()),
        ("remove at the front", |_, _| r#"{"op":"remove","path":"/l/0"}"#.to_owned()),
        ("move to the end", |_, n| format!(r#"{{"op":"move","from":"/l/0","path":"/l/{}"}}"#, n - 1)),
        ("move to the front", |_, n| format!(r#"{{"op":"move","from":"/l/{}","path":"/l/0"}}"#, n - 1)),
        ("move the list", |i, _| {
            let (from, to) = if i % 2 == 0 { ("l", "k") } else { ("k", "l") };
            format!(r#"{{"op":"move","from":"/{from}","path":"/{to}"}}"#)
        }),
        ("copy", |i, _| format!(r#"{{"op":"copy","from":"/l/{i}","path":"/l/0"}}"#)),
        ("replace", |i, _| format!(r#"{{"op":"replace","path":"/l/{i}","value":"x"}}"#)),
        ("test", |i, _| format!(r#"{{"op":"test","path":"/l/{i}","value":{i}}}"#)),
        ("test another list", |_, _| r#"{"op":"test","path":"/m/k0","value":0}"#.to_owned()),
        ("add keys", |i, n| format!(r#"{{"op":"add","path":"/m/a{}","value":0}}"#, n - i)),
        ("remove keys", |i, n| format!(r#"{{"op":"remove","path":"/m/k{}"}}"#, n - 1 - i)),
        ("move keys", |i, _| format!(r#"{{"op":"move","from":"/m/k{i}","path":"/m/a{i}"}}"#)),
    ] as [(&str, fn(usize, usize) -> String); 13]
    {
        check(name, 1000, |n, t| {
            let l = joined(n, |i| i.to_string());
            let m = joined(n, |i| format!(r#""k{i}":{i}"#));
            let doc = node(&format!(r#"{{"l":[{l}],"m":{{{m}}}}}"#));
            let ops = node(&format!("[{}]", joined(n.min(10_000), |i| op(i, n))));
            let patch = JsonPatch::from_node(ops).unwrap();
            t.step("apply", || patch.apply(doc)).unwrap();
        });
    }
}

#[test]
fn merge_patches() {
    let keys = |n: usize, from: usize, value: &str| {
        // The keys are in no order.
        format!("{{{}}}", joined(n, |i| format!(r#""k{}":{value}"#, from + (i * 7919) % n)))
    };
    check("a merge patch", 2000, |n, t| {
        let target = || node(&keys(n, 0, "1"));
        for patch in [keys(n, 0, "2"), keys(n, n / 2, "{}"), keys(n, 0, "null")] {
            let (target, patch) = (target(), node(&patch));
            t.step("merge", || merge(target, patch));
        }
    });
}

#[test]
fn strategic_patches() {
    let schema = Schema::builtin();
    let root = schema.kind(&Gvk::new("", "v1", "Pod")).unwrap();
    let list = |n: usize, f: &dyn Fn(usize) -> String| format!("[{}]", joined(n, f));
    let named = |i: usize| format!(r#"{{"name":"c{i}"}}"#);
    let text = |i: usize| format!(r#""f{i}""#);
    let pod = move |n: usize| {
        let (c, f) = (list(n, &named), list(n, &text));
        format!(r#"{{"metadata":{{"finalizers":{f}}},"spec":{{"containers":{c}}}}}"#)
    };
    let spec = |inner: String| format!(r#"{{"spec":{{{inner}}}}}"#);
    for (name, patch) in [
        ("itself", Box::new(pod) as Box<dyn Fn(usize) -> String>),
        ("others", Box::new(|n| spec(format!(r#""containers":{}"#, list(n, &|i| named(i + n)))))),
        ("reversed", Box::new(|n| spec(format!(r#""containers":{}"#, list(n, &|i| named(n - i)))))),
        (
            "deletions",
            Box::new(|n| {
                let gone = |i| format!(r#"{{"$patch":"delete","name":"c{i}"}}"#);
                spec(format!(r#""containers":{}"#, list(n, &gone)))
            }),
        ),
        (
            "an order",
            Box::new(|n| {
                let order = list(n, &|i| named(n - 1 - i));
                spec(format!(r#""$setElementOrder/containers":{order},"containers":{order}"#))
            }),
        ),
        (
            "many orders",
            Box::new(|n| spec(joined(n, |i| format!(r#""$setElementOrder/x{i}":[],"x{i}":[]"#)))),
        ),
        (
            "scalars that go",
            Box::new(|n| {
                format!(r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":{}}}}}"#, list(n, &text))
            }),
        ),
        (
            "kept keys",
            Box::new(|n| {
                let keys = joined(n, |i| format!(r#""k{i}":"x""#));
                spec(format!(
                    r#""nodeSelector":{{"$retainKeys":{},{keys}}}"#,
                    list(n, &|i| format!(r#""k{i}""#))
                ))
            }),
        ),
    ] {
        check(name, 1000, |n, t| {
            let (target, patch) = (node(&pod(n)), node(&patch(n)));
            t.step("merge", || strategic(schema, root, target, patch)).unwrap();
        });
    }
}
