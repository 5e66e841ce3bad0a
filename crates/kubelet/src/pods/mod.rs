//! Pods: what is wanted of them, what the runtime has of them, and the way from one to the other.

pub(crate) mod actions;
#[cfg(test)]
mod actions_tests;
pub(crate) mod addresses;
pub(crate) mod admission;
pub(crate) mod allocated;
pub(crate) mod allocation;
pub(crate) mod app_armor;
pub(crate) mod config;
pub(crate) mod devices;
pub(crate) mod dns;
pub(crate) mod downward;
pub(crate) mod env;
pub(crate) mod hooks;
pub(crate) mod host;
pub(crate) mod kill;
pub mod labels;
pub(crate) mod lifecycle;
pub mod manager;
pub(crate) mod messages;
pub(crate) mod mirrors;
pub(crate) mod mount_modes;
pub mod observed;
pub(crate) mod observer;
pub mod pod_level;
pub(crate) mod preemption;
pub(crate) mod reporter;
pub(crate) mod resize;
mod resize_plan;
pub(crate) mod resources;
pub(crate) mod restart_all;
pub(crate) mod runtime_classes;
pub(crate) mod sandboxes;
pub(crate) mod security;
pub(crate) mod spec;
pub(crate) mod start;
pub(crate) mod startup;
mod stop_signal;
pub(crate) mod sync;
pub mod sysctls;
pub(crate) mod worker;
pub(crate) mod workers;

pub use manager::{ContainerRef, PodManager};
