//! Rules for writes to statuses: each line of the table is a stored object, fields of a status that a client writes
//! over the stored ones, and the reasons for which upstream's server refused that.

#![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

use crate::support;
use api::{Gate, Schema};
use ferrokube_kinds as kinds;
use kinds::{Ctx, strategy};
use serde_json::Value;

#[test]
fn statuses_are_refused_as_upstream_refuses_them() {
    let schema = Schema::builtin();
    let rows = include_str!("data/statuses.jsonl").lines().map(|l| l.parse::<Value>().unwrap());
    let gates = support::all_but(&[Gate::DRANodeAllocatableResources, Gate::ImageVolumeWithDigest]);
    let warn = |_: String| {};
    let ctx = Ctx { schema, now: "2026-01-02T03:04:05Z", gates, privileged: true, warn: &warn };
    for row in rows {
        let stored = &row["stored"];
        let (kind, plural) = support::kind_of(stored);
        let read = |object: &Value| support::read(schema, &kind, object);
        let mut sent = stored.clone();
        for (field, value) in row["status"].as_object().unwrap() {
            sent["status"][field] = value.clone();
        }
        let (mut new, old) = (read(&sent), read(stored));
        kinds::gated::Gated::new(schema, gates).strip(&mut new, Some(&old));
        let rules = strategy(&kind.group, plural);
        let rules = rules.subresource("status").unwrap();
        rules.prepare_update(&ctx, &mut new, &old);
        let refused: Vec<String> =
            rules.validate_update(&ctx, &new, &old).iter().map(ToString::to_string).collect();
        let mut expected: Vec<&str> =
            row["refused"].as_array().unwrap().iter().map(|r| r.as_str().unwrap()).collect();
        let mut refused: Vec<&str> = refused.iter().map(String::as_str).collect();
        // Upstream lists the entries of a map in any order.
        expected.sort_unstable();
        refused.sort_unstable();
        assert_eq!(refused, expected, "{} {}", kind.kind, row["status"]);
    }
}
