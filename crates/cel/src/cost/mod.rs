//! Costs: how much work an expression may be (estimated from types), and how much it was.

mod actual;
mod calls;
mod estimate;
mod range;

pub(crate) use actual::{OBJECT, call, needs_result};
pub(crate) use estimate::estimate;
pub use range::Range;
use range::scaled as factor;

/// What a character of a text costs that a function goes through.
const STRING_FACTOR: f64 = 0.1;
/// What a character of a regular expression costs.
const REGEX_FACTOR: f64 = 0.25;
/// What a list costs that is made.
pub(crate) const LIST_BASE: u64 = 10;
/// What a map costs that is made.
pub(crate) const MAP_BASE: u64 = 30;
const STRUCT_BASE: u64 = 40;
/// What a question to the authorizer costs.
const CHECK: u64 = 350_000;

/// What a selector of this length costs: it is read, and each requirement, of which there may be one for two
/// characters, is a list and an object.
fn selector(length: u64) -> u64 {
    let requirements = factor(length, 0.5);
    LIST_BASE
        .saturating_add(factor(length, STRING_FACTOR))
        .saturating_add(factor(requirements, (LIST_BASE + STRUCT_BASE) as f64))
}
