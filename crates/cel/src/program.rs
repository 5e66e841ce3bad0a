//! Programs: expressions that are ready to be evaluated, by any thread and any number of times.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cost::Range;
use crate::error::EvalError;
use crate::eval::{Activation, evaluate};
use crate::plan::Plan;
use crate::types::Type;
use crate::value::Value;

/// What one evaluation may cost: about a tenth of a second of upstream's.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// What all evaluations for one object may cost.
pub const RUNTIME_BUDGET: u64 = 10_000_000;
/// What all match conditions for one object may cost.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;

/// An expression that is ready to be evaluated.
#[derive(Debug)]
pub struct Program {
    plan: Plan,
    result: Type,
    estimate: Range,
    variables: BTreeSet<Arc<str>>,
}

impl Program {
    pub(crate) fn new(plan: Plan, result: Type, estimate: Range, variables: BTreeSet<Arc<str>>) -> Self {
        Self { plan, result, estimate, variables }
    }
    /// The type of the expression.
    pub fn result_type(&self) -> &Type {
        &self.result
    }
    /// What an evaluation may cost, by the sizes that the environment's objects know.
    pub fn static_cost(&self) -> Range {
        self.estimate
    }
    /// Whether the expression names a variable of the environment.
    pub fn uses(&self, variable: &str) -> bool {
        self.variables.contains(variable)
    }

    /// Evaluates the expression. What it cost is taken off the budget, whatever became of it.
    pub fn evaluate<'a>(
        &self,
        activation: &dyn Activation<'a>,
        budget: &mut Budget,
    ) -> Result<Value<'a>, EvalError> {
        let (value, cost) = evaluate(&self.plan, activation, budget.per_call);
        budget.spend(cost);
        value
    }
}

/// What evaluations may cost: each, and all together. The sum is looked at by the caller, since upstream lets an
/// evaluation end that began within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    per_call: u64,
    left: u64,
    last: u64,
    exhausted: bool,
}

impl Budget {
    /// A budget for several evaluations.
    pub fn new(per_call: u64, total: u64) -> Self {
        Self { per_call, left: total, last: 0, exhausted: false }
    }
    fn spend(&mut self, cost: u64) {
        self.last = cost;
        self.exhausted |= cost > self.left;
        self.left = self.left.saturating_sub(cost);
    }
    /// What the last evaluation cost.
    pub fn last(&self) -> u64 {
        self.last
    }
    /// What is left for further evaluations.
    pub fn left(&self) -> u64 {
        self.left
    }
    /// Whether evaluations cost more than there was.
    pub fn exhausted(&self) -> bool {
        self.exhausted
    }
}

impl Default for Budget {
    /// Upstream's limits for the rules of one object.
    fn default() -> Self {
        Self::new(PER_CALL_LIMIT, RUNTIME_BUDGET)
    }
}
