//! The expressions of a ValidatingAdmissionPolicy, and what they decide about a request (upstream:
//! `policy/validating/validator.go`).

use std::sync::Arc;
use std::time::Duration;

use cel::admission::{Composed, Parts, admission, with_composed};
use cel::{RUNTIME_BUDGET, Type, Value, Version};

use super::source::Compiled;
use super::stored::{PolicySpec, Validation};
use crate::admission::expressions::{Conditions, Expression, Input, Met, Metrics, Named, Scope, Variable};
use crate::admission::plugin::Env;
use crate::reader::ResourceName;

/// The greatest length of a message that an expression makes, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// The expressions of a policy.
pub(super) struct Validator {
    pub(super) variables: Vec<Variable>,
    conditions: Conditions,
    validations: Vec<(Validation, Expression, Option<Expression>)>,
    annotations: Vec<(String, Expression)>,
    fails: bool,
    /// Whether an expression looks at the request's namespace.
    pub(super) uses_namespace: bool,
}

/// The decision of a validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It holds.
    Admit,
    /// It does not hold, for this reason and with this message.
    Deny(String, String),
    /// It could not be evaluated, which is as if it did not hold if the failure policy is `Fail`.
    Error(String, bool),
}

/// A verdict, and how long it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) verdict: Verdict,
    pub(super) elapsed: Duration,
}

/// The fate of an audit annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Annotation {
    /// It is published.
    Publish(String, String),
    /// It is left out.
    Exclude,
    /// It could not be evaluated.
    Error(String, Duration),
}

/// The decisions about a request.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) decisions: Vec<Decision>,
    pub(super) annotations: Vec<Annotation>,
}

impl Compiled for Validator {
    const POLICIES: ResourceName = ("admissionregistration.k8s.io", "validatingadmissionpolicies");
    const BINDINGS: ResourceName = ("admissionregistration.k8s.io", "validatingadmissionpolicybindings");

    fn new(_: &str, spec: &PolicySpec) -> Self {
        let params = spec.param_kind.is_some();
        let composed = Arc::new(Composed::default());
        let env = |authorizer| {
            let env = admission(Version::STORED, Parts { params, authorizer, mutations: false });
            with_composed(env, Arc::clone(&composed))
        };
        let (common, messages) = (env(true), env(false));
        let variables = variables(spec, &common, &composed);
        let validations: Vec<_> = spec
            .validations
            .iter()
            .map(|v| {
                let message = Some(&v.message_expression).filter(|m| !m.is_empty());
                let message = message.map(|m| Expression::new(&messages, m, &[Type::String]));
                (v.clone(), Expression::new(&common, &v.expression, &[Type::Bool]), message)
            })
            .collect();
        let wanted = [Type::String, Type::Null];
        let annotations: Vec<_> = spec
            .audit_annotations
            .iter()
            .map(|a| (a.key.clone(), Expression::new(&common, a.value_expression.trim(), &wanted)))
            .collect();
        let uses_namespace = {
            let all = variables.iter().map(|v| &v.expression);
            let all = all.chain(validations.iter().flat_map(|(_, e, m)| [Some(e), m.as_ref()]).flatten());
            all.chain(annotations.iter().map(|(_, e)| e)).any(|e| e.uses("namespaceObject"))
        };
        Self {
            uses_namespace,
            conditions: Conditions::new(&common, &spec.match_conditions, spec.fails()),
            variables,
            validations,
            annotations,
            fails: spec.fails(),
        }
    }
}

/// Compiles the variables of a policy; those that follow may use them.
pub(super) fn variables(spec: &PolicySpec, env: &cel::Environment, composed: &Composed) -> Vec<Variable> {
    let compiled = spec.variables.iter().map(|v| {
        let expression = Expression::new(env, &v.expression, &[]);
        let ty = expression.program.as_ref().map_or(Type::Dyn, |p| p.result_type().clone());
        composed.add(&v.name, ty);
        Variable { name: v.name.clone(), expression }
    });
    compiled.collect()
}

impl Validator {
    /// Decides about a request. `name` is the policy's; `without_namespace` is the input of match conditions, which do
    /// not see the request's namespace.
    pub(super) async fn validate<'a>(
        &'a self,
        env: &'a Env,
        input: &'a Input<'a>,
        without_namespace: &'a Input<'a>,
        metrics: &Metrics,
        name: &str,
    ) -> Outcome {
        if !self.conditions.is_empty() {
            let operation = input.operation();
            let named = Named { kind: "policy", step: "validate", name, operation };
            let scope = Scope::new(env, without_namespace, &self.variables);
            match self.conditions.met(&scope, metrics, named).await {
                Met::Yes => {}
                Met::No => return Outcome::default(),
                Met::Failed(why) => return self.failed(why),
            }
        }
        let mut left = RUNTIME_BUDGET;
        let scope = Scope::new(env, input, &self.variables);
        let mut values = Vec::with_capacity(self.validations.len());
        for (_, expression, _) in &self.validations {
            match scope.evaluate(expression, &mut left).await {
                Ok(evaluated) => values.push(evaluated),
                Err(end) => return self.failed(end.to_string()),
            }
        }
        // Variables are worked out anew for messages.
        let messages = Scope::new(env, input, &self.variables);
        let mut decisions = Vec::with_capacity(values.len());
        let mut ended: Option<String> = None;
        for ((validation, _, message), evaluated) in self.validations.iter().zip(values) {
            let verdict = match (evaluated.value, &ended) {
                (Err(why), _) => Verdict::Error(why, self.fails),
                (Ok(Value::Bool(true)), _) => Verdict::Admit,
                (Ok(_), Some(end)) => Verdict::Error(end.clone(), self.fails),
                // DIFFERENCE: upstream makes the messages of validations that hold, too, and if that costs too much,
                // these fail. Here only a message that is wanted is made.
                (Ok(_), None) => match self.message(&messages, validation, message.as_ref(), &mut left).await
                {
                    Ok(message) => {
                        let reason = validation.reason.clone().unwrap_or_else(|| "Invalid".into());
                        Verdict::Deny(reason, message)
                    }
                    Err(end) => {
                        let end = ended.insert(format!("failed messageExpression: {end}"));
                        Verdict::Error(end.clone(), self.fails)
                    }
                },
            };
            decisions.push(Decision { verdict, elapsed: evaluated.elapsed });
        }
        match self.annotate(env, input).await {
            Ok(annotations) => Outcome { decisions, annotations },
            Err(why) => self.failed(why),
        }
    }

    fn failed(&self, why: String) -> Outcome {
        let decision = Decision { verdict: Verdict::Error(why, self.fails), elapsed: Duration::ZERO };
        Outcome { decisions: vec![decision], annotations: Vec::new() }
    }

    /// The message for a validation that does not hold.
    async fn message(
        &self,
        scope: &Scope<'_>,
        of: &Validation,
        expression: Option<&Expression>,
        left: &mut u64,
    ) -> Result<String, crate::admission::expressions::OutOfBudget> {
        if let Some(expression) = expression
            && let Ok(Value::String(text)) = scope.evaluate(expression, left).await?.value
        {
            let text = text.trim();
            if !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n') {
                return Ok(text.to_owned());
            }
        }
        Ok(match of.message.trim() {
            "" => format!("failed expression: {}", of.expression.trim()),
            message => message.to_owned(),
        })
    }

    async fn annotate<'a>(&'a self, env: &'a Env, input: &'a Input<'a>) -> Result<Vec<Annotation>, String> {
        let mut left = RUNTIME_BUDGET;
        let scope = Scope::new(env, input, &self.variables);
        let mut all = Vec::with_capacity(self.annotations.len());
        for (key, expression) in &self.annotations {
            let evaluated = scope.evaluate(expression, &mut left).await.map_err(|end| end.to_string())?;
            all.push(match evaluated.value {
                Ok(Value::String(text)) => match text.trim() {
                    "" => Annotation::Exclude,
                    text => Annotation::Publish(key.clone(), text.to_owned()),
                },
                Ok(Value::Null) => Annotation::Exclude,
                Ok(other) => {
                    let why = format!(
                        "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                        expression.text,
                        other.type_name()
                    );
                    Annotation::Error(why, evaluated.elapsed)
                }
                Err(why) if self.fails => Annotation::Error(why, evaluated.elapsed),
                Err(_) => Annotation::Exclude,
            });
        }
        Ok(all)
    }
}
