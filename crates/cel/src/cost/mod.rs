//! Costs: how much work an expression may be (estimated from types), and how much it was.

mod actual;
mod calls;
mod estimate;
mod range;

pub(crate) use actual::{OBJECT, call, needs_result};
pub(crate) use estimate::estimate;
pub use range::Range;
use range::scaled as factor;

/// The cost of a character of a text that a function goes through.
const STRING_FACTOR: f64 = 0.1;
/// The cost of a character of a regular expression.
const REGEX_FACTOR: f64 = 0.25;
/// The cost of a list that is made.
pub(crate) const LIST_BASE: u64 = 10;
/// The cost of a map that is made.
pub(crate) const MAP_BASE: u64 = 30;
const STRUCT_BASE: u64 = 40;
/// The functions of Kubernetes' libraries that cost one, whatever they are given.
const FLAT: [&str; 27] = [
    "masked",
    "prefixLength",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "format.named",
    "sign",
    "asInteger",
    "isInteger",
    "asApproximateFloat",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "add",
    "sub",
    "major",
    "minor",
    "patch",
    "getScheme",
    "getHostname",
    "getHost",
    "getPort",
    "getEscapedPath",
    "getQuery",
];
/// The cost of a question to the authorizer.
const CHECK: u64 = 350_000;

/// The cost of a selector of this length: it is read, and each requirement, of which there may be one for two
/// characters, is a list and an object.
fn selector(length: u64) -> u64 {
    let requirements = factor(length, 0.5);
    LIST_BASE
        .saturating_add(factor(length, STRING_FACTOR))
        .saturating_add(factor(requirements, (LIST_BASE + STRUCT_BASE) as f64))
}
