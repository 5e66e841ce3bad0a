//! The parts of objects that the controllers keep in their caches.
//!
//! A type here is decoded from an object's JSON without the rest of the object, once for all controllers of the
//! process. It has no JSON of its own ([`client::ToJson`]), so that it cannot be written in the object's place:
//! controllers change such an object by patches, or read it whole before.

mod meta;
mod node;
mod pod;
mod task;

pub use meta::{FOREGROUND, Meta, ORPHAN};
pub use node::{NodeConditions, NodeView, nodes};
#[cfg(test)]
pub(crate) use pod::tests;
pub use pod::{
    ClaimPlace, ClaimVolume, Condition, DeviceClaims, Made, NamedPort, PodView, Tolerations, Truth,
};
pub use task::{Exit, TRACKING, Task};
