//! Statuses of Pods: computed, and written to the API.

pub(crate) mod generate;
#[cfg(test)]
mod generate_tests;
pub(crate) mod patch;
#[cfg(test)]
mod upstream_tests;
