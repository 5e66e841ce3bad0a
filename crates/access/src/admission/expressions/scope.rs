//! The evaluation of expressions that have variables in common, within a budget.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::go::quote;
use cel::{Activation, Budget, Decision, EvalError, Foreign, PER_CALL_LIMIT, Question, Shape, Text, Value};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Expression, Input};
use crate::UserInfo;
use crate::admission::plugin::Env;
use crate::auth::{self, Access, Authorizer};

/// How deeply variables may be built of variables.
///
/// DIFFERENCE: upstream has no limit; an evaluation's stack is bounded here.
const MOST_NESTED: u64 = 32;
/// An evaluation that cost so much lets others have their turn.
const LONG: u64 = 50_000;

/// A variable that a policy defines.
#[derive(Debug)]
pub(in crate::admission) struct Variable {
    pub(in crate::admission) name: String,
    pub(in crate::admission) expression: Expression,
}

/// The end of all evaluations: they cost more than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admission) struct OutOfBudget;

impl std::fmt::Display for OutOfBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "validation failed due to running out of cost budget, no further validation rules will be run",
        )
    }
}

/// What an expression came to.
pub(in crate::admission) struct Evaluated<'a> {
    /// The value, or upstream's text.
    pub(in crate::admission) value: Result<Value<'a>, String>,
    pub(in crate::admission) elapsed: Duration,
}

/// The evaluations of expressions about one input. A variable is worked out when an expression first names it.
pub(in crate::admission) struct Scope<'a>(Arc<State<'a>>);

struct State<'a> {
    env: &'a Env,
    input: &'a Input<'a>,
    variables: &'a [Variable],
    /// The variables that were worked out.
    known: Mutex<HashMap<usize, Result<Value<'a>, EvalError>>>,
    /// The authorizer's answers.
    decisions: Mutex<HashMap<Question, Decision>>,
    /// The cost of variables since the last evaluation ended.
    spent: AtomicU64,
    nested: AtomicU64,
}

impl<'a> Scope<'a> {
    pub(in crate::admission) fn new(env: &'a Env, input: &'a Input<'a>, variables: &'a [Variable]) -> Self {
        Self(Arc::new(State {
            env,
            input,
            variables,
            known: Mutex::default(),
            decisions: Mutex::default(),
            spent: AtomicU64::new(0),
            nested: AtomicU64::new(0),
        }))
    }

    /// Evaluates an expression, and takes its cost off the budget.
    pub(in crate::admission) async fn evaluate(
        &self,
        expression: &Expression,
        left: &mut u64,
    ) -> Result<Evaluated<'a>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => {
                let value = Err(format!("compilation error: {why}"));
                return Ok(Evaluated { value, elapsed: Duration::ZERO });
            }
        };
        let began = Instant::now();
        let (value, cost) = loop {
            let mut budget = Budget::new(PER_CALL_LIMIT, u64::MAX);
            match program.evaluate(&Lookup(&self.0), &mut budget) {
                Err(EvalError::Pending(question)) => self.ask(*question).await,
                value => break (value, budget.last()),
            }
        };
        let elapsed = began.elapsed();
        for cost in [self.0.spent.swap(0, Ordering::Relaxed), cost] {
            *left = left.checked_sub(cost).ok_or(OutOfBudget)?;
            if cost > LONG {
                tokio::task::yield_now().await;
            }
        }
        let value = value.map_err(|e| format!("expression '{}' resulted in error: {e}", expression.text));
        Ok(Evaluated { value, elapsed })
    }

    /// Asks the authorizer, and keeps the answer.
    async fn ask(&self, question: Question) {
        let state = &self.0;
        let user = state.input.request().user;
        let (subject, access) = match &question {
            Question::Path { subject, path, verb } => (subject, Access { verb, path, ..Access::default() }),
            Question::Resource { check, verb } => (
                &check.subject,
                Access {
                    is_resource: true,
                    verb,
                    group: &check.group,
                    resource: &check.resource,
                    subresource: &check.subresource,
                    namespace: &check.namespace,
                    name: &check.name,
                    field_selector: &check.field_selector,
                    ..Access::default()
                },
            ),
        };
        let account = match subject {
            cel::Subject::User => None,
            cel::Subject::ServiceAccount { namespace, name } => Some(UserInfo {
                name: format!("system:serviceaccount:{namespace}:{name}").into(),
                groups: vec![
                    "system:serviceaccounts".into(),
                    format!("system:serviceaccounts:{namespace}").into(),
                    "system:authenticated".into(),
                ],
                ..UserInfo::default()
            }),
        };
        let user = account.as_ref().unwrap_or(user);
        let answer = match state.env.authorizer.authorize(user, &access).get().await {
            auth::Decision::Allow(reason) => Decision { allowed: true, reason, error: None },
            auth::Decision::Deny(reason) | auth::Decision::NoOpinion(reason) => {
                Decision { allowed: false, reason, error: None }
            }
        };
        state.decisions.lock().insert(question, answer);
    }
}

/// The variables of an evaluation.
struct Lookup<'s, 'a>(&'s Arc<State<'a>>);

impl<'a> Activation<'a> for Lookup<'_, 'a> {
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        if name == "variables" {
            return Some(Ok(Value::foreign(Lazy(Arc::downgrade(self.0)))));
        }
        self.0.input.variable(name).map(Ok)
    }
    fn decision(&self, question: &Question) -> Option<Decision> {
        self.0.decisions.lock().get(question).cloned()
    }
}

/// `variables`. It holds its scope weakly, since a value that is kept there may hold it.
struct Lazy<'a>(Weak<State<'a>>);

impl<'a> Lazy<'a> {
    fn work_out(&self, key: &str) -> Result<Option<Value<'a>>, EvalError> {
        let Some(state) = self.0.upgrade() else { return Ok(None) };
        // Of several with one name the last counts.
        let Some(at) = state.variables.iter().rposition(|v| v.name == key) else { return Ok(None) };
        if let Some(known) = state.known.lock().get(&at) {
            return known.clone().map(Some);
        }
        let program = match &state.variables[at].expression.program {
            Ok(program) => program,
            Err(why) => {
                let name = quote(key);
                return Err(EvalError::new(format!("composited variable {name} fails to compile: {why}")));
            }
        };
        if state.nested.fetch_add(1, Ordering::Relaxed) >= MOST_NESTED {
            state.nested.fetch_sub(1, Ordering::Relaxed);
            let name = quote(key);
            let why = format!("composited variable {name} is built of more than {MOST_NESTED} variables");
            return Err(EvalError::new(why));
        }
        let mut budget = Budget::new(PER_CALL_LIMIT, u64::MAX);
        let value = program.evaluate(&Lookup(&state), &mut budget);
        state.nested.fetch_sub(1, Ordering::Relaxed);
        let value = match value {
            Err(pending @ EvalError::Pending(_)) => return Err(pending),
            Err(why) => {
                let name = quote(key);
                Err(EvalError::new(format!("composited variable {name} fails to evaluate: {why}")))
            }
            value => value,
        };
        state.spent.fetch_add(budget.last(), Ordering::Relaxed);
        state.known.lock().insert(at, value.clone());
        value.map(Some)
    }
}

impl Foreign for Lazy<'_> {
    fn shape(&self) -> Shape {
        Shape::Object
    }
    fn len(&self) -> usize {
        self.0.upgrade().map_or(0, |state| state.variables.len())
    }
    fn get<'v>(&self, key: &str) -> Result<Option<Value<'v>>, EvalError>
    where
        Self: 'v,
    {
        self.work_out(key)
    }
    fn keys<'v>(&self) -> Vec<Text<'v>>
    where
        Self: 'v,
    {
        let Some(state) = self.0.upgrade() else { return Vec::new() };
        state.variables.iter().map(|v| Text::from(v.name.clone())).collect()
    }
    fn type_name(&self) -> Arc<str> {
        "kubernetes.variables".into()
    }
}
