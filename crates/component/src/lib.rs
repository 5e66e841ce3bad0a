//! What every component has: a clock, shutdown, feature gates.
//!
//! One instance a component, no globals: several components run in one process, and several
//! clusters in one test. Depends on no other crate of the workspace; must never know a component by
//! name.

pub mod clock;
pub mod features;
pub mod shutdown;

pub use clock::Clock;
pub use features::FeatureGates;
pub use shutdown::Shutdown;
