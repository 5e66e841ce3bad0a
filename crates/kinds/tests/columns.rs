//! Columns, compared with the output of upstream's printers.
//!
//! `data/columns.json` has a case a line: the objects of `pkg/printers/internalversion/printers_test.go` in their first
//! version, and some more, each with the cells that upstream's wide output has for it at that time. CSIStorageCapacity
//! is left out: upstream has a printer of it that its API server does not use.

#![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

use api::Schema;
use api::resources::builtin;
use api::schema::Gvk;
use ferrokube_kinds::columns::{Row, Shown};
use ferrokube_kinds::strategy;
use serde_json::Value;

/// The row of an object, made of its stored form as the API server makes it.
fn row(object: &Value, now: &str) -> Row {
    let schema = Schema::builtin();
    let [api_version, kind] = ["apiVersion", "kind"].map(|f| object[f].as_str().unwrap());
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = Gvk::new(group, version, kind);
    let body = object.to_string();
    let tree = api::codec::json::decode(schema, schema.kind(&gvk).unwrap(), body.as_bytes()).unwrap().tree;
    let now = now.parse().unwrap();
    let info = builtin().iter().find(|r| (r.group, r.version, r.kind) == (group, version, kind));
    let Some(info) = info else { return (Shown::of(&gvk).row)(schema, &tree, now) };
    let rules = strategy(group, info.resource);
    let tree = match &rules.facts().storage {
        Some(storage) => rules.convert(schema, tree, &gvk, &storage.kind).unwrap(),
        None => tree,
    };
    rules.row(schema, &tree, now)
}

#[test]
fn cells_are_upstreams() {
    let mut wrong = Vec::new();
    for line in include_str!("data/columns.json").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let got = row(&case["object"], case["now"].as_str().unwrap());
        let (cells, conditions) = (Value::from(got.cells), Value::from(got.conditions));
        let no_conditions = Value::Array(Vec::new());
        if cells != case["cells"] || &conditions != case.get("conditions").unwrap_or(&no_conditions) {
            wrong.push(format!("{line}\n  got {cells} {conditions}"));
        }
    }
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}
