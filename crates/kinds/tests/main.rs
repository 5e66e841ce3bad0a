//! The rules of kinds compared with the answers of upstream's server, and the growth of their cost.

mod columns;
mod edges;
mod field_names;
mod gates;
mod growth;
mod statuses;
mod support;
