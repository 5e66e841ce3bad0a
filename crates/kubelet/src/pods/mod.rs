//! Pods: what is wanted of them, what the runtime has of them, and the way from one to the other.

pub mod labels;
pub mod manager;
pub mod observed;

pub use manager::{ContainerRef, PodManager};
