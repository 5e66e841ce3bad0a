//! Values at the limits of fields: each line of the table is a write, made or changed from `old`, and the answer of
//! upstream's server: the reasons for a refusal, or the stored values at some paths, with the warnings.

#![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

use std::sync::Mutex;

use crate::support;
use api::codec::json;
use api::{Gate, Schema};
use ferrokube_kinds as kinds;
use kinds::{Ctx, strategy};
use serde_json::Value;

/// Gates that are off in v1.36 by default, and that a row needs off.
const OFF: &[Gate] = &[Gate::ImageVolumeWithDigest];

fn texts(row: &Value, field: &str) -> Vec<String> {
    let list = row[field].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|t| t.as_str().unwrap().to_owned()).collect()
}

#[test]
fn edges_are_as_upstream_has_them() {
    let schema = Schema::builtin();
    for row in include_str!("data/edges.jsonl").lines().map(|l| l.parse::<Value>().unwrap()) {
        let sent = &row["object"];
        let (kind, plural) = support::kind_of(sent);
        let read = |object: &Value| support::read(schema, &kind, object);
        let warnings = Mutex::new(Vec::new());
        let warn = |text| warnings.lock().unwrap().push(text);
        let ctx = Ctx {
            schema,
            now: "2026-01-02T03:04:05Z",
            gates: support::all_but(OFF),
            privileged: true,
            warn: &warn,
        };
        let rules = strategy(&kind.group, plural);
        let mut new = read(sent);
        let old = row.get("old").map(read);
        let refused = match (&old, row["subresource"].as_str()) {
            (None, _) => {
                rules.prepare_create(&ctx, &mut new);
                rules.validate(&ctx, &new)
            }
            (Some(old), None) => {
                rules.prepare_update(&ctx, &mut new, old);
                rules.validate_update(&ctx, &new, old)
            }
            (Some(old), Some(name)) => {
                let rules = rules.subresource(name).unwrap();
                rules.prepare_update(&ctx, &mut new, old);
                rules.validate_update(&ctx, &new, old)
            }
        };
        let mut refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
        let mut expected = texts(&row, "refused");
        // Upstream lists the entries of a map in any order.
        refused.sort_unstable();
        expected.sort_unstable();
        let about = format!("{} {}", kind.kind, sent["metadata"]["name"]);
        assert_eq!(refused, expected, "{about}");
        if row.get("warnings").is_some() {
            let mut warnings = std::mem::take(&mut *warnings.lock().unwrap());
            warnings.extend(rules.warnings(&ctx, &new, old.as_ref()));
            assert_eq!(warnings, texts(&row, "warnings"), "{about}");
        }
        let mut text = Vec::new();
        json::encode(schema, &new, &mut text);
        let stored: Value = serde_json::from_slice(&text).unwrap();
        for (path, value) in row["stored"].as_object().into_iter().flatten() {
            assert_eq!(stored.pointer(path), Some(value), "{about} {path}");
        }
    }
}
