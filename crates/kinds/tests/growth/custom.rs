//! Objects of definitions with rules in the expression language.

use std::sync::Arc;

use api::codec::json;
use api::schema::{CustomKind, Gvk};
use api::view::View;
use api::{Schema, Struct};
use ferrokube_kinds as kinds;
use kinds::custom::{CustomStrategy, Definition};
use kinds::{Ctx, Strategy};

use super::measure::too_fast;

/// A kind whose `spec` has this schema.
struct Kind {
    schema: Schema,
    kind: Gvk,
    strategy: CustomStrategy,
}

impl Kind {
    fn new(spec: &str) -> Self {
        let body = format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"x"}},
            "spec":{{"group":"g.io","names":{{"plural":"xs","kind":"X"}},"scope":"Cluster","versions":[
            {{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":
            {{"type":"object","properties":{{"spec":{spec}}}}}}}}}]}}}}"#
        );
        let all = Schema::builtin();
        let of = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let tree = json::decode(all, all.kind(&of).unwrap(), body.as_bytes()).unwrap().tree;
        let definition = Definition::of(View::new(all, &tree));
        let version = &definition.versions[0];
        let kind = Gvk::new("g.io", "v1", "X");
        let root = Arc::new(all.custom_root("g.io.v1.X", Arc::clone(&version.schema)).unwrap());
        let own = CustomKind { kind: kind.clone(), number: 0, root };
        Self { schema: all.with_custom([&own]), kind, strategy: CustomStrategy::new(&definition, version) }
    }

    fn tree(&self, spec: &str) -> Struct {
        let body =
            format!(r#"{{"apiVersion":"g.io/v1","kind":"X","metadata":{{"name":"x"}},"spec":{spec}}}"#);
        json::decode(&self.schema, self.schema.kind(&self.kind).unwrap(), body.as_bytes()).unwrap().tree
    }

    fn update(&self, old: &Struct, new: &Struct) -> usize {
        let warn = |_: String| {};
        let gates = crate::support::all_but(&[]);
        let ctx =
            Ctx { schema: &self.schema, now: "2026-01-02T03:04:05Z", gates, privileged: true, warn: &warn };
        self.strategy.validate_update(&ctx, new, old).len()
    }
}

fn list(n: usize, item: impl Fn(usize) -> String) -> String {
    format!("[{}]", (0..n).map(item).collect::<Vec<_>>().join(","))
}

/// An object of a size, as it was and as it is to be.
type Pair = fn(usize) -> (String, String);

#[test]
fn rules() {
    let cases: [(&str, &str, Pair); 4] = [
        (
            "elements of an atomic list that break a rule",
            r#"{"type":"array","items":{"type":"integer","x-kubernetes-validations":[{"rule":"self >= 0"}]}}"#,
            |n| (list(n, |_| "1".into()), list(n, |i| if i < n / 2 { "1".into() } else { "-1".into() })),
        ),
        (
            "elements with keys and a rule",
            r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"}},"x-kubernetes-validations":[{"rule":"true"}]}}"#,
            |n| {
                let item = |i: usize| format!(r#"{{"k":"k{i}"}}"#);
                (list(n, item), list(n, move |i| item(n - 1 - i)))
            },
        ),
        (
            "a set that may not change",
            r#"{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"},"x-kubernetes-validations":[{"rule":"self == oldSelf"}]}"#,
            |n| {
                let item = |i: usize| format!(r#""k{i}""#);
                (list(n, item), list(n, move |i| item(n - 1 - i)))
            },
        ),
        (
            "texts that are none of those that may be",
            r#"{"type":"array","items":{"type":"string","enum":["a","b","c"]}}"#,
            |n| (list(n, |_| r#""a""#.into()), list(n, |_| r#""d""#.into())),
        ),
    ];
    let mut wrong = Vec::new();
    for (what, schema, of) in cases {
        let kind = Kind::new(schema);
        wrong.extend(too_fast(what, 4_000, &|n, times| {
            let (old, new) = of(n);
            let (old, new) = (kind.tree(&old), kind.tree(&new));
            times.step("update", || kind.update(&old, &new));
        }));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A definition's own rules: each level of a deep schema has one, and many fields.
#[test]
fn schemas_with_rules_at_each_level() {
    let wrong = too_fast("a definition with rules at each level", 800, &|n, times| {
        let fields = (0..n / 20).map(|i| format!(r#""f{i}":{{"type":"string","maxLength":9}}"#));
        let fields = fields.collect::<Vec<_>>().join(",");
        let mut schema = r#"{"type":"object"}"#.to_owned();
        for _ in 0..20 {
            schema = format!(
                r#"{{"type":"object","properties":{{"x":{schema},{fields}}},"x-kubernetes-validations":[{{"rule":"self.f0 != 'a'"}}]}}"#
            );
        }
        let kind = Kind::new(&schema);
        let object = kind.tree("{}");
        times.step("compile", || kind.update(&object, &object));
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
