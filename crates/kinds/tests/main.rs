//! The rules of kinds compared with the answers of upstream's server, and the growth of their cost.

mod columns;
mod edges;
mod field_names;
mod gates;
mod growth;
#[allow(unreachable_pub, reason = "the fuzz targets use it from outside")]
#[allow(clippy::panic, reason = "a test fails where it can't go on")]
mod properties;
mod seeds;
mod statuses;
mod support;
mod workloads;
