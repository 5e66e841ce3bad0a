//! Results of functions.

use crate::error::EvalError;
use crate::value::Value;

/// The result of a function; `None` if it does not know such arguments.
pub(crate) type Outcome<'a> = Option<Result<Value<'a>, EvalError>>;

/// A function.
pub(crate) type Function = for<'a> fn(&[Value<'a>]) -> Outcome<'a>;
