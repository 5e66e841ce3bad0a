//! Workloads and PodGroups, whose fields are behind three gates: upstream's cases, with its answers.
//!
//! Each line of the table is a case of the test that it names (`pkg/registry/scheduling`): a create, or an update of `old`,
//! with these gates on. `errors` are the beginnings of all that validation alone says; where a strategy `drops` fields
//! before, `error` is a part of the one error, and `stored` the object that is kept.
//!
//! One case is left out: that a PodGroup needs a `disruptionMode` where the gate is on. It has one by default.

#![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

use std::collections::BTreeMap;

use api::codec::json;
use api::{FeatureGates, Gate, Schema, Struct};
use ferrokube_kinds as kinds;
use kinds::gated::Gated;
use kinds::{Ctx, strategy};
use serde_json::Value;

use crate::support;

const GATES: [Gate; 3] =
    [Gate::TopologyAwareWorkloadScheduling, Gate::WorkloadAwarePreemption, Gate::DRAWorkloadResourceClaims];

/// An object as it is written, without defaults.
fn read(object: &Value) -> Struct {
    let (schema, (kind, _)) = (Schema::builtin(), support::kind_of(object));
    json::decode(schema, schema.kind(&kind).unwrap(), object.to_string().as_bytes()).unwrap().tree
}

/// The errors of a write, and what is left of it.
fn written(row: &Value) -> (Vec<String>, Struct) {
    let schema = Schema::builtin();
    let (kind, plural) = support::kind_of(&row["object"]);
    let on = |gate: Gate| row["gates"].as_array().unwrap().iter().any(|g| g == &gate.to_string());
    let gates = GATES.into_iter().fold(FeatureGates::default(), |all, gate| all.with(gate, on(gate)));
    let warn = |_: String| {};
    let ctx = Ctx { schema, now: "2026-01-02T03:04:05Z", gates, privileged: true, warn: &warn };
    let rules = strategy(&kind.group, plural);
    let (mut new, old) = (read(&row["object"]), row.get("old").map(read));
    let drops = row["drops"] == true;
    if drops {
        Gated::new(schema, gates).strip(&mut new, old.as_ref());
    }
    let errors = match (&old, row["subresource"].as_str()) {
        (None, _) => {
            if drops {
                rules.prepare_create(&ctx, &mut new);
            }
            rules.validate(&ctx, &new)
        }
        (Some(old), None) => {
            if drops {
                rules.prepare_update(&ctx, &mut new, old);
            }
            rules.validate_update(&ctx, &new, old)
        }
        (Some(old), Some(name)) => {
            let rules = rules.subresource(name).unwrap();
            if drops {
                rules.prepare_update(&ctx, &mut new, old);
            }
            rules.validate_update(&ctx, &new, old)
        }
    };
    (errors.iter().map(ToString::to_string).collect(), new)
}

/// The fault of the answer to a case.
fn check(row: &Value) -> Result<(), String> {
    let (mut errors, new) = written(row);
    if let Some(expected) = row["errors"].as_array() {
        let mut expected: Vec<&str> = expected.iter().map(|e| e.as_str().unwrap()).collect();
        errors.sort_unstable();
        expected.sort_unstable();
        let same = errors.len() == expected.len()
            && errors.iter().zip(&expected).all(|(got, start)| got.starts_with(start));
        return if same { Ok(()) } else { Err(format!("{errors:?} instead of {expected:?}")) };
    }
    match (row["error"].as_str(), errors.as_slice()) {
        (Some(part), [one]) if one.contains(part) => return Ok(()),
        (None, []) => {}
        (expected, got) => return Err(format!("{got:?} instead of {expected:?}")),
    }
    let Some(stored) = row.get("stored") else { return Ok(()) };
    let text = |tree: &Struct| {
        let mut text = Vec::new();
        json::encode(Schema::builtin(), tree, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    };
    let (got, stored) = (text(&new), text(&read(stored)));
    if got == stored { Ok(()) } else { Err(format!("{got} instead of {stored}")) }
}

#[test]
fn upstreams_cases() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in include_str!("data/workloads.jsonl").lines().map(|l| l.parse::<Value>().unwrap()) {
        let test = row["test"].as_str().unwrap();
        *counts.entry(test.to_owned()).or_default() += 1;
        if let Err(why) = check(&row) {
            wrong.push(format!("{test}, {}: {why}", row["name"]));
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let counts: Vec<(&str, usize)> = counts.iter().map(|(test, n)| (test.as_str(), *n)).collect();
    assert_eq!(
        counts,
        [
            ("podgroup TestDeclarativeValidate", 52),
            ("podgroup TestDeclarativeValidateStatusUpdate", 7),
            ("podgroup TestDeclarativeValidateUpdate", 29),
            ("podgroup TestDropPodGroupTemplateResourceClaims", 12),
            ("podgroup TestStatusStrategyUpdate", 4),
            ("podgroup TestStrategyCreate", 20),
            ("podgroup TestStrategyUpdate", 17),
            ("workload TestDeclarativeValidate", 58),
            ("workload TestDeclarativeValidateUpdate", 34),
            ("workload TestDropPodGroupTemplateResourceClaims", 12),
            ("workload TestStrategyCreate", 13),
            ("workload TestStrategyUpdate", 16),
        ]
    );
}

/// Of several templates each keeps what it had.
#[test]
fn fields_of_one_template() {
    let template = |name: &str, more: Value| {
        let mut template = serde_json::json!({"name": name, "schedulingPolicy": {"basic": {}}});
        template.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        template
    };
    let workload = |version: &str, templates: [Value; 2]| {
        serde_json::json!({
            "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload",
            "metadata": {"name": "w", "namespace": "default", "resourceVersion": version},
            "spec": {"podGroupTemplates": templates},
        })
    };
    for field in [
        serde_json::json!({"schedulingConstraints": {"topology": [{"key": "rack"}]}}),
        serde_json::json!({"resourceClaims": [{"name": "c", "resourceClaimName": "claim"}]}),
        serde_json::json!({"disruptionMode": "PodGroup"}),
        serde_json::json!({"priorityClassName": "high"}),
        serde_json::json!({"priority": 7}),
    ] {
        let none = || serde_json::json!({});
        let one = || [template("a", field.clone()), template("b", none())];
        let row = serde_json::json!({
            "gates": [], "drops": true, "old": workload("1", one()), "stored": workload("4", one()),
            "object": workload("4", [template("a", field.clone()), template("b", field.clone())]),
        });
        assert_eq!(check(&row), Ok(()), "{field}");
    }
}
