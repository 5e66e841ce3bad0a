//! The kinds of CustomResourceDefinitions: what a definition says, as the facts and rules of a kind.

mod approval;
mod compile;
mod definition;
mod field_path;
mod json_path;
mod object;
mod rules;
mod strategy;
mod table;

pub use approval::Approval;
pub use compile::structural;
pub use definition::{Conversion, Definition, Names, ScalePaths, Version};
pub use json_path::JsonPath;
pub use strategy::CustomStrategy;

pub(crate) use field_path::valid_path;
pub(crate) use rules::{Outcome, Rules, Run};
pub(crate) use strategy::embedded_meta;

#[cfg(test)]
mod tests;
