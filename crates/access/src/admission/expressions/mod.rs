//! Expressions of policies and webhooks: compiled once, evaluated about a request (upstream: `plugin/cel`).

mod conditions;
mod input;
mod scope;

use cel::{CompileError, Environment, Program, Type};

pub(super) use conditions::{Condition, Conditions, Met, Metrics, Named};
pub(super) use input::Input;
pub(super) use scope::{OutOfBudget, Scope, Variable};

/// An expression that was compiled, or the reason why it could not be, in upstream's words.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) text: String,
    pub(super) program: Result<Program, String>,
}

impl Expression {
    /// Compiles a text that must have one of these types; any type is wanted if none is named.
    pub(super) fn new(env: &Environment, text: &str, wanted: &[Type]) -> Self {
        let program = match env.compile(text) {
            Ok(program) => match cel::admission::mismatch(program.result_type(), wanted) {
                None => Ok(program),
                Some(why) => Err(why),
            },
            Err(CompileError::Issues(issues)) => Err(format!("compilation failed: {issues}")),
            Err(CompileError::Constant(why)) => Err(format!("program instantiation failed: {why}")),
        };
        Self { text: text.to_owned(), program }
    }
    /// Whether the expression names a variable.
    pub(super) fn uses(&self, variable: &str) -> bool {
        self.program.as_ref().is_ok_and(|program| program.uses(variable))
    }
}
