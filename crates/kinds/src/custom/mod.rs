//! The kinds of CustomResourceDefinitions: what a definition says, as the facts and rules of a kind.

mod compile;
mod definition;
mod json_path;
mod object;
mod rules;
mod strategy;
mod table;

pub use compile::structural;
pub use definition::{Conversion, Definition, Names, ScalePaths, Version};
pub use json_path::JsonPath;
pub use strategy::CustomStrategy;

#[cfg(test)]
mod tests;
