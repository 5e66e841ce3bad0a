//! Rules of definitions: schemas and rules of upstream's tests for custom resources, with the complaint or the cost that
//! upstream estimates, and objects of those tests, with the value or the error of a rule and what it cost.

use std::sync::Arc;

use cel::schema::{Definition, Kind, ListType, Registry, declare, max_cardinality, typed};
use cel::{Activation, Budget, Environment, EvalError, Program, Type, Value, Version, literal};
use ferrokube_cel as cel;
use serde_json::Value as Json;

fn strings(of: &Json) -> Vec<Arc<str>> {
    of.as_array().into_iter().flatten().filter_map(Json::as_str).map(Arc::from).collect()
}

/// A definition from OpenAPI.
fn definition(of: &Json) -> Definition {
    let is = |name: &str| of[name] == Json::Bool(true);
    let child = |name: &str| of.get(name).filter(|d| d.is_object()).map(|d| Arc::new(definition(d)));
    let kind = match of["type"].as_str().unwrap_or_default() {
        "object" => Kind::Object,
        "array" => Kind::Array,
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        _ => Kind::None,
    };
    let properties = of["properties"]
        .as_object()
        .map(|all| all.iter().map(|(n, d)| (Arc::from(n.as_str()), Arc::new(definition(d)))).collect());
    let texts = strings(&of["enum"]);
    let longest = texts.iter().map(|s| s.len() as i64).max().unwrap_or_default();
    Definition {
        kind,
        format: of["format"].as_str().unwrap_or_default().to_owned(),
        nullable: is("nullable"),
        max_length: of["maxLength"].as_i64(),
        max_items: of["maxItems"].as_i64(),
        max_properties: of["maxProperties"].as_i64(),
        longest_enum: of["enum"].as_array().map(|_| longest),
        has_default: of.get("default").is_some_and(|d| !d.is_null()),
        properties,
        required: strings(&of["required"]),
        additional: child("additionalProperties"),
        items: child("items"),
        list_type: match of["x-kubernetes-list-type"].as_str() {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map,
            _ => ListType::Atomic,
        },
        list_map_keys: strings(&of["x-kubernetes-list-map-keys"]),
        int_or_string: is("x-kubernetes-int-or-string"),
        embedded: is("x-kubernetes-embedded-resource"),
        preserve_unknown: is("x-kubernetes-preserve-unknown-fields"),
    }
}

fn schemas() -> Vec<Json> {
    include_str!("data/schemas.jsonl").lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn of<'j>(schemas: &'j [Json], case: &Json) -> &'j Json {
    &schemas[usize::try_from(case["schema"].as_u64().unwrap()).unwrap()]
}

/// Compiles a rule as a definition's; the second number is how often its value fits into a request.
fn compile(schema: &Json, case: &Json) -> Option<(Result<Program, String>, u64)> {
    let declared = declare(&definition(schema), "selfType", case["root"] == Json::Bool(true))?;
    let old = match case["optionalOld"] == Json::Bool(true) {
        true => Type::optional(declared.ty.clone()),
        false => declared.ty.clone(),
    };
    let env = Environment::new(Version::STORED)
        .with_variable("self", declared.ty.clone())
        .with_variable("oldSelf", old)
        .with_objects(Arc::new(Registry::new(declared.clone())));
    let program = env.compile(case["rule"].as_str().unwrap()).map_err(|e| e.to_string());
    Some((program, max_cardinality(&declared)))
}

fn complaint(case: &Json, compiled: &Result<Program, String>) -> String {
    let message = case["message"] == Json::Bool(true);
    match compiled {
        Err(e) if message => format!("messageExpression compilation failed: {e}"),
        Err(e) if e.starts_with("ERROR") => format!("compilation failed: {e}"),
        Err(e) => format!("program instantiation failed: {e}"),
        Ok(p) if message && *p.result_type() != Type::String => {
            "messageExpression must evaluate to a string".into()
        }
        Ok(p) if !message && *p.result_type() != Type::Bool => {
            "cel expression must evaluate to a bool".into()
        }
        Ok(_) => String::new(),
    }
}

fn finish(wrong: &[String], all: usize) {
    let shown = wrong.join("\n");
    assert!(wrong.is_empty(), "{} of {all} lines:\n{shown}", wrong.len());
}

#[test]
fn upstreams_estimates() {
    let schemas = schemas();
    let mut wrong = Vec::new();
    let lines: Vec<&str> = include_str!("data/rules.jsonl").lines().collect();
    for line in &lines {
        let case: Json = serde_json::from_str(line).unwrap();
        let Some((compiled, cardinality)) = compile(of(&schemas, &case), &case) else { continue };
        let (expected, got) = (case["error"].as_str().unwrap_or_default(), complaint(&case, &compiled));
        if expected != got {
            wrong.push(format!("{}\n  error: {expected}\n  got: {got}", case["rule"]));
            continue;
        }
        let Ok(program) = compiled else { continue };
        let pairs =
            [("max", program.static_cost().max.to_string()), ("cardinality", cardinality.to_string())];
        for (key, got) in pairs {
            let expected = match &case[key] {
                Json::Null => continue,
                Json::String(s) => s.clone(),
                other => other.to_string(),
            };
            if expected != got {
                wrong.push(format!("{}\n  {key}: {expected}\n  got: {got}", case["rule"]));
            }
        }
        if case["message"].is_null() && program.uses("oldSelf") != (case["usesOld"] == Json::Bool(true)) {
            wrong.push(format!("{}: whether it uses oldSelf", case["rule"]));
        }
    }
    finish(&wrong, lines.len());
}

/// An object and the one before it.
struct Objects<'a> {
    case: &'a Json,
    definition: &'a Definition,
}

impl<'a> Activation<'a> for Objects<'a> {
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        let case = self.case;
        let definition = self.definition;
        if name == "self" {
            return Some(typed(&case["obj"], definition));
        }
        let optional = case["optionalOld"] == Json::Bool(true);
        match case.get("old") {
            Some(old) => Some(typed(old, definition).map(|v| if optional { Value::some(v) } else { v })),
            None if optional => Some(Ok(Value::Optional(None))),
            None => None,
        }
    }
}

#[test]
fn upstreams_evaluations() {
    let schemas = schemas();
    let mut wrong = Vec::new();
    let lines: Vec<&str> = include_str!("data/evaluations.jsonl").lines().collect();
    for line in &lines {
        let case: Json = serde_json::from_str(line).unwrap();
        let schema = of(&schemas, &case);
        let Some((Ok(program), _)) = compile(schema, &case) else {
            wrong.push(format!("{}: no program", case["rule"]));
            continue;
        };
        let root = definition(schema);
        let root = root.completed(case["root"] == Json::Bool(true) || root.embedded);
        let mut budget = Budget::default();
        let value = program.evaluate(&Objects { case: &case, definition: &root }, &mut budget);
        let got = match value {
            Ok(v) => ("value", literal(&v)),
            Err(e) => ("error", e.to_string()),
        };
        for (key, got) in [got, ("cost", budget.last().to_string())] {
            let expected = case[key].as_str().unwrap_or("-");
            if expected != got {
                wrong.push(format!("{}\n  {key}: {expected}\n  got: {got}", case["rule"]));
            }
        }
    }
    finish(&wrong, lines.len());
}
