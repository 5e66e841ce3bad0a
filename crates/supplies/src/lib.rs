//! Clusters from a checkout get these: [images](Image) that are made on the spot, and settings of containerd.
//!
//! Both `cargo xtask up` and the tests use them, so this crate has few dependencies and those of xtask.

mod containerd;
mod image;
mod wait;

pub use containerd::{PAUSE, containerd_config, nodes_containerd_config};
pub use image::{BUSYBOX, Image};
pub use wait::{eventually, within};
