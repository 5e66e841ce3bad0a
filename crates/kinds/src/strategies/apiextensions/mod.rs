//! CustomResourceDefinitions.

mod definition;
mod json_schema;

pub(super) use definition::DEFINITION;
