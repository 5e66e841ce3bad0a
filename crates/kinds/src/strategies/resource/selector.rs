//! The expressions that select devices.

use std::sync::LazyLock;

use cel::admission::device;
use cel::{CompileError, Environment, Type, Version};

static ENV: LazyLock<Environment> = LazyLock::new(|| device(Version::NEW));

/// Checks that an expression compiles to a boolean; an attribute alone may be one.
pub(super) fn compile(expression: &str) -> Result<(), String> {
    let program = ENV.compile(expression).map_err(|e| match e {
        CompileError::Issues(issues) => format!("compilation failed: {issues}"),
        CompileError::Constant(text) => format!("program instantiation failed: {text}"),
    })?;
    match program.result_type() {
        Type::Bool | Type::Any => Ok(()),
        other => Err(format!("must evaluate to bool or the unknown type, not {}", other.long_name())),
    }
}
