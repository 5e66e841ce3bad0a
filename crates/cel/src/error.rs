//! The reasons for which an evaluation has no value.

use std::borrow::Cow;
use std::fmt;

use crate::access::Question;

/// The reason for which an evaluation has no value.
#[derive(Debug, Clone, PartialEq)]
pub enum EvalError {
    /// The expression failed; upstream's text. `&&`, `||` and what follows from them may do without the value.
    Failed(Cow<'static, str>),
    /// The expression cost more than one may, which ends it.
    CostLimit,
    /// The authorizer has to be asked this; the evaluation is to be run again with the answer.
    Pending(Box<Question>),
}

impl EvalError {
    /// A failure with a text.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Failed(text.into())
    }
    /// Whether nothing can go on after this.
    pub(crate) fn ends(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
    /// The failure of an operator that does not know its operands.
    pub(crate) fn no_overload() -> Self {
        Self::new("no such overload")
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) => f.write_str(text),
            Self::CostLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::Pending(_) => f.write_str("the authorizer has not answered yet"),
        }
    }
}

impl std::error::Error for EvalError {}
