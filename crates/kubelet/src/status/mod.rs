//! Statuses of Pods: computed, and written to the API.

pub(crate) mod generate;
pub(crate) mod patch;
