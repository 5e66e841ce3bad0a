//! Definitions and schemas with the errors that upstream finds.
//!
//! `tests/data/definitions.jsonl` has a case a line: the definitions and schemas of upstream's `validation_test.go` in
//! version v1, with all errors that upstream's validation reports about them.

use api::codec::json;
use api::field::{Errors, Path};
use api::schema::{Gvk, Schema};
use api::status::FieldError;
use api::view::View;
use api::{FeatureGates, Struct};
use serde_json::Value;

use super::DEFINITION;
use super::schema::{Former, Look, check, has_default};
use crate::strategy::Ctx;

const CASES: &str = include_str!("../../../tests/data/definitions.jsonl");

fn tree(schema: &Schema, root: api::StructId, value: &Value) -> Struct {
    let node = json::decode_any(value.to_string().as_bytes()).unwrap();
    json::root_from_any(schema, root, node).unwrap().tree
}

/// An error as the cases write it.
fn line(e: &FieldError) -> String {
    format!("{}|{}|{}", e.kind.reason(), e.field, e.detail)
}

/// The differences between the errors that were found and those that upstream finds.
fn differences(case: &Value, found: &[FieldError]) -> Vec<String> {
    let expected: Vec<&str> =
        case["errors"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    let mut found: Vec<String> = found.iter().map(line).collect();
    let mut out = Vec::new();
    for e in expected {
        match found.iter().position(|f| f == e) {
            Some(i) => drop(found.swap_remove(i)),
            None => out.push(format!("  missing: {e}")),
        }
    }
    out.extend(found.into_iter().map(|f| format!("  not upstream's: {f}")));
    out
}

/// DIFFERENCE: there is no environment of a version before 1.30, in which words of the language were no names of fields;
/// and after the first syntax error, the errors that antlr finds in the rest are not reported.
fn skipped(name: &str) -> bool {
    name.ends_with("(keywords_are_invalid_field_names_before_v1.30)")
        || name == "valid_x-kubernetes-validations_for_escaping"
}

#[test]
fn errors_are_upstreams() {
    let schema = Schema::builtin();
    let gvk = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let root = schema.kind(&gvk).unwrap();
    let warn = |_: String| {};
    let c = Ctx {
        schema,
        now: "2026-01-02T03:04:05Z",
        gates: FeatureGates::default(),
        privileged: true,
        warn: &warn,
    };
    let mut wrong = Vec::new();
    let mut count = 0;
    for text in CASES.lines() {
        let case: Value = serde_json::from_str(text).unwrap();
        if skipped(case["name"].as_str().unwrap()) {
            continue;
        }
        let found = match case["kind"].as_str().unwrap() {
            "create" => (DEFINITION.validate)(&c, &tree(schema, root, &case["new"])),
            "update" => {
                let [new, old] = ["new", "old"].map(|f| tree(schema, root, &case[f]));
                (DEFINITION.validate_update)(&c, &new, &old)
            }
            _ => {
                let holder = serde_json::json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": case["schema"]}}]}});
                let holder = tree(schema, root, &holder);
                let view = View::new(schema, &holder);
                let version = view.st("spec").items("versions").next().unwrap();
                let s = version.st("schema").st("openAPIV3Schema");
                let flag = |name: &str| case[name].as_bool().unwrap();
                if has_default(s) && !(flag("allowDefaults") && flag("pruned")) {
                    // Versions before v1 had no defaults, or kept unknown fields in them.
                    continue;
                }
                let mut former = Former::default();
                former.unknown_types = !flag("types");
                former.sets_of_merged = !flag("atomicSets");
                former.loose_keys = !flag("keys");
                let look = Look {
                    has_status: flag("status"),
                    structural: flag("structural"),
                    unchanged: flag("suppress"),
                    former: &former,
                };
                let mut errs = Errors::new();
                check(&mut errs, &Path::root("spec.validation.openAPIV3Schema"), s, look);
                errs.0
            }
        };
        count += 1;
        let differences = differences(&case, &found);
        if !differences.is_empty() {
            wrong.push(format!("{} {}\n{}", case["kind"], case["name"], differences.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// A field for which upstream has no structural form, and which its walk through a schema passes over, is refused after
/// that walk.
#[test]
fn a_schema_names_no_dialect() {
    let schema = Schema::builtin();
    let gvk = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let root = schema.kind(&gvk).unwrap();
    let find = |of: &str| {
        let of: Value = serde_json::from_str(of).unwrap();
        let holder = serde_json::json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": of}}]}});
        let holder = tree(schema, root, &holder);
        let version = View::new(schema, &holder).st("spec").items("versions").next().unwrap();
        let look = Look { has_status: false, structural: true, unchanged: false, former: &Former::default() };
        // Errors about other things do not matter.
        let mut errs = Errors::new();
        errs.required(&Path::root("spec.group"), "");
        check(&mut errs, &Path::root("at"), version.st("schema").st("openAPIV3Schema"), look);
        errs.0[1..].iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    const REFUSED: &str = r#"at: Invalid value: "": OpenAPIV3Schema 'schema' is not supported"#;
    let nothing: [&str; 0] = [];
    assert_eq!(find(r#"{"type":"object","properties":{"a":{"type":"string"}}}"#), nothing);
    assert_eq!(find(r#"{"type":"object","$schema":"x"}"#), [REFUSED]);
    assert_eq!(find(r#"{"type":"object","properties":{"a":{"type":"string","$schema":"x"}}}"#), [REFUSED]);
    assert_eq!(
        find(r#"{"type":"object","properties":{"a":{"type":"string","anyOf":[{"$schema":"x"}]}}}"#),
        [REFUSED]
    );
    assert_eq!(find(r#"{"type":"object","$schema":""}"#), nothing);
    // Where upstream finds something else, it says nothing of this.
    assert_eq!(
        find(r#"{"type":"object","$schema":"x","properties":{"a":{"type":"string","id":"x"}}}"#),
        ["at.properties[a].id: Forbidden: id is not supported"]
    );
}
