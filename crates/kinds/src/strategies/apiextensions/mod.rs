//! CustomResourceDefinitions.

mod definition;
mod schema;
mod selectable;

pub(super) use definition::DEFINITION;

#[cfg(test)]
mod tests;
