//! The rules of kinds against what upstream's server answered, and what they cost.

mod columns;
mod edges;
mod field_names;
mod gates;
mod growth;
mod statuses;
mod support;
