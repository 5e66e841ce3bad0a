//! CustomResourceDefinitions.

mod definition;
mod schema;
mod selectable;

pub(super) use definition::DEFINITION;
pub(crate) use schema::{is_structural, structural_faults};

#[cfg(test)]
mod tests;
