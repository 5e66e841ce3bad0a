//! Whether the expressions of policies and match conditions compile.

use std::sync::Arc;

use api::field::{Errors, Path};
use cel::admission::{self, Parts};
use cel::{CompileError, Environment, Type, Version};

/// The environment of an expression in a policy or a match condition.
pub(super) fn environment(params: bool) -> Environment {
    admission::admission(Version::NEW, Parts { params, authorizer: true, mutations: false })
}

/// The environments of a policy's expressions.
pub(super) struct Composed {
    variables: Arc<admission::Composed>,
    /// Of variables, validations and annotations.
    common: Environment,
    /// Of messages, which may not ask the authorizer.
    messages: Environment,
    mutations: Environment,
}

impl Composed {
    /// No variable is there yet; `has_variables` says whether expressions know `variables` at all.
    pub(super) fn new(params: bool, has_variables: bool) -> Self {
        let variables = Arc::new(admission::Composed::default());
        let of = |authorizer, mutations| {
            let env = admission::admission(Version::NEW, Parts { params, authorizer, mutations });
            if has_variables { admission::with_composed(env, variables.clone()) } else { env }
        };
        let (common, messages, mutations) = (of(true, false), of(false, false), of(true, true));
        Self { variables, common, messages, mutations }
    }
    /// Checks a variable, which those after it may use.
    pub(super) fn variable(&self, errs: &mut Errors, at: &Path<'_>, name: &str, expression: &str) {
        let ty = compiled(errs, at, expression, expression, &self.common, &[]);
        self.variables.add(name, ty.unwrap_or(Type::Dyn));
    }
    /// Checks a validation.
    pub(super) fn validation(&self, errs: &mut Errors, at: &Path<'_>, expression: &str) {
        compiled(errs, at, expression, expression, &self.common, &[Type::Bool]);
    }
    /// Checks the expression of a message.
    pub(super) fn message(&self, errs: &mut Errors, at: &Path<'_>, expression: &str) {
        compiled(errs, at, expression, expression, &self.messages, &[Type::String]);
    }
    /// Checks the value of an audit annotation.
    pub(super) fn annotation(&self, errs: &mut Errors, at: &Path<'_>, expression: &str) {
        let wanted = [Type::String, Type::Null];
        compiled(errs, at, expression, expression.trim(), &self.common, &wanted);
    }
    /// Checks a mutation.
    pub(super) fn mutation(&self, errs: &mut Errors, at: &Path<'_>, expression: &str, json_patch: bool) {
        let wanted = if json_patch { Type::list(Type::object("JSONPatch")) } else { Type::object("Object") };
        let expression = expression.trim();
        compiled(errs, at, expression, expression, &self.mutations, &[wanted]);
    }
}

/// Checks a match condition.
pub(super) fn match_condition(errs: &mut Errors, at: &Path<'_>, expression: &str, env: &Environment) {
    let expression = expression.trim();
    compiled(errs, at, expression, expression, env, &[Type::Bool]);
}

/// Checks an expression, and returns its type; `shown` is what an error shows of it. Any type is wanted if none is
/// named.
fn compiled(
    errs: &mut Errors,
    at: &Path<'_>,
    shown: &str,
    expression: &str,
    env: &Environment,
    wanted: &[Type],
) -> Option<Type> {
    // Further errors would not be shown.
    if errs.is_full() {
        return None;
    }
    let program = match env.compile(expression) {
        Ok(program) => program,
        Err(CompileError::Issues(issues)) => {
            errs.invalid(at, shown, format!("compilation failed: {issues}"));
            return None;
        }
        Err(CompileError::Constant(text)) => {
            errs.internal(at, format!("program instantiation failed: {text}"));
            return None;
        }
    };
    let found = program.result_type().clone();
    match admission::mismatch(&found, wanted) {
        None => Some(found),
        Some(why) => {
            errs.invalid(at, shown, why);
            None
        }
    }
}
