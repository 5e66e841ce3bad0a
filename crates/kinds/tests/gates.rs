//! Fields of features that are on or off: the fields that a create keeps, loses and refuses, and those that an update
//! keeps in an object that was stored while the features were on.
//!
//! Each line of the table is an object and the answer of upstream's server: the paths of the fields that were dropped,
//! or the reason for the refusal. `on` and `off` are creates with all gates of the table on or off; `kept` is an
//! update, with the gates off, that adds a label to the object that was stored while they were on.

#![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

use crate::support;
use std::collections::BTreeSet;

use api::codec::json;
use api::schema::Gvk;
use api::{FeatureGates, Gate, Schema, Struct};
use ferrokube_kinds as kinds;
use kinds::gated::Gated;
use kinds::{Ctx, strategy};
use serde_json::Value;

/// The paths of the scalars of a value.
fn leaves(value: &Value, path: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(m) => {
            m.iter().for_each(|(k, v)| leaves(v, &format!("{path}/{}", k.replace('/', "~1")), out));
        }
        Value::Array(l) => l.iter().enumerate().for_each(|(i, v)| leaves(v, &format!("{path}/{i}"), out)),
        _ => drop(out.insert(path.to_owned())),
    }
}

fn paths(value: &Value) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    leaves(value, "", &mut out);
    out.retain(|p| !matches!(p.as_str(), "/kind" | "/apiVersion") && !p.starts_with("/status"));
    out
}

struct Server {
    schema: &'static Schema,
    on: FeatureGates,
}

impl Server {
    /// The object that is stored, or the refusals.
    fn write(&self, kind: &Gvk, plural: &str, sent: &Value, old: Option<&Struct>) -> Result<Struct, Value> {
        let mut tree = support::read(self.schema, kind, sent);
        let warn = |_: String| {};
        let ctx = Ctx {
            schema: self.schema,
            now: "2026-01-02T03:04:05Z",
            gates: self.on,
            privileged: true,
            warn: &warn,
        };
        let rules = strategy(&kind.group, plural);
        Gated::new(self.schema, self.on).strip(&mut tree, old);
        let errors = match old {
            None => {
                rules.prepare_create(&ctx, &mut tree);
                rules.validate(&ctx, &tree)
            }
            Some(old) => {
                rules.prepare_update(&ctx, &mut tree, old);
                rules.validate_update(&ctx, &tree, old)
            }
        };
        if errors.is_empty() {
            return Ok(tree);
        }
        let refused: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Err(serde_json::json!({ "refused": refused }))
    }

    fn read(&self, tree: &Struct) -> Value {
        let mut text = Vec::new();
        json::encode(self.schema, tree, &mut text);
        serde_json::from_slice(&text).unwrap()
    }

    /// The outcome of a write in the form of the table.
    fn outcome(&self, sent: &Value, written: Result<Struct, Value>) -> Value {
        match written {
            Err(refused) => refused,
            Ok(tree) => {
                let stored = self.read(&tree);
                let have = paths(&stored);
                paths(sent).into_iter().filter(|p| !have.contains(p)).collect::<Vec<_>>().into()
            }
        }
    }
}

fn sorted(mut outcome: Value) -> Value {
    if let Value::Array(paths) = &mut outcome {
        paths.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    }
    outcome
}

#[test]
fn gated_fields_as_upstream_has_them() {
    let schema = Schema::builtin();
    let rows: Vec<Value> = include_str!("data/gates.jsonl").lines().map(|l| l.parse().unwrap()).collect();
    let gates: BTreeSet<Gate> = rows
        .iter()
        .flat_map(|r| r["gates"].as_array().unwrap())
        .map(|g| Gate::named(g.as_str().unwrap()).unwrap())
        .collect();
    assert!(gates.len() > 25);
    let gates: Vec<Gate> = gates.into_iter().collect();
    let server = |off| Server { schema, on: support::all_but(off) };
    let (on, off) = (server(&[]), server(&gates));
    for row in &rows {
        let sent = &row["object"];
        let (kind, plural) = support::kind_of(sent);
        let name = &sent["metadata"]["name"];
        let with = on.write(&kind, plural, sent, None);
        assert_eq!(on.outcome(sent, with.clone()), sorted(row["on"].clone()), "{name}, on");
        let without = off.write(&kind, plural, sent, None);
        assert_eq!(off.outcome(sent, without), sorted(row["off"].clone()), "{name}, off");
        let Ok(stored) = with else { continue };
        if row["kept"].is_null() {
            continue;
        }
        let mut update = on.read(&stored);
        update["metadata"]["labels"]["new"] = "x".into();
        update["metadata"]["resourceVersion"] = "1".into();
        let kept = off.write(&kind, plural, &update, Some(&stored));
        assert_eq!(off.outcome(&update, kept), sorted(row["kept"].clone()), "{name}, kept");
    }
}
