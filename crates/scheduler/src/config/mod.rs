//! The configuration of the scheduler: upstream's `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`.
//!
//! A file is read strictly ([`read`]), gets upstream's defaults ([`defaults`]) and is validated with upstream's texts
//! (`validate.rs`). Arguments of plugins are typed for those of this crate, and left as they are for others ([`args`]).

pub mod args;
pub mod defaults;
pub mod document;
pub mod extenders;
pub mod read;
mod validate;
pub mod write;
