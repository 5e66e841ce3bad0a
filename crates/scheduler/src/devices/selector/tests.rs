//! Upstream's own cases of selectors (the table of `cel/compile_test.go`), with what upstream v1.36.2 answers to each. The
//! estimated costs are those of validation.

use std::sync::Arc;

use cel::Version;
use cel::admission::{device, selector};
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};

use super::super::stock::Slice;
use super::*;

const CASES: &str = include_str!("../cases/selectors.jsonl");

fn slice(case: &Value) -> Slice {
    let driver = case.get("driver").cloned().unwrap_or_else(|| json!(""));
    let object = json!({"metadata": {"name": "s"}, "spec": {
        "driver": driver, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d", "attributes": case["attributes"], "capacity": case["capacity"],
            "allowMultipleAllocations": case["multiple"]}],
    }});
    Slice::new(Arc::new(serde_json::from_value::<ResourceSlice>(object).unwrap()))
}

#[test]
fn upstreams_selectors() {
    let (mut cases, mut wrong) = (0, Vec::new());
    let mut check = |name: &str, got: String, expected: String| {
        if got != expected {
            wrong.push(format!("{name}:\n  got      {got}\n  expected {expected}"));
        }
    };
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let (name, expression) = (case["name"].as_str().unwrap(), case["expression"].as_str().unwrap());
        if name == "allow_multiple_allocations_disabled" {
            // DIFFERENCE: expressions know the field, whether the gate DRAConsumableCapacity is on or not.
            continue;
        }
        cases += 1;
        let version = if case["new"] == true { Version::NEW } else { Version::STORED };
        let program = match (selector(&device(version), expression), case.get("compileError")) {
            (Ok(program), None) => program,
            (Err(why), Some(error)) => {
                check(name, why, error.as_str().unwrap().to_owned());
                continue;
            }
            (got, expected) => {
                check(name, format!("{:?}", got.map(drop)), format!("{expected:?}"));
                continue;
            }
        };
        check(
            name,
            format!("estimated {}", program.static_cost().max),
            format!("estimated {}", case["maxCost"]),
        );
        let slice = slice(&case);
        let (answer, cost) = Selectors::default().answer(expression, &slice, 0);
        let cost = cost.unwrap();
        let answer = answer.map_err(|e| match e {
            Unanswered::Compile(why) | Unanswered::Runtime(why) => why,
        });
        let expected = match case.get("matchError") {
            Some(error) => Err(error.as_str().unwrap().to_owned()),
            None => Ok(case["matches"] == true),
        };
        check(name, format!("{answer:?}"), format!("{expected:?}"));
        if let Some(expected) = case["cost"].as_u64() {
            check(name, format!("cost {cost}"), format!("cost {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(cases, 38);
}

#[test]
fn expressions_are_kept_and_bounded() {
    let selectors = Selectors::default();
    let slice = slice(&json!({"driver": "x"}));
    for i in 0..2 * KEPT {
        let expression = format!("device.driver == \"x\" && {i} >= 0");
        assert_eq!(selectors.answer(&expression, &slice, 0).0, Ok(true));
    }
    assert_eq!(selectors.kept.lock().unwrap().programs.len(), KEPT);
}
