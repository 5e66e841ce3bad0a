//! Rules on typed objects that components must agree on: the requests of a Pod, the taints that it tolerates, the nodes
//! on which it may run, the labels that a selector selects, what an object takes from a quota.
//!
//! The crate is pure: no I/O, no clock, no async. It depends on `api` alone; it must never know a component. A rule
//! belongs here once a second component needs it.

pub mod attachable;
pub mod backends;
pub mod cidr;
pub mod claims;
pub mod devices;
pub mod expansion;
pub mod features;
pub mod labels;
pub mod local_path;
pub mod migration;
pub mod node_affinity;
pub mod pod;
pub mod ports;
pub mod quantity;
pub mod quota;
pub mod resources;
pub mod taints;
pub mod time;
pub mod volumes;

pub use cidr::{Cidr, CidrError};
pub use labels::{Labels, Selector, SelectorError};
pub use resources::{Amount, Resources};
