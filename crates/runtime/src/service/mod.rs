//! The calls of CRI.

mod cgroup_stats;
mod containers;
mod core;
mod create;
mod deadline;
mod error;
mod exec;
mod images;
mod lists;
mod metrics;
mod recover;
mod runtime;
mod sandboxes;
mod start;
mod stats;
mod status;

pub use self::start::{ARCHIVES, Runtime, Settings, StartError};
