//! Expressions without a schema: each line of the data is an expression of upstream's tests or of our own, with the
//! complaints, the type, the value or the error, and the costs that cel-go v0.26 gave it in Kubernetes' environment.

use std::sync::{Arc, OnceLock};

use cel::{
    Activation, Budget, CompileError, Decision, Environment, EvalError, Opaque, Question, Subject, Type,
    Value, Variables, Version, literal,
};
use ferrokube_cel as cel;
use serde_json::Value as Json;

fn environment() -> Environment {
    Environment::new(Version::STORED)
        .with_variable("authorizer", Type::object("kubernetes.authorization.Authorizer"))
        .with_variable("s", Type::String)
        .with_variable("i", Type::Int)
        .with_variable("d", Type::Dyn)
        .with_variable("l", Type::list(Type::String))
        .with_variable("m", Type::map(Type::String, Type::Dyn))
        .with_json_patch()
}

/// A value of JSON as a value of the language.
fn value(of: &Json) -> Value<'static> {
    match of {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => n.as_i64().map_or_else(|| Value::Double(n.as_f64().unwrap()), Value::Int),
        Json::String(s) => Value::text(s.as_str()),
        Json::Array(items) => Value::list(items.iter().map(value).collect()),
        Json::Object(entries) => {
            let mut map = cel::MapValue::default();
            for (k, v) in entries {
                map.insert(Value::text(k.as_str()), value(v)).unwrap();
            }
            Value::Map(Arc::new(map))
        }
    }
}

/// Answers every question: `deny` is denied.
struct Answering<'a>(Variables<'a>);

impl<'a> Activation<'a> for Answering<'a> {
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.0.variable(name)
    }
    fn decision(&self, question: &Question) -> Option<Decision> {
        let (Question::Path { verb, .. } | Question::Resource { verb, .. }) = question;
        let allowed = verb != "deny";
        Some(Decision { allowed, reason: if allowed { "" } else { "no" }.into(), error: None })
    }
}

fn variables() -> Answering<'static> {
    Answering(
        Variables::default()
            .with("authorizer", Value::opaque(Opaque::Authorizer(Subject::User)))
            .with("s", Value::text("hello wörld"))
            .with("i", Value::Int(42))
            .with("d", value(&serde_json::json!({"a": 1, "b": ["x", 2.5, null, true]})))
            .with("l", value(&serde_json::json!(["a", "b", "c"])))
            .with("m", value(&serde_json::json!({"k": "v", "n": 3, "o": {"p": "q"}}))),
    )
}

/// What we make of an expression, in the form of the data.
fn ours(expression: &str) -> Vec<(&'static str, String)> {
    static ENV: OnceLock<Environment> = OnceLock::new();
    let program = match ENV.get_or_init(environment).compile(expression) {
        Ok(program) => program,
        Err(CompileError::Issues(issues)) => return vec![("issues", issues.to_string())],
        Err(CompileError::Constant(text)) => return vec![("plan", text)],
    };
    let mut out = vec![("type", program.result_type().long_name())];
    let estimate = program.static_cost();
    out.push(("min", estimate.min.to_string()));
    out.push(("max", estimate.max.to_string()));
    let mut budget = Budget::default();
    match program.evaluate(&variables(), &mut budget) {
        Ok(v) => out.push(("value", literal(&v))),
        Err(e) => out.push(("error", e.to_string())),
    }
    out.push(("cost", budget.last().to_string()));
    out
}

fn text(of: &Json) -> String {
    of.as_str().map_or_else(|| of.to_string(), str::to_owned)
}

#[test]
fn upstreams_results() {
    let mut wrong = Vec::new();
    let lines: Vec<&str> = include_str!("data/expressions.jsonl").lines().collect();
    for line in &lines {
        let case: Json = serde_json::from_str(line).unwrap();
        let expression = case["e"].as_str().unwrap();
        let planned = case.get("plan").is_some();
        for (key, got) in ours(expression) {
            let expected = case.get(key).map(text);
            if planned && key != "plan" || expected.as_ref() == Some(&got) {
                continue;
            }
            wrong.push(format!("{expression}\n  {key}: {}\n  got: {got}", expected.unwrap_or("-".into())));
        }
    }
    let shown = wrong.join("\n");
    assert!(wrong.is_empty(), "{} of {} lines:\n{shown}", wrong.len(), lines.len());
}
